"""What earlier runs took: what is expected of the next one stands on it.

Only complete answers count. Those that the stand-in API made up are marked, and never mixed with real ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agent_magic.record.answer import PAID_BEFORE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agent_magic.record.results import RunRecord

MEASURED = frozenset({"live", "simulated"})
"""The sources whose seconds were measured. An answer from the ledger or a cassette takes none."""


class Past(NamedTuple):
    """One complete answer.

    Attributes:
        agent: The name of the agent it was for.
        model: The model asked.
        effort: The effort asked, or `None`.
        input_tokens: All input, cached or not; `None` where unknown.
        output_tokens: Output; `None` where unknown.
        ttft_s: Seconds from the request to the first token; `None` where unknown.
        api_s: Seconds from the request to the end of the answer.
        simulated: Whether the stand-in API made it up.
    """

    agent: str
    model: str
    effort: str | None
    input_tokens: int | None
    output_tokens: int | None
    ttft_s: float | None
    api_s: float
    simulated: bool


class History:
    """The complete answers of earlier runs, oldest first.

    Args:
        rows: What is known already.
    """

    def __init__(self, rows: Iterable[Past] = ()) -> None:
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
        """The latest answer; `None` where there is none."""
        return self._rows[-1] if self._rows else None

    def add(self, row: Past) -> None:
        """Take an answer in."""
        self._rows.append(row)
        self._by_agent.setdefault(row.agent, []).append(row)
        self._by_model.setdefault(row.model, []).append(row)
        if group := kin_of(row.agent):
            self._by_group.setdefault(group, []).append(row)

    def learn(self, record: RunRecord) -> None:
        """Take in the complete answers of a run that were measured in it."""
        for row in answers_of(record):
            self.add(row)

    def of_agent(self, agent: str, model: str | None = None) -> tuple[Past, ...]:
        """Return the answers an agent of this name had, of one model or of all."""
        rows = self._by_agent.get(agent, ())
        return tuple(row for row in rows if model is None or row.model == model)

    def of_kin(self, agent: str, model: str | None = None) -> tuple[Past, ...]:
        """Return the answers of this agent's group, of one model or of all: of those named alike but for a number."""
        rows = self._by_group.get(kin_of(agent), ())
        return tuple(row for row in rows if model is None or row.model == model)

    def of_model(self, model: str) -> tuple[Past, ...]:
        """Return the answers of a model, whoever asked."""
        return tuple(self._by_model.get(model, ()))


def kin_of(agent: str) -> str:
    """Return what stands before `_` and a number at the end of a name: agents declared together are called so."""
    name, _, number = agent.rpartition("_")
    return name if number.isdecimal() else ""


def answers_of(record: RunRecord) -> Iterator[Past]:
    """Yield the complete answers that were measured in a run, refusals left out."""
    for attempt in record.attempts:
        if attempt.answer is None or attempt.error is not None or attempt.source not in MEASURED:
            continue
        if attempt.price == PAID_BEFORE:  # taken over from an earlier run, which measured it
            continue
        usage, api_s = attempt.answer.usage, attempt.api_s
        if api_s is not None:
            yield Past(
                attempt.agent,
                attempt.model,
                attempt.request.effort,
                usage.total_input_tokens,
                usage.output_tokens,
                attempt.ttft_s,
                api_s,
                simulated=attempt.source == "simulated",
            )
