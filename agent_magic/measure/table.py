"""Rows as a frame with the dtypes it promises. Unknown is `NaN` or `NA`, never 0."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pandas as pd


def make_frame(rows: Iterable[Mapping[str, Any]], dtypes: Mapping[str, str]) -> pd.DataFrame:
    """Return one row per mapping, with these columns in this order. What a row leaves out is unknown."""
    import pandas as pd

    rows = list(rows)
    return pd.DataFrame(
        {name: pd.Series([row.get(name) for row in rows], dtype=dtype) for name, dtype in dtypes.items()}
    )
