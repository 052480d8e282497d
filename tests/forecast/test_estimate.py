"""What a plan may cost and take before it has run: ranges in order, each number on what it says it stands on."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agent_magic as am
from agent_magic import Task, TokenPrice
from agent_magic.api import Agent, Claude, Ledger, Plan, Policy
from agent_magic.forecast import ASSUMED_OUTPUT_TOKENS
from agent_magic.live import foresee
from agent_magic.providers import EVERYTHING, Provider, limit_class
from agent_magic.providers.anthropic.models import SPEEDS
from agent_magic.record import Answer, Ceiling, Past, Usage
from tests.record.histories import answered

MODEL = "claude-haiku-5-5"
PRICES = {MODEL: TokenPrice(1.0, 5.0)}
GRID_S = 2.0**-19
"""Times are on the grid of a run's record; each agent may end a little early."""
CHAIN = Plan([Agent("a", "x" * 400, max_tokens=2000), Agent("b", "{{ a }}", max_tokens=2000)])


def past(agent, output, api_s=10.0, *, model=MODEL, effort=None, simulated=False):
    """One earlier answer."""
    return Past(agent, model, effort, 100, output, 1.0, api_s, simulated)


def test_five_earlier_answers_give_their_own_percentiles():
    """Of tokens and of seconds: the 10th, 50th and 90th, by linear interpolation."""
    rows = [past("a", tokens, float(tokens) / 10) for tokens in (100, 200, 300, 400, 500)]
    one = CHAIN.estimate(history=answered(CHAIN.agents, rows), prices=PRICES).expected[0]
    assert (140, 300, 460) == one.output
    assert (14.0, 30.0, 46.0) == pytest.approx(one.seconds)
    assert ("ledger", "ledger") == (one.output_basis, one.seconds_basis)
    assert "its 5 earlier answers" in one.stands_on
    assert "half to twice" not in one.stands_on


def test_fewer_give_their_median_with_a_range_that_says_it_is_assumed():
    """Half to twice, and it says so."""
    one = CHAIN.estimate(
        history=answered(CHAIN.agents, [past("a", 100), past("a", 300, 20.0)]), prices=PRICES
    ).expected[0]
    assert (100, 200, 400) == one.output
    assert (7.5, 15.0, 30.0) == pytest.approx(one.seconds)
    assert "2 earlier answers, taken as half to twice" in one.stands_on


def test_a_group_s_answers_stand_in_for_one_s_own():
    """What three rows of a frame took tells of the others, and it says whose answers they were."""
    plan = Plan([Agent("a", "{{ item }}", each="rows", max_tokens=2000)], {"rows": list("xyz")})
    rows = [past("a_0", 100), past("a_1", 300, 20.0)]
    own, other = (plan.estimate(history=answered(plan.agents, rows), prices=PRICES).expected[one] for one in (1, 2))
    assert (300, 200) == (own.output.likely, other.output.likely)
    assert "length: its 1 earlier answer," in own.stands_on
    assert "length: its group's 2 earlier answers," in other.stands_on


def test_none_give_the_stated_prior_and_the_dated_pace():
    """The length is capped by `max_tokens`, and all of it is marked as assumed."""
    estimate = CHAIN.estimate(prices=PRICES)
    one, pace = estimate.expected[0], SPEEDS["haiku"]
    assert (ASSUMED_OUTPUT_TOKENS / 4, ASSUMED_OUTPUT_TOKENS, 2000) == one.output
    assert one.seconds.likely == pytest.approx(pace.ttft_s + ASSUMED_OUTPUT_TOKENS / pace.pace)
    assert ("estimated", "assumed", "assumed") == (one.basis, one.output_basis, one.seconds_basis)
    assert "assumed" == estimate.basis
    assert "November 2025" in one.stands_on
    assert "rate limits unknown, ignored" in repr(estimate)


def test_the_model_paces_an_agent_that_has_no_past():
    """Answers of the model to others say how fast it is, not how long the answer will be."""
    rows = [past("other", 900, 10.0)] * 5
    one = CHAIN.estimate(history=answered(CHAIN.agents, rows), prices=PRICES).expected[0]
    assert one.seconds.likely == pytest.approx(1.0 + ASSUMED_OUTPUT_TOKENS / 100)
    assert ("assumed", "ledger") == (one.output_basis, one.seconds_basis)


def test_made_up_answers_count_only_where_they_are_asked_for():
    """A stand-in's lengths say nothing of a real model's."""
    history = answered(CHAIN.agents, [past("a", 100, simulated=True)] * 5)
    real, made_up = (CHAIN.estimate(history=history, prices=PRICES, simulated=each) for each in (False, True))
    assert (ASSUMED_OUTPUT_TOKENS, 100) == tuple(one.expected[0].output.likely for one in (real, made_up))
    assert (False, True) == (real.simulated, made_up.simulated)
    assert "simulated" in repr(made_up)


def test_seconds_of_another_mock_server_are_no_measure():
    """Their lengths count; how long one takes is assumed, by what the present mock server takes of it."""
    history = answered(CHAIN.agents, [past("a", 100, 90.0, simulated=True)] * 5).moved(0.1)
    one = CHAIN.estimate(history=history, prices=PRICES, simulated=True).expected[0]
    pace = SPEEDS["haiku"]
    assert 100 == one.output.likely
    assert one.seconds.likely == pytest.approx(0.1 * (pace.ttft_s + 100 / pace.pace))
    assert ("ledger", "assumed") == (one.output_basis, one.seconds_basis)
    assert "0.1 of it as the mock server is set" in one.stands_on


def test_a_hand_sum():
    """The child reads the parent's answer; the dollars and the seconds are those of the two."""
    rows = [past("a", 300, 4.0), past("b", 100, 2.0)] * 5
    found = CHAIN.estimate(history=answered(CHAIN.agents, rows), prices=PRICES, counted=[101, 7])
    assert found.cost is not None
    assert [101, 307] == [one.input_tokens for one in found.expected]
    assert ["counted", "estimated"] == [one.basis for one in found.expected]
    assert found.cost.likely == pytest.approx((101 + 307 + 5 * (300 + 100)) / 1e6)
    assert found.most_usd == pytest.approx((101 + 7 + 2000 + 5 * (2000 + 2000)) / 1e6)
    assert found.wall_s.likely == pytest.approx(6.0)
    assert ("a", "b") == found.critical_path.agents
    assert "dependencies" == found.limited_by
    frame = found.agents
    assert [4.0, 2.0] == list(frame.likely_s)
    assert frame.likely_usd.sum() == pytest.approx(found.cost.likely)
    assert frame.on_critical_path.all()


def test_chains_bind_though_others_run_beside_them():
    """A run that takes as long as its longest chain is bound by it."""
    fan = Plan([Agent("a", "x"), *(Agent(f"b{n}", "{{ a }}") for n in range(3))])
    found = fan.estimate(prices=PRICES)
    assert "dependencies" == found.limited_by
    assert found.wall_s.likely == pytest.approx(found.critical_path.length_s)


def test_contexts_that_agents_share_are_priced_as_the_run_caches_them():
    """The first writes the context, the others wait for it and read it."""
    agents = [Agent(f"a{n}", "x", context="book", max_tokens=10) for n in range(5)]
    plan = Plan(agents, {"book": "y" * 40_000})
    cached, plain = (plan.estimate(Policy(cache=mode), prices=PRICES) for mode in ("auto", "off"))
    assert cached.cost is not None
    assert plain.cost is not None
    assert plain.cost.likely - cached.cost.likely == pytest.approx(10_000 * (5 - 1.25 - 4 * 0.1) / 1e6)
    assert cached.wall_s.likely >= plain.wall_s.likely  # the first run with a model waits for its first reply anyway


def test_what_binds():
    """Slots, a rate limit that is known, a budget, a deadline."""
    wide = Plan([Agent(f"w{n}", "x", max_tokens=100) for n in range(12)])
    rows = answered(wide.agents, [past(f"w{n}", 50, 2.0) for n in range(12)] * 5)
    free = wide.estimate(Policy(12), history=rows, prices=PRICES)
    assert "none known" == free.limited_by
    assert "limited by nothing that is known" in repr(free)
    assert "slot" == wide.estimate(Policy(2), history=rows, prices=PRICES).limited_by
    assert 12.5 == pytest.approx(wide.estimate(Policy(2), history=rows, prices=PRICES).wall_s.likely)  # no reply yet
    assert 12.0 == pytest.approx(wide.estimate(Policy(2), history=rows, prices=PRICES, ceilings={}).wall_s.likely)
    ceilings = {limit_class(MODEL): {"requests": Ceiling(6.0, 1.0)}}
    limited = wide.estimate(Policy(12), history=rows, prices=PRICES, ceilings=ceilings)
    assert "requests" == limited.limited_by
    assert limited.wall_s.likely > 60
    assert "budget" == wide.estimate(history=rows, prices=PRICES, budget_usd=1e-6).limited_by
    assert "deadline" == wide.estimate(Policy(2, deadline_s=5.0), history=rows, prices=PRICES).limited_by


def test_no_price_is_unknown_and_no_budget_reaches_it():
    """Never $0."""
    plan = Plan([Agent("a", "x", model="claude-opus-99")])
    with pytest.warns(UserWarning, match="No price is known"):
        found = plan.estimate(budget_usd=100.0)
    assert (None, None) == (found.cost, found.most_usd)
    assert (100.0, 0, 0) == found.reaches
    assert "unknown" in repr(found)
    assert found.agents.likely_usd.isna().all()


def test_dollars_a_minute_are_said_not_to_be_counted():
    """How long they hold the run up at least, by what it is expected to cost; of little money only that."""
    plan = Plan([Agent("a", "x" * 400, max_tokens=1000)])
    rows = answered(plan.agents, [past("a", 1000, 2.0)] * 5)
    cost = plan.estimate(history=rows, prices=PRICES).expected[0].cost_usd or 0.0
    for rate, ending in ((cost / 3, "takes over 2 min 00 s"), (cost * 2, "is not counted in the seconds")):
        [note] = [
            one for one in plan.estimate(Policy(max_usd_per_min=rate), history=rows, prices=PRICES).notes if "$" in one
        ]
        assert note.endswith(ending)
    assert not [one for one in plan.estimate(history=rows, prices=PRICES).notes if "$" in one]


def test_answers_of_the_ledger_cost_nothing_and_lead_to_their_children():
    """A child whose parents' answers are all there is looked up as well."""
    ledger, client = Ledger(), Claude(base_url="http://127.0.0.1:9")
    plan = Plan([*CHAIN.agents, Agent("c", "{{ b }}", max_tokens=100)])
    for agent, text in ((0, "one"), (1, "two")):
        requests, held = foresee(plan, client, ledger)
        assert agent == sum(one is not None for one in held)
        answer = Answer(text, "end_turn", usage=Usage(1, output_tokens=1), model=MODEL)
        ledger.keep(requests[agent].key(client.endpoint), 0, answer)
    found = plan.estimate(client=client, ledger=ledger, prices=PRICES)
    assert [True, True, False] == [one.reused for one in found.expected]
    assert (0.0, 0.0, 0.0) == found.expected[1].cost
    assert found.cost == found.expected[2].cost
    assert ("c",) == found.critical_path.agents
    assert found.wall_s.likely == pytest.approx(found.expected[2].seconds.likely)
    assert 3 == found.reach((found.most_usd or 0.0) * 10).surely
    assert 2 == found.reach(0.0).surely


def test_a_budget_is_surely_enough_only_for_all_turns():
    """An agent with tools sends many requests: its `at most` counts them, and so does how far a budget reaches."""

    @am.tool
    def look(name: str) -> str:
        """Look something up."""
        return name

    plan = Plan([Agent("a", "x", tools=[look], max_turns=50, max_tokens=100)])
    found = plan.estimate(prices=PRICES, budget_usd=1.0)
    most, aside = found.most_usd or 0.0, found.expected[0].aside_usd[1] or 0.0
    assert most > 2 * aside > 0
    assert (0, 1) == (found.reach(most / 2).surely, found.reach(most).surely)


@st.composite
def plans(draw):
    """A small plan, a past of some of its agents, a policy."""
    count = draw(st.integers(1, 8))
    edges = [draw(st.sets(st.integers(0, max(0, n - 1)), max_size=min(n, 3))) if n else set() for n in range(count)]
    agents = [
        Agent(
            f"a{n}",
            "x" * draw(st.integers(1, 4000)) + "".join(f" {{{{ a{parent} }}}}" for parent in sorted(edges[n])),
            max_tokens=draw(st.integers(1, 3000)),
        )
        for n in range(count)
    ]
    rows = draw(
        st.lists(
            st.builds(past, st.sampled_from([one.name for one in agents]), st.integers(1, 5000), st.floats(1.5, 200)),
            max_size=30,
        )
    )
    schedule = draw(st.sampled_from(["ready", "layers", "sequential"]))
    return Plan(agents), answered(agents, rows), Policy(draw(st.integers(1, 4)), schedule)


@settings(max_examples=60, deadline=None)
@given(plans(), st.lists(st.floats(0, 0.2), min_size=2, max_size=6))
def test_ranges_are_in_order_and_more_money_reaches_no_less(drawn, budgets):
    """Low, likely, high and at most; never faster than the longest chain; likely reach never below the sure one."""
    plan, history, policy = drawn
    found = plan.estimate(policy, history=history, prices=PRICES)
    for one in found.expected:
        for span in (one.input, one.output, one.seconds, one.cost):
            assert span.low <= span.likely <= span.high
        assert one.cost.high <= one.most_usd * (1 + 1e-9)
        assert one.output.high <= plan[one.agent].max_tokens
    assert found.cost.low <= found.cost.likely <= found.cost.high <= found.most_usd * (1 + 1e-9)
    assert found.wall_s.low <= found.wall_s.likely <= found.wall_s.high
    work = sum(one.seconds.likely for one in found.expected)
    assert found.wall_s.likely >= max(found.critical_path.length_s, work / policy.concurrency) - GRID_S * len(plan)
    assert sorted(found.order) == list(range(len(plan)))
    reached = [found.reach(budget) for budget in sorted(budgets)]
    assert all(before.likely <= after.likely for before, after in pairwise(reached))
    assert all(before.surely <= after.surely for before, after in pairwise(reached))
    assert all(one.surely <= one.likely for one in reached)
    full = found.reach(1e9)
    assert (len(plan), len(plan)) == (full.likely, full.surely)


def look(word: str) -> str:
    """Look a word up."""
    return word


def test_an_agent_with_tools_takes_one_turn_three_or_all_it_may():
    """Each turn sends again what came before it. Those who read the answer read its last turn only."""
    assumed, cap = 400, 5

    def ask(turns):
        first = Agent("a", "x" * 400, tools=[look], max_tokens=500, max_turns=turns)
        return Plan([first, Agent("b", "{{ a }}")]).estimate(prices=PRICES)

    plain, found = ask(1), ask(cap)
    own, turn = found.expected[0].input.low, plain.expected[0].output
    assert (turn.low, 3 * turn.likely, cap * turn.high) == found.expected[0].output
    assert 3 * own + 3 * (turn.likely + assumed) == found.expected[0].input.likely
    assert cap * own + 10 * (turn.high + 4 * assumed) == found.expected[0].input.high
    most = cap * own + 10 * (500 + 4 * assumed)
    assert found.expected[0].most_usd == pytest.approx((most + 5 * cap * 500) / 1e6)
    assert "turns: 3 assumed (1–5, at most 5)" in found.expected[0].stands_on
    assert plain.expected[1].input.high == found.expected[1].input.high
    assert found.expected[0].seconds.likely == pytest.approx(3 * plain.expected[0].seconds.likely)


def test_turns_are_counted_by_earlier_answers():
    """Two answers in five requests are two and a half turns."""
    rows = [past("a", 100)._replace(calls=calls) for calls in (True, True, False, True, False)]
    plan = Plan([Agent("a", "x" * 400, tools=[look], max_tokens=2000)])
    found = plan.estimate(history=answered(plan.agents, rows), prices=PRICES).expected[0]
    assert 250 == found.output.likely
    assert "turns: 2.5 by its 2 earlier answers, taken as half to twice (1.25–5, at most 10)" in found.stands_on


def test_a_budget_reaches_an_agent_with_tools_surely_only_with_all_its_turns():
    """What warns of a budget counts the cap."""
    plan = Plan([Agent("a", "x" * 400, tools=[look], max_tokens=500), Agent("b", "y")])
    found = plan.estimate(prices=PRICES)
    most = found.expected[0].most_usd
    assert most is not None
    assert (2, 1) == found.reach(most)[1:]


def test_what_is_declared_stands_in_for_answers():
    """Of an agent without answers of its own, and of a task; taken as half to twice, and it says so."""
    agents = [Agent("a", "x", expect=30.0, expect_out=800), Agent("b", "x"), Task("t", lambda: 1, expect=4.0)]
    one, other, task = Plan(agents).estimate(prices=PRICES).expected
    assert ((15.0, 30.0, 60.0), (400, 800, 1600)) == (one.seconds, one.output)
    assert ("assumed", "assumed") == (one.output_basis, one.seconds_basis)
    assert "length: as declared, taken as half to twice" in one.stands_on
    assert other.output.likely == ASSUMED_OUTPUT_TOKENS
    assert (2.0, 4.0, 8.0) == task.seconds
    seen = Plan(agents).estimate(prices=PRICES, history=answered(agents, [past("a", 100, 7.0)])).expected[0]
    assert (7.0, 100) == (seen.seconds.likely, seen.output.likely)


def test_tasks_cost_nothing_and_the_notes_say_what_is_left_out():
    """Nobody knows how long a task takes, nor a tool."""

    def look(word: str) -> str:
        """Look a word up.

        Args:
            word: The word.
        """
        return word

    def clean(rows):
        return rows

    plan = Plan([Task("clean", clean), Agent("a", "{{ clean }}", tools=[look])], {"rows": [1]})
    found = plan.estimate(prices=PRICES)
    task, agent = found.expected
    assert (0, 0, 0.0, 0.0, "") == (task.input_tokens, task.output_tokens, task.cost_usd, task.most_usd, task.model)
    assert found.wall_s.likely == pytest.approx(agent.seconds.likely)
    assert "1 task counted as no time and no text: nobody knows yet" in found.notes
    assert "without the seconds of tools: a" in found.notes
    assert [True, False] == [one == 0.0 for one in found.agents["likely_usd"]]


def look_up(word: str) -> str:
    """Look a word up."""
    return word


@pytest.mark.parametrize(
    "options",
    [{"returns": bool}, {"tools": [look_up], "max_turns": 1}, {"system": "Be careful. " * 50}, {"context": "text"}, {}],
)
@pytest.mark.parametrize("rows", [61, 200])
def test_a_sample_that_is_counted_tells_the_size_of_the_others(rows, options):
    """What no text of a request shows costs in all of them: a type, tools. Long ones tell what a character is worth."""
    values = {"rows": ["word " * (1 + number % 7 * number) for number in range(rows)], "text": "A text. " * 90}
    plan = Plan([Agent("a", "Say: {{ item }}", each="rows", **options)], values)
    real = [250 + round(sum(map(len, one.texts())) / 3) for one in foresee(plan, Counter())[0]]
    counter = Counter()
    counted = asyncio.run(plan.count_tokens(client=counter))
    assert 10 == counter.asked == sum(one is not None for one in counted)
    found = plan.estimate(counted=counted)
    assert [one.input_tokens for one in found.expected] == pytest.approx(real, abs=1)
    assert sum(one.input_tokens for one in plan.estimate().expected) < sum(real) - 250 * rows


def test_a_large_plan_of_many_kinds_is_counted_one_of_each():
    """The counter has a limit of its own; the kinds behind it are estimated by their characters."""
    plan = Plan([Agent(f"a{number}", "Say it.", system=f"You are {number}.") for number in range(70)])
    counter = Counter()
    counted = asyncio.run(plan.count_tokens(client=counter))
    assert [True] * 50 + [False] * 20 == [one is not None for one in counted]


class Counter(Provider):
    """Counts 250 tokens for what nobody sees, and one for every three characters."""

    capabilities = EVERYTHING
    endpoint = "counter"

    def __init__(self):
        self.asked = 0

    async def count_tokens(self, request):
        """Count a request."""
        self.asked += 1
        return 250 + round(sum(map(len, request.texts())) / 3)

    async def send(self, request, stream):
        """Answer nothing."""
        raise NotImplementedError
