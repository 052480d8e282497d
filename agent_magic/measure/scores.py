"""What answers are worth: each held against a known truth, or graded by a function or a judge.

A grade belongs to the answer that was graded: it is kept by the fingerprint of the request and the text of the answer,
so a run that was served the same answer has the same grade. No forecast has grades, since nobody has seen its answers.

Nothing is lost: an answer that could not be graded is a row whose `error` says why, and is counted in `errors`.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, cast

from agent_magic.declare.each import ITEM, KEY, Row, as_item
from agent_magic.declare.models import job_of
from agent_magic.declare.schema import lacking, schema_of
from agent_magic.declare.task import Task
from agent_magic.declare.units import plural
from agent_magic.declare.user_code import reason_of, run_user_code
from agent_magic.declare.validation import is_number
from agent_magic.declare.values import Fields, plain, read
from agent_magic.errors import AgentMagicError, DeclarationError, NoValue, did_you_mean, shown_value
from agent_magic.measure.frames import frame_of, on_the_run, table
from agent_magic.measure.intervals import Interval, bounded_interval, mean_interval, share_interval
from agent_magic.record.ledger.grades import Graded
from agent_magic.record.returned import Returned

if TYPE_CHECKING:
    import pandas as pd

    from agent_magic.measure.trial import Trial
    from agent_magic.record.results import AgentResult, RunRecord

Grader: TypeAlias = Callable[[Any, Any], Any]
"""Takes an answer and its row; returns a number, a bool, or one of them and why."""
Measure = Literal["share", "mean", "error"]
"""What the scores of a target are: 0 or 1; numbers; numbers of which less is better."""
Kind = Literal["choice", "number", "text"]
SCORE = table("target grader metric n score low high errors reads")
"""`run.score(...)`. `low` and `high` hold in 95 of 100 cases; `errors` have no grade; `reads` says it in words."""
SCORES = {"agent": "string", "row": "object", **table("target grader score why n error")}
"""`run.scores`. `n` is how often the grader was asked; `row` is the key of the row that the answer is for."""
_NAMED = re.compile(r"^Agent '[^']*' has no value: |\.? What came of it is in .*$")
"""What the error of an answer that never came says of its agent: left out, the reasons of many are one."""
FEW: Final = 30
"""Below so many answers the interval is what is said first: the number alone means little."""


class Grade(NamedTuple):
    """What one grader says of one answer.

    Attributes:
        target: What was graded, such as `label.sentiment`.
        grader: Who graded.
        measure: What `score` is.
        score: `None` where it could not be graded.
        why: The reason, where the grader gives one.
        n: How often the grader was asked.
        error: Why there is no score.
    """

    target: str
    grader: str
    measure: Measure
    score: float | None = None
    why: str = ""
    n: int = 1
    error: str | None = None


class Answered(NamedTuple):
    """An answer that can be graded.

    Attributes:
        result: Whose it is.
        key: The key of its row; `None` for an agent of its own.
        row: Its row, or the values of the plan.
        path: The fields that lead to what is graded.
    """

    result: AgentResult
    key: Any
    row: Any
    path: tuple[str, ...]

    @property
    def value(self) -> Any:
        """What is graded, as plain data. Raises `NoValue` or `InvalidAnswer` where there is none."""
        result = self.result
        if result.status != "succeeded":
            raise NoValue(result.name, (result.error or f"it is {result.status}").rstrip("."))
        if result.returns is None or result.is_task:
            return plain(_at(result.value, self.path))
        return plain(_at(read(result.returns.schema, result.text), self.path))

    @property
    def given(self) -> Any:
        """What a function is given: the value as the class of the user's makes it."""
        return _at(self.result.value, self.path)


def _at(value: Any, path: Sequence[str]) -> Any:
    for name in path:
        value = cast("Any", value)[name] if isinstance(value, Mapping | Fields) else getattr(value, name)
    return value


class GradeBook:
    """The grades of answers, in memory. Runs of one session share one.

    Args:
        keep: Stores grades for later sessions; `None` stores none.

    Attributes:
        trials: The trials of the session, each with the fingerprint of what was asked.
    """

    def __init__(self, keep: Callable[[Sequence[Graded]], None] | None = None) -> None:
        self.trials: list[tuple[str, Trial]] = []
        self._grades: dict[str, dict[tuple[str, str], Grade]] = {}
        self._rows: dict[tuple[str, ...], Graded] = {}
        self._keep = keep

    def store(self, rows: Sequence[Graded]) -> None:
        """Store grades by what was asked and which model answered.

        Raises:
            LedgerError: They could not be stored.
        """
        self._rows.update({one[:6]: one for one in rows})
        if self._keep is not None and rows:
            self._keep(rows)

    def of_job(self, job: str, endpoint: str) -> list[Graded]:
        """Return the grades of this session of what was asked of whom, whatever the model."""
        return [one for one in self._rows.values() if (one.job, one.endpoint) == (job, endpoint)]

    def add(self, record: RunRecord, answered: Answered, grade: Grade) -> None:
        """Keep a grade, in place of what this grader said of this answer before."""
        self._grades.setdefault(answer_key(record, answered.result), {})[grade.target, grade.grader] = grade

    def of(self, record: RunRecord, result: AgentResult) -> tuple[Grade, ...]:
        """Return the grades of an answer, in the order they were given. Those of a forecast are none."""
        if record.forecast is not None:
            return ()
        return tuple(self._grades.get(answer_key(record, result), {}).values())


def answer_key(record: RunRecord, result: AgentResult) -> str:
    """Return the fingerprint of an answer: of what was asked of whom, and what came. Without one, of its run."""
    if result.status != "succeeded" or not result.attempts:
        return f"{record.uid} {result.name}"
    asked = result.attempts[0].request.key(record.origin)
    return hashlib.sha256(f"{asked}\n{result.text}".encode("utf-8", "surrogatepass")).hexdigest()


def answers_of(record: RunRecord, target: str) -> list[Answered]:
    """Return the answers that a target names: an agent or a group, and behind dots the fields of a typed answer.

    Args:
        record: The run.
        target: Such as `report` or `label.sentiment`.

    Raises:
        UnknownAgent: The run has no such agent or group.
        DeclarationError: It is a task, or its answers have no such field.
        AgentMagicError: It is a forecast.
    """
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
    """Return the key and the row that an agent was asked for: for an agent of its own, none and the plan's values."""
    plan, part = record.plan, record.plan.agents[number].part
    if part is None or not part.has_item:
        return None if part is None else part.key, Row(plan.values)
    if not part.source or plan.flow is None:
        return part.key, part.item
    found = plan.flow.item_of(number, Returned(record))
    return found[KEY], as_item(found[ITEM])


def grade_by(answers: Sequence[Answered], target: str, grader: Grader, name: str = "") -> list[Grade]:
    """Grade answers by a function.

    Args:
        answers: The answers.
        target: What they are.
        grader: The function.
        name: What it is called; by default its own name.

    Raises:
        DeclarationError: It is no function.
    """
    if not callable(grader):
        hint = "Give grader=function, which takes (answer, row), or truth='column'."
        raise DeclarationError(f"grader must be a function, got {shown_value(grader)}.", hint=hint)
    name = name or grader_name(grader)
    check_signature(grader, name)
    found = [_graded(one, target, grader, name) for one in answers]
    mixed = any(one.measure == "mean" for one in found if one.error is None)
    return [one._replace(measure="mean") for one in found] if mixed else found


def grader_name(grader: Grader) -> str:
    """Return what a function is called."""
    return str(getattr(grader, "__name__", type(grader).__name__))


def check_signature(grader: Grader, name: str) -> None:
    """Raise `DeclarationError` where a function cannot be called with an answer and its row."""
    try:
        inspect.signature(grader).bind(None, None)
    except ValueError:  # written in C, and silent about what it takes
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
    """Return the grade that a grader's word means: a bool is a share, a number a mean, anything else an error.

    Args:
        target: What was graded.
        name: Who graded.
        score: What was said.
        why: The reason.
        n: How often the grader was asked.
    """
    score = score.item() if type(score).__module__ == "numpy" else score
    if isinstance(score, bool):
        return Grade(target, name, "share", float(score), why, n)
    if is_number(score) and math.isfinite(score):
        return Grade(target, name, "mean", float(score), why, n)
    return Grade(
        target, name, "share", None, why, n, f"the grader returned {shown_value(score)}, no number and no bool"
    )


def summary_of(grades: Sequence[Grade], level: float = 0.95) -> Interval:
    """Return the mean of grades with the interval that fits what they are.

    Args:
        grades: The grades of one grader; those with an error do not count.
        level: How often the interval holds.
    """
    scores = [one.score for one in grades if one.score is not None]
    is_share = bool(grades) and all(one.measure == "share" for one in grades)
    if is_share:
        return share_interval(math.fsum(scores), len(scores), level)
    if len(scores) > 1 and grades[0].measure == "mean" and all(0 <= one <= 1 for one in scores):
        return bounded_interval(scores, level)
    return mean_interval(scores, level)


METRICS: Final[Mapping[Measure, str]] = {"share": "share", "mean": "mean", "error": "mean absolute error"}


def score_rows(grades: Sequence[Grade], metric: str = "") -> Iterator[dict[str, Any]]:
    """Yield the row of one grader."""
    errors = sum(one.error is not None for one in grades)
    first = grades[0]
    yield metric_row(first, metric or METRICS[first.measure], summary_of(grades), errors)


def metric_row(grade: Grade, metric: str, found: Interval, errors: int | None = None) -> dict[str, Any]:
    """Return the row of a metric.

    Args:
        grade: A grade of those it is of.
        metric: What is counted.
        found: The score.
        errors: How many answers have no grade; `None` where that is said elsewhere.
    """
    numbers = {"score": found.value, "low": found.low, "high": found.high}
    known = {name: None if math.isnan(value) else value for name, value in numbers.items()}
    return {
        "target": grade.target, "grader": grade.grader, "metric": metric, "n": found.n, **known, "errors": errors,
        "reads": reading(found),
    }  # fmt: skip


def reading(found: Interval) -> str:
    """Say a score in words: from few answers the interval first, since the number alone means little."""
    if found.n == 0:
        return "no answer graded"
    if math.isnan(found.low):
        return f"{found.value:.2f}, from one answer"
    if found.n < FEW:
        return f"{found.low:.2f} to {found.high:.2f}, from only {found.n}"
    return f"{found.value:.2f}, {found.low:.2f} to {found.high:.2f}"


def keep_grades(
    record: RunRecord,
    book: GradeBook,
    answers: Sequence[Answered],
    grades: Sequence[Grade],
    rows: Iterable[Mapping[str, Any]],
) -> pd.DataFrame:
    """Keep grades of answers, and return one row per metric; columns are `SCORE`. What nobody knows is `NA`."""
    for one, grade in zip(answers, grades, strict=True):
        book.add(record, one, grade)
    book.store([*_graded_rows(record, answers, grades)])
    frame = frame_of(rows, SCORE, record)
    has_score = len(frame) and frame["n"].iloc[0]
    first = f"{frame['metric'].iloc[0]} {frame['reads'].iloc[0]} (95 % interval)" if has_score else ""
    frame.attrs["verdict"] = " · ".join(filter(None, [first, why_not(grades)]))
    frame.attrs |= on_the_run(record, "") | {"next": "run.scores has each grade, %agents trial tries models"}
    return frame


def why_not(grades: Iterable[Grade]) -> str:
    """Say why answers have no grade, the most frequent reason first; empty where all have one."""
    reasons = Counter(_NAMED.sub("", one.error) for one in grades if one.error is not None)
    if not reasons:
        return ""
    (reason, count), others = reasons.most_common(1)[0], len(reasons) - 1
    more = f" ({count:,}), and {plural(others, 'other reason')}" if others else ""
    return f"{plural(reasons.total(), 'answer')} not graded: {reason.rstrip('.')}{more}."


def _graded_rows(record: RunRecord, answers: Sequence[Answered], grades: Sequence[Grade]) -> Iterator[Graded]:
    """Yield the rows by which a later session chooses a model: of answers that have a grade, once each."""
    for answered, grade in zip(answers, grades, strict=True):
        result, agent = answered.result, record.plan.agents[record.plan.number(answered.result.name)]
        if grade.score is None or result.model_used is None or isinstance(agent, Task):
            continue
        cost = None if result.is_served or result.source == "replay" else result.cost_usd
        asked = job_of(agent), record.origin, result.model_used, grade.target, grade.grader
        yield Graded(*asked, answer_key(record, result), grade.measure, grade.score, cost)


def scores_frame(record: RunRecord, book: GradeBook) -> pd.DataFrame:
    """Return one row per answer and grader, in plan order; columns are `SCORES`."""
    parts = [agent.part for agent in record.plan.agents]
    rows = [
        {"agent": result.name, "row": None if part is None else part.key, **grade._asdict()}
        for result, part in zip(record.results, parts, strict=True)
        for grade in book.of(record, result)
    ]
    return frame_of(rows, SCORES, record)
