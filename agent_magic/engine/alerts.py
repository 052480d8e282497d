"""Alerts: rules such as `p95 > 30`, evaluated at each event of a run, so live runs, recordings and forecasts agree.

An episode ends when the rule has held for `CALM_S`, so an oscillating value is one alert.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from agent_magic.declare.validation import check_word
from agent_magic.errors import DeclarationError, did_you_mean, shown_value
from agent_magic.record.events import (
    AgentEnded,
    AgentReady,
    AgentReopened,
    AttemptEnded,
    AttemptStarted,
    BackoffStarted,
    CallStarted,
)
from agent_magic.record.facts import ENOUGH, percentile

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent_magic.record.events import Event
    from agent_magic.record.results import RunRecord

OnAlert = Literal["tell", "pause", "stop"]
ON_ALERT: Final[tuple[OnAlert, ...]] = ("tell", "pause", "stop")
LATELY_S: Final = 60.0
"""Seconds of spending and utilization that count."""
RECENT: Final = 100
"""Agents for percentiles, requests for error rates."""
LEAST: Final = 20
"""Minimum requests for an error rate."""
CALM_S: Final = 10.0
METRICS: Final = {
    "p50": "the median of total_s, waiting included, of the last 100 agents that finished",
    "p95": "the 95th percentile of it; needs 20",
    "p99": "the 99th percentile of it; needs 100",
    "errors": "the share of the last 100 requests that failed; needs 20",
    "queue": "agents that are ready and wait",
    "utilization": "the share of the slots in use, over the last minute",
    "usd_per_min": "dollars spent within the last minute",
}
SHARES: Final = frozenset({"errors", "utilization"})
DEFAULT_RULES: Final = ("p95 > 30", "errors > 2%", "queue > 500", "utilization > 90%")
"""The four of a document, not a recommendation. Source: "Agent Scaling Analysis & Solutions", anvil."""
_RULE = re.compile(r"\s*([A-Za-z_]\w*)\s*>\s*(\d+(?:\.\d+)?|\.\d+)\s*(%|s)?\s*")


@dataclass(frozen=True, slots=True)
class Rule:
    """A limit on a metric, one of `METRICS`; shares are from 0 to 1."""

    metric: str
    most: float

    def __str__(self) -> str:
        return f"{self.metric} > {self.write(self.most)}"

    def write(self, value: float) -> str:
        if self.metric in SHARES:
            return f"{100 * value:.3g}%"
        if self.metric == "usd_per_min":
            return f"${value:,.4g}"
        return f"{value:,.0f}" if self.metric == "queue" else f"{value:,.3g} s"

    @staticmethod
    def read(text: object) -> Rule:
        found = _RULE.fullmatch(text.replace("$", "")) if isinstance(text, str) else None
        if found is None:
            hint = "Write a number that must not be exceeded: 'p95 > 30', 'errors > 2%', 'queue > 500'."
            raise DeclarationError(f"{shown_value(text)} is no rule of an alert.", hint=hint)
        metric, number, unit = found.groups()
        if metric not in METRICS:
            hint = f"It can be {', '.join(METRICS)}.{did_you_mean(metric, METRICS)}"
            raise DeclarationError(f"Alerts have no metric {metric!r}.", hint=hint)
        if metric in SHARES and unit != "%":
            raise DeclarationError(f"{metric} is a share, got {number!r}.", hint=f"Write '{metric} > {number}%'.")
        if unit == "%" and metric not in SHARES:
            raise DeclarationError(f"{metric} is no share, got '{number}%'.", hint=f"Write '{metric} > {number}'.")
        return Rule(metric, float(number) / 100 if unit == "%" else float(number))


@dataclass(slots=True)
class Episode:
    """A period in which a rule was broken.

    Attributes:
        at_s: Its start, in seconds since the run began.
        measured: The value at its start.
        ended_s: When the rule held again; `None` while it is broken.
    """

    rule: Rule
    at_s: float
    measured: float
    worst: float
    ended_s: float | None = None

    def __str__(self) -> str:
        return f"{self.rule.metric} {self.rule.write(self.worst)}, above {self.rule.write(self.rule.most)}"


@dataclass(frozen=True, slots=True, init=False)
class Alerts:
    """Alerts of a run: `am.Alerts("p95 > 30", "errors > 2%", on_alert="pause")`.

    Args:
        rules: Rules; default `p95 > 30`, `errors > 2%`, `queue > 500` and `utilization > 90%`.
        on_alert: `tell` only shows it, `pause` starts nothing more, `stop` ends the run.
        tell: Called with each `Episode` at its start, on the loop of the run.

    Attributes:
        rules: The parsed rules.
        on_alert: The same.
        tell: The same.
    """

    rules: tuple[Rule, ...]
    on_alert: OnAlert = field(default="tell", kw_only=True)
    tell: Callable[[Episode], object] | None = field(default=None, kw_only=True)

    def __init__(
        self, *rules: str, on_alert: OnAlert = "tell", tell: Callable[[Episode], object] | None = None
    ) -> None:
        check_word("on_alert", on_alert, ON_ALERT)
        if tell is not None and not callable(tell):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DeclarationError(f"tell must be a function, got {shown_value(tell)}.")
        object.__setattr__(self, "rules", rules_of(rules))
        object.__setattr__(self, "on_alert", on_alert)
        object.__setattr__(self, "tell", tell)


def rules_of(texts: Iterable[str]) -> tuple[Rule, ...]:
    return tuple(dict.fromkeys(map(Rule.read, tuple(texts) or DEFAULT_RULES)))


def episodes_of(record: RunRecord, rules: Sequence[Rule]) -> list[Episode]:
    watch = AlertWatch(rules, slots_of(record))
    watch.read(record.events)
    watch.settle()
    return watch.episodes


def slots_of(record: RunRecord) -> int | None:
    return None if record.terms is None else record.terms.policy.get("concurrency")


class AlertWatch:
    """Reads the events of a run and tracks the episodes; without `slots` there is no utilization."""

    def __init__(self, rules: Sequence[Rule], slots: int | None) -> None:
        self.episodes: list[Episode] = []
        self._rules, self._seen, self._gauges = rules, 0, Gauges(slots)
        self._open: dict[Rule, Episode] = {}
        self._held_s: dict[Rule, float] = {}

    @property
    def open(self) -> list[Episode]:
        return list(self._open.values())

    def read(self, events: Sequence[Event]) -> list[Episode]:
        before, last = len(self.episodes), len(events) - 1
        for index in range(self._seen, len(events)):
            at_s = events[index].at_s
            self._gauges.add(events[index])
            if index == last or events[index + 1].at_s > at_s:  # what happens at one moment is judged together
                self._judge(at_s)
        self._seen = len(events)
        return self.episodes[before:]

    def _judge(self, at_s: float) -> None:
        for rule in self._rules:
            value, open_ = self._gauges.value(rule.metric, at_s), self._open.get(rule)
            if value is not None and value > rule.most:
                self._held_s.pop(rule, None)
                if open_ is None:
                    open_ = self._open[rule] = Episode(rule, at_s, value, value)
                    self.episodes.append(open_)
                open_.worst = max(open_.worst, value)
            elif open_ is not None and at_s - self._held_s.setdefault(rule, at_s) >= CALM_S:
                open_.ended_s = self._held_s.pop(rule)
                del self._open[rule]

    def settle(self) -> None:
        for rule, since_s in self._held_s.items():
            self._open.pop(rule).ended_s = since_s
        self._held_s.clear()


class Gauges:
    """Current metrics of a run, at constant cost per event."""

    def __init__(self, slots: int | None) -> None:
        self._slots = slots
        self._ready_s: dict[int, float] = {}
        self._waiting: set[int] = set()
        self._under_way: set[int] = set()
        self._totals: deque[float] = deque(maxlen=RECENT)
        self._waited: deque[float] = deque(maxlen=RECENT)
        self._failed: deque[bool] = deque(maxlen=RECENT)
        self._spent: deque[tuple[float, float]] = deque()
        self._used: deque[tuple[float, float]] = deque([(0.0, 0.0)])
        self._sorted: dict[int, float | None] = {}

    def add(self, event: Event) -> None:
        self._pass_time(event.at_s)
        match event:
            case AgentReady(at_s, agent):
                self._ready_s[agent] = at_s
                self._waiting.add(agent)
            case AgentReopened(_, agent) | BackoffStarted(_, agent):
                self._waiting.add(agent)
            case AttemptStarted(at_s, agent, number):
                if number == 1 and agent in self._ready_s:
                    self._waited.append(at_s - self._ready_s[agent])
                self._waiting.discard(agent)
                self._under_way.add(agent)
            case CallStarted(_, agent):
                self._waiting.discard(agent)
            case AttemptEnded():
                self._end(event)
            case AgentEnded(at_s, agent, status):
                self._waiting.discard(agent)
                if agent in self._ready_s and status in {"succeeded", "failed"}:
                    self._totals.append(at_s - self._ready_s[agent])
                    self._sorted = {}
            case _:
                pass

    def _end(self, event: AttemptEnded) -> None:
        self._under_way.discard(event.agent)
        if event.source != "ledger" and event.kind != "cancelled":
            self._failed.append(event.kind is not None)
        if event.price.cost_usd:
            self._spent.append((event.at_s, event.price.cost_usd))

    def _pass_time(self, at_s: float) -> None:
        before_s, used = self._used[-1]
        if at_s > before_s:
            self._used.append((at_s, used + (at_s - before_s) * len(self._under_way)))
        while len(self._used) > 1 and self._used[1][0] <= at_s - LATELY_S:
            self._used.popleft()

    @property
    def running(self) -> int:
        return len(self._under_way)

    @property
    def waited_s(self) -> float | None:
        return percentile(self._waited, 50)

    def value(self, metric: str, at_s: float) -> float | None:
        match metric:
            case "errors":
                n = len(self._failed)
                return sum(self._failed) / n if n >= LEAST else None
            case "queue":
                return float(len(self._waiting))
            case "utilization":
                begun_s, used = self._used[0]
                span_s = at_s - begun_s
                if self._slots is None or span_s < CALM_S:
                    return None
                return (self._used[-1][1] - used) / span_s / self._slots
            case "usd_per_min":
                while self._spent and self._spent[0][0] < at_s - LATELY_S:
                    self._spent.popleft()
                return sum(cost for _, cost in self._spent)
            case _:
                percent = int(metric[1:])
                if percent not in self._sorted:
                    enough = len(self._totals) >= ENOUGH[percent]
                    self._sorted[percent] = percentile(self._totals, percent) if enough else None
                return self._sorted[percent]
