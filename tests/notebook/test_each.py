"""`%%agent --each` in a session: staleness, selection, listing, export."""

from __future__ import annotations

import re

import pandas as pd
import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from agent_magic import Task
from agent_magic.api import Claude, Plan, Run
from agent_magic.declare.task import LISTENERS
from agent_magic.errors import AgentMagicError, Rejected, UndefinedVariable
from agent_magic.measure import OF_EACH
from agent_magic.notebook import AgentMagics, declared_page, error_page, find_agents, plan_data, to_notebook, to_script
from agent_magic.notebook.planning import _prompts_text
from tests.live.virtual import Reply, drive

ROWS = pd.DataFrame({"text": ["good", "bad"]}, index=["x", "y"])


@pytest.fixture
def magics():
    """Two agents over a frame and one that sums up, declared in cells."""
    shell = InteractiveShell()
    made = AgentMagics(shell)
    shell.user_ns["rows"] = ROWS
    made.agent("label --each rows", "Rate {{ item.text }}\n")
    made.agent("check --each rows", "Is {{ label }} right for {{ item.text }}?\n")
    made.agent("report", "Sum up {{ check }}\n")
    yield made
    made.session.close()


def plan_of(magics, *names):
    """Freeze what is declared."""
    return magics.session.plan(magics.shell.user_ns, agents=names, defaults={})


def run_of(plan, script=lambda *_: Reply(1.0)):
    """Run on a virtual clock."""
    return Run(drive(plan, script)[0])


def test_the_card_says_how_many(capsys, magics):
    """And nothing where there cannot be any."""
    magics.agent("more --each rows", "{{ item }}\n")
    magics.shell.user_ns["words"] = "abc"
    magics.agent("some --each words", "{{ item }}\n")
    shown = capsys.readouterr().out
    assert "one for each of rows (2)" in shown
    assert "one for each of words ·" in shown


def test_a_field_of_the_item_that_stands_alone_is_told_how_to_write(capsys, magics):
    """On the card and in the error: the commonest slip of whoever goes over a frame."""
    magics.shell.user_ns["rows"] = pd.DataFrame({"text": ["good"], "stars": [5]})
    magics.agent("word --each rows", "{{ text }} {{ topic }}\n")
    shown = capsys.readouterr().out
    assert "not defined yet: text, topic · {{ item.text }} is that of the item" in shown
    with pytest.raises(UndefinedVariable, match=r"not defined\. \{\{ item\.text \}\} is that of the item\.$"):
        plan_of(magics)


def test_an_item_that_is_called_as_elsewhere_is_told_its_name(magics):
    """Who comes from other tools writes `{{ row.text }}`."""
    magics.agent("word --each rows", "{{ row.text }}\n")
    with pytest.raises(UndefinedVariable, match=r"\{\{ row \}\}, which is not defined\. The item is \{\{ item \}\}\.$"):
        plan_of(magics)


def test_the_listing_has_each_declaration_once(magics):
    """Whatever the number of items, and where the value is not there yet."""
    magics.agent("other --each missing", "{{ item }} {{ report }}\n")
    text = declared_page(magics.session, "agents", magics.shell.user_ns).text()
    assert "label_0" not in text
    assert re.search(r"^check +1 +label", text, re.MULTILINE)
    assert re.search(r"^label .*one for each of rows", text, re.MULTILINE)
    assert "other: not defined yet: missing" in text


def test_a_name_selects_its_group_and_what_it_needs(magics):
    """All of the group, and no other agents."""
    assert plan_of(magics, "check").names == ("label_0", "label_1", "check_0", "check_1")
    with pytest.raises(UsageError, match="how many items there may be"):
        magics.agent("wrong --each label", "{{ item }}\n")


def test_a_change_makes_its_group_and_what_follows_stale(magics):
    """A run in which one of the group failed leaves it stale."""
    run = run_of(plan_of(magics))
    magics.session.settle(run)
    magics.agent("label --each rows", "Really rate {{ item.text }}\n")
    assert ["label", "check", "report"] == magics.session.stale(plan_of(magics))
    failed = Reply(1.0, error=Rejected("broken", status=400))
    run = run_of(plan_of(magics), lambda prompt, *_: failed if "ate bad" in prompt else Reply(1.0))
    magics.session.settle(run)
    assert ["label", "check", "report"] == magics.session.stale(plan_of(magics))
    magics.session.settle(run_of(plan_of(magics)))
    assert [] == magics.session.stale(plan_of(magics))


def test_answers_join_what_was_asked(magics):
    """A row per item under the frame's own index; `NA` where there is no answer, and the errors of a group in short."""
    failed = Reply(1.0, error=Rejected("broken", status=400))
    run = run_of(plan_of(magics), lambda prompt, *_: failed if "ate bad" in prompt else Reply(1.0))
    frame = run.each("label")
    assert ["answer", *OF_EACH] == list(frame.columns)
    assert ["x", "y"] == list(ROWS.join(frame).index)
    assert frame.loc["x", "answer"]
    assert frame["answer"].isna().tolist() == [False, True]
    assert frame.attrs["plan"] == "agents"
    assert "label: 1 of 2 failed" in error_page(run, "label").text()
    with pytest.raises(AgentMagicError, match="Did you mean 'label'"):
        run.each("labell")


@pytest.mark.parametrize("names", [["a", "b"], [None, None]])
def test_answers_join_rows_with_several_labels(magics, names):
    """By all of them, whatever they are called."""
    index = pd.MultiIndex.from_tuples([("x", 1), ("x", 2)], names=names)
    magics.shell.user_ns["rows"] = ROWS.set_axis(index)
    frame = magics.shell.user_ns["rows"].join(run_of(plan_of(magics, "label")).each("label"))
    assert [("good", "label_0"), ("bad", "label_1")] == list(zip(frame["text"], frame["agent"], strict=True))


def test_keys_that_are_tuples_are_keys(magics):
    """Of a dict, which has no levels."""
    magics.shell.user_ns["rows"] = {("x", 1): {"text": "good"}, ("x", 2): {"text": "bad"}}
    assert [("x", 1), ("x", 2)] == list(run_of(plan_of(magics, "label")).each("label").index)


def test_prompts_of_a_large_group_are_shown_in_part(magics):
    """The first few tell what the others are like."""
    magics.shell.user_ns["rows"] = pd.DataFrame({"text": [f"row {one}" for one in range(10)]})
    text = _prompts_text(plan_of(magics, "label"), Claude(base_url="http://127.0.0.1:1"))
    assert "row 2" in text
    assert "row 3" not in text
    assert "7 more of label" in text


def test_export_and_back(magics):
    """A notebook's agents become a plan and a script that still go over the value; a plan becomes a notebook."""
    cells = [("code", "rows = ['a', 'b']"), ("code", "%%agent label --each rows\nRate {{ item }}")]
    data, unknown = plan_data(find_agents(cells), "agents")
    assert not unknown
    plan = Plan.from_dict(data)
    assert [plan.prompt(name, {}) for name in plan.names] == ["Rate a", "Rate b"]
    script = to_script(data, title="t", unknown=unknown)
    assert "each='rows'" in script
    compile(script, "script", "exec")
    text = str(to_notebook(plan))
    assert "from_json" in text  # what was written out item by item does not fit in cells


PLANNERS = {
    "decorator": "@am.task\ndef planner(k) -> list[str]: return [f'step {one}' for one in range(k)]",
    "no type": "@am.task\ndef planner(k): return [f'step {one}' for one in range(k)]",
    "variable": "planner = am.Task('planner', lambda k: [f'step {one}' for one in range(k)])",
}


@pytest.mark.parametrize("cell", PLANNERS.values(), ids=PLANNERS)
def test_each_of_a_task_is_of_what_it_returns(capsys, cell):
    """The variable that holds the function, or the task, is no list: the step of its name is meant."""
    shell = InteractiveShell()
    made = AgentMagics(shell)
    LISTENERS.append(made.declare_task)
    shell.run_cell(f"import agent_magic as am\nk = 3\n{cell}")
    LISTENERS.remove(made.declare_task)
    made.agent("worker --each planner --most 40", "Do {{ item }}\n")
    assert "after planner (--each)" in capsys.readouterr().out
    plan = plan_of(made)
    assert 40 == len(plan.groups["worker"])
    assert ("planner",) == plan.parents("worker_39")
    made.session.close()


def test_a_step_that_only_a_variable_holds_is_told_how_to_run(magics):
    """Nobody names it, so it may be for a plan in Python: the error says what to write."""
    shell = InteractiveShell()
    made = AgentMagics(shell)
    shell.user_ns["heavy"] = Task("heavy", lambda: 1)
    with pytest.raises(AgentMagicError, match=r"variable heavy holds a step, .* am\.Plan\(\[heavy\]\)"):
        plan_of(made)
    made.session.close()


def test_equal_rows_of_a_group_are_planned_as_they_will_be_asked(
    magics: AgentMagics, capsys: pytest.CaptureFixture[str]
):
    """Once, or each with `--identical each`, on the line or as the default."""
    magics.agents("connect simulator --latency none")
    magics.shell.user_ns["words"] = ["a", "b", "a", "a"]
    magics.agent("label --each words --group 2 --returns str", "Rate {{ item }}\n")
    for line, told in (("plan label", True), ("plan label --identical each", False)):
        capsys.readouterr()
        magics.agents(line)
        shown = capsys.readouterr().out
        assert told == ("4 rows, 2 different" in shown)
        assert (1, 2)[not told] == shown.count("--- label_request_")
