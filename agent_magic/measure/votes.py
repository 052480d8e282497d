"""Several answers to one question: the majority, and the best one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from agent_magic.declare.user_code import reason_of, run_user_code
from agent_magic.errors import DeclarationError
from agent_magic.measure.each import ANSWER, OF_EACH, OF_SEVERAL

if TYPE_CHECKING:
    import pandas as pd

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
