"""What has to hold over all runs of a session, which share slots, a pacer, a key and the server's limits.

Like `whole_book` it shares no code with what it checks.
"""

# Tests take for granted what they have just checked.
# pyright: reportOptionalMemberAccess=false

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from agent_magic.providers import limit_class

if TYPE_CHECKING:
    from tests.engine.whole import Whole
    from tests.engine.whole_scene import Asked
    from tests.engine.whole_world import World

KEY_S = 0.5
"""Until when others wait for the first request with a key, and for the first reply of a class."""
UNAUTHORIZED = 401
FIRST_WINDOW = 8
"""So many may go before anything is known of limits."""
UNSAID_S, MOST_UNSAID_S, JITTER_S = 1.0, 60.0, 0.1
"""How long the pacer waits where the server does not say, at least and at most, and what it may add."""
SILENT_S = 0.3
"""How long the others wait for the request that goes ahead after refusals in a row, at most."""
EXACT_S = 1e-6
SPARE, LONG_S, PLENTY = 2.5, 1.5, 5e6
"""Requests that could go, how long somebody has waited for one, and a limit that does not count."""
LIMITS = frozenset({"requests", "input", "output"})


class Shared:
    """The rules of a session."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.closed_s, self.open_s = dict[str, float](), dict[str, float]()
        self.unsaid = Counter[str]()
        self.first_s, self.taken = math.inf, False
        self.waits_for_slot: dict[Whole, int] = {}
        self.waits_for_limit: dict[tuple[Whole, str], int] = {}
        self.held_s: dict[tuple[Whole, str], float] = {}
        self.early_s, self.heard = dict[str, list[float]](), set[str]()

    @property
    def live(self) -> list[Whole]:
        """The runs that have begun, and are not over."""
        return [run for run in self.world.runs if run.is_live]

    @property
    def size(self) -> int:
        """How many requests all of them may have under way: as many as the largest of them."""
        return max(run.slots for run in self.live)

    @property
    def under_way(self) -> int:
        """How many they have."""
        return sum(len(run.running) for run in self.world.runs)

    def launched(self, run: Whole, agent: int) -> None:
        """A request of a run leaves. The run has it among the running ones already."""
        assert self.under_way <= self.size, "more at once than the session has slots"
        now, name = self.world.now, limit_class(run.scene.asked[agent].model)
        assert now + EXACT_S >= self.closed_s.get(name, 0.0), "before the server's wait was over"
        if self.waits_for_reply(name):
            early = self.early_s.setdefault(name, [])
            assert not early or now + EXACT_S >= early[0] + KEY_S, "who knows the limits?"
            early.append(now)
        self._ask_key(run)
        if self.unsaid[name] > 1:  # after refusals in a row one request goes ahead, and the others wait for it
            self.open_s[name] = max(self.open_s.get(name, 0.0), self.world.now + SILENT_S)
        self.waits_for_slot.pop(run, None)
        for other in self.waits_for_slot:
            if other.is_live and self.wants_slot(other):
                assert len(run.running) <= len(other.running) + 1, "the lion's share of the slots"
                self.waits_for_slot[other] += not other.running
                assert self.waits_for_slot[other] <= self.size + len(self.live), "it never gets a slot"
        self.waits_for_limit.pop((run, name), None)
        for (other, line), since in self.waits_for_limit.items():
            if line == name and other.is_live:
                self.waits_for_limit[other, line] = since + 1
                assert since < self._lines(name), "it never gets what flows in"

    def _lines(self, name: str) -> int:
        """How many lines ask for a class, twice."""
        lines = {
            (run, one.group) for run in self.world.runs for one in run.scene.asked if limit_class(one.model) == name
        }
        return 2 * len(lines)

    def _ask_key(self, run: Whole) -> None:
        if self.world.key is not None and not self.taken:
            now = run.starts_s + run.now
            assert self.first_s == math.inf or now + EXACT_S >= self.first_s + KEY_S, "before the key was known"
            self.first_s = min(self.first_s, now)

    def replied(self, status: int | None) -> None:
        """A reply, or the end of a request without one: the key is taken, or it is not."""
        if status == UNAUTHORIZED:
            self.first_s = math.inf
        else:
            self.taken = True

    def turned_back(self) -> None:
        """What left was never sent: nothing is known of the key."""
        if not self.taken:
            self.first_s = math.inf

    def ended(self, one: Asked) -> None:
        """A reply has begun, or a request has ended in any way: its class is known as well as it will be."""
        self.heard.add(limit_class(one.model))

    def waits_for_reply(self, name: str) -> bool:
        """Tell whether nothing is known of a class: it has had no reply."""
        return not (name in self.heard or (self.world.scene.told and self.world.scene.limits is not None))

    def refused(self, one: Asked, wait_s: float | None) -> None:
        """The server said 429. Nothing was used."""
        now, model_class = self.world.now, limit_class(one.model)
        self.unsaid[model_class] += 1
        unsaid_s = min(UNSAID_S * 2 ** (self.unsaid[model_class] - 1), MOST_UNSAID_S)
        most_s = unsaid_s if wait_s is None else max(wait_s, unsaid_s / 2)  # what was said may have been too short
        wait_s = UNSAID_S if wait_s is None else wait_s
        if wait_s > UNSAID_S or self.unsaid[model_class] == 1:  # from the second on, chance may have refused
            self.closed_s[model_class] = max(self.closed_s.get(model_class, 0.0), now + wait_s)
        self.open_s[model_class] = max(self.open_s.get(model_class, 0.0), now + most_s + JITTER_S)

    def crossed(self, limit: str) -> None:
        """The server's own limit said no. Output alone is not known before it is there.

        A 429 that nothing explains, which a scene may ask for, leads to wrong beliefs of the limits: that is no error.
        """
        assert not self.world.scene.told or self.is_misled or limit.startswith("output"), (
            "a limit that was told is crossed"
        )

    @property
    def is_misled(self) -> bool:
        """Whether the server refuses somebody for no reason that its limits explain."""
        return any(one.is_misled for run in self.world.runs for one in run.scene.asked)

    def wants_slot(self, run: Whole) -> bool:
        """Tell whether a run has an agent that waits for nothing but a slot of the session."""
        return any(why == "slot" and not self.is_window(name) for name, why in self._holds(run))

    def is_full(self, model: str) -> bool:
        """Tell whether there is a reason to wait for a slot: all are taken, or little is known of the limits."""
        return self.under_way >= self.size or self.is_window(limit_class(model))

    def is_window(self, name: str) -> bool:
        """Tell whether the pacer may hold requests because nothing is known of limits: its `slot` is another one."""
        told = self.world.scene.told and self.world.scene.limits is not None
        return not told and (self.size > FIRST_WINDOW or name in self.closed_s)

    def _holds(self, run: Whole) -> list[tuple[str, str]]:
        """List the classes of those that could go as far as the run is concerned, and what holds them."""
        if run.book.paused or len(run.running) >= run.conductor.slots:
            return []
        asked = run.scene.asked
        return [(limit_class(asked[agent].model), run.conductor.held_by(agent)) for agent in run.book.waiting()]

    def passed(self) -> None:
        """Take in that a moment is over: note who waits."""
        if len(self.world.runs) == 1:
            return
        waits: dict[Whole, int] = {}
        held: dict[tuple[Whole, str], int] = {}
        since: dict[tuple[Whole, str], float] = {}
        even = self.size // len(self.live) if self.live else 0
        for run in self.live:
            for name, why in self._holds(run):
                if why == "requests":
                    since[run, name] = self.held_s.get((run, name), self.world.now)
                if why in LIMITS or (why == "slot" and self.is_window(name)):
                    if len(run.running) >= even:  # it has its share of the slots
                        continue
                    held[run, name] = self.waits_for_limit.get((run, name), 0)
                elif why == "slot":
                    waits[run] = self.waits_for_slot.get(run, 0)
        self.waits_for_slot, self.waits_for_limit, self.held_s = waits, held, since
        self._is_used(since)

    def _is_used(self, since: dict[tuple[Whole, str], float]) -> None:
        """What flows in goes to somebody, where the limit of requests is the only one that counts, and is known."""
        scene = self.world.scene
        if not scene.told or self.is_misled or scene.limits is None or min(scene.limits[1:]) < PLENTY:
            return
        for (run, name), since_s in since.items():
            idle = self.world.server.pool(name).requests.level(self.world.now) >= SPARE
            assert not idle or self.world.now < since_s + LONG_S, f"{run.starts_s}: room that nobody has"

    def over(self) -> None:
        """All runs are over: nothing of theirs is left with anybody."""
        left = self.world.pacer.health(self.world.scene.began_s + self.world.now)
        assert not any(one.under_way for one in left.values()), "the pacer counts requests that are over"
