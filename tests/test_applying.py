"""What was recommended, forecast or tried becomes a changed plan and policy; the run stays as it is."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pandas as pd
import pytest

import agent_magic as am
from agent_magic.api import Run
from agent_magic.declare.declared import without_value
from agent_magic.errors import DeclarationError
from agent_magic.forecast.advice.rules import Finding
from agent_magic.measure import Setting, Trial
from tests.live.virtual import Reply, drive
from tests.measure.test_trial import trial
from tests.providers.test_capabilities import Own
from tests.show.story import business_run

OPUS, SONNET = "claude-opus-5-5", "claude-sonnet-5-5"


@pytest.fixture
def run() -> Run:
    """Nine agents of a business plan."""
    return Run(business_run())


def test_a_row_of_a_whatif_changes_agents_and_policy(run):
    """Its columns that say something; what is so already is no change."""
    before = [agent.model for agent in run.plan.agents]
    frame = run.whatif(model=[OPUS], concurrency=[1, 3])
    found = run.apply(frame.iloc[1])
    assert {OPUS} == {agent.model for agent in found.plan.agents}
    assert 3 == found.policy.concurrency
    assert any(f"-> {OPUS}" in line for line in found.lines)
    assert any(line.startswith("run: concurrency ") and line.endswith("-> 3") for line in found.lines)
    assert before == [agent.model for agent in run.plan.agents]


def test_what_is_so_already_changes_nothing(run):
    """And says so."""
    policy = run.forecaster().policy
    found = run.apply({"concurrency": policy.concurrency})
    assert ([], policy) == (found.lines, found.policy)
    assert "Nothing to change" in repr(found)


def test_a_frame_of_one_row_is_its_row(run):
    """As `frame.head(1)` and a filter give it."""
    frame = run.whatif(concurrency=[3])
    assert 3 == run.apply(frame[frame["concurrency"] == 3]).policy.concurrency


def test_agents_are_dropped(run):
    """Those that nobody needs."""
    last = run.plan.layers[-1][0]
    found = run.apply({"drop": last})
    assert last not in found.plan.names
    assert f"{last}: dropped" in found.lines


def test_a_finding_is_applied_or_says_that_a_person_has_to(run):
    """By the arguments of a what-if that it carries."""
    finding = Finding("r", "m", change="Run it with concurrency=2.", source="s", apply={"concurrency": 2})
    assert 2 == run.apply(finding).policy.concurrency
    with pytest.raises(DeclarationError, match=r"Only you can do that: Shorten it Write: a_1 and a_2 .where: a."):
        run.apply(Finding("r", "m", change="Shorten it", source="s", edit="a_1 and a_2", where="a"))
    with pytest.raises(DeclarationError, match="There is no change 99"):
        run.apply(99)
    for one in run.advise().changes:
        with contextlib.suppress(DeclarationError):  # one that nobody but a person can do
            assert run.apply(one).lines == run.apply(run.advise().changes.index(one) + 1).lines
        if one.apply or one.options:
            assert run.apply(one).lines


def test_what_a_trial_chose_is_applied_to_what_it_tried(run):
    """To the agents that were graded, and no others."""
    name = run.plan.names[0]
    tried = trial([1.0, 1.0], [0.0, 0.0]).tried
    found = Trial(
        name, (Setting(OPUS, "low"), Setting("claude-haiku-5-5", None)), tried, rows=2, margin=0.1, error_rate=0.05
    )
    plan = run.apply(found).plan
    assert (OPUS, "low") == (plan[name].model, plan[name].effort)  # pyright: ignore[reportAttributeAccessIssue]
    assert [name] == [one.name for one in plan.agents if one.model == OPUS]  # pyright: ignore[reportAttributeAccessIssue]
    run.trials.append(found)
    assert plan == run.apply(Setting(OPUS, "low")).plan


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (3.5, "3.5 cannot be applied.*run.whatif"),
        ({"wall_s": 3.0}, "changes no declared setting"),
        ({"rounds": 3}, "changes nothing: the plan has not a loop"),
        ({"prices": "a"}, "No declared agent sets prices"),
        ({"model": "a for x; b for y"}, "names no agents of the plan"),
        (pd.DataFrame({"concurrency": [1, 3]}), "A frame of 2 rows is not a change: choose one row"),
    ],
)
def test_what_cannot_be_applied_is_said(run, what, message):
    """With what can."""
    with pytest.raises(DeclarationError, match=message):
        run.apply(what)


def test_a_row_that_names_several_agents_is_read(run):
    """As the table writes it: each agent its model, the rest as it was."""
    first, second = run.plan.names[:2]
    frame = run.whatif(model=[{first: OPUS, second: SONNET}])
    assert " for the rest" in frame["model"].iloc[0]
    plan = run.apply(frame.iloc[0]).plan
    assert (OPUS, SONNET) == (plan[first].model, plan[second].model)  # pyright: ignore[reportAttributeAccessIssue]
    assert [one.model for one in run.plan.agents[2:]] == [one.model for one in plan.agents[2:]]  # pyright: ignore[reportAttributeAccessIssue]


LONG = "\n".join(f"Rule {number}: say who changed the record, and when it was." for number in range(120))


def ran(agents: list[Any], values: dict[str, Any] | None = None, script: Any = None, policy: Any = None) -> Run:
    """A run on the virtual clock; by default every prompt costs a token for four characters, every answer five."""
    script = script or (lambda prompt, _: Reply(2.0, tokens=(len(prompt) // 4, 5, 0, 0)))
    return Run(drive(am.Plan(agents, values or {}), script, policy)[0])


def advised(run: Run, rule: str) -> Finding:
    """What a rule would change."""
    return next(one for one in run.advise().changes if one.rule == rule)


def test_a_shared_value_becomes_a_context():
    """It leaves the prompts, with the tags that held nothing else."""
    agents = [
        am.Agent("one", "Read this.\n<rules>\n{{ text }}\n</rules>\nSay one.", model=OPUS),
        am.Agent("two", "Two of {{ text }}", model=OPUS),
    ]
    run = ran(agents, {"text": LONG})
    found = run.apply(advised(run, "shared text is a context"))
    assert ["text", "text"] == [one.context for one in found.plan.agents]
    assert ["Read this.\nSay one.", "Two of"] == [one.prompt for one in found.plan.agents]
    assert "one: prompt\n- <rules>\n- {{ text }}\n- </rules>" in repr(found)
    assert "one: context none -> text" in found.lines


def test_max_tokens_are_lowered_by_the_name_of_the_group():
    """Where a budget sets them aside: each row has the new cap, the declaration one line."""
    agents = [am.Agent("label", "{{ item }}", each="rows", max_tokens=4000)]
    run = ran(agents, {"rows": list("abcdef")}, policy=am.Policy(budget_tokens=4300, seed=1))
    found = run.apply(advised(run, "max_tokens near the answers"))
    assert {100} == {one.max_tokens for one in found.plan.agents}
    assert ["label: max_tokens 4000 -> 100"] == found.lines


def test_an_edge_that_only_orders_is_left_out_or_carries_the_answer():
    """`--after` goes; where the prompt speaks of the answer, it gets it."""
    agents = [am.Agent("facts", "Facts"), am.Agent("other", "Other", after="facts")]
    run = ran(agents)
    assert [(), ()] == [one.after for one in run.apply(advised(run, "only necessary dependencies")).plan.agents]
    agents = [am.Agent("facts", "Facts"), am.Agent("other", "Sum up what facts says", after="facts")]
    run = ran(agents)
    plan = run.apply(advised(run, "wanted answers are sent")).plan
    assert (("facts",),) == plan.inputs[1:]
    assert "{{ facts }}" in plan["other"].prompt
    assert () == plan["other"].after


def test_rows_are_asked_for_together_where_that_is_advised():
    """The plan has requests for five rows then; a text has to be typed first, which only a person can do."""
    rows = {"rows": [f"row {number}" for number in range(12)]}
    run = ran([am.Agent("label", "Say a or b: {{ item }}", each="rows", returns=str)], rows, _typed)
    found = run.apply(advised(run, "not too many tiny agents"))
    assert ["label: group none -> 5"] == found.lines
    assert 3 == sum(not one.is_task for one in found.plan.agents)
    assert list(run.plan.names) == [name for name in found.plan.names if "request" not in name]
    run = ran([am.Agent("label", "Say a or b: {{ item }}", each="rows")], rows)
    with pytest.raises(DeclarationError, match=r"Only you.*Write: --group 5.*--returns"):
        run.apply(advised(run, "not too many tiny agents"))


def _typed(prompt: str, _: Any) -> Reply:
    return Reply(2.0, tokens=(len(prompt) // 4, 5, 0, 0), text='{"value": "a"}')


def test_rounds_and_most_of_a_row_are_declared():
    """A loop and a map with fewer places; what has fewer already stays."""
    agents = [
        am.Agent("plan", "List", returns=list[str]),
        am.Agent("work", "Do {{ item }}", each="plan", most=6),
        am.Agent("draft", "Draft {{ work }} {% if critic %}{{ critic }}{% endif %}", until="critic == 'ok'", rounds=4),
        am.Agent("critic", "Check {{ draft }}"),
    ]
    run = ran(agents, script=lambda prompt, _: Reply(1.0, text='{"value": ["a", "b"]}' if prompt == "List" else "no"))
    row = run.whatif(rounds=[2], most=[3]).iloc[0]
    found = run.apply(row)
    assert ["work: most 6 -> 3", "draft: rounds 4 -> 2"] == found.lines
    assert [3, 2, 2] == [len(found.plan.groups[name]) for name in ("work", "draft", "critic")]


def test_an_answer_that_is_not_needed_leaves_the_prompt():
    """With the heading that `depends_on` wrote above it."""
    assert "Sum up." == without_value("Sum up.\n\n## facts\n{{ facts }}", "facts").strip()
    assert "a {{ b.c }}" == without_value("a {{ b.c }} {{ b }}", "b")
    assert "keep\n\nthis" == without_value("keep\n\nthis\n{{b}}\n", "b")


def test_a_number_means_the_advice_that_was_seen():
    """`run.advise(by="dollars")` numbers otherwise than by seconds."""
    agents = [am.Agent(name, f"{name} of {{{{ text }}}}", model=OPUS) for name in ("one", "two")]
    agents.append(am.Agent("three", "Three"))
    script = lambda prompt, _: Reply(30.0 if prompt == "Three" else 1.0, tokens=(len(prompt) // 4, 5, 0, 0))  # noqa: E731
    run = ran(agents, {"text": LONG}, script, am.Policy(concurrency=1))
    assert run.advise().changes[0] != run.advise(by="dollars").changes[0]
    by_dollars = run.advise(by="dollars").changes
    places = [place for place, one in enumerate(by_dollars, 1) if one.apply or one.options]
    assert places
    for place in places:
        assert run.apply(by_dollars[place - 1]).lines == run.apply(place).lines


@pytest.mark.parametrize("options", [{"group": 4, "returns": str}, {"hedge": "p95"}])
def test_a_model_by_name_is_that_of_who_asks(options):
    """Of rows that are asked for together it is their request's, of a hedge that of both who race."""
    rows = {"rows": list("abcdefgh")}
    text = json.dumps({"answers": [{"item": number, "answer": "x"} for number in range(1, 5)]})
    script = lambda prompt, _: Reply(1.0, text=text if "group" in options else "x", tokens=(9, 9, 0, 0))  # noqa: E731
    run = ran([am.Agent("label", "Say: {{ item }}", each="rows", **options)], rows, script)
    assert run.ok
    found = run.apply({"model": {"label": OPUS}})
    assert {OPUS} == {one.model for one in found.plan.agents if not one.is_task}  # pyright: ignore[reportAttributeAccessIssue]
    assert ["label"] == list(found.agents)
    dear, cost = run.forecast(model={"label": OPUS}).totals.cost_usd, run.totals.cost_usd
    assert 5 < (dear or 0.0) / (cost or 1.0)


@pytest.mark.parametrize(
    ("given", "model", "refuses"),
    [
        ({"temperature": 0.2}, "claude-opus-4-5", []),
        ({"temperature": 0.2}, "claude-opus-5-5", ["claude-opus-5-5"]),
        ({"top_k": 3, "model": "claude-opus-5-5"}, "claude-opus-4-5", ["claude-opus-5-5"]),
        ({"model": "claude-opus-5-5"}, "claude-opus-4-5", []),
    ],
)
def test_a_whatif_that_a_run_would_refuse_says_so(given, model, refuses):
    """Of a run and of a plan, with the model and the reason that a run has; without such an option it has none."""
    plan = am.Plan([am.Agent("a", "x", model=model), am.Agent("b", "{{ a }}", model=model)])
    run = am.Run(drive(plan, lambda *_: Reply(1.0))[0])
    words = [f"a run would refuse it: {one} takes no temperature, top_p, top_k" for one in refuses]
    for frame in (run.whatif(**given), plan.whatif(**given)):
        assert words == [one for one in str(frame["assumed"].iloc[0]).split("; ") if "refuse" in one]


def test_an_option_that_passes_through_is_asked_about_and_applied():
    """It labels its row, has the same numbers, says that nobody has tried it, and is set by a row that is applied."""
    plan = am.Plan([am.Agent("a", "x", model="m", temperature=0.5), am.Agent("b", "{{ a }}", model="m")])
    run = asyncio.run(plan.run(client=Own(sampling=True), prices={"m": am.TokenPrice(1, 1)}))
    frame = run.whatif(temperature=[None, 0.5, 0.9], top_k=40)
    assert [40, 40, 40] == [*frame["top_k"]]
    assert frame["assumed"].str.contains("answers assumed as long as recorded").all()
    alone = run.whatif(temperature=[None, {"a": 0.9}])
    assert 1 == alone["cost_usd"].nunique(dropna=False) == alone["wall_s"].nunique()
    assert {"temperature": (0.5, 0.9), "top_k": (None, 40)} == dict(run.apply(frame.iloc[2]).agents["a"])
    assert ("END",) == getattr(run.apply({"stop": "END"}).plan.agents[1], "stop", None)
    with pytest.raises(DeclarationError, match="temperature must be a number >= 0"):
        run.whatif(temperature=-1)
    with pytest.raises(DeclarationError, match="Did you mean 'temperature'"):
        run.whatif(temprature=1)
