"""Earlier answers and the timing of their servers, on which expectations of the next run are based."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from agent_magic.declare.each import group_of
from agent_magic.declare.step import cascade_of, prompt_of
from agent_magic.record.answer import TOOL_USE

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

    from agent_magic.declare.plan import Plan
    from agent_magic.declare.step import Step
    from agent_magic.record.facts import Attempt
    from agent_magic.record.results import RunRecord

MEASURED = frozenset({"live", "simulated"})
"""Simulated ones are never mixed with real ones."""

MOST_RUNS = 20
"""Evidence of a server's behaviour under load; servers change."""


class Past(NamedTuple):
    """One complete answer.

    Attributes:
        calls: True if it calls tools, so that another turn followed.
        elsewhere: True if it was simulated by another mock server: its length counts, its seconds do not.
        prompt: Fingerprint of the agent's declaration (`prompt_of`), if known.
        rounds: Rounds of its loop; 0 for no loop or unknown.
        shared: True if an identical step asked and paid.
    """

    agent: str
    model: str
    effort: str | None
    input_tokens: int | None
    output_tokens: int | None
    ttft_s: float | None
    api_s: float
    simulated: bool
    calls: bool = False
    elsewhere: bool = False
    searches: int | None = None
    prompt: str = ""
    rounds: int = 0
    run: str = ""
    ended_s: float = 0.0
    shared: bool = False
    cascade: str = ""

    @property
    def bare(self) -> Past:
        """The part known in every kernel, by which rows of one answer are equal."""
        return self._replace(elsewhere=False, searches=None, prompt="", rounds=0, run="", ended_s=0.0, cascade="")


class History:
    """Complete answers of earlier runs, oldest first.

    Args:
        time_factor: Speed of the connected mock server relative to a model; 1 for others.
        origin: The current server, as in records.
        earlier: Looks up the timing of earlier sessions at an origin, oldest first.
    """

    def __init__(
        self,
        rows: Iterable[Past] = (),
        *,
        time_factor: float = 1.0,
        origin: str = "",
        earlier: Callable[[str], Sequence[SeenRun]] | None = None,
    ) -> None:
        self.time_factor, self.origin, self._look_up = time_factor, origin, earlier
        self._earlier: dict[str, Sequence[SeenRun]] = {}
        self.found: dict[Hashable, Any] = {}
        self._rows: list[Past] = []
        self._by_agent: dict[str, dict[str, list[Past]]] = {}  # by name and prompt
        self._by_group: dict[str, dict[str, list[Past]]] = {}
        self._by_model: dict[str, list[Past]] = {}
        self.runs: list[SeenRun] = []
        self.shared: list[Past] = []
        for row in rows:
            self.add(row)

    def __getstate__(self) -> dict[str, object]:
        """Leave out the ledger, so that a run can be copied and pickled."""
        return {**vars(self), "_look_up": None, "found": {}}

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Past]:
        return iter(self._rows)

    @property
    def is_of_simulator(self) -> bool:
        runs = self.runs_at(self.origin) if "://" in self.origin else ()
        return bool(runs) and runs[-1].simulated

    @property
    def latest(self) -> Past | None:
        return self._rows[-1] if self._rows else None

    def add(self, row: Past) -> None:
        if row.shared:
            self.shared.append(row)
            return
        self._rows.append(row)
        self._by_model.setdefault(row.model, []).append(row)
        if row.prompt:
            self._by_agent.setdefault(row.agent, {}).setdefault(row.prompt, []).append(row)
            if group := kin_of(row.agent):
                self._by_group.setdefault(group, {}).setdefault(row.prompt, []).append(row)

    def learn(self, record: RunRecord) -> None:
        for row in answers_of(record):
            self.add(row)
        self.runs = [*self.runs[1 - MOST_RUNS :], seen_run(record)]
        self.found.clear()

    @classmethod
    def beside(cls, records: Iterable[RunRecord], earlier: Callable[[str], Sequence[SeenRun]] | None = None) -> History:
        found = cls(earlier=earlier)
        found.runs = [seen_run(one) for one in records]
        return found

    def runs_at(self, origin: str) -> list[SeenRun]:
        """Return the latest, oldest first, each once, earlier sessions included."""
        # A mock server without a known address may be another one each time; only runs of this session count
        # for it.
        own = [run for run in self.runs if run.origin == origin]
        if origin not in self._earlier:
            self._earlier[origin] = () if self._look_up is None else self._look_up(origin)
        known = {run.uid for run in own}
        earlier = (run for run in self._earlier[origin] if _is_of_one_server(run) and run.uid not in known)
        return [*earlier, *own][-MOST_RUNS:]

    def without_answers(self) -> History:
        found = History(origin=self.origin, earlier=self._look_up)
        found.runs, found._earlier, found.found = self.runs, self._earlier, self.found
        return found

    def moved(self, time_factor: float = 1.0, origin: str = "") -> History:
        # It may have had another speed.
        every = (*self, *self.shared)
        rows = (row._replace(elsewhere=True) if row.simulated else row for row in every)
        found = History(rows, time_factor=time_factor, origin=origin, earlier=self._look_up)
        found.runs, found._earlier = [run for run in self.runs if _is_of_one_server(run)], self._earlier
        return found

    def of_agent(self, step: Step, model: str | None = None) -> tuple[Past, ...]:
        """Return the answers of a declared step, for one model or all."""
        return _told(step, model, self._by_agent.get(step.name))

    def of_kin(self, step: Step, model: str | None = None) -> tuple[Past, ...]:
        """Return the answers of a declared step's group, for one model or all; see `kin_of`."""
        return _told(step, model, self._by_group.get(kin_of(step.name)))

    def of_model(self, model: str) -> tuple[Past, ...]:
        return tuple(self._by_model.get(model, ()))


def _told(step: Step, model: str | None, by_prompt: Mapping[str, Sequence[Past]] | None) -> tuple[Past, ...]:
    rows = by_prompt.get(prompt_of(step), ()) if by_prompt else ()
    return tuple(row for row in rows if model is None or row.model == model)


def _is_of_one_server(run: SeenRun) -> bool:
    """A mock server is identified only by its address."""
    return not run.simulated or "://" in run.origin


def kin_of(agent: str) -> str:
    """Return the group of an agent that was declared for each item: its name without `_` and the number."""
    name, _, number = agent.rpartition("_")
    return name if number.isdecimal() else ""


def answers_of(record: RunRecord) -> Iterator[Past]:
    """Leave out refusals, and include those that shared an answer."""
    told, simulated = Told(record), dict[bool, None]()
    facts = record.facts
    for attempt in facts.timed:
        if attempt.source in MEASURED and (row := told.past(attempt, simulated=attempt.source == "simulated")):
            simulated[row.simulated] = None
            yield row
    for attempt in facts.shared if simulated else ():
        if (row := told.past(attempt, simulated=any(simulated))) is not None:
            yield row._replace(shared=True)


def of_plan(plan: Plan, rows: Iterable[Past]) -> list[Past]:
    told = {step.name: prompt_of(step) for step in plan.agents}
    return [row for row in rows if row.prompt and row.prompt == told.get(row.agent)]


class Told:
    """Writes the answers of a run as rows, with what its agents were told."""

    def __init__(self, record: RunRecord) -> None:
        self._plan, self._run, self._told = record.plan, record.uid, dict[str, tuple[str, str]]()

    def past(self, attempt: Attempt, *, simulated: bool) -> Past | None:
        answer, api_s = attempt.answer, attempt.duration_s
        if answer is None or not attempt.is_answered or api_s is None:
            return None
        step = self._plan[attempt.agent]
        name = group_of(step)  # all of a group are told the same
        if name not in self._told:
            self._told[name] = prompt_of(step), cascade_of(step)
        prompt, cascade = self._told[name]
        return Past(
            attempt.agent,
            attempt.model,
            attempt.request.effort,
            answer.usage.total_input_tokens,
            answer.usage.output_tokens,
            attempt.ttft_s,
            api_s,
            simulated=simulated,
            calls=answer.stop_reason == TOOL_USE,
            searches=answer.usage.searches,
            prompt=prompt,
            cascade=cascade,
            rounds=0 if step.part is None else step.part.rounds,
            run=self._run,
            ended_s=attempt.ended_s or 0.0,
        )


class Exchange(NamedTuple):
    """The timing of one request, in seconds of its run; unknown tokens are 0."""

    sent_s: float
    first_s: float | None
    ended_s: float
    input_tokens: int = 0
    output_tokens: int = 0
    whole: bool = True


class SeenRun(NamedTuple):
    """The timing of a run's servers: requests by endpoint (empty if there is only one) and model."""

    uid: str
    origin: str
    simulated: bool
    exchanges: Mapping[tuple[str, str], list[Exchange]]

    def at(self, place_of: Callable[[str, str], tuple[str, str]]) -> dict[tuple[str, str], list[Exchange]]:
        """Return the requests by the place of their endpoint and model."""
        found: dict[tuple[str, str], list[Exchange]] = {}
        for (endpoint, model), exchanges in self.exchanges.items():
            found.setdefault(place_of(endpoint, model), []).extend(exchanges)
        return found


def seen_run(record: RunRecord) -> SeenRun:
    found: dict[tuple[str, str], list[Exchange]] = {}
    for attempt, exchange in exchanges_of(record):
        found.setdefault((attempt.endpoint, attempt.model), []).append(exchange)
    return SeenRun(record.uid, record.origin, record.simulated, found)


def exchanges_of(record: RunRecord) -> Iterator[tuple[Attempt, Exchange]]:
    for attempt in record.attempts:
        if (exchange := exchange_of(attempt)) is not None:
            yield attempt, exchange


def exchange_of(attempt: Attempt) -> Exchange | None:
    """Return the timing of an attempt; `None` for refusals, answers bought earlier, and batches."""
    ended_s, answer = attempt.ended_s, attempt.answer
    if ended_s is None or attempt.is_served or (answer is not None and not attempt.is_timed):
        return None
    first_s = attempt.first_token_s
    if answer is None and first_s is None and attempt.kind not in {"cancelled", "Late"}:
        return None  # it was turned away
    usage = attempt.usage
    given = 0 if usage is None else usage.total_input_tokens or 0
    made = 0 if usage is None else usage.output_tokens or 0
    return Exchange(attempt.started_s, first_s, ended_s, given, made, whole=attempt.is_answered)
