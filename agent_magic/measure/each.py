"""The answers of a group as a frame with a row per item, to join to the items' rows; and votes among them.

A typed answer has a column per field; the schema comes from the record, so a replay without the class gives the same
frame. If an agent did not succeed, its answer is `NaN` or `NA`, and `error` has the reason.

| schema | dtype |
|---|---|
| integer, boolean | `Int64`, `boolean` |
| number | `float64` |
| text | `str`, as pandas reads texts; `object` before pandas 3 |
| choice (Enum, Literal) | `category`, in declared order |
| date, date-time | `datetime64[us, UTC]` |
| number or text, if all are numbers | `object` of `Decimal` |
| list, object, several types | `object` |

With a hedge, a row has the cost of both requests. Rows of a batched request share its dollars equally; their tokens are
unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

from agent_magic.declare.answers.lenient import Decimals, is_decimal
from agent_magic.declare.answers.reading import Fields, plain
from agent_magic.declare.answers.schema import (
    alternatives_of,
    choices_of,
    fields_of,
    leaves,
    schema_of,
    unwrapped,
)
from agent_magic.declare.user_code import reason_of, run_user_code
from agent_magic.declare.values import index_of, same_name
from agent_magic.errors import DeclarationError, InvalidAnswer, NoValue, PlanError, UnknownGroup
from agent_magic.measure.frames import agents_frame, as_made, check_pandas, frame_of, on_the_run, series_of
from agent_magic.measure.metrics import total_cost
from agent_magic.record.answer import Usage, add_usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from agent_magic.declare.answers.schema import Schema
    from agent_magic.record.results import AgentResult, RunRecord

OF_EACH = ("agent", "status", "source", "stop_reason", "total_s", "input_tokens", "output_tokens", "cost_usd", "error")
"""Columns of `run.agents` that `run.each` repeats."""
HANDED: Final = frozenset({"status", "error"})
"""Those also passed to a task. The others are measured, so they differ in each run."""
OF_ASKED: Final = {
    **dict.fromkeys(("source", "stop_reason"), "string"),
    **dict.fromkeys(("input_tokens", "output_tokens"), "Int64"),
    **dict.fromkeys(("total_s", "cost_usd"), "Float64"),
}
"""Those read from a row's requests, if these are separate steps."""
OF_SEVERAL: Final = {"status": "string", "cost_usd": "Float64", "error": "string"}
"""Columns for several agents; `status` is of the first agent that did not succeed."""
ANSWER: Final = "answer"
DTYPES: Final = {"integer": "Int64", "number": "float64", "boolean": "boolean", "string": "str"}
"""A missing answer is `NaN` where pandas has a choice, since `pd.NA == "yes"` has no truth value."""
DATES: Final = frozenset({"date", "date-time"})
MOST_INT: Final = 1 << 63


def each_frame(record: RunRecord, *groups: str) -> pd.DataFrame:
    """Return a row per item, in the items' order, so that `reviews.join(frame)` adds the answers.

    The index `key` has the keys of the frame or Series (with its levels), the keys of the dict, or else item numbers.
    Duplicate names become `agent_name`.
    """
    check_pandas()
    import pandas as pd

    plan = record.plan
    groups = tuple(same_name(one) if isinstance(one, str) else one for one in groups)  # pyright: ignore[reportUnnecessaryIsInstance]
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
    keys, first = [part.key for part in parts], parts[0] if parts else None
    if first is None or not first.levels:
        frame.index = index_of(keys, first.dtypes[0] if first and first.dtypes else None, "row")
    else:
        dtypes = first.dtypes or (None,) * len(first.levels)
        columns = [index_of([*column], dtype) for column, dtype in zip(zip(*keys, strict=True), dtypes, strict=True)]
        frame.index = pd.MultiIndex.from_arrays(columns, names=first.levels)
    return as_made(frame)


def answers_frame(record: RunRecord, group: str) -> pd.DataFrame:
    # Measured seconds and dollars would change the prompt, and so its cost, with every run.
    frame = each_frame(record, group)
    return frame.drop(columns=[name for name in OF_EACH if name not in HANDED])


def _askers(record: RunRecord, number: int) -> list[AgentResult]:
    """Return the steps that send the requests for a row."""
    plan, part = record.plan, record.plan.agents[number].part
    if part is not None and part.asked:
        return [record.results[plan.index[part.asked]]]
    if plan.agents[number].race:
        return [record.results[parent] for parent in plan.dag.parents[number]]
    return [record.results[number]]


def _answerer(record: RunRecord, number: int) -> AgentResult | None:
    result = record.results[number]
    if not record.plan.agents[number].race:
        return result
    has_won = result.status == "succeeded"
    return next((one for one in _askers(record, number) if (one.status == "succeeded") is has_won), None)


def _cost_usd(record: RunRecord, number: int) -> float | None:
    part, askers = record.plan.agents[number].part, _askers(record, number)
    if part is None or not part.asked:
        return total_cost(askers)
    if part.shares:
        return 0.0
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
    result, askers, part = record.results[number], _askers(record, number), record.plan.agents[number].part
    shared = part is not None and bool(part.asked)
    first = askers[0] if shared else _answerer(record, number)
    usage = Usage() if shared else add_usage([one.usage for one in askers if one.attempts])
    source = None if first is None else first.source
    if part is not None and part.shares and source not in {None, "replay"}:  # also where all of them failed
        source = "shared"
    ready = [one.ready_s for one in askers if one.ready_s is not None]
    took_s = None if result.finished_s is None or not ready else result.finished_s - min(ready)
    return {
        "source": source,
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
    returns = next((one.returns for one in results if one is not None), None)
    if returns is None and any(one is not None and one.is_task for one in results):
        known: list[Any] = [one.value if one is not None and one.has_value else None for one in results]
        return {group: series_of(known, None if any(one is not None for one in known) else "object")}
    if returns is None:
        texts = [None if one is None or one.status != "succeeded" else one.text for one in results]
        return {ANSWER: _series(texts, {"type": "string"})}
    schema = schema_of(returns.schema)
    values = [_value(one) for one in results]
    if unwrapped(schema) is not schema or not fields_of(schema):
        schema = unwrapped(schema)
        return {group: _series([None if one is None else _plain(one[0], schema) for one in values], schema)}
    return {
        name: _series([None if one is None else _cell(one[0], name, of) for one in values], of)
        for name, of in leaves(schema)
    }


def _value(result: AgentResult | None) -> tuple[Any] | None:
    """Return the value in a tuple, since it may be `None`; `None` without an answer."""
    if result is None or result.status != "succeeded":
        return None
    try:
        return (result.meaning,)
    except (InvalidAnswer, NoValue):  # it was left out of a recording
        return None


def _cell(value: Any, name: str, schema: Schema) -> Any:
    fields = vars(value) if isinstance(value, Fields) else value
    return _plain(cast("dict[str, Any]", fields).get(name), schema) if isinstance(fields, dict) else None


def _plain(value: Any, schema: Schema) -> Any:
    return Decimal(value.text) if isinstance(value, Decimals) and is_decimal(schema) else plain(value)


def _series(cells: list[Any], schema: Schema) -> pd.Series[Any]:
    import pandas as pd

    try:
        return _typed(cells, schema)
    except (TypeError, ValueError, ArithmeticError):
        return pd.Series([float(one) if isinstance(one, Decimal) else one for one in cells], dtype="object")


def form_of(schema: Schema) -> Schema:
    """Return the one form of a value that may be `null`; empty if it has several."""
    kinds = [one for one in alternatives_of(schema) if one.get("type") != "null"]
    return kinds[0] if len(kinds) == 1 else {}


def _typed(cells: list[Any], schema: Schema) -> pd.Series[Any]:
    import pandas as pd

    if is_decimal(schema):  # a model writes them as numbers and as texts
        return pd.Series([None if one is None else Decimal(str(one)) for one in cells], dtype="object")
    kind = form_of(schema)
    choices = choices_of(kind)
    if choices is not None and all(one is None or one in choices for one in cells):
        return pd.Series(pd.Categorical(cells, categories=[one for one in choices if one is not None]))
    if kind.get("format") in DATES:
        return _moments(cells)
    dtype = DTYPES.get(str(kind.get("type")), "object")
    if dtype == "Int64" and any(one is not None and not -MOST_INT <= one < MOST_INT for one in cells):
        dtype = "object"
    return series_of(cells, dtype)


def _moments(cells: list[Any]) -> pd.Series[Any]:
    """Return dates and times in UTC; as text if pandas cannot hold one."""
    import pandas as pd

    try:
        found = [None if one is None else datetime.fromisoformat(one) for one in cells]
        utc = [one and (one.astimezone(UTC) if one.tzinfo else one.replace(tzinfo=UTC)) for one in found]
        return pd.Series(utc, dtype="datetime64[us, UTC]")  # pyright: ignore[reportArgumentType, reportCallIssue]
    except (OverflowError, ValueError):  # the year 1 has no hour before it, and older pandas few years at all
        return pd.Series(cells, dtype="object")


T = TypeVar("T")


class Vote(NamedTuple):
    """The most frequent answer.

    Attributes:
        value: The answer given most often; in a tie the first.
        share: Its share of the existing answers, from 0 to 1.
        n: The number of existing answers.
        tie: True if another one was given as often.
        counts: The count of each answer, most frequent first.
    """

    value: Any
    share: float
    n: int
    tie: bool
    counts: Mapping[Any, int]


def vote(answers: pd.DataFrame | pd.Series[Any] | Iterable[Any]) -> Vote:
    """Return the most frequent answer: `am.vote(run.each("label"))`. Missing answers do not count.

    Args:
        answers: The result of `run.each()` for one agent with one column of answers, a column of it, or a list.

    Raises:
        DeclarationError: There are no answers, or several columns of them.
    """
    counts: dict[Any, list[Any]] = {}
    for one in _given(answers):
        counts.setdefault(_key(one), []).append(one)
    if not counts:
        raise DeclarationError("There are no answers to vote on.", hint="Give it what run.each('name') returns.")
    ordered = sorted(counts.values(), key=len, reverse=True)
    n = sum(map(len, ordered))
    tie = len(ordered) > 1 and len(ordered[1]) == len(ordered[0])
    shown = {_key(some[0]): len(some) for some in ordered}
    return Vote(ordered[0][0], len(ordered[0]) / n, n, tie, shown)


def best(answers: pd.DataFrame | pd.Series[Any] | Iterable[T], grade: Callable[[Any], float]) -> Any:
    """Return the answer with the highest grade; in a tie the first. Missing answers do not count.

    Args:
        answers: As for `vote`.
        grade: Takes an answer, and returns a number.

    Raises:
        DeclarationError: There are no answers, or one cannot be graded.
    """
    found = [(_graded(grade, one), one) for one in _given(answers)]
    if not found:
        raise DeclarationError("There are no answers to choose from.", hint="Give it what run.each('name') returns.")
    return max(found, key=lambda each: each[0])[1]


def _graded(grade: Callable[[Any], float], answer: Any) -> float:
    def failed(error: BaseException) -> DeclarationError:
        return DeclarationError(f"Grading {str(answer)[:60]!r} raised {reason_of(error)}.")

    found = run_user_code(lambda: float(grade(answer)), failed)
    if found != found:  # noqa: PLR0124 - NaN has no place among grades
        raise DeclarationError(f"The grade of {str(answer)[:60]!r} is NaN: it must be a number.")
    return found


def _given(answers: Any) -> list[Any]:
    if hasattr(answers, "columns"):
        columns = [name for name in answers.columns if name == ANSWER or name not in {*OF_EACH, *OF_SEVERAL}]
        if len(columns) != 1:
            hint = f"Give one of them: am.vote(frame[{str(columns[0]) if columns else 'name'!r}])."
            raise DeclarationError(f"There are {len(columns)} columns of answers.", hint=hint)
        answers = answers[columns[0]]
    if hasattr(answers, "dropna"):
        return cast("list[Any]", answers.dropna().tolist())
    if isinstance(answers, str | bytes) or not isinstance(answers, Iterable):
        raise DeclarationError(f"Answers must be a frame, a column or a list, got {type(answers).__name__}.")
    return [one for one in cast("Iterable[Any]", answers) if one is not None]


def _key(answer: Any) -> Any:
    """Return a key that equal answers share: texts without case and surrounding space."""
    if isinstance(answer, str):
        return " ".join(answer.split()).casefold()
    try:
        hash(answer)
    except TypeError:
        return str(answer)
    return answer
