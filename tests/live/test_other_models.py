"""Agents that ask other models: in place of one that does not answer, and after one that is not sure."""

# Tests take for granted what they have just made.
# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportOperatorIssue=false

from __future__ import annotations

import json
from contextlib import closing
from itertools import groupby
from typing import TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magic import Agent, Policy, compare
from agent_magic.api import Ledger, Plan, Run
from agent_magic.declare import DEFAULT_MODEL
from agent_magic.engine import Pacer
from agent_magic.errors import DeclarationError, Overloaded, Rejected, UndefinedField
from agent_magic.forecast.whatif import nearby
from agent_magic.live import Earlier
from agent_magic.show.states import tone_of
from tests.live.virtual import Reply, Scripted, drive

CHEAP, DEAR, OTHER = "claude-haiku-5-5", "claude-sonnet-5-5", "claude-opus-5-5"
SEEDED = Policy(4, seed=1)


class Label(TypedDict):
    """A typed answer."""

    word: str
    confidence: float


def look_up(word: str) -> str:
    """Look a word up."""
    return word


class ByModel(Scripted):
    """Answers by the model that is asked."""

    async def send(self, request, stream):
        """Answer as the script says of the model, the prompt and the count of requests to that model."""
        self.asked.append(request)
        number = sum(one.model == request.model for one in self.asked)
        self.running += 1
        try:
            return await self._play(self.script(request.model, request.prompt, number), request, stream)
        finally:
            self.running -= 1


def full(*models, error=None):
    """A service in which these models do not answer."""
    failing = error or Overloaded("full", status=529)

    def script(model, _prompt, _number):
        return Reply(0.25, failing, status=529) if model in models else Reply(2.0, text=f"by {model}")

    return ByModel(script)


def sure(**confidences):
    """A service whose cheap model is as sure of each prompt as this says, and whose dear one is of all."""

    def script(model, prompt, _number):
        found = confidences[prompt] if model == CHEAP else 0.9
        return Reply(
            1.0 if model == CHEAP else 3.0, first_s=0.25, text=json.dumps({"word": model, "confidence": found})
        )

    return ByModel(script)


def agents(*prompts, **options):
    """An agent for each prompt, of that name."""
    return Plan([Agent(prompt, prompt, **options) for prompt in prompts])


def cascade(*prompts, **more):
    """An agent for each prompt, cheap first."""
    given = {"escalate": "answer.confidence < 0.7", **more}
    return agents(*prompts, cascade=[CHEAP, DEAR], returns=Label, **given)


def same_as_forecast(record):
    """Hold a run against the forecast of it where nothing changes: to the last bit."""
    found = Run(record).forecast().record
    for one, other in zip(record.results, found.results, strict=True):
        rows = [[(a.model, a.kind, a.started_s, a.ended_s, a.price) for a in each.attempts] for each in (one, other)]
        assert rows[0] == rows[1]
        assert (one.status, one.finished_s) == (other.status, other.finished_s)
        assert (one.model, one.model_used) == (other.model, other.model_used)


def test_a_fallback_answers_when_the_attempts_are_used_up():
    """The model is asked as often as the policy says, then the next one at once; the row says who answered."""
    record, client = drive(agents("a", model=CHEAP, fallback=DEAR), full(CHEAP), SEEDED)
    assert [CHEAP] * 3 + [DEAR] == [one.model for one in client.asked]
    result = record["a"]
    assert ("succeeded", CHEAP, DEAR) == (result.status, result.model, result.model_used)
    assert result.attempts[-1].granted_s == result.attempts[-2].ended_s
    row = Run(record).agents.iloc[0]
    assert (CHEAP, DEAR, "live") == (row["model"], row["model_used"], row["source"])
    assert "1 fell back" in str(Run(record))


def test_an_answer_is_priced_by_the_model_that_gave_it():
    """A fallback costs its own price."""
    record, _ = drive(agents("a", model=CHEAP, fallback=OTHER), full(CHEAP), SEEDED)
    alone, _ = drive(agents("a", model=OTHER), full(), SEEDED)
    assert alone["a"].cost_usd == pytest.approx(record["a"].cost_usd)


def test_a_model_that_is_gone_is_asked_once():
    """A 404 is final: the next model is asked at once, and every model in turn."""
    gone = Rejected("no such model", status=404)
    record, client = drive(agents("a", model=CHEAP, fallback=[DEAR, OTHER]), full(CHEAP, DEAR, error=gone), SEEDED)
    assert [CHEAP, DEAR, OTHER] == [one.model for one in client.asked]
    assert OTHER == record["a"].model_used


def test_without_another_model_it_fails_as_before():
    """When no fallback answers, the agent has failed with the last error."""
    record, client = drive(agents("a", model=CHEAP, fallback=DEAR), full(CHEAP, DEAR), Policy(1, max_attempts=1))
    assert ("failed", "Overloaded", None) == (record["a"].status, record["a"].kind, record["a"].model_used)
    assert [CHEAP, DEAR] == [one.model for one in client.asked]


def test_a_wrong_request_is_wrong_for_every_model():
    """Only what another model may mend is asked of one."""
    record, client = drive(
        agents("a", model=CHEAP, fallback=DEAR), full(CHEAP, error=Rejected("wrong", status=400)), SEEDED
    )
    assert ("failed", 1) == (record["a"].status, len(client.asked))


def test_a_conversation_stays_with_its_model():
    """When it was asked once more in its conversation, no other model goes on: its reasoning would be lost."""

    def script(_model, _prompt, number):
        return Reply(text="no label") if number == 1 else Reply(error=Overloaded("full", status=529))

    client = ByModel(script)
    record, _ = drive(agents("a", model=CHEAP, fallback=DEAR, returns=Label), client, SEEDED)
    assert "failed" == record["a"].status
    assert {CHEAP} == {one.model for one in client.asked}


def test_an_open_breaker_sends_others_to_their_fallback():
    """Who waits for a model that does not answer asks the next one, and nobody pays with attempts for that."""
    names = [f"a{n}" for n in range(12)]
    policy = Policy(2, max_attempts=1, breaker_share=0.1, seed=1)
    record, client = drive(agents(*names, model=CHEAP, fallback=DEAR), full(CHEAP), policy, pacer=Pacer(seed=1))
    assert {"succeeded"} == {one.status for one in record.results}
    assert sum(one.model == CHEAP for one in client.asked) < len(names)
    assert len(names) == sum(one.moved_by == "fell back" for one in record.results)


@pytest.mark.parametrize("pacer", [None, Pacer])
def test_a_forecast_of_fallbacks_is_the_run_to_the_last_bit(pacer):
    """The same engine decides: seconds, models and dollars of every attempt are the same."""
    plan = agents("a", "b", "c", model=CHEAP, fallback=DEAR)
    record, _ = drive(plan, full(CHEAP), Policy(2, seed=1), pacer=pacer and pacer(seed=1))
    same_as_forecast(record)


def test_cheap_first_and_dear_where_the_condition_says_so():
    """Both are on the bill, one row each; children take the last answer."""
    plan = cascade("easy", "hard")
    record, client = drive(
        Plan([*plan.agents, Agent("end", "{{ easy.word }} {{ hard.word }}")]),
        ByModel(
            lambda model, prompt, number: (
                sure(easy=0.9, hard=0.3).script(model, prompt, number) if prompt in {"easy", "hard"} else Reply()
            )
        ),
        SEEDED,
    )
    assert [CHEAP] == [one.model for one in record["easy"].attempts]
    assert [(CHEAP, "escalated"), (DEAR, "succeeded")] == [(one.model, one.status) for one in record["hard"].attempts]
    assert "Escalated: answer.confidence < 0.7" == record["hard"].attempts[0].error
    assert f"{CHEAP} {DEAR}" == client.asked[-1].prompt
    assert (1, 1) == (record["hard"].turns, record["hard"].attempts[-1].turn)
    paid = [one.price.cost_usd for one in record["hard"].attempts]
    assert min(paid) > 0
    assert sum(paid) == pytest.approx(record["hard"].cost_usd)
    assert "1 escalated" in str(Run(record))


def test_an_answer_that_does_not_fit_goes_to_the_next_model():
    """By its type or its check; only the last model is asked once more."""
    bad = "not json"
    client = ByModel(lambda _model, _prompt, _number: Reply(text=bad))
    record, _ = drive(cascade("a", escalate=None), client, SEEDED)
    assert [CHEAP, DEAR, DEAR] == [one.model for one in client.asked]
    assert ["Escalated", "InvalidAnswer", "InvalidAnswer"] == [one.kind for one in record["a"].attempts]


def test_a_failed_check_escalates():
    """A check needs no type."""
    plan = agents("a", cascade=[CHEAP, DEAR], check=lambda text: None if DEAR in text else "too cheap")
    record, _ = drive(plan, full(), SEEDED)
    assert ("succeeded", f"by {DEAR}") == (record["a"].status, record["a"].text)


def test_the_last_answer_is_passed_on_as_it_is():
    """Nobody is left to ask."""
    client = ByModel(lambda *_: Reply(text=json.dumps({"word": "w", "confidence": 0.1})))
    record, _ = drive(cascade("a"), client, SEEDED)
    assert ("succeeded", 2) == (record["a"].status, len(client.asked))


def test_a_condition_that_cannot_be_decided_fails_its_agent():
    """What is wrong is said, and no money goes to another model."""
    record, client = drive(cascade("a", escalate="answer.word < 1"), sure(a=0.5), SEEDED)
    assert ("failed", 1) == (record["a"].status, len(client.asked))
    assert "str" in record["a"].error


def test_a_field_that_the_answer_lacks_is_said_when_it_is_declared():
    """Found out while it runs, every cheap answer would have been paid for."""
    with pytest.raises(UndefinedField, match="no field 'sureness'"):
        cascade("a", escalate="answer.sureness < 1")


def test_a_forecast_of_a_cascade_is_the_run_to_the_last_bit():
    """Also with rate limits kept."""
    plan = cascade("a", "b", "c", "d")
    record, _ = drive(plan, sure(a=0.9, b=0.1, c=0.2, d=0.8), Policy(2, seed=1), pacer=Pacer(seed=1))
    same_as_forecast(record)


def test_a_whatif_of_one_model_leaves_the_cascade_out():
    """The cheap model alone costs what its own answers cost; the dear one alone no cheap attempts."""
    record, _ = drive(cascade("a", "b"), sure(a=0.9, b=0.1), SEEDED)
    cheap = Run(record).forecast(model=CHEAP).record
    assert [[CHEAP], [CHEAP]] == [[one.model for one in each.attempts] for each in cheap.results]
    paid = sum(one.price.cost_usd for one in record.attempts if one.model == CHEAP)
    assert paid == pytest.approx(sum(one.cost_usd for one in cheap.results))
    dear = Run(record).forecast(model=DEAR).record
    assert [[DEAR], [DEAR]] == [[one.model for one in each.attempts] for each in dear.results]


def test_rows_name_a_cascade_as_all_of_its_models():
    """What is as it was recorded is another row than its first model alone, in what-ifs and in comparisons."""
    base = Run(drive(cascade("a", "b"), sure(a=0.9, b=0.1), SEEDED)[0])
    both = f"{CHEAP} → {DEAR}"
    assert [both, CHEAP, DEAR] == list(base.whatif(model=[None, CHEAP, DEAR])["model"])
    assert [f"{DEAR} for b; {both} for the rest"] == list(base.whatif(model={"b": DEAR})["model"])
    assert {} == base.apply(base.whatif(model=[None, CHEAP]).iloc[0]).agents
    assert {"a", "b"} == set(base.apply(base.whatif(model=[None, CHEAP]).iloc[1]).agents)
    assert [None, CHEAP, DEAR] == nearby(base.record, [CHEAP, DEAR])["model"]
    alone = Run(drive(agents("a", "b", model=DEAR, returns=Label), sure(), SEEDED)[0])
    frame = compare(base, alone).frame.set_index("agent")
    assert [(both, DEAR)] * 2 == list(zip(frame["model_a"][:2], frame["model_b"][:2], strict=True))


def test_what_was_bought_of_a_cascade_is_not_bought_again(tmp_path):
    """After a stop between the cheap and the dear answer, only the dear one is asked."""
    plan, down = cascade("a"), Overloaded("full", status=529)

    def script(model, _prompt, _number):
        text = json.dumps({"word": "w", "confidence": 0.1})
        return Reply(text=text) if model == CHEAP else Reply(error=down)

    with closing(Ledger(tmp_path / "kept.sqlite3")) as ledger:
        first, _ = drive(plan, ByModel(script), SEEDED, ledger=ledger)
        again, client = drive(plan, sure(a=0.1), SEEDED, ledger=ledger)
    assert ("failed", "succeeded") == (first["a"].status, again["a"].status)
    assert [DEAR] == [one.model for one in client.asked]
    assert ["ledger", "live"] == [one.source for one in again["a"].attempts]


def test_a_run_that_goes_on_does_not_ask_the_cheap_model_again():
    """Without a ledger too: what was unsure is kept, whether the dear model answered then or failed."""
    plan, down = cascade("a", "b"), Overloaded("full", status=529)

    def script(model, prompt, _number):
        text = json.dumps({"word": "w", "confidence": 0.1})
        return Reply(text=text) if model == CHEAP or prompt == "b" else Reply(error=down)

    first, _ = drive(plan, ByModel(script), SEEDED)
    assert ["failed", "succeeded"] == [one.status for one in first.results]
    here = Earlier(first, first.origin, plan=plan)
    again, client = drive(plan, sure(a=0.1, b=0.1), SEEDED, earlier=here)
    assert [("a", DEAR)] == [(one.prompt, one.model) for one in client.asked]
    assert ["succeeded", "succeeded"] == [one.status for one in again.results]
    assert [True, True, False] == [one.is_served for one in (*again["b"].attempts[:2], again["a"].attempts[1])]
    assert again["a"].attempts[0].is_served
    anew = Earlier(first, first.origin, plan=plan, again=["a"])
    _, client = drive(plan, sure(a=0.9, b=0.9), SEEDED, earlier=anew)
    assert [("a", CHEAP)] == [(one.prompt, one.model) for one in client.asked]  # asked for by name, it begins anew


def test_a_later_run_asks_the_model_that_was_asked_for(tmp_path):
    """An answer of a fallback is not taken for one of the model; where that still fails, it is served, and said."""
    plan = agents("a", model=CHEAP, fallback=DEAR)
    with closing(Ledger(tmp_path / "kept.sqlite3")) as ledger:
        drive(plan, full(CHEAP), SEEDED, ledger=ledger)
        still, client = drive(plan, full(CHEAP), SEEDED, ledger=ledger)
        assert {CHEAP} == {one.model for one in client.asked}
        assert ("ledger", DEAR) == (still["a"].source, still["a"].model_used)
        back, client = drive(plan, full(), SEEDED, ledger=ledger)
    assert (CHEAP, "live") == (back["a"].model_used, back["a"].source)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"cascade": [CHEAP, CHEAP], "check": len}, "one model"),
        ({"cascade": CHEAP, "check": len}, "one model"),
        ({"cascade": [CHEAP, DEAR]}, "never escalates"),
        ({"escalate": "answer.x"}, "no cascade"),
        ({"cascade": [CHEAP, DEAR], "escalate": "other.x"}, "about 'other'"),
        ({"cascade": [CHEAP, DEAR], "escalate": "answer.word == 'x'"}, "a text has no field 'word'"),
        ({"cascade": [CHEAP, DEAR], "model": DEAR, "check": len}, "beside a cascade"),
        ({"cascade": [CHEAP, DEAR], "tools": [look_up], "check": len}, "call them again"),
    ],
)
def test_what_cannot_be_meant_is_said_when_it_is_declared(options, why):
    """Before anything is paid for."""
    with pytest.raises(DeclarationError, match=why):
        Agent("a", "Say it.", **options)


@pytest.mark.parametrize(
    ("options", "fallback"),
    [
        ({"model": CHEAP, "fallback": [CHEAP, DEAR, DEAR]}, (DEAR,)),
        ({"cascade": [CHEAP, DEAR, CHEAP], "check": len, "fallback": [DEAR, OTHER]}, (OTHER,)),
    ],
)
def test_each_model_is_asked_once(options, fallback):
    """A model that stands twice, in its own list or in the other one, is no other model."""
    agent = Agent("a", "Say it.", **options)
    assert fallback == agent.fallback
    assert len(agent.other_models) == len(set(agent.other_models))


def test_the_model_of_the_session_is_no_fallback():
    """An agent without a model of its own may name the session's as fallback: it is not asked a second time."""
    record, client = drive(agents("a", fallback=[DEFAULT_MODEL, DEAR]), full(DEFAULT_MODEL), SEEDED)
    assert ([*[DEFAULT_MODEL] * SEEDED.max_attempts, DEAR], DEAR) == (
        [one.model for one in client.asked],
        record["a"].model_used,
    )


def test_a_plan_as_json_keeps_its_models():
    """A cassette has the plan as JSON."""
    plan = Plan(
        [Agent("a", "Say it.", cascade=[CHEAP, DEAR], escalate="answer.confidence < 1", returns=Label, fallback=OTHER)]
    )
    kept = Plan.from_json(plan.to_json()).agents[0]
    assert ((CHEAP, DEAR), (OTHER,), "answer.confidence < 1") == (kept.cascade, kept.fallback, kept.escalate)


def test_a_plan_says_what_a_cascade_may_cost():
    """At the low end it never escalates, at the high end always; likely as often as earlier answers did."""
    plan = cascade("a")
    alone = {model: agents("a", model=model, returns=Label).estimate().expected[0] for model in (CHEAP, DEAR)}
    found = plan.estimate().expected[0]
    assert found.cost.low == pytest.approx(alone[CHEAP].cost.low)
    assert found.cost.high == pytest.approx(alone[CHEAP].cost.high + alone[DEAR].cost.high)
    assert found.most_usd == pytest.approx(alone[CHEAP].most_usd + alone[DEAR].most_usd)
    assert found.cost.likely == pytest.approx(alone[CHEAP].cost.likely + alone[DEAR].cost.likely)


def test_a_cassette_replays_both_models(tmp_path):
    """Without a key: rows, models and dollars are as they were."""
    plan = cascade("a", fallback=OTHER)
    record, _ = drive(plan, sure(a=0.1), SEEDED)
    Run(record).save(tmp_path / "run.jsonl")
    again = plan.replay(tmp_path / "run.jsonl")
    for one, other in zip(record.attempts, again.record.attempts, strict=True):
        assert (one.model, one.status, one.price, one.turn) == (other.model, other.status, other.price, other.turn)
    assert (CHEAP, DEAR, 1) == (again["a"].model, again["a"].model_used, again["a"].turns)


def test_a_model_that_is_taken_replaces_a_cascade():
    """What one model alone would cost can be taken: then no other is asked. A trial asks each model alone, too."""
    record, _ = drive(cascade("a", "b", fallback=OTHER), sure(a=0.9, b=0.1), SEEDED)
    found = Run(record).apply({"model": CHEAP})
    assert {(CHEAP, (), (OTHER,))} == {(one.model, one.cascade, one.fallback) for one in found.plan.agents}
    assert f"a: cascade {CHEAP}, {DEAR} -> none" in found.lines
    other = Run(record).apply({"model": OTHER}).plan.agents[0]
    assert (OTHER, (), ()) == (other.model, other.cascade, other.fallback)


FATES = {
    "ok": None,
    "full": Overloaded("full", status=529),
    "gone": Rejected("gone", status=404),
    "wrong": Rejected("wrong", status=400),
}
MODELS = [CHEAP, DEAR, OTHER]


@settings(max_examples=60, deadline=None)
@given(
    fates=st.lists(st.lists(st.sampled_from([*FATES, "unsure"]), min_size=3, max_size=3), min_size=1, max_size=6),
    rungs=st.integers(1, 3),
    tries=st.integers(1, 3),
    share=st.sampled_from([None, 0.05, 0.2]),
    limited=st.booleans(),
)
def test_models_that_fail_are_asked_one_after_another_within_their_attempts(fates, rungs, tries, share, limited):
    """Whatever fails: no model is asked again after another, nor more often than allowed; the row says who answered.

    Without a breaker, the forecast of the run is the run.
    """
    cascade = {"cascade": MODELS[:rungs], "escalate": "answer == 'unsure'"} if rungs > 1 else {"model": CHEAP}
    plan = agents(*(f"a{n}" for n in range(len(fates))), **cascade, fallback=MODELS[rungs:])

    def script(model, prompt, _number):
        fate = fates[int(prompt[1:])][MODELS.index(model)]
        return Reply(1.0, FATES.get(fate), text=fate)

    policy = Policy(2, max_attempts=tries, breaker_share=share, seed=1)
    record, _ = drive(plan, ByModel(script), policy, pacer=Pacer(seed=1) if limited else None)
    for one in record.results:
        asked = [attempt.model for attempt in one.attempts]
        stages = [model for model, _ in groupby(asked)]
        assert len(stages) == len({*stages})
        assert all(asked.count(model) <= tries for model in MODELS)
        assert (one.status == "succeeded") == (one.model_used is not None and one.attempts[-1].error is None)
        if one.status == "succeeded":
            assert (one.model_used == CHEAP) == (not one.moved_by)
    if share is None:
        same_as_forecast(record)


def test_an_answer_that_was_left_has_its_place_in_every_picture(tmp_path):
    """The graph with its timeline, the charts, the live view's feed and a page draw it."""
    record, _ = drive(cascade("easy", "hard"), sure(easy=0.9, hard=0.3), SEEDED)
    run = Run(record)
    for made in (run.bundle(), run.timeline().bundle(), run.waterfall().bundle(), run.dashboard().bundle()):
        assert made["image/svg+xml"].startswith("<svg")
    assert "m" == tone_of(record["hard"].attempts[0])
    assert run.to_page(tmp_path / "run.html").stat().st_size > 0
