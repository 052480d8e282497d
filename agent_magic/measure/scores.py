"""Grades of answers: against a truth, or by a function or a judge.

A grade is kept by request, answer text and row, so a run that reuses the answer for the same row has the same grade.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, cast

from agent_magic.declare.answers.reading import plain
from agent_magic.declare.answers.schema import lacking, schema_of
from agent_magic.declare.each import ITEM, KEY
from agent_magic.declare.step import job_of
from agent_magic.declare.task import Task
from agent_magic.declare.units import dollars, plural
from agent_magic.declare.user_code import reason_of, run_user_code
from agent_magic.declare.validation import find_name, is_number, same_name
from agent_magic.declare.values import Row, as_item, digest, fingerprint
from agent_magic.errors import AgentMagicError, DeclarationError, NoValue, did_you_mean, shown_value
from agent_magic.measure.frames import frame_of, on_the_run, table
from agent_magic.measure.intervals import Interval, bounded_interval, mean_interval, share_interval
from agent_magic.measure.metrics import total_cost
from agent_magic.record.ledger.reviews import Graded
from agent_magic.record.results import Returned

if TYPE_CHECKING:
    import pandas as pd

    from agent_magic.measure.trial import Trial
    from agent_magic.record.results import AgentResult, RunRecord

Grader: TypeAlias = Callable[[Any, Any], Any]
"""Takes an answer and its row; returns a number or a bool, alone or with a reason."""
Measure = Literal["share", "mean", "error"]
"""Scores of 0 or 1; numbers; numbers of which less is better."""
Kind = Literal["choice", "number", "text"]
SCORE = table("target grader metric n score low high errors no_label reads")
"""`errors` could not be graded, `no_label` have no truth; `reads` is the score in words."""
SCORES = {"agent": "string", "row": "object", **table("target grader score why n error")}
"""`n` counts the grader's requests, `row` is the key of the row."""
_NAMED = re.compile(r"^Agent '[^']*' has no value: |\.? Its text is in .*$")
"""The agent's name in an error: without it, equal reasons can be counted."""
FEW: Final = 30
"""Fewer answers are marked as few."""
NO_TRUTH: Final = "its truth is unknown"


class Grade(NamedTuple):
    """A grade; its score is `None` if the answer could not be graded, `n` counts requests to the grader."""

    target: str
    grader: str
    measure: Measure
    score: float | None = None
    why: str = ""
    n: int = 1
    error: str | None = None


class Answered(NamedTuple):
    """An answer to grade, the key of its row, if any, and the path of fields to the graded value."""

    result: AgentResult
    key: Any
    row: Any
    path: tuple[str, ...]

    @property
    def value(self) -> Any:
        """The graded value as plain data; raises `NoValue` or `InvalidAnswer` without one."""
        result = self.result
        if result.status != "succeeded":
            raise NoValue(result.name, (result.error or f"it is {result.status}").rstrip("."))
        return plain(_at(result.meaning, self.path))

    @property
    def given(self) -> Any:
        """The value passed to a function: an instance of the user's class."""
        return _at(self.result.value, self.path)


def _at(value: Any, path: Sequence[str]) -> Any:
    for name in path:
        if isinstance(value, Mapping):
            value = cast("Any", value)[find_name(name, cast("Any", value)) or name]
        else:
            value = getattr(value, same_name(name))
    return value


class GradeBook:
    """A session's grades and trials; `keep` stores grades for later sessions."""

    def __init__(self, keep: Callable[[Sequence[Graded]], None] | None = None) -> None:
        self.trials: list[tuple[str, Trial]] = []
        self._grades: dict[str, dict[tuple[str, str], Grade]] = {}
        self._rows: dict[tuple[str, ...], Graded] = {}
        self._keep = keep

    def store(self, rows: Sequence[Graded]) -> None:
        """Store grades by request and answering model; raise `LedgerError` if that fails."""
        self._rows.update({one[:6]: one for one in rows})
        if self._keep is not None and rows:
            self._keep(rows)

    def of_job(self, job: str, endpoint: str) -> list[Graded]:
        return [one for one in self._rows.values() if (one.job, one.endpoint) == (job, endpoint)]

    def add(self, record: RunRecord, answered: Answered, grade: Grade) -> None:
        self._grades.setdefault(grade_key(record, answered.result), {})[grade.target, grade.grader] = grade

    def of(self, record: RunRecord, result: AgentResult) -> tuple[Grade, ...]:
        if record.forecast is not None:
            return ()
        return tuple(self._grades.get(grade_key(record, result), {}).values())


def grade_key(record: RunRecord, result: AgentResult) -> str:
    """Return a key with the row: rows with equal requests may have different truths."""
    answer, number = answer_key(record, result), record.plan.number(result.name)
    part = record.plan.agents[number].part
    if part is None or result.status != "succeeded" or record.redacted:
        return answer
    row = _row_of(record, number) if part.has_item else ()
    places = [part.key]
    while (part := part.outer) is not None:
        places.append(part.key)
    known = fingerprint([places, *row])
    return digest(f"{answer} {known or f'{record.uid} {result.name}'}")


def answer_key(record: RunRecord, result: AgentResult) -> str:
    """Return the fingerprint of request and answer, or else the run and its step."""
    if result.status != "succeeded" or not result.attempts:
        return f"{record.uid} {result.name}"
    asked = result.attempts[0].request.key(record.origin)
    return hashlib.sha256(f"{asked}\n{result.text}".encode("utf-8", "surrogatepass")).hexdigest()


def answers_of(record: RunRecord, target: str) -> list[Answered]:
    """Return the answers of an agent, a group, or a field of theirs (`label.sentiment`)."""
    if not isinstance(target, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DeclarationError(f"target must be an agent, or agent.field, got {shown_value(target)}.")
    if record.forecast is not None:
        raise AgentMagicError("A forecast has no answers to grade. Run it: await run.trial(...) asks a sample.")
    name, *path = target.split(".")
    numbers = record.plan.numbers([name])
    if record.results[numbers[0]].is_task and record.results[numbers[0]].returns is None:
        raise DeclarationError(f"{name!r} is a task: no model answered.", hint="Grade an agent.")
    returns = record.results[numbers[0]].returns
    no_fields: list[str] = []
    if returns is not None:
        lacks = lacking(schema_of(returns.schema), path)
    else:
        lacks = ("", path[0], no_fields) if path else None
    if lacks is not None:
        fields = f"It has {', '.join(lacks[2])}." if lacks[2] else "It is text."
        raise DeclarationError(
            f"{name}{lacks[0]} has no field {lacks[1]!r}.", hint=fields + did_you_mean(lacks[1], lacks[2])
        )
    used = [number for number in numbers if record.results[number].status != "unused"]
    return [Answered(record.results[number], *_row_of(record, number), tuple(path)) for number in used]


def _row_of(record: RunRecord, number: int) -> tuple[Any, Any]:
    plan, part = record.plan, record.plan.agents[number].part
    if part is None or not part.has_item:
        return None if part is None else part.key, Row(plan.values)
    if not part.source or plan.flow is None:
        return part.key, part.item
    found = plan.flow.item_of(number, Returned(record))
    return found[KEY], as_item(found[ITEM])


def grade_by(answers: Sequence[Answered], target: str, grader: Grader, name: str = "") -> list[Grade]:
    if not callable(grader):
        hint = "Give grader=function, which takes (answer, row), or truth='column'."
        raise DeclarationError(f"grader must be a function, got {shown_value(grader)}.", hint=hint)
    name = name or grader_name(grader)
    check_signature(grader, name)
    found = [_graded(one, target, grader, name) for one in answers]
    mixed = any(one.measure == "mean" for one in found if one.error is None)
    return [one._replace(measure="mean") for one in found] if mixed else found


def grader_name(grader: Grader) -> str:
    return str(getattr(grader, "__name__", type(grader).__name__))


def check_signature(grader: Grader, name: str) -> None:
    try:
        inspect.signature(grader).bind(None, None)
    except ValueError:  # written in C, without a signature
        return
    except TypeError as error:
        hint = f"Write def {name if name.isidentifier() else 'right'}(answer, row): return ..."
        raise DeclarationError(f"grader {name} cannot be called with (answer, row): {error}.", hint=hint) from None


def _graded(one: Answered, target: str, grader: Grader, name: str) -> Grade:
    try:
        value = one.given
        said = run_user_code(lambda: grader(value, one.row), lambda error: AgentMagicError(reason_of(error)))
    except AgentMagicError as error:
        return Grade(target, name, "share", error=str(error))
    pair = cast("tuple[Any, ...]", said) if isinstance(said, tuple) else (said,)
    score, why = pair if len(pair) == 2 else (cast("Any", said), "")
    return grade_of(target, name, score, str(why))


def grade_of(target: str, name: str, score: Any, why: str = "", n: int = 1) -> Grade:
    """Grade a bool as a share, a number as a mean, anything else as an error."""
    score = score.item() if type(score).__module__ == "numpy" else score
    if isinstance(score, bool):
        return Grade(target, name, "share", float(score), why, n)
    if is_number(score) and math.isfinite(score):
        return Grade(target, name, "mean", float(score), why, n)
    return Grade(
        target,
        name,
        "share",
        None,
        why,
        n,
        f"the grader returned {shown_value(score)}, which is neither a number nor a bool",
    )


def summary_of(grades: Sequence[Grade], level: float = 0.95) -> Interval:
    """Return the mean of grades with the interval of their kind; errors do not count."""
    scores = [one.score for one in grades if one.score is not None]
    is_share = bool(grades) and all(one.measure == "share" for one in grades)
    if is_share:
        return share_interval(math.fsum(scores), len(scores), level)
    if len(scores) > 1 and grades[0].measure == "mean" and all(0 <= one <= 1 for one in scores):
        return bounded_interval(scores, level)
    return mean_interval(scores, level)


METRICS: Final[Mapping[Measure, str]] = {"share": "share", "mean": "mean", "error": "mean absolute error"}


def score_rows(grades: Sequence[Grade], metric: str = "") -> Iterator[dict[str, Any]]:
    first = grades[0]
    yield metric_row(first, metric or METRICS[first.measure], summary_of(grades), missing_of(grades))


class Missing(NamedTuple):
    """Numbers of answers without a grade: errors, and answers without a truth."""

    errors: int | None = None
    no_label: int | None = None


ELSEWHERE: Final = Missing()


def missing_of(grades: Sequence[Grade]) -> Missing:
    no_label = sum(one.error == NO_TRUTH for one in grades)
    return Missing(sum(one.error is not None for one in grades) - no_label, no_label)


def metric_row(grade: Grade, metric: str, found: Interval, missing: Missing = ELSEWHERE) -> dict[str, Any]:
    numbers = {"score": found.value, "low": found.low, "high": found.high}
    known = {name: None if math.isnan(value) else value for name, value in numbers.items()}
    return {
        "target": grade.target, "grader": grade.grader, "metric": metric, "n": found.n, **known, **missing._asdict(),
        "reads": reading(found),
    }  # fmt: skip


def reading(found: Interval) -> str:
    if found.n == 0:
        return "no answer graded"
    if math.isnan(found.low):
        return f"{found.value:.2f}, from one answer"
    if found.n < FEW:
        return f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f}), from only {found.n}"
    return f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})"


def keep_grades(
    record: RunRecord,
    book: GradeBook,
    answers: Sequence[Answered],
    grades: Sequence[Grade],
    rows: Iterable[Mapping[str, Any]],
) -> pd.DataFrame:
    for one, grade in zip(answers, grades, strict=True):
        book.add(record, one, grade)
    book.store([*_graded_rows(record, answers, grades)])
    frame = frame_of(rows, SCORE, record)
    has_score = len(frame) and frame["n"].iloc[0]
    first = f"{frame['metric'].iloc[0]} {frame['reads'].iloc[0]} (95 % interval)" if has_score else ""
    asked = [*{one.result.name: one.result for one in answers if one.result.attempts}.values()]  # rows may share one
    spent = total_cost(asked) if asked else None
    first += "" if spent is None or not first else f", {plural(len(asked), 'answer')} for {dollars(spent)}"
    frame.attrs["verdict"] = " · ".join(filter(None, [first, why_not(grades)]))
    frame.attrs |= on_the_run(record, "") | {"next": "run.scores has each grade, %agents trial tries models"}
    return frame


def why_not(grades: Iterable[Grade]) -> str:
    found = Counter(_NAMED.sub("", one.error) for one in grades if one.error is not None)
    no_label = found.pop(NO_TRUTH, 0)
    unlabelled = f"{plural(no_label, 'answer')} without a label." if no_label else ""
    return " ".join(filter(None, [_failed_words(found), unlabelled]))


def _failed_words(reasons: Counter[str]) -> str:
    if not reasons:
        return ""
    (reason, count), others = reasons.most_common(1)[0], len(reasons) - 1
    more = f" ({count:,}), and {plural(others, 'other reason')}" if others else ""
    return f"{plural(reasons.total(), 'answer')} not graded: {reason.rstrip('.')}{more}."


def _graded_rows(record: RunRecord, answers: Sequence[Answered], grades: Sequence[Grade]) -> Iterator[Graded]:
    for answered, grade in zip(answers, grades, strict=True):
        result, agent = answered.result, record.plan.agents[record.plan.number(answered.result.name)]
        if grade.score is None or result.model_used is None or isinstance(agent, Task):
            continue
        cost = None if result.is_served or result.source == "replay" else result.cost_usd
        asked = job_of(agent), record.origin, result.model_used, grade.target, grade.grader
        yield Graded(*asked, grade_key(record, result), grade.measure, grade.score, cost)


def scores_frame(record: RunRecord, book: GradeBook) -> pd.DataFrame:
    parts = [agent.part for agent in record.plan.agents]
    rows = [
        {"agent": result.name, "row": None if part is None else part.key, **grade._asdict()}
        for result, part in zip(record.results, parts, strict=True)
        for grade in book.of(record, result)
    ]
    return frame_of(rows, SCORES, record)
