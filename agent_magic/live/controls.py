"""Steering a run from wherever one is: another cell, a click, another thread."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from agent_magic.declare.validation import names_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agent_magic.live.driver import Driver


class Controls:
    """Steers a run under way, from any thread. A run that is over is left as it is.

    Args:
        driver: What runs. A run that has not begun yet can be steered from the thread it will run on.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    @property
    def paused(self) -> bool:
        """Whether no agent is let go until `resume`."""
        return self._driver.paused

    def stop(self, names: str | Iterable[str] | None = None) -> None:
        """Stop these agents, or this one, or the run.

        Args:
            names: The agents, or one; `None` stops the run.

        Raises:
            UnknownAgent: One of them is not in the plan; nothing was stopped.
        """
        self._say(self._driver.stop, self._checked(names))

    def retry(self, names: str | Iterable[str] | None = None) -> None:
        """Run these agents again that did not succeed, or all of them, with what was skipped because of them.

        Args:
            names: The agents, or one; `None` is all that did not succeed.

        Raises:
            UnknownAgent: One of them is not in the plan.
        """
        self._say(self._driver.retry, self._checked(names))

    def skip(self, names: str | Iterable[str]) -> None:
        """Leave these agents out, and what waits for them.

        Args:
            names: The agents, or one.

        Raises:
            UnknownAgent: One of them is not in the plan.
        """
        self._say(self._driver.skip, self._checked(names_of(names)))

    def pause(self) -> None:
        """Let nobody go until `resume`. What is under way goes on, and is paid for."""
        self._say(self._driver.pause)

    def resume(self) -> None:
        """Let agents go again."""
        self._say(self._driver.resume)

    def _checked(self, names: str | Iterable[str] | None) -> list[str] | None:
        """Look the names up here, where the mistake can be raised to whoever made it."""
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
