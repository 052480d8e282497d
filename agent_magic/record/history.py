"""What earlier answers took, on which expectations of the next run are based.

Only complete answers count. Simulated ones are marked, and never mixed with real ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agent_magic.declare.models import prompt_of
from agent_magic.record.answer import PAID_BEFORE, TOOL_USE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agent_magic.declare.plan import Plan
    from agent_magic.record.attempt import Attempt
    from agent_magic.record.results import RunRecord

MEASURED = frozenset({"live", "simulated"})
"""The sources whose seconds were measured. An answer from the ledger or a cassette takes none."""


class Past(NamedTuple):
    """One complete answer.

    Attributes:
        agent: The name of the agent it was for.
        model: The model asked.
        effort: The effort asked, or `None`.
        input_tokens: All input, cached or not; `None` if unknown.
        output_tokens: Output; `None` if unknown.
        ttft_s: Seconds from the request to the first token; `None` if unknown.
        api_s: Seconds from the request to the end of the answer.
        simulated: Whether it is simulated.
        calls: Whether it asks for calls of tools, so that another turn followed.
        elsewhere: Whether it is simulated, by another mock server than the present one: its length counts, its seconds
            are of that one's speed.
        searches: Searches of the web that the provider made for it; `None` if unknown.
        prompt: The fingerprint of what the agent was told, see `agent_magic.declare.models.prompt_of`; empty where that
            is not known, as of answers of an earlier kernel.
        rounds: The most rounds that its loop had; 0 where it is in none, or that is not known.
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

    @property
    def bare(self) -> Past:
        """What is known of it in every kernel, by which two rows of one answer are alike."""
        return self._replace(elsewhere=False, searches=None, prompt="", rounds=0)

    def is_for(self, prompt: str) -> bool:
        """Return whether it answers this prompt, or may do so."""
        return self.prompt in {"", prompt}


class History:
    """The complete answers of earlier runs, oldest first.

    Args:
        rows: What is known already.
        time_factor: How long the mock server that is connected takes, of what a model usually does; 1 for any other.

    Attributes:
        time_factor: The same.
    """

    def __init__(self, rows: Iterable[Past] = (), *, time_factor: float = 1.0) -> None:
        self.time_factor = time_factor
        self._rows: list[Past] = []
        self._by_agent: dict[str, list[Past]] = {}
        self._by_group: dict[str, list[Past]] = {}
        self._by_model: dict[str, list[Past]] = {}
        for row in rows:
            self.add(row)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Past]:
        return iter(self._rows)

    @property
    def latest(self) -> Past | None:
        """The latest answer; `None` if there is none."""
        return self._rows[-1] if self._rows else None

    def add(self, row: Past) -> None:
        """Add an answer."""
        self._rows.append(row)
        self._by_agent.setdefault(row.agent, []).append(row)
        self._by_model.setdefault(row.model, []).append(row)
        if group := kin_of(row.agent):
            self._by_group.setdefault(group, []).append(row)

    def learn(self, record: RunRecord) -> None:
        """Add the complete answers that were measured in a run."""
        for row in answers_of(record):
            self.add(row)

    def moved(self, time_factor: float = 1.0) -> History:
        """Return the same answers, those that are simulated as another mock server's: it may have had another speed.

        Args:
            time_factor: That of the mock server that is connected now.
        """
        rows = (row._replace(elsewhere=True) if row.simulated else row for row in self)
        return History(rows, time_factor=time_factor)

    def of_agent(self, agent: str, model: str | None = None, prompt: str = "") -> tuple[Past, ...]:
        """Return the answers that agents of this name had, from one model or from all, to one prompt or to all."""
        rows = [row for row in self._by_agent.get(agent, ()) if not prompt or row.is_for(prompt)]
        return tuple(row for row in rows if model is None or row.model == model)

    def of_kin(self, agent: str, model: str | None = None) -> tuple[Past, ...]:
        """Return the answers of this agent's group, from one model or from all; see `kin_of`."""
        rows = self._by_group.get(kin_of(agent), ())
        return tuple(row for row in rows if model is None or row.model == model)

    def of_model(self, model: str) -> tuple[Past, ...]:
        """Return the answers from a model, to any agent."""
        return tuple(self._by_model.get(model, ()))


def kin_of(agent: str) -> str:
    """Return the group of an agent that was declared for each item: its name without `_` and the number."""
    name, _, number = agent.rpartition("_")
    return name if number.isdecimal() else ""


def answers_of(record: RunRecord) -> Iterator[Past]:
    """Yield the complete answers that were measured in a run, without refusals."""
    told = Told(record.plan)
    for attempt in record.attempts:
        if attempt.answer is None or attempt.source not in MEASURED:
            continue
        if attempt.price == PAID_BEFORE or attempt.answer.batch:  # an earlier run measured it; a batch measures none
            continue
        if (row := told.past(attempt, simulated=attempt.source == "simulated")) is not None:
            yield row


class Told:
    """Writes the answers of a run as rows, with what its agents were told.

    Args:
        plan: Its plan.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan, self._prompts = plan, dict[str, str]()

    def past(self, attempt: Attempt, *, simulated: bool) -> Past | None:
        """Return the complete answer of an attempt as a row; `None` where there is none, or nobody knows its seconds.

        Args:
            attempt: The attempt.
            simulated: Whether its answer is simulated.
        """
        answer, api_s = attempt.answer, attempt.api_s
        if answer is None or not attempt.is_answered or api_s is None:
            return None
        step = self._plan[attempt.agent]
        name = step.name if step.part is None else step.part.group  # all of a group are told the same
        if name not in self._prompts:
            self._prompts[name] = prompt_of(step)
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
            prompt=self._prompts[name],
            rounds=0 if step.part is None else step.part.rounds,
        )
