"""Degradation on the virtual loop: what no longer fits into budget or time asks less, says so, and never by itself."""

# What was asked has ended, so its times are known.
# pyright: reportOptionalOperand=false, reportOptionalMemberAccess=false, reportOperatorIssue=false

from __future__ import annotations

import math

import pytest

import agent_magic as am
from agent_magic import Policy
from agent_magic.api import Run
from agent_magic.errors import DeclarationError, Overloaded
from agent_magic.measure import summarize
from agent_magic.show.notes import degraded_note
from tests.live.virtual import Reply, Scripted, drive

SMALL, MIDDLE, LARGE = "claude-haiku-5-5", "claude-sonnet-5-5", "claude-opus-5-5"


class Service(Scripted):
    """A provider that says which models it has, from cheap to dear."""

    choices = (SMALL, LARGE)


def rows(count, **options):
    """Agents of a large model, one for each item."""
    given = {"each": "rows", "model": LARGE, "max_tokens": 100, **options}
    return am.Plan([am.Agent("a", "A {{ item }}", **given)], {"rows": list(range(count))})


def run(plan, takes_s=10.0, **options):
    """Drive a plan with one slot."""
    return drive(
        plan,
        Service(lambda prompt, _: Reply(takes_s, text=prompt, tokens=(10, 900, 0, 0))),
        Policy(options.pop("concurrency", 1), seed=1, **options),
    )


def asked(client):
    """The model and the effort of each request."""
    return [(one.model, one.effort) for one in client.asked]


def test_nothing_is_degraded_unasked():
    """Without the option the run ends at its deadline."""
    _, client = run(rows(6), deadline_s=35.0)
    assert {LARGE} == {one.model for one in client.asked}


def test_short_of_time():
    """What one answer took says that six do not fit: those to come ask the cheapest model, and are labelled."""
    record, client = run(rows(6), deadline_s=35.0, degrade="model")
    assert [(LARGE, None), (SMALL, None)] == asked(client)[:2]
    assert SMALL == record["a_1"].model_used
    assert "degraded" == record["a_1"].moved_by
    assert summarize(record).degraded == len(client.asked) - 1
    assert degraded_note(record).startswith("Degraded, since the budget or the time was short: a_1")


def test_enough_time():
    """Where all fits nothing is degraded."""
    record, client = run(rows(3), deadline_s=35.0, degrade="effort,model", takes_s=5.0)
    assert {LARGE} == {one.model for one in client.asked}
    assert ([], "") == (record.degraded, degraded_note(record))


def test_slots_count():
    """Six that go side by side fit where one after the other would not."""
    _, client = run(rows(6), deadline_s=35.0, degrade="model", concurrency=3)
    assert {LARGE} == {one.model for one in client.asked}


def test_a_chain_counts():
    """The longest way to the end has to fit, too, however many slots there are."""
    names = "abcdef"
    agents = [
        am.Agent(one, f"{one} {{{{ {names[at - 1]} }}}}" if at else one, model=LARGE) for at, one in enumerate(names)
    ]
    _, client = run(am.Plan(agents), deadline_s=35.0, degrade="model", concurrency=8)
    assert (LARGE, SMALL) == (client.asked[0].model, client.asked[1].model)


def test_short_of_money():
    """What the budget has no room for asks the cheapest model in place of being left out."""
    plan = rows(4, max_tokens=1000)
    plain, _ = run(plan, budget_usd=0.03)
    record, client = run(plan, budget_usd=0.03, degrade="model")
    assert "cancelled" in {one.status for one in plain.results}
    assert {"succeeded"} == {one.status for one in record.results}
    assert {LARGE, SMALL} == {one.model for one in client.asked}
    assert math.fsum(one.cost_usd or 0.0 for one in record.results) <= 0.03


class Unlisted(Scripted):
    """A provider that lists no models, as a server of one's own."""


def run_unlisted(plan, **options):
    """Drive a plan with one slot at a provider that lists no models."""
    client = Unlisted(lambda prompt, _: Reply(10.0, text=prompt, tokens=(10, 900, 0, 0)))
    return drive(plan, client, Policy(1, seed=1, degrade="model", **options))


@pytest.mark.parametrize("short", [{"budget_usd": 0.03}, {"deadline_s": 35.0}])
def test_a_declared_fallback_is_a_cheaper_model(short):
    """Where the provider lists no models, the cheapest fallback is asked before the agent's own model is."""
    plan = rows(4, max_tokens=1000, fallback=[MIDDLE, SMALL])
    record, client = run_unlisted(plan, **short)
    assert [LARGE, SMALL] == [*dict.fromkeys(one.model for one in client.asked)]
    assert {"", "degraded"} == {one.moved_by for one in record.results if one.attempts}
    assert summarize(record).fell_back == 0 < summarize(record).degraded
    assert next(iter(short)).startswith(summarize(record).limited_by)


def test_a_dearer_fallback_is_no_cheaper_model():
    """A fallback that costs more is not asked for want of money."""
    _, client = run_unlisted(rows(4, model=SMALL, max_tokens=100_000, fallback=[LARGE]), budget_usd=0.02)
    assert {LARGE} & {one.model for one in client.asked} == set()


def test_what_was_degraded_is_replayed(tmp_path):
    """A replay asks the fallbacks that the run asked, with the effort that it gave up."""
    plan = rows(6, max_tokens=1000, fallback=[SMALL], effort="high")
    client = Unlisted(lambda prompt, _: Reply(10.0, text=prompt, tokens=(10, 900, 0, 0)))
    record, _ = drive(plan, client, Policy(1, seed=1, degrade="effort,model", deadline_s=35.0))
    assert {(LARGE, "high"), (SMALL, "low")} == {*asked(client)}
    Run(record).save(tmp_path / "run.jsonl")
    again = plan.replay(tmp_path / "run.jsonl").record
    assert [one.model_used for one in record.results] == [one.model_used for one in again.results]
    assert summarize(record).degraded == summarize(again).degraded


def test_nothing_cheaper_is_said():
    """Without a list of models and without fallbacks there is nothing to ask instead: said before anything is sent."""
    said = []
    session = am.Session(client=am.Claude(base_url="http://127.0.0.1:9", api_key="none"), tell=said.append)
    policy = am.Policy(budget_usd=1.0, degrade="effort,model")
    session.check_plan(am.Plan([am.Agent("a", "x", fallback=[SMALL])]), policy)
    session.check_plan(am.Plan([am.Agent("a", "x")]), am.Policy(degrade="effort"))
    assert [] == said
    for _ in range(2):
        am.Plan([am.Agent("a", "x")]).estimate(policy, session=session)
    assert [True] == ["has no cheaper model to ask" in one for one in said], "once in a session"


def test_effort_first_named():
    """With `effort` alone the model stays; an agent without an effort has none to give up."""
    _, client = run(rows(4, effort="high"), deadline_s=25.0, degrade="effort")
    assert [(LARGE, "high"), (LARGE, "low")] == asked(client)[:2]
    record, client = run(rows(4), deadline_s=25.0, degrade="effort")
    assert ({(LARGE, None)}, []) == ({*asked(client)}, record.degraded)


def shared(context, takes_s=10.0):
    """Rows of one context, short of time after the first: with which effort each asked, and who marked the context."""
    agents = [am.Agent(name, name, model=LARGE, effort="high", max_tokens=100, context="text") for name in "abcd"]
    record, client = run(am.Plan(agents, {"text": context}), takes_s, deadline_s=25.0, degrade="effort", cache="on")
    assert {"low"} == {one.effort for one in client.asked[1:]}
    return record, [one.cached for one in client.asked]


def test_a_lower_effort_reads_the_shared_context_all_the_same():
    """A text stands before the messages, where effort empties nothing; a document stands in them."""
    assert {True} == {*shared("long " * 4000)[1]}
    document = am.text_file(b"long " * 4000, title="d")
    first, *others = shared(document)[1]
    assert (True, {False}) == (first, {*others})


def test_a_forecast_asks_what_was_asked(tmp_path):
    """The run as it was is that run, and a replay has the same models."""
    plan = rows(6)
    record, _ = run(plan, deadline_s=100.0, degrade="model", takes_s=18.0)
    assert record.degraded
    forecast = Run(record).forecast().record
    assert [(one.status, one.finished_s) for one in record.results] == [
        (one.status, one.finished_s) for one in forecast.results
    ]
    Run(record).save(tmp_path / "run.jsonl")
    again = plan.replay(tmp_path / "run.jsonl")
    assert [one.model_used for one in record.results] == [one.model_used for one in again.record.results]


def test_what_it_takes():
    """Other words are refused."""
    with pytest.raises(DeclarationError, match="degrade must be"):
        Policy(degrade="speed")


def test_a_first_request_to_a_fallback_replays(tmp_path):
    """Where the breaker was open before an agent asked anything, its first request is to its fallback."""
    agents = [am.Agent(one, one.upper(), model=LARGE, fallback=SMALL) for one in "abcdefgh"]
    plan = am.Plan([*agents, am.Agent("z", "Z {{ h }}", model=LARGE, fallback=SMALL)])

    class Down(Service):
        async def send(self, request, stream):
            if request.model == LARGE:
                self.script = lambda *_: Reply(1.0, Overloaded("busy"), status=529)
            else:
                self.script = lambda *_: Reply(1.0)
            return await super().send(request, stream)

    record, _ = drive(plan, Down(None), Policy(8, seed=1, breaker_share=0.5))
    assert "succeeded" == record["z"].status
    Run(record).save(tmp_path / "run.jsonl")
    again = plan.replay(tmp_path / "run.jsonl")
    assert [one.model_used for one in record.results] == [one.model_used for one in again.record.results]
