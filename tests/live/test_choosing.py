"""`--model auto`: rules, grades that a later session finds, and a choice that stays with its plan."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import Any, Literal

import pytest
from pydantic import create_model

from agent_magic import Tool
from agent_magic.api import Agent, Claude, Ledger, Plan, Session, TokenPrice
from agent_magic.api.choosing import ENOUGH, choose, is_worse, with_models
from agent_magic.declare import job_of
from agent_magic.errors import DeclarationError
from agent_magic.measure import share_interval
from agent_magic.providers import EVERYTHING, Provider, Stream
from agent_magic.record import Answer, Request, Usage
from agent_magic.record.ledger.reviews import Graded
from agent_magic.record.prices import context_window

SMALL, MIDDLE, LARGE = "claude-haiku-5-5", "claude-sonnet-5-5", "claude-opus-5-5"
AGENT = Agent("label", "Good or bad? {{ text }}", model="auto")


class Says(Provider):
    """Answers the same at once."""

    capabilities = EVERYTHING
    endpoint, is_limited = "here", False

    def __init__(self, text: str) -> None:
        self.text = text

    async def send(self, request: Request, stream: Stream) -> Answer:
        """Answer."""
        stream.add(self.text)
        return Answer(self.text, "end_turn", usage=Usage(10, output_tokens=2), model=request.model, source="live")


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Claude:
    """The API itself, which is never asked."""
    monkeypatch.delenv("ANTHROPIC_BASE_URL", raising=False)
    return Claude(api_key="not-a-key")


def grades(session: Session, agent: Agent, model: str, right: int, n: int = 40, **more: float) -> None:
    """Grade answers of a model: some right, the others wrong."""
    where = job_of(agent), session.client.endpoint, model, agent.name, "truth"
    session.grades.store([Graded(*where, f"{model} {one}", "share", float(one < right), **more) for one in range(n)])


def test_without_grades_the_cheapest_is_chosen_and_what_would_tell_more_is_said(api):
    """With how many answers to grade, and what that costs at most."""
    found = choose(AGENT, Session(client=api), 100)
    assert SMALL == found.model
    assert f"grade {ENOUGH} answers of {SMALL}" in found.why
    assert "at most $0.0207" in found.why


@pytest.mark.parametrize(
    ("needs", "chosen"), [("reasoning", MIDDLE), ("vision", SMALL), ("reasoning,vision", MIDDLE), ("", SMALL)]
)
def test_what_needs_reasoning_asks_the_second_cheapest(needs, chosen, api):
    """While nothing was graded; all models of the API see pictures."""
    agent = Agent("a", "Why?", model="auto", needs=needs)
    assert chosen == choose(agent, Session(client=api), 100).model


def fields(n: int) -> Any:
    """Return a type of `n` fields, one of them a list of another type of `n` fields."""
    texts: Any = dict.fromkeys((f"text_{one}" for one in range(1, n)), str)
    return create_model("Outer", rows=list[create_model("Inner", row=int, **texts)], **texts)


@pytest.mark.parametrize(
    ("options", "tokens", "chosen", "why"),
    [
        ({}, 31_999, SMALL, "the cheapest, as nothing in its length, tools and type is hard; nothing was graded"),
        ({}, 32_000, MIDDLE, "its prompt has about 32,000 tokens, and this is the second cheapest"),
        ({"tools": 2, "returns": fields(5)}, 9, SMALL, "nothing in its length, tools and type is hard"),
        ({"tools": 3}, 9, MIDDLE, "it chooses among 3 tools"),
        ({"returns": fields(6)}, 9, MIDDLE, "its answer has 12 fields"),
        ({"returns": Literal["yes", "no"]}, 9, SMALL, "nothing in its length, tools and type is hard"),
        ({"needs": "reasoning", "tools": 3}, 9, MIDDLE, "it needs reasoning"),
    ],
)
def test_what_is_hard_asks_the_second_cheapest_and_the_ground_is_said(options, tokens, chosen, why, api):
    """Length, tools and fields, counted in nested types too; until grades tell."""
    session = Session(client=api)
    tools = [Tool(f"t{n}", "x", "{}", len) for n in range(options.get("tools", 0))]
    agent = Agent("a", "Why?", model="auto", **{**options, "tools": tools})
    found = choose(agent, session, tokens)
    assert chosen == found.model
    assert why in found.why
    for model in (SMALL, MIDDLE):
        grades(session, agent, model, 40)
    assert SMALL == choose(agent, session, tokens).model


@pytest.mark.parametrize(
    ("right", "chosen"),
    [((20, 39, 40), MIDDLE), ((39, 40, 40), SMALL), ((10, 20, 40), LARGE), ((40, 40, 40), SMALL)],
)
def test_the_cheapest_that_is_not_known_to_be_worse_is_chosen(right, chosen, api):
    """Measured scores count before all else, and stand in the reason."""
    session = Session(client=api)
    for model, one in zip((SMALL, MIDDLE, LARGE), right, strict=True):
        grades(session, AGENT, model, one)
    found = choose(AGENT, session, 100)
    assert chosen == found.model
    assert f"{SMALL} {right[0] / 40:.2f}" in found.why


def test_measured_dollars_count_before_the_order_of_the_list(api):
    """A model with cheaper tokens may need more of them."""
    session = Session(client=api)
    for model, cost in ((SMALL, 0.02), (MIDDLE, 0.01)):
        grades(session, AGENT, model, 38, cost_usd=cost)
    assert MIDDLE == choose(AGENT, session, 100).model


@pytest.mark.parametrize("n", [0, ENOUGH - 1])
def test_one_graded_model_chooses_nothing(n, api):
    """Neither do a few answers of another one: what is known is said, and what is missing."""
    session = Session(client=api)
    grades(session, AGENT, SMALL, 10)
    grades(session, AGENT, MIDDLE, n, n)
    found = choose(AGENT, session, 100)
    assert SMALL == found.model
    assert "0.25 (0.14 to 0.40)" in found.why
    assert f"grade {ENOUGH} answers of {MIDDLE}" in found.why


def test_grades_of_another_prompt_or_of_errors_do_not_mislead(api):
    """A job is what is asked; of errors less is better."""
    session = Session(client=api)
    grades(session, Agent("label", "Another question."), LARGE, 40)
    for model, off in ((SMALL, 3.0), (MIDDLE, 0.5)):
        where = job_of(AGENT), session.client.endpoint, model, "label", "truth"
        session.grades.store([Graded(*where, f"{model} {one}", "error", off + one % 2) for one in range(30)])
    found = choose(AGENT, session, 100)
    assert MIDDLE == found.model
    assert LARGE not in found.why


def test_a_prompt_that_does_not_fit_leaves_a_model_out(api):
    """By the context windows of the price list."""
    agent = Agent("a", "Sum it up.", model="auto:claude-haiku-4-5,claude-sonnet-5-5")
    window = context_window("claude-haiku-4-5")
    assert window == 200_000
    found = choose(agent, Session(client=api), window)
    assert MIDDLE == found.model
    assert "claude-haiku-4-5" in found.why


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"model": "auto:one"}, "two or more"),
        ({"model": SMALL, "needs": "reasoning"}, "nothing to choose"),
        ({"model": "auto", "needs": "speed"}, "needs of agent 'a' must be one of reasoning, vision"),
        ({"model": SMALL, "fallback": "auto"}, "in a list of models"),
    ],
)
def test_a_choice_that_is_none_is_said_when_it_is_declared(options, why):
    """Before anything is planned."""
    with pytest.raises(DeclarationError, match=why):
        Agent("a", "Hello.", **options)


def test_a_provider_without_choices_has_them_named(api):
    """Nobody knows what a server of one's own has; a wrong name among candidates is told too."""
    server = Session(client=Claude(base_url="http://127.0.0.1:11434"))
    with pytest.raises(DeclarationError, match="--model auto:SMALL,LARGE"):
        choose(AGENT, server, 1)
    assert choose(Agent("a", "x", model="auto:one,two"), server, 1).model == "one"
    with pytest.raises(DeclarationError, match="no model 'haiku'"):
        choose(Agent("a", "x", model=f"auto:haiku,{LARGE}"), Session(client=api), 1)


def test_a_later_session_chooses_by_the_grades_of_the_ledger(tmp_path):
    """What was graded is kept; an answer graded twice counts once."""
    rows = [{"text": f"text {one}", "truth": "good"} for one in range(ENOUGH)]
    models = {SMALL: "bad", MIDDLE: "good"}
    choice = f"auto:{SMALL},{MIDDLE}"
    path = tmp_path / "kept.sqlite3"
    for model, says in models.items():
        with closing(Ledger(path)) as ledger:
            session = Session(client=Says(says), ledger=ledger)
            plan = Plan([Agent("label", "Good or bad? {{ item.text }}", model=model, each="rows")], {"rows": rows})
            run = asyncio.run(plan.run(session=session))
            run.score("label", truth="truth")
            run.score("label", truth="truth")
    with closing(Ledger(path)) as ledger:
        session = Session(client=Says("good"), ledger=ledger)
        plan = Plan([Agent("label", "Good or bad? {{ item.text }}", model=choice, each="rows")], {"rows": rows})
        run = asyncio.run(plan.run(session=session))
    first = run.agents.iloc[0]
    assert (MIDDLE, MIDDLE, "auto") == (first["model"], first["model_used"], first["model_asked"])
    assert f"{SMALL} 0.00 (0.00 to 0.16), from only {ENOUGH}" in first["model_reason"]


def test_a_choice_stays_with_its_run(tmp_path):
    """A replay has the model that was asked whatever was graded since, and a forecast forecasts it."""
    plan = Plan([Agent("a", "Hello.", model=f"auto:{MIDDLE},{SMALL}")])
    prices = {name: TokenPrice(1, 5) for name in (SMALL, MIDDLE)}
    run = asyncio.run(plan.run(client=Says("yes"), prices=prices))
    run.save(tmp_path / "run.jsonl")
    swapped = Plan([Agent("a", "Hello.", model=f"auto:{SMALL},{MIDDLE}")])
    again = swapped.replay(tmp_path / "run.jsonl")
    assert [MIDDLE, MIDDLE] == [one["a"].model_used for one in (run.record, again.record)]
    forecast = run.whatif(concurrency=1)
    assert run.totals.cost_usd == pytest.approx(forecast.loc[0, "cost_usd"])


def test_a_plan_with_a_choice_can_be_written_as_a_cell(api):
    """With the model that was chosen: what it needs has been heeded."""
    plan = Plan([Agent("a", "Why?", model="auto", needs="reasoning")])
    assert "--model auto --needs reasoning" in plan.to_cell()
    chosen = with_models(plan, Session(client=api))
    assert f"## a --model {MIDDLE}\n" in chosen.to_cell()


def test_a_plan_as_json_keeps_its_choice():
    """A cassette and the ledger have the plan as JSON."""
    plan = Plan([Agent("a", "Hello.", model=SMALL, needs="reasoning", chosen="the cheapest")])
    kept = Plan.from_json(plan.to_json()).agents[0]
    assert (SMALL, ("reasoning",), "the cheapest") == (kept.model, kept.needs, kept.chosen)


@pytest.mark.parametrize("n", [20, 100])
def test_a_score_is_worse_only_beyond_both_intervals(n):
    """No score is worse than itself, none better is worse, and nothing right is worse than all right."""
    scores = [share_interval(hits, n) for hits in range(n + 1)]
    assert not any(is_worse(one, one) for one in scores)
    assert not any(is_worse(scores[-1], one) for one in scores)
    assert is_worse(scores[0], scores[-1])
