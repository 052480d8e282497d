"""`save` of an agent: which paths it takes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from agent_magic import Agent
from agent_magic.declare import Plan, plan_from_dict, plan_to_dict
from agent_magic.errors import DeclarationError

ROWS = {"rows": ["a", "../b"]}


def saved(*agents: Agent, **values: Any) -> dict[int, str]:
    """Return the paths of a plan."""
    return dict(Plan(agents, values=values).saves)


@pytest.mark.parametrize(
    ("path", "shown"), [("a.md", "a.md"), ("./out//a.md", "out/a.md"), ("{{ name }}.md", "x.md"), ("a b.md", "a b.md")]
)
def test_a_path_is_kept_in_its_shortest_form(path: str, shown: str):
    """Two ways to write one file are one file."""
    assert {0: shown} == saved(Agent("x", "p", save=path))


def test_a_path_takes_the_row():
    """Its item, its key, and the name of the agent."""
    agent = Agent("x", "{{ item }}", each="rows", save="{{ key }}/{{ name }}-{{ item | upper }}.md")
    assert {0: "0/x_0-A.md", 1: "1/x_1-B.md"} == saved(agent, rows=["a", "b"])


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("../a.md", "leads out of the folder"),
        ("/a.md", "leads out of the folder"),
        ("out/", "must be the name of a file"),
        (" ", "must be the name of a file"),
        ("{{ item }}.md", "a path takes {{ name }} only"),
        ("{{ topic }}.md", "uses {{ topic }}"),
    ],
)
def test_a_wrong_path_is_an_error_when_it_is_declared(path: str, message: str):
    """It says what is wrong with it."""
    with pytest.raises(DeclarationError, match=message):
        Agent("x", "p", save=path)


@pytest.mark.parametrize(
    ("path", "message"), [("out/{{ item }}.md", "leads out of the folder"), ("a.md", "x_0 and x_1 one file")]
)
def test_a_wrong_path_of_a_row_is_an_error_when_the_plan_is_frozen(path: str, message: str):
    """A row cannot lead out of the folder, and rows do not share a file."""
    with pytest.raises(DeclarationError, match=message):
        Plan([Agent("x", "{{ item }}", each="rows", save=path)], values={"rows": ["../../b", "c"]})


def test_a_plan_keeps_its_paths_as_json():
    """A recording shows what was saved where."""
    plan = Plan([Agent("x", "{{ item }}", each="rows", save="{{ item }}.md")], values={"rows": ["a", "b"]})
    assert plan.saves == plan_from_dict(plan_to_dict(plan), Plan).saves


@pytest.mark.parametrize("path", ["con.md", "out/NUL", "aux/a.md", "com1.tar.gz", "a?.md", "a. /b.md", "lpt9 .x"])
def test_windows_keeps_some_names_for_itself(path: str, monkeypatch: pytest.MonkeyPatch):
    """There they are refused, since what is written to a device is lost; elsewhere they are names like others."""
    assert {0: path} == saved(Agent("x", "p", save=path))
    monkeypatch.setattr("agent_magic.declare.resources.sys", SimpleNamespace(platform="win32"))
    with pytest.raises(DeclarationError, match="Windows takes no file named"):
        Agent("x", "p", save=path)


def test_names_that_only_look_like_devices_are_kept(monkeypatch: pytest.MonkeyPatch):
    """A longer word is no device."""
    monkeypatch.setattr("agent_magic.declare.resources.sys", SimpleNamespace(platform="win32"))
    for path in ("console.md", "null.txt", "out/com10.md", "a.con", "auxiliary/x.md"):
        assert {0: path} == saved(Agent("x", "p", save=path))


def test_rows_share_no_file_where_case_does_not_count(monkeypatch: pytest.MonkeyPatch):
    """`A.md` and `a.md` are one file on Windows and macOS, and two on Linux."""
    agent = Agent("x", "{{ item }}", each="rows", save="{{ item }}.md")
    monkeypatch.setattr("agent_magic.declare.resources.sys", SimpleNamespace(platform="linux"))
    assert {0: "A.md", 1: "a.md"} == saved(agent, rows=["A", "a"])
    monkeypatch.setattr("agent_magic.declare.resources.sys", SimpleNamespace(platform="darwin"))
    with pytest.raises(DeclarationError, match="one file"):
        saved(agent, rows=["A", "a"])
    with pytest.raises(DeclarationError, match="one file"):
        saved(agent, rows=["\N{LATIN SMALL LETTER E WITH ACUTE}", "e\N{COMBINING ACUTE ACCENT}"])
