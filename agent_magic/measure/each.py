"""The answers of a group: a row for each item that its agent was declared for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_magic.errors import UnknownGroup
from agent_magic.measure.frames import agents_frame

if TYPE_CHECKING:
    import pandas as pd

    from agent_magic.record.results import RunRecord

COLUMNS = ("status", "source", "stop_reason", "total_s", "input_tokens", "output_tokens", "cost_usd", "error")


def each_frame(record: RunRecord, group: str) -> pd.DataFrame:
    """Return a row per item, in the items' order, so that `reviews.join(frame)` puts answers beside what was asked.

    Args:
        record: The run.
        group: The name of an agent that was declared for each item of a value.

    Returns:
        The index, `key`, is that of the frame or Series the items are from, with its levels where it has several, the
        keys of the dict, or else their numbers. Columns: `answer`, `NA` where the agent did not succeed, `agent`, and
        of `run.agents`: `status, source, stop_reason, total_s, input_tokens, output_tokens, cost_usd, error`.

    Raises:
        UnknownGroup: The plan has no group of this name.
    """
    import pandas as pd

    plan = record.plan
    if not isinstance(group, str) or group not in plan.groups:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UnknownGroup(group, known=plan.groups)
    numbers = list(plan.groups[group].values())
    results = [record.results[number] for number in numbers]
    answers = [one.text if one.status == "succeeded" else None for one in results]
    frame = agents_frame(record).iloc[numbers].loc[:, ["agent", *COLUMNS]]
    frame.insert(0, "answer", pd.Series(answers, index=frame.index, dtype="string"))
    parts: list[Any] = [plan.agents[number].part for number in numbers]
    keys, levels = [part.key for part in parts], parts[0].levels
    one = pd.Index(keys, name="key", tupleize_cols=False)
    frame.index = pd.MultiIndex.from_tuples(keys, names=levels) if levels else one
    return frame
