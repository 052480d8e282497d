"""What is of the wrong kind is answered by an error of ours that says what to give, before anything is sent."""

# Tests hand over wrong types on purpose.
# pyright: reportArgumentType=false, reportCallIssue=false, reportIndexIssue=false

from __future__ import annotations

import asyncio
import contextlib
import inspect

import pandas as pd
import pytest

import agent_magic as am
from agent_magic.errors import AgentMagicError, DeclarationError, PlanError, UnknownAgent
from agent_magic.record import not_allowed, scan_text
from tests.live.virtual import Reply, Scripted, drive

WRONG = (None, "", "nope", 5, -1, 1.5, float("nan"), float("inf"), True, [], {}, ["nope"], {"nope": 1}, {1: 2}, [None])
WRONG_TOO = (object(), b"x", ("a", "b"), pd.DataFrame({"x": [1]}))
KINDS = (TypeError, KeyError, IndexError, AttributeError, ValueError, OverflowError)
"""What Python itself would say, of a line that is not the user's."""


def plan():
    """Two agents, one after the other."""
    return am.Plan([am.Agent("a", "A {{ t }}"), am.Agent("b", "B {{ a }}")], {"t": "x"})


def made():
    """A run of them."""
    return am.Run(drive(plan(), lambda *_: Reply(2.0, first_s=1.0, tokens=(100, 50, 0, 0)))[0])


def calls():
    """Every public function that takes what can be of a wrong kind, with one such place each."""
    one, run = plan(), made()
    frame = run.whatif(concurrency=[1, 2])
    agent = ("model", "max_tokens", "system", "role", "context", "after", "timeout_s", "effort", "each")
    yield from ((f"Agent {word}", lambda v, word=word: am.Agent("a", "x", **{word: v})) for word in agent)
    yield "Agent name", lambda v: am.Agent(v, "x")
    yield "Agent prompt", lambda v: am.Agent("a", v)
    yield "Context", lambda v: am.Context(v, v)
    yield "Plan agents", am.Plan
    yield "Plan agent", lambda v: am.Plan([v])
    yield "Plan values", lambda v: am.Plan(one.agents, v)
    for word in ("name", "description", "on_cycle", "on_missing", "contexts"):
        yield f"Plan {word}", lambda v, word=word: am.Plan([am.Agent("a", "x")], **{word: v}).to_dot()
    for word in ("number", "numbers", "parents", "children", "ancestors", "descendants", "select", "critical_path"):
        yield f"plan.{word}", getattr(one, word)
    for word in ("from_json", "from_dict", "pilot_agents"):
        yield f"plan.{word}", getattr(one, word)
    yield "plan.prompt", lambda v: one.prompt("b", v)
    yield "plan.prompt name", lambda v: one.prompt(v, {"a": "x"})
    for word in ("policy", "client", "ledger", "pilot", "prices"):
        yield f"plan.estimate {word}", lambda v, word=word: one.estimate(**{word: v})
    fields = inspect.signature(am.Policy).parameters
    yield from ((f"Policy {word}", lambda v, word=word: am.Policy(**{word: v})) for word in fields)
    fields = inspect.signature(am.Limits).parameters
    yield from ((f"Limits {word}", lambda v, word=word: am.Limits(**{word: v})) for word in fields)
    fields = inspect.signature(am.TokenPrice).parameters
    usual = {"input": 1, "output": 1}
    yield from ((f"TokenPrice {word}", lambda v, word=word: am.TokenPrice(**{**usual, word: v})) for word in fields)
    for function, given in (
        (am.capacity, {}),
        (am.monthly, {"tokens_per_run": 5}),
        (am.speedup_bounds, {"work_s": 5, "path_s": 2, "concurrency": 2}),
    ):
        for word in inspect.signature(function).parameters:
            yield f"{function.__name__} {word}", lambda v, f=function, g=given, w=word: f(**{**g, w: v})
    yield "compare", lambda v: am.compare(run, v)
    yield "calibration", am.calibration
    yield "tradeoff", am.tradeoff
    yield "share", lambda v: am.share(v, "never.cassette.jsonl")
    yield "share path", lambda v: am.share([], v)
    yield "replay", am.Plan([am.Agent("a", "x")]).replay
    yield "run[]", lambda v: run[v]
    for word in ("each", "against", "advise", "utilization", "percentiles", "forecast", "limits_chart", "tradeoff"):
        yield f"run.{word}", getattr(run, word)
    yield "run.markdown", run.markdown
    yield "run.tradeoff chosen", lambda v: run.tradeoff(frame, chosen=v)
    for word in ("timeline", "waterfall", "limits_chart", "bundle"):
        yield f"run.{word} theme", lambda v, word=word: getattr(run, word)(theme=v)
    for word in ("concurrent", "jobs_per_s", "p95_s", "succeeded", "errors", "usd_per_job"):
        yield f"run.slo {word}", lambda v, word=word: run.slo(**{word: v})
    whatif = ("model", "concurrency", "schedule", "limits", "cache", "batch", "effort", "drop", "prices", "cache_ttl")
    yield from ((f"run.whatif {word}", lambda v, word=word: run.whatif(**{word: [v]})) for word in whatif)


CALLS = list(calls())


@pytest.mark.parametrize("call", [call for _, call in CALLS], ids=[name for name, _ in CALLS])
def test_python_itself_never_complains(call):
    """No raw `TypeError`, `KeyError` or the like comes out of a public function, whatever it is given."""
    for wrong in (*WRONG, *WRONG_TOO):
        try:
            with contextlib.suppress(AgentMagicError):
                call(wrong)
        except KINDS as error:
            pytest.fail(f"{wrong!r}: {type(error).__name__}: {error}")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"policy": {"concurrency": 2}}, "Policy"),
        ({"ledger": "runs.sqlite3"}, "Ledger"),
        ({"prices": {"claude-haiku-5-5": (1, 5, 9)}}, "TokenPrice"),
        ({"prices": [("claude-haiku-5-5", 1)]}, "TokenPrice"),
        ({"resume": "run.cassette.jsonl"}, "expects a run"),
        ({"again": ["a"]}, "resume=RUN"),
    ],
)
def test_a_run_begins_with_what_it_can_use(given, told):
    """A wrong option is an error before the first request, not after the first bill."""
    client = Scripted(lambda *_: Reply())
    with pytest.raises(AgentMagicError, match=told):
        asyncio.run(plan().run(**{"client": client, **given}))
    assert [] == client.asked


@pytest.mark.parametrize("wrong", [None, 5, object(), "nope"])
def test_what_goes_on_over_a_run_says_what_it_takes(wrong, tmp_path):
    """A sweep, a start, a redaction and a mark of a finding: an error of ours, or what was meant."""
    client, run = Scripted(lambda *_: Reply()), made()
    with pytest.raises(AgentMagicError):
        asyncio.run(plan().sweep(wrong, client=client))
    with pytest.raises(AgentMagicError):
        am.start(wrong, client=client)
    with pytest.raises(AgentMagicError):
        am.Controls(am.start(plan(), client=client)).skip(wrong)
    assert [] == client.asked
    if wrong is not None:
        with pytest.raises(AgentMagicError, match="must be a function"):
            run.save(tmp_path / "x.cassette.jsonl", redact=wrong)
        assert [] == list(tmp_path.iterdir())


def test_one_mark_is_one_mark():
    """`allow="1a2b3c4d"` allows the finding of that mark, as a list of it does."""
    found = list(scan_text("is " + "sk-" + "ant-api03-abcdefgh a key?", "here", {}))
    assert [] == not_allowed(found, found[0].mark)
    assert found == not_allowed(found, "12345678")


def test_a_name_is_a_name():
    """Where agents are named, a text is one name, not its letters."""
    assert ("a", "b") == plan().select("b").names
    assert [1] == plan().numbers("b")
    with pytest.raises(UnknownAgent, match="'compare'"):
        plan().select("compare")


def test_a_missing_answer_is_named():
    """A prompt that is written by hand says whose text it lacks."""
    assert "B text" == plan().prompt("b", {"a": "text"})
    with pytest.raises(PlanError, match="answer of 'a'"):
        plan().prompt("b", {})


def test_a_plan_of_nobody_is_estimated():
    """Nothing costs nothing."""
    assert 0 == am.Plan([]).estimate().most_usd


def test_the_row_that_is_chosen():
    """A label that stands twice, or whose price is unknown, cannot be marked, and the message says why."""
    run = made()
    frame = run.whatif(concurrency=[1, 2])
    assert "chosen" in run.tradeoff(frame, chosen=1).text
    twice = pd.concat([frame, frame])
    twice.attrs = frame.attrs
    with pytest.raises(DeclarationError, match="label of 2 rows"):
        run.tradeoff(twice, chosen=1)
    frame.loc[1, "cost_usd"] = float("nan")
    with pytest.raises(DeclarationError, match="unknown"):
        run.tradeoff(frame, chosen=1)


def test_a_limit_that_is_misspelt():
    """It is not drawn as if nobody had given it."""
    with pytest.raises(DeclarationError, match="Did you mean 'requests'"):
        made().limits_chart({"request": 50})
    assert "limit 50" in made().limits_chart({"requests": 50}).text
