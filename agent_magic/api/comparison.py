"""Two runs beside each other: a picture of both, and a frame of what differs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.measure.compare import check_runs, compared, differences
from agent_magic.show.charts.comparison import comparison_chart
from agent_magic.show.frames import frame_bundle, frame_text

if TYPE_CHECKING:
    import pandas as pd

    from agent_magic.measure.compare import Recorded
    from agent_magic.show.charts.chart import Chart
    from agent_magic.show.theme import Theme


class Comparison:
    """What `am.compare` returns. A notebook shows the picture, then the frame.

    Args:
        a: A run.
        b: Another run.
    """

    def __init__(self, a: Recorded, b: Recorded) -> None:
        self._a, self._b = a.record, b.record

    @property
    def frame(self) -> pd.DataFrame:
        """One row per agent of either run, those of `a` first, then `(all)`.

        `status`, `seconds`, `tokens`, `cost_usd` and `model` have suffixes `_a` and `_b`; `diff_s`, `diff_tokens` and
        `diff_usd` are `b` minus `a`; `prompt_changed` and `text_changed` are booleans. Values missing in a run are
        `NA`.
        """
        return compared(self._a, self._b)

    def chart(self, *, theme: Theme = "auto") -> Chart:
        """Draw both runs over each other: what got slower, dearer, and which answers changed.

        Args:
            theme: Its colours.
        """
        return comparison_chart(self._a, self._b, differences(self._a, self._b), theme=theme)

    def __repr__(self) -> str:
        return f"{self.chart().text}\n\n{frame_text(self.frame)}"

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"text/html": self._repr_html_(), "text/plain": repr(self)}

    def _repr_html_(self) -> str:
        """Return both as one page, for front ends that show one form of a value, such as marimo."""
        return self.chart().svg + frame_bundle(self.frame)["text/html"]

    def _ipython_display_(self) -> None:  # notebooks that are not trusted keep a picture, and drop one within HTML
        from IPython.display import display  # pyright: ignore[reportUnknownVariableType] - IPython leaves types open

        display(self.chart())
        display(self.frame)


def compare(a: Recorded, b: Recorded) -> Comparison:
    """Compare two runs, agent by agent: a picture of both over each other, and a frame.

    Differences are `b` minus `a`, so savings are negative.

    Args:
        a: A run.
        b: Another run, of the same plan or a changed one.

    Raises:
        DeclarationError: `a` or `b` is not a run.
    """
    check_runs((a, b), "compare")
    return Comparison(a, b)
