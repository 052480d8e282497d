"""Scripts read back into plans, without running them; and what of a folder comes along with a notebook."""

from __future__ import annotations

import json

import pytest
from nbformat.v4 import new_code_cell, new_output

from agent_magic.api import Plan
from agent_magic.cli import main
from agent_magic.errors import AgentMagicError, PlanError
from agent_magic.notebook import from_script
from agent_magic.notebook.files import sharing
from agent_magic.notebook.files.sharing import Compared, _compare, copy_needed, shown
from tests.test_cli import CELLS, ODD, notebook

FRONT = """
import agent_magic as am

plan = am.Plan(
    [am.Agent("python", "Python for {{ topic }}?"), am.Agent("compare", "Weigh this: {{ python }}", after="python")],
    {"topic": "an API"},
)
run = await plan.run(am.Policy(8, budget_usd=0.5), client=am.Claude())
"""


def sources_of(text):
    """The cells of a notebook."""
    return ["".join(cell["source"]) for cell in json.loads(text)["cells"]]


def test_an_exported_script_goes_round(tmp_path, capsys):
    """Notebook to script to notebook to plan: the same agents, values, contexts, and the same options of the run."""
    path, script, back = tmp_path / "n.ipynb", tmp_path / "s.py", tmp_path / "back.ipynb"
    path.write_text(json.dumps(notebook(*CELLS)))
    assert 0 == main(["export", str(path), "--output", str(script)])
    assert 0 == main(["import", str(script), "--output", str(back)])
    for one in (path, back):
        assert 0 == main(["export", str(one), "--format", "json"])
    first, _, second = capsys.readouterr().out.partition("}\n{")
    plan, again = Plan.from_json(first + "}"), Plan.from_json("{" + second)
    assert plan.agents == again.agents
    assert dict(plan.values) == dict(again.values)
    assert "run = %agents run --concurrency 3 --schedule layers" in sources_of(back.read_text())


@pytest.mark.parametrize("agent", ODD, ids=lambda one: one.name)
def test_every_prompt_goes_round(agent):
    """Quotes, control characters, options: what the script says is what the plan had."""
    from agent_magic.declare import plan_to_dict
    from agent_magic.notebook import to_script

    plan = Plan([one for one in ODD if one == agent or one.name in {*agent.uses, *agent.after, "a", "b"}], name="tour")
    text = to_script(plan_to_dict(plan), title="x", unknown={}, run="--budget 0.5 --timeout 9")
    data, run = from_script(text)
    assert plan.agents == Plan.from_dict(data).agents
    assert "tour" == data["name"]
    assert "--timeout 9.0 --budget 0.5" == run


def test_a_script_by_hand(tmp_path, capsys):
    """The one of the front page: lists and values in place, positional arguments, a parent as one word."""
    data, run = from_script(FRONT.replace("await ", ""))
    plan = Plan.from_dict(data)
    assert ("python", "compare") == plan.names
    assert ("python",) == plan["compare"].after
    assert {"topic": "an API"} == dict(plan.values)
    assert "--concurrency 8 --budget 0.5" == run
    (tmp_path / "s.py").write_text(FRONT)
    assert 0 == main(["import", str(tmp_path / "s.py")])
    assert "topic = 'an API'" in sources_of(capsys.readouterr().out)


def test_nothing_of_a_script_is_run(tmp_path):
    """It is read as text: what it would do does not happen."""
    made = tmp_path / "made"
    data, _ = from_script(f"open({str(made)!r}, 'w')\n" + FRONT)
    assert 2 == len(data["agents"])
    assert not made.exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1", "declares no plan"),
        ("x = = 1", "Line 1: not valid Python"),
        ("import agent_magic as am\nam.Plan([am.Agent('a', load())])", r"Line 2: 'load\(\)' is computed"),
        ("am.Plan([am.Agent('a', 'x') for _ in range(3)])", "computed"),
        ("am.Plan([make()])", r"expected am.Agent\(...\)"),
        ("am.Plan([am.Agent('a', 'x', **more)])", "computed"),
        ("am.Plan([am.Agent('a', 'x', colour='red')])", "no option 'colour'"),
        ("am.Plan([am.Agent('a', 'x')], values())", "computed"),
    ],
)
def test_what_cannot_be_read_is_said(text, says):
    """With its line, and what else to do."""
    with pytest.raises(PlanError, match=says):
        from_script(text)


# What a replay shows, beside what was saved


@pytest.mark.parametrize(
    "said",
    [
        "note: no API key: answers come from x.cassette.jsonl, recorded today\n",
        "note: no API key is set: set ANTHROPIC_API_KEY before the next run, or connect to a server first\n",
    ],
)
def test_who_answered_is_no_difference(said):
    """A note about the key, alone or among other lines, is not compared; other notes are."""
    more = "note: 2 of 3 agents are not in x.cassette.jsonl: bought now\nmore"
    outputs = [new_output("stream", text=text) for text in (said, said + more, more, "")]
    assert "" == shown([outputs[0]]) == shown([outputs[3]])
    assert more == shown([outputs[1]]) == shown([outputs[2]]) == shown([outputs[0], outputs[2]])


LIVE = """\
layer 0
  a  succeeded  0.0 s  48 tok  <$0.0001  Late: No complete answer within
      2 s.
note: http://127.0.0.1:1 leaves out rate limits (learned from refusals).
%agents retry asks it again, about $0.0021. More.
"""
REPLAYED = """\
layer 0
  a  succeeded  0.0 s  48 tok  <$0.0001  replay  Late: No complete answer
      within 2 s.
%agents retry asks it again. More.
"""


def test_the_dress_of_a_live_run_is_no_difference():
    """A replay has a column more, no endpoint and no prices: what was answered is what is compared."""

    def cell(text):
        return new_code_cell("%agents run", outputs=[new_output("stream", text=text)])

    assert Compared(1, "", ()) == _compare(1, cell(LIVE), cell(REPLAYED))
    different = _compare(1, cell(LIVE), cell(REPLAYED.replace("48", "49")))
    assert different
    assert any(line.startswith("+") and "49 tok" in line for line in different.difference)


# What comes along with a notebook


@pytest.fixture
def folder(tmp_path):
    """A folder as people have them."""
    names = "data/a.csv other/b.csv tools.py unused.py pkg/__init__.py .git/HEAD x.cassette.jsonl"
    for name in names.split():
        path = tmp_path / "here" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "here" / "n.ipynb").write_text("{}")
    return tmp_path / "here"


CODE = ["import tools\nfrom pkg import x", "pd.read_csv('data/a.csv')", "n = 1"]


def test_what_cells_name_comes_along(folder, tmp_path):
    """Recordings, modules that are imported, files and folders that are named; nothing else."""
    copy_needed(folder / "n.ipynb", CODE, tmp_path / "work")
    found = {str(path.relative_to(tmp_path / "work")) for path in (tmp_path / "work").rglob("*") if path.is_file()}
    assert {"data/a.csv", "tools.py", "pkg/__init__.py", "x.cassette.jsonl"} == found


def test_more_on_request(folder, tmp_path):
    """What cells read without naming it can be named; what is elsewhere would not be found there."""
    copy_needed(folder / "n.ipynb", CODE, tmp_path / "work", [folder / "other"])
    assert (tmp_path / "work" / "other" / "b.csv").is_file()
    for wrong in (folder / "nothing", tmp_path):
        with pytest.raises(AgentMagicError, match="not beside the notebook"):
            copy_needed(folder / "n.ipynb", CODE, tmp_path / "other", [wrong])


def test_a_huge_folder_costs_nothing_until_it_is_named(folder, tmp_path, monkeypatch):
    """A file of terabytes beside the notebook is left alone; named, it is refused before a byte is copied."""
    with (folder / "huge.bin").open("wb") as file:
        file.truncate(2 << 40)
    copy_needed(folder / "n.ipynb", CODE, tmp_path / "work")
    assert not (tmp_path / "work" / "huge.bin").exists()
    with pytest.raises(AgentMagicError, match=r"'huge.bin'.*1 GiB"):
        copy_needed(folder / "n.ipynb", ["open('huge.bin')"], tmp_path / "second")
    assert not (tmp_path / "second").exists()
    monkeypatch.setattr(sharing, "MOST_FILES", 3)
    with pytest.raises(AgentMagicError, match="3 files"):
        copy_needed(folder / "n.ipynb", ["data other pkg tools"], tmp_path / "third")
