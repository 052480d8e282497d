"""`--model auto`: the choice of an agent's model by rules, when its plan is frozen.

Candidates are the named ones, `auto:A,B`, or the provider's, cheapest first.

1. A model is excluded if its context window is too small for the prompt and the longest answer, or, with
   `--needs vision`, if the provider does not know how it sees pictures.
2. If two or more were graded by one grader on at least `ENOUGH` answers to the same prompt, the cheapest is chosen that
   is not known to be worse than the best: the interval of their difference reaches 0.
3. Otherwise the first is chosen, or the second if a rule of `HARD` applies.

The reason names the rule and missing grades. A choice is part of the frozen plan: replays and forecasts use it. Grades
come from `run.score`, `run.judge` and `run.trial`, in this session or the ledger.

Source of the tokens in `HARD`: Hsieh et al., "RULER: What's the Real Context Size of Your Long-Context Language
Models?", COLM 2024: of models that claim 32,000 tokens of context or more, half are good at that length. Its other
numbers are a first guess, which grades replace.

Source of the interval: Newcombe, "Interval Estimation for the Difference Between Independent Proportions", Statistics
in Medicine 17, 1998, method 10; for means Zou and Donner, same journal 27, 2008.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

from agent_magic.declare.agent import DEFAULT_MAX_TOKENS, Agent
from agent_magic.declare.answers.schema import fields_of, schema_of
from agent_magic.declare.declared import asked_apart, with_options
from agent_magic.declare.options import AUTO, candidates_of
from agent_magic.declare.step import job_of
from agent_magic.declare.units import dollars
from agent_magic.errors import DeclarationError
from agent_magic.live.ahead import foresee
from agent_magic.measure.intervals import Interval, mean_interval
from agent_magic.measure.scores import Grade, reading, summary_of
from agent_magic.record.answer import CHARS_PER_TOKEN, Usage
from agent_magic.record.ledger.reviews import Graded
from agent_magic.record.prices import context_window

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent_magic.api.session import Session
    from agent_magic.declare.answers.schema import Schema
    from agent_magic.declare.plan import Plan
    from agent_magic.engine.policy import Policy

ENOUGH = 20
"""Minimum graded answers of a model."""
P = TypeVar("P", bound="Plan")


@dataclass(frozen=True, slots=True)
class Rule:
    """What makes a job hard for the cheapest model."""

    number: Callable[[Agent, int], int]
    least: int
    words: str


def _fields(agent: Agent, _: int) -> int:
    """Count the fields of an answer, nested ones too."""
    found, todo = 0, list[Any]([schema_of(agent.schema)] if agent.schema else [])
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            found += len(fields_of(cast("Schema", one)))
            todo += cast("Schema", one).values()
        elif isinstance(one, list):
            todo += cast("list[Any]", one)
    return found


HARD: Final[tuple[Rule, ...]] = (
    Rule(lambda agent, _: "reasoning" in agent.needs, 1, "it needs reasoning"),
    Rule(lambda _, tokens: tokens, 32_000, "its prompt has about {:,} tokens"),
    Rule(lambda agent, _: len(agent.tools), 3, "it chooses among {:,} tools"),
    Rule(_fields, 12, "its answer has {:,} fields"),
)
"""The first rule that applies chooses the second cheapest model, while there are too few grades."""


class Choice(NamedTuple):
    """A model, and why it was chosen."""

    model: str
    why: str


class Measured(NamedTuple):
    """Grades of one model's answers; `NaN` for an unknown mean cost."""

    score: Interval
    cost_usd: float
    reads: str


def with_models(plan: P, session: Session, recorded: Mapping[str, str] | None = None) -> P:
    """Choose a model for every agent; those of a cassette win over the rules."""
    choices = {one for one in {*plan.models} if candidates_of(one) is not None}
    if not choices:
        return plan
    open_ = [number for number, one in enumerate(plan.models) if one in choices]
    requests = foresee(plan, session.client)[0]
    jobs: dict[tuple[str, str | None], list[int]] = {}
    for number in open_:
        agent = _agent(plan, number)
        jobs.setdefault((job_of(agent), agent.model), []).append(number)
    changes: dict[int, dict[str, object]] = {}
    for numbers in jobs.values():
        agent = _agent(plan, numbers[0])
        replayed = (recorded or {}).get(agent.name)
        sizes = [sum(map(len, requests[number].texts())) // CHARS_PER_TOKEN for number in numbers]
        found = Choice(replayed, "as recorded") if replayed else choose(agent, session, max(sizes))
        options: dict[str, object] = {"model": found.model, "chosen": found.why}
        changes |= dict.fromkeys(numbers, options)
    return with_options(type(plan), plan, changes)


def as_asked(plan: P, policy: Policy, session: Session) -> P:
    """Return a plan as it is asked: with models, and equal rows of a group as the policy says."""
    plan = with_models(plan, session)
    return asked_apart(type(plan), plan) if policy.identical == "each" else plan


def choose(agent: Agent, session: Session, prompt_tokens: int) -> Choice:
    named = candidates_of(agent.model) or session.client.choices
    session.check_models(named)
    if not named:
        hint = f"Name them, from cheap to dear: --model {AUTO}:SMALL,LARGE."
        raise DeclarationError(f"{session.client.endpoint} does not say which models it has.", hint=hint)
    usage = Usage(prompt_tokens, output_tokens=agent.max_tokens or DEFAULT_MAX_TOKENS)
    fitting = [one for one in named if _fits(one, agent, session, usage)]
    if not fitting:
        why = f"None of {', '.join(named)} can do what agent {agent.name!r} needs"
        raise DeclarationError(f"{why}: about {prompt_tokens:,} tokens of prompt.", hint="Name others, or shorten it.")
    few = "" if len(fitting) == len(named) else f"; too small: {', '.join(one for one in named if one not in fitting)}"
    measured = _measured(session.graded(job_of(agent)), fitting)
    if len(measured) > 1:
        return _by_grades(fitting, measured, few)
    grounds = (one.words.format(n) for one in HARD if (n := one.number(agent, prompt_tokens)) >= one.least)
    ground = next(grounds, "")
    place = min(1, len(fitting) - 1) if ground else 0
    easy = "the cheapest, as nothing in its length, tools and type is hard"
    rule = f"{ground}, and this is the second cheapest" if ground else easy
    if len(fitting) == 1:
        return Choice(fitting[0], f"the only one that fits{few}")
    missing = next(one for one in (fitting[place], *fitting) if one not in measured)
    most = session.price_book(lambda _: None).of(missing, usage).cost_usd
    known = "".join(f"; {name}: {one.reads}" for name, one in measured.items())
    ask = f"grade {ENOUGH} answers of {missing} to choose by score: at most {dollars(most and most * ENOUGH)}"
    return Choice(fitting[place], f"{rule}{few}{known or '; nothing was graded'}; {ask}")


def _by_grades(fitting: Sequence[str], measured: Mapping[str, Measured], few: str) -> Choice:
    """Choose the cheapest model that is not known to be worse than the best."""
    best = max(measured.values(), key=lambda one: one.score.value)
    good = [one for one in fitting if one in measured and not is_worse(measured[one].score, best.score)]
    costs = [measured[one].cost_usd for one in good]
    model = good[0] if any(map(math.isnan, costs)) else good[costs.index(min(costs))]
    words = "; ".join(f"{one} {measured[one].reads} (n {measured[one].score.n})" for one in fitting if one in measured)
    return Choice(model, f"the cheapest that is not known to be worse: {words}{few}")


def is_worse(one: Interval, best: Interval) -> bool:
    """Return whether a score is significantly lower than another one, by their intervals."""
    return best.value - one.value > math.hypot(one.high - one.value, best.value - best.low)


def _fits(model: str, agent: Agent, session: Session, usage: Usage) -> bool:
    window = context_window(model)
    if "vision" in agent.needs and session.client.token_rule(model) is None:
        return False
    return window is None or (usage.total_input_tokens or 0) + (usage.output_tokens or 0) <= window


def _measured(rows: Sequence[Graded], models: Sequence[str]) -> dict[str, Measured]:
    """Return the models' latest grades, by the target and grader that cover most of them."""
    by_grader: dict[tuple[str, str], dict[str, list[Graded]]] = {}
    for row in rows:
        if row.model in models:
            by_grader.setdefault((row.target, row.grader), {}).setdefault(row.model, []).append(row)
    known = [{name: one for name, one in each.items() if len(one) >= ENOUGH} for each in by_grader.values()]
    best = max(reversed(known), key=len, default=dict[str, list[Graded]]())
    return {name: _measure(found) for name, found in best.items()}


def _measure(rows: Sequence[Graded]) -> Measured:
    sign = -1.0 if rows[0].measure == "error" else 1.0
    measure = "share" if rows[0].measure == "share" else "mean"
    score = summary_of([Grade("", "", measure, sign * one.score) for one in rows])
    costs = [one.cost_usd for one in rows if one.cost_usd is not None]
    shown = score if sign > 0 else score._replace(value=-score.value, low=-score.high, high=-score.low)
    return Measured(score, mean_interval(costs).value, reading(shown))


def _agent(plan: Plan, number: int) -> Agent:
    found = plan.agents[number]
    if not isinstance(found, Agent):
        raise TypeError(found)
    return found
