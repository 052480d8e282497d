"""The numbers of a run, on records made by hand."""

# Tests hand over wrong types on purpose, and take for granted what they have just checked.
# pyright: reportOperatorIssue=false

from __future__ import annotations

import pytest

from agent_magic import Agent, Policy, TokenPrice
from agent_magic.declare import Plan
from agent_magic.engine import Key
from agent_magic.errors import Overloaded
from agent_magic.forecast import ASSUMED_OUTPUT_TOKENS
from agent_magic.forecast import estimate_plan as estimate
from agent_magic.measure import slack_s, summarize
from agent_magic.measure.metrics import _limited_by, critical_path, judge, total_cost
from agent_magic.record import Prices, PriceWarning, Request
from agent_magic.show.graph.scene import header_of
from tests.declare.examples import E1, E2, E6, Example
from tests.live.virtual import MODEL, Reply, Scripted, drive


def run_of(example, policy=None):
    """Run a plan on a virtual clock."""
    plan = Plan(tuple(Agent(agent.name, f"p{one}", after=agent.uses) for one, agent in enumerate(example.plan.agents)))
    record, _ = drive(plan, lambda prompt, _: Reply(example.work_s[int(prompt[1:])]), policy or Policy(8))
    return record


def test_slack_of_the_business_plan():
    """How much later each could have finished: only what no path to the end needs has room."""
    assert [0.0, 0.0, 2.0, 2.0, 0.0, 2.0, 0.0, 0.0, 0.0] == slack_s(run_of(E2))


def test_slack_of_the_critical_path_example():
    """E6: the short branch of six may end twenty: fourteen later; so may each of its two agents."""
    assert [0.0, 0.0, 0.0, 14.0, 14.0] == slack_s(run_of(E6))


def test_the_critical_path_of_a_run():
    """The longest chain of work as it was done, by number."""
    assert (0, 4, 6, 8) == critical_path(run_of(E2))
    assert (0, 1, 2) == critical_path(run_of(E6))


@pytest.mark.parametrize(
    ("wall", "verdict"),
    [
        (8.0, "CONCURRENT"),
        (9.6, "CONCURRENT"),
        (9.7, "PARTIAL"),
        (14.3, "PARTIAL"),
        (14.4, "SEQUENTIAL"),
        (18.0, "SEQUENTIAL"),
        (50.0, "SEQUENTIAL"),
    ],
)
def test_the_thresholds_of_the_verdict(wall, verdict):
    """18 s of work on a path of 8 s: within 1.2 times the path, from 0.8 of the sum, or between."""
    assert verdict == judge(18.0, 8.0, wall)


@pytest.mark.parametrize("numbers", [(0.0, 0.0, 5.0), (1.0, 1.0, 0.0), (1.0, 1.0, None)])
def test_without_work_or_time_there_is_no_verdict(numbers):
    """Nothing done, nothing said."""
    assert judge(*numbers) is None


CAUSES = {
    "one slot": (E2, Policy(1), "SEQUENTIAL", "slot"),
    "sequential": (E2, Policy(8, "sequential"), "SEQUENTIAL", "schedule"),
    "room for all": (E2, Policy(8), "CONCURRENT", "dependencies"),
    "two slots": (E1, Policy(2), "PARTIAL", "slot"),
    "nobody has parents": (Example(((), (), ()), (2.0, 1.0, 1.0)), Policy(8), "CONCURRENT", "longest"),
}


@pytest.mark.parametrize(("example", "policy", "verdict", "cause"), CAUSES.values(), ids=CAUSES)
def test_what_kept_a_run_from_its_bound(example, policy, verdict, cause):
    """The verdict comes with the cause that cost the most waiting."""
    summary = summarize(run_of(example, policy))
    assert (verdict, cause) == (summary.verdict, summary.limited_by)


def test_a_chain_is_limited_by_its_dependencies():
    """One after another because the plan says so: sequential, and as good as it can be."""
    plan = Plan((Agent("a", "x"), Agent("b", "{{ a }}"), Agent("c", "{{ b }}")))
    summary = summarize(drive(plan, lambda *_: Reply(1.0))[0])
    assert ("SEQUENTIAL", "dependencies", 1.0, 1.0) == (
        summary.verdict,
        summary.limited_by,
        summary.efficiency,
        summary.bound,
    )


def test_barriers_and_waits_are_named():
    """`layers` makes a barrier the cause; waiting after failures is `backoff`."""
    plan = Plan((Agent("a", "a"), Agent("b", "b"), Agent("c", "{{ a }}c"), Agent("d", "{{ b }}d")))
    work = {"a": 9.0, "b": 1.0}
    record, _ = drive(
        plan, lambda prompt, _: Reply(work.get(prompt, 1.0 if prompt.endswith("c") else 9.0)), Policy(8, "layers")
    )
    assert ("PARTIAL", "barrier") == (summarize(record).verdict, summarize(record).limited_by) or (
        "SEQUENTIAL",
        "barrier",
    ) == (summarize(record).verdict, summarize(record).limited_by)

    def script(_, number):
        return Reply(1.0, Overloaded("x", retry_after_s=20.0)) if number == 1 else Reply(1.0)

    record, _ = drive(plan, script)
    assert "backoff" == summarize(record).limited_by


def test_a_run_that_goes_on_counts_up_to_now():
    """Work under way and the wall count up to the given time; the run has no last word yet."""
    seen = {}

    class Peek(Policy):
        pass

    import asyncio

    from agent_magic.live import Driver
    from tests.live.virtual import Scripted, run_virtually

    async def work(loop):
        driver = Driver(
            Plan((Agent("a", "x"), Agent("b", "y"))), Policy(), Scripted(lambda *_: Reply(10.0)), clock=loop.time
        )
        task = loop.create_task(driver.drive())
        await asyncio.sleep(4.0)
        seen["now"] = summarize(driver.record, driver.now())
        await task

    run_virtually(work)
    assert (4.0, 8.0, 2.0, 4.0, 2) == (
        seen["now"].wall_s,
        seen["now"].agent_s,
        seen["now"].mean_concurrency,
        seen["now"].critical_path_s,
        seen["now"].running,
    )


def test_one_answer_without_a_price_makes_the_sum_unknown():
    """Dollars are unknown as soon as an answer's are; what failed unpriced does not hide the rest."""
    plan = Plan((Agent("a", "x", model="mine"), Agent("b", "y")))
    prices = {"mine": TokenPrice(1, 1)}
    record, _ = drive(plan, lambda *_: Reply(), prices=Prices(prices))
    assert record["a"].cost_usd + record["b"].cost_usd == total_cost(record.results)
    with pytest.warns(PriceWarning):
        record, _ = drive(plan, lambda *_: Reply())
    assert total_cost(record.results) is None
    assert summarize(record).cost_usd is None


def test_sources_are_summed_up_as_the_header_names_them():
    """One source, all of them, or none: frame, header and page have the same words."""
    plan = Plan((Agent("a", "x"), Agent("b", "y")))
    assert "simulated" == summarize(drive(plan, lambda *_: Reply(source="simulated"))[0]).source
    mixed = drive(plan, lambda prompt, _: Reply(source="live" if prompt == "x" else "simulated"))[0]
    assert "live + simulated" == summarize(mixed).source
    assert header_of(mixed, 1.0, numbers=summarize(mixed)).facts[-1] == summarize(mixed).source
    assert summarize(drive(Plan(()), None)[0]).source is None


def test_without_a_wait_the_plan_is_the_limit():
    """Nobody waited, and there was no verdict: nothing is named. Nobody waited, and it was slow: its chain."""
    assert "" == _limited_by([], None, None, chained=True)
    assert "dependencies" == _limited_by([], "PARTIAL", 0.5, chained=True)
    assert "longest" == _limited_by([], "PARTIAL", 0.5, chained=False)


@pytest.mark.filterwarnings("ignore::agent_magic.record.prices.PriceWarning")
def test_what_ended_agents_before_they_were_sent_is_named():
    """A budget that refuses some or all of them limits the run, whatever else they waited for before."""
    plan = Plan((Agent("a", "x"), Agent("b", "y")))
    whole = summarize(drive(plan, lambda *_: Reply(1.0), Policy(budget_usd=1e-9))[0])
    assert (None, "budget") == (whole.verdict, whole.limited_by)
    prices = Prices({MODEL: TokenPrice(1_000.0, 1_000.0)})
    client = Scripted(lambda *_: Reply(1.0, tokens=(10, 10, 0, 0)), credentials=Key())
    part = summarize(drive(plan, client, Policy(8, budget_usd=4.11), prices=prices)[0])
    assert "budget" == part.limited_by


def test_what_a_plan_may_cost():
    """Own tokens counted or estimated by what was, parents' answers assumed, dollars likely and at most."""
    plan = Plan(
        (Agent("a", "x" * 400, max_tokens=100, model="mine"), Agent("b", "{{ a }}", max_tokens=1000, model="mine"))
    )
    prices = Prices({"mine": TokenPrice(1_000_000, 0)})
    asked = [Request("mine", "x" * 400, 100), Request("mine", "", 1000)]
    first, second = estimate(plan, asked, [None, None], counted=[None, 7], prices=prices).expected
    assert ("a", 0, 107, 100, "estimated", 107.0, 107.0) == (
        first.agent,
        first.layer,
        first.input_tokens,
        first.output_tokens,
        first.basis,
        first.cost_usd,
        first.most_usd,
    )
    assert (107, min(ASSUMED_OUTPUT_TOKENS, 1000), "estimated") == (
        second.input_tokens,
        second.output_tokens,
        second.basis,
    )
    counted = estimate(plan, asked, [None, None], counted=[7, 7], prices=prices).expected[0]
    assert (7, "counted") == (counted.input_tokens, counted.basis)
    shared = asked[0]._replace(context="y" * 4000)
    longer = estimate(plan, [shared, asked[1]], [None, None], counted=[None, 7], prices=prices).expected[0]
    assert 1101 == longer.input_tokens
