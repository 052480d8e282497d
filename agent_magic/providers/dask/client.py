"""The provider that sends requests over Dask workers."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

from agent_magic.declare.validation import check_integer
from agent_magic.errors import AgentMagicError, DeclarationError, NotConnected
from agent_magic.machine import needs_processes
from agent_magic.providers.anthropic.client import Claude
from agent_magic.providers.base import Provider
from agent_magic.providers.dask.cluster import Cluster
from agent_magic.providers.dask.fleet import Fleet
from agent_magic.providers.dask.serving import settings_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Container, Mapping, Sequence

    from agent_magic.declare.content import TokenRule
    from agent_magic.engine.admission.pool import Key
    from agent_magic.providers.base import Capabilities, Stream
    from agent_magic.providers.dask.cluster import Autoscale
    from agent_magic.providers.dask.fleet import Link
    from agent_magic.record.answer import Answer
    from agent_magic.record.prices import TokenPrice
    from agent_magic.record.request import Request

DEFAULT_WORKERS = 2


class WorkerState(NamedTuple):
    """A worker; `idle` if no run uses it. `answered` and `failed` are of the current run, or else the last one."""

    name: str
    state: Literal["ready", "silent", "draining", "idle"]
    streams: int
    answered: int
    failed: int
    silent_s: float

    @classmethod
    def of(cls, link: Link, before: tuple[int, int]) -> WorkerState:
        """Add the counts from before a reconnection."""
        state = "draining" if link.draining else "ready" if link.is_free else "silent"
        answered, failed = link.answered + before[0], link.failed + before[1]
        return cls(link.name, state, link.streams, answered, failed, link.silent_s)


class Dask(Provider):
    """Makes each request on a Dask worker, so that a kernel can carry more streams than its one core reads.

    The kernel keeps plan, limits, budget, ledger and retries; a worker makes one request per stream. A lost one is a
    broken connection: the retry policy decides. Below about 200 concurrent streams, workers only add ways to fail.

    Nothing starts before the first run. Its own cluster ends with `close()`, or with this process.

    Args:
        address: Scheduler of a running cluster, such as `tls://host:8786`; default: workers are started here.
        workers: Number of workers to start; default 2, or the minimum of `autoscale`.
        client: The provider and its key: an `am.Claude` or `am.Chat`; default `Claude()`. Workers of a cluster
            elsewhere use the key of their environment if a `Claude` has none.
        security: A `distributed.Security` for TLS. `True` makes certificates for workers started here.
        autoscale: Starts and stops workers by the number of streams: an `am.Autoscale`.

    Raises:
        DeclarationError: The address is neither TLS nor on this machine, the client cannot be sent to workers, or a
            cluster of someone else would be scaled.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        workers: int | None = None,
        client: Provider | None = None,
        security: Any = None,
        autoscale: Autoscale | None = None,
    ) -> None:
        needs_processes("A Dask worker", "Requests leave from this Python itself: %agents run.")
        if workers is None:
            workers = DEFAULT_WORKERS if autoscale is None else autoscale.workers(autoscale.min_agents)
        check_integer("workers", workers)
        self.client = Claude() if client is None else client
        self._settings = settings_of(self.client)
        if autoscale is not None and address is not None:
            hint = "It is scaled where it was started."
            raise DeclarationError("autoscale= is for workers started here, not for a cluster elsewhere.", hint=hint)
        self.autoscale = autoscale
        self.cluster = Cluster(address, workers, security)
        self._fleets: WeakKeyDictionary[asyncio.AbstractEventLoop, Fleet] = WeakKeyDictionary()
        self._counts = False
        self._tally: dict[str, tuple[int, int]] = {}
        self._notes: dict[str, bool] = {}  # of the workers, by whether they were shown

    def __repr__(self) -> str:
        where = self.cluster.address or "workers on this machine"
        return f"Dask({where!r}, {self.client!r})"

    @property
    def endpoint(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride] - read only
        """Address of the requests, whichever worker makes them."""
        return self.client.endpoint

    @property
    def credentials(self) -> Key | None:  # pyright: ignore[reportIncompatibleVariableOverride] - read only
        """True if the server has accepted the credentials."""
        return self.client.credentials

    @property
    def price_list(self) -> str | None:  # pyright: ignore[reportIncompatibleVariableOverride] - read only
        """Seller of the list prices."""
        return self.client.price_list

    @property
    def prices(self) -> Mapping[str, TokenPrice]:  # pyright: ignore[reportIncompatibleVariableOverride] - read only
        """Its prices by model."""
        return self.client.prices

    @property
    def is_free(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride] - read only
        """True if answers cost nothing."""
        return self.client.is_free

    @property
    def account(self) -> str | None:  # pyright: ignore[reportIncompatibleVariableOverride] - read only
        """Owner of the rate limits."""
        return self.client.account

    @property
    def capabilities(self) -> Capabilities:  # pyright: ignore[reportIncompatibleVariableOverride] - read only
        """Features of the workers' client."""
        return self.client.capabilities

    def capabilities_of(self, model: str) -> Capabilities:
        """Return the features of a model on the workers' client.

        Args:
            model: Its name.
        """
        return self.client.capabilities_of(model)

    @property
    def models(self) -> Sequence[str]:  # pyright: ignore[reportIncompatibleVariableOverride] - read only
        """Names of models to offer."""
        return self.client.models

    @property
    def choices(self) -> Sequence[str]:  # pyright: ignore[reportIncompatibleVariableOverride] - read only
        """Models among which one is chosen."""
        return self.client.choices

    @property
    def room(self) -> int | None:  # pyright: ignore[reportIncompatibleVariableOverride] - read only
        """Total request slots of all workers: more requests would wait here, and look as if they ran."""
        return None if self.autoscale is None else self.autoscale.room

    @property
    def remote(self) -> Fleet | None:  # pyright: ignore[reportIncompatibleVariableOverride] - read only
        """Runs the tasks with `process=True` on the workers."""
        return self._fleets.get(asyncio.get_running_loop())

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Start or find the workers, and hold the connections to them while a run lasts.

        Raises:
            AgentMagicError: Dask is not installed, the cluster cannot be reached, or no worker can answer.
            NotConnected: There is no key.
        """
        async with AsyncExitStack() as held:
            try:
                await held.enter_async_context(self.client.open())  # for counts of tokens
                self._counts = True
            except NotConnected:
                if self.cluster.is_own:
                    raise
                self._counts = False  # the workers have their own key
            fleet = self._fleet()
            async with fleet.lock:
                if not fleet.users:
                    await fleet.start()
                fleet.users += 1
            try:
                yield
            finally:
                fleet.users -= 1
                async with fleet.lock:
                    if not fleet.users:
                        await fleet.close()

    def _fleet(self) -> Fleet:
        loop = asyncio.get_running_loop()
        if loop not in self._fleets:
            self._fleets[loop] = Fleet(
                self.cluster, self._settings, self._environ, self.autoscale, self._tally, self._take_note
            )
        return self._fleets[loop]

    def _environ(self) -> dict[str, str]:
        names = [name for name in os.environ if name.startswith("ANTHROPIC_")] if self.cluster.is_own else ()
        return {name: os.environ[name] for name in names}

    async def send(self, request: Request, stream: Stream) -> Answer:
        """Have a worker make a request.

        Args:
            request: The request.
            stream: Receives the response.

        Raises:
            CallError: The attempt failed.
        """
        return await self._fleets[asyncio.get_running_loop()].send(request, stream)

    async def count_tokens(self, request: Request) -> int | None:
        """Count the input tokens of a request in this process; `None` without a key here.

        Args:
            request: The request.

        Raises:
            CallError: Counting failed.
        """
        return await self.client.count_tokens(request) if self._counts else None

    def warm_up(self) -> None:
        """Load what counting needs."""
        self.client.warm_up()

    def limit_class(self, model: str) -> str:
        """Name the models that share rate limits with this one.

        Args:
            model: Its name.
        """
        return self.client.limit_class(model)

    def lacks_model(self, model: str) -> bool:
        """Return whether there is certainly no such model.

        Args:
            model: Its name.
        """
        return self.client.lacks_model(model)

    def min_cacheable_tokens(self, model: str) -> int | None:
        """Return the shortest prefix that the prompt cache keeps.

        Args:
            model: Its name.
        """
        return self.client.min_cacheable_tokens(model)

    def token_rule(self, model: str) -> TokenRule | None:
        """Return how many tokens a model makes of pictures and PDFs.

        Args:
            model: Its name.
        """
        return self.client.token_rule(model)

    def take_notes(self) -> Sequence[str]:
        """Return messages for the user, each once, however many workers have it."""
        found = [*self.client.take_notes(), *(note for note, shown in self._notes.items() if not shown)]
        self._notes = dict.fromkeys([*self._notes, *found], True)
        return found

    def _take_note(self, note: str) -> None:
        self._notes.setdefault(note, False)

    # the workers

    def start(self) -> None:
        """Start or find the workers now, not with the first run. Blocks.

        Raises:
            AgentMagicError: Dask is not installed, or the cluster cannot be reached.
        """
        self.cluster.start_now()

    def workers(self) -> Sequence[WorkerState]:
        """Return the state of each worker by name: streams, answers, failures and silence. Starts none."""
        did = self._tally
        links = [link for fleet in self._open for link in fleet.links.values()]
        found = [WorkerState.of(link, did.get(link.name, (0, 0))) for link in links]
        looks = not found and (self.cluster.is_started or not self.cluster.is_own)  # a cluster elsewhere already runs
        names = self.cluster.start_now().values() if looks else ()
        return sorted([*found, *(WorkerState(name, "idle", 0, *did.get(name, (0, 0)), 0.0) for name in names)])

    @property
    def starting(self) -> int:
        """Number of our own workers that are starting, also after a loss."""
        return self.cluster.missing

    def scale(self, workers: int) -> None:
        """Set the number of workers. Removed ones finish their streams first.

        Args:
            workers: The number.

        Raises:
            AgentMagicError: The cluster is someone else's.
        """
        check_integer("workers", workers)
        if not self.cluster.is_own:
            raise AgentMagicError("This cluster was started elsewhere. Scale it there: workers that come are used.")
        for fleet in self._open:
            fleet.scale(workers)
        if not self._open:
            self.cluster.resize_now(workers)

    def drain(self, names: Container[str] | None = None) -> None:
        """Drain workers: finish open streams, accept no new requests during the current run.

        Args:
            names: The workers; default all.
        """
        for fleet in self._open:
            fleet.drain(names)

    @property
    def _open(self) -> list[Fleet]:
        return [fleet for fleet in self._fleets.values() if fleet.users]

    def close(self) -> None:
        """Leave the cluster. Workers that were started here end."""
        self.cluster.close()
