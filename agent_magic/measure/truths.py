"""Grades against truths: a choice is right or wrong, a number has an error, a text matches or not."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from agent_magic.declare.answers.lenient import is_decimal
from agent_magic.declare.answers.schema import choices_of, fields_of, reached, schema_of
from agent_magic.declare.units import plural
from agent_magic.declare.validation import is_number
from agent_magic.declare.values import plain_scalar, read_array, read_table
from agent_magic.errors import DeclarationError, InvalidAnswer, NoValue, did_you_mean, shown_value
from agent_magic.measure.each import form_of
from agent_magic.measure.intervals import share_interval
from agent_magic.measure.scores import (
    METRICS,
    NO_TRUTH,
    Answered,
    Grade,
    GradeBook,
    Grader,
    Kind,
    Measure,
    answers_of,
    grade_by,
    keep_grades,
    metric_row,
    missing_of,
    score_rows,
)

if TYPE_CHECKING:
    import pandas as pd

    from agent_magic.record.results import RunRecord

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


class Truths(NamedTuple):
    """Grades of answers with their truths; declared classes come first, `note` tells anything odd."""

    grades: list[Grade]
    kind: Kind
    pairs: list[tuple[Any, Any]]
    classes: list[Any]
    declared: list[Any]
    note: str


def grade_truth(answers: Sequence[Answered], target: str, truth: Any) -> Truths:
    """Grade against a column of the rows, values by row key, or one value for a single agent.

    A text is right if it is equal once normalised, as in Rajpurkar et al., "SQuAD", 2016, its evaluation script. Dates,
    times and durations of any class are compared as such; without a zone they are in UTC, as in `run.each`.
    """
    kind, classes, form = _kind_of(answers, target)
    find, name = _truth_finder(answers, truth)
    grades: list[Grade] = []
    pairs: list[tuple[Any, Any]] = []
    measure: Measure = "error" if kind == "number" else "share"
    for one in answers:
        wanted: Any = plain_scalar(find(one))
        if wanted is None or wanted != wanted or type(wanted).__name__ in {"NAType", "NaTType"}:  # noqa: PLR0124 - NaN
            grades.append(Grade(target, name, measure, error=NO_TRUTH))
            continue
        try:
            value = one.value
        except (NoValue, InvalidAnswer) as error:
            grades.append(Grade(target, name, measure, error=str(error)))
            continue
        wanted = wanted.value if isinstance(wanted, Enum) else wanted
        try:
            value, wanted = _as(form, value, "value"), _as(form, wanted, "truth")
        except ValueError as error:
            grades.append(Grade(target, name, measure, error=str(error)))
            continue
        grade = _compared(target, name, kind, value, wanted)
        grades.append(grade)
        if grade.error is None:
            pairs.append((wanted, value))
    known = dict.fromkeys(wanted for wanted, _ in pairs) if kind == "choice" else {}
    more = sorted((one for one in known if one not in classes), key=str)
    return Truths(grades, kind, pairs, [*classes, *more], classes, _foreign(target, more, classes, pairs))


def _foreign(target: str, more: Sequence[Any], classes: Sequence[Any], pairs: Sequence[tuple[Any, Any]]) -> str:
    if not more or not classes:
        return ""
    count, some = sum(wanted in more for wanted, _ in pairs), ", ".join(map(shown_value, more[:4]))
    words = f"{plural(count, 'truth')} of {len(pairs):,} can be no answer of {target}, and count as wrong: {some}."
    return words + _respelt(more, classes)


def _respelt(more: Sequence[Any], classes: Sequence[Any]) -> str:
    plain = {str(one).strip().casefold(): one for one in classes}
    found = [(one, plain[key]) for one in more if (key := str(one).strip().casefold()) in plain]
    return f" {shown_value(found[0][0])} is spelled otherwise than {shown_value(found[0][1])}." if found else ""


def _compared(target: str, name: str, kind: Kind, value: Any, wanted: Any) -> Grade:
    if value is None:
        return Grade(target, name, "error" if kind == "number" else "share", error="it has no value")
    if kind == "number":
        return Grade(target, name, "error", abs(float(value) - float(wanted)), f"{value:g}, truth {wanted:g}")
    same = value == wanted if kind == "choice" else normalised(value) == normalised(wanted)
    return Grade(target, name, "share", float(same), "" if same else f"{value}, truth {wanted}")


def _as(form: str, value: Any, what: str) -> Any:
    """Return a value or truth in the compared form; `ValueError` if it has none."""
    try:
        return value if value is None or form not in _FORMS else _FORMS[form](value)
    except (TypeError, ValueError, ArithmeticError):
        named = "date or time" if form.startswith("date") else form
        raise ValueError(f"its {what} {shown_value(value)} is no {named}") from None


def _number(value: Any) -> Any:
    if not is_number(value) and not isinstance(value, Decimal | Fraction):
        raise ValueError("no number")
    return value


def _moment(value: Any) -> Any:
    import pandas as pd

    if is_number(value):
        raise ValueError("no moment")
    found = pd.Timestamp(value)
    return found.tz_localize("UTC") if found.tz is None else found.tz_convert("UTC")


def _duration(value: Any) -> Any:
    import pandas as pd

    return pd.Timedelta(value)


_FORMS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "number": _number,
    "decimal": lambda value: Decimal(value) if isinstance(value, str) else _number(value),
    "date": _moment,
    "date-time": _moment,
    "duration": _duration,
}


def _kind_of(answers: Sequence[Answered], target: str) -> tuple[Kind, list[Any], str]:
    """Return how the target is graded, its declared classes, and the form that is compared."""
    returns = answers[0].result.returns
    if returns is None:
        return "text", [], ""
    schema = reached(schema_of(returns.schema), answers[0].path)[0]
    kind = form_of(schema)
    if (choices := choices_of(kind)) is not None:
        return "choice", [one for one in choices if one is not None], ""
    if is_decimal(schema):
        return "number", [], "decimal"
    found = {"boolean": "choice", "integer": "number", "number": "number", "string": "text"}.get(str(kind.get("type")))
    if found is None:
        fields = ", ".join(f"{target}.{name}" for name in fields_of(kind))
        hint = f"Name a field: {fields}." if fields else "Give a function: grader=lambda answer, row: ..."
        raise DeclarationError(f"{target} is no single value that a truth could be compared with.", hint=hint)
    form = "number" if found == "number" else str(kind.get("format") or "")
    return cast("Kind", found), [True, False] if kind.get("type") == "boolean" else [], form


def _truth_finder(answers: Sequence[Answered], truth: Any) -> tuple[Callable[[Answered], Any], str]:
    if answers[0].key is None and answers[0].result is answers[-1].result:
        return lambda _: truth, "truth"
    if isinstance(truth, str):
        row: Any = answers[0].row
        columns: list[str] = list(row) if hasattr(row, "keys") else []
        if truth not in columns:
            hint = (
                f"They have {', '.join(columns)}.{did_you_mean(truth, columns)}" if columns else "They have no columns."
            )
            raise DeclarationError(f"The rows have no column {truth!r}.", hint=hint)
        return lambda one: one.row[truth], truth
    found = by_agent(answers, truth)
    return lambda one: found.get(one.result.name), found.name


class ByAgent(dict[str, Any]):
    """The truths of rows by the names of their agents, and the name of the truths."""

    __slots__ = ("name",)

    def __init__(self, truths: Iterable[tuple[str, Any]], name: str) -> None:
        super().__init__(truths)
        self.name = name


def by_agent(answers: Sequence[Answered], truth: Any) -> ByAgent:
    """Return truths given by the rows' keys, or one for each row in order, by agent."""
    if isinstance(truth, ByAgent):
        return truth
    names, keys, given = [one.result.name for one in answers], [one.key for one in answers], truth
    if hasattr(truth, "to_dict"):  # of pandas
        given = truth.tolist() if _is_labelled(truth, keys) else truth.to_dict()
    if isinstance(given, Mapping):
        listed = [cast("dict[Any, Any]", given).get(key) for key in keys]
    else:
        table = read_table(given)
        listed = read_array(given) if table is None or table.ndim > 1 else table.tolist()
        listed = [*cast("Sequence[Any]", given)] if listed is None and isinstance(given, Sequence) else listed
    if listed is not None and len(listed) != len(answers):
        raise DeclarationError(f"truth has {len(listed)} values for {len(answers)} rows.", hint="Give one for each.")
    if listed is None:
        hint = "Give the name of a column, or values by the keys of the rows."
        message = f"truth={shown_value(cast('object', truth))} does not fit {len(answers)} answers."
        raise DeclarationError(message, hint=hint)
    return ByAgent(zip(names, listed, strict=True), str(getattr(truth, "name", None) or "truth"))


def _is_labelled(truth: Any, keys: Sequence[Any]) -> bool:
    """Return whether a series has a value for each row in their order; its labels are else unique."""
    import pandas as pd

    if truth.ndim > 1:
        raise DeclarationError("truth is a frame.", hint="Give one of its columns: truth=frame['column'].")
    same = truth.index.equals(pd.Index(keys))
    if not same and not truth.index.is_unique:
        hint = "Give its values in the order of the rows: truth.tolist()."
        raise DeclarationError("truth has labels twice, and not those of the rows in their order.", hint=hint)
    return same


def check_truths(found: Truths, target: str) -> None:
    if found.kind == "choice" and found.note and not any(wanted in found.declared for wanted, _ in found.pairs):
        hint = f"It is one of {', '.join(map(shown_value, found.declared))}."
        raise DeclarationError(f"No truth fits. {found.note}", hint=hint)
    if found.grades and all(one.error == NO_TRUTH for one in found.grades):
        raise DeclarationError(f"Every truth of {target} is unknown.", hint="Give another column, or fill this one.")


def normalised(value: object) -> str:
    """Return a text in lower case, without punctuation, articles and extra spaces."""
    return " ".join(_ARTICLES.sub(" ", str(value).casefold().translate(_NO_PUNCTUATION)).split())


def truth_rows(found: Truths) -> Iterator[dict[str, Any]]:
    first = found.grades[0]
    names = {"choice": "accuracy", "number": METRICS["error"], "text": "normalised match"}
    if found.kind == "text":
        exact = sum(str(value) == str(wanted) for wanted, value in found.pairs)
        yield metric_row(first, "exact match", share_interval(exact, len(found.pairs)), missing_of(found.grades))
    yield from score_rows(found.grades, names[found.kind])
    for one in found.classes:
        said = [wanted == one for wanted, value in found.pairs if value == one]
        true = [value == one for wanted, value in found.pairs if wanted == one]
        yield metric_row(first, f"precision {one}", share_interval(sum(said), len(said)))
        yield metric_row(first, f"recall {one}", share_interval(sum(true), len(true)))


def score_answers(
    record: RunRecord,
    book: GradeBook,
    target: str,
    *,
    truth: Any = None,
    grader: Grader | None = None,
    part: bool = False,
) -> pd.DataFrame:
    """Grade by a truth or a function, store the grades, and return a row per metric.

    `part` if these are a few of many answers: all their truths may fail to fit.
    """
    if (truth is None) == (grader is None):
        raise DeclarationError("run.score takes one of truth= and grader=.", hint="Such as truth='column'.")
    answers = answers_of(record, target)
    if grader is not None:
        grades = grade_by(answers, target, grader)
        return keep_grades(record, book, answers, grades, score_rows(grades))
    found = grade_truth(answers, target, truth)
    if not part:
        check_truths(found, target)
    frame = keep_grades(record, book, answers, found.grades, truth_rows(found))
    frame.attrs["verdict"] = " ".join(filter(None, [found.note, frame.attrs["verdict"]]))
    return frame
