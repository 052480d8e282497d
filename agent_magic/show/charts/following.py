"""A chart of a run under way, redrawn until the run is over."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from agent_magic.show.charts.chart import Chart

if TYPE_CHECKING:
    from collections.abc import Callable

LEAST_PAUSE_S: Final = 1.0
DRAWING: Final = 0.05
"""Drawing takes no more than this share of the kernel's time."""
_GOING: Final[set[asyncio.Task[None]]] = set()
"""Tasks of redrawn charts, which have no other reference."""


def following(draw: Callable[[], Chart], is_over: Callable[[], bool]) -> Chart:
    """Return a chart that is redrawn while a notebook displays it."""
    now = draw()
    return _Following(now.title, now.svg, now.text, now.specify, draw, is_over)


@dataclass(frozen=True, slots=True)
class _Following(Chart):
    """A chart that follows its run if displayed by a notebook; otherwise a static one."""

    again: Callable[[], Chart] = field(repr=False)
    is_over: Callable[[], bool] = field(repr=False)

    def _ipython_display_(self) -> None:
        from IPython.display import DisplayHandle

        handle: Any = DisplayHandle()
        handle.display(self.bundle(), raw=True)
        try:
            task = asyncio.get_running_loop().create_task(self._follow(handle))
        except RuntimeError:
            return  # no loop turns here, so nothing goes on either
        _GOING.add(task)
        task.add_done_callback(_GOING.discard)

    async def _follow(self, handle: Any) -> None:
        """Redraw the chart until the run is over."""
        took_s, is_over = 0.0, False
        while not is_over:
            await asyncio.sleep(max(LEAST_PAUSE_S, took_s / DRAWING))
            is_over, began_s = self.is_over(), time.perf_counter()
            handle.update(self.again().bundle(), raw=True)
            took_s = time.perf_counter() - began_s
