"""The command line: notebooks from outside, exported, imported, scanned; and the script that comes out really runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from agent_magic import Agent
from agent_magic.api import Plan
from agent_magic.cli import main
from agent_magic.simulator import child

KEY = "sk-" + "ant-api03-" + "A1b2C3d4E5f6G7h8"


def notebook(*sources):
    """A notebook of these code cells."""
    cells = [{"cell_type": "code", "metadata": {}, "source": source, "outputs": []} for source in sources]
    return {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}


CELLS = (
    "%load_ext agent_magic\n%config AgentMagics.max_tokens = 300",
    'topic = "tea"\nshared: str = "Facts on tea. " * 1\nhandbook = "The handbook."\nunused = open',
    '%%agent python --model claude-haiku-5-5\nSay one thing on {{ topic }}.\n\nBriefly \\n {braces} "quotes".',
    "%%agent python\nSay one thing on {{ topic }}, again.\nIn two lines.",
    '%%agent check --after python --system "You are terse." --context handbook --timeout 60\nDone?',
    "%%agent other --plan second\nElsewhere.",
    "run = %agents run --concurrency 3 --schedule layers",
)


@pytest.fixture
def saved(tmp_path):
    """The path of a notebook with agents."""
    path = tmp_path / "n.ipynb"
    path.write_text(json.dumps(notebook(*CELLS)))
    return path


def test_the_plan_of_a_notebook(saved, capsys):
    """The last declaration of each name, defaults filled in, plain values taken; the plan reads back."""
    assert 0 == main(["export", str(saved), "--format", "json"])
    plan = Plan.from_json(capsys.readouterr().out)
    assert ("python", "check") == plan.names
    assert {"topic": "tea", "handbook": "The handbook."} == dict(plan.values)
    assert "Say one thing on {{ topic }}, again.\nIn two lines." == plan["python"].prompt
    assert ("You are terse.", "handbook", 60.0, ("python",), 300) == (
        plan["check"].system,
        plan["check"].context,
        plan["check"].timeout_s,
        plan["check"].after,
        plan["check"].max_tokens,
    )
    assert 0 == main(["export", str(saved), "--format", "json", "--plan", "second"])
    assert ("other",) == Plan.from_json(capsys.readouterr().out).names


def test_the_script_runs(saved, tmp_path):
    """In a process of its own against the stand-in API: the answers of the agents, and nothing of a key."""
    script = tmp_path / "agents.py"
    assert 0 == main(["export", str(saved), "--output", str(script)])
    assert "am.Policy(concurrency=3, schedule='layers')" in script.read_text()
    simulator = child.start(latency="none")
    try:
        environment = {**os.environ, "ANTHROPIC_BASE_URL": simulator.url, "ANTHROPIC_API_KEY": KEY}
        done = subprocess.run(
            [sys.executable, script], env=environment, capture_output=True, text=True, timeout=120, check=False
        )
    finally:
        simulator.stop()
    assert 0 == done.returncode, done.stderr
    assert "--- python\n" in done.stdout
    assert "--- check\n" in done.stdout
    assert "2 agents" in done.stderr
    assert KEY not in done.stdout + done.stderr + script.read_text()


FILES = (
    'report = am.text_file("report.txt")\npapers = [am.text_file(Path("report.txt"), title="It")]',
    "%%agent a --attach report\nWhat fell?",
    "%%agent b --context report\nWhat rose? {{ papers[0] }}",
)


def test_files_that_cells_attach_come_along(tmp_path, capsys, monkeypatch):
    """The script reads them again, and runs; a notebook made of it has the same cell; JSON holds their bytes."""
    path, script, back = tmp_path / "n.ipynb", tmp_path / "s.py", tmp_path / "back.ipynb"
    path.write_text(json.dumps(notebook(*FILES)))
    (tmp_path / "report.txt").write_text("Sales fell.")
    assert 0 == main(["export", str(path), "--output", str(script)])
    assert "" == capsys.readouterr().err
    assert "    'report': am.text_file('report.txt'),\n    'papers': [am.text_file('report.txt', title='It')],\n" in (
        script.read_text()
    )
    simulator = child.start(latency="none")
    try:
        environment = {**os.environ, "ANTHROPIC_BASE_URL": simulator.url, "ANTHROPIC_API_KEY": KEY}
        command = [sys.executable, script]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    finally:
        simulator.stop()
    assert 0 == done.returncode, done.stderr
    assert 0 == main(["import", str(script), "--output", str(back)])
    cells = ["".join(cell["source"]) for cell in json.loads(back.read_text())["cells"]]
    read = (
        "import agent_magic as am\n\nreport = am.text_file('report.txt')\npapers = [am.text_file('report.txt', title="
    )
    assert any(one.startswith(read) for one in cells)
    assert 0 == main(["export", str(path), "--format", "json"])
    plan = Plan.from_json(capsys.readouterr().out)
    assert b"Sales fell." == plan.values["report"].data == plan.values["papers"][0].data
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.json").write_text(plan.to_json())
    assert 0 == main(["import", "p.json"])
    assert "report = am.text_file('report.txt')" in capsys.readouterr().out


def test_steps_that_cells_make_in_python_are_no_values(tmp_path, capsys):
    """An export cannot hold their functions: it is refused by name, with what to do."""
    path = tmp_path / "n.ipynb"
    path.write_text(json.dumps(notebook('tidy = am.Task("tidy", str.upper)', "%%agent a\n{{ tidy }}")))
    assert 2 == main(["export", str(path)])
    said = capsys.readouterr().err
    assert "the step 'tidy', which cell 1 makes in Python. An export holds prompts and plain values" in said
    path.write_text(json.dumps(notebook("fig, [ax, b] = plt.subplots(), (1, 2)", "%%agent a\n{{ fig }} {{ b }}")))
    assert 0 == main(["export", str(path)])
    assert "'fig' has no plain value (cell 1 computes it)" in capsys.readouterr().err


def test_what_is_computed_is_named(tmp_path, capsys):
    """A value that only running the notebook gives is left open, and the cell that computes it is told."""
    path = tmp_path / "n.ipynb"
    path.write_text(json.dumps(notebook("data = load()", "%%agent a\n{{ data }} {{ missing }}")))
    assert 0 == main(["export", str(path)])
    shown = capsys.readouterr()
    assert "'data' has no plain value (cell 1 computes it)" in shown.err
    assert "# 'data': ...,  # cell 1 of the notebook computes it: give it here" in shown.out
    assert "# 'missing': ...,  # the notebook does not set it: give it here" in shown.out
    compile(shown.out, "script", "exec")


ODD = [
    Agent("a", "plain"),
    Agent("b", 'with """ quotes""" and \\ and {{ a }}\n\n  indented\n'),
    Agent("c", '{{ b }}\u2028 odd \x07 end"', system='"both" kinds', effort="low", timeout_s=2.5, max_tokens=7),
    Agent("d", "%%agent x\nnot a magic", after=("a", "c"), role="critic", model="claude-opus-5-5"),
]


@pytest.mark.parametrize("agents", [ODD, [*ODD, Agent("e", "x", system="two\nlines 'and' \"quotes\"")]])
def test_a_plan_goes_round(agents, tmp_path, capsys):
    """JSON to a notebook and back: the same agents. What no line of options holds is declared in Python."""
    plan = Plan(agents, name="tour")
    path = tmp_path / "n.ipynb"
    (tmp_path / "p.json").write_text(plan.to_json())
    assert 0 == main(["import", str(tmp_path / "p.json"), "--output", str(path)])
    cells = ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"]]
    if len(agents) == len(ODD):
        assert 0 == main(["export", str(path), "--format", "json", "--plan", "tour"])
        back = Plan.from_json(capsys.readouterr().out)
    else:
        space = {}
        exec(next(cell for cell in cells if "from_json" in cell), space)
        back = space["plan"]
    assert plan.agents == back.agents


def test_contexts_go_round(tmp_path, capsys):
    """A notebook's contexts come out as templates of the JSON plan and the script; a plan's text becomes a cell."""
    path, script = tmp_path / "n.ipynb", tmp_path / "s.py"
    cells = ["company = 'ACME'", "%%context rules\nOf {{ company }}:\nbe kind", "%%context spare\n{{ nothing }}"]
    path.write_text(json.dumps(notebook(*cells, "%%agent a --context rules\nWhich?", "%%agent b\nAll: {{ rules }}")))
    assert 0 == main(["export", str(path), "--format", "json"])
    data = json.loads(capsys.readouterr().out)
    assert ({"rules": "Of {{ company }}:\nbe kind"}, {"company": "ACME"}) == (data["contexts"], data["values"])
    plan = Plan.from_dict(data)
    assert "Of ACME:\nbe kind" == plan.context_of(0) == plan.values["rules"]
    assert "contexts" not in plan.to_dict()
    assert 0 == main(["export", str(path), "--output", str(script)])
    space: dict[str, Any] = {"__name__": "not main"}
    exec(script.read_text(), space)
    assert plan == Plan(space["AGENTS"], space["VALUES"], contexts=space["CONTEXTS"])
    assert "contexts=CONTEXTS" in script.read_text()
    (tmp_path / "p.json").write_text(plan.to_json())
    assert 0 == main(["import", str(tmp_path / "p.json")])
    sources = ["".join(cell["source"]) for cell in json.loads(capsys.readouterr().out)["cells"]]
    assert "%%context rules\nOf ACME:\nbe kind" in sources
    assert not any(source.startswith("rules =") for source in sources)


def test_a_context_with_braces_of_its_own_stays_a_value(tmp_path, capsys):
    """What a cell would read as a template is written as Python."""
    plan = Plan([Agent("a", "x", context="rules")], {"rules": "as {{ is }}"})
    (tmp_path / "p.json").write_text(plan.to_json())
    assert 0 == main(["import", str(tmp_path / "p.json")])
    assert "rules = 'as {{ is }}'" in "\n".join(
        "".join(cell["source"]) for cell in json.loads(capsys.readouterr().out)["cells"]
    )


def test_a_script_holds_every_prompt(tmp_path):
    """Quotes, backslashes and control characters survive as Python."""
    from agent_magic.declare import plan_to_dict
    from agent_magic.notebook import to_script

    plan = Plan(ODD)
    space = {"__name__": "not main"}
    exec(to_script(plan_to_dict(plan), title='odd """ title \\', unknown={}), space)
    assert list(plan.agents) == space["AGENTS"]


def test_the_scan_finds_and_allows(tmp_path, capsys):
    """Status 1 and a place where there is a key, 0 where there is none or it is allowed; never the key."""
    path = tmp_path / "n.ipynb"
    path.write_text(json.dumps(notebook(f"key = '{KEY}'")))
    assert 1 == main(["scan", str(path)])
    shown = capsys.readouterr()
    assert "cell 1, source: an Anthropic key" in shown.out
    assert KEY not in shown.out + shown.err
    assert 0 == main(["scan", str(path), "--allow", shown.out.split("mark ")[1][:8]])


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["export", "none.ipynb"], "none.ipynb: No such file"),
        (["scan", "none"], "none: No such file"),
        (["import", "bad.json"], "The plan is not JSON"),
        (["export", "bad.json"], "is not a notebook"),
        (["replay", "bad.json"], "is not a notebook"),
        (["export", "bytes.ipynb"], "'bytes.ipynb' is not UTF-8 text"),
        (["import", "bytes.ipynb"], "'bytes.ipynb' is not UTF-8 text"),
        (["replay", "bytes.ipynb"], "'bytes.ipynb' is not UTF-8 text"),
        (["export", "empty.ipynb"], "declares no agents of the plan 'agents'"),
    ],
)
def test_mistakes_are_one_line(argv, message, tmp_path, monkeypatch, capsys):
    """Status 2, and what to look at."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "bytes.ipynb").write_bytes(b"\xca\xfe")
    (tmp_path / "empty.ipynb").write_text(json.dumps(notebook("1")))
    assert 2 == main(argv)
    assert message in capsys.readouterr().err


def test_a_setting_counts_for_cells_above_it(tmp_path, capsys):
    """`%config` counts when the plan is run: for agents declared before it, too. Blank lines above are nothing."""
    path = tmp_path / "n.ipynb"
    path.write_text(json.dumps(notebook("\n  \n%%agent a\nx", "%config AgentMagics.model = 'claude-opus-5-5'")))
    assert 0 == main(["export", str(path), "--format", "json"])
    assert "claude-opus-5-5" == Plan.from_json(capsys.readouterr().out)["a"].model


def test_every_option_of_a_run_comes_along(tmp_path, capsys):
    """A cap is not lost on the way into a script, however it was written; one that is no number is named."""
    path = tmp_path / "n.ipynb"
    line = "%agents run --budget=0.5 --max-usd-per-min 2 --on-refusal warn --timeout-counts total"
    path.write_text(json.dumps(notebook("%%agent a\nx", line)))
    assert 0 == main(["export", str(path)])
    policy = "am.Policy(budget_usd=0.5, max_usd_per_min=2.0, on_refusal='warn', timeout_counts='total')"
    assert policy in capsys.readouterr().out
    path.write_text(json.dumps(notebook("%%agent a\nx", "%agents run --budget much")))
    assert 2 == main(["export", str(path)])
    assert "--budget must be a number, got 'much'" in capsys.readouterr().err


def test_what_is_no_whole_notebook_is_not_executed(tmp_path, capsys):
    """A file with cells that Jupyter cannot read is named, without a traceback."""
    path = tmp_path / "n.ipynb"
    path.write_text('{"cells": [{"cell_type": "code", "source": "x"}], "nbformat": 4, "nbformat_minor": 5}')
    assert 2 == main(["replay", str(path)])
    assert "cannot be executed" in capsys.readouterr().err
