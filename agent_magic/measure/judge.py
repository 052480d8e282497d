"""A model as judge: an ordinary agent per answer, planned, priced, recorded and limited as any other.

Models favour one place, so pairs are judged in both orders: a verdict that changes with the order is a tie.

Source: Zheng et al., "Judging LLM-as-a-Judge with MT-Bench and Chatbot Arena", 2023, section 3.4 (position bias).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from agent_magic.declare.agent import Agent
from agent_magic.declare.answers.reading import Fields
from agent_magic.declare.answers.returns import Returns
from agent_magic.declare.answers.schema import fields_of, schema_of, unwrapped
from agent_magic.declare.validation import check_name
from agent_magic.errors import DeclarationError, InvalidAnswer
from agent_magic.measure.scores import Grade, grade_of, score_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from agent_magic.measure.scores import Answered
    from agent_magic.record.results import AgentResult

GRADED: Final = "graded"
VERDICT: Final[dict[str, Any]] = {
    "type": "object",
    "title": "Verdict",
    "properties": {"why": {"type": "string"}, "ok": {"type": "boolean"}},
    "required": ["why", "ok"],
}
"""The reason comes first, so that the verdict follows from it."""
FIRST, SECOND, TIE = "first", "second", "tie"
BETTER: Final[dict[str, Any]] = {
    "type": "object",
    "title": "Comparison",
    "properties": {"why": {"type": "string"}, "better": {"type": "string", "enum": [FIRST, SECOND, TIE]}},
    "required": ["why", "better"],
}
NUMBERS: Final = ("boolean", "integer", "number")
ASKED: Final = "What was asked:\n<asked>\n{{ item.asked }}\n</asked>"
ONE: Final = "The answer to judge:\n<answer>\n{{ item.answer }}\n</answer>"
TWO: Final = "<first>\n{{ item.first }}\n</first>\n\n<second>\n{{ item.second }}\n</second>"


@dataclass(frozen=True, slots=True)
class Judge:
    """A model that grades answers: `await run.judge("report", am.judge("Is every claim supported?"))`."""

    question: str
    returns: Any = field(default=None, kw_only=True)
    model: str | None = field(default=None, kw_only=True)
    effort: str | None = field(default=None, kw_only=True)
    name: str = field(default="judge", kw_only=True)

    def __post_init__(self) -> None:
        check_name(self.name)
        returns = Returns.of(VERDICT if self.returns is None else self.returns, agent=self.name)
        object.__setattr__(self, "returns", returns)
        _score_field(returns)
        self.agent(pairs=False)

    def agent(self, *, pairs: bool) -> Agent:
        return Agent(
            self.name,
            f"{self.question}\n\n{ASKED}\n\n{TWO if pairs else ONE}",
            each=GRADED,
            returns=BETTER if pairs else self.returns,
            model=self.model,
            effort=self.effort,
        )


class Judging:
    """Sends the requests and returns the frame when awaited."""

    def __init__(self, ask: Callable[[], Coroutine[Any, Any, pd.DataFrame]], target: str) -> None:
        self._ask, self._target = ask, target

    def __await__(self) -> Generator[Any, None, pd.DataFrame]:
        return self._ask().__await__()

    def __repr__(self) -> str:
        target = repr(self._target)
        return (
            f"Nothing was asked yet: await run.score({target}, grader=...) asks the judge. "
            f"run.judge_plan({target}, ...).estimate() says what it costs."
        )


def judge(
    question: str, *, returns: Any = None, model: str | None = None, effort: str | None = None, name: str = "judge"
) -> Judge:
    """Declare a model as judge. Nothing is sent before `await run.judge(target, judge)`.

    Args:
        question: The question about each answer; `{{ item.row.column }}` is the answer's row.
        returns: The type of its verdict: a bool, a number, or a class with one of them, or with a field `score`.
            Default: a reason and a bool.
        model: Its model; None: the default of agents.
        effort: Its effort.
        name: Its name in `run.scores`.

    Raises:
        DeclarationError: The question is empty, or the type has no score.
    """
    return Judge(question, returns=returns, model=model, effort=effort, name=name)


def _score_field(returns: Returns) -> str:
    """Return the score field, empty for the whole answer; raise `DeclarationError` if missing or ambiguous."""
    schema = unwrapped(schema_of(returns.schema))
    if schema.get("type") in NUMBERS:
        return ""
    numbers = [name for name, each in fields_of(schema).items() if each.get("type") in NUMBERS]
    if "score" in numbers or len(numbers) == 1:
        return "score" if "score" in numbers else numbers[0]
    what = f"has {', '.join(numbers)}" if numbers else "has neither a number nor a bool"
    raise DeclarationError(f"The verdict {returns} {what}.", hint="Give it one field of that kind, or call it score.")


def to_judge(answers: Sequence[Answered]) -> dict[str, Any]:
    there = [one for one in answers if one.result.status == "succeeded"]
    return {GRADED: {one.result.name: {**_asked(one), "answer": _text(one)} for one in there}}


def to_compare(answers: Sequence[Answered], others: Sequence[Answered]) -> dict[str, Any]:
    known = {one.result.name: one for one in others if one.result.status == "succeeded"}
    items: dict[Any, Any] = {}
    for one in answers:
        name = one.result.name
        if one.result.status == "succeeded" and name in known:
            texts = _text(one), _text(known[name])
            for swapped in (False, True):
                first, second = reversed(texts) if swapped else texts
                items[name, swapped] = {**_asked(one), FIRST: first, SECOND: second}
    return {GRADED: items}


def _asked(one: Answered) -> dict[str, Any]:
    return {"asked": one.result.attempts[0].request.prompt, "row": one.row}


def _text(one: Answered) -> str:
    try:
        return str(one.value) if one.path else one.result.text
    except InvalidAnswer:
        return one.result.text


def judged(judge: Judge, target: str, answers: Sequence[Answered], said: Mapping[Any, AgentResult]) -> list[Grade]:
    name = _score_field(judge.returns)
    grades: list[Grade] = []
    for one in answers:
        result = said.get(one.result.name)
        verdict, error = _verdict(result, one)
        if verdict is None:
            grades.append(Grade(target, judge.name, "share", error=error))
            continue
        fields = _fields(verdict[0])
        score = fields.get(name) if name else verdict[0]
        why = next((fields[word] for word in ("why", "reason") if isinstance(fields.get(word), str)), "")
        grades.append(grade_of(target, judge.name, score, why))
    return grades


def compared(judge: Judge, target: str, answers: Sequence[Answered], said: Mapping[Any, AgentResult]) -> list[Grade]:
    """Grade 1 if better in both orders, 0 if worse in both, else 0.5."""
    grades: list[Grade] = []
    for one in answers:
        words: list[tuple[float, str]] = []
        error = None
        for swapped in (False, True):
            verdict, error = _verdict(said.get((one.result.name, swapped)), one)
            if verdict is None:
                break
            fields = _fields(verdict[0])
            won = {FIRST: not swapped, SECOND: swapped}.get(fields["better"])
            words.append((0.5 if won is None else float(won), str(fields["why"])))
        if len(words) < 2:
            grades.append(Grade(target, judge.name, "share", error=error, n=2))
            continue
        (here, why), (there, _) = words
        held = here == there
        grades.append(Grade(target, judge.name, "share", here if held else 0.5, why if held else SWAPPED, n=2))
    return grades


SWAPPED: Final = "a tie: with the order swapped the verdict was another"


def compared_rows(grades: Sequence[Grade]) -> Iterator[dict[str, Any]]:
    yield from score_rows(grades, "win rate")
    held = [g._replace(score=None if g.score is None else float(g.why != SWAPPED)) for g in grades]
    yield from score_rows(held, "same when swapped")


def _fields(verdict: Any) -> dict[str, Any]:
    return vars(verdict) if isinstance(verdict, Fields) else {}


def _verdict(result: AgentResult | None, one: Answered) -> tuple[tuple[Any] | None, str | None]:
    if result is None:
        missing = one.result.error or f"it is {one.result.status}"
        return None, missing if one.result.status != "succeeded" else "there is no answer to compare it with"
    if result.status != "succeeded":
        return None, f"the judge {result.status}: {result.error or ''}".rstrip(": ")
    try:
        return (result.meaning,), None
    except InvalidAnswer as error:
        return None, f"the judge's verdict cannot be read: {error}"
