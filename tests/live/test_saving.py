"""Files that a run writes: answers of agents with `save`, and what functions save by `am.save`."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import agent_magic as am
from agent_magic import Task
from agent_magic.api import Agent, Ledger, Plan, Run
from agent_magic.errors import AgentMagicError, DeclarationError
from agent_magic.live.saving import write_answer
from agent_magic.show.notes import edited_note
from tests.live.virtual import Reply, Scripted


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def client(text: str = "") -> Scripted:
    """Answer at once."""
    return Scripted(lambda prompt, _: Reply(0.0, source="live", text=text or f"said {prompt}"))


def run(*steps: Any, text: str = "", values: dict[str, Any] | None = None, **more: Any) -> Run:
    """Run steps."""
    return asyncio.run(Plan(list(steps), values=values or {}).run(client=client(text), **more))


def files(folder: Path) -> list[str]:
    """Return what is in a folder, at any depth."""
    return sorted(one.relative_to(folder).as_posix() for one in folder.rglob("*") if one.is_file())


# answers


def test_an_answer_is_written_where_it_succeeded(folder: Path):
    """The file has the text; the frame names it, and the record has its hash; its child sees the answer as ever."""
    done = run(Agent("a", "x", save="out/a.md"), Agent("b", "{{ a }}"))
    data = (folder / "out/a.md").read_bytes()
    assert b"said x\n" == data
    assert ["out/a.md"] == files(folder)
    assert [["out/a.md"], []] == list(done.agents["artifacts"])
    assert [hashlib.sha256(data).hexdigest()] == [one.sha256 for one in done["a"].calls[0].artifacts]
    assert ["save"] == list(done.tool_calls["tool"])
    assert "said said x" == done["b"].text
    assert "artifacts" not in run(Agent("a", "x")).agents


def test_a_typed_answer_is_written_as_json(folder: Path):
    """The value, without the object around it that the API wants."""
    run(Agent("a", "x", returns=list[int], save="a.json"), text='{"value": [1, 2]}')
    assert [1, 2] == json.loads((folder / "a.json").read_text())


def test_each_row_has_its_file(folder: Path):
    """The path takes the row's item."""
    rows = pd.DataFrame({"id": ["x", "y"]})
    run(Agent("a", "{{ item.id }}", each="rows", save="out/{{ item.id }}.md"), values={"rows": rows})
    assert ["out/x.md", "out/y.md"] == files(folder)


def test_an_answer_that_was_bought_before_is_written_again(folder: Path):
    """A file that is gone comes back with the run that reuses the answer."""
    ledger, agent = Ledger(":memory:"), Agent("a", "x", save="a.md")
    run(agent, ledger=ledger)
    (folder / "a.md").unlink()
    again = run(agent, ledger=ledger)
    ledger.close()
    assert "ledger" == again["a"].source
    assert ["a.md"] == files(folder)


def test_what_cannot_be_written_fails_its_agent(folder: Path):
    """The answer is kept, the error says why, an old file is unchanged, and children do not run."""
    (folder / "a.md").mkdir()
    done = run(Agent("a", "x", save="a.md"), Agent("b", "{{ a }}"))
    assert ["failed", "skipped"] == list(done.agents["status"])
    assert "was not saved: 'a.md' is a folder" in (done["a"].error or "")
    assert "said x" == done["a"].text


def test_a_link_does_not_lead_out_of_the_folder(folder: Path, tmp_path_factory: pytest.TempPathFactory):
    """What a path looks like is checked when it is declared, where it leads when it is written."""
    outside = tmp_path_factory.mktemp("outside")
    (folder / "out").symlink_to(outside)
    done = run(Agent("a", "x", save="out/a.md"))
    assert "leads out of the project" in (done["a"].error or "")
    assert [] == files(outside)


def test_an_answer_that_a_person_has_edited_is_written_as_edited(folder: Path):
    """The nod comes first."""

    async def edits(_: Any) -> am.Verdict:
        return am.Verdict(approved=True, text="mine")

    done = run(Agent("a", "x", ask=True, save="a.md"), Agent("b", "{{ a }}"), ask=edits)
    assert "mine\n" == (folder / "a.md").read_text()
    assert ["mine", "said mine"] == [done["a"].text, done["b"].text]


def test_two_writers_of_a_file_run_one_after_the_other():
    """`save` is a write: the plan names the two, and does not let them meet."""
    plan = Plan([Agent("a", "x", save="out.md"), Agent("b", "y", save="./out.md")])
    assert "a and b both change or use out.md" in plan.notes[0]
    with pytest.raises(AgentMagicError, match="neither waits"):
        Plan(plan.agents, on_conflict="error")


def test_a_replay_writes_nothing(folder: Path):
    """It has the names."""
    done = run(Agent("a", "x", save="a.md"))
    done.save("run.jsonl")
    (folder / "a.md").unlink()
    again = Plan([Agent("a", "x", save="a.md")]).replay("run.jsonl")
    assert [["a.md"]] == list(again.agents["artifacts"])
    assert ["run.jsonl"] == files(folder)


# what functions save


def test_a_task_names_what_it_saves(folder: Path):
    """In a thread, on the loop, and where it fails afterwards; the last two are still named."""

    def table() -> str:
        am.save("table.csv", pd.DataFrame({"n": [1, 2]}))
        return am.save("sub/../note.txt", "hello")

    async def later() -> None:
        am.save("later.json", {"a": [1]})

    def breaks() -> None:
        am.save("half.bin", b"\x00")
        raise ValueError("no")

    done = run(Task("table", table), Task("later", later), Task("breaks", breaks))
    assert [["table.csv", "note.txt"], ["later.json"], ["half.bin"]] == list(done.agents["artifacts"])
    assert "note.txt" == done["table"].value
    assert "n\n1\n2\n" == (folder / "table.csv").read_text()
    assert {"a": [1]} == json.loads((folder / "later.json").read_text())


def test_a_function_can_be_tried_in_a_cell(folder: Path):
    """Outside a run the file is only written."""
    assert "a.txt" == am.save("a.txt", "x")
    assert "x" == (folder / "a.txt").read_text()


@pytest.mark.parametrize("name", ["../a.txt", "/tmp/a.txt", "~/a.txt", "C:\\a.txt", "", ".", "a/", "a/../../b.txt"])
def test_a_name_outside_the_folder_is_refused(folder: Path, name: str):
    """Nothing is written."""
    with pytest.raises(AgentMagicError):
        am.save(name, "x")
    assert [] == files(folder)


def test_a_value_without_that_form_says_what_is_possible():
    """The error names the value's type and the ending."""
    with pytest.raises(AgentMagicError, match=r"cannot write DataFrame as \.docx"):
        am.save("a.docx", pd.DataFrame())


def test_a_figure_is_drawn_as_its_ending_says(folder: Path):
    """PNG and SVG of matplotlib."""
    figure = pytest.importorskip("matplotlib.figure").Figure()
    figure.subplots().plot([1, 2])
    am.save("a.png", figure)
    am.save("a.svg", figure)
    assert b"\x89PNG" == (folder / "a.png").read_bytes()[:4]
    assert "<svg" in (folder / "a.svg").read_text()


def test_what_a_person_has_changed_by_hand_is_said(folder: Path):
    """The same answer leaves it as it is; a new one is written over it; what nobody has touched is not written."""
    ledger, place = Ledger(folder / "ledger.sqlite3"), folder / "a.md"

    def again(prompt: str) -> str:
        return edited_note(run(Agent("a", prompt, save="a.md"), ledger=ledger).record)

    assert ("", "said x\n") == (again("x"), place.read_text())
    before = place.stat().st_mtime_ns
    assert ("", before) == (again("x"), place.stat().st_mtime_ns)
    place.write_text("mine\n")
    for _ in range(2):
        assert "a.md was changed by hand, and the answer is the one that was written before" in again("x")
        assert "mine\n" == place.read_text()
    assert "a.md was changed by hand, and a new answer was written over that." == again("y")
    assert ("", "said x\n") == (again("x"), place.read_text())
    ledger.close()


@pytest.mark.parametrize(
    ("save", "item"),
    [
        ("{{ item }}", ".ipython/profile_default/startup/x.txt"),
        ("out/{{ item }}", ".hidden"),
        ("out/{{ item }}.md", ".git/config"),
        ("out/{{ item }}.md", "../.git/config"),
        ("{{ item }}", "book.ipynb"),
        ("{{ item }}", "Book.IPYNB"),
        ("{{ item }}", "pandas.py"),
        ("{{ item }}", "pandas.py. "),
        ("lib/{{ item }}", "x.so"),
        ("{{ item }}", "x.py:stream"),
        ("{{ item }}.json", "jupyter_server_config"),
        ("{{ item }}.JSON", "Jupyter_Config"),
        ("lib/{{ item }}.py", "sitecustomize"),
    ],
)
def test_an_item_names_nothing_hidden_and_no_code(save: str, item: str):
    """It may be anybody's text; nothing has been sent then."""
    with pytest.raises(DeclarationError, match="an item must not name"):
        Plan([Agent("a", "Go {{ item }}", each="rows", save=save)], {"rows": [item]})


@pytest.mark.parametrize("save", [".notes/{{ key }}.md", ".notes/deep/{{ item }}.md", "book.ipynb", ".env", "tool.py"])
def test_the_declaration_itself_may_name_it(save: str):
    """What the user has written is meant."""
    rows = {"rows": ["x"]}
    each: dict[str, Any] = {"each": "rows"} if "{{" in save else {}
    assert Plan([Agent("a", "Go {{ item }}" if each else "Go", save=save, **each)], rows if each else {}).saves


def test_an_answer_replaces_no_code_that_an_item_leads_to(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """Not a file that was there, and not what is imported; its own answer of before it does."""
    monkeypatch.syspath_prepend(folder)
    (folder / "mine.py").write_text("x = 1\n")
    for name in ("mine.py", "json.py", "pandas.py"):
        with pytest.raises(AgentMagicError, match=r"is there, and is no answer|would be imported in place of"):
            write_answer(name, b"y = 2\n", None, named=False)
    assert "x = 1\n" == (folder / "mine.py").read_text()
    first = write_answer("quite_new_name.py", b"one\n", None, named=False)
    assert write_answer("quite_new_name.py", b"two\n", first.file.sha256, named=False).is_answer
    assert write_answer("mine.py", b"y = 2\n", None).is_answer, "the declaration names it"


def test_a_link_to_a_hidden_folder_is_refused(folder: Path):
    """Where an item goes through it."""
    (folder / ".secret").mkdir()
    (folder / "open").symlink_to(folder / ".secret")
    with pytest.raises(AgentMagicError, match="which is hidden"):
        write_answer("open/x.md", b"x", None, named=False)


def test_a_link_to_code_is_code(folder: Path):
    """Whatever the link is called."""
    (folder / "book.ipynb").write_text("{}")
    (folder / "open.md").symlink_to(folder / "book.ipynb")
    with pytest.raises(AgentMagicError, match="is there, and is no answer of before"):
        write_answer("open.md", b"x", None, named=False)
    assert "{}" == (folder / "book.ipynb").read_text()


@pytest.mark.parametrize("name", ["x" * 256, "\u00e9" * 128, f"a/{'y' * 300}/b.md"], ids=["long", "bytes", "folder"])
def test_a_name_that_no_file_can_have_is_refused_before_anything_is_sent(name: str):
    """An answer that is paid for would have no place."""
    for save, rows in (("{{ item }}", [name]), (name, [])):
        each: dict[str, Any] = {"each": "rows"} if rows else {}
        with pytest.raises(DeclarationError, match="no file can be called") as caught:
            Plan([Agent("a", "Go", save=save, **each)], {"rows": rows} if rows else {})
        assert len(str(caught.value)) < 300
