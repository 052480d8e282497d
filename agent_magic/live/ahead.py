"""The known parts of a run's requests before it begins, and the stored answers."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from agent_magic.engine.requests import ask, escalation_of, model_of
from agent_magic.errors import CallError, NotConnected, Rejected
from agent_magic.live.answer_cache import AnswerCache, Earlier, same_request
from agent_magic.providers.anthropic.client import as_provider
from agent_magic.providers.base import facts_of
from agent_magic.record.answer import TOOL_USE, Answer, Usage
from agent_magic.record.ledger.batches import name_of
from agent_magic.record.request import Request, answered, going_on
from agent_magic.record.terms import Terms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from anthropic import AsyncAnthropic

    from agent_magic.declare.flow import Left
    from agent_magic.declare.plan import Plan
    from agent_magic.engine.pacing.pacer import Pacer
    from agent_magic.providers.base import Provider
    from agent_magic.record.ledger.base import Ledger
    from agent_magic.record.request import Kind
    from agent_magic.record.results import AgentResult, RunRecord

ANY_TIMEOUT_S = 60.0
MOST_COUNTED = 50
"""Larger plans are sampled: the count endpoint has its own rate limit."""
SAMPLED = 10
"""Requests of one kind that are counted, from shortest to longest."""
COUNT_TIMEOUT_S = 10.0
WRONG_REQUEST = frozenset({400, 413, 422})
"""Statuses that reject a request's content; others can be fixed elsewhere, such as by a key."""
UNNEEDED = Answer("", "end_turn", usage=Usage(0, output_tokens=0), model="", source="ledger")
"""Stands for the answer of an agent that stored answers show to be unneeded."""


def foresee(
    plan: Plan,
    client: Provider | AsyncAnthropic | None = None,
    ledger: Ledger | None = None,
    pilot: RunRecord | None = None,
) -> tuple[tuple[Request, ...], tuple[Answer | None, ...]]:
    """Build every request of a plan, unknown answers left empty, and look up stored answers."""
    known = None
    if ledger is not None or pilot is not None:
        where = as_provider(client).endpoint
        earlier = None if pilot is None else Earlier(pilot, where, plan=plan)
        known = AnswerCache(plan, where, ledger, earlier, fresh=False)
    requests: dict[int, Request] = {}
    said: dict[int, Request] = {}
    held: dict[int, Answer | None] = {}
    texts: dict[str, Any] = {}
    unneeded: dict[int, Left] = {}
    for agent in plan.dag.order:
        if (why := _decided(plan, agent, texts, unneeded)) is not None:
            unneeded[agent], held[agent] = why, UNNEEDED
            requests[agent] = Request(model_of(plan.agents[agent]), "", 0)
            continue
        inputs = [name for name in plan.inputs[agent] if plan.index[name] not in unneeded]
        whole = all(name in texts for name in inputs)
        answers = {name: texts.get(name, "") for name in inputs}
        request = requests[agent] = _going_on(
            plan, agent, ask(plan, agent, answers, ANY_TIMEOUT_S, ahead=not whole), texts, said
        )
        answer = held[agent] = _find(plan, known, agent, request) if known is not None and whole else None
        said[agent] = request if answer is None or answer.stop_reason == TOOL_USE else answered(request, answer)
        if answer is not None and answer.stop_reason != TOOL_USE:  # the turns behind a call of a tool are not known yet
            texts[plan.agents[agent].name] = plan.meaning_of(agent, answer.text)
    every = range(len(plan))
    return tuple(requests[agent] for agent in every), tuple(held[agent] for agent in every)


def waiting_in_batches(plan: Plan, client: Provider | AsyncAnthropic | None, ledger: Ledger | None) -> int:
    where = as_provider(client).endpoint
    names = {name for one in ([] if ledger is None else ledger.batches.open(where)) for name in one.names}
    if not names:
        return 0
    requests, held = foresee(plan, client, ledger)
    cache = AnswerCache(plan, where, ledger, None, fresh=False)
    places = {agent: cache.key(agent, requests[agent]) for agent, one in enumerate(plan.agents) if not one.is_task}
    return sum(held[agent] is None and name_of(*place) in names for agent, place in places.items())


def _find(plan: Plan, known: AnswerCache, agent: int, request: Request) -> Answer | None:
    models = plan.agents[agent].cascade or (request.model,)
    for model in reversed(models):
        answer = known.find(agent, request._replace(model=model))
        if answer is not None:
            return answer if model == models[-1] or escalation_of(plan, agent, answer) is None else None
    return None


def terms_ahead(plan: Plan, client: Provider, pacer: Pacer) -> Terms:
    key = client.credentials
    untried = key is not None and not key.accepted
    before, learned = pacer.ceilings(), pacer.learned(time.monotonic())
    known = facts_of(client, plan.asked | {""})
    return Terms({}, bool(before), before, {}, key_untried=untried, learned=learned, models=known)


def asked_again(plan: Plan, record: RunRecord) -> dict[str, bool]:
    """Return, for each step that succeeded, whether the plan would ask it again."""
    earlier = Earlier(record, record.origin, plan=plan)
    again = unbought(plan, record.origin, None, earlier, fresh=False, timeout_s=1.0)
    stale = {plan.names[one] for one in again}
    done = [one.name for one in record.results if one.status == "succeeded" and one.name in plan.index]
    return {name: name in stale for name in done}


def statuses(plan: Plan, record: RunRecord) -> dict[str, str]:
    """Return the status of each step in a run, or `stale` if the plan would ask it again."""
    again = asked_again(plan, record)
    return {one.name: "stale" if again.get(one.name) else one.status for one in record.results}


def unbought(
    plan: Plan, endpoint: str, ledger: Ledger | None, earlier: Earlier | None, *, fresh: bool, timeout_s: float
) -> list[int]:
    known = AnswerCache(plan, endpoint, ledger, earlier, fresh=fresh)
    left_out = () if earlier is None else earlier.left_out
    texts: dict[str, Any] = {}
    found: list[int] = []
    said: dict[int, Request] = {}
    unneeded: dict[int, Left] = {}
    for agent in plan.dag.order:
        name = plan.agents[agent].name
        if name in left_out:
            continue
        if (why := _decided(plan, agent, texts, unneeded)) is not None:
            unneeded[agent] = why
            continue
        if plan.agents[agent].race and (won := _won(plan, agent, texts)):  # those that have lost are not asked
            texts[name] = texts[won]
            found = [one for one in found if one not in plan.dag.parents[agent]]
            continue
        answer = None
        if all(one in texts or plan.index[one] in unneeded for one in plan.inputs[agent]):
            if ledger is None and earlier is not None and (value := earlier.returned(plan, agent)) is not None:
                (texts[name],) = value
                continue
            request = _going_on(plan, agent, ask(plan, agent, texts, timeout_s, ahead=True), texts, said)
            answer = known.find(agent, request)
            said[agent] = request if answer is None or answer.stop_reason == TOOL_USE else answered(request, answer)
        if answer is None:
            found.append(agent)
        elif answer.stop_reason != TOOL_USE:
            texts[name] = plan.meaning_of(agent, answer.text)
    return found


def _going_on(
    plan: Plan, agent: int, request: Request, answers: Mapping[str, Any], said: Mapping[int, Request]
) -> Request:
    name = plan.continued(agent, answers)
    before = None if name is None else said.get(plan.index[name])
    return request if before is None else going_on(request, before)


def is_rejected(result: AgentResult) -> bool:
    if result.status != "failed" or result.kind != Rejected.__name__ or not result.attempts:
        return False
    return result.attempts[-1].status_code in WRONG_REQUEST


def rejected_again(plan: Plan, records: Sequence[RunRecord], client: Provider) -> list[str]:
    """Return the agents with a newest request that was rejected and would be sent unchanged."""
    # Another server may accept the request.
    wrong: dict[str, Request] = {}
    for name in plan.names:
        known = ((one.origin, one.results[one.plan.index[name]]) for one in records if name in one.plan.index)
        origin, result = next(((where, one) for where, one in known if one.attempts), ("", None))
        if result is None or origin != client.endpoint or not is_rejected(result):
            continue
        if not result.attempts[-1].request.goes_on:  # what its tools say may be another thing now
            wrong[name] = result.attempts[-1].request
    requests = foresee(plan, client, pilot=records[0])[0] if wrong else ()
    return [name for name, one in wrong.items() if same_request(one) == same_request(requests[plan.index[name]])]


def _won(plan: Plan, race: int, answers: Mapping[str, Any]) -> str:
    names = (plan.agents[one].name for one in plan.dag.parents[race])
    return next((name for name in names if name in answers), "")


def _decided(plan: Plan, agent: int, answers: Mapping[str, Any], left: Mapping[int, Left]) -> Left | None:
    """Return why an agent is not needed, if all that decides it is known."""
    flow = plan.flow
    if flow is None or agent not in flow.decides:
        return None
    known = all(plan.agents[one].name in answers or one in left for one in plan.dag.parents[agent])
    return flow.choose(agent, answers, left) if known else None


ESTIMATED = "tokens are estimated, not counted"


async def count(request: Request, client: Provider) -> tuple[int | None, str]:
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
    requests, held = foresee(plan, client, ledger, pilot)
    sent = [request for request, answer in zip(requests, held, strict=True) if answer is None]
    counts, trouble = await _count_all(sent, client)
    left = iter(counts)
    return [next(left) if answer is None else None for answer in held], trouble


async def _count_all(requests: Sequence[Request], client: Provider) -> tuple[list[int | None], str]:
    nothing: list[int | None] = [None] * len(requests)
    if not requests:
        return nothing, ""
    asked = range(len(requests)) if len(requests) <= MOST_COUNTED else _sample(requests)
    try:
        async with client.open(), asyncio.TaskGroup() as group:
            tasks = {number: group.create_task(count(requests[number], client)) for number in asked}
        found = {number: task.result() for number, task in tasks.items()}
    except NotConnected:
        return nothing, f"{ESTIMATED}: no API key is set"
    trouble = next((f"{ESTIMATED}: {why}" for _, why in found.values() if why), "")
    if not trouble and len(found) < len(requests):
        trouble = (
            f"tokens of {len(found)} agents are counted, of all lengths; the other {len(requests) - len(found):,} "
        )
        trouble += "are estimated by them"
    return [found[number][0] if number in found else None for number in range(len(requests))], trouble


def _sample(requests: Sequence[Request]) -> list[int]:
    kinds: dict[Kind, list[int]] = {}
    for number, request in enumerate(requests):
        kinds.setdefault(request.kind, []).append(number)
    most = max(1, min(SAMPLED, MOST_COUNTED // len(kinds)))
    found: list[int] = []
    for numbers in [*kinds.values()][:MOST_COUNTED]:
        ranked = sorted(numbers, key=lambda number: len(requests[number].prompt))
        few = min(most, len(ranked))
        found += (
            [ranked[index * (len(ranked) - 1) // (few - 1)] for index in range(few)]
            if few > 1
            else [ranked[len(ranked) // 2]]
        )
    return found
