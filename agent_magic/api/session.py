"""What several runs share: one object for scripts and for the notebook."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, cast

from agent_magic.declare.agent import DEFAULT_MODEL
from agent_magic.declare.validation import must_be
from agent_magic.engine.admission.pool import Pool
from agent_magic.engine.alerts import Alerts
from agent_magic.engine.pacing.limits import Limits
from agent_magic.engine.pacing.pacer import Pacer
from agent_magic.engine.pacing.routing import Router
from agent_magic.errors import AgentMagicError, DeclarationError, PlanError, shown_value
from agent_magic.live.collecting import cancel_batches, collect_batches
from agent_magic.live.sharing import Sharing
from agent_magic.measure.scores import GradeBook
from agent_magic.measure.telemetry import Telemetry
from agent_magic.providers.anthropic.client import as_provider
from agent_magic.record.history import History
from agent_magic.record.prices import Prices, near_model

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from anthropic import AsyncAnthropic

    from agent_magic.live.batching import Collected
    from agent_magic.providers.base import Provider
    from agent_magic.record.ledger.batches import BatchBook
    from agent_magic.record.ledger.grades import Graded
    from agent_magic.record.ledger.store import SqliteLedger
    from agent_magic.record.prices import TokenPrice
    from agent_magic.record.results import RunRecord

ACCEPTED = 200
"""What an earlier session was answered, so its key is known to be accepted."""
LATELY: Final = timedelta(minutes=1)
"""For so long a request counts against rate limits."""
Tell: TypeAlias = Callable[[str], None]


class Session:
    """What several runs share: the provider, its rate limits, the slots, the ledger, how earlier answers went.

    Without one, each `plan.run` learns the rate limits anew, and two runs at once may have twice their `concurrency`
    under way. With one, they keep one set of limits, share as many slots as the larger concurrency, and start the
    agents first that took longest before.

        async with am.Session(ledger=am.Ledger("runs.sqlite3")) as session:
            first = await plan.run(session=session)
            second = await plan.run(am.Policy(2), session=session)

    As a context manager it keeps connections open between runs. The notebook's own runs share one too.

    Args:
        client: Who answers, as in `Plan.run`.
        ledger: Where answers are kept and reused from; none by default. A function is asked whenever it is needed.
        prices: Your own prices by model, counted before the list.
        limits: Rate limits that you know, by model or model class. Others are learned.
        tell: Called with the name of each model without a price; a Python warning by default.
        alerts: What runs are watched for, such as `am.Alerts("p95 > 30")`; nothing by default.
        telemetry: Emits runs to OpenTelemetry: `am.Telemetry()`; off by default.

    Attributes:
        client: Who answers.
        prices: Your own prices by model.
        pacer: Keeps the rate limits, for all runs together.
        grades: What answers were found to be worth, whatever the run.
        alerts: What the runs that begin from now on are watched for.
        telemetry: Emits runs that are over to OpenTelemetry; `None` emits nothing.
        time_factor: Of a mock server, how long it takes of what a model usually does.
        recent: The runs that ended in the minute before the last one did, and that one.

    Raises:
        DeclarationError: `limits` is not a mapping of models to `Limits`, or `ledger` is not a ledger.
    """

    def __init__(
        self,
        *,
        client: Provider | AsyncAnthropic | None = None,
        ledger: SqliteLedger | Callable[[], SqliteLedger | None] | None = None,
        prices: Mapping[str, TokenPrice] | None = None,
        limits: Mapping[str, Limits] | None = None,
        tell: Tell | None = None,
        alerts: Alerts | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        if not (ledger is None or callable(ledger) or hasattr(ledger, "begin")):
            raise DeclarationError(f"ledger={shown_value(ledger)} is not a Ledger.", hint="Give Ledger('FILE').")
        if not (alerts is None or isinstance(alerts, Alerts)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise must_be("alerts", "am.Alerts(...)", alerts)
        if not (telemetry is None or isinstance(telemetry, Telemetry)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise must_be("telemetry", "am.Telemetry(...)", telemetry)
        self.client, self._ledger = as_provider(client), ledger
        self.alerts, self.telemetry = alerts, telemetry
        self.prices: Mapping[str, TokenPrice] = {} if prices is None else prices
        self.pacer = _pacer_of(self.client, checked_limits(limits, self.client))
        self.grades = GradeBook(None if ledger is None else self._keep_grades)
        self._tell = tell
        self._account: str | None = None
        self.time_factor = 1.0
        self._shared: tuple[object, Sharing | None] | None = None
        self.recent: list[RunRecord] = []

    def __repr__(self) -> str:
        return f"Session({self.client!r})"

    @property
    def ledger(self) -> SqliteLedger | None:
        """Where answers are kept; `None` keeps none."""
        return self._ledger() if callable(self._ledger) else self._ledger

    @cached_property
    def pool(self) -> Pool:
        """The slots that all runs share."""
        return Pool()

    @cached_property
    def _open(self) -> AsyncExitStack:
        return AsyncExitStack()

    @cached_property
    def history(self) -> History:
        """How earlier answers went, those of the ledger first."""
        ledger = self.ledger
        return History(ledger.history() if ledger is not None else ()).moved(self.time_factor)

    @property
    def batch_times_s(self) -> list[float]:
        """How long the latest batches of its provider took, in seconds, as the ledger has them."""
        ledger = self.ledger
        return [] if ledger is None else ledger.batches.times_s(self.client.endpoint)

    def price_book(self, tell: Tell | None = None) -> Prices:
        """Return what tokens cost: your own prices, then the list of whoever answers.

        Args:
            tell: In place of the session's: called with the name of each model without a price.
        """
        return Prices(self.prices, tell or self._tell, seller=self.client.price_list)

    def wrong_models(self, models: Iterable[str | None]) -> list[str]:
        """Say which names of models are none of whoever answers, with what may have been meant.

        Of a server of your own nobody knows, and a name with a price of your own counts as known.

        Args:
            models: The names; `None` is left out.
        """
        if not (lacking := list(filter(self.client.lacks_model, filter(None, models)))):
            return []
        prices = self.price_book()
        wrong = [one for one in dict.fromkeys(lacking) if prices.tariff_of(one)[1] != "given"]
        return [f"{self.client.endpoint} has no model {one!r}.{near_model(one)}" for one in wrong]

    def check_models(self, models: Iterable[str | None]) -> None:
        """Raise `DeclarationError` for the first of `wrong_models`.

        Args:
            models: The names, as there.
        """
        for said in self.wrong_models(models):
            raise DeclarationError(said, hint="If it is new, give it a price: %agents prices, or prices=.")

    def connect(self, client: Provider | AsyncAnthropic | None, *, time_factor: float = 1.0) -> None:
        """Connect to another provider, from the next run on. Its limits are learned anew, and a mock server's speed.

        Args:
            client: Who answers, as in `Plan.run`.
            time_factor: As the attribute: 0.1 for a mock server with `latency="x0.1"`.
        """
        self.client, self._account, self.recent = as_provider(client), None, []
        self.pacer, self.time_factor = _pacer_of(self.client), time_factor
        if "history" in vars(self):
            self.history = self.history.moved(time_factor)

    def set_limits(self, model: str, limits: Limits) -> None:
        """Set the rate limits of a model and its class. What was learned of other limits is learned anew.

        Args:
            model: The model, or its class.
            limits: What you know of them.
        """
        given = {**self.pacer.given, self.client.limit_class(model): limits}
        self.pacer, self._account = _pacer_of(self.client, given), None

    async def cancel_batches(self, ids: Iterable[str] = ()) -> list[str]:
        """Cancel batches of the ledger, such as `ledger.batches.open()` lists. Returns which.

        What was answered by then is billed; `collect_batches` gets it.

        Args:
            ids: Their names; none means all that are open.

        Raises:
            CallError: The provider refused.
            PlanError: There is no ledger, the provider has no batches, or one is not open.
        """
        return await cancel_batches(self.client, self._batch_book(), ids)

    async def collect_batches(self, ids: Iterable[str] = ()) -> list[Collected]:
        """Store the answers of batches that have ended, also where no run asks for them any more.

        The next run that asks the same reuses them. Nothing is sent, and those that have not ended are not waited for.

        Args:
            ids: Their names; none means all that are open.

        Raises:
            CallError: The provider cannot be asked, or refused.
            PlanError: There is no ledger, the provider has no batches, or one is not open.
        """
        return await collect_batches(self.client, self._batch_book(), ids)

    def _batch_book(self) -> BatchBook:
        if self.ledger is None:
            raise PlanError("Without a ledger no batch is known. Give ledger=am.Ledger('FILE').")
        return self.ledger.batches

    def set_price(self, model: str, price: TokenPrice) -> None:
        """Set your own price of a model, for the runs that begin from now on.

        Args:
            model: The model.
            price: What its tokens cost.
        """
        self.prices = {**self.prices, model: price}

    def settle(self, record: RunRecord) -> None:
        """Learn from a run that is over, or was cut.

        Args:
            record: The run.
        """
        self.history.learn(record)
        since = datetime.now(UTC) - LATELY
        self.recent = [one for one in self.recent if one.began_at + timedelta(seconds=one.ended_s or 0.0) > since]
        self.recent.append(record)
        if self.telemetry is not None and record.events:
            self.telemetry.emit(record)
        self.keep_limits()

    def _keep_grades(self, rows: Sequence[Graded]) -> None:
        if self.ledger is not None:
            self.ledger.grades.keep(rows)

    def graded(self, job: str) -> list[Graded]:
        """Return what answers to a job were found to be worth, in earlier sessions too.

        Args:
            job: The fingerprint of what was asked; see `agent_magic.declare.models.job_of`.
        """
        ledger, where = self.ledger, self.client.endpoint
        return self.grades.of_job(job, where) if ledger is None else ledger.grades.of(job, where)

    def recall_limits(self) -> None:
        """Go on from the rate limits that earlier sessions have learned with this key, once for each key.

        So the first run of a returning user has no trial request and is not refused. The ledger keeps a hash of the
        account and what its limits are, never a key. The next response corrects what has changed since.
        """
        client = self.client
        account, ledger = client.account, self.ledger
        if account == self._account or account is None:
            return
        if self._account is not None:  # another key has other limits
            self.pacer = _pacer_of(client, self.pacer.given)
        self._account = account
        kept = {} if ledger is None else ledger.remembered_limits(account, client.endpoint)
        for name, one in kept.items():
            self.pacer.remember({name: one.limits}, time.monotonic(), one.age_s)
        if kept and client.credentials is not None:
            client.credentials.replied(ACCEPTED)

    def keep_limits(self) -> None:
        """Store the rate limits that were learned, for later sessions."""
        ledger = self.ledger
        if ledger is not None and self._account is not None and (memory := self.pacer.memory(time.monotonic())):
            ledger.remember_limits(self._account, self.client.endpoint, memory)

    def sharing(self) -> Sharing | None:
        """Return what divides the rate limits with other kernels; `None` where no file of a ledger connects them."""
        ledger, account = self.ledger, self.client.account
        if ledger is None or account is None:
            return None
        known = ledger, account, self.pacer
        if self._shared is None or self._shared[0] != known:
            rows = ledger.presence(account, self.client.endpoint)
            self._shared = known, None if rows is None else Sharing(self.pacer, rows)
        return self._shared[1]

    async def __aenter__(self) -> Self:
        """Open connections, for all runs until the end."""
        check_loop()
        await self._open.enter_async_context(self.client.open())
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Close them. The ledger stays open: it is yours."""
        await self._open.aclose()


def _pacer_of(client: Provider, limits: Mapping[str, Limits] | None = None) -> Pacer:
    return Pacer(limits) if client.endpoints is None else Router(client.endpoints, limits)


def check_loop() -> None:
    """Raise unless asyncio runs here. Below trio, in a kernel with `%autoawait trio`, a loop of asyncio runs too."""
    if not _is_running(asyncio.get_running_loop) or ("trio" in sys.modules and _is_running(_trio_task)):
        raise AgentMagicError(
            "A plan runs on asyncio, and this is not an asyncio loop. Under trio run it in a thread: "
            "await trio.to_thread.run_sync(lambda: asyncio.run(plan.run()))."
        )


def _trio_task() -> object:
    trio: Any = sys.modules["trio"]
    return trio.lowlevel.current_task()


def _is_running(ask: Callable[[], object]) -> bool:
    try:
        ask()
    except RuntimeError:
        return False
    return True


def session_of(session: Session | None, **given: object) -> Session:
    """Return the session that a call names, or one of its own from `client`, `ledger`, `prices` and `limits`.

    Raises:
        PlanError: Both are given.
    """
    if session is None:
        return Session(**given)  # pyright: ignore[reportArgumentType] - the arguments of the calls are typed
    if any(one is not None for one in given.values()):
        raise PlanError(f"Give either session= or {', '.join(f'{name}=' for name in given)}: a session has its own.")
    if not isinstance(session, Session):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"session={shown_value(session)} is not a Session. Give am.Session().")
    return session


def checked_limits(limits: object, provider: Provider) -> dict[str, Limits]:
    """Return limits by model class, as the provider names them.

    Raises:
        DeclarationError: They are something else.
    """
    if limits is None:
        return {}
    given = cast("dict[str, object]", limits) if isinstance(limits, dict) else {"": limits} if limits else {}
    if not all(isinstance(one, Limits) for one in given.values()):
        hint = f"Give a dict such as {{{DEFAULT_MODEL!r}: Limits(requests=50)}}."
        raise DeclarationError(
            f"limits must map models to Limits, got {shown_value(cast('object', limits))}.", hint=hint
        )
    return {provider.limit_class(model): one for model, one in cast("dict[str, Limits]", given).items()}
