"""Estimates of maps and loops after earlier runs: how many places count, and whose answers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import BaseModel

import agent_magic as am
from agent_magic.declare import Plan as Declared
from agent_magic.forecast import under_load
from agent_magic.notebook import Session
from agent_magic.notebook.planning import Resumed, _outlay
from agent_magic.record import History
from tests.live.virtual import MODEL, Reply, drive

MAP = am.Plan(
    [
        am.Agent("items", "Which?", returns=list[str]),
        am.Agent("each", "Do {{ item }}", each="items", most=40),
        am.Agent("sum", "Sum {{ each }}"),
    ]
)
NESTED = am.Plan(
    [
        am.Agent("outer", "Which?", returns=list[str]),
        am.Agent("inner", "Which of {{ item }}?", each="outer", most=10, returns=list[str]),
        am.Agent("leaf", "Do {{ item }}", each="inner", most=5),
    ]
)


def answer(prompt, _):
    """Answer with two items where a list is asked for, and with 100 tokens elsewhere."""
    if "Which" in prompt:
        number = sum(map(ord, prompt))  # other items for each: equal ones would share their answers
        return Reply(1.0, text=f'{{"value": ["x{number}", "y{number}"]}}', tokens=(10, 8, 0, 0))
    return Reply(1.0, tokens=(10, 100, 0, 0))


def history_of(plan):
    """What a run of a plan teaches."""
    history = History()
    history.learn(drive(plan, answer)[0])
    return history


def loop(rounds, good_at=9):
    """A loop, and who reads its last round."""
    done = iter(range(1, 99))
    critic = am.Task("critic", lambda draft: next(done) >= good_at)
    draft = am.Agent("draft", "Write. {{ critic }}", until="critic", rounds=rounds)
    return am.Plan([draft, critic, am.Agent("end", "Print {{ draft }}")])


def test_who_reads_a_map_reads_the_answers_that_are_likely_to_be_needed():
    """Two of forty places, in tokens as in dollars; the high end has them all, the low end one."""
    found = MAP.estimate(history=history_of(MAP))
    rows = {one.agent: one for one in found.expected}
    own = rows["sum"].input.likely - 200
    assert 0 < own < 30  # its own words, and what stands between answers
    assert (100 + own, 200 + own) == (rows["sum"].input.low + 50, rows["sum"].input.likely)
    assert rows["sum"].input.high == own + 40 * 200
    each = [one for one in found.expected if one.group == "each"]
    assert [100, 100, *[0] * 38] == [one.output_tokens for one in each]
    assert [bool(one.output_tokens) for one in each] == [bool(one.cost_usd) for one in each]
    assert all(one.output.high for one in each)


def test_what_ifs_count_the_places_that_are_likely():
    """As after a run, a cap above that changes nothing: the high end has them all."""
    found = MAP.estimate(history=history_of(MAP))
    frame = found.whatif(most=[1, 2, 40])
    assert [3, 4, 4] == frame["succeeded"].tolist()
    assert found.cost is not None
    assert (found.cost.likely, found.cost.high) == pytest.approx((frame["cost_usd"][2], frame["cost_high_usd"][2]))


def test_places_of_places_that_are_not_needed_are_not_needed():
    """Seven agents ran, and seven are likely: places for items of places without one are none."""
    found = NESTED.estimate(history=history_of(NESTED))
    assert 7 == sum(bool(one.output_tokens) for one in found.expected)
    assert "60 reserved places: 6 likely to be needed" in found.notes[0]


def the_same(prompt, _):
    """Answer with the same three items, two of them equal, wherever a list is asked for."""
    if "Which" in prompt:
        return Reply(1.0, text='{"value": ["x", "y", "x"]}', tokens=(10, 8, 0, 0))
    return Reply(1.0, tokens=(10, 100, 0, 0))


@pytest.mark.parametrize(("plan", "needed", "bought"), [(MAP, 3, 4), (NESTED, 12, 5)])
@pytest.mark.parametrize("by", ["session", "ledger"])
def test_places_that_shared_answers_are_likely_to_share_them(plan, needed, bought, by):
    """An estimate of the next run has its requests and no more; with none shared, and at the high end, it has all."""
    ledger, history = am.Ledger(), History()
    record, client = drive(plan, the_same, am.Policy(4, seed=1), ledger=ledger)
    if by == "ledger":
        history = History(ledger.history())
    else:
        history.learn(record)
    found, each = plan.estimate(history=history), plan.estimate(am.Policy(identical="each"), history=history)
    assert bought == len(client.asked) == sum(bool(one.output_tokens) for one in found.expected)
    assert f"{needed} likely to be needed" in found.notes[0]
    assert needed + len(plan) - len([one for one in plan.agents if one.part]) == sum(
        bool(one.output_tokens) for one in each.expected
    )
    assert found.cost.likely < each.cost.likely
    assert (found.cost.high, found.most_usd) == (each.cost.high, each.most_usd)
    if plan is MAP:
        assert found.expected[-1].input == each.expected[-1].input


def test_what_ifs_of_an_estimate_count_items_that_nobody_knows_each():
    """Places look the same as long as their items are unknown, and are different requests."""
    found = MAP.estimate().whatif(most=[1, 2, 40])["cost_usd"].tolist()
    assert found[0] < found[1] < found[2]
    assert 4 < found[2] / found[0]


@pytest.mark.parametrize(("rounds", "needed"), [(2, 2), (3, 3), (5, 5)])
def test_a_loop_that_was_cut_may_need_every_round_that_it_now_has(rounds, needed):
    """Nobody knows whether it would have gone on: it had no more rounds."""
    found = loop(rounds).estimate(history=history_of(loop(3)))
    assert needed == sum(bool(one.output_tokens) for one in found.expected if one.group == "draft")


def test_a_loop_that_ended_sooner_is_likely_to_do_so_again():
    """Its cap was not reached."""
    found = loop(5).estimate(history=history_of(loop(4, good_at=2)))
    assert 2 == sum(bool(one.output_tokens) for one in found.expected if one.group == "draft")


def test_who_reads_a_loop_reads_its_last_round():
    """One draft, however many rounds there are."""
    one = loop(5).estimate(history=history_of(loop(5))).expected[-1]
    assert 100 <= one.input.likely < 110
    assert one.input.high < 210


def test_a_load_counts_the_places_that_are_likely_and_says_so():
    """As the plan's own numbers do."""
    found = MAP.estimate(history=history_of(MAP))
    record = under_load(found, "off_peak").record
    assert record is not None
    assert record.forecast is not None
    assert 4 == sum(bool(one.attempts) for one in record.results)
    assert "of 40 reserved places 2 count, as many as are likely by earlier runs" in record.forecast.assumed
    unknown = under_load(MAP.estimate(), "off_peak").record
    assert unknown is not None
    assert unknown.forecast is not None
    assert "of 40 reserved places all count" in unknown.forecast.assumed


def test_what_a_retry_costs_is_what_the_plan_says(monkeypatch):
    """On the mock server it stands on simulated answers, as the estimate of the plan does."""
    session = Session()
    monkeypatch.setattr(Session, "simulates", property(lambda _: True))
    for row in history_of(MAP):
        session.shared.history.add(row._replace(simulated=True))
    found = MAP.estimate(session=session.shared, simulated=True)
    what = _outlay(session, MAP, am.Policy(), Resumed(None), fresh=True)
    assert found.cost is not None
    assert found.cost.likely == pytest.approx(what.usd)
    session.close()


class Sure(BaseModel):
    """How sure the model is."""

    sure: float


CASCADE = [MODEL, "claude-sonnet-5-5"]
ESSAY = am.Agent("a", "Write an essay.", model=MODEL)


@pytest.mark.parametrize(
    ("agent", "basis", "words"),
    [
        (ESSAY, "ledger", "its 1 earlier answer, taken"),
        (am.Agent("a", "Yes or no?", model=MODEL), "assumed", "assumed 500 tokens (125–2,000), no earlier answers"),
        (am.Agent("a", "Write an essay.", model=MODEL, returns=bool), "assumed", "by its type"),
    ],
)
def test_an_answer_to_something_else_tells_no_length(agent, basis, words):
    """An agent of that name was told something else: its length is assumed, and the estimate says so."""
    one = am.Plan([agent]).estimate(history=history_of(Declared([ESSAY]))).expected[0]
    assert (basis, True) == (one.output_basis, words in one.stands_on)


@pytest.mark.parametrize(
    ("change", "basis", "tokens"),
    [({}, "ledger", 70), ({"prompt": "Yes or no?"}, "assumed", 500), ({"model": "claude-opus-5-5"}, "assumed", 70)],
)
def test_an_answer_in_the_ledger_counts_for_the_same_declared_step(change, basis, tokens):
    """In a later kernel as in its own: what it was told is in the ledger beside it."""
    ledger = am.Ledger(":memory:")
    drive(Declared([ESSAY]), lambda *_: Reply(1.0, tokens=(10, 70, 0, 0)), ledger=ledger)
    rows = ledger.history()
    ledger.close()
    one = am.Plan([replace(ESSAY, **change)]).estimate(history=History(rows)).expected[0]
    assert (basis, tokens) == (one.output_basis, one.output.likely)


@pytest.mark.parametrize(
    ("change", "share", "basis"),
    [
        ({}, 1, "ledger"),
        ({"escalate": "answer.sure < 0.9"}, 4, "assumed"),
        ({"cascade": [MODEL, "claude-opus-5-5"]}, 4, "assumed"),
        ({"prompt": "Which? {{ item }}"}, 4, "assumed"),
    ],
)
def test_a_cascade_escalates_as_often_as_the_same_cascade_did(change, share, basis):
    """Another rule, other models and another prompt say nothing of it: then all escalate, and that is assumed."""
    ledger, rows = am.Ledger(":memory:"), {"rows": list("wxyz")}
    step = am.Agent("a", "Label {{ item }}", each="rows", cascade=CASCADE, escalate="answer.sure < 0.7", returns=Sure)

    def label(prompt, _):
        return Reply(1.0, text=f'{{"sure": {0.1 if "z" in prompt else 0.8}}}')

    drive(Declared([step], rows), label, ledger=ledger)
    found = am.Plan([replace(step, model=None, **change)], rows).estimate(history=History(ledger.history()))
    ledger.close()
    tries = [len(found.likely.results[number].attempts) for number in range(4)]
    assert (4 + share, {basis}) == (sum(tries), {one.output_basis for one in found.expected})
    assert basis == found.basis


def test_a_whatif_takes_no_length_of_another_prompt():
    """Another model's earlier answer of an agent of that name was to something else."""
    record = drive(Declared([ESSAY]), answer)[0]
    other = History()
    other.learn(drive(Declared([am.Agent("a", "Yes or no?", model="claude-opus-5-5")]), lambda *_: Reply(1.0))[0])
    same = History()
    same.learn(drive(Declared([am.Agent("a", "Write an essay.", model="claude-opus-5-5")]), lambda *_: Reply(1.0))[0])
    tokens = [
        am.Run(record, history=one).whatif(model="claude-opus-5-5")["output_tokens"].iloc[0] for one in (other, same)
    ]
    assert tokens[0] > 5
    assert 5 == tokens[1]
