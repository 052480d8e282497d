"""One run of the real engine on virtual time, with a scripted server, and the book that checks what has to hold.

The engine and its driver are the package's own. What is here hands out the fates of a scene, and tells the book what
happens before the engine hears of it.
"""

# Tests hand over wrong types on purpose, and take for granted what they have just checked.
# pyright: reportArgumentType=false, reportOptionalMemberAccess=false

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from agent_magic import Agent
from agent_magic.declare import Plan, build_dag
from agent_magic.engine import Abort, Done, Engine, Fault, Need, Outcome, Prefixes, Send, Worst, failure_of
from agent_magic.engine.contract import WithoutCalls
from agent_magic.errors import Late, RateLimited
from agent_magic.forecast.virtual import NEVER, Flight, VirtualDriver
from agent_magic.providers import limit_class
from agent_magic.record import (
    NOTHING_USED,
    AgentEnded,
    AgentReady,
    AgentReopened,
    Answer,
    BackoffStarted,
    Price,
    Request,
    RunRecord,
    Usage,
    on_grid,
)
from agent_magic.record.answer import PAUSED
from tests.engine.whole_book import USD, WIRE_S, Book
from tests.engine.whole_scene import ANSWERS, FAULTS, PRODUCES, Asked, Scene

if TYPE_CHECKING:
    from tests.engine.whole_world import World

HANDS = frozenset({"cancel", "skip", "retry", "pause", "resume"})
OK, TOO_MANY = 200, 429


class Script(WithoutCalls):
    """What the agents of a scene ask: a request of a known size each."""

    def __init__(self, scene: Scene) -> None:
        groups = [one.group for one in scene.asked]
        self._asked, self.checked = scene.asked, ()
        self.models = [one.model for one in scene.asked]
        self.limit_classes = list(map(limit_class, self.models))
        self.prefixes = Prefixes(groups) if any(groups) else None

    def write(self, step):
        """Return what an agent asks."""
        return Request(self.models[step], "", self._asked[step].output_tokens)

    def need(self, step):
        """Say what an agent's request will use."""
        one = self._asked[step]
        worst = Worst(one.worst_tokens * USD, one.worst_tokens)
        return Need(one.model, one.input_tokens, int(one.output_tokens * one.guess), worst)

    def count(self, step):
        """Count nothing."""
        return False

    def to_count(self):
        """Return nothing."""
        return ()

    def counted(self, step, tokens):
        """Do nothing."""

    def used(self, step, usage, model):
        """Do nothing."""

    def fault(self, step, answer):
        """Return nothing: nothing has to fit."""

    def continue_turn(self, step, answer, reply=""):
        """Do nothing."""

    def answered(self, step, text):
        """Do nothing."""


class Sent(Flight):
    """A request of a scene under way, and its fate."""

    __slots__ = ("fate",)


class Fates:
    """The server of one run: what comes of each request, as the scene has it.

    It tells the books what happens before the engine hears of it.
    """

    abort_s = WIRE_S

    def __init__(self, run: Whole) -> None:
        self._run, self._world, self._scene = run, run.world, run.scene
        self._own = Counter[int]()

    def delay_s(self, step: int) -> float:
        """Requests are written at once."""
        return 0.0

    def count(self, request: Request) -> int | None:
        """Count nothing."""
        return None

    def send(self, step: int, request: Request, now: float) -> Flight:
        """Let the server decide what comes of a request."""
        one = self._scene.asked[step]
        fate = one.fates[min(self._own[step] + 1, len(one.fates)) - 1]
        denial = (
            None if fate.startswith("429") else self._world.server.admit(one, self._world.now)
        )  # that takes nothing
        first_s, takes_s = None, WIRE_S
        if denial is not None:
            self._world.book.crossed(denial.limit)
            fate = f"limit {denial.retry_after_s}"
        else:
            self._own[step] += 1
            if fate in PRODUCES | ANSWERS | {"hang"}:
                first_s = now + one.takes_s * one.first
                takes_s = NEVER if fate == "hang" else one.takes_s
        flight = Sent(step, now, first_s, now + takes_s)
        flight.fate = fate
        return flight

    def begin(self, flight: Flight, now: float) -> Any:
        """A reply begins."""
        self._world.book.ended(self._scene.asked[flight.step])
        self._world.book.replied(OK)
        self._run.book.begun(flight.step)
        return OK, self._readings(flight.step)

    def end(self, flight: Flight, now: float) -> Outcome:
        """A request ends as its fate says."""
        assert isinstance(flight, Sent)
        step, what, one = flight.step, flight.fate, self._scene.asked[flight.step]
        used = Usage(one.input_tokens, output_tokens=one.output_tokens)
        if what in PRODUCES | ANSWERS:
            self._world.server.made(one, self._world.now)
        del self._run.running[step]
        if what not in ANSWERS:
            return self._failed(step, one, what, used)
        self._settled(step, used, bad=False)
        if what == "ok":
            self._run.book.answered(step)
        stop_reason = "end_turn" if what == "ok" else PAUSED
        answer = Answer("", stop_reason, usage=used, model=one.model, content="[]" if what == "turn" else None)
        return Outcome(answer, None, OK, used, "live", "", self._readings(step))

    def abort(self, flight: Flight, now: float) -> Outcome:
        """A request that was aborted is over. At a deadline that is a failure."""
        step, why = flight.step, self._run.engine.aborting.get(flight.step)
        del self._run.running[step]
        late = why in {"late", "over"}
        if late:
            self._world.book.replied(None)
        else:
            self._world.book.turned_back()
        self._settled(step, None, bad=None)
        if late:
            self._run.book.failed(step, failure_of(Late(1.0, of_run=why == "over"), 1))
        return Outcome()

    def unsent(self, step: int) -> None:
        """A request was aborted before it left."""
        del self._run.running[step]
        self._world.book.turned_back()
        self._settled(step, NOTHING_USED, bad=None)

    def _failed(self, step: int, one: Asked, what: str, used: Usage) -> Outcome:
        if what.startswith("limit "):
            error: Any = RateLimited("limit", retry_after_s=float(what.split()[1]))
        else:
            error = FAULTS[what]
        failure = failure_of(error, self._scene.policy.max_attempts)
        status = TOO_MANY if isinstance(error, RateLimited) else getattr(error, "status", None)
        if what in PRODUCES:
            status = OK
        self._world.book.replied(status)
        if isinstance(error, RateLimited):
            self._world.book.refused(one, error.retry_after_s)
        bad = Fault(failure.why, reached=failure.reached) if failure.fault else None if status is None else False
        usage = None if what == "reset" else used if what in PRODUCES else NOTHING_USED
        self._settled(step, usage, bad=bad)
        self._run.book.failed(step, failure)
        return Outcome(None, failure, status, usage, None, "", self._readings(step))

    def _readings(self, agent: int) -> Any:
        """Return what the server says of its limits at this moment."""
        return self._world.server.readings(self._scene.asked[agent], self._world.now)

    def _settled(self, step: int, usage: Usage | None, *, bad: Any) -> None:
        """Tell the books what a request used."""
        total = None if usage is None else (usage.input_tokens or 0) + (usage.output_tokens or 0)
        self._run.book.settled(step, total, bad=bad)
        self._world.book.ended(self._scene.asked[step])


class Whole(VirtualDriver):
    """Runs one plan of a scene, and lets the book check every step.

    Args:
        world: The clock, the server and what else the runs of a session share.
        scene: The plan, the policy and the hands.
        starts_s: When it begins.

    Attributes:
        book: What has to hold.
        launches: (time, agent) of every request.
        running: The agents under way, each with the number of its attempt.
        end_s: When the run was over.
    """

    begun = False

    def __init__(self, world: World, scene: Scene, starts_s: float) -> None:
        starts_s = on_grid(starts_s)
        self.world, self.scene, self.starts_s, self.agents = world, scene, starts_s, len(scene.asked)
        dag = build_dag(scene.parents)
        self.dag, policy = dag, scene.policy
        self.end_s, self._seen = -1.0, 0
        self.running: dict[int, int] = {}
        self.launches: list[tuple[float, int]] = []
        self.slots = 1 if policy.schedule == "sequential" else policy.concurrency
        plan = Plan([Agent(f"a{number}", "x") for number in range(len(scene.asked))])
        models = [one.model for one in scene.asked]
        engine = Engine(
            RunRecord(plan, datetime.now(UTC), models, dag=dag),
            policy,
            Script(scene),
            timeouts_s=[one.timeout_s for one in scene.asked],
            price=_price,
            dag=dag,
            pacer=world.pacer,
            slots=world.slots,
            key=world.key,
        )
        self.fates = Fates(self)
        super().__init__(engine, self.fates, world.clock, starts_s=starts_s, began_s=world.scene.began_s + starts_s)
        self.conductor = engine.conductor
        self.book = Book(self)

    @property
    def is_over(self) -> bool:
        """Whether nothing will come of it any more."""
        return self.end_s >= 0

    @property
    def is_live(self) -> bool:
        """Whether it has begun, and is not over."""
        return self.begun and not self.is_over

    def left(self) -> list[int]:
        """The agents without a last status."""
        return [agent for agent in range(self.agents) if agent not in self.book.status]

    def start(self) -> None:
        """Begin, and have hands laid on it later."""
        self.begun = True
        for at_s, what, agents in self.scene.controls:
            self._later(on_grid(self.now + at_s), self.control, what, agents)
        super().start()

    def control(self, what: str, agents: tuple[int, ...] | None) -> None:
        """Do what somebody wants of the run."""
        if self.is_over:
            return
        if what in {"pause", "resume"}:
            self.book.paused = what == "pause"
            self.do(getattr(self.engine, what)(self.now))
            return
        if what == "cancel":
            self.book.cut = self.book.cut or agents is None
        if what in {"cancel", "skip"}:
            self.book.out.update(range(self.agents) if agents is None else agents)
        self.do(getattr(self.engine, "stop" if what == "cancel" else what)(self.now, agents))

    def do(self, actions: Any) -> None:
        """Check what the engine said and recorded, then do it."""
        self.told()
        for action in actions:
            match action:
                case Send(agent, number, _):
                    self.launched(agent, number)
                case Abort(agent, why):
                    assert agent in self.running, "cancelled without running"
                    if why == "stopped":
                        self.book.stopping.add(agent)
                case Done():
                    self.finish()
                case _:
                    pass
        super().do(actions)

    def told(self) -> None:
        """Tell the book what was recorded since it was told last."""
        events = self.engine.record.events
        while self._seen < len(events):
            event = events[self._seen]
            self._seen += 1
            match event:
                case AgentReady(_, agent):
                    self.book.ready(agent)
                case BackoffStarted(_, agent, until_s, _):
                    self.book.waits[agent] = until_s
                case AgentEnded(_, agent, status, error):
                    self.book.ended(agent, status, error or "")
                case AgentReopened(_, agent):
                    self.book.reopened(agent)
                case _:
                    pass

    def finish(self) -> None:
        """Check that all is given back: the run is over."""
        assert not self.is_over, "finished twice"
        assert not self.left(), "finished with agents open"
        assert not self.running, "finished with requests under way"
        self.end_s = self.now
        self.engine.close(self.now)
        self.book.over()

    def launched(self, agent: int, number: int) -> None:
        """Check a launch; the request leaves at this same time, unless it is cancelled before."""
        assert agent not in self.running, "twice at once"
        self.running[agent] = number
        self.launches.append((self.now, agent))
        self.book.launched(agent, number)
        self.world.book.launched(self, agent)

    def unsent(self, step: int) -> None:
        """A request was aborted before it left."""
        self.fates.unsent(step)
        super().unsent(step)


def _price(model: str, usage: Usage | None) -> Price:
    """Price tokens so that sums are exact; what is unknown has no price."""
    given, made = (None, None) if usage is None else (usage.input_tokens, usage.output_tokens)
    return Price(None if given is None or made is None else (given + made) * USD, "scene")
