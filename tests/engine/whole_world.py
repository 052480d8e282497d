"""The clock, the server and the session that simulated runs share.

`play(scene)` plays a scene to its end; `whole` is the driver of one run, and the books say what has to hold.
"""

# Tests take for granted what they have just checked.
# pyright: reportArgumentType=false

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from agent_magic import Limits as Told
from agent_magic.engine import Key, Pacer
from agent_magic.engine import Pool as Slots
from agent_magic.forecast.virtual import VirtualClock
from agent_magic.providers import limit_class, read_headers
from agent_magic.simulator.limits import Limit, Limits, Pool
from tests.engine.whole import Whole
from tests.engine.whole_shared import Shared

if TYPE_CHECKING:
    from agent_magic.engine import Readings
    from agent_magic.simulator.limits import Denial
    from tests.engine.whole_scene import Asked, Scene

EPOCH_S = 1_790_000_000.37
LONGEST_RUN_S = 1e6
MOST_STEPS = 1_000
"""More at one moment are a circle."""
MOST_LAUNCHES, MOST_TURNS = 1_000, 40_000


class Server:
    """Who answers, within its limits.

    Args:
        scene: The limits.

    Attributes:
        refusals: How often they said no.
    """

    def __init__(self, scene: Scene) -> None:
        self._scene, self._pools, self.refusals = scene, dict[str, Pool](), 0

    def pool(self, model: str) -> Pool | None:
        """Return the buckets for a model; `None` has no limits."""
        if self._scene.limits is None:
            return None
        name = limit_class(model)
        if name not in self._pools:
            limits = (Limit(each, self._scene.burst_s) for each in self._scene.limits)
            self._pools[name] = Pool(Limits(*limits), 0.0)
        return self._pools[name]

    def admit(self, one: Asked, now: float) -> Denial | None:
        """Let a request in, or say why not."""
        pool = self.pool(one.model)
        denial = None if pool is None else pool.admit(one.input_tokens, now)
        self.refusals += denial is not None
        return denial

    def made(self, one: Asked, now: float) -> None:
        """Count what was answered."""
        pool = self.pool(one.model)
        if pool is not None:
            pool.output_tokens.take(one.output_tokens, now)

    def readings(self, one: Asked, now: float) -> Readings:
        """Return what it says of its limits at this moment."""
        pool = self.pool(one.model)
        return read_headers({} if pool is None else pool.headers(now, datetime.fromtimestamp(EPOCH_S + now, UTC)))


class World:
    """Plays a scene, and checks every step.

    Attributes:
        clock: The time that its runs share.
        first: The first run.
        runs: All of them.
        book: What has to hold over all of them.
        pacer: The session's.
        slots: The session's.
        key: The session's; `None` is known to be taken.
        server: Who answers.
    """

    def __init__(self, scene: Scene) -> None:
        self.scene, self.clock = scene, VirtualClock()
        self.server, self.slots = Server(scene), Slots()
        self.key = Key() if scene.key else None
        told = None
        if scene.told and scene.limits is not None:
            rpm, itpm, otpm = scene.limits
            limits = Told(rpm, itpm, output_tokens=otpm, burst_s=scene.burst_s)
            told = {
                limit_class(one.model): limits
                for each in (scene, *(other for _, other in scene.others))
                for one in each.asked
            }
        self.pacer = Pacer(told, seed=1)
        self.book = Shared(self)
        self.first = Whole(self, scene, 0.0)
        self.runs = [self.first, *(Whole(self, other, at_s) for at_s, other in scene.others)]

    @property
    def now(self) -> float:
        """The time since the first run began."""
        return self.clock.now

    def play(self) -> World:
        """Turn until every run is over."""
        for run in self.runs:
            self.clock.at(run.starts_s, run.start)
        steps, turns, before_s = 0, 0, -1.0
        while not all(run.is_over for run in self.runs):
            steps, before_s = steps + 1 if self.now == before_s else 0, self.now
            turns += 1
            assert turns < MOST_TURNS, "it asks for ever"
            assert steps < MOST_STEPS, f"it goes in circles at {self.now}"
            assert self.now < LONGEST_RUN_S, "it never ends"
            assert sum(len(run.launches) for run in self.runs) < MOST_LAUNCHES, "it tries for ever"
            left = [run.left() for run in self.runs]
            assert self.clock.step(), f"nothing will ever happen again, and {left} are open"
            for run in self.runs:
                run.book.passed()
            self.book.passed()
        self.book.over()
        return self


def play(scene: Scene) -> World:
    """Play a scene to its end."""
    return World(scene).play()
