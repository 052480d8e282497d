"""What has to hold in a run, at every moment: a book kept beside the engine, from what can be seen from outside.

It shares no code with what it checks. `Whole` tells it what happens; it raises where a rule is broken.
"""

# Tests take for granted what they have just checked.
# pyright: reportOptionalMemberAccess=false

from __future__ import annotations

import math
from collections import Counter, deque
from typing import TYPE_CHECKING

from agent_magic.engine.admission.prefix import PATIENCE_S
from agent_magic.providers import limit_class
from tests.engine.whole_shared import EXACT_S, KEY_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_magic.engine import Blame, Failure
    from tests.engine.whole import Whole
    from tests.engine.whole_scene import Asked
    from tests.engine.whole_shared import Shared

WIRE_S = 1 / 256
USD = 2.0**-10
"""A token's price, so that sums are exact."""
PASSED_ON = frozenset({"succeeded", "capped"})
MINUTE_S = 60.0
BREAKER_WINDOW = 20
BREAKER_ROW = 8
"""So many good answers in a row close a breaker, however often it had opened."""
PATIENCE_OPEN_S, UNREACHED_S, HANDFUL = 60.0, 3.0, 5
"""How long an open breaker is waited for; the same where nothing was ever reached, by so many requests at least."""
LATEST_TRIES, FEWEST_TRIES = 8, 3
"""So many attempts are looked at, and so many at least, before requests go one at a time."""


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
        self.out: set[int] = set()
        self.under_way: set[int] = set()  # from their first request to their last status
        self.paused = self.cut = False
        self.ready_s: dict[int, float] = {}
        self.due_s: dict[int, float] = {}
        self.sent_s: dict[int, float] = {}
        self.sent: dict[int, int] = {}
        self.answering = set[int]()
        self.leading: dict[str, tuple[int, float]] = {}
        self.warm, self.useless = set[str](), set[str]()
        self.bads = self.bad_row = self.good_row = self.bad_at = 0
        self.opened = self.opened_s = math.inf
        self.reached, self.probes_lost, self.good_sent_s = False, 0, -math.inf
        self.width, self.last_tries, self.stopping = run.slots, set[int](), set[int]()
        self.latest = deque[bool](maxlen=LATEST_TRIES)

    @property
    def shared(self) -> Shared:
        """The rules over all runs."""
        return self.run.world.book

    # what the conductor says

    def ready(self, agent: int) -> None:
        """All its parents have succeeded."""
        assert agent not in self.status
        assert self._after_parents(agent)
        self.ready_s[agent] = self.run.now
        if self.policy.timeout_counts == "total":
            self.due_s[agent] = self.run.now + self.scene.asked[agent].timeout_s

    def ended(self, agent: int, status: str, why: str) -> None:
        """It has its last status, for this reason."""
        self._given_up(why)
        assert agent not in self.status, "ended twice"
        assert agent not in self.run.running, "ended while it runs"
        self.status[agent] = status
        self.under_way.discard(agent)
        self.due_s.pop(agent, None)
        self.last_tries.discard(agent)
        self.stopping.discard(agent)

    def _given_up(self, why: str) -> None:
        """A breaker gives up only what has not been answered for long."""
        if why.startswith("Breaker: no connection"):
            assert not self.reached, "given up at once, and something was reached"
            assert self.bads >= HANDFUL, "given up after few tries"
        elif why.startswith("Breaker: the service"):
            assert self.run.now - self.good_sent_s >= PATIENCE_OPEN_S, "given up too soon"

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
        assert len(self.run.running) <= self.width, "more at once than allowed"
        self.tries[agent] += 1
        assert number == self.tries[agent], "attempts count on"
        assert self.counted[agent] < self.policy.max_attempts, "more attempts than allowed"
        if self.policy.schedule == "layers":
            mine = self.dag.layer[agent]
            earlier = (other for other in range(self.run.agents) if self.dag.layer[other] < mine)
            assert all(other in self.status for other in earlier), "before an earlier layer has ended"
        self.under_way.add(agent)
        assert self.policy.schedule != "sequential" or self.under_way == {agent}, "while another waits for its retry"
        self.due_s.setdefault(agent, now + one.timeout_s)
        assert now < self.due_s[agent], "after its deadline"
        assert now <= (self.policy.deadline_s or math.inf), "after the run's deadline"
        self.sent_s[agent], self.sent[agent] = now, len(self.run.launches)
        self.answering.discard(agent)
        self._afford(agent)
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

    def begun(self, agent: int) -> None:
        """Its answer begins."""
        self.answering.add(agent)
        group = self.scene.asked[agent].group
        if group is not None:
            self.warm.add(group)

    def settled(self, agent: int, total: int | None, *, bad: Blame) -> None:
        """It has used so much; `None` may have been all of it. `bad` as the breaker counts."""
        worst = self.scene.asked[agent].worst_tokens
        total = worst if total is None else total
        self.used[agent] += total
        self.spent_tokens += total
        self.paid.append((self.run.now, total * USD))
        if bad is None:
            return
        self.bads += bool(bad)
        self.reached = self.reached or not bad or bad.reached
        if bad:
            self.probes_lost += self.sent[agent] > self.opened
            self.good_row, self.bad_row, self.bad_at = 0, self.bad_row + 1, len(self.run.launches)
        else:  # what had left before says little
            self.good_sent_s = max(self.good_sent_s, self.sent_s[agent])
            self.good_row, self.bad_row = self.good_row + (self.sent[agent] > self.bad_at), 0
        if self.policy.breaker_share is None:
            return
        if not bad:
            self.opened = self.opened_s = math.inf  # it may have closed
        elif self.bad_row >= math.ceil(self.policy.breaker_share * BREAKER_WINDOW):
            self.opened, self.opened_s = min((self.opened, self.opened_s), (len(self.run.launches), self.run.now))

    def failed(self, agent: int, failure: Failure) -> None:
        """An attempt failed; it counts unless the server said how long to wait.

        Where a crowd can be the cause, and of half the latest attempts was, the last try of an agent goes alone.
        """
        self.counted[agent] += failure.counts
        if agent in self.stopping:
            return
        self.latest.append(failure.crowded)
        left = min(failure.attempts, self.policy.max_attempts) - self.counted[agent]
        if failure.crowded and left == 1:
            if self.width > 1 and (len(self.latest) < FEWEST_TRIES or 2 * sum(self.latest) < len(self.latest)):
                return
            self.width = 1
            self.last_tries.add(agent)

    def answered(self, agent: int) -> None:
        """It has its answer. When all last tries are through, each answer lets twice as many go."""
        self.latest.append(False)
        self.last_tries.discard(agent)
        if not self.last_tries:
            self.width = min(self.run.slots, 2 * self.width)

    # what time brings

    def passed(self) -> None:
        """Nothing is left undone."""
        now, conductor = self.run.now, self.run.conductor
        assert len(self.run.running) == conductor.running <= self.run.slots, "more at once than allowed"
        assert conductor.slots == self.width, "one at a time for no reason, or in a crowd against reason"
        for agent, due_s in self.due_s.items():
            late_s = now - due_s - (WIRE_S if agent in self.run.running else 0.0)
            assert late_s <= EXACT_S, "its deadline has passed"
        if self.policy.deadline_s is not None and now > self.policy.deadline_s + WIRE_S + EXACT_S:
            assert len(self.status) == self.run.agents, "the run's deadline has passed"
        if self.run.is_over:
            return
        for agent in self.waiting():
            if self.paused:
                assert conductor.held_by(agent) in {"paused", "backoff"}, "paused, and says something else"
            elif conductor.running < conductor.slots:
                self._is_held(agent, conductor.held_by(agent))

    def waiting(self) -> Iterator[int]:
        """Whose parents are done, and who is neither under way nor over."""
        return (agent for agent in self.ready_s if agent not in self.status and agent not in self.run.running)

    def over(self) -> None:
        """The run is over: all that was set aside for it is back."""
        budget = self.run.engine.budget
        if budget is not None:
            assert not budget.reserved_tokens, "a budget is set aside for nobody"
            assert self.spent_tokens == budget.spent_tokens, "a budget counts otherwise"
        assert not self.run.engine.admission.seat.taken, "it keeps slots"

    def _is_held(self, agent: int, why: str) -> None:
        """Whoever could go although a slot is free has a reason that is true."""
        now = self.run.now
        match why:
            case "backoff":
                open_s = self.shared.open_s.get(limit_class(self.scene.asked[agent].model), 0.0) - self.run.starts_s
                assert now <= max(self.waits.get(agent, 0.0), open_s) + EXACT_S, "its wait is over"
            case "barrier":
                mine = self.dag.layer[agent]
                earlier = (other for other in range(self.run.agents) if self.dag.layer[other] < mine)
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
                assert self.run.world.key, "nobody asked for it"
                assert not self.shared.taken, "the key is known"
                assert now + self.run.starts_s < self.shared.first_s + KEY_S + EXACT_S
            case "limits":
                assert self.shared.waits_for_reply(limit_class(self.scene.asked[agent].model)), "a reply has come"
            case "slot" | "schedule":
                self._is_taken(agent, by_schedule=why == "schedule")
            case "concurrent" | "requests" | "input" | "output" | "spend":
                pass  # the pacer's own, over all runs, and the cap's; that it ends is checked by the end
            case _:
                raise AssertionError(f"held by {why!r}")

    def _is_taken(self, agent: int, *, by_schedule: bool) -> None:
        if by_schedule:
            assert self.policy.schedule == "sequential", "another schedule"
            assert self.under_way - {agent}, "nobody is under way"
        else:
            assert self.shared.is_full(self.scene.asked[agent].model), "there is a slot"

    def _is_open(self) -> None:
        row = min(BREAKER_ROW, 2 ** max(0, self.bads - 1))
        assert self.bads, "a breaker is open without an error"
        assert self.good_row < row, "a breaker has not closed"
        hopeless = not self.reached and self.probes_lost and self.bads >= HANDFUL
        assert not hopeless or self.run.now <= self.opened_s + UNREACHED_S + EXACT_S, "nothing was ever reached"
