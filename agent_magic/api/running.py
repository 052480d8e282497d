"""Runs of a plan in a session: the driver, and messages and lessons at the end."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import sys
from typing import TYPE_CHECKING

from agent_magic import measure, show
from agent_magic.api.choosing import as_asked
from agent_magic.api.session import check_loop, session_of
from agent_magic.declare.plan import Plan
from agent_magic.engine.calls import Verdict
from agent_magic.engine.policy import as_policy
from agent_magic.errors import PlanError, shown_value
from agent_magic.live.answer_cache import Earlier
from agent_magic.live.driver import Driver
from agent_magic.live.monitor import Sampling

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from anthropic import AsyncAnthropic

    from agent_magic.api.session import Session
    from agent_magic.engine.pacing.limits import Limits
    from agent_magic.engine.policy import Policy
    from agent_magic.live.people import Asker, Question
    from agent_magic.live.playing import Player
    from agent_magic.measure.compare import Recorded
    from agent_magic.providers.base import Provider
    from agent_magic.providers.recorded import Match
    from agent_magic.record.ledger.store import SqliteLedger
    from agent_magic.record.prices import ModelPrice
    from agent_magic.record.results import RunRecord
    from agent_magic.show.terminal import TableView

LOG = logging.getLogger("agent_magic")


async def run_plan(
    plan: Plan,
    policy: Policy | None,
    session: Session,
    *,
    alone: bool = False,
    fresh: bool = False,
    resume: RunRecord | None = None,
    again: Iterable[str] | None = None,
    ask: Asker | None = None,
) -> Driver:
    """Run a plan to its end; the driver that comes back has the record."""
    check_loop()
    asker = asker_of(ask) if plan.special else ask
    driver = driver_of(plan, policy, session, alone=alone, fresh=fresh, resume=resume, again=again, asker=asker)
    await drive(driver, session, alone=alone)
    return driver


async def drive(driver: Driver | Player, session: Session, *, alone: bool) -> None:
    """Drive a run to its end and log what its numbers do not say."""
    with Sampling(driver.now, driver.samples):
        await driver.drive()
    record = driver.record
    if alone:
        session.keep_limits()
    else:
        session.settle(record)
    for note in (
        *show.ending_notes(record, driver.policy),
        *show.ledger_notes(session.ledger),
        *session.client.take_notes(),
    ):
        if note:
            LOG.warning(note)  # a Python warning could be made an error, and the paid run be lost with it


def start(  # noqa: PLR0913 - the options of `Plan.run`
    plan: Plan,
    policy: Policy | None = None,
    *,
    client: Provider | AsyncAnthropic | None = None,
    fresh: bool = False,
    ledger: SqliteLedger | None = None,
    prices: Mapping[str, ModelPrice] | None = None,
    limits: Mapping[str, Limits] | None = None,
    session: Session | None = None,
    resume: Recorded | None = None,
    again: Iterable[str] | None = None,
    recorded: Match | None = None,
    ask: Asker | None = None,
) -> Driver:
    """Prepare a run of a plan: `run = am.Run(await driver.drive())`. `driver.record` grows meanwhile.

    Args:
        plan: The plan.
        policy: How to run; `Policy()` by default.
        client: The provider, as in `Plan.run`.
        fresh: Buy again, despite answers in the ledger.
        ledger, prices, limits, session, resume, again: As in `Plan.run`.
        recorded: Answers of the plan in a cassette; only the rest is bought, after it.
        ask: Asks a person, as in `Plan.run`; `None` without one.

    Raises:
        DeclarationError: A prompt cannot be filled in, a model does not exist, or the provider lacks a feature an agent
            needs; nothing was sent.
        UnknownAgent: `again` names an agent that is not in the plan.
        PlanError: It is not a plan, or `again` comes without `resume`; nothing was sent.
    """
    shared = session_of(session, client=client, ledger=ledger, prices=prices, limits=limits)
    earlier = None if resume is None else measure.record_of(resume, "resume")
    return driver_of(
        plan, policy, shared,
        alone=session is None, fresh=fresh, resume=earlier, again=again, recorded=recorded, asker=ask,
    )  # fmt: skip


def driver_of(  # noqa: PLR0913 - the options of `Plan.run`
    plan: Plan,
    policy: Policy | None,
    session: Session,
    *,
    alone: bool,
    fresh: bool = False,
    resume: RunRecord | None = None,
    again: Iterable[str] | None = None,
    recorded: Match | None = None,
    asker: Asker | None = None,
) -> Driver:
    """Return the driver of a run; `alone` it shares no slots and no history of its session."""
    if not isinstance(plan, Plan):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"{shown_value(plan)} is not a Plan. Give Plan([Agent('name', '...'), ...]).")
    client = session.client
    policy = as_policy(policy, client.room)
    plan.check_prompts()
    plan = as_asked(plan, policy, session) if recorded is None else recorded.plan
    if recorded is None:
        session.check_plan(plan, policy)
        session.say_whom()
    if again is not None and resume is None:
        raise PlanError("again= names agents of an earlier run: give that run too, resume=RUN.")
    earlier = None if resume is None else Earlier(resume, client.endpoint, plan=plan, again=again)
    session.recall_limits()
    paced = client.is_limited or bool(session.pacer.given)
    driver = Driver(
        plan,
        policy,
        client,
        ledger=session.ledger,
        earlier=earlier,
        recorded=recorded,
        fresh=fresh,
        prices=session.price_book(),
        pacer=session.pacer if paced else None,
        sharing=session.sharing() if paced and policy.shared == "on" else None,
        pool=None if alone else session.pool,
        history=None if alone else session.history,
        frame_of=lambda record, name: measure.answers_frame(record, name),  # noqa: PLW0108 - loaded if a task takes one
        alerts=session.alerts,
        asker=asker,
        say=session.say,
    )
    if earlier is not None:
        driver.skip(earlier.left_out)
    return driver


HINTS = "y approves, e changes it, n denies"
DOUBT_HINTS = "a calls it again, r gives a result, n says that it failed"


def asker_of(ask: Asker | None) -> Asker | None:
    """Return the user's asker, or the terminal; `None` without either."""
    return ask if ask is not None or not on_terminal() else TerminalAsker().ask


def on_terminal() -> bool:
    """Return whether a person reads the prints and can type an answer."""
    streams = sys.stdin, sys.stdout
    return all(one is not None and one.isatty() for one in streams)  # pyright: ignore[reportUnnecessaryComparison]


class TerminalAsker:
    """Asks on a terminal, one question at a time; the run goes on meanwhile."""

    # A question is removed when it is answered or no longer open.

    def __init__(self) -> None:
        self._turn, self._count = asyncio.Lock(), 0
        self._view: TableView | None = None

    def cover(self, view: TableView) -> None:
        """Prevent drawing of a view while a question is on the screen."""
        self._view = view

    async def ask(self, question: Question) -> Verdict:
        """Print a question and read the answer."""
        async with self._turn:
            self._count += 1
            if self._view is not None:
                self._view.hold()
            try:
                _drop_typed()  # text typed before the question was shown is no answer to it
                _write(f"\n{show.asked_text(self._count, question)}\n{show.limit_of(question)}\n")
                return await self._answer(question)
            finally:
                if self._view is not None:
                    self._view.show()

    async def _answer(self, question: Question) -> Verdict:
        agree, edit, hints = ("a", "r", DOUBT_HINTS) if show.ways_of(question) == show.DOUBT else ("y", "e", HINTS)
        while True:
            said = await _line(f"{hints}: ")
            word = None if said is None else said.strip().lower()
            if word is None or word in {"n", "no"}:
                why = None if word is None else await _line("why (may be empty): ")
                return Verdict(approved=False, why=(why or "").strip())
            if word == agree or (agree == "y" and word == "yes"):
                return Verdict(approved=True)
            if word == edit and (text := await _line("new text, on one line: ")) is not None:
                return Verdict(approved=True, text=text.rstrip("\n"))


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _drop_typed() -> None:
    if os.name == "posix":
        termios = importlib.import_module("termios")
        termios.tcflush(sys.stdin, termios.TCIFLUSH)


async def _line(prompt: str) -> str | None:
    """Print a prompt and read a line; `None` at the end of the input."""
    if os.name != "posix":  # no loop there watches a console
        return await asyncio.to_thread(input, prompt)
    _write(prompt)
    # A blocking read in a thread would still take the next line after it is cancelled.
    loop = asyncio.get_running_loop()
    typed = loop.create_future()
    loop.add_reader(sys.stdin, lambda: typed.done() or typed.set_result(None))
    try:
        await typed
    finally:
        loop.remove_reader(sys.stdin)
    return sys.stdin.readline() or None
