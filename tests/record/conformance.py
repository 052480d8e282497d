"""What every ledger must do. A test class takes it over and says how a ledger is made.

class TestMyLedger(Conformance):
    @pytest.fixture
    def ledger(self):
        return MyLedger()
"""

# Tests take for granted what they have just checked.
# pyright: reportOptionalMemberAccess=false, reportAttributeAccessIssue=false

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magic import Agent, Policy
from agent_magic.declare import Plan
from agent_magic.errors import LedgerError, Overloaded, Unreachable
from agent_magic.record import Answer, AttemptStarted, Busy, Request, RunRecord, Usage, saved_usd
from tests.live.virtual import Reply, Scripted, drive
from tests.record.histories import random_plans

NEVER = {
    "refusal": {"stop_reason": "refusal"},
    "paused": {"stop_reason": "pause_turn"},
    "simulated": {"source": "simulated"},
    "from the ledger": {"source": "ledger"},
    "replayed": {"source": "replay"},
}
AWKWARD = [
    "",
    "\0",
    "a\0b",
    "\ud800",
    "\ude00\ud83d",
    "\ud83d\ude00",
    "\u202eabc",
    "\r\n\u2028",
    "😀",
    "'; DROP TABLE answers",
]
any_text = st.text(st.characters(exclude_categories=()), max_size=40) | st.sampled_from(AWKWARD)


def answer(text="x", **more):
    """An answer, with what matters to the test."""
    return Answer(text, **{"stop_reason": "end_turn", "usage": Usage(1, output_tokens=2), "model": "m", **more})


def plan_of(**prompts):
    """A plan of named prompts."""
    return Plan(tuple(Agent(name, prompt) for name, prompt in prompts.items()))


def record_of(prompt="x", names=("a",)):
    """A run of agents whose requests are about to go out."""
    from datetime import UTC, datetime

    plan = plan_of(**dict.fromkeys(names, prompt))
    record = RunRecord(plan, began_at=datetime.now(UTC), models=["m"] * len(names), origin="test")
    for number in range(len(names)):
        record.add(AttemptStarted(0.5, number, 1, 0.25, "", Request("m", prompt, 10)))
    return record


def always(**reply):
    """A script that always replies the same."""
    return lambda *_: Reply(**reply)


def opened(ledger, run):
    """The record of a past run."""
    return ledger.open(run).record


class Conformance:
    """The rules. Each test has a ledger of its own, in the fixture `ledger`."""

    def test_an_answer_is_served_again_as_from_the_ledger(self, ledger):
        """The same text and tokens, with another source; nothing for any other key or ordinal."""
        given = answer(usage=Usage(1, cache_read_tokens=3, output_tokens=2, estimated=True), request_id="r", model="n")
        ledger.keep("k", 0, given)
        found = ledger.find("k", 0)
        assert ("ledger", "x", given.usage, "r", "n") == (
            found.source,
            found.text,
            found.usage,
            found.request_id,
            found.model,
        )
        assert 1 == len(ledger)
        assert ledger.find("k", 1) is None
        assert ledger.find("other", 0) is None

    def test_repeated_requests_are_served_in_order(self, ledger):
        """The first answer goes to the first of equal requests, the second to the second."""
        ledger.keep("k", 1, answer("second"))
        ledger.keep("k", 0, answer("first"))
        assert ["first", "second"] == [ledger.find("k", one).text for one in range(2)]

    def test_buying_again_replaces(self, ledger):
        """A fresh answer takes the place of the one before."""
        ledger.keep("k", 0, answer("old"))
        ledger.keep("k", 0, answer("new"))
        assert ("new", 1) == (ledger.find("k", 0).text, len(ledger))

    @pytest.mark.parametrize(
        "reason", ["end_turn", "stop_sequence", "tool_use", "max_tokens", "model_context_window_exceeded"]
    )
    def test_complete_answers_are_served_again(self, ledger, reason):
        """Also an empty one, and one that was cut at a limit: the same request would be cut the same."""
        ledger.keep("k", 0, answer("", stop_reason=reason))
        assert "" == ledger.find("k", 0).text

    @pytest.mark.parametrize("more", NEVER.values(), ids=NEVER)
    def test_what_is_never_served_again(self, ledger, more):
        """Refusals, and what was not bought live."""
        ledger.keep("k", 0, answer(**more))
        assert ledger.find("k", 0) is None
        assert 0 == len(ledger)

    def test_a_paused_answer_that_can_go_on_is_served_again(self, ledger):
        """It is no whole answer, and not counted as one; what goes on from it was asked by its blocks."""
        ledger.keep("k", 0, answer(stop_reason="pause_turn", content='[{"type":"text","text":"x"}]'))
        assert '[{"type":"text","text":"x"}]' == ledger.find("k", 0).content

    def test_any_text_comes_back(self, ledger):
        """F29: lone surrogates, NUL, right-to-left marks, SQL: all come back as they were."""

        @given(text=any_text)
        @settings(deadline=None, max_examples=200)
        def holds(text):
            ledger.keep("k'\"; --", 0, answer(text))
            assert text == ledger.find("k'\"; --", 0).text

        holds()

    def test_a_run_comes_back_event_by_event(self, ledger):
        """Whatever happened in it: the same events, so the same frames, the same picture, the same timeline."""
        errors = st.sampled_from(
            [None, None, Overloaded("full", status=529), Unreachable("gone"), ZeroDivisionError("b")]
        )
        replies = st.builds(
            Reply, st.just(1.0), errors, st.none() | st.just(0.5), st.sampled_from(["", "a\0b", "long " * 99])
        )

        @given(plan=random_plans(), replies=st.lists(replies, min_size=4, max_size=4))
        @settings(deadline=None, max_examples=40)
        def holds(plan, replies):
            policy = Policy(2, max_attempts=2, seed=1)
            record, _ = drive(plan, lambda _, number: replies[number % 4], policy, ledger=ledger)
            newest = ledger._past_runs()[0]
            again = opened(ledger, newest.run)
            assert record.events == again.events
            assert record.terms == again.terms
            assert (record.plan.names, record.began_at) == (again.plan.names, again.began_at)
            assert [one.prompt for one in record.plan.agents] == [one.prompt for one in again.plan.agents]
            assert (sum(one.status == "succeeded" for one in record.results), "finished") == (
                newest.succeeded,
                newest.state,
            )

        holds()

    def test_runs_are_listed_newest_first(self, ledger):
        """With what each cost, and what the second saved."""
        plan = plan_of(a="x", b="{{ a }}")
        first, _ = drive(plan, always(tokens=(1000, 500, 0, 0)), ledger=ledger)
        second, client = drive(plan, always(), ledger=ledger)
        assert not client.asked
        rows = ledger._past_runs()
        assert [rows[0].run, rows[1].run] == sorted([one.run for one in rows], reverse=True)
        cost = sum(one.cost_usd or 0.0 for one in first.results)
        assert [(0, 2, 0.0), (2, 0, cost)] == [(one.calls, one.served, one.cost_usd) for one in rows]
        assert [cost, None] == [one.saved_usd for one in rows]
        assert cost == saved_usd(second)
        assert [0, 3000] == [one.tokens for one in rows]

    def test_what_two_steps_share_was_not_bought_before(self, ledger):
        """Of identical rows one is bought: the list of runs has its call, and nothing served."""
        plan = Plan([Agent("a", "{{ item }}", each="rows")], {"rows": ["x", "x", "y"]})
        drive(plan, always(), ledger=ledger)
        assert [(2, 0)] == [(one.calls, one.served) for one in ledger._past_runs()]

    def test_what_is_taken_over_is_no_call(self, ledger):
        """An answer that a run took over from the one before was not bought again, a made-up one neither."""
        from agent_magic.live import Earlier

        plan = plan_of(a="x", b="{{ a }}")
        first, _ = drive(plan, always(source="simulated"), ledger=ledger)
        earlier = Earlier(first, "scripted", plan=plan, again=["b"])
        second, client = drive(plan, always(), ledger=ledger, earlier=earlier)
        assert 1 == len(client.asked)
        assert [(1, 1), (2, 0)] == [(one.calls, one.served) for one in ledger._past_runs()]
        assert second.events == opened(ledger, ledger._past_runs()[0].run).events

    def test_a_run_that_is_not_there(self, ledger):
        """The error says how to find those that are."""
        with pytest.raises(LedgerError, match=r"no run 7.*%agents runs"):
            opened(ledger, 7)

    def test_one_run_buys_what_two_want(self, ledger):
        """While one run buys an answer, another is told to wait; afterwards it has the answer."""
        first, second = ledger.begin(record_of()), ledger.begin(record_of())
        assert asyncio.run(first.ask(0, 1, "k", 0, fresh=False)) is None
        assert isinstance(asyncio.run(second.ask(0, 1, "k", 0, fresh=False)), Busy)
        assert asyncio.run(second.ask(0, 1, "k", 1, fresh=False)) is None
        first.keep(0, 1, answer(), 1.0)
        asyncio.run(first.on_disk(0, 1))
        assert "ledger" == asyncio.run(second.ask(0, 1, "k", 0, fresh=False)).source
        first.close()
        second.close()

    def test_a_run_that_ends_lets_go(self, ledger):
        """What it was buying may be bought by others."""
        first, second = ledger.begin(record_of()), ledger.begin(record_of())
        assert asyncio.run(first.ask(0, 1, "k", 0, fresh=False)) is None
        assert isinstance(asyncio.run(second.ask(0, 1, "k", 0, fresh=False)), Busy)
        first.close()
        assert asyncio.run(second.ask(0, 1, "k", 0, fresh=False)) is None

    def test_fresh_waits_for_nobody(self, ledger):
        """Who wants to buy anew neither gets the old answer nor waits for another's."""
        first, second = ledger.begin(record_of()), ledger.begin(record_of())
        assert asyncio.run(first.ask(0, 1, "k", 0, fresh=False)) is None
        assert asyncio.run(second.ask(0, 1, "k", 0, fresh=True)) is None
        second.keep(0, 1, answer("new"), 1.0)
        third = ledger.begin(record_of())
        assert asyncio.run(third.ask(0, 1, "k", 0, fresh=True)) is None

    def test_keeping_twice_is_keeping_once(self, ledger):
        """A stop may find an answer that is kept already."""
        journal = ledger.begin(record_of())
        asyncio.run(journal.ask(0, 1, "k", 0, fresh=False))
        journal.keep(0, 1, answer(), 1.0)
        journal.keep(0, 1, answer(), 2.0)
        assert 1 == len(ledger)
        assert ledger.find("k", 1) is None

    def test_two_runs_at_once_buy_each_answer_once(self, ledger):
        """Eight agents in two runs at the same time: eight calls, and both runs have all texts."""
        plan = Plan(tuple(Agent(f"a{one}", f"question {one}") for one in range(8)))
        client = Scripted(always(takes_s=0.02))

        async def both():
            from agent_magic.live import Driver

            drivers = [Driver(plan, Policy(8), client, ledger=ledger) for _ in range(2)]
            async with asyncio.TaskGroup() as group:
                for one in drivers:
                    group.create_task(one.drive())
            return [one.record for one in drivers]

        records = asyncio.run(both())
        assert 8 == len(client.asked)
        assert [8, 8] == [sum(one.status == "succeeded" for one in record.results) for record in records]
        sources = [one.source for record in records for one in record.results]
        assert {"live": 8, "ledger": 8} == {word: sources.count(word) for word in ("live", "ledger")}

    def test_simulated_answers_are_kept_but_not_served(self, ledger):
        """A run of the stand-in can be opened; its answers are asked for again."""
        plan = plan_of(a="x")
        record, _ = drive(plan, always(source="simulated", first_s=0.5), ledger=ledger)
        _, client = drive(plan, always(), ledger=ledger)
        assert 1 == len(client.asked)
        runs = ledger._past_runs()
        assert [False, True] == [one.simulated for one in runs]
        assert record.events == opened(ledger, runs[1].run).events
