"""Facts of requests, defined once for all that count or sum them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

from agent_magic.record.answer import PAID_BEFORE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent_magic.record.answer import Source, Usage
    from agent_magic.record.attempt import Attempt
    from agent_magic.record.request import Request


class Asker(Protocol):
    """The result of a step."""

    @property
    def attempts(self) -> Sequence[Attempt]: ...


@dataclass(frozen=True, slots=True)
class Facts:
    """The requests of a step, of several, or of a run, served answers included."""

    # Computed on access, since an active run grows.

    attempts: Sequence[Attempt]

    @classmethod
    def of(cls, results: Iterable[Asker]) -> Self:
        return cls([attempt for result in results for attempt in result.attempts])

    @property
    def sent(self) -> list[Attempt]:
        """Those that went to a provider, not to the ledger or an identical step."""
        return [one for one in self.attempts if not one.is_served]

    @property
    def answered(self) -> list[Attempt]:
        return [one for one in self.sent if one.is_answered]

    @property
    def batched(self) -> list[Attempt]:
        return [one for one in self.sent if one.answer is not None and one.answer.batch]

    @property
    def timed(self) -> list[Attempt]:
        """Those with seconds of a model's work."""
        return [one for one in self.attempts if one.is_timed]

    @property
    def paid_before(self) -> list[Attempt]:
        return [one for one in self.attempts if one.price == PAID_BEFORE]

    @property
    def shared(self) -> list[Attempt]:
        return [one for one in self.attempts if one.is_shared]

    @property
    def running(self) -> list[Attempt]:
        return [one for one in self.attempts if one.ended is None]

    @property
    def ended(self) -> list[Attempt]:
        return [one for one in self.attempts if one.ended is not None]

    @property
    def succeeded(self) -> list[Attempt]:
        """Served ones included."""
        return [one for one in self.attempts if one.status == "succeeded"]

    @property
    def failed(self) -> list[Attempt]:
        """Not those that were cancelled, or passed to a dearer model."""
        return [one for one in self.attempts if one.status == "failed"]

    @property
    def rate_limited(self) -> list[Attempt]:
        return [one for one in self.attempts if one.kind == "RateLimited"]

    @property
    def unpriced(self) -> list[Attempt]:
        return [one for one in self.ended if one.cost_usd is None]

    @property
    def estimated(self) -> list[Attempt]:
        return [one for one in self.sent if one.usage is not None and one.usage.estimated]

    @property
    def requests(self) -> list[Request]:
        return [one.request for one in self.attempts]

    @property
    def usages(self) -> list[Usage]:
        return [one.usage for one in self.attempts if one.usage is not None]

    @property
    def costs_usd(self) -> list[float | None]:
        return [one.cost_usd for one in self.attempts]

    @property
    def api_s(self) -> float:
        return sum(one.api_s or 0.0 for one in self.attempts)

    @property
    def backoff_s(self) -> float:
        return sum(one.backoff_s for one in self.attempts)

    @property
    def queued_s(self) -> float:
        return sum(one.queued_s for one in self.attempts)

    @property
    def spans(self) -> list[tuple[float, float]]:
        return [(one.started_s, one.ended_s) for one in self.sent if one.ended_s is not None]

    @property
    def models(self) -> set[str]:
        return {one.model for one in self.attempts}

    @property
    def reasons(self) -> set[str]:
        return {one.held_by for one in self.attempts}

    @property
    def kinds(self) -> set[str | None]:
        return {one.kind for one in self.attempts}

    @property
    def sources(self) -> set[Source | None]:
        return {one.source for one in self.attempts}


def overlap(spans: Iterable[tuple[float, float]]) -> tuple[int, float]:
    """Return the maximum overlap of spans, and the seconds covered by at least one."""
    edges = sorted([(at, step) for start, end in spans for at, step in ((start, 1), (end, -1))])
    peak, now, covered, before = 0, 0, 0.0, 0.0
    for at, step in edges:
        if now:
            covered += at - before
        now, before = now + step, at
        peak = max(peak, now)
    return peak, covered
