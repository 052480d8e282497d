"""Asking the API how much input requests have, by its count endpoint, which is free."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from agent_magic.errors import CallError, NotConnected
from agent_magic.live.foreseen import foresee

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_magic.declare.plan import Plan
    from agent_magic.live.admission import Admission
    from agent_magic.live.attempts import Turning
    from agent_magic.live.tasks import Tasks
    from agent_magic.providers.base import Provider
    from agent_magic.record.ledger.base import Ledger
    from agent_magic.record.request import Request
    from agent_magic.record.results import RunRecord

MOST_COUNTED = 50
"""Larger plans are estimated: the count endpoint has a limit of its own."""
COUNT_TIMEOUT_S = 10.0


class Counting:
    """Counts the input of requests that a budget may have no room for.

    No token is shorter than a byte. That bounds a request before anybody is asked, but about four times too high: where
    a budget has no room for so much, the API says how much it is. Once it does not, nothing more is counted.

    Args:
        run: Who is told that there may be room now.
        client: Who counts.
        admission: Writes the requests, and knows what each may use.
        tasks: Owns what is under way.
    """

    def __init__(self, run: Turning, client: Provider, admission: Admission, tasks: Tasks) -> None:
        self._run, self._client, self._admission, self._tasks = run, client, admission, tasks
        self._under_way: set[int] = set()
        self._silent = False

    def ask(self, agent: int) -> bool:
        """Have an agent's request counted. Tell whether that is under way."""
        if agent in self._under_way:
            return True
        if self._silent:
            return False
        self._under_way.add(agent)
        self._tasks.begin(~agent, self._count(agent, self._admission.ahead(agent)))
        return True

    async def _count(self, agent: int, request: Request) -> None:
        try:
            try:
                found, trouble = await count(request, self._client)
            finally:
                self._under_way.discard(agent)
                self._tasks.left(~agent)
            self._silent = self._silent or bool(trouble)
            self._admission.counted(agent, found)
            if self._run.record.ended_s is None:
                now = self._run.now()
                self._run.apply(self._run.conductor.room_changed(now), now)
        except BaseException as bug:
            if not self._tasks.broke(bug):
                raise


async def count(request: Request, client: Provider) -> tuple[int | None, str]:
    """Ask for the input tokens of one request; `None` where the API does not say, and why."""
    if not request.prompt.strip():  # nothing but answers that are not there yet, and the API counts no empty text
        request = request._replace(prompt="-")
    try:
        async with asyncio.timeout(COUNT_TIMEOUT_S):
            found = await client.count_tokens(request)
            return found, "" if found is not None else "the provider does not count tokens"
    except (CallError, TimeoutError) as error:
        return None, str(error) or f"no answer within {COUNT_TIMEOUT_S:g} s"


async def count_ahead(
    plan: Plan, client: Provider, ledger: Ledger | None = None, pilot: RunRecord | None = None
) -> tuple[list[int | None], str]:
    """Ask the API for the input tokens of all that a plan will ask, answers that are not there yet left empty.

    Returns:
        Per agent, its input tokens; `None` where its answer is there already, or the API does not say. And why it
        does not, an empty string where it does.

    Raises:
        DeclarationError: A prompt cannot be filled in.
    """
    requests, held = foresee(plan, client, ledger, pilot)
    sent = [request for request, answer in zip(requests, held, strict=True) if answer is None]
    counts, trouble = await _count_all(sent, client)
    left = iter(counts)
    return [next(left) if answer is None else None for answer in held], trouble


async def _count_all(requests: Sequence[Request], client: Provider) -> tuple[list[int | None], str]:
    """Ask the API for the tokens of each request; `None` where it does not say, and why."""
    nothing: list[int | None] = [None] * len(requests)
    if not requests:
        return nothing, ""
    if len(requests) > MOST_COUNTED:
        return nothing, f"{len(requests):,} agents are more than the count endpoint should be asked for at once"
    try:
        async with client.open(), asyncio.TaskGroup() as group:
            tasks = [group.create_task(count(request, client)) for request in requests]
        found = [task.result() for task in tasks]
        return [tokens for tokens, _ in found], next((trouble for _, trouble in found if trouble), "")
    except NotConnected:
        return nothing, "no API key is set"
