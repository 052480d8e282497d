"""Questions to a person: approval of calls and answers, and decisions about calls that may have happened."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal, NamedTuple

from agent_magic.engine.calls import Verdict
from agent_magic.errors import AgentMagicError, DeclarationError, shown_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_magic.declare.plan import Plan
    from agent_magic.engine.calls import Call
    from agent_magic.record.results import RunRecord

Asker = Callable[["Question"], Awaitable[Verdict | bool] | Verdict | bool]
"""Shows a question to a person and returns the answer; it is cancelled once no answer is needed."""
NOBODY = Verdict(approved=False, why="nobody is there to ask")


class Question(NamedTuple):
    """A question to a person.

    Attributes:
        kind: `call` before a tool call, `answer` before an answer is passed on, `doubt` about a call begun by a kernel
            that is gone: approval calls it again, a changed text becomes its result, denial tells the model that it
            failed.
        agent: The agent.
        tool: The name of the function; empty for an answer.
        text: The exact arguments as JSON, or the answer. Approval applies to this text or to its replacement.
        seconds: Seconds until it counts as denied.
    """

    kind: Literal["call", "answer", "doubt"]
    agent: str
    tool: str
    text: str
    seconds: float


class Pending(NamedTuple):
    """An open question as read by a program.

    Attributes:
        number: Its number, for `approve` and `deny`.
        agent: The agent.
        tool: The name of the function; empty for an answer.
        text: The exact arguments as JSON, or the answer.
        kind: `call`, `answer` or `doubt`, as in `Question`.
        until: When it counts as denied.
    """

    number: int
    agent: str
    tool: str
    text: str
    kind: Literal["call", "answer", "doubt"]
    since: datetime
    until: datetime


LATE = "nobody answered within"
NOTHING = "No question is open."


async def ask(asker: Asker | None, plan: Plan, question: Question) -> Verdict:
    if asker is None:
        return NOBODY
    limit = asyncio.timeout(question.seconds)
    try:
        async with limit:
            said = asker(question)
            verdict = _read(await said if inspect.isawaitable(said) else said)
    except TimeoutError:
        if not limit.expired():
            raise  # the asker's own
        return Verdict(approved=False, why=f"{LATE} {question.seconds:g} s")
    fault = fault_of(plan, question, verdict)
    return Verdict(approved=False, why=f"the changed text cannot be used: {fault}") if fault else verdict


def _read(said: object) -> Verdict:
    if isinstance(said, Verdict):
        return said
    if isinstance(said, bool):
        return Verdict(approved=said)
    return Verdict(approved=False, why=f"ask= returned {shown_value(said)}: it must return am.Verdict, True or False")


class Desk:
    """The open questions of a run, until a page, a command, another thread or a program answers them.

    Numbers are unique in this process, oldest first. The first answer counts. `plan.run(ask=desk.ask)` sends a run's
    questions here.

    Args:
        plan: The running plan, used to validate changed texts.
    """

    _numbers = itertools.count(1)

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._open: dict[int, tuple[Question, asyncio.Future[Verdict], datetime]] = {}

    @property
    def open(self) -> Mapping[int, Question]:
        """The open questions by number."""
        return {number: question for number, (question, *_) in self._open.copy().items()}

    @property
    def pending(self) -> list[Pending]:
        """The open questions, oldest first."""
        return [
            Pending(number, one.agent, one.tool, one.text, one.kind, since, since + timedelta(seconds=one.seconds))
            for number, (one, _, since) in self._open.copy().items()
        ]

    def approve(self, which: int | str, *, text: str | None = None) -> None:
        """Approve an open question, from any thread.

        Args:
            which: Its number, or an agent with only one question.
            text: The changed arguments as JSON, or the changed answer; None: unchanged.

        Raises:
            DeclarationError: There is no such question, the agent has several, or the text is invalid. It stays open.
        """
        settle([self], which, Verdict(approved=True, text=text))

    def deny(self, which: int | str, why: str = "") -> None:
        """Deny an open question, from any thread.

        Args:
            which: Its number, or an agent with only one question.
            why: The reason, which is sent to the model.

        Raises:
            DeclarationError: There is no such question, or the agent has several.
        """
        settle([self], which, Verdict(approved=False, why=why))

    async def ask(self, question: Question) -> Verdict:
        """Add a question and wait for its answer. This is an `Asker`.

        Args:
            question: The question.
        """
        number = next(self._numbers)
        answer = asyncio.get_running_loop().create_future()
        self._open[number] = question, answer, datetime.now(UTC)
        try:
            return await answer
        finally:
            self._open.pop(number, None)

    def answer(self, number: int, verdict: Verdict) -> str:
        """Answer a question, from any thread.

        Args:
            number: Its number.
            verdict: The verdict.

        Returns:
            Why the verdict is invalid; empty if it was accepted or the question is no longer open.
        """
        if (found := self._open.get(number)) is None:
            return ""
        if fault := fault_of(self._plan, found[0], verdict):
            return fault
        if (taken := self._open.pop(number, None)) is not None:  # exactly one of several threads gets it
            taken[1].get_loop().call_soon_threadsafe(_give, taken[1], verdict)
        return ""


def settle(desks: Iterable[Desk], which: int | str, verdict: Verdict) -> None:
    """Answer the open question of this number or agent."""
    found = {number: (desk, question) for desk in desks for number, question in desk.open.items()}
    if not found:
        raise DeclarationError(NOTHING)
    numbers = [number for number, (_, one) in found.items() if str(which) in {str(number), one.agent}]
    if not numbers:
        open_now = ", ".join(f"{number} ({one.agent})" for number, (_, one) in found.items())
        raise DeclarationError(f"{shown_value(which)} asks nothing.", hint=f"These questions are open: {open_now}.")
    if len(numbers) > 1:
        hint = f"Give a number: {', '.join(map(str, numbers))}."
        raise DeclarationError(f"{shown_value(which)} asks {len(numbers)} questions.", hint=hint)
    if fault := found[numbers[0]][0].answer(numbers[0], verdict):
        raise DeclarationError(fault)


def _give(answer: asyncio.Future[Verdict], verdict: Verdict) -> None:
    if not answer.done():  # cancelled, if the run was stopped
        answer.set_result(verdict)


def fault_of(plan: Plan, question: Question, verdict: Verdict) -> str:
    if verdict.text is None or not verdict.approved:
        return ""
    agent = plan.agents[plan.index[question.agent]]
    tool = agent.tools.named(question.tool) if question.kind == "call" else None
    try:
        if tool is not None:
            tool.arguments(verdict.text)
        elif question.kind == "answer" and agent.returns is not None:
            agent.returns.value(verdict.text)
    except AgentMagicError as error:
        return str(error)
    return ""


def question_of(record: RunRecord, call: Call, seconds: float) -> Question:
    kind = "call" if call.wanted.tool else "answer"
    return Question(kind, record.results[call.step].name, call.wanted.tool, call.wanted.arguments, seconds)
