"""A run in the notebook: start it, show it live, record its end."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

from IPython.core.getipython import get_ipython  # pyright: ignore[reportUnknownVariableType] - IPython leaves it open

from agent_magic import forecast, live, providers, record, show
from agent_magic.api import Run, start
from agent_magic.api.applying import editable
from agent_magic.api.running import TerminalAsker
from agent_magic.declare.units import seconds
from agent_magic.errors import AgentMagicError, CassetteError, NotConnected, ReplayMiss
from agent_magic.live.monitor import Sampling
from agent_magic.live.people import Desk
from agent_magic.notebook.front_end import display_bundle, hears_clicks, is_unwatched, note, say, show_page
from agent_magic.notebook.session import DEFAULT_PLAN
from agent_magic.record.display import single_line
from agent_magic.record.reasons import wording
from agent_magic.record.results import RunRecord
from agent_magic.show.displays import in_output

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from agent_magic.api import Plan
    from agent_magic.declare.plan import Plan as DeclaredPlan
    from agent_magic.engine.health import Health
    from agent_magic.engine.policy import Policy
    from agent_magic.live.batching import Waiting
    from agent_magic.live.driver import Driver
    from agent_magic.notebook.session import Session
    from agent_magic.providers.recorded import Deck, Match
    from agent_magic.record.cassette.reading import Cassette
    from agent_magic.record.history import History
    from agent_magic.show.live import Edit, LiveView
    from agent_magic.show.live.feed import Around
    from agent_magic.show.terminal import LineView, TableView
    from agent_magic.show.values import AnswerView

Shown: TypeAlias = Callable[[], object]
Front: TypeAlias = Desk | TerminalAsker
View: TypeAlias = "LiveView | LineView | TableView | AnswerView"
MOST_FILES = 20
TICK_S = 0.1
"""The picture changes at most ten times a second."""


class Resumed(NamedTuple):
    """An earlier run to continue: agents to run again (`None`: all without success), and agents to skip."""

    run: Run | None = None
    again: Sequence[str] | None = None
    leave: Sequence[str] = ()


ANEW = Resumed()


class Screen(NamedTuple):
    """Where a run is shown."""

    graphic: bool
    asker: Front | None
    shown: Shown
    answer: str | None

    @property
    def goes_on_by(self) -> str:
        if self.shown is not bool:  # in the background: the next cell can steer it
            return "%agents resume continues."
        stop = "Interrupt the kernel" if self.graphic else "Press Ctrl-C"
        ways = f"{stop}, and %agents resume goes on with what is left."
        if self.asker is None:
            return f"{ways} Where nobody can, --on-alert stop ends a run instead."
        if self.graphic and hears_clicks():
            return f"Resume in the picture continues. Or {ways[0].lower()}{ways[1:]}"
        return ways


async def execute(  # noqa: PLR0913 - each by its name
    session: Session,
    plan: Plan,
    policy: Policy,
    *,
    fresh: bool,
    graphic: bool,
    asks: bool,
    resumed: Resumed = ANEW,
    shown: Shown = bool,
    answer: str | None = None,
) -> Run:
    """Run a plan of the session and show it; after Stop `session.last` is its result.

    `asks` if a person can be asked; the answer of the agent `answer` replaces the picture.
    """
    session.warm_up.hurry()
    asker = (Desk(plan) if graphic else TerminalAsker()) if asks else None
    screen = Screen(graphic, asker, shown, answer)
    ask = None if asker is None else asker.ask

    def bought(recorded: Match | None = None) -> Driver:
        if recorded is not None:
            return start(plan, policy, session=session.shared, fresh=fresh, recorded=recorded, ask=ask)
        last, again, leave = resumed
        driver = start(plan, policy, session=session.shared, fresh=fresh, resume=last, again=again, ask=ask)
        if leave:
            driver.skip(leave, show.REJECTED)
        return driver

    if session.deck is not None:
        return await _play(session, session.deck, plan, policy, bought, screen)
    driver = bought()
    if told := session.leaving_note():
        note(told)
    try:
        async with session.shared.client.open():  # without a key this raises before anything is shown
            return await _run(session, driver, screen)
    except NotConnected:
        found = recording_beside(plan, Path.cwd(), timeout_s=policy.timeout_s)
        if found is None:
            raise
    note(f"no API key: answers come from {found.name}, recorded {found.recorded_words}")
    deck = providers.Deck(found)
    session.insert(deck)
    return await _play(session, deck, plan, policy, bought, screen)


async def _play(
    session: Session,
    deck: Deck,
    plan: Plan,
    policy: Policy,
    buy: Callable[[Match], Driver],
    screen: Screen,
) -> Run:
    playing = live.lay(deck, plan, policy, buy)
    if isinstance(playing, RunRecord):
        return _show(session, playing, screen)
    if isinstance(playing, live.Player):
        return await _run(session, cast("Driver", playing), screen._replace(asker=None))
    bought = sum(result.finished_s is None for result in playing.record.results)
    told = f"{bought} of {len(plan)} agents {'is' if bought == 1 else 'are'} not in {deck.cassette.name}: bought now"
    async with session.shared.client.open():
        note(told)
        return await _run(session, playing, screen)


async def play_forecast(session: Session, run: Run, policy: Policy, *, pace: float, graphic: bool) -> Run:
    """Play a forecast at `pace` of its seconds per real second. It does not become a run of the session."""
    player = live.Player(run.record, policy, pace=pace)
    async with _shown(session, cast("Driver", player), Screen(graphic, None, bool, None)):
        await player.drive()
    return run


def recording_beside(plan: DeclaredPlan, folder: Path, *, timeout_s: float) -> Cassette | None:
    # Readers of a shared notebook have its cassette beside it. The requests show if it is the right one.
    endings = record.CASSETTE_ENDING, record.CASSETTE_TEXT_ENDING
    found = [path for ending in endings for path in sorted(folder.glob(f"*{ending}"))]
    for path in found[:MOST_FILES]:
        with contextlib.suppress(CassetteError, ReplayMiss):
            cassette = record.read_cassette(path)
            if not providers.Deck(cassette).find(plan, timeout_s=timeout_s).missing:
                return cassette
    return None


async def _run(session: Session, driver: Driver, screen: Screen) -> Run:
    run = Run(driver.record, driver, history=session.shared.history, prices=driver.prices, session=session.shared)
    session.running.append(driver)
    desks = [screen.asker] if isinstance(screen.asker, Desk) else []
    session.desks += desks
    try:
        await driver.check()  # refusals come before anything is shown
        with Sampling(driver.now, driver.samples):
            async with _shown(session, driver, screen, editor(session, run)):
                await driver.drive()
    finally:
        session.desks = [one for one in session.desks if one not in desks]
        if len(run.record.events):
            session.settle(run)
        else:  # it never began: the last run stays
            session.running.remove(driver)
    return run


def _show(session: Session, record: RunRecord, screen: Screen) -> Run:
    run = Run(record, history=session.shared.history, session=session.shared)
    session.settle(run)
    if screen.graphic and screen.answer is not None:
        show_page(show.answer_page(record, record.plan.index[screen.answer]), graphic=True)
    elif screen.graphic:
        display_bundle(run.bundle(theme=session.theme))
    else:
        still = show.terminal_view(run.record)
        still.show()
        still.finish()
    return run


@contextlib.asynccontextmanager
async def _shown(session: Session, driver: Driver, screen: Screen, edit: Edit | None = None) -> AsyncGenerator[None]:
    """Show a run in parallel: its first requests leave before its picture is drawn."""
    desk = screen.asker if isinstance(screen.asker, Desk) else Desk(driver.plan)
    status = LiveStatus(driver, session.shared.history, desk, edit)
    showing = asyncio.create_task(_show_run(driver, status, screen))
    ticking = asyncio.create_task(_tick(driver, showing, status, screen))
    try:
        yield
    finally:
        ticking.cancel()
        view = await showing
        view.finish()
        if isinstance(view, show.live.LiveView):
            session.take_view(view)


async def _show_run(driver: Driver, status: LiveStatus, screen: Screen) -> View:
    if not screen.graphic:
        view = show.terminal_view(driver.record)
    elif screen.answer is not None:
        view = show.AnswerView(driver.record, driver.plan.index[screen.answer], status.arriving)
    elif in_output() and is_unwatched(get_ipython()):
        view = show.StillView(driver.record, sys.stdout)
    else:
        await asyncio.to_thread(show.cards_layout, driver.plan)  # remembered; the first time it loads Graphviz
        view = status.view()
    view.show()
    if isinstance(screen.asker, TerminalAsker) and isinstance(view, show.TableView):
        screen.asker.cover(view)
    screen.shown()
    return view


async def _tick(driver: Driver, showing: asyncio.Task[View], status: LiveStatus, screen: Screen) -> None:
    tell = say if is_unwatched(get_ipython()) else None  # asked while the cell runs
    view = await asyncio.shield(showing)
    told: Sequence[object] = ()
    lines = show.Lines(driver.record)
    while True:
        await asyncio.sleep(TICK_S)
        now_s = driver.now()
        if isinstance(view, show.live.LiveView):
            view.tick(now_s, status.said(), status.around(now_s))
            view.ask(status.desk.open)
            if not view.watched and (line := lines.due(now_s, status.said())):
                (tell or view.tell)(line)
        else:
            view.tick(now_s, status.said())
        if (by := driver.alerts.paused_by) and by is not told:
            told = by
            note(
                f"paused by the alert {show.listed([*map(str, by)])}: what is under way finishes, nothing else "
                f"starts. {screen.goes_on_by}"
            )


MOST_SAID = 200
"""Larger plans are drawn as groups, without room for an agent's text."""
HEALTH_EVERY_S = 0.5
LEFT_EVERY_S = 1.0
"""Between estimates of the remaining time for up to a thousand agents; for more in proportion."""
REFIT_S = 0.01
"""Seconds of fitting servers per update: a whole fit would block the loop for 0.1 s or more."""


class LiveStatus:
    """Live data that is not in the run's record, and actions of the buttons."""

    def __init__(self, driver: Driver, history: History, desk: Desk, edit: Edit | None = None) -> None:
        self.desk, self._edit = desk, edit
        self._driver, self._history, self._policy = driver, history, driver.policy
        self._health: Health | None = None
        self._left_s: tuple[float, float] | None = None
        self._left_at_s = self._health_at_s = float("-inf")
        self._left_every_s = LEFT_EVERY_S * max(1.0, len(driver.plan) / 1000)

    def said(self) -> dict[int, str]:
        """Return the end of each agent's text or prints, and its reason to wait; for small plans."""
        driver = self._driver
        if len(driver.plan) > MOST_SAID:
            return {}
        said = {agent: stream.tail() for agent, stream in driver.streams.items()}
        said |= dict.fromkeys(driver.batched & said.keys(), self._in_batch(driver.batches_waiting()))
        for agent, result in enumerate(driver.record.results):
            if result.is_waiting or (agent not in said and driver.held_by(agent) == "person"):
                said[agent] = wording(driver.held_by(agent)).label
            elif result.calls:
                printed = [one.prints.strip() for one in result.calls_under_way if one.prints.strip()]
                said[agent] = single_line(printed[-1].rpartition("\n")[2]) if printed else ""
        return said

    def _in_batch(self, batches: Sequence[Waiting]) -> str:
        if not batches:
            return "goes with the next batch"
        oldest_s = time.time() - min(one.planned_at for one in batches)
        many = "in a batch" if len(batches) == 1 else f"in {len(batches)} batches"
        return f"{many}, {seconds(oldest_s)} so far"

    def around(self, now_s: float) -> Around:
        policy = self._policy
        if now_s - self._left_at_s >= self._left_every_s:
            self._left_at_s = now_s
            self._left_s = forecast.remaining.remaining(
                self._driver.record, now_s, self._history, policy.concurrency, REFIT_S
            )
        if now_s - self._health_at_s >= HEALTH_EVERY_S:
            self._health_at_s = now_s
            self._health = self._driver.health()
        alerts = tuple(map(str, self._driver.alerts.open))
        paused, asked = self._driver.paused, self._driver.asked
        return show.Around(policy.concurrency, policy.budget_usd, paused, self._health, self._left_s, alerts, asked)

    def arriving(self, agent: int) -> str:
        stream = self._driver.streams.get(agent)
        return stream.text if stream is not None else ""

    def view(self) -> LiveView:
        """Return the live view with its buttons. A click can come on any thread."""
        controls = live.Controls(self._driver)

        def press(verb: str, agent: str | None) -> None:
            do = getattr(controls, verb)
            do() if agent is None else do([agent])

        record, decide = self._driver.record, self.desk.answer
        return show.make_live_view(record, press, self.arriving, verbs=show.live.VERBS, decide=decide, edit=self._edit)


_MOST_NAMED = 5


def text_to_edit(run: Run, name: str) -> str:
    """Return an edit that no run has taken yet, or the answer."""
    result = editable(run.record, name)
    edits = reversed(run.record.edits.items())
    return next((one.text for (agent, _), one in edits if agent == result.name), result.text)


def edit_answer(session: Session, run: Run, name: str, text: str) -> str:
    shared = session.shared
    asked = run.edit(name, text, session=shared)
    session.applied.append((f"{name} has the model's answer again", [partial(run.unedit, name, session=shared)]))
    plan = "" if run.plan.name == DEFAULT_PLAN else f" --plan {run.plan.name}"
    then = f"%agents run{plan} asks again what depends on it: {show.listed(asked, _MOST_NAMED)}." if asked else ""
    kept = "" if session.keeping.ledger else " The ledger is off: the edit counts for %agents retry, not for a new run."
    return f"Edited: {name}. {then or 'Nothing depends on it.'} %agents undo takes it back.{kept}"


def editor(session: Session, run: Run) -> Edit:
    def edit(name: str, text: str | None) -> tuple[str, bool]:
        try:
            return text_to_edit(run, name) if text is None else edit_answer(session, run, name, text), True
        except AgentMagicError as error:
            return str(error), False

    return edit
