"""The estimate of a plan: agents, budget, total; with pilots, and under loads of the account.

Answers of a pilot estimate the rest of its plan. By default the account of a load allows as many requests per minute as
the plan has. `off_peak` has all of it, `near_rpm` lacks room for two requests, `tpm_hit` begins with twice the input
tokens it has room for, and `colleague` shares the account with another user who takes a constant part.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from agent_magic.declare.flow import is_reserved
from agent_magic.declare.units import dollars, plural, seconds, steps
from agent_magic.declare.validation import check_word, is_number, must_be
from agent_magic.engine.pacing.limits import Limits
from agent_magic.forecast.estimate.drawing import Change, grounds, weakest
from agent_magic.forecast.forecast import Forecast, Forecaster, Imagined, Scenario
from agent_magic.forecast.whatif import whatif_frame
from agent_magic.measure.frames import make_frame
from agent_magic.measure.metrics import summarize, total_cost
from agent_magic.record.display import Shown
from agent_magic.record.history import answers_of
from agent_magic.record.reasons import limited
from agent_magic.record.results import ForecastNote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pandas as pd

    from agent_magic.declare.plan import Plan
    from agent_magic.forecast.estimate.agents import InputBasis, Span
    from agent_magic.forecast.estimate.drawing import Drawing
    from agent_magic.forecast.evidence import Basis
    from agent_magic.measure.path import CriticalPath
    from agent_magic.record.history import Past
    from agent_magic.record.results import RunRecord


class Pilot(NamedTuple):
    """Result of a pilot.

    Attributes:
        agents: Agents with an answer from it.
        failed: Agents without one.
        cost_usd: Its dollars; `None` if a price is unknown.
        simulated: True if its answers are simulated.
    """

    agents: tuple[str, ...]
    failed: tuple[str, ...]
    cost_usd: float | None
    simulated: bool

    @classmethod
    def of(cls, record: RunRecord) -> Pilot:
        good = tuple(one.name for one in record.results if one.status == "succeeded")
        bad = tuple(one.name for one in record.results if one.status != "succeeded")
        return cls(good, bad, total_cost(record.results), record.simulated)


def with_pilot(rows: Sequence[Past], record: RunRecord | None) -> list[Past]:
    known = set(rows)
    return [*rows, *(row for row in (answers_of(record) if record else ()) if row not in known)]


def pilot_agents(plan: Plan, held: Sequence[bool], count: int) -> list[str]:
    """Choose at most `count` agents of a pilot: the most representative ones with known or chosen parents.

    Agents of one group represent each other, spread over its items, others those of their model.
    """
    if not isinstance(count, int) or count < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise must_be("The number of agents in a pilot", "an integer >= 1", count)
    kinds = [agent.part.group if agent.part is not None else f" {agent.model}" for agent in plan.agents]
    left = [agent for agent in range(len(plan)) if not held[agent]]
    size = Counter(kinds[agent] for agent in left)
    chosen: set[int] = set()
    while len(chosen) < count:
        ready = [
            agent
            for agent in left
            if agent not in chosen and all(held[one] or one in chosen for one in plan.dag.parents[agent])
        ]
        if not ready:
            break
        taken = Counter(kinds[agent] for agent in chosen)
        kind = max((kinds[agent] for agent in ready), key=lambda one: size[one] / (1 + taken[one]))
        same = [agent for agent in ready if kinds[agent] == kind]
        chosen.add(same[len(same) * (taken[kind] % count) // count])
    return [plan.agents[agent].name for agent in sorted(chosen)]


EXPECTED: Mapping[str, str] = {
    "agent": "string",
    "layer": "Int64",
    "model": "string",
    "reused": "bool",
    "input_tokens": "Int64",
    "output_low": "Int64",
    "output_tokens": "Int64",
    "output_high": "Int64",
    "low_s": "Float64",
    "likely_s": "Float64",
    "high_s": "Float64",
    "low_usd": "Float64",
    "likely_usd": "Float64",
    "high_usd": "Float64",
    "most_usd": "Float64",
    "on_critical_path": "bool",
    "input_basis": "string",
    "output_basis": "string",
    "seconds_basis": "string",
    "stands_on": "string",
}


@dataclass(frozen=True, slots=True)
class Expected:
    """Expected use and time of one agent. Dollars are `None` if the price is unknown.

    Attributes:
        reused: True if nothing is sent: its answer is in the ledger, or available answers leave it out.
        input: Its whole input in tokens, with parents' answers of expected length.
        output: Its answer in tokens.
        seconds: From its request to the end of its answer.
        cost: Dollars.
        most_usd: Dollars if it and its parents fill their `max_tokens`.
        aside_usd: Dollars reserved by a run with a budget, likely and at most.
        basis: Basis of its input: `counted` by the API, `estimated`, or held in the `ledger`.
        output_basis: Basis of its answer's length: `ledger` (its earlier answers) or `assumed`.
        seconds_basis: Basis of its seconds.
        stands_on: These in words.
        group: Its group, if it is for an item of a value; else empty.
        counted: True if no value gives the size of its group: places of an answer, rounds, repetitions.
        shares: The identical agent that gives it an answer at no cost; empty if it asks itself.
    """

    agent: str
    layer: int
    model: str
    reused: bool
    input: Span
    output: Span
    seconds: Span
    cost: Span | None
    most_usd: float | None
    aside_usd: tuple[float | None, float | None]
    basis: InputBasis
    output_basis: Basis
    seconds_basis: Basis
    stands_on: str
    group: str = ""
    counted: bool = False
    shares: str = ""

    @property
    def is_task(self) -> bool:
        """True if it is a task: it asks no model."""
        return not self.model

    @property
    def input_tokens(self) -> int:
        """Its whole input, likely."""
        return round(self.input.likely)

    @property
    def output_tokens(self) -> int:
        """Its answer, likely."""
        return round(self.output.likely)

    @property
    def cost_usd(self) -> float | None:
        """Dollars, likely."""
        return None if self.cost is None else self.cost.likely


class Reach(NamedTuple):
    """Number of agents, in the order they start, a budget reaches.

    Attributes:
        budget_usd: The budget.
        likely: If answers are as long as expected.
        surely: If every answer fills its `max_tokens`.
    """

    budget_usd: float
    likely: int
    surely: int


@dataclass(frozen=True, slots=True, repr=False)
class Estimate(Shown):
    """The estimate of a plan, in seconds, tokens and USD.

    Attributes:
        plan: The plan's name.
        expected: Expectation of each agent, in plan order.
        cost: Total dollars; `None` if a price is unknown.
        most_usd: Dollars if every answer fills its `max_tokens`.
        wall_s: First ready to last finished, without failures and retries.
        critical_path: The longest chain of likely seconds.
        limited_by: The limit of the run: `budget`, `deadline`, `timeout`, `requests`, `input`, `output`, `slot`,
            `barrier`, `leader`, `dependencies`, `longest`, or `none known`.
        basis: The weakest basis: `ledger` (earlier answers) or `assumed`.
        order: The agents' numbers in order of start.
        reaches: How far the budget reaches; `None` without one.
        notes: Further notes.
        simulated: True if it is based on simulated answers.
        pilot: The agents of a pilot, if there was one.
        likely: The likely run.
        drawing: The inputs of its runs.
        repeat: Forecasts the likely run again, under other limits.
        batch_times_s: Seconds of earlier batches.
    """

    plan: str
    expected: tuple[Expected, ...]
    cost: Span | None = field(kw_only=True)
    most_usd: float | None = field(kw_only=True)
    wall_s: Span = field(kw_only=True)
    critical_path: CriticalPath = field(kw_only=True)
    limited_by: str = field(default="none known", kw_only=True)
    basis: Basis = field(kw_only=True)
    order: tuple[int, ...] = field(kw_only=True)
    reaches: Reach | None = field(default=None, kw_only=True)
    notes: tuple[str, ...] = field(kw_only=True)
    simulated: bool = field(kw_only=True)
    pilot: Pilot | None = field(default=None, kw_only=True)
    likely: RunRecord = field(kw_only=True, compare=False)
    drawing: Drawing = field(kw_only=True, compare=False)
    repeat: Callable[..., Forecaster] = field(kw_only=True, compare=False)
    batch_times_s: Sequence[float] = field(default=(), kw_only=True)

    @property
    def agents(self) -> pd.DataFrame:
        """One row per agent, in plan order. Columns are `EXPECTED`."""
        path = set(self.critical_path.agents)
        return make_frame([_row(one, on_path=one.agent in path) for one in self.expected], EXPECTED)

    @property
    def reused(self) -> int:
        """Number of answers in the ledger, or not needed because of available ones."""
        return sum(one.reused for one in self.expected)

    @property
    def identical(self) -> list[str]:
        """Return groups with identical requests, and how many differ: `rows: 60 rows, 41 different`."""
        groups: dict[str, list[Expected]] = {}
        for one in self.expected:
            if one.group:
                groups.setdefault(one.group, []).append(one)
        found = {name: (len(every), sum(bool(one.shares) for one in every)) for name, every in groups.items()}
        return [
            f"{name}: {many:,} rows, {many - shared:,} different" for name, (many, shared) in found.items() if shared
        ]

    @property
    def tasks(self) -> int:
        """Number of tasks."""
        return sum(one.is_task for one in self.expected)

    @property
    def stands_on(self) -> str:
        """How many agents' numbers have which basis."""
        asked = (one for one in self.expected if not (one.reused or one.shares or one.is_task))
        tasks = sum(one.is_task and one.seconds_basis == "assumed" for one in self.expected)
        return grounds(((one.basis, one.output_basis, one.seconds_basis) for one in asked), tasks)

    def ahead(self) -> Ahead:
        return Ahead(self, self.drawing, self.batch_times_s)

    def whatif(self, **given: Any) -> pd.DataFrame:
        """Forecast the plan under changed settings: the frame of `run.whatif`, before there is a run.

        A row per combination of values, from earlier answers and assumptions; `basis` tells which, and `wall_low_s`,
        `wall_high_s`, `cost_low_usd`, `cost_high_usd` give the range. Omitted settings are as declared; without changes
        the row is the estimate. Nothing is sent.

        Args:
            **given: The arguments of `run.whatif`, each a value or a list of values: `model`, `concurrency`,
                `schedule`, `limits`, `cache`, `batch`, `effort`, `drop`, `prices`, `cache_ttl`, `rounds`, `most`,
                `route`, `outage`, and pass-through options of agents.

        Raises:
            DeclarationError: An argument or value is unknown, or misspelt.
            UnknownAgent: An agent is not in the plan.
        """
        return whatif_frame(self.ahead(), given)

    def reach(self, budget_usd: float) -> Reach:
        """Return how many agents a budget reaches, in order of start, up to the first it may not pay for."""
        return Reach(budget_usd, self._reached(budget_usd, surely=False), self._reached(budget_usd, surely=True))

    def _reached(self, budget_usd: float, *, surely: bool) -> int:
        spent = 0.0
        for number, agent in enumerate(self.order):
            one = self.expected[agent]
            aside, cost = one.aside_usd[surely], one.most_usd if surely else one.cost_usd
            if aside is None or cost is None or spent + max(aside, cost) > budget_usd:  # tools take several requests
                return number
            spent += cost
        return len(self.order)

    def __repr__(self) -> str:
        made_up = ", by simulated answers" if self.simulated else ""
        reused = f", {self.reused} answered by the ledger at $0" if self.reused else ""
        every = steps(len(self.expected), self.tasks)
        lines = [f"Estimate of {self.plan!r}: {every}{reused}{made_up}"]
        lines += [f"identical: {'; '.join(self.identical)}"] if self.identical else []
        if self.cost is None:
            lines.append("dollars: unknown, a model has no known price")
        else:
            lines.append("dollars: {} low, {} likely, {} high".format(*map(dollars, self.cost)))
            if self.most_usd is not None:
                lines[-1] += f"; {dollars(self.most_usd)} if every answer fills its max_tokens"
        lines.append("time: {} low, {} likely, {} high".format(*map(seconds, self.wall_s)))
        lines.append(f"{self.critical_path!r}" if self.critical_path.agents else "critical path: nothing to do")
        lines += [limited(self.limited_by)] if self.limited_by else []
        if self.pilot is not None:
            lines.append(f"pilot: {', '.join(self.pilot.agents)} were run; the rest is estimated by that")
        if self.reaches is not None:
            found = self.reaches
            budget, likely, surely = dollars(found.budget_usd), found.likely, found.surely
            lines.append(f"{budget} reaches {likely} of {every}, {surely} if every answer is full")
        return "\n".join([*lines, f"stands on: {self.stands_on}", *(f"note: {note}" for note in self.notes)])


def _row(one: Expected, *, on_path: bool) -> dict[str, object]:
    cost = one.cost or (None, None, None)
    return {
        **{name: getattr(one, name, None) for name in EXPECTED},
        "output_low": round(one.output.low),
        "output_high": round(one.output.high),
        **dict(zip(("low_s", "likely_s", "high_s"), one.seconds, strict=True)),
        **dict(zip(("low_usd", "likely_usd", "high_usd"), cost, strict=True)),
        "on_critical_path": on_path,
        "input_basis": one.basis,
    }


Confirmation = Literal["go", "ask", "note"]


class Outlay(NamedTuple):
    """The expected cost of a run."""

    agents: int
    usd: float
    most_usd: float  # if each of their answers fills its `max_tokens`
    unpriced: int


def outlay(expected: Iterable[Expected]) -> Outlay:
    all_ = [one for one in expected if not (one.is_task or one.shares)]
    known = [(one.cost_usd, one.most_usd) for one in all_ if one.cost_usd is not None and one.most_usd is not None]
    return Outlay(len(all_), sum(one for one, _ in known), sum(one for _, one in known), len(all_) - len(known))


def confirmation(what: Outlay, *, above_agents: int, above_usd: float, yes: bool, can_ask: bool) -> Confirmation:
    """Return whether a run just starts, is confirmed first, or starts with a note; a limit of 0 means never."""
    # Without a person nothing is asked: an unattended notebook must not hang, and its budget is its cap.
    large = 0 < above_agents < what.agents or 0 < above_usd < what.usd
    if yes or not large:
        return "go"
    return "ask" if can_ask else "note"


# What-ifs of a plan before it runs, by the engine for runs on imagined ones.
#
# Changes of model, effort or dropped agents redraw requests and answers, so that a what-if of another model equals the
# estimate of the plan with that model. Everything else is a what-if of the imagined runs.


def of_estimate(stands_on: str) -> str:
    return f"the estimate ({stands_on})"


class Ahead:
    """Answers many what-ifs of one plan, as a `Forecaster` does for a run."""

    subject = "the plan"

    def __init__(self, estimate: Estimate, drawing: Drawing, batch_times_s: Sequence[float] = ()) -> None:
        self._drawing, self._batch_times_s = drawing, batch_times_s
        self._simulated = estimate.simulated
        self._by_change: dict[tuple[object, ...], Forecaster] = {}
        self._declared = declared = self._forecaster(Scenario())
        self.record, self.evidence = declared.record, declared.evidence
        self.policy, self.prices = declared.policy, declared.prices
        low, likely, high = estimate.wall_s
        cost = estimate.cost
        totals = replace(summarize(estimate.likely), wall_s=likely, cost_usd=None if cost is None else cost.likely)
        range_usd = None if cost is None else (cost.low, cost.high)
        note = ForecastNote(
            estimate.basis, of_estimate(estimate.stands_on), (low, high), range_usd, simulated=estimate.simulated
        )
        self._itself = Forecast(Scenario(self.policy), estimate.likely, totals, note)
        self.totals = self._itself.totals

    @property
    def route(self) -> str:
        return self._declared.route

    @property
    def endpoints(self) -> tuple[str, ...]:
        return self._declared.endpoints

    def forecast(self, scenario: Scenario, *, ranges: bool = True) -> Forecast:
        scenario = replace(scenario, policy=scenario.policy or self.policy)
        if scenario == Scenario(self.policy):
            return self._itself
        rest = replace(scenario, models={}, efforts={})
        return replace(self._forecaster(scenario).forecast(rest, ranges=ranges), scenario=scenario)

    def _forecaster(self, scenario: Scenario) -> Forecaster:
        drawing, flow = self._drawing, self._drawing.plan.flow
        beyond = {} if flow is None else flow.at_most(scenario.rounds, scenario.most)
        changed = {*scenario.models, *scenario.efforts, *scenario.sent}
        models, efforts = tuple(scenario.models.items()), tuple(scenario.efforts.items())
        key = (models, efforts, scenario.dropped, frozenset(beyond), frozenset(changed))
        found = self._by_change.get(key)
        if found is None:
            drawn = drawing.alone(Change(scenario.models, scenario.efforts, scenario.dropped, beyond))
            held = drawing.still_held({*changed, *scenario.dropped, *beyond})
            known = Imagined(drawn.works[1], drawing.servers.fits, held)
            asked = [one for step, one in enumerate(drawn.guesses) if step not in held]
            tasks = sum(one.is_task and one.seconds_basis == "assumed" for one in asked)
            requests = [one for one in asked if not one.is_task]
            words = of_estimate(
                grounds(((one.input_basis, one.output_basis, one.seconds_basis) for one in requests), tasks)
            )
            note = ForecastNote(weakest(asked), words, (0.0, 0.0), None, simulated=self._simulated)
            for end in drawn.ends:
                end.label_forecast(note)
            low, likely, high = drawn.ends
            common = drawing.rows, drawing.prices, self._batch_times_s
            ends = (
                Forecaster(low, *common, imagined=known._replace(works=drawn.works[0])),
                Forecaster(high, *common, imagined=known._replace(works=drawn.works[2])),
            )
            found = Forecaster(likely, *common, imagined=known._replace(ends=ends))
            self._by_change[key] = found
        return found


Load = Literal["off_peak", "near_rpm", "tpm_hit", "colleague"]
OnRateLimit = Literal["queue", "reject"]
LOADS: Final[Mapping[Load, str]] = {
    "off_peak": "nobody else uses the account",
    "near_rpm": "all but two of the requests have room in this minute",
    "tpm_hit": "half of the input tokens of the first requests have room in this minute",
    "colleague": "a colleague uses a part of the account all the time",
}
ON_RATE_LIMIT: Final[Mapping[OnRateLimit, str]] = {
    "queue": "requests wait until the limit has room, as in a run",
    "reject": "requests are sent at once; one that is refused has failed",
}
MINUTE_S: Final = 60.0
SCENARIOS: Final[Mapping[str, str]] = {
    "load": "string",
    "on_limit": "string",
    "wall_s": "Float64",
    "queued_s": "Float64",
    "refused": "Int64",
    "succeeded": "Int64",
    "failed": "Int64",
    "skipped": "Int64",
    "cost_usd": "Float64",
}


def under_load(
    estimate: Estimate,
    load: Load,
    *,
    on_limit: OnRateLimit = "queue",
    rpm: float | None = None,
    colleague: float = 0.5,
) -> Forecast:
    check_word("load", load, LOADS)
    check_word("on_limit", on_limit, ON_RATE_LIMIT)
    if rpm is not None and not (is_number(rpm) and rpm > 0):
        raise must_be("rpm", "a number above 0", rpm)
    if not (is_number(colleague) and 0 <= colleague < 1):
        raise must_be("colleague", "a number from 0 to below 1", colleague)
    forecaster = estimate.repeat()
    alone = forecaster.forecast(Scenario(limits={}), ranges=False)
    sent = [] if alone.record is None else [one for one in alone.record.facts.ended if one.usage is not None]
    first = {one.name for one in forecaster.record.results if not one.layer}
    tokens = sum((one.usage.input_tokens or 0) for one in sent if one.usage is not None and one.agent in first)
    rpm = rpm or max(1.0, float(len(sent)))
    limits = {
        "off_peak": _holding(Limits(rpm), rpm),
        "near_rpm": _holding(Limits(rpm), len(sent) - 2),
        "tpm_hit": _holding(Limits(input_tokens=max(2.0, tokens / 2)), tokens / 2),
        "colleague": _holding(Limits(rpm * (1 - colleague)), rpm * (1 - colleague)),
    }[load]
    asked = replace(alone.scenario, limits={"*": limits})
    if on_limit == "reject" and asked.policy is not None:
        asked = replace(asked, policy=replace(asked.policy, max_attempts=1), paced=False)
    found = forecaster.forecast(asked)
    words = [f"{load}: {LOADS[load]}; {on_limit}: {ON_RATE_LIMIT[on_limit]}", f"the estimate ({estimate.stands_on})"]
    words += filter(None, [places_words(estimate)])
    note = found.note._replace(basis=estimate.basis, assumed="; ".join([*words, found.note.assumed]))
    if found.record is not None:
        found.record.label_forecast(note)
    return replace(found, note=note)


def places_words(estimate: Estimate) -> str:
    likely = estimate.likely
    reserved = [step for step, one in enumerate(likely.plan.agents) if is_reserved(one) and one.hedges is None]
    if not reserved:
        return ""
    needed = sum(not likely.results[step].is_left_out for step in reserved)
    told = "all count" if needed == len(reserved) else f"{needed:,} count, as many as are likely by earlier runs"
    return f"of {len(reserved):,} reserved places {told}"


def _holding(limits: Limits, amount: float) -> Limits:
    per_minute = limits.requests or limits.input_tokens or 1.0
    return replace(limits, burst_s=max(1.0, amount) * MINUTE_S / per_minute)


def verdict_on(frame: pd.DataFrame, option: str) -> str:
    if len({*frame["wall_s"]}) > 1:
        return ""
    return f"no load holds this plan up: an account lets the first request pass. Declare more, or say {option}."


def loads_frame(estimate: Estimate, *, rpm: float | None = None, colleague: float = 0.5) -> pd.DataFrame:
    """Forecast a plan under each load, queued and rejected: one row each, columns are `SCENARIOS`."""
    rows: list[dict[str, object]] = []
    for load, on_limit in product(LOADS, ON_RATE_LIMIT):
        totals = under_load(estimate, load, on_limit=on_limit, rpm=rpm, colleague=colleague).totals
        names = ("wall_s", "queued_s", "succeeded", "failed", "skipped", "cost_usd")
        row = {name: getattr(totals, name) for name in names}
        rows.append({"load": load, "on_limit": on_limit, **row, "refused": totals.rate_limited})
    told = f"{plural(len(rows), 'forecast')}, nothing sent · %agents scenario LOAD returns one of them as a run"
    return make_frame(rows, SCENARIOS, verdict=told)
