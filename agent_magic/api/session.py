"""What several runs share: one object for scripts and for the notebook."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeAlias, cast

from agent_magic.declare.agent import DEFAULT_MODEL
from agent_magic.declare.validation import must_be
from agent_magic.engine.admission.pool import Pool
from agent_magic.engine.alerts import Alerts
from agent_magic.engine.pacing.limits import Limits
from agent_magic.engine.pacing.pacer import Pacer, Router
from agent_magic.errors import AgentMagicError, DeclarationError, PlanError, shown_value
from agent_magic.live.batching import cancel_batches, collect_batches
from agent_magic.live.sharing import Sharing
from agent_magic.measure.scores import GradeBook
from agent_magic.measure.telemetry import Telemetry
from agent_magic.providers.anthropic.client import as_provider
from agent_magic.providers.capabilities import check_plan, no_cheaper_model, unsent_schema
from agent_magic.record.history import History
from agent_magic.record.prices import ModelPrice, Prices, TokenPrice, checked_prices, near_model

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from anthropic import AsyncAnthropic

    from agent_magic.api.applying import Applied
    from agent_magic.declare.plan import Plan
    from agent_magic.engine.policy import Policy
    from agent_magic.live.batching import Collected
    from agent_magic.providers.base import Provider
    from agent_magic.record.ledger.batches import BatchBook
    from agent_magic.record.ledger.reviews import Graded
    from agent_magic.record.ledger.store import SqliteLedger
    from agent_magic.record.results import RunRecord

LOG = logging.getLogger("agent_magic")
ACCEPTED = 200
"""The response of an earlier session, so its key is known to be accepted."""
LATELY: Final = timedelta(minutes=1)
"""Time for which a request counts against rate limits."""
Tell: TypeAlias = Callable[[str], None]
IsApplied: TypeAlias = "Callable[[Applied[Any]], bool]"


class Session:
    """State shared by several runs: provider, rate limits, slots, ledger, history.

    Without one, each `plan.run` learns the rate limits again, and two concurrent runs may have twice their
    `concurrency`. With one, they share one set of limits and as many slots as the larger concurrency, and start the
    longest agents first.

        async with am.Session(ledger=am.Ledger("runs.sqlite3")) as session:
            first = await plan.run(session=session)
            second = await plan.run(am.Policy(2), session=session)

    As a context manager it keeps connections open between runs. The notebook's own runs share one too.

    Args:
        client: The provider, as in `Plan.run`.
        ledger: The ledger; default none. A function is called on each use.
        prices: Your own prices by model, which win over the list.
        limits: Known rate limits, by model or model class. Others are learned.
        tell: Called with immediate messages: the name of each model without a price, by default a Python warning, and
            repeated calls of a tool or task, by default logged.
        alerts: Alerts of runs, such as `am.Alerts("p95 > 30")`; default none.
        telemetry: Emits runs to OpenTelemetry: `am.Telemetry()`; default off.

    Attributes:
        client: The provider.
        prices: Your own prices by model.
        pacer: Keeps the rate limits of all runs together.
        grades: Grades of answers, from any run.
        alerts: Alerts of future runs.
        telemetry: Emits finished runs to OpenTelemetry; `None` emits nothing.
        time_factor: Speed of a mock server relative to a model.
        is_applied: Returns True if the declarations have a change; set by a notebook, `None` in a script.
        recent: The last run, and those that ended in the minute before it.
        listeners: Called before each run if the user chose no provider; a notebook that is connected elsewhere then
            tells the user which provider answers.

    Raises:
        DeclarationError: `limits` is not a mapping of models to `Limits`, or `ledger` is not a ledger.
    """

    listeners: ClassVar[list[Callable[[Session], None]]] = []

    def __init__(
        self,
        *,
        client: Provider | AsyncAnthropic | None = None,
        ledger: SqliteLedger | Callable[[], SqliteLedger | None] | None = None,
        prices: Mapping[str, ModelPrice] | None = None,
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
        self.client, self._ledger, self._is_chosen = as_provider(client), ledger, client is not None
        self.alerts, self.telemetry = alerts, telemetry
        self.prices: Mapping[str, ModelPrice] = {} if prices is None else prices
        self.pacer = _pacer_of(self.client, checked_limits(limits, self.client))
        self.grades = GradeBook(None if ledger is None else self._keep_grades)
        self._tell = tell
        self._account: str | None = None
        self.time_factor = 1.0
        self._shared: tuple[object, Sharing | None] | None = None
        self.is_applied: IsApplied | None = None
        self.recent: list[RunRecord] = []
        self._said: set[str] = set()

    def __repr__(self) -> str:
        return f"Session({self.client!r})"

    def say(self, text: str) -> None:
        """Show an immediate message, by `tell` or in the log.

        Args:
            text: The message.
        """
        (self._tell or LOG.warning)(text)

    def say_whom(self) -> None:
        """Call the listeners, which tell the user who answers, if the user chose none."""
        for tell in self.listeners if not self._is_chosen else ():
            tell(self)

    @property
    def ledger(self) -> SqliteLedger | None:
        """The ledger, if there is one."""
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
        rows, earlier = ((), None) if ledger is None else (ledger.history(), ledger.seen_runs)
        return History(rows, earlier=earlier).moved(self.time_factor, self.client.endpoint)

    @property
    def batch_times_s(self) -> list[float]:
        """How long the latest batches of its provider took, in seconds, as the ledger has them."""
        ledger = self.ledger
        return [] if ledger is None else ledger.batches.times_s(self.client.endpoint)

    def price_book(self, tell: Tell | None = None) -> Prices:
        """Return the prices: your own, the provider's, then its list.

        Args:
            tell: Replaces the session's: called with the name of each model without a price.
        """
        client = self.client
        every = TokenPrice(0.0, 0.0) if client.is_free else None
        own = {**client.prices, **checked_prices(self.prices)}
        return Prices(own, tell or self._tell, seller=client.price_list, every=every)

    def wrong_models(self, models: Iterable[str | None]) -> list[str]:
        """Return errors with suggestions for names that the provider does not have as models.

        Models of your own server, and names with your own price, count as known.

        Args:
            models: The names; `None` is skipped.
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

    def check_plan(self, plan: Plan, policy: Policy) -> None:
        """Refuse a plan that the provider cannot run: a name that is no model, an option it lacks.

        Args:
            plan: The plan.
            policy: How to run.

        Raises:
            DeclarationError: The first error.
            PlanError: The policy demands batches, and the provider has none.
        """
        self.check_models(sorted(plan.asked))
        check_plan(plan, policy, self.client)
        for note in (unsent_schema(plan, self.client), no_cheaper_model(plan, policy, self.client)):
            if note and note not in self._said:
                self._said.add(note)
                self.say(note)

    def connect(self, client: Provider | AsyncAnthropic | None, *, time_factor: float = 1.0) -> None:
        """Connect to another provider, from the next run on. Its limits (and a mock server's speed) are learned again.

        Args:
            client: The provider, as in `Plan.run`.
            time_factor: The attribute: 0.1 for a mock server with `latency="x0.1"`.
        """
        self.client, self._account, self.recent, self._is_chosen = as_provider(client), None, [], True
        self.pacer, self.time_factor = _pacer_of(self.client), time_factor
        if "history" in vars(self):
            self.history = self.history.moved(time_factor, self.client.endpoint)

    def set_limits(self, model: str, limits: Limits) -> None:
        """Set the rate limits of a model and its class. Other learned limits are forgotten.

        Args:
            model: The model, or its class.
            limits: The known limits.
        """
        given = {**self.pacer.given, self.client.limit_class(model): limits}
        self.pacer, self._account = _pacer_of(self.client, given), None

    async def cancel_batches(self, ids: Iterable[str] = ()) -> list[str]:
        """Cancel batches of the ledger, such as those of `ledger.batches.open()`. Return the cancelled ones.

        Answers so far are billed; `collect_batches` gets them.

        Args:
            ids: Their names; empty for all open ones of this notebook or script.

        Raises:
            CallError: The provider refused.
            PlanError: There is no ledger, the provider has no batches, or one is not open.
        """
        return await cancel_batches(self.client, self._batch_book(), ids)

    async def collect_batches(self, ids: Iterable[str] = ()) -> list[Collected]:
        """Store the answers of ended batches, even if no run asks for them any more.

        The next run with the same requests reuses them. Nothing is sent or waited for.

        Args:
            ids: Their names; empty for all open ones of this notebook or script.

        Raises:
            CallError: The provider cannot be asked, or refused.
            PlanError: There is no ledger, the provider has no batches, or one is not open.
        """
        return await collect_batches(self.client, self._batch_book(), ids)

    def _batch_book(self) -> BatchBook:
        if self.ledger is None:
            raise PlanError("Batches need a ledger. Give ledger=am.Ledger('FILE').")
        return self.ledger.batches

    def set_price(self, model: str, price: TokenPrice) -> None:
        """Set your own price of a model, from the next run on.

        Args:
            model: The model.
            price: The price of its tokens.
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
        """Return grades of answers to a job, from earlier sessions too.

        Args:
            job: Fingerprint of the job; see `agent_magic.declare.step.job_of`.
        """
        ledger, where = self.ledger, self.client.endpoint
        return self.grades.of_job(job, where) if ledger is None else ledger.grades.of(job, where)

    def recall_limits(self) -> None:
        """Restore the rate limits learned by earlier sessions with this key, once for each key.

        So the first run of a later session needs no trial request. The ledger keeps a hash of the account and its
        limits, never a key. The next response corrects changes.
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
        """Divides the rate limits with other kernels; `None` without a common ledger file."""
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
    """Raise unless asyncio runs this code."""
    # In a kernel with `%autoawait trio` a loop of asyncio runs below trio, which runs this code.
    trio: Any = sys.modules.get("trio")
    if not _is_running(asyncio.get_running_loop) or (trio and _is_running(trio.lowlevel.current_task)):
        raise AgentMagicError(
            "A plan runs on asyncio, and this is not an asyncio loop. Under trio run it in a thread: "
            "await trio.to_thread.run_sync(lambda: asyncio.run(plan.run()))."
        )


def _is_running(ask: Callable[[], object]) -> bool:
    try:
        ask()
    except RuntimeError:
        return False
    return True


def session_of(session: Session | None, **given: object) -> Session:
    """Return the given session, or a new one from `client`, `ledger`, `prices` and `limits`; refuse both."""
    if session is None:
        return Session(**given)  # pyright: ignore[reportArgumentType] - the arguments of the calls are typed
    if any(one is not None for one in given.values()):
        raise PlanError(f"Give either session= or {', '.join(f'{name}=' for name in given)}: a session has its own.")
    if not isinstance(session, Session):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"session={shown_value(session)} is not a Session. Give am.Session().")
    return session


def checked_limits(limits: object, provider: Provider) -> dict[str, Limits]:
    """Return limits by model class, as the provider names them."""
    if limits is None:
        return {}
    given = cast("dict[str, object]", limits) if isinstance(limits, dict) else {"": limits} if limits else {}
    if not all(isinstance(one, Limits) for one in given.values()):
        hint = f"Give a dict such as {{{DEFAULT_MODEL!r}: Limits(requests=50)}}."
        raise DeclarationError(
            f"limits must map models to Limits, got {shown_value(cast('object', limits))}.", hint=hint
        )
    return {provider.limit_class(model): one for model, one in cast("dict[str, Limits]", given).items()}
