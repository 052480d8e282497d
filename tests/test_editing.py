"""An answer of the user's in place of a model's: what depends on it is asked again, and nothing else."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agent_magic as am
from agent_magic.errors import DeclarationError, UnknownAgent
from tests.live.virtual import Reply, Scripted

CHAIN = [
    am.Agent("facts", "facts?"),
    am.Agent("writer", "write of {{ facts }}"),
    am.Agent("editor", "shorten {{ writer }}"),
    am.Agent("other", "another thing of {{ facts }}"),
]


def session_of(script: Any = lambda prompt, _: Reply(0.0, text=f"said to <{prompt}>"), ledger: str = ":memory:") -> Any:
    """A session whose answers tell what was asked."""
    return am.Session(client=Scripted(script), ledger=am.Ledger(ledger))


def run(plan: am.Plan, session: Any, **more: Any) -> am.Run:
    """Run a plan, and forget what was asked before."""
    session.client.asked.clear()
    return asyncio.run(plan.run(session=session, **more))


def asked(session: Any) -> list[str]:
    """The prompts of the last run."""
    return [one.prompt for one in session.client.asked]


def test_what_depends_on_an_edited_answer_is_asked_again_and_nothing_else():
    """The model's answer is kept beside, the edit costs nothing, and undoing it needs no request."""
    session, plan = session_of(), am.Plan(CHAIN)
    first = run(plan, session)
    assert ["editor"] == first.edit("writer", "my words")
    second = run(plan, session)
    assert ["shorten my words"] == asked(session)
    assert ["ledger", "edited", "live", "ledger"] == [*second.agents["source"]]
    assert ("my words", first["writer"].text) == (second["writer"].text, second["writer"].original)
    assert 0.0 == second["writer"].cost_usd
    third = run(plan, session)
    assert [] == asked(session)
    third.unedit("writer")
    last = run(plan, session)
    assert ([], None) == (asked(session), last["writer"].original)
    assert [one.text for one in first.record.results] == [one.text for one in last.record.results]


def test_an_edit_holds_until_its_agent_is_asked_something_else():
    """A prompt that changed is another question, and `fresh` asks all but what was edited."""
    session, plan = session_of(), am.Plan(CHAIN)
    run(plan, session).edit("writer", "my words")
    run(plan, session, fresh=True)
    fresh = {"facts?", "another thing of said to <facts?>", "shorten my words"}
    assert fresh == {*asked(session)}
    changed = am.Plan([CHAIN[0], am.Agent("writer", "write better of {{ facts }}"), *CHAIN[2:]])
    assert "live" == run(changed, session)["writer"].source


def test_without_a_ledger_an_edit_counts_in_a_run_that_goes_on():
    """`resume` takes the rest over."""
    session = am.Session(client=Scripted(lambda prompt, _: Reply(0.0, text=f"said to <{prompt}>")))
    plan = am.Plan(CHAIN)
    first = run(plan, session)
    first.edit("writer", "my words")
    second = run(plan, session, resume=first)
    assert ["shorten my words"] == asked(session)
    assert "edited" == second["writer"].source


@dataclass
class Label:
    """A typed answer."""

    mood: str
    score: int


def test_an_edit_fits_the_type_and_the_check():
    """A value is written as JSON; what does not fit is refused with the reason, and nothing changes."""

    def low(label: Label) -> str | None:
        return None if label.score < 10 else "score too high"

    labelled = Reply(0.0, text='{"mood": "good", "score": 3}')
    session = session_of(lambda *_: labelled)
    plan = am.Plan([am.Agent("label", "label it", returns=Label, check=low), am.Agent("use", "use {{ label.mood }}")])
    first = run(plan, session)
    for wrong, why in (
        ("no JSON", "JSON"),
        ('{"mood": "good"}', "score"),
        (Label("bad", 10), "too high"),
        (" ", "empty"),
    ):
        with pytest.raises(DeclarationError, match=why):
            first.edit("label", wrong)
    first.edit("label", Label("bad", 1))
    assert Label("bad", 1) == run(plan, session)["label"].value
    assert ["use bad"] == asked(session)


def test_an_edit_that_fits_no_more_fails_and_buys_nothing():
    """The check may have changed since: no model is asked to mend what the user wrote."""
    session = session_of()
    run(am.Plan(CHAIN), session).edit("writer", "my words")
    strict = am.Agent("writer", "write of {{ facts }}", check=lambda text: "too short" if len(text) < 20 else None)
    found = run(am.Plan([CHAIN[0], strict, *CHAIN[2:]]), session)
    assert ("failed", []) == (found["writer"].status, asked(session))
    assert "the edited answer does not fit" in (found["writer"].error or "")


def test_an_unsure_answer_that_was_edited_is_not_escalated():
    """The user has decided: the dearer model of the cascade is not asked."""
    session = session_of(lambda prompt, number: Reply(0.0, text=f"sure {number}"))
    cascade = am.Agent("q", "ask", cascade="claude-haiku-5-5,claude-sonnet-5-5", escalate="'maybe' in answer")
    first = run(am.Plan([cascade]), session)
    first.edit("q", "maybe")
    assert "maybe" == run(am.Plan([cascade]), session)["q"].text
    assert [] == asked(session)


def test_what_cannot_be_edited_says_what_to_do():
    """A group has many answers, a task none of a model's, and an agent that was not asked none at all."""
    session = session_of()

    def shout(writer: str) -> str:
        return writer.upper()

    steps = [am.Agent("row", "{{ item }}", each="rows"), am.Agent("writer", "x"), am.task(shout)]
    skipped = am.Agent("never", "y", when="'zzz' in writer")
    found = run(am.Plan([*steps, skipped], {"rows": ["a", "b"]}), session)
    for name, why in (("row", "Name one, such as row_0"), ("shout", "function"), ("never", "was not asked")):
        with pytest.raises(DeclarationError, match=why):
            found.edit(name, "text")
    with pytest.raises(UnknownAgent):
        found.edit("writr", "text")
    assert [] == found.edit("row_1", "text")


def test_another_notebook_and_another_agent_keep_the_models_answer(tmp_path):
    """An edit belongs to one agent of one notebook, whatever asks the same elsewhere."""
    for name in ("one", "two"):
        (tmp_path / f"{name}.ipynb").touch()
    path, plan = str(tmp_path / "ledger.sqlite3"), am.Plan([am.Agent("a", "same"), am.Agent("b", "same")])
    mine = session_of(ledger=path)
    mine.ledger.home = str(tmp_path / "one.ipynb")
    run(plan, mine).edit("a", "my words")
    assert ["my words", "said to <same>"] == [one.text for one in run(plan, mine).record.results]
    theirs = session_of(ledger=path)
    theirs.ledger.home = str(tmp_path / "two.ipynb")
    assert ["said to <same>"] * 2 == [one.text for one in run(plan, theirs).record.results]
    later = session_of(ledger=path)
    later.ledger.home = str(tmp_path / "one.ipynb")
    assert "edited" == run(plan, later)["a"].source


def test_an_edit_of_a_run_in_memory_does_not_enter_the_ledger_of_another():
    """It counts in the run that continues it, and in no later one."""
    plan, kept = am.Plan(CHAIN), session_of()
    first = run(plan, am.Session(client=kept.client))
    first.edit("writer", "my words")
    assert "my words" == run(plan, kept, resume=first)["writer"].text
    assert {} == kept.ledger.edits.read()
    assert "my words" != run(plan, kept)["writer"].text


def test_a_renamed_notebook_keeps_its_edits(tmp_path):
    """Its next kernel has another home. A copy beside the original has none of them, until that is gone."""
    plan, old, new = am.Plan(CHAIN), tmp_path / "Untitled.ipynb", tmp_path / "bees.ipynb"
    old.touch()

    def session_at(home: Any) -> Any:
        session = session_of(ledger=str(tmp_path / "ledger.sqlite3"))
        session.ledger.home = str(home)
        return session

    run(plan, session_at(old)).edit("writer", "my words")
    new.write_bytes(old.read_bytes())
    assert "ledger" == run(plan, session_at(new))["writer"].source
    old.unlink()
    assert "my words" == run(plan, session_at(new))["writer"].text
    old.touch()  # another notebook of the old name takes nothing away
    assert "my words" == run(plan, session_at(new))["writer"].text
    old.unlink()
    assert "ledger" == run(plan, session_at(f"{tmp_path}/"))["facts"].source
    again = session_at(new)
    run(plan, again).edit("writer", "newer words")
    assert "newer words" == run(plan, session_at(new))["writer"].text
    changed = am.Plan([CHAIN[0], am.Agent("writer", "write better of {{ facts }}"), *CHAIN[2:]])
    assert "live" == run(changed, session_at(new))["writer"].source
    run(plan, again).unedit("writer")
    assert "ledger" == run(plan, session_at(new))["writer"].source
    assert "ledger" == run(plan, session_at(tmp_path / "third.ipynb"))["writer"].source


def test_a_recording_knows_what_was_edited(tmp_path):
    """A replay has the user's text, marked, and what the model had answered."""
    session, plan = session_of(), am.Plan(CHAIN)
    run(plan, session).edit("writer", "my words")
    second = run(plan, session)
    second.save(tmp_path / "edited.cassette.jsonl")
    again = asyncio.run(plan.play(tmp_path / "edited.cassette.jsonl", session=session))
    assert ("edited", "my words") == (again["writer"].source, again["writer"].text)
    assert second["writer"].original == again["writer"].original
    opened = session.ledger.open(2)
    assert ("edited", second["writer"].original) == (opened["writer"].source, opened["writer"].original)
    assert {1, 2} <= {*second.whatif(concurrency=[1, 2])["concurrency"]}


@settings(max_examples=40)
@given(st.data())
def test_an_edit_changes_its_descendants_alone(data):
    """Whatever the graph and whoever is edited."""
    size = data.draw(st.integers(2, 7))
    parents = [
        data.draw(st.sets(st.integers(0, number - 1), max_size=3)) if number else set() for number in range(size)
    ]
    steps = [
        am.Agent(f"a{number}", f"{number}: " + " ".join(f"{{{{ a{one} }}}}" for one in sorted(before)))
        for number, before in enumerate([set[int](), *parents])
    ]
    session, plan = session_of(), am.Plan(steps)
    first, edited = run(plan, session), data.draw(st.integers(0, size - 1))
    told = first.edit(f"a{edited}", "my words")
    second = run(plan, session)
    again = {f"a{one}" for one in plan.dag.descendants([edited])}
    assert again == {*told} == {*second.agents[second.agents["source"] == "live"]["agent"]}
    assert len(again) == len(asked(session))
