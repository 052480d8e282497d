"""What-ifs of a plan before it runs: the frame of a run's what-if, the numbers of the estimate."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agent_magic as am
from agent_magic.errors import DeclarationError, PlanError, UnknownAgent
from agent_magic.record import History
from tests.live.virtual import MODEL, Reply, drive

OTHER = "claude-opus-5-5"
ENDS = ("wall_low_s", "wall_high_s", "cost_low_usd", "cost_high_usd")
NUMBERS = ("wall_s", "cost_usd", *ENDS)
ITEMS = ["x", "y", "x"]


def answer(prompt, _):
    """Take seconds and tokens by what is asked."""
    size = 5 + sum(map(ord, prompt)) % 90
    text = '{"value": ["p", "q"]}' if "Which" in prompt else "ok"
    return Reply(0.2 + size / 40, text=text, tokens=(20, size, 0, 0))


def history_of(*plans):
    """What runs of plans teach."""
    history = History()
    for plan in plans:
        history.learn(drive(plan, answer)[0])
    return history


@st.composite
def plans(draw):
    """Draw a plan of any parts: models, contexts, rows, maps, loops, conditions, tools, tasks, cascades, races."""
    agents = [am.Agent("first", "Begin.", model=draw(st.sampled_from([MODEL, OTHER])))]
    kinds = draw(st.lists(st.sampled_from(sorted(PARTS)), unique=True, max_size=4))
    for kind in kinds:
        agents += PARTS[kind]()
    return am.Plan(agents, {"lore": "Once. " * draw(st.sampled_from([10, 3_000])), "items": ITEMS})


def look(word: str) -> str:
    """Look a word up."""
    return word


PARTS = {
    "reader": lambda: [am.Agent("reader", "Sum {{ first }}", effort="low", max_tokens=100)],
    "shared": lambda: [am.Agent(f"of_lore{n}", f"Use it {n}", context="lore") for n in range(3)],
    "rows": lambda: [am.Agent("row", "Do {{ item }}", each="items")],
    "map": lambda: [
        am.Agent("list", "Which?", returns=list[str]),
        am.Agent("each", "Do {{ item }}", each="list", most=4),
        am.Agent("join", "Join {{ each }}"),
    ],
    "loop": lambda: [
        am.Agent("draft", "Write. {{ critic }}", until="critic", rounds=3),
        am.Task("critic", lambda draft: len(draft) > 0, expect=0.5),
        am.Agent("end", "Print {{ draft }}"),
    ],
    "condition": lambda: [
        am.Agent("judge", "Good?", returns=bool),
        am.Agent("mend", "Mend {{ judge }}", when="judge"),
    ],
    "tools": lambda: [am.Agent("seeker", "Look it up.", tools=[look])],
    "cascade": lambda: [am.Agent("cheap", "Label.", cascade=[MODEL, OTHER], returns=bool)],
    "race": lambda: [
        am.Agent("hare", "Quick."),
        am.Agent("tortoise", "Slowly.", model=OTHER),
        am.first_of("winner", ["hare", "tortoise"]),
    ],
}

POLICIES = st.sampled_from(
    [
        am.Policy(),
        am.Policy(1),
        am.Policy(3, schedule="layers"),
        am.Policy(schedule="sequential", cache="off"),
        am.Policy(batch="on"),
        am.Policy(identical="each"),
    ]
)
CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "model": st.sampled_from([[None, MODEL], OTHER, {"first": OTHER}]),
        "concurrency": st.sampled_from([1, [1, 4, 16]]),
        "schedule": st.sampled_from(["ready", ["layers", "sequential"]]),
        "limits": st.sampled_from([10, ["off", 60]]),
        "cache": st.sampled_from(["on", "off"]),
        "batch": st.sampled_from([True, [False, True]]),
        "effort": st.sampled_from(["low", {"first": "high"}]),
        "outage": st.just((1, 3)),
        "temperature": st.just(0.5),
    },
)


@pytest.mark.parametrize("kind", sorted(PARTS))
@pytest.mark.parametrize("known", [False, True])
def test_each_kind_of_plan_is_asked_before_it_runs(kind, known):
    """Groups, loops, tools, cascades, races and identical rows: asked for nothing, the row is the estimate."""
    plan = am.Plan([am.Agent("first", "Begin."), *PARTS[kind]()], {"lore": "Once. " * 3_000, "items": ITEMS})
    found = plan.estimate(history=history_of(plan) if known and kind != "tools" else None)
    row = found.whatif().iloc[0]
    assert found.wall_s == (row["wall_low_s"], row["wall_s"], row["wall_high_s"])
    assert found.cost == (row["cost_low_usd"], row["cost_usd"], row["cost_high_usd"])
    assert found.basis == row["basis"]


@settings(max_examples=25, deadline=None)
@given(plans(), POLICIES, CHANGES, st.booleans())
def test_a_plan_is_asked_as_a_run_is(plan, policy, changes, is_known):
    """The columns are those of a run's what-if, the ends in order, and no number is made up where none is known."""
    history = history_of(plan) if is_known and "seeker" not in plan.index else None
    if "seeker" in plan.index and ("batch" in changes or policy.batch == "on"):
        with pytest.raises(PlanError, match="has tools, so it would wait for a batch in each of its turns"):
            plan.estimate(policy, history=history).whatif(**changes)
        return
    frame = plan.estimate(policy, history=history).whatif(**changes)
    record = drive(am.Plan([am.Agent("first", "Begin.")]), answer)[0]
    of_run = am.Run(record).whatif(**changes)
    assert list(of_run.columns) == list(frame.columns)
    assert dict(of_run.dtypes) == dict(frame.dtypes)
    assert len(of_run) == len(frame)
    assert (frame["wall_low_s"] <= frame["wall_s"]).all()
    assert (frame["wall_s"] <= frame["wall_high_s"]).all()
    assert (frame["cost_low_usd"] <= frame["cost_usd"]).all()
    assert (frame["cost_usd"] <= frame["cost_high_usd"]).all()
    assert set(frame["basis"]) <= {"ledger", "pilot", "assumed"}


@settings(max_examples=25, deadline=None)
@given(plans(), POLICIES, st.booleans())
def test_the_engine_repeats_the_estimate(plan, policy, is_known):
    """A change that changes nothing is played, and says what the estimate does."""
    history = history_of(plan) if is_known and "seeker" not in plan.index else None
    if "seeker" in plan.index and policy.batch == "on":
        return  # it is refused
    found = plan.estimate(policy, history=history)
    assert found.cost is not None
    played = found.whatif(limits="off").iloc[0]  # there are none
    assert found.wall_s.likely == pytest.approx(played["wall_s"], abs=1e-6)
    assert found.cost.likely == pytest.approx(played["cost_usd"])
    assert found.wall_s.low == pytest.approx(played["wall_low_s"], abs=1e-6)
    assert found.wall_s.high == pytest.approx(played["wall_high_s"], abs=1e-6)


@pytest.mark.parametrize("known", [(), (MODEL,), (OTHER,), (MODEL, OTHER)])
def test_another_model_says_what_the_estimate_with_it_would(known):
    """By whatever is known of either, in each number."""

    def of(model):
        return am.Plan(
            [am.Agent(n, f"Go {r}", model=model) for n, r in (("a", ""), ("b", "{{ a }}"), ("c", "{{ a }}"))]
        )

    history = history_of(*map(of, known))
    row = of(MODEL).estimate(history=history).whatif(model=OTHER).iloc[0]
    other = of(OTHER).estimate(history=history)
    assert other.wall_s == pytest.approx((row["wall_low_s"], row["wall_s"], row["wall_high_s"]), abs=1e-6)
    assert other.cost == pytest.approx((row["cost_low_usd"], row["cost_usd"], row["cost_high_usd"]))
    assert other.basis == row["basis"]


def test_what_the_ledger_has_costs_nothing_until_it_is_asked_otherwise():
    """An agent whose model changes is bought, and who reads its answer; the others stay."""
    ledger = am.Ledger()
    plan = am.Plan([am.Agent("a", "Go"), am.Agent("b", "Sum {{ a }}"), am.Agent("c", "Alone")])
    drive(plan, answer, ledger=ledger)
    found = plan.estimate(ledger=ledger, client=drive(plan, answer)[1], history=History(ledger.history()))
    assert 3 == found.reused
    frame = found.whatif(model=[None, {"a": OTHER}, {"c": OTHER}], concurrency=[8, 1])
    assert [0, 0] == frame["cost_usd"].tolist()[:2]
    assert [0, 0] == frame["wall_s"].tolist()[:2]
    assert all(cost > 0 for cost in frame["cost_usd"].tolist()[2:])
    bought = [one.output.likely for one in plan.estimate(history=History(ledger.history())).expected]
    assert [bought[2]] * 2 == frame["output_tokens"].tolist()[4:]
    assert min(bought) < frame["output_tokens"].tolist()[2]


def test_rounds_and_items_are_capped_and_readers_read_less():
    """As after a run: no more than are expected."""
    plan = am.Plan([am.Agent("first", "Begin."), *PARTS["map"]()])
    found = plan.estimate().whatif(most=[1, 2, 4])
    tokens = found["input_tokens"].tolist()
    assert tokens[0] < tokens[1] < tokens[2]
    with pytest.raises(DeclarationError, match="more than the plan has places for: 4"):
        plan.estimate().whatif(most=5)


def test_a_mistake_is_named_with_what_was_meant():
    """Of arguments, models and agents."""
    plan = am.Plan([am.Agent("first", "Begin.")])
    with pytest.raises(DeclarationError, match="Did you mean 'concurrency'"):
        plan.whatif(concurency=2)
    with pytest.raises(DeclarationError, match="not known"):
        plan.whatif(model="gpt-oss")
    with pytest.raises(UnknownAgent):
        plan.whatif(drop="second")


def test_a_dropped_agent_is_read_by_nobody():
    """Its reader's prompt is shorter by its answer."""
    plan = am.Plan([am.Agent("a", "Go"), am.Agent("b", "Sum {{ a }}")])
    frame = plan.whatif(drop=[None, "a"])
    assert frame["input_tokens"].tolist()[1] < 50 < frame["input_tokens"].tolist()[0]


@am.task
def wait():
    """Take a time that nobody knows."""


@pytest.mark.parametrize(
    ("steps", "stands_on"),
    [
        ([wait], "1 task assumed"),
        ([wait, am.Agent("a", "x")], "inputs 1 estimated; lengths 1 assumed; seconds 1 assumed; 1 task assumed"),
        ([am.Agent("a", "x", hedge=2.0)], "inputs 2 estimated; lengths 2 assumed; seconds 2 assumed"),
        (
            [am.Agent("a", "{{ item }}", each="items", group=3, returns=str)],
            "inputs 1 estimated; lengths 1 assumed; seconds 1 assumed",
        ),
    ],
    ids=["a task", "beside an agent", "the winner of two", "rows of a group"],
)
def test_a_task_of_unknown_time_is_assumed_and_named(steps, stands_on):
    """In the estimate and in each what-if. What only takes an answer of others takes no time for sure."""
    plan = am.Plan(steps, {"items": ITEMS})
    found = plan.estimate()
    assert (stands_on, "assumed") == (found.stands_on, found.basis)
    assert (wait in steps) == any("counted as no time" in one for one in found.notes)
    frame = plan.whatif(concurrency=[1, 4])
    assert {"assumed"} == {*frame["basis"]}
    assert all(one.startswith(f"the estimate ({stands_on})") for one in frame["assumed"])
