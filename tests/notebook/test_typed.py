"""`--returns` and `--check` in cells: looked up when declared and once more when the plan is frozen."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Literal

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from pydantic import BaseModel

from agent_magic.api import Claude, Plan
from agent_magic.errors import AgentMagicError, DeclarationError, ReplayMiss
from agent_magic.notebook import AgentMagics, find_agents, from_script, help_of, plan_data, to_notebook, to_script
from agent_magic.notebook.planning import _prompts_text
from agent_magic.providers import Deck
from agent_magic.record import read_cassette
from tests.measure.test_each import known


class Label(BaseModel):
    mood: Literal["good", "bad"]


class Wider(BaseModel):
    mood: Literal["good", "bad", "new"]


@pytest.fixture
def magics():
    """A notebook with a class."""
    shell = InteractiveShell()
    made = AgentMagics(shell)
    shell.user_ns.update({"Label": Label, "rows": ["a", "b"], "short": lambda _: None})
    yield made
    made.session.close()


def plan_of(magics):
    """Freeze what is declared."""
    return magics.session.plan(magics.shell.user_ns, defaults={})


@pytest.mark.parametrize(
    ("line", "prompt", "says"),
    [
        ('fix --when "label.mod == 1"', "x", "label has no field 'mod'. Did you mean 'mood'?"),
        ("fix", "{{ label.mod }}", "label has no field 'mod'. Did you mean 'mood'?"),
        ('fix --when "marks.x"', "x", "marks has no field 'x'. It is list[int]."),
        ('fix --when "text.ok"', "x", "text has no field 'ok'. It is a text; --returns TYPE gives answers fields."),
        ('fix --when "text > 5"', "x", "compares text, which is a text, with a number"),
        ('fix --until "fix.ok" --rounds 3', "x", "fix has no field 'ok'. It is a text"),
        ("fix --each marks.items --most 3", "{{ item }}", "marks has no field 'items'"),
        ("fix --each label --most 3", "{{ item }}", "which is not a list but Label(mood). Have it answer with one"),
        ("fix --each report --most 3", "{{ item }}", "Take a list in it: --each report.parts."),
        ("fix --each text --most 3", "{{ item }}", "'text' answers with text. Have it answer with a list"),
        ("fix --each marks", "{{ item }}", "Say how many items there may be: --most 40"),
    ],
)
def test_a_cell_that_takes_what_no_answer_has_is_refused(magics, line, prompt, says):
    """Where the type is known, the cell says it, not the run; the error names what there is."""

    class Report(BaseModel):
        title: str
        parts: list[str]

    magics.shell.user_ns["Report"] = Report
    for one in ("text", "label --returns Label", "marks --returns list[int]", "report --returns Report"):
        magics.agent(one, "x")
    with pytest.raises(UsageError) as caught:
        magics.agent(line, prompt)
    assert says in str(caught.value)
    assert "fix" not in magics.session.registry()
    with pytest.raises(UsageError):
        magics.agents_cell("", f"## {line}\n{prompt}")


def test_fields_are_those_of_the_class_as_it_is_now(magics):
    """A class that was run again counts before its agent's cell was."""
    magics.agent("label --returns Label", "x")
    with pytest.raises(UsageError, match="no field 'why'"):
        magics.agent("fix", "{{ label.why }}")

    class Again(BaseModel):
        why: str

    magics.shell.user_ns["Label"] = Again
    magics.agent("fix", "{{ label.why }} {{ marks }} {{ label2.y }}")
    magics.agent("label2 --each rows --returns Label", "x")
    magics.agent("all", "{% for one in label2 %}{{ one.why }}{% endfor %} {{ label2[0].why }}")
    del magics.shell.user_ns["Label"]
    magics.agent("fix", "{{ label.nothing }}")  # nobody knows what it is: the plan says that


def test_a_name_that_is_nearly_one_asks_whether_that_is_meant(magics, capsys):
    """On the card of the cell, before anything runs."""
    magics.agent("python", "x")
    capsys.readouterr()
    magics.agent("compare", "{{ pythn }} and {{ other }}")
    assert "not defined yet: pythn (Did you mean 'python'?), other" in capsys.readouterr().out
    magics.agent("report", "{{ labl }} {{ row }}")  # a class is no value, a list is
    assert "not defined yet: labl, row (Did you mean 'rows'?)" in capsys.readouterr().out


def test_a_cell_names_its_type(magics, capsys):
    """The card says briefly what it returns, and who checks it; so do the prompts of the plan, and the help."""
    magics.agent("label --each rows --returns Label --check short", "Label {{ item }}\n")
    shown = capsys.readouterr().out
    assert "returns Label(mood) · checked by short" in shown.replace("<lambda>", "short")
    plan = plan_of(magics)
    assert "--- label_0, returns Label(mood)\n" in _prompts_text(plan, Claude(base_url="http://127.0.0.1:1"))
    assert Label(mood="bad") == plan.agents[1].returns.value('{"mood": "bad"}')
    assert "--returns TYPE" in help_of("agent")


@pytest.mark.parametrize(
    ("written", "brief"),
    [
        ('Literal["a","b"]', "a | b"),
        ('\'Literal["a", "b c"]\'', "a | b c"),
        ("list[Label]", "list[Label(mood)]"),
        ('"Label | None"', "Label(mood) | None"),
        ("int", "int"),
    ],
)
def test_types_on_a_line(magics, written, brief):
    """With or without quotes around them."""
    magics.agent(f"a --returns {written}", "x\n")
    assert brief == str(plan_of(magics).agents[0].returns)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a --returns Lable", "'Lable' is not defined. Did you mean 'Label'"),
        ("a --check shrt", "--check of agent 'a': 'shrt' is not defined. Did you mean 'short'"),
        ("a --check Label", "check of agent 'a' must be a function"),
        ("a --returns print()", "not a type that can be read"),
        ("a --returns short", "is no type"),
    ],
)
def test_a_mistake_is_said_when_declared(magics, line, message):
    """In one line, and nothing is declared."""
    with pytest.raises(UsageError) as caught:
        magics.agent(line, "x\n")
    assert message in str(caught.value)
    assert not len(magics.session.registry("agents"))


def test_a_mistake_leaves_the_agent_of_that_name_and_says_so(magics):
    """The next run would ask what was declared before."""
    magics.agent("a", "x\n")
    with pytest.raises(UsageError, match="Still as declared before: a"):
        magics.agent("a --returns Lable", "y\n")
    assert ["x"] == [agent.prompt for agent in plan_of(magics).agents]


def test_a_run_that_is_refused_says_nothing_of_the_declaration(monkeypatch, magics):
    """The agent is declared, as the cell has it: only what asks it failed."""
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(UsageError) as caught:
        magics.agent("a --run", "x\n")
    assert "No API key found" in str(caught.value)
    assert "as it was declared before" not in str(caught.value)
    assert ["a"] == [agent.name for agent in magics.session.registry("agents").agents]


def test_a_class_that_was_run_again_counts(magics):
    """For the next plan, without running the cell of the agent; a frozen plan keeps its own."""
    magics.agent("a --returns Label", "x\n")
    frozen = plan_of(magics)
    magics.shell.user_ns["Label"] = Wider
    assert "new" in plan_of(magics).agents[0].schema
    assert "new" not in frozen.agents[0].schema
    del magics.shell.user_ns["Label"]
    with pytest.raises(DeclarationError, match="'Label' is not defined"):
        plan_of(magics)


def test_a_class_that_was_edited_after_a_run_changes_nothing_of_it(magics, tmp_path: Path):
    """Its values stay those of its class. The new one misses in a replay; without any the schema reads it."""
    magics.agent("label --each rows --returns Label", "Label {{ item }}\n")
    done = asyncio.run(plan_of(magics).run(client=known({"Label a": '{"mood": "good"}', "Label b": '{"mood": "BAD"}'})))
    magics.shell.user_ns["Label"] = Wider
    assert Label(mood="bad") == done["label_1"].value
    assert ["good", "bad"] == list(done.each("label")["mood"].cat.categories) == list(done.each("label")["mood"])
    done.save(tmp_path / "r.jsonl")
    with pytest.raises(ReplayMiss, match="differs in schema"):
        plan_of(magics).replay(tmp_path / "r.jsonl")
    del magics.shell.user_ns["Label"]
    magics.session.insert(Deck(read_cassette(tmp_path / "r.jsonl")))
    assert "bad" == plan_of(magics).replay(tmp_path / "r.jsonl")["label_1"].value.mood


def test_a_recording_answers_without_the_class(magics, tmp_path: Path):
    """Neither class nor function is there: the schema in the file reads the values."""
    magics.agent("label --each rows --returns Label --check short", "Label {{ item }}\n")
    answers = {"Label a": '{"mood": "good"}', "Label b": '{"mood": "BAD"}'}
    done = asyncio.run(plan_of(magics).run(client=known(answers)))
    done.save(tmp_path / "r.jsonl")
    for name in ("Label", "short"):
        del magics.shell.user_ns[name]
    with pytest.raises(UsageError, match="not defined"):
        magics.agent("label --each rows --returns Label --check short", "Label {{ item }}\n")
    magics.session.insert(Deck(read_cassette(tmp_path / "r.jsonl")))
    magics.agent("label --each rows --returns Label --check short", "Label {{ item }}\n")
    again = plan_of(magics).replay(tmp_path / "r.jsonl")
    assert ["good", "bad"] == list(again.each("label")["mood"])
    assert "bad" == again["label_1"].value.mood
    with pytest.raises(UsageError, match="not defined"):
        magics.agent("other --returns Label", "x\n")


def notebook(*cells: str) -> list[tuple[str, str]]:
    """Code cells as a file has them."""
    return [("code", cell) for cell in cells]


def test_files_keep_the_schema():
    """A notebook that is read without being run knows types made of words; a script and a notebook have the schema."""
    found = find_agents(notebook('%%agent a --returns Literal["x","y"]\nPick.\n', "%%agent b\n{{ a }}\n"))
    data, _ = plan_data(found, "agents")
    plan = Plan.from_dict(data)
    assert "x | y" == str(plan.agents[0].returns)
    script, _ = from_script(to_script(data, title="t", unknown={}))
    assert plan.agents[0].schema == Plan.from_dict(script).agents[0].schema
    cells = json.dumps(to_notebook(plan))
    assert "Plan.from_json" in cells
    with pytest.raises(AgentMagicError, match="Cell 1: --returns of agent 'a': 'Label' is not defined"):
        find_agents(notebook("%%agent a --returns Label\nx\n"))
