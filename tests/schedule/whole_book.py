"""What has to hold in a run, at every moment: a book kept beside the engine, from what can be seen from outside.

It shares no code with what it checks. `Whole` tells it what happens; it raises where a rule is broken.
"""

# Tests take for granted what they have just checked.
# pyright: reportOptionalMemberAccess=false

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from agent_magic.schedule.limits import class_of
from agent_magic.schedule.prefix import PATIENCE_S

if TYPE_CHECKING:
    from tests.schedule.whole import Asked, Whole

WIRE_S = 1 / 256
USD = 2.0**-10
"""A token's price, so that sums are exact."""
PASSED_ON = frozenset({"succeeded", "capped"})
KEY_S = 0.5
UNAUTHORIZED = 401
MINUTE_S = 60.0
BREAKER_WINDOW = 20
BREAKER_ROW = 8
"""So many good answers in a row close a breaker, however often it had opened."""
UNSAID_S, JITTER_S = 1.0, 0.1
"""How long the pacer waits where the server does not say, and what it may add."""
EXACT_S = 1e-6


class Book:
    """The rules of one run.

    Attributes:
        status: The last status by agent.
        used: Tokens that were billed, by agent.
        spent_tokens: Their sum.
    """

    def __init__(self, run: Whole) -> None:
        self.run, self.scene, self.policy, self.dag = run, run.scene, run.scene.policy, run.dag
        self.status: dict[int, str] = {}
        self.used, self.spent_tokens = Counter[int](), 0
        self.paid: list[tuple[float, float]] = []
        self.tries, self.counted = Counter[int](), Counter[int]()
        self.waits: dict[int, float] = {}
        self.closed_s = defaultdict[str, float](lambda: -math.inf)
        self.open_s = defaultdict[str, float](lambda: -math.inf)
        self.out: set[int] = set()
        self.paused = self.cut = False
        self.ready_s: dict[int, float] = {}
        self.due_s: dict[int, float] = {}
        self.sent_s: dict[int, float] = {}
        self.sent: dict[int, int] = {}
        self.answering = set[int]()
        self.leading: dict[str, tuple[int, float]] = {}
        self.warm, self.useless = set[str](), set[str]()
        self.bads = self.bad_row = self.good_row = self.bad_at = 0
        self.opened = math.inf
        self.first_s, self.taken = math.inf, False

    # what the conductor says

    def ready(self, agent: int) -> None:
        """All its parents have succeeded."""
        assert agent not in self.status
        assert self._after_parents(agent)
        self.ready_s[agent] = self.run.now
        if self.policy.timeout_counts == "total":
            self.due_s[agent] = self.run.now + self.scene.asked[agent].timeout_s

    def ended(self, agent: int, status: str) -> None:
        """It has its last status."""
        assert agent not in self.status, "ended twice"
        assert agent not in self.run.running, "ended while it runs"
        self.status[agent] = status
        self.due_s.pop(agent, None)

    def reopened(self, agent: int) -> None:
        """It is to run once more."""
        assert self.status.pop(agent) not in PASSED_ON, "an answer was thrown away"
        assert not self.cut, "opened after the stop"
        self.waits.pop(agent, None)
        self.out.discard(agent)
        self.ready_s.pop(agent, None)
        self.counted[agent] = 0

    def launched(self, agent: int, number: int) -> None:
        """A request of it leaves. The run has it among the running ones already."""
        now, one = self.run.now, self.scene.asked[agent]
        assert self._after_parents(agent), "before its parents"
        assert agent not in self.status, "after its end"
        assert not self.cut, "after the stop"
        assert agent not in self.out, "after it was taken out"
        assert not self.paused, "while paused"
        assert self.waits.pop(agent, 0.0) <= now, "before its wait was over"
        assert now + EXACT_S >= self.closed_s[class_of(one.model)], "before the server's wait was over"
        self.tries[agent] += 1
        assert number == self.tries[agent], "attempts count on"
        assert self.counted[agent] < self.policy.max_attempts, "more attempts than allowed"
        if self.policy.schedule == "layers":
            mine = self.dag.layer[agent]
            earlier = (other for other in range(self.run.count) if self.dag.layer[other] < mine)
            assert all(other in self.status for other in earlier), "before an earlier layer has ended"
        self.due_s.setdefault(agent, now + one.timeout_s)
        assert now < self.due_s[agent], "after its deadline"
        assert now <= (self.policy.deadline_s or math.inf), "after the run's deadline"
        self.sent_s[agent], self.sent[agent] = now, len(self.run.launches)
        self.answering.discard(agent)
        self._afford(agent)
        self._ask_key()
        self._follow(agent, one)
        others = [other for other in self.run.running if other != agent and self.sent[other] > self.opened]
        assert not others, "two at once through an open breaker"

    def _after_parents(self, agent: int) -> bool:
        return all(self.status.get(before) in PASSED_ON for before in self.dag.parents[agent])

    def _afford(self, agent: int) -> None:
        """Whatever comes of those under way, the caps hold."""
        worst = sum(self.scene.asked[other].worst_tokens for other in self.run.running)
        if self.policy.budget_tokens is not None:
            assert self.spent_tokens + worst <= self.policy.budget_tokens, "the budget could be crossed"
        if self.policy.max_usd_per_min is not None:
            lately = sum(usd for at_s, usd in self.paid if at_s + MINUTE_S > self.run.now)
            assert lately + worst * USD <= self.policy.max_usd_per_min + 1e-9, f"{agent}: more dollars a minute"

    def _ask_key(self) -> None:
        if self.scene.key and not self.taken:
            assert self.first_s == math.inf or self.run.now >= self.first_s + KEY_S, "before the key was known"
            self.first_s = min(self.first_s, self.run.now)

    def _follow(self, agent: int, one: Asked) -> None:
        """Nobody overtakes who warms the cache of his group."""
        if one.group is None:
            return
        leader, led_s = self.leading.get(one.group, (agent, -math.inf))
        if leader in self.run.running and leader != agent and one.group not in self.warm | self.useless:
            assert self.run.now - led_s >= PATIENCE_S, "before its leader's answer began"
        elif one.group not in self.warm:
            self.leading[one.group] = agent, self.run.now

    # what comes of requests

    def replied(self, status: int | None) -> None:
        """A reply, or the end of a request without one: the key is taken, or it is not."""
        if status == UNAUTHORIZED:
            self.first_s = math.inf
        else:
            self.taken = True

    def begun(self, agent: int) -> None:
        """Its answer begins."""
        self.answering.add(agent)
        group = self.scene.asked[agent].group
        if group is not None:
            self.warm.add(group)

    def refused(self, agent: int, wait_s: float | None) -> None:
        """The server said 429. Nothing was used."""
        model_class = class_of(self.scene.asked[agent].model)
        wait_s = UNSAID_S if wait_s is None else wait_s
        self.closed_s[model_class] = max(self.closed_s[model_class], self.run.now + wait_s)
        self.open_s[model_class] = max(self.open_s[model_class], self.run.now + wait_s + JITTER_S)

    def crossed(self, limit: str) -> None:
        """The server's own limit said no. Output alone is not known before it is there.

        A 429 that nothing explains, which a scene may ask for, leads to wrong beliefs of the limits: that is no error.
        """
        misled = any(fate.startswith("429") for one in self.scene.asked for fate in one.fates)
        assert not self.scene.told or misled or limit.startswith("output"), "a limit that was told is crossed"

    def settled(self, agent: int, total: int | None, *, bad: bool | None) -> None:
        """It has used so much; `None` may have been all of it. `bad` as the breaker counts."""
        worst = self.scene.asked[agent].worst_tokens
        total = worst if total is None else total
        self.used[agent] += total
        self.spent_tokens += total
        self.paid.append((self.run.now, total * USD))
        if bad is None:
            return
        self.bads += bad
        if bad:
            self.good_row, self.bad_row, self.bad_at = 0, self.bad_row + 1, len(self.run.launches)
        else:  # what had left before says little
            self.good_row, self.bad_row = self.good_row + (self.sent[agent] > self.bad_at), 0
        if self.policy.breaker_share is None:
            return
        if not bad:
            self.opened = math.inf  # it may have closed
        elif self.bad_row >= math.ceil(self.policy.breaker_share * BREAKER_WINDOW):
            self.opened = min(self.opened, len(self.run.launches))

    def failed(self, agent: int, *, counts: bool) -> None:
        """An attempt failed; it counts unless the server said how long to wait."""
        self.counted[agent] += counts

    # what time brings

    def passed(self) -> None:
        """Nothing is left undone."""
        now, conductor = self.run.now, self.run.conductor
        assert len(self.run.running) == conductor.running <= self.run.slots, "more at once than allowed"
        for agent, due_s in self.due_s.items():
            late_s = now - due_s - (WIRE_S if agent in self.run.running else 0.0)
            assert late_s <= EXACT_S, "its deadline has passed"
        if self.policy.deadline_s is not None and now > self.policy.deadline_s + WIRE_S + EXACT_S:
            assert len(self.status) == self.run.count, "the run's deadline has passed"
        if self.paused or conductor.running >= conductor.slots:
            return
        for agent in self.ready_s:
            if agent not in self.status and agent not in self.run.running:
                self._is_held(agent, conductor.held_by(agent))

    def _is_held(self, agent: int, why: str) -> None:
        """Whoever could go although a slot is free has a reason that is true."""
        now = self.run.now
        match why:
            case "backoff":
                open_s = self.open_s[class_of(self.scene.asked[agent].model)]
                assert now <= max(self.waits.get(agent, 0.0), open_s) + EXACT_S, "its wait is over"
            case "barrier":
                mine = self.dag.layer[agent]
                earlier = (other for other in range(self.run.count) if self.dag.layer[other] < mine)
                assert any(other not in self.status for other in earlier), "nothing is left of earlier layers"
            case "leader":
                group = self.scene.asked[agent].group
                ahead = [one for one in self.run.running if self.scene.asked[one].group == group]
                leaders = [one for one in ahead if now < self.sent_s[one] + PATIENCE_S + EXACT_S]
                assert leaders, "nobody leads"
                assert any(one not in self.answering for one in leaders), "the answer has begun"
            case "budget":
                assert self.run.running, "nothing will come back"
            case "breaker":
                self._is_open()
            case "key":
                assert self.scene.key, "nobody asked for it"
                assert not self.taken, "the key is known"
                assert now < self.first_s + KEY_S + EXACT_S
            case "requests" | "input" | "output" | "slot":
                pass  # the pacer's own; that it ends is checked by the end
            case _:
                raise AssertionError(f"held by {why!r}")

    def _is_open(self) -> None:
        if self.policy.max_usd_per_min is None:
            row = min(BREAKER_ROW, 2 ** max(0, self.bads - 1))
            assert self.bads, "a breaker is open without an error"
            assert self.good_row < row, "a breaker has not closed"
