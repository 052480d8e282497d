"""What an estimate says: of each agent, of a budget, of the whole."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from agent_magic.declare.units import dollars, seconds, steps
from agent_magic.forecast.whatif import whatif_frame
from agent_magic.measure.frames import make_frame
from agent_magic.record.reasons import limited

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import pandas as pd

    from agent_magic.forecast.estimate.agents import InputBasis, Span
    from agent_magic.forecast.forecast import Forecaster
    from agent_magic.forecast.pace import Basis
    from agent_magic.forecast.pilot import Pilot
    from agent_magic.measure.path import CriticalPath
    from agent_magic.record.results import RunRecord

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
    """What one agent may use and take. Dollars are `None` where the price is unknown.

    Attributes:
        reused: Whether its answer is in the ledger, or what is there leaves it out: nothing is sent, nothing is paid.
        input: Its whole input in tokens, its parents' answers as long as theirs are expected.
        output: Its answer in tokens.
        seconds: From its request to the end of its answer.
        cost: Dollars.
        most_usd: Dollars if it and its parents use their `max_tokens` to the full.
        aside_usd: Dollars that a run with a budget sets aside for it before it is sent, likely and at most.
        basis: What its input stands on: `counted` by the API, `estimated`, or held in the `ledger`.
        output_basis: What the length of its answer stands on: `ledger` (its earlier answers) or `assumed`.
        seconds_basis: What its seconds stand on.
        stands_on: That in words.
        group: The declaration that made it for an item of a value; empty without.
        counted: Whether its group is more than the items of a value: places of an answer, rounds, repetitions.
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

    @property
    def is_task(self) -> bool:
        """Whether it is a task: it asks no model."""
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
    """How many agents, in the order they start, a budget reaches.

    Attributes:
        budget_usd: The budget.
        likely: If answers are as long as expected.
        surely: If every answer fills its `max_tokens`.
    """

    budget_usd: float
    likely: int
    surely: int


@dataclass(frozen=True, slots=True, repr=False)
class Estimate:
    """What a plan may cost and take. All in seconds, tokens and USD.

    Attributes:
        plan: The plan's name.
        expected: Per agent, in plan order, what it may use.
        cost: Dollars of all; `None` where a price is unknown.
        most_usd: Dollars if every answer fills its `max_tokens`.
        wall_s: First ready to last finished, failures and retries left out.
        critical_path: The longest chain of likely seconds.
        limited_by: What holds the run up or cuts it: `budget`, `deadline`, `timeout`, `requests`, `input`, `output`,
            `slot`, `barrier`, `leader`, `dependencies`, or `none known`.
        basis: The weakest thing a number stands on: `ledger` (earlier answers) or `assumed`.
        order: The agents' numbers in the order they start.
        reaches: How far the budget reaches; `None` without one.
        notes: What else has to be known.
        simulated: Whether it is based on simulated answers.
        pilot: Which agents were run to find out; `None` without a pilot.
        likely: The run that is foreseen, with every agent as it is likely to be.
        forecaster: Makes what answers what-ifs of the same with all its reserved places needed, or of another record.
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
    forecaster: Callable[..., Forecaster] = field(kw_only=True, compare=False)

    @property
    def agents(self) -> pd.DataFrame:
        """One row per agent, in plan order. Columns are `EXPECTED`."""
        path = set(self.critical_path.agents)
        return make_frame([_row(one, on_path=one.agent in path) for one in self.expected], EXPECTED)

    @property
    def reused(self) -> int:
        """How many answers are in the ledger, or will not be needed by what is there."""
        return sum(one.reused for one in self.expected)

    @property
    def tasks(self) -> int:
        """How many are tasks."""
        return sum(one.is_task for one in self.expected)

    @property
    def stands_on(self) -> str:
        """How many agents' numbers stand on what."""
        asked = [one for one in self.expected if not one.reused and not one.is_task]
        parts = [
            f"{what} {', '.join(f'{number} {basis}' for basis, number in Counter(found).items())}"
            for what, found in (
                ("inputs", [one.basis for one in asked]),
                ("lengths", [one.output_basis for one in asked]),
                ("seconds", [one.seconds_basis for one in asked]),
            )
            if found
        ]
        return "; ".join(parts) or "every answer is in the ledger"

    def whatif(self, *, rounds: Any = None, most: Any = None, drop: Any = None) -> pd.DataFrame:
        """Return what the run would cost and take with fewer rounds, items or agents: a row per combination.

        Each argument is a value or a list of values; without one, all that is reserved counts. For the columns see
        `agent_magic.forecast.whatif`.

        Args:
            rounds: The most rounds of each loop.
            most: The most items of each map over an answer.
            drop: An agent, or a tuple of them, that is left out.

        Raises:
            DeclarationError: A value is not known, or more than is reserved.
            UnknownAgent: An agent is not in the plan.
        """
        given = {"rounds": rounds, "most": most, "drop": drop}
        return whatif_frame(self.forecaster(base=(self.basis, f"the estimate ({self.stands_on})")), given)

    def reach(self, budget_usd: float) -> Reach:
        """Say how many agents a budget reaches: in the order they start, up to the first that it may not pay for."""
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
    """What a run may cost, by an estimate.

    Attributes:
        agents: How many are going to be asked.
        usd: The dollars expected, of those whose price is known.
        most_usd: Dollars if every answer of those fills its `max_tokens`.
        unpriced: How many have no known price.
    """

    agents: int
    usd: float
    most_usd: float
    unpriced: int


def outlay(expected: Iterable[Expected]) -> Outlay:
    """Add up what is expected of agents; a task is asked of nobody."""
    all_ = [one for one in expected if not one.is_task]
    known = [(one.cost_usd, one.most_usd) for one in all_ if one.cost_usd is not None and one.most_usd is not None]
    return Outlay(len(all_), sum(one for one, _ in known), sum(one for _, one in known), len(all_) - len(known))


def confirmation(what: Outlay, *, above_agents: int, above_usd: float, yes: bool, can_ask: bool) -> Confirmation:
    """Say whether a run just goes, is asked about first, or goes with a note of what it is about to do.

    Without anybody to answer nothing is asked: a notebook that runs by itself must not hang, and its budget is its cap.

    Args:
        what: What the run may cost.
        above_agents: More agents than this are asked about; 0 is never.
        above_usd: More dollars than this are asked about; 0 is never. An unknown price does not count.
        yes: The user has said yes already.
        can_ask: Whether somebody is there to answer.
    """
    large = 0 < above_agents < what.agents or 0 < above_usd < what.usd
    if yes or not large:
        return "go"
    return "ask" if can_ask else "note"
