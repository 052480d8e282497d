"""The answers of a group as a frame: a row per item, beside whose rows it can be joined.

A typed answer has a column per field, with the dtype of its schema; a text is the column `answer`. Columns are what the
model wrote, read by the schema in the record, so a replay without the class has the same frame. A row never gets lost:
where an agent did not succeed, its columns are `NA` and `error` says why.

| schema | dtype |
|---|---|
| integer, number, boolean | `Int64`, `Float64`, `boolean` |
| text | `string` |
| choice (Enum, Literal) | `category`, in declared order |
| date, date-time | `datetime64[us, UTC]` |
| list, object, several types | `object` |

What tasks returned is a column with the name of their group.

Some rows are answered by requests that are steps of their own. A row whose agent has a hedge is what the first to
answer said, and costs what both requests did. One of several that a request asked for has an equal share of its
dollars, so that the rows add up to the requests; what its tokens are nobody knows. Both take from the moment that they
could first be asked.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, cast

from agent_magic.declare.schema import alternatives_of, choices_of, leaves, schema_of, unwrapped
from agent_magic.declare.values import Fields, plain, read
from agent_magic.errors import InvalidAnswer, NoValue, PlanError, UnknownGroup
from agent_magic.measure.frames import agents_frame, as_made, check_pandas, frame_of, on_the_run
from agent_magic.measure.metrics import total_cost
from agent_magic.record.answer import Usage, add_usage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from agent_magic.declare.schema import Schema
    from agent_magic.record.results import AgentResult, RunRecord

OF_EACH = ("agent", "status", "source", "stop_reason", "total_s", "input_tokens", "output_tokens", "cost_usd", "error")
"""The columns of `run.agents` that `run.each` repeats."""
HANDED: Final = frozenset({"status", "error"})
"""Those of them that a task is handed too: what became of a row. The rest was measured, and differs in each run."""
OF_ASKED: Final = {
    **dict.fromkeys(("source", "stop_reason"), "string"),
    **dict.fromkeys(("input_tokens", "output_tokens"), "Int64"),
    **dict.fromkeys(("total_s", "cost_usd"), "Float64"),
}
"""Those of them that come from the requests for a row, where these are steps of their own."""
OF_SEVERAL: Final = {"status": "string", "cost_usd": "Float64", "error": "string"}
"""What `run.each` says of an item beside the answers of several agents: of the first that did not succeed, if any."""
ANSWER: Final = "answer"
DTYPES: Final = {"integer": "Int64", "number": "Float64", "boolean": "boolean", "string": "string"}
DATES: Final = frozenset({"date", "date-time"})
MOST_INT: Final = 1 << 63


def each_frame(record: RunRecord, *groups: str) -> pd.DataFrame:
    """Return a row per item, in the items' order, so that `reviews.join(frame)` puts answers beside them.

    Args:
        record: The run.
        groups: Names of agents that were declared for each item of one value.

    Returns:
        The index, `key`, is that of the frame or Series the items are from, with its levels where it has several, the
        keys of the dict, or else their numbers. Columns: those of the answers, then `OF_EACH` of one agent, or
        `OF_SEVERAL`. A name that two of them have is written `agent_name` in the columns of answers.

    Raises:
        UnknownGroup: The plan has no group of this name.
        PlanError: There is no name, or they are declared for different values.
        AgentMagicError: There is no pandas here.
    """
    check_pandas()
    import pandas as pd

    plan = record.plan
    for group in groups:
        if not isinstance(group, str) or group not in plan.groups:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UnknownGroup(group, known=plan.groups)
    members = {group: plan.groups[group] for group in groups}
    used = {number for number, one in enumerate(record.results) if one.status != "unused"}
    members = {group: {item: of[item] for item in of if of[item] in used} for group, of in members.items()}
    items = sorted({item for numbers in members.values() for item in numbers})
    firsts = [plan.agents[next(iter(plan.groups[group].values()))].part for group in groups]
    parts: list[Any] = [next(plan.agents[of[item]].part for of in members.values() if item in of) for item in items]
    over = list(dict.fromkeys(part.over for part in firsts if part is not None))
    if len(over) != 1:
        said = f"are declared for each of {' and of '.join(over)}" if over else "are missing"
        raise PlanError(f"run.each() takes agents of one value side by side; these {said}. Ask for one at a time.")
    answers = {
        group: _columns(group, [_answerer(record, of[item]) if item in of else None for item in items])
        for group, of in members.items()
    }
    beside = _one(record, list(members[groups[0]].values())) if len(groups) == 1 else _several(record, members, items)
    names = [name for columns in answers.values() for name in columns] + list(beside.columns)
    found: dict[str, Any] = {
        f"{group}_{name}" if names.count(name) > 1 else name: column
        for group, columns in answers.items()
        for name, column in columns.items()
    }
    frame = pd.concat([pd.DataFrame(found, index=beside.index), beside], axis=1)
    frame.attrs |= beside.attrs | on_the_run(record, "run.score(...) tells how good the answers are")
    keys, levels = [part.key for part in parts], parts[0].levels if parts else ()
    one = pd.Index(keys, name="row", tupleize_cols=False)
    frame.index = pd.MultiIndex.from_tuples(keys, names=levels) if levels else one
    return as_made(frame)


def answers_frame(record: RunRecord, group: str) -> pd.DataFrame:
    """Return what a task is handed of a group: `each_frame` without what was measured.

    A prompt with seconds and dollars in it would be another one in each run, and be paid for again.

    Returns:
        The index and the columns of answers as in `each_frame`, then `status` and `error`.
    """
    frame = each_frame(record, group)
    return frame.drop(columns=[name for name in OF_EACH if name not in HANDED])


def _askers(record: RunRecord, number: int) -> list[AgentResult]:
    """Return the steps whose requests are for one row: itself, or where it makes none, those that it takes it from."""
    plan, part = record.plan, record.plan.agents[number].part
    if part is not None and part.asked:
        return [record.results[plan.index[part.asked]]]
    if plan.agents[number].race:
        return [record.results[parent] for parent in plan.dag.parents[number]]
    return [record.results[number]]


def _answerer(record: RunRecord, number: int) -> AgentResult | None:
    """Return whose answer a row is: its own, or in a race that of the first to answer; `None` if of nobody there."""
    result = record.results[number]
    if not record.plan.agents[number].race:
        return result
    has_won = result.status == "succeeded"
    return next((one for one in _askers(record, number) if (one.status == "succeeded") is has_won), None)


def _cost_usd(record: RunRecord, number: int) -> float | None:
    """Return the dollars of a row: all that was asked for it, or its share of what was asked for several."""
    part, askers = record.plan.agents[number].part, _askers(record, number)
    if part is None or not part.asked:
        return total_cost(askers)
    request = record.plan.agents[record.plan.index[part.asked]].part
    whole = askers[0].cost_usd
    return None if whole is None or request is None else whole / len(request.item)


def _one(record: RunRecord, numbers: list[int]) -> pd.DataFrame:
    frame = agents_frame(record)
    wanted = [record.results[number].name for number in numbers]
    frame = frame.set_index("agent", drop=False).loc[wanted, [*OF_EACH]]
    if any(_askers(record, number) != [record.results[number]] for number in numbers):
        rows = frame_of([_asked_row(record, number) for number in numbers], OF_ASKED, record)
        for name in OF_ASKED:
            frame[name] = rows[name].array
    return frame.set_axis(range(len(frame)), axis=0)


def _asked_row(record: RunRecord, number: int) -> dict[str, Any]:
    """Return what is known of a row by those that asked for it."""
    result, askers, part = record.results[number], _askers(record, number), record.plan.agents[number].part
    shared = part is not None and bool(part.asked)
    first = askers[0] if shared else _answerer(record, number)
    usage = Usage() if shared else add_usage([one.usage for one in askers if one.attempts])
    ready = [one.ready_s for one in askers if one.ready_s is not None]
    took_s = None if result.finished_s is None or not ready else result.finished_s - min(ready)
    return {
        "source": None if first is None else first.source,
        "stop_reason": None if first is None else first.stop_reason,
        "total_s": took_s,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cost_usd": _cost_usd(record, number),
    }


def _several(record: RunRecord, members: Mapping[str, Mapping[int, int]], items: Sequence[int]) -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    for item in items:
        results = {group: record.results[of[item]] for group, of in members.items() if item in of}
        status = next((one.status for one in results.values() if one.status != "succeeded"), "succeeded")
        failed = [f"{group}: {one.error}" for group, one in results.items() if one.error]
        costs = [_cost_usd(record, of[item]) for of in members.values() if item in of]
        cost = None if None in costs else math.fsum(one for one in costs if one is not None)
        rows.append({"status": status, "cost_usd": cost, "error": "; ".join(failed) or None})
    return frame_of(rows, OF_SEVERAL, record)


def _columns(group: str, results: Sequence[AgentResult | None]) -> dict[str, pd.Series[Any]]:
    """Return the answers of one group as columns; an answer that is no object has its name."""
    returns = next((one.returns for one in results if one is not None), None)
    if returns is None and any(one is not None and one.is_task for one in results):
        return {group: _returned(results)}
    if returns is None:
        texts = [None if one is None or one.status != "succeeded" else one.text for one in results]
        return {ANSWER: _series(texts, {"type": "string"})}
    schema = schema_of(returns.schema)
    values = [_value(returns.schema, one) for one in results]
    wrapped = unwrapped(schema) is not schema
    return {
        group if wrapped else name: _series([None if one is None else _cell(one[0], name) for one in values], of)
        for name, of in leaves(schema)
    }


def _returned(results: Sequence[AgentResult | None]) -> pd.Series[Any]:
    """Return what tasks returned as a column, of the dtype that pandas finds for it."""
    import pandas as pd

    values: list[Any] = [one.value if one is not None and one.has_value else None for one in results]
    return pd.Series(values, dtype=None if any(value is not None for value in values) else "object")


def _value(schema: str, result: AgentResult | None) -> tuple[Any] | None:
    """Return the value of an answer in a tuple, since it may be `None`; `None` where there is none."""
    if result is None or result.status != "succeeded":
        return None
    try:
        return (result.value if result.is_task else read(schema, result.text),)
    except (InvalidAnswer, NoValue):  # it was left out of a recording
        return None


def _cell(value: Any, name: str) -> Any:
    if isinstance(value, Fields | dict):
        value = (vars(value) if isinstance(value, Fields) else cast("dict[str, Any]", value)).get(name)
    return plain(value)


def _series(cells: list[Any], schema: Schema) -> pd.Series[Any]:
    """Return cells with the dtype of their schema, whatever they are."""
    import pandas as pd

    kinds = [one for one in alternatives_of(schema) if one.get("type") != "null"]
    kind = kinds[0] if len(kinds) == 1 else {}
    choices = choices_of(kind)
    if choices is not None:
        return pd.Series(pd.Categorical(cells, categories=[one for one in choices if one is not None]))
    if kind.get("format") in DATES:
        return _moments(cells)
    dtype = DTYPES.get(str(kind.get("type")), "object")
    if dtype == "Int64" and any(one is not None and not -MOST_INT <= one < MOST_INT for one in cells):
        dtype = "object"
    return pd.Series(cells, dtype=dtype)  # pyright: ignore[reportArgumentType, reportCallIssue] - a dtype by name


def _moments(cells: list[Any]) -> pd.Series[Any]:
    """Return dates and times in UTC, as which those without a zone are taken; as texts where there are no such days."""
    import pandas as pd

    try:
        found = [None if one is None else datetime.fromisoformat(one) for one in cells]
        utc = [one and (one.astimezone(UTC) if one.tzinfo else one.replace(tzinfo=UTC)) for one in found]
        return pd.Series(utc, dtype="datetime64[us, UTC]")  # pyright: ignore[reportArgumentType, reportCallIssue]
    except (OverflowError, ValueError):  # the year 1 has no hour before it, and older pandas few years at all
        return pd.Series(cells, dtype="object")
