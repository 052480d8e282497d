"""What several runs of a script share."""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import cached_property
from typing import TYPE_CHECKING, Self, cast

from agent_magic.engine.admission.pool import Pool
from agent_magic.engine.pacing.limits import Limits
from agent_magic.engine.pacing.pacer import Pacer
from agent_magic.errors import DeclarationError, shown_value
from agent_magic.providers.anthropic.client import as_provider
from agent_magic.record.history import History

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anthropic import AsyncAnthropic

    from agent_magic.api.ledger import Ledger
    from agent_magic.providers.base import Provider
    from agent_magic.record.prices import TokenPrice


class Session:
    """What several runs share: the provider, its rate limits, the slots, the ledger, how earlier answers went.

    Without one, each `plan.run` learns the rate limits anew, and two runs at once may have twice their `concurrency`
    under way. With one, they keep one set of limits, share as many slots as the larger concurrency, and start the
    agents first that took longest before.

        async with am.Session(ledger=am.Ledger("runs.sqlite3")) as session:
            first = await plan.run(session=session)
            second = await plan.run(am.Policy(2), session=session)

    As a context manager it keeps connections open between runs.

    Args:
        client: Who answers, as in `Plan.run`.
        ledger: Where answers are kept and reused from; none by default.
        prices: Your own prices by model, counted before the list.
        limits: Rate limits that you know, by model or model class. Others are learned.

    Attributes:
        client: Who answers.
        ledger: Where answers are kept; `None` keeps none.
        prices: Your own prices by model.
        pacer: Keeps the rate limits, for all runs together.
        pool: The slots that all runs share.

    Raises:
        DeclarationError: `limits` is not a mapping of models to `Limits`.
    """

    def __init__(
        self,
        *,
        client: Provider | AsyncAnthropic | None = None,
        ledger: Ledger | None = None,
        prices: Mapping[str, TokenPrice] | None = None,
        limits: Mapping[str, Limits] | None = None,
    ) -> None:
        self.client, self.ledger, self.prices = as_provider(client), ledger, prices
        self.pacer, self.pool = Pacer(checked_limits(limits)), Pool()
        self._open = AsyncExitStack()

    def __repr__(self) -> str:
        return f"Session({self.client!r})"

    @cached_property
    def history(self) -> History:
        """How earlier answers went, those of the ledger first."""
        return History(self.ledger.history() if self.ledger is not None else ())

    async def __aenter__(self) -> Self:
        """Open connections, for all runs until the end."""
        await self._open.enter_async_context(self.client.open())
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Close them. The ledger stays open: it is yours."""
        await self._open.aclose()


def checked_limits(limits: object) -> dict[str, Limits]:
    """Return limits by model.

    Raises:
        DeclarationError: They are something else.
    """
    given = cast("dict[str, object]", limits) if isinstance(limits, dict) else {"": limits} if limits else {}
    if not all(isinstance(one, Limits) for one in given.values()):
        hint = "Give a dict such as {'claude-haiku-5-5': Limits(requests=50)}."
        raise DeclarationError(
            f"limits must map models to Limits, got {shown_value(cast('object', limits))}.", hint=hint
        )
    return cast("dict[str, Limits]", given)
