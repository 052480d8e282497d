"""Controls a run from another cell, a click, or another thread."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from agent_magic.declare.validation import names_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agent_magic.live.driver import Driver


class Controls:
    """Controls a run from any thread. A finished run is left unchanged.

    Args:
        driver: The driver. A run that has not begun can be controlled from the thread it will run on.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    @property
    def paused(self) -> bool:
        """True if no agent starts until `resume`."""
        return self._driver.paused

    def stop(self, names: str | Iterable[str] | None = None) -> None:
        """Stop one or several agents, or the run.

        Args:
            names: The agents, or one; None: the run.

        Raises:
            UnknownAgent: An agent is not in the plan; nothing was stopped.
        """
        self._say(self._driver.stop, self._checked(names))

    def retry(self, names: str | Iterable[str] | None = None) -> None:
        """Rerun unsuccessful agents, with the agents skipped because of them.

        Args:
            names: The agents, or one; None: all that did not succeed.

        Raises:
            UnknownAgent: An agent is not in the plan.
        """
        self._say(self._driver.retry, self._checked(names))

    def skip(self, names: str | Iterable[str]) -> None:
        """Skip agents and their dependents.

        Args:
            names: The agents, or one.

        Raises:
            UnknownAgent: An agent is not in the plan.
        """
        self._say(self._driver.skip, self._checked(names_of(names)))

    def pause(self) -> None:
        """Start no more steps until `resume`. Steps under way continue, and are paid for."""
        self._say(self._driver.pause)

    def resume(self) -> None:
        """Let agents go again."""
        self._say(self._driver.resume)

    def _checked(self, names: str | Iterable[str] | None) -> list[str] | None:
        """Check the names here, so that the caller gets the error."""
        if names is None:
            return None
        known = names_of(names)
        self._driver.plan.numbers(known)
        return known

    def _say(self, what: Callable[..., None], *arguments: object) -> None:
        loop = self._driver.loop
        if loop is None or loop is _running_loop():
            what(*arguments)
        elif not loop.is_closed():
            loop.call_soon_threadsafe(what, *arguments)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
