"""Plans without a model, and how much of a plan is concurrent."""

# Tests hand over wrong types on purpose.
# pyright: reportArgumentType=false

from __future__ import annotations

import asyncio
import math
from pathlib import Path

import pytest

import agent_magic as am
from agent_magic.errors import PlanError, RunFailed
from agent_magic.simulator import child
from tests.declare.examples import E2


def test_a_plan_by_file(tmp_path):
    """An agent for each file, its path and text, and one that joins them. A folder is its files."""
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text(f"# {name}", encoding="utf-8")
    plan = am.decompose.by_file(tmp_path, prompt="Review.", role="critic")
    assert (("file_0", "file_1"), ("joined",)) == plan.layers
    assert f"Review.\n\n{tmp_path / 'b.py'}\n\n# b.py" == plan.prompt("file_1", {})
    assert plan.names == am.decompose.by_file([tmp_path / "a.py", str(tmp_path / "b.py")]).names
    assert "    files = ...  # the items\n\n## file (critic) --each files\nReview." in plan.to_cell()


def test_a_folder_is_its_text_files(tmp_path):
    """Of any language and none, in folders too; what is no text or hidden stays out, unless it is named."""
    for name in ("app.js", "README", "deep/er/größe.css", ".env", ".git/config", "__pycache__/a.pyc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("text", encoding="utf-8")
    (tmp_path / "logo.png").write_bytes(b"\x89PNG\x00\xff")
    (tmp_path / "nul.bin").write_bytes(b"a\x00b")

    def files(path):
        return [one.part.key for one in am.decompose.by_file(path).agents if one.part is not None]

    assert ["README", "app.js", "größe.css"] == [Path(one).name for one in files(tmp_path)]
    assert [str(tmp_path / ".env")] == files(tmp_path / ".env")
    with pytest.raises(PlanError, match="cannot be read as text"):
        am.decompose.by_file(tmp_path / "logo.png")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(PlanError, match="No files"):
        am.decompose.by_file(empty)


def test_a_plan_by_feature():
    """Features work at once; the gate waits for all and takes their answers."""
    plan = am.decompose.by_feature({"search": "Find things.", "Chat & calls": "Talk."}, qa="Check.")
    assert (("search", "chat_calls"), ("qa",)) == plan.layers
    assert "Design this feature.\n\nFind things." == plan.prompt("search", {})
    assert "Check.\n\n1\n\n2" == plan.prompt("qa", {"search": "1", "chat_calls": "2"})


def test_a_plan_by_layer():
    """Layers work at once; their goal is a value of the plan."""
    plan = am.decompose.by_layer("a shop")
    assert (("api", "ui", "tests", "docs"), ("integration",)) == plan.layers
    assert "Goal: a shop\nLayer: ui" in plan.prompt("ui", {})
    assert "Define them first, in a cell above:\n    goal = 'a shop'\n\n## api" in plan.to_cell()
    long = am.decompose.by_layer("x" * 300).to_cell()
    assert "\n    globals().update(plan.values)  # of this plan, in a variable plan: goal\n" in long


def test_phases_overlap():
    """A part waits for its own earlier phase, and for no other part."""
    plan = am.decompose.by_phase(["x", "y"])
    assert ("implement_x",) == plan.parents("validate_x")
    assert 6 == len(plan)
    assert 3 == plan.depth
    assert 0.5 == am.decompose.analyse(plan).score
    assert am.decompose.__all__ == dir(am.decompose)
    chain = [am.Agent("a", "x"), *(am.Agent(new, "x", after=old) for old, new in ("ab", "bc", "cd"))]
    assert 0.2 == am.decompose.analyse(am.Plan([*chain, am.Agent("e", "x")])).score


PACKAGE = {
    "shop/__init__.py": "",
    "shop/base.py": "import os",
    "shop/sales.py": "from shop.base import x\nfrom . import stock",
    "shop/stock.py": "import shop.sales",
    "shop/web/__init__.py": "from ..sales import y",
    "shop/web/set.py": "from shop import web, base",
}


def test_a_plan_by_module(tmp_path):
    """A module waits for those it imports; those that import each other are one; names of the templates are avoided."""
    for path, text in PACKAGE.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    plan = am.decompose.by_module(tmp_path / "shop")
    assert ("base",) == plan.parents("sales_and_stock")
    assert ("sales_and_stock",) == plan.parents("web")
    assert {"web", "base"} == {*plan.parents("web_set")}
    assert "# sales\nfrom shop.base import x" in plan.prompt("sales_and_stock", {"base": "fine"})
    asked = am.decompose.by_module(tmp_path / "shop", prompt="Review {{ source }}, please.")
    said = {"base": "fine", "sales_and_stock": "good"}
    assert asked.prompt("web", said).startswith("Review # web\nfrom ..sales import y, please.\n\nOn sales_and_stock")
    (tmp_path / "shop" / "bad.py").write_text("def", encoding="utf-8")
    with pytest.raises(PlanError, match="Module 'bad' is not valid Python"):
        am.decompose.by_module(tmp_path / "shop")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: am.decompose.by_file([]), "the list is empty"),
        (lambda: am.decompose.by_file("nowhere.py"), "'nowhere.py' cannot be read"),
        (lambda: am.decompose.by_feature([]), "features must be a list of at least one name"),
        (lambda: am.decompose.analyse("\n"), "no steps"),
        (lambda: am.decompose.analyse(3), "must be a text or a Plan"),
    ],
)
def test_what_cannot_be_split_is_refused(make, message):
    """The message names what is wrong."""
    with pytest.raises(PlanError, match=message):
        make()


def test_a_text_is_analysed_by_its_lines():
    """A step that begins with then waits for all before it."""
    found = am.decompose.analyse("- read a\n- read b\n3. then compare them")
    assert ("step_1", "step_2") == found.independent
    assert ("step_3",) == found.sequential
    assert 1 / 3 == found.score


@pytest.mark.parametrize("text", ["Compare Python, Rust and Go", "1. one item alone", "\n\n  - x  \n"])
def test_a_text_of_one_line_is_not_split(text):
    """Nobody knows its parts: that is no score of 0, which would say that nothing is to gain."""
    found = am.decompose.analyse(text)
    assert math.isnan(found.score)
    assert "Not split" in found.note
    assert ("", 0.5) == ((two := am.decompose.analyse(f"{text.strip()}\nand another")).note, two.score)
    one = am.decompose.analyse(am.Plan([am.Agent("a", "x")]))
    assert (0.0, "") == (one.score, one.note)


def test_a_plan_is_analysed_by_its_critical_path():
    """`score` is 1 minus the critical path over the work; shared is what several steps use."""
    found = am.decompose.analyse(am.Plan(E2.plan.agents))
    assert 5 / 9 == found.score
    plan = am.Plan(
        [am.Agent("a", "{{ t }}", writes="out"), am.Agent("b", "{{ t }}", uses_resources="out", after="a")], {"t": "x"}
    )
    assert {"out": ("a", "b"), "t": ("a", "b")} == am.decompose.analyse(plan).shared
    assert 0.0 == am.decompose.analyse(plan, {"a": 2, "b": 3}).score


@pytest.fixture(scope="module")
def server():
    """A mock server without delays."""
    with child.start(latency="none", unlimited=True) as simulator:
        yield simulator


def client(server):
    """A client of it."""
    return am.Claude(base_url=server.url, api_key="any")


def test_a_plan_for_a_goal(server):
    """Without a notebook: the coordinator is asked, and the plan comes back; it runs like any other."""
    goal = "Compare Python and Rust for {{ topic }}"
    plan = asyncio.run(am.plan_for(goal, {"topic": "tools"}, agents=4, client=client(server)))
    assert (("python", "rust"), ("comparison",), ("result",)) == plan.layers
    assert asyncio.run(plan.run(client=client(server))).ok


def test_a_goal_without_a_plan_raises(server):
    """What failed is in the error."""
    with pytest.raises(RunFailed, match="coordinator"):
        asyncio.run(am.plan_for("x [[stop:refusal]]", client=client(server)))
