"""Facts of requests: which were sent, answered, refused or failed, defined once for all that count or sum them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent_magic.record.answer import Source
    from agent_magic.record.attempt import Attempt
    from agent_magic.record.results import AgentResult


@dataclass(frozen=True, slots=True)
class Facts:
    """The requests of a step, of several, or of a run, and the parts of them that measures are about.

    It is computed when asked, since a run that is under way grows.

    Attributes:
        attempts: The requests, served answers included.
    """

    attempts: Sequence[Attempt]

    @classmethod
    def of(cls, results: Iterable[AgentResult]) -> Self:
        """Return the facts of the requests of several steps, step by step."""
        return cls([attempt for result in results for attempt in result.attempts])

    @property
    def sent(self) -> list[Attempt]:
        """Those that went to a provider: no answer from the ledger, and none shared by an identical step."""
        return [one for one in self.attempts if not one.is_served]

    @property
    def answered(self) -> list[Attempt]:
        """Those that were sent and answered whole."""
        return [one for one in self.sent if one.is_answered]

    @property
    def batched(self) -> list[Attempt]:
        """Those that were sent and answered by a batch."""
        return [one for one in self.sent if one.answer is not None and one.answer.batch]

    @property
    def ended(self) -> list[Attempt]:
        """Those that do not run any more, served ones included."""
        return [one for one in self.attempts if one.ended is not None]

    @property
    def succeeded(self) -> list[Attempt]:
        """Those whose answer was accepted, served ones included."""
        return [one for one in self.attempts if one.status == "succeeded"]

    @property
    def failed(self) -> list[Attempt]:
        """Those that failed; not those that were cancelled, or passed to a dearer model."""
        return [one for one in self.attempts if one.status == "failed"]

    @property
    def rate_limited(self) -> list[Attempt]:
        """Those that a rate limit refused."""
        return [one for one in self.attempts if one.kind == "RateLimited"]

    @property
    def unpriced(self) -> list[Attempt]:
        """Those that ended with unknown dollars."""
        return [one for one in self.ended if one.price is None or one.price.cost_usd is None]

    @property
    def estimated(self) -> list[Attempt]:
        """Those that were sent and whose tokens are estimated, not reported."""
        return [one for one in self.sent if one.usage is not None and one.usage.estimated]

    @property
    def sources(self) -> set[Source | None]:
        """Where their answers came from; `None` among them if one has no answer."""
        return {one.source for one in self.attempts}
