"""The Dask cluster: processes, their addresses, encryption, and arrivals and departures.

Its client and local cluster live on a separate thread, so a cell that blocks the kernel's loop does not block them.

When workers start and stop is decided without a clock or a process. Dask's adaptive scaling counts tasks, and requests
are none: it would stop a worker in the middle of its streams.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sys
import threading
import time
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

from agent_magic.declare.validation import check_integer, check_positive, must_be
from agent_magic.engine.policy import Policy
from agent_magic.errors import AgentMagicError, DeclarationError
from agent_magic.providers.dask.serving import ANCHOR, OPERATION

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_magic.providers.dask.serving import Channel


T = TypeVar("T")
INSTALL = 'Workers need Dask: pip install "agent-magic[dask]", here and where scheduler and workers run.'
NO_REPLY = "The Dask scheduler does not answer"
CONNECT_S = 10.0
"""How long to look for a scheduler, or for a worker."""
BACK_S = 30.0
"""How long to wait for a worker of ours that is being restarted."""


class Cluster:
    """A Dask cluster: a local one of ours, or a running one."""

    def __init__(self, address: str | None, workers: int, security: Any) -> None:
        if address is not None:
            check_address(address)
        self.address, self._wanted, self._security = address, workers, security
        self._client: Any = None
        self._local: Any = None
        self._anchors: dict[str, Any] = {}
        self._lock = threading.Lock()

    @property
    def is_own(self) -> bool:
        return self.address is None

    @property
    def is_started(self) -> bool:
        return self._client is not None

    async def start(self) -> None:
        await asyncio.to_thread(self._start)
        if self.is_own:
            await self._ask(self._await_one)

    async def names(self) -> dict[str, str]:
        return await self._ask(self._names)

    async def connect(self, address: str) -> Channel:
        """Connect by TLS or on this machine, and anchor the worker."""
        import distributed.comm.core

        check_address(address)
        core: Any = distributed.comm.core
        arguments = self._client.security.get_connection_args("client")
        comm = await core.connect(address, timeout=CONNECT_S, **arguments)
        await comm.write({"op": OPERATION, "reply": False})
        await self._ask(lambda: self._hold(address))
        return comm

    async def release(self, address: str) -> None:
        await self._ask(lambda: self._anchors.pop(address, None))

    async def grow(self, workers: int) -> None:
        if self.is_own:
            await self._ask(lambda: self._local.scale(max(workers, len(self._local.worker_spec))))

    async def retire(self, address: str) -> None:
        if self.is_own:
            await self._ask(lambda: self._retire(address))

    def start_now(self) -> dict[str, str]:
        """Return the names of the workers by address. Blocks."""
        self._start()
        try:
            return self._names()
        except Exception as error:
            raise AgentMagicError(f"{NO_REPLY}. Connect again: %agents connect dask") from error

    @property
    def missing(self) -> int:
        """Those being started, or restarted after a loss."""
        return 0 if self._local is None else max(0, len(self._local.worker_spec) - len(self.start_now()))

    def resize_now(self, workers: int) -> None:
        """Set the number of our workers, none of which has a stream."""
        self._wanted = workers
        self._start()
        self._local.scale(workers)

    def close(self) -> None:
        with self._lock:
            for one in (self._client, self._local):
                if one is not None:
                    one.close()
            self._client = self._local = None
            self._anchors.clear()

    # on a thread

    async def _ask(self, work: Callable[[], T]) -> T:
        """Ask the scheduler; an error means that it does not answer."""

        def asked() -> T:
            try:
                return work()
            except Exception as error:
                raise OSError(NO_REPLY) from error

        return await asyncio.to_thread(asked)

    def _start(self) -> None:
        with self._lock:
            if self._client is not None:
                return
            try:
                import distributed
            except ImportError:
                raise AgentMagicError(INSTALL) from None
            client: Any = None
            try:
                if self.is_own:
                    self._local = self._own(distributed)
                options: Any = {"security": self._security} if self._local is None else {}
                where = self._local or self.address
                client = distributed.Client(where, timeout=CONNECT_S, set_as_default=False, **options)
                self._prepare(client)
            except BaseException as error:
                for one in (client, self._local):
                    if one is not None:
                        one.close()
                self._local = None
                if not isinstance(error, RuntimeError | OSError):  # what Dask raises where something does not start
                    raise
                raise AgentMagicError(self._why(error)) from error
            self._client = client

    def _why(self, error: Exception) -> str:
        if not self.is_own:
            return f"The Dask scheduler at {self.address!r} does not answer ({type(error).__name__}). Does it run?"
        if getattr(sys.modules["__main__"], "__file__", None):  # each new process imports the script
            return "The workers did not start. A script has to run its plan under if __name__ == '__main__':"
        return f"The workers did not start: {error}"

    def _own(self, distributed: Any) -> Any:
        import dask.config

        vars(sys.modules["__main__"]).setdefault("__spec__", None)  # new processes ask for it, and %reset deletes it
        # A worker that is silent is our affair. Memory: at 80 % of a limit Dask would pause it, at 95 % kill it.
        with dask.config.set({"distributed.scheduler.worker-ttl": None}):
            return distributed.LocalCluster(
                n_workers=self._wanted,
                threads_per_worker=1,
                host="127.0.0.1",
                dashboard_address=None,  # by default it listens on every address, without a password
                scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},  # for its state, not the usual port
                memory_limit=0,
                security=self._security,
                silence_logs=logging.CRITICAL,
            )

    def _prepare(self, client: Any) -> None:
        from agent_magic.providers.dask.plugin import Keeps, Serves  # noqa: PLC0415 - it needs Dask

        try:
            client.register_plugin(Serves(ignores_interrupts=self.is_own))
            client.register_plugin(Keeps())
        except ImportError as error:
            raise AgentMagicError(f"The Dask cluster cannot import agent_magic ({error}). {INSTALL}") from None

    def _names(self) -> dict[str, str]:
        if self.is_own and len(self._local.workers) < len(self._local.worker_spec):
            # Dask gives a worker up that is not there 15 s after a loss: one lost twice, or slow to start again.
            self._local.scale(len(self._local.worker_spec))
        found: Any = self._client.scheduler_info(n_workers=-1)["workers"]
        return {address: _name_of(one["name"]) for address, one in found.items()}

    def _await_one(self) -> None:
        """Wait for one worker: all may be restarting, as just after a loss."""
        end = time.monotonic() + BACK_S
        while not self._names() and self._local.worker_spec and time.monotonic() < end:
            time.sleep(0.2)

    def _hold(self, address: str) -> None:
        from agent_magic.providers.dask.plugin import Anchor  # noqa: PLC0415 - it needs Dask

        key = f"{ANCHOR}-{uuid4()}"
        self._anchors[address] = self._client.submit(Anchor, actor=True, workers=[address], key=key)

    def _retire(self, address: str) -> None:
        found: Any = self._client.scheduler_info(n_workers=-1)["workers"]
        if address in found:
            self._local.sync(self._local.scale_down, [found[address]["name"]])


def _name_of(name: object) -> str:
    return f"worker-{name}" if isinstance(name, int) else str(name)


def check_address(address: str) -> None:
    """Raise `DeclarationError` for a connection that others could read or misuse."""
    parts = urlsplit(address if "://" in address else f"tcp://{address}")
    host = parts.hostname or ""
    try:
        near = host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        near = False
    if parts.scheme != "tls" and not near:
        hint = "Anyone who reaches such a port can read prompts and give orders. Use tls:// and security=, or a tunnel."
        raise DeclarationError(f"The Dask address {address!r} is neither encrypted nor on this machine.", hint=hint)


STREAMS_PER_KERNEL = 200
"""Streams of 50 events a second that one kernel reads with its loop less than 50 ms late (measured on one core)."""


def useful_workers(streams: int) -> int:
    """Return how many workers help with this many concurrent streams; 0 if none would."""
    return math.ceil(streams / STREAMS_PER_KERNEL) if streams > STREAMS_PER_KERNEL else 0


@dataclass(frozen=True, slots=True)
class Autoscale:
    """Automatic scaling of workers by the number of concurrent agents.

    A concurrent agent is a request under way. A worker takes up to `pool_size` of them; further ones wait. Removed
    workers finish their streams first.

    Args:
        min_agents: Minimum capacity in agents.
        max_agents: Maximum capacity.
        scale_up_percent: Above this percentage of use, capacity grows by `scale_up_step`.
        scale_down_percent: Below this percentage of use, capacity shrinks by `scale_down_step`, unless the rest would
            be used above `scale_up_percent`.
        scale_up_step: Growth in agents.
        scale_down_step: Shrinkage in agents.
        pool_size: Capacity of one worker.
        queue_size: Maximum waiting agents. Beyond it, capacity is `max_agents`, and further requests are told to come
            back later, as by an overloaded server.
        max_retries: Retries per request, for `policy`.
        timeout_s: Seconds per agent, for `policy`.
        interval_s: Seconds between two decisions.

    Raises:
        DeclarationError: A value is invalid.
    """

    min_agents: int = 10
    max_agents: int = 100
    scale_up_percent: float = field(default=80.0, kw_only=True)
    scale_down_percent: float = field(default=20.0, kw_only=True)
    scale_up_step: int = field(default=10, kw_only=True)
    scale_down_step: int = field(default=5, kw_only=True)
    pool_size: int = field(default=25, kw_only=True)
    queue_size: int = field(default=1000, kw_only=True)
    max_retries: int = field(default=3, kw_only=True)
    timeout_s: float = field(default=30.0, kw_only=True)
    interval_s: float = field(default=30.0, kw_only=True)

    def __post_init__(self) -> None:
        counts = "min_agents max_agents scale_up_step scale_down_step pool_size queue_size max_retries"
        for option in counts.split():
            check_integer(option, getattr(self, option))
        for option in ("scale_up_percent", "scale_down_percent", "timeout_s", "interval_s"):
            check_positive(option, getattr(self, option))
        if self.max_agents < self.min_agents:
            raise must_be("max_agents", f"at least min_agents={self.min_agents}", self.max_agents)
        if self.scale_up_percent <= self.scale_down_percent:
            given, least = self.scale_up_percent, self.scale_down_percent
            raise must_be("scale_up_percent", f"above scale_down_percent={least:g}", given)

    def decide(self, agents: int, streams: int, waiting: int = 0) -> int:
        """Return the wanted capacity in agents.

        Args:
            agents: The capacity now.
            streams: Requests under way.
            waiting: Waiting requests.
        """
        used = streams + waiting
        if waiting > self.queue_size:
            agents = self.max_agents
        elif used * 100 > self.scale_up_percent * agents:
            agents += self.scale_up_step
        elif used * 100 < self.scale_down_percent * agents:
            enough = math.ceil(used * 100 / min(100.0, self.scale_up_percent))  # with less it would be scaled up again
            agents = max(agents - self.scale_down_step, min(agents, enough))
        return self.within(agents)

    def within(self, agents: int) -> int:
        """Return the nearest allowed capacity.

        Args:
            agents: A number of agents.
        """
        return min(self.max_agents, max(self.min_agents, agents))

    def workers(self, agents: int) -> int:
        """Return the number of workers for this many agents.

        Args:
            agents: A number of agents.
        """
        return math.ceil(agents / self.pool_size)

    @property
    def room(self) -> int:
        """Total request slots at the maximum number of workers."""
        return self.workers(self.max_agents) * self.pool_size

    @property
    def policy(self) -> Policy:
        """The policy of a run with these options: concurrency, attempts and timeout."""
        return Policy(self.max_agents, max_attempts=1 + self.max_retries, timeout_s=self.timeout_s)
