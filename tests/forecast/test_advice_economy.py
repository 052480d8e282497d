"""The rules on tokens: each on a run where it must speak, with the dollars of a what-if, and where it must not."""

# Tests take for granted what they have just checked.
# pyright: reportOptionalOperand=false, reportOperatorIssue=false, reportArgumentType=false, reportOptionalSubscript=false

from __future__ import annotations

import pytest

import agent_magic as am
from agent_magic.api import Run
from agent_magic.forecast import rows_of
from agent_magic.record import History, Prices
from tests.live.virtual import Reply, drive

SONNET = "claude-sonnet-5-5"
ROOM = 100_000
"""The `max_tokens` of agents that write much: a count above it is no count of theirs."""
LONG = "\n".join(f"Rule {number}: say who changed the record, and when it was." for number in range(120))
"""About 1,700 tokens, no line twice."""


def ran(agents, script, policy=None, values=None):
    """A run on the virtual clock."""
    return Run(drive(am.Plan(agents, values or {}), script, policy)[0])


def by_rule(run):
    """What is advised, by rule."""
    return {one.rule: one for one in run.advise()}


def replied(*tokens, takes_s=2.0, text="answer"):
    """Every request answered alike."""
    return lambda *_: Reply(takes_s, tokens=tokens, text=text)


def paid(agents, text, tokens):
    """A run of agents that are asked the same long text, and what changes it advises."""
    run = ran(agents, lambda prompt, _: Reply(2.0, tokens=(tokens if text in prompt else 60, 5, 0, 0)))
    return run, by_rule(run)


# text that is sent again


def test_lines_that_several_prompts_have_become_a_context():
    """Wherever they stand; worth what the same agents pay with that text as their context, the first one writing it."""
    agents = [am.Agent(f"a{n}", f"You are reader {n}.\n{LONG}\nSay {n}.", model=SONNET) for n in range(4)]
    run, found = paid(agents, LONG, len(agents[0].prompt) // 4)
    told = found["shared text is paid for once"]
    assert "4 prompts have the same" in told.measured
    assert ("a0, a1, a2, a3", "assumed") == (told.where, told.basis)
    assert 0.5 < told.saves_usd / run.totals.cost_usd < 0.9  # (0.1 * 3 + 1.25) / 4 of nearly all is left
    assert run.totals.cost_usd - told.saves_usd == pytest.approx(told.forecast_usd)


def test_a_context_that_was_declared_is_as_dear_as_the_advice_says():
    """Followed, the advice comes true: the same text declared as context costs what was forecast, to a tenth."""
    agents = [am.Agent(f"a{n}", f"Reader {n}.\n{LONG}", model=SONNET) for n in range(4)]
    _, found = paid(agents, LONG, len(agents[0].prompt) // 4)
    better = [am.Agent(f"a{n}", f"Reader {n}.", model=SONNET, context="rules") for n in range(4)]
    size = len(LONG) // 4

    def cached(prompt, _):
        given = (3, 5, 0, size) if "Reader 0" in prompt else (3, 5, size, 0)
        return Reply(2.0, first_s=0.5, tokens=given)

    record = drive(am.Plan(better, {"rules": LONG}), cached)[0]
    assert Run(record).totals.cost_usd == pytest.approx(found["shared text is paid for once"].forecast_usd, rel=0.1)


def test_a_text_too_short_or_sent_once_is_no_context():
    """Short lines, one prompt alone, and a text that is a context already."""
    short = [am.Agent(f"a{n}", f"Reader {n}.\nAlways answer in one short English sentence, please.") for n in range(4)]
    assert "shared text is paid for once" not in paid(short, "Always", 30)[1]
    assert "shared text is paid for once" not in paid([am.Agent("a", LONG)], LONG, 1700)[1]
    mine = [am.Agent(f"a{n}", f"Reader {n}.\n{LONG}", context="t") for n in range(2)]
    run = ran(mine, replied(1700, 5, 0, 0), values={"t": "short"})
    assert "prompts have" not in by_rule(run)["shared text is paid for once"].measured


def test_one_template_for_many_items_is_sent_many_times():
    """A group's instruction behind its item is text of as many prompts as it has items."""
    group = am.Agent("rate", f"{{{{ item }}}}\n{LONG}", each="rows", model=SONNET)
    run = ran([group], replied(1700, 5, 0, 0), values={"rows": [f"row {n}" for n in range(12)]})
    assert "12 prompts have the same" in by_rule(run)["shared text is paid for once"].measured


def test_a_value_in_several_prompts_is_named_once():
    """It is the business of one rule, also where prompts begin with it."""
    agents = [am.Agent(f"a{n}", f"{{{{ text }}}}\nSay {n}.", model=SONNET) for n in range(3)]
    found = by_rule(ran(agents, replied(1700, 5, 0, 0), values={"text": LONG}))
    assert "shared text is paid for once" not in found
    assert "--context text" == found["shared text is a context"].edit


def test_a_paragraph_that_stands_twice_in_a_prompt_is_named():
    """With the dollars of the run without it; blanks count too, and what is small beside the run does not."""
    paragraph = "The customer may return each item within thirty days of its delivery. " * 20
    twice = f"{paragraph}\n\nAnd once more:\n\n{paragraph}\n\nSay yes or no."
    run = ran([am.Agent("a", twice)], replied(len(twice) // 4, 5, 0, 0))
    told = by_rule(run)["nothing is said twice"]
    assert "paragraphs that stand twice in the prompt of a" in told.measured
    assert 0.4 < told.saves_usd / run.totals.cost_usd < 0.5
    blank = ran([am.Agent("a", f"Name{' ' * 4000}it.")], replied(1000, 5, 0, 0))
    assert "nothing is said twice" in by_rule(blank)
    for prompt in (f"{paragraph}\n\nSay yes or no.", f"Yes.\n\nYes.\n\n\nYes. {LONG}"):
        assert "nothing is said twice" not in by_rule(ran([am.Agent("a", prompt)], replied(500, 5, 0, 0)))
    wordy = ran([am.Agent("a", twice, max_tokens=ROOM)], replied(len(twice) // 4, 90_000, 0, 0))
    assert "nothing is said twice" not in by_rule(wordy)


# room for answers

TIGHT = am.Policy(budget_tokens=9_000, seed=1)


def answers_of(most, policy):
    """Six agents that answer 100 tokens and may answer `most`, in a group."""
    agent = am.Agent("rate", "Rate {{ item }}.", each="rows", max_tokens=most)
    return ran([agent], replied(20, 100, 0, 0), policy, {"rows": [f"r{n}" for n in range(6)]})


def test_room_that_no_answer_fills_is_named_where_a_budget_is_short():
    """A budget sets all of `max_tokens` aside: with less of it more requests run at once, and the forecast says so."""
    run = answers_of(4_000, TIGHT)
    told = by_rule(run)["max_tokens near the answers"]
    assert "The longest answer of rate has 100 tokens, and each request sets 4,000 aside" in told.measured
    assert ("--max-tokens 200 on rate", "rate") == (told.edit, told.where)
    assert told.saves_s > 0
    assert told.forecast_s == answers_of(200, TIGHT).totals.wall_s  # followed, it comes true
    assert "would be cut" in told.assumed


def test_answers_that_the_budget_refused_fit_then():
    """What did not run for lack of budget runs in the forecast, and costs what it costs."""
    run = answers_of(4_000, am.Policy(budget_tokens=4_300, seed=1))
    told = by_rule(run)["max_tokens near the answers"]
    assert 3 == run.totals.succeeded
    assert "Lower max_tokens of rate, and 3 more answers fit into the budget." == told.change
    assert told.saves_usd < 0
    alike = answers_of(200, am.Policy(budget_tokens=4_300, seed=1))
    assert 6 == alike.totals.succeeded
    assert told.forecast_usd == pytest.approx(alike.totals.cost_usd, rel=0.02)  # input that was never sent is estimated


def test_room_is_free_without_a_budget_that_is_short():
    """`max_tokens` costs nothing by itself; answers that need the room, and tool turns, are left alone."""
    for policy in (am.Policy(seed=1), am.Policy(budget_tokens=90_000, seed=1)):
        assert "max_tokens near the answers" not in by_rule(answers_of(4_000, policy))
    assert "max_tokens near the answers" not in by_rule(answers_of(200, am.Policy(budget_tokens=500, seed=1)))


# effort


def thinking(effort, text="yes", **more):
    """An agent that writes 3,000 tokens and shows few of them."""
    return ran([am.Agent("a", "Decide.", effort=effort, max_tokens=ROOM, **more)], replied(50, 3_000, 0, 0, text=text))


def test_an_effort_that_nobody_sees_may_be_lowered():
    """Nobody has tried the lower one: no saving is claimed, the range is, and quality is said to be unknown."""
    told = by_rule(thinking("high"))["effort by the task"]
    assert "about 3,000 of 3,000 output tokens of a are in no answer" in told.measured
    assert "Untried: it saves" in told.change
    assert "Quality is not measured" in told.change
    assert (None, None, "assumed") == (told.saves_usd, told.saves_s, told.basis)
    assert {"effort": {"a": "medium"}} == told.apply


def test_an_effort_that_was_tried_is_forecast_with_its_dollars():
    """Earlier answers at the lower effort are what it would cost, and a group can be tried on rows."""
    plan, lower = (
        am.Plan([am.Agent("a", "{{ item }}", each="rows", effort=effort, max_tokens=ROOM)], {"rows": ["x", "y"]})
        for effort in ("max", "xhigh")
    )
    earlier = History(rows_of(drive(lower, replied(50, 300, 0, 0, text="yes"))[0]))
    run = Run(drive(plan, replied(50, 3_000, 0, 0, text="yes"))[0], history=earlier)
    told = by_rule(run)["effort by the task"]
    assert "ledger" == told.basis
    assert 0.8 < told.saves_usd / run.totals.cost_usd < 0.9
    assert "await run.trial('a', effort=['xhigh', 'max'], truth=...)" in told.change


@pytest.mark.parametrize(
    "run",
    [
        thinking(None),
        thinking("low"),
        thinking("high", text="long " * 2_000),
        ran([am.Agent("a", "x", effort="high", max_tokens=ROOM)], replied(90_000, 600, 0, 0, text="yes")),
    ],
    ids=["none declared", "the lowest", "it is in the answer", "the input is dearer"],
)
def test_effort_is_left_alone_where_lowering_it_promises_nothing(run):
    """Undeclared, lowest, shown in the answer, or small beside the input."""
    assert "effort by the task" not in by_rule(run)


# the cache's life


def far_apart(ttl, takes_s, cache="on"):
    """Three agents in a row with one long context, as a cache of that life bills it."""
    agents = [am.Agent(f"a{n}", f"Say {n}." + (f" {{{{ a{n - 1} }}}}" if n else ""), context="t") for n in range(3)]
    alive = takes_s < (300 if ttl == "5m" else 3600)

    def bill(prompt, _):
        read = alive and "Say 0" not in prompt
        return Reply(takes_s, first_s=1.0, tokens=(10, 50, 20_000 * read, 20_000 * (not read)))

    policy = am.Policy(cache=cache, cache_ttl=ttl, timeout_s=3_000)
    plan = am.Plan(agents, {"t": "word " * 16_000})
    return Run(drive(plan, bill, policy)[0])


def test_a_cache_that_dies_between_two_uses_should_live_longer():
    """Ten minutes apart and cached for five: written three times; for an hour it is written once."""
    run = far_apart("5m", 600.0)
    told = by_rule(run)["the cache lives as long as needed"]
    assert "Uses of t are up to 10 min 00 s apart, and it was cached for 5m." == told.measured
    assert ({"cache_ttl": "1h"}, "%agents run --cache-ttl 1h") == (told.apply, told.edit)
    assert 0.1 < told.saves_usd / run.totals.cost_usd < 0.5
    assert "1h" == run.apply(told).policy.cache_ttl
    asked = run.whatif(cache_ttl=["1h"])
    assert told.forecast_usd == asked["cost_usd"].iloc[-1]


def test_a_cache_that_lives_as_long_as_its_uses_is_left_alone():
    """Used within five minutes and kept for five; without a cache there is nothing to say."""
    assert "the cache lives as long as needed" not in by_rule(far_apart("5m", 20.0))
    assert "the cache lives as long as needed" not in by_rule(far_apart("5m", 600.0, cache="off"))


def test_a_cache_that_is_kept_for_nothing_should_live_shorter():
    """An hour costs twice the input to write, and everything is read within a minute."""
    told = by_rule(far_apart("1h", 20.0))["the cache lives as long as needed"]
    assert {"cache_ttl": "5m"} == told.apply
    assert told.saves_usd > 0


def test_an_answer_that_is_sent_for_nothing_has_the_dollars_of_its_tokens():
    """It is left out of a forecast: what the run cost then is the difference."""
    agents = [
        am.Agent("a", "x", model="claude-haiku-5-5"),
        am.Agent("b", "{{ a }}", model="claude-haiku-5-5"),
        am.Agent("c", "{{ a }} {{ b }}", model="claude-opus-5-5"),
    ]
    long = "word " * 4_000

    def reply(prompt, _):
        return Reply(2.0, tokens=(max(10, len(prompt) // 4), 5_000 if prompt == "x" else 20, 0, 0), text=long)

    run = ran(agents, reply)
    told = by_rule(run)["no dead context"]
    assert "c gets a directly and again through b." in told.measured
    assert 5_000 == pytest.approx(told.saves_usd / Prices().rates("claude-opus-5-5", 10_000)[0] * 1e6, rel=0.01)
    assert run.totals.cost_usd - told.saves_usd == pytest.approx(told.forecast_usd)
