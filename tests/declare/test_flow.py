"""Plans whose shape depends on what comes back: what is reserved, who waits for whom, what is refused."""

# What a plan with choices has is no `None`.
# pyright: reportOptionalMemberAccess=false

from __future__ import annotations

import asyncio
import pickle
from typing import TypedDict

import pandas as pd
import pytest

import agent_magic as am
from agent_magic.declare.flow import Left
from agent_magic.declare.template import condition_of, holds
from agent_magic.errors import AgentMagicError, Cycle, DeclarationError, PlanError, UndefinedField, UndefinedVariable


class Review(TypedDict):
    score: int
    notes: str


class Steps(TypedDict):
    steps: list[str]


def loop(**more):
    """A draft and its critic, three rounds."""
    draft = am.Agent(
        "draft",
        "About {{ topic }}.{% if critic %} {{ critic.notes }}, not {{ draft }}{% endif %}",
        until="critic.score > 8",
        rounds=3,
    )
    critic = am.Agent("critic", "Rate {{ draft }}", returns=Review)
    return am.Plan([draft, critic, *more.get("others", ())], {"topic": "x"})


def edges(plan):
    """Who waits for whom, as pairs."""
    return {(edge.parent, edge.child) for edge in plan.edges}


def test_rounds_are_unrolled():
    """Each round is a step of its own, which waits for what it uses of its own round and of the one before."""
    plan = loop(others=[am.Agent("report", "Print {{ draft }}")])
    assert ("draft_1", "draft_2", "draft_3", "critic_1", "critic_2", "critic_3", "report") == plan.names
    assert {
        *((f"draft_{one}", f"critic_{one}") for one in (1, 2, 3)),
        *((f"{who}_{one}", f"draft_{one + 1}") for one in (1, 2) for who in ("critic", "draft")),
        *((f"draft_{one}", "report") for one in (1, 2, 3)),
    } == edges(plan)


def test_prompts_take_the_round_before():
    """In the first round what comes from the one before is `None`."""
    plan = loop(others=[am.Agent("report", "Print {{ draft }}")])
    before = {"critic_1": {"score": 3, "notes": "shorter"}, "draft_1": "D1"}
    assert "About x." == plan.prompt("draft_1", {})
    assert "About x. shorter, not D1" == plan.prompt("draft_2", before)
    assert "Print D1" == plan.prompt("report", {"draft_1": "D1"}), "of a loop, the last round that ran"
    assert "Print D2" == plan.prompt("report", {"draft_1": "D1", "draft_2": "D2"})


def test_what_the_first_round_lacks_is_told_before_it_is_paid():
    """A draft that needs its critic's notes in the first round, behind a step that would have been paid by then."""
    draft = am.Agent("draft", "{{ facts }} {{ critic.notes }}", until="critic.score > 8", rounds=3)
    agents = [am.Agent("facts", "x"), draft, am.Agent("critic", "Rate {{ draft }}", returns=Review)]
    with pytest.raises(DeclarationError, match=r"put {% if critic %} before it and {% endif %} behind it"):
        am.Plan(agents).check_prompts()
    agents[1] = am.Agent("draft", "{% for one in critic %}{{ one }}{% endfor %}", until="critic.score > 8", rounds=3)
    with pytest.raises(DeclarationError, match=r"put {% if critic %} before it"):
        am.Plan(agents).check_prompts()
    with pytest.raises(Cycle, match=r"other: facts -> draft -> critic -> facts[.]"):
        am.Plan([am.Agent("facts", "x {{ critic }}"), draft, agents[2]])


def test_an_error_names_what_was_declared():
    """Not the item, or the round, that it was found at."""
    with pytest.raises(UndefinedVariable, match=r"Agent 'label' uses {{ rwo }}"):
        am.Plan([am.Agent("label", "{{ item }} {{ rwo }}", each="rows")], {"rows": [1, 2]})
    grouped = am.Agent("label", "{{ item }} {{ sum }}", each="rows", group=2, returns=Review)
    with pytest.raises(UndefinedVariable, match=r"Agent 'label' uses {{ sum }}"):
        am.Plan([grouped], {"rows": [1, 2, 3]})
    with pytest.raises(Cycle, match=r"other: label -> sum -> label[.]"):
        am.Plan([grouped, am.Agent("sum", "{{ label }}")], {"rows": [1, 2, 3]})


def test_places_are_reserved_for_items_of_an_answer():
    """Two groups over one answer go side by side; who takes a group as a whole waits for all of it."""
    plan = am.Plan(
        [
            am.Agent("planner", "x", returns=Steps),
            am.Agent("work", "Do {{ item }}, the {{ key }}", each="planner.steps", most=2),
            am.Agent("check", "Check {{ work }}", each="planner.steps", most=2),
            am.Agent("report", "Join {{ check }}"),
        ]
    )
    assert {
        *(("planner", f"{who}_{one}") for one in (0, 1) for who in ("work", "check")),
        *((f"work_{one}", f"check_{one}") for one in (0, 1)),
        *((f"check_{one}", "report") for one in (0, 1)),
    } == edges(plan)
    assert "Do b, the 1" == plan.prompt("work_1", {"planner": {"steps": ["a", "b"]}})
    assert "Join A" == plan.prompt("report", {"check_0": "A"})


def test_maps_in_maps():
    """A place for each item of each answer of a group, which takes the answer it is from by that group's name."""
    plan = am.Plan(
        [
            am.Agent("label", "{{ item }}", each="rows", returns=Steps),
            am.Agent("one", "{{ item }} of {{ label.steps }}", each="label.steps", most=2),
            am.Agent("two", "{{ one }}", each="label.steps", most=2),
        ],
        {"rows": ["r", "s"]},
    )
    assert ("label_0", "label_1", "one_0", "one_1", "one_2", "one_3") == plan.names[:6]
    assert {("label_1", "one_3"), ("one_3", "two_3")} <= edges(plan)
    assert 'b of ["a", "b"]' == plan.prompt("one_3", {"label_1": plan.meaning_of(1, '{"steps": ["a", "b"]}')})


def test_a_condition_s_names_are_edges():
    """Values of the notebook are taken too; a field that the type does not have is an error when the plan is made."""
    review = am.Agent("review", "x", returns=Review)
    plan = am.Plan([review, am.Agent("fix", "y", when="review.score < least")], {"least": 4})
    assert {("review", "fix")} == edges(plan)
    assert {"least": 4} == dict(plan.values)
    with pytest.raises(UndefinedField, match="scor"):
        am.Plan([review, am.Agent("fix", "y", when="review.scor < 4")])
    with pytest.raises(UndefinedField, match=r"review.score has no field 'x'. It is int"):
        am.Plan([review, am.Agent("fix", "y", when="review.score.x < 4")])
    with pytest.raises(UndefinedVariable, match="least"):
        am.Plan([review, am.Agent("fix", "y", when="review.score < least")])


@pytest.mark.parametrize(
    ("agents", "match"),
    [
        ([am.Agent("q", "x"), am.Agent("b", "y", when="q > 5")], "compares q, which is a text, with a number. Count"),
        ([am.Agent("q", "x"), am.Agent("b", "y", when="q.ok")], "q has no field 'ok'. It is a text; --returns TYPE"),
        ([am.Agent("q", "x"), am.Agent("b", "y", each="rows", when="1 < q < 5")], "of agent 'b' compares q, which is"),
        ([am.Agent("q", "x", returns=Review), am.Agent("b", "y", when="q.notes == 5")], "compares q.notes, which"),
        ([am.Agent("only", "x", until="only.ok", rounds=3)], "only has no field 'ok'"),
    ],
)
def test_a_condition_that_no_text_can_decide_is_refused(agents, match):
    """Before anything is paid: a text has no fields, and is no number. A plan that was kept opens all the same."""
    with pytest.raises(AgentMagicError, match=match):
        am.Plan(agents, {"rows": [1, 2]}).check_prompts()


@pytest.mark.parametrize(
    "when", ["q | length > 5", "'x' in q", "q.startswith('x')", "q == 'x'", "n > 5", "q | int > 5"]
)
def test_a_condition_that_a_text_can_decide_stays(when):
    """Filters make numbers of texts, texts have methods, and a value may be a number."""
    plan = am.Plan([am.Agent("q", "x"), am.Agent("b", "y {{ n }}", when=when)], {"n": 6})
    assert ("q", "b") == plan.names
    with pytest.raises(DeclarationError, match="Two equals signs compare"):
        am.Agent("fix", "y", when="review.score = 4")


@pytest.mark.parametrize(
    ("prompt", "can"),
    [
        ("{{ fix }}", False),
        ("{{ fix | default(draft) }}", True),
        ("{{ fix | d('') }}{{ fix }}", False),
        ("{% if fix is defined %}{{ fix }}{% endif %}", True),
        ("{% if fix is not defined %}none{% else %}{{ fix }}{% endif %}", True),
        ("{{ fix if fix is defined else draft }}", True),
        ("{% if draft %}{{ fix }}{% endif %}", False),
        ("{% for one in fix %}{{ one }}{% endfor %}", False),
    ],
)
def test_what_a_prompt_can_do_without(prompt, can):
    """What it asks for by `default` or `is defined` only, or behind that."""
    plan = am.Plan(
        [am.Agent("draft", "x"), am.Agent("fix", "y", when="draft"), am.Agent("end", prompt + " {{ draft }}")]
    )
    number = plan.number("end")
    assert can == (plan.number("fix") in plan.flow.optional.get(number, ()))


def test_who_only_waits_can_do_without():
    """An order says nothing of an answer."""
    plan = am.Plan([am.Agent("a", "x"), am.Agent("fix", "y", when="a"), am.Agent("end", "z", after="fix")])
    assert {2: {1}} == plan.flow.optional


def test_a_plan_without_choices_has_no_flow():
    """It costs what it did."""
    assert am.Plan([am.Agent("a", "x"), am.Agent("b", "{{ a }}")]).flow is None


def test_choices():
    """What is decided of answers, in the words that a frame has."""
    plan = loop(
        others=[am.Agent("work", "{{ item }}", each="steps", most=2), am.Agent("steps", "x", returns=list[str])]
    )
    second, first, last = plan.number("draft_2"), plan.number("work_0"), plan.number("work_1")
    good, bad = ({"critic_1": {"score": score, "notes": "n"}, "draft_1": "D"} for score in (9, 3))
    assert Left("unused", "critic.score > 8 holds after round 1", "Unused") == plan.flow.choose(second, good, {})
    assert plan.flow.choose(second, bad, {}) is None
    assert plan.flow.choose(last, {"steps": ["a", "b"]}, {}) is None
    assert Left("unused", "steps has 1 item", "Unused") == plan.flow.choose(last, {"steps": ["a"]}, {})
    assert Left("unused", "steps has 0 items", "Unused") == plan.flow.choose(first, {"steps": []}, {})
    many = plan.flow.choose(first, {"steps": ["a", "b", "c"]}, {})
    assert ("failed", "TooManyItems") == (many.status, many.kind)
    assert "steps has 3 items, and most=2" in many.why
    assert "is no list" in plan.flow.choose(first, {"steps": None}, {}).why


def test_conditions_that_cannot_be_evaluated_are_failures():
    """Not false: a comparison of a text with a number says what is wrong."""
    plan = am.Plan([am.Task("a", lambda: "text"), am.Agent("b", "y", when="a > 3")])
    left = plan.flow.choose(1, {"a": "text"}, {})
    assert "failed" == left.status
    assert "a > 3" in left.why


@pytest.mark.parametrize("text", ["a.__class__", "a.append(1)", "[].__class__.__mro__ and a", "a %}{% if a"])
def test_conditions_are_in_the_sandbox(text):
    """They reach nothing of Python's insides, change nothing, and cannot leave their braces."""
    with pytest.raises(DeclarationError):
        holds(condition_of(text, "x"), {"a": [1]})


def test_a_plan_as_json_keeps_its_choices():
    """The same steps, conditions and places, and so the same decisions."""
    plan = loop(others=[am.Agent("steps", "x", returns=Steps), am.Agent("w", "{{ item }}", each="steps.steps", most=3)])
    again = am.Plan.from_json(plan.to_json())
    assert plan.to_json() == again.to_json()
    assert plan.flow.optional == again.flow.optional
    assert edges(plan) == edges(again)
    assert plan.names == plan.select(plan.names).names


def test_items_of_a_task_may_have_any_fields():
    """What it returns is known when it has run; until then the prompt stands as it is written."""
    plan = am.Plan([am.Task("rows", lambda: [{"n": 1}]), am.Agent("a", "Do {{ item.n + 1 }}", each="rows", most=2)])
    assert "Do {{ item.n + 1 }}" == plan.prompt_ahead(plan.index["a_0"], {"rows": "(answer)"}).text
    assert "Do 8" == plan.prompt("a_0", {"rows": pd.DataFrame({"n": [7]})})


REFUSED = [
    ([am.Agent("a", "x", until="b", rounds=2), am.Agent("b", "y")], "does not depend on 'a'"),
    (
        [
            am.Agent("a", "x {{ b }}", until="b", rounds=2),
            am.Agent("b", "{{ a }}", until="c", rounds=2),
            am.Agent("c", "{{ b }}"),
        ],
        "cannot be nested",
    ),
    ([am.Agent("a", "x", until="b", rounds=2), am.Agent("b", "{{ item }} {{ a }}", each="rows")], "declared with each"),
    ([am.Agent("a", "x"), am.Agent("b", "{{ item }}", each="a", most=3)], "answers with text"),
    ([am.Agent("a", "x", returns=list[str]), am.Agent("b", "{{ item }}", each="a")], "how many items"),
    ([am.Agent("b", "{{ item }}", each="rows", most=3)], "Leave it out"),
    ([am.Agent("b", "{{ item }}", each="rows", when="item > 1")], "leave such items out of the list"),
]


@pytest.mark.parametrize(("agents", "match"), REFUSED)
def test_what_cannot_be(agents, match):
    """Each with what to write instead."""
    with pytest.raises(PlanError, match=match):
        am.Plan(agents, {"rows": [1, 2]})


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"until": "a"}, "rounds"),
        ({"rounds": 2}, "until"),
        ({"most": 2}, "each"),
        ({"when": "{{ b }}"}, "braces"),
        ({"when": "1 < 2"}, "names no answer"),
        ({"when": "len(q) > 5"}, r'calls len\(\), which a condition cannot. A filter counts: --when "q | length > 5".'),
        ({"when": "b <"}, r"^--when 'b <' of agent 'a' cannot be read: unexpected end\. Write an expression"),
        ({"until": "a", "rounds": 0}, "integer >= 1"),
        ({"priority": 1.5}, "integer"),
        ({"expect": 0}, "expect of agent 'a' must be a number > 0"),
        ({"expect_out": 0}, "integer >= 1"),
    ],
)
def test_options_that_cannot_be(options, match):
    """Said when they are declared."""
    with pytest.raises(DeclarationError, match=match):
        am.Agent("a", "x", **options)


def test_what_is_urgent_is_so_with_all_it_needs():
    """The priority of a step is that of what waits for it, if that has more."""
    plan = am.Plan([am.Agent("a", "x"), am.Agent("b", "y"), am.Agent("c", "{{ a }}", priority=2), am.Agent("d", "z")])
    assert (2, 0, 2, 0) == plan.dag.priority
    assert [0, 2, 1, 3] == sorted(range(4), key=plan.dag.turns[0].__getitem__)


def test_items_are_read_once():
    """Two thousand places of one frame, and each conversion of the frame costs."""
    reads = 0

    class Rows(dict):
        def items(self):
            nonlocal reads
            reads += 1
            return super().items()

    plan = am.Plan([am.Task("rows", lambda: {"k": 0}), am.Agent("w", "{{ item }} {{ key }}", each="rows", most=50)])
    answers = {"rows": Rows({f"k{one}": one for one in range(40)})}
    assert 10 == sum(plan.flow.choose(step, answers, {}) is not None for step in range(1, 51))
    assert "39 k39" == plan.prompt("w_39", answers)
    assert 1 == reads


def test_a_condition_that_the_user_stops(monkeypatch):
    """Is that step's failure, and ends nothing else."""
    monkeypatch.setattr("agent_magic.declare.flow.holds", raise_cancelled)
    plan = am.Plan([am.Agent("a", "x"), am.Agent("b", "y", when="a")])
    assert "Stopped" == plan.flow.choose(1, {"a": "text"}, {}).kind


def raise_cancelled(*_):
    """As the user's interrupt does in a task."""
    raise asyncio.CancelledError


def test_a_plan_with_choices_can_be_pickled():
    """And decides the same."""
    plan = loop()
    again = pickle.loads(pickle.dumps(plan))
    assert plan.flow.optional == again.flow.optional
