"""`%%agents` and `%%plan` cells, presets and exports, in a shell."""

from __future__ import annotations

import json
import re
from enum import Enum
from typing import Any, Literal

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from pydantic import BaseModel

from agent_magic import Agent, Claude, Desk, Plan, Policy, Task, roles
from agent_magic.declare import PRESETS
from agent_magic.errors import AgentMagicError
from agent_magic.live import Player
from agent_magic.notebook import AgentMagics, Cell, Registry, cell_of, find_agents, load, plan_data, unload
from agent_magic.notebook.files.cells import read_cells
from agent_magic.notebook.running import LiveStatus
from agent_magic.record import History
from agent_magic.show.cards import todo_page
from agent_magic.simulator import child

CELL = "Why.\n\n## a (Researcher)\nOn {{ topic }}\n\n## b --after c\n{{ a }}\n\n## c\nx\n"


class Verdict(BaseModel):
    """What a critic answers."""

    ok: bool


def look_up_word(word: str) -> str:
    """Say what a word means."""
    return word


class Shell(InteractiveShell):
    """A shell that keeps the cells that are put below."""

    def set_next_input(self, s, replace=False):
        """Keep a cell."""
        del replace
        self.put = s


@pytest.fixture
def shell():
    """A shell with the extension."""
    made = Shell()
    made.user_ns["topic"] = "it"
    load(made)
    yield made
    unload(made)


@pytest.fixture
def magics(shell):
    """Its magics."""
    return next(one for one in shell.configurables if isinstance(one, AgentMagics))


def names(magics, plan="agents"):
    """What is declared."""
    return [agent.name for agent in magics.session.registry(plan).agents]


def test_a_cell_declares_all_of_its_agents(magics, capsys):
    """Each as its own cell would, in one card, for the plan of the first line."""
    magics.agents_cell("--plan mine", CELL)
    assert ["a", "b", "c"] == names(magics, "mine")
    agents = magics.session.registry("mine").agents
    assert ["researcher", None, None] == [agent.role for agent in agents]
    assert ["On {{ topic }}", "{{ a }}", "x"] == [agent.prompt for agent in agents]
    shown = capsys.readouterr().out
    assert "3 agents declared" in shown
    assert "a, c (--after)" in shown


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("## new\nx\n\n## a --modl m\nx", r"^Section 'a', line 5: .*unknown option '--modl m'"),
        ("## new\nx\n\n## a (king)\nx", "^Section 'a', line 5: role of agent 'a' must be one of"),
        ("## new\n{{ a }}\n## a\n{{ new }}", "wait for each other"),
        ("## a\nx\n## a\ny", "^Section 'a', line 4: the cell has two sections of that name"),
        ("## a --plan other\ny", "^Section 'a', line 2: --plan belongs to the first line"),
        ("## a --run\ny", "^Section 'a', line 2: --run is for a cell of one agent"),
        ("## a\n{{ x", "^Section 'a', line 2: "),
        ("no heading", "needs a heading for each agent"),
        ("##a\nx", "Line 2 looks like a heading, and is prompt: write `## a`"),
    ],
)
def test_an_error_declares_none(magics, cell, message):
    """What was declared before stays; the message names section and line."""
    magics.agents_cell("", "## a\nold")
    with pytest.raises(UsageError, match=message):
        magics.agents_cell("", cell)
    assert ["a"] == names(magics)
    assert "old" == magics.session.registry().agents[0].prompt


def test_what_is_taken_out_of_the_cell_is_dropped(magics):
    """When it runs again, what it had declared is replaced as a whole, though the old and the new would be a cycle."""
    registry = magics.session.registry()
    known = {"ran": ["a", "b"], "variables": (), "cycles": False}
    first = find_agents([("code", "%%agents\n## a\nx\n## b\n{{ a }}\n## gone\nx")]).agents["agents"]
    assert [] == registry.declare_all([*first.values()], Cell("1", "m1"), **known)
    second = find_agents([("code", "%%agents\n## a\n{{ b }}\n## b\nx")]).agents["agents"]
    notes = registry.declare_all([*second.values()], Cell("1", "m2"), **known)
    assert ["dropped gone, which the cell had before", "now stale: a"] == notes
    assert ["a", "b"] == names(magics)
    taken = registry.declare_all([second["a"]], Cell("2", "m3"), **known)
    stays = "b stays declared, from an earlier cell, and will run too: %agents drop b"
    assert ["replaces a of another cell", stays] == taken
    assert [] == registry.declare_all([second["a"]], Cell("2", "m4"), **known)


def test_a_cell_of_several_that_becomes_one_of_one_drops_the_others():
    """What `%%agents` had declared in the cell is gone when the cell is a `%%agent`."""
    registry, known = Registry("p"), {"ran": [], "variables": (), "cycles": False}
    registry.declare_all([Agent("a", "x"), Agent("b", "y")], Cell("1", "m1"), **known)
    notes = registry.declare(Agent("a", "x"), Cell("1", "m2"), **known)
    assert ["dropped b, which the cell had before"] == notes
    assert ["a"] == [one.name for one in registry.agents]


def test_a_cell_without_an_id_drops_nothing_and_says_what_stays(magics, capsys):
    """A terminal does not tell which cell runs again: what it had before would be bought, so its card says so."""
    magics.agents_cell("", "## a\nx\n## b\n{{ a }}")
    magics.agents_cell("", "## a\nx\n## b\n{{ a }}")  # run twice
    assert "stays declared" not in capsys.readouterr().out
    magics.agents_cell("", "## a\nx")
    assert ["a", "b"] == names(magics)
    assert "b stays declared, from an earlier cell, and will run too: %agents drop b" in " ".join(
        capsys.readouterr().out.split()
    )


def test_a_line_that_looks_like_a_heading_is_pointed_out(magics, capsys):
    """`##name` and what is indented like code go out as prompt, unseen: the card says so."""
    magics.agents_cell(
        "", "## one\nSay one.\n   ## two\nSay two.\n##three\nSay three.\n### four\n    ## five (critic)\n## six\nx"
    )
    assert ["one", "two", "six"] == names(magics)
    said = " ".join(capsys.readouterr().out.split())
    assert "line 6 looks like a heading, and is prompt: write `## three`" in said
    assert "line 9 looks like a heading, and is prompt: write `## five (critic)`" in said
    assert said.count("looks like") == said.count("line 6 looks") + said.count("line 9 looks")


def test_a_notebook_file_is_read_with_its_sections():
    """Exports and replays of a notebook know them too."""
    found = find_agents([("code", f"%%agents --plan mine\n{CELL}")]).agents
    assert {"mine": ["a", "b", "c"]} == {plan: [*agents] for plan, agents in found.items()}


def test_the_declared_agents_are_written_as_one_cell(shell, magics):
    """And the cell declares the same agents."""
    magics.agents_cell("", CELL)
    before = magics.session.registry().agents
    magics.agents("export cell")
    magic, _, cell = shell.put.partition("\n")
    assert "%%agents" == magic
    magics.agents("clear")
    magics.agents_cell("", cell)
    assert before == magics.session.registry().agents


def test_the_declared_agents_are_written_as_files(shell, magics, tmp_path, monkeypatch, capsys):
    """As a notebook with a cell each, which declares the same agents, and as JSON."""
    monkeypatch.chdir(tmp_path)
    shell.user_ns["rows"] = ["x", "y"]
    magics.agents_cell("", f"{CELL}\n## rate --each rows\n{{{{ item }}}}")
    magics.agents("export cells")
    text = (tmp_path / "agents.ipynb").read_text(encoding="utf-8")
    found = find_agents(read_cells(text, "agents.ipynb"))
    assert [*found.agents["agents"].values()] == [*magics.session.registry().agents]
    assert {"topic": "it", "rows": ["x", "y"]} == found.values
    magics.agents("export json plan.json")
    assert 5 == len(json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))["agents"])
    assert "5 agents written to plan.json" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("%%agent a --tools count\nx", "--tools of agent 'a' names 'count', which cell 1 defines"),
        ("%%agent a --returns list[Label]\nx", "--returns of agent 'a' names 'Label', which cell 1 defines"),
        ("%%agents\n## a --returns int --check count\nx", "--check of agent 'a' names 'count', which cell 1 defines"),
        ("%%agent a\n{{ clean }}", "has the task 'clean', a function of cell 1"),
        ("%%agent b\nx", "has the task 'after', a function of cell 1"),
    ],
)
def test_no_script_is_written_of_agents_that_need_code(cell, message):
    """A script holds no function of the notebook: the tool, type, check or task is named, with the cell that has it."""
    code = (
        "def count(text): ...\nclass Label: ...\n@am.task\ndef clean(): ...\n@task(retries=2)\nasync def after(b): ..."
    )
    with pytest.raises(AgentMagicError, match=re.escape(message)) as caught:
        plan_data(find_agents([("code", code), ("code", cell)]), "agents")
    assert "jupyter execute" in str(caught.value)


def test_tasks_of_another_plan_are_not_in_the_way():
    """A plan of text agents is written, whatever else the notebook holds."""
    cells = [("code", "@am.task\ndef clean(b): ..."), ("code", "%%agent b --plan two\nx"), ("code", "%%agent a\nx")]
    assert ["a"] == [row["name"] for row in plan_data(find_agents(cells), "agents")[0]["agents"]]


def test_no_notebook_is_written_of_agents_that_need_code(shell, magics, tmp_path, monkeypatch):
    """Its cells would name functions that it has not. No file is left; a class goes along as its schema."""
    monkeypatch.chdir(tmp_path)
    shell.user_ns["Label"] = Enum("Label", ["good", "bad"])
    magics.agent("label --returns Label", "Rate it.\n")
    magics.agents("export cells")
    text = "".join("".join(cell["source"]) for cell in json.loads((tmp_path / "agents.ipynb").read_text())["cells"])
    assert "Plan.from_json" in text
    (tmp_path / "agents.ipynb").unlink()
    shell.user_ns["len_of"] = len_of
    magics.agent("teller --tools len_of", "How long?\n")
    with pytest.raises(UsageError, match="Agent 'teller' needs the tool 'len_of'"):
        magics.agents("export cells")
    magics.agents("drop teller")
    clean = Task("clean", lambda: "x")
    magics.session.registry().declare(clean, Cell(), ran=(), variables=(), cycles=True)
    with pytest.raises(UsageError, match="The task 'clean' is a function of this notebook"):
        magics.agents("export cells")
    assert not [*tmp_path.iterdir()]


def len_of(text: str) -> int:
    """Count the letters of a text."""
    return len(text)


def test_a_preset_is_put_below(shell, magics, capsys):
    """In any capitalization; without a name they are listed."""
    magics.agents("preset Review")
    assert PRESETS["review"] == shell.put
    magics.agents("preset")
    assert all(name in capsys.readouterr().out for name in ("prp",))
    with pytest.raises(UsageError, match="Did you mean 'research'"):
        magics.agents("preset researh")


def test_roles_of_ones_own(magics):
    """By the table or by %config, in any capitalization."""
    magics.roles = {"Lawyer": "You are a lawyer."}
    try:
        magics.agents_cell("", "## a (LAWYER)\nx")
        assert "You are a lawyer." == magics.session.registry().agents[0].system_text
    finally:
        del roles["lawyer"]


@pytest.fixture
def connected(magics):
    """A session that the mock server answers."""
    with child.start(latency="none", unlimited=True):
        magics.agents("connect simulator --latency none")
        yield magics


def test_a_goal_becomes_a_cell(shell, connected, capsys):
    """A plan is asked for and shown with an estimate; its cell is put below, and nothing of it has run."""
    connected.plan("--agents 5 --plan mine", "Compare Python, Rust and Go for {{ topic }}.\n")
    shown = capsys.readouterr().out
    assert "mine: 5 agents, about" in shown
    assert ["coordinator"] == [result.name for result in connected.session.last.record.results]
    assert [] == names(connected, "mine")
    magic, _, cell = shell.put.partition("\n")
    assert "%%agents --plan mine" == magic
    connected.agents_cell("--plan mine", cell)
    assert ["python", "rust", "go", "comparison", "result"] == names(connected, "mine")


def test_a_goal_that_is_asked_again_is_reused(shell, connected, capsys):
    """Its cell is there already: it is put below only if that is asked for."""
    connected.reuse_simulated = True
    connected.plan("", "Compare Python and Rust")
    shell.put = ""
    connected.plan("", "Compare Python and Rust")
    assert "" == shell.put
    assert "bought earlier" in capsys.readouterr().out
    connected.plan("--put", "Compare Python and Rust")
    assert shell.put.startswith("%%agents\n")


def test_an_answer_that_is_no_plan_is_asked_for_once_more(shell, connected):
    """With what is wrong; the second answer is a plan."""
    connected.plan("", 'Compare Python and Rust [[text:{"description": ""}]]')
    assert 2 == len(connected.session.last.record.attempts)
    assert "## python (researcher)" in shell.put


def test_a_goal_without_a_plan_is_told(shell, connected):
    """The message says why, and where the answer is."""
    with pytest.raises(UsageError, match=r"No plan came back: .*%agents show coordinator"):
        connected.plan("", "Compare Python and Rust [[stop:refusal]]")
    assert not hasattr(shell, "put")


def test_a_plan_is_linted_before_it_runs(connected):
    """The rules of advice, and the loops of the notebook's cells; nothing is sent."""
    connected.agents_cell("", "## a\nx\n## b --after a\ny")
    connected.shell.user_ns["In"] = ["", "for one in many:\n    await plan.run()"]
    found = {one.rule: one for one in connected.agents("lint")}
    assert "a -> b" == found["only necessary dependencies"].where
    assert "In [1]" == found["no await in a loop"].where
    assert connected.session.last is None


def test_the_estimate_says_whether_several_agents_are_worth_it(connected, capsys):
    """In a paragraph, with this plan's numbers."""
    connected.agents_cell("", "## a\nx\n## b\ny")
    connected.agents("plan")
    assert "several agents or one\ntake several: parts that do not need each other" in capsys.readouterr().out


def test_the_baseline_of_many_rows_asks_for_what_its_model_gives(connected, capsys):
    """The note says that it may not suffice. One that fails is not the last run."""
    connected.shell.user_ns["rows"] = range(70)
    connected.agents_cell("", "## row --each rows\nSay {{ item }} [[tokens:5]]")
    connected.agents("run")
    before = connected.session.last
    connected.agents("baseline --max-tokens 143360")
    assert "gave no whole answer" in capsys.readouterr().out
    assert before is connected.session.last
    connected.agents("baseline")
    told = "".join(capsys.readouterr())
    assert "at most 128,000 output tokens in one request" in told
    assert "143,360" in told
    assert before is connected.session.last
    assert "one agent" in before.record.bases


def test_a_plan_is_a_list_of_things_to_do(connected, capsys):
    """Before a run nothing is done, after it all is."""
    connected.agents_cell("", "## a\nx\n## b (critic)\n{{ a }}")
    connected.agents("todo")
    assert "- [ ] **b** (critic), after a" in capsys.readouterr().out
    connected.agents("run")
    capsys.readouterr()
    connected.agents("todo")
    assert "- [x] **b** (critic), after a" in capsys.readouterr().out
    shown = todo_page(connected.session.last.plan.todo(connected.session.last)).bundle()
    assert "<b>☑ b</b> (critic), after a" in shown["text/html"]
    assert "input" not in shown["text/html"], "a box that Markdown makes has no label"
    connected.agents_cell("", "## a\nx\n## b (critic)\n{{ a }} y\n## c\nz")
    connected.agents("todo")
    told = capsys.readouterr().out
    assert "- [x] **a**" in told
    assert "- [ ] **b** (critic), after a: stale" in told, "it would be asked again"
    assert "- [ ] **c** (claude-haiku-5-5)\n" in told
    connected.agents_cell("--plan loop", "## a --until \"'e' in a\" --rounds 9\nx")
    connected.agents("run --plan loop")
    capsys.readouterr()
    connected.agents("todo --plan loop")
    told = capsys.readouterr().out
    assert "[x] **a_1**" in told
    assert "and 8 reserved places that were not needed" in told
    assert "a_2" not in told


def test_answers_of_a_group_are_folded_in_a_prompt(connected, capsys):
    """The first says what the others are."""
    connected.agents_cell(
        "", "## work --repeat 40\nx\n## end\nSum: {{ work }}\n## few --repeat 3\nx\n## all\n{{ few }}"
    )
    connected.agents("plan")
    told = capsys.readouterr().out
    assert "… and 39 more of work" in told
    assert "<work_1's answer>" not in told
    assert "<few_2's answer>" in told


def test_a_version_of_a_plan_is_brought_back(shell, connected):
    """Its agents are declared as they were, with the types that cells name, and stand in a cell below."""
    connected.agents_cell("", "## a (critic) --returns 'list[str]'\nx\n## b\n{{ a }}")
    connected.agents("run")
    connected.agents("drop b")
    connected.agents_cell("", "## a --returns 'list[str]'\nchanged\n## c\nx")
    connected.agents("open --declare")
    assert ["a", "b"] == names(connected)
    assert '## a (critic) --returns "list[str]"\nx\n\n## b\n{{ a }}\n' in shell.put
    assert "x" == connected.session.registry().agents[0].prompt


def test_a_version_is_brought_back_though_nothing_of_it_is_declared(shell, connected, capsys):
    """Types are found by what they hold, tools by their names; loops, maps and races are declared as they were."""
    shell.user_ns.update({"Verdict": Verdict, "Mood": Literal["good", "bad"], "look_up_word": look_up_word})
    sections = [
        "## draft --until critic.ok --rounds 2\nWrite. {{ critic }}",
        "## critic --returns Verdict\nCheck {{ draft }}",
        '## names --returns "list[str]" --tools look_up_word\nName some.',
        "## mood --returns Mood\nx",
        '## score --returns "int | None"\nx',
        "## pick --returns \"Literal['a', 'b']\"\nx",
        "## work --each names --most 4\nDo {{ item }}",
        "## quick --first-of mood,score",
    ]
    connected.agents_cell("", "\n\n".join(sections))
    first = connected.agents("run")
    connected.agents("clear")
    opened = connected.agents("open --declare")
    assert shell.put.removeprefix("%%agents\n").strip() == "\n\n".join(sections)
    assert [] == list(opened.plan.diff(connected.agents("run").plan)["step"])
    assert first.plan.names == opened.plan.names
    connected.agents("clear")
    del shell.user_ns["Verdict"]
    with pytest.raises(UsageError, match=r"'critic' returned Verdict\(ok\), and the notebook has no type like that"):
        connected.agents("open --declare")
    assert [] == names(connected)


def test_functions_of_a_version_are_those_of_the_notebook(shell, connected, capsys):
    """They stay as they are declared now; where there is none of a name, it is said which cell to run."""

    def rows():
        return [1]

    connected.session.registry().declare(Task("rows", rows), cell_of(shell), ran=(), variables=(), cycles=False)
    connected.agent("end", "{{ rows }}")
    connected.agents("run")
    capsys.readouterr()
    connected.agents("open --declare")
    assert "Declared 1 agent of 'agents' as they were; their cell is below. rows stays as declared now." in (
        capsys.readouterr().out
    )
    assert {"rows", "end"} == set(names(connected))
    connected.agents("clear")
    with pytest.raises(UsageError, match="'rows' was a function, and the notebook declares none of that name"):
        connected.agents("open --declare")


def test_the_steps_of_a_plan_have_the_defaults_of_the_session(magics, shell):
    """A plan that a prompt uses is run as the notebook's own agents are."""
    shell.user_ns["research"] = Plan([Agent("notes", "x"), Agent("end", "{{ notes }}", model="claude-opus-5-5")])
    magics.agent("letter", "{{ research }}\n")
    plan = magics.session.plan(shell.user_ns, defaults={"model": "claude-sonnet-5-5"})
    assert ["claude-sonnet-5-5", "claude-opus-5-5", "claude-sonnet-5-5"] == [one.model for one in plan.agents]


def test_the_card_of_an_agent_says_that_its_model_is_none(magics, capsys, monkeypatch):
    """It is declared all the same, since another server may be connected to; the plan is then refused."""
    monkeypatch.delenv("ANTHROPIC_BASE_URL", raising=False)
    meant = "has no model 'haiku'. Did you mean 'claude-haiku-5-5'?"
    magics.agent("solo --model haiku", "Hello.")
    assert meant in capsys.readouterr().out
    with pytest.raises(UsageError, match=meant.replace("?", "[?]")):
        magics.agents("run")


def test_a_scenario_is_shown_at_once_or_in_its_time_and_is_no_run_of_the_session(shell, magics, capsys):
    """A row per load; one of them as a run that says it is a forecast."""
    magics.session.connect(Claude(base_url="http://127.0.0.1:9", api_key="x"))
    magics.agent("a", "x")
    assert 8 == len(magics.agents("scenario"))
    assert "no load holds this plan up" in capsys.readouterr().out
    magics.agents_cell("", "## a\nx\n## b\ny\n## c\n{{ a }} {{ b }}")
    assert 8 == len(magics.agents("scenario"))
    assert "no load holds" not in capsys.readouterr().out
    found = magics.agents("scenario near_rpm --on-limit reject --pace 1000")
    assert found.record.forecast is not None
    assert "forecast" in capsys.readouterr().out
    assert [] == magics.session.runs
    with pytest.raises(UsageError, match="Did you mean 'tpm_hit'"):
        magics.agents("scenario tmp_hit")


def test_the_live_view_of_what_is_played_says_what_is_said():
    """A recording and a forecast have no engine and no batches; the picture asks them what it asks a run."""
    plan = Plan([Agent("a", "x"), Agent("b", "{{ a }}")])
    player: Any = Player(plan.scenario("off_peak").record, Policy(), pace=1.0)
    status = LiveStatus(player, History(), Desk(plan))
    player.record.add(player._recorded.events[0])
    assert set(status.said()) <= {0, 1}
    assert 8 == status.around(0.0).cap


def test_several_providers_are_connected_by_their_names(magics, shell, capsys):
    """With a weight and a route; a connection without a name takes the place of all."""
    shell.user_ns["work"] = Claude(base_url="http://127.0.0.1:1", api_key="some-key")
    magics.agents("connect work --name work --weight 2")
    magics.agents("connect http://127.0.0.1:2 --name lab --route 'round robin'")
    assert "work, lab (round robin)" in capsys.readouterr().out
    endpoints = magics.session.shared.client.endpoints
    assert ({"work": 2.0, "lab": 1.0}, "round robin") == (endpoints.weights, endpoints.route)
    with pytest.raises(UsageError, match="come with --name"):
        magics.agents("connect api --weight 2")
    magics.agents("connect api")
    assert magics.session.shared.client.endpoints is None
