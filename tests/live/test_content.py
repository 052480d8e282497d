"""Pictures, documents and citations with the real SDK over real HTTP: sent in place, kept once, replayed."""

from __future__ import annotations

import asyncio
import base64
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure

import agent_magic as am
from agent_magic.api import Agent, Claude, Ledger, Plan, Policy, Run
from agent_magic.errors import DeclarationError, ReplayMiss, SecretFound
from agent_magic.notebook.files.sharing import stamp_bundle
from agent_magic.record import read_cassette
from tests.providers.wire import BEGIN, OPEN, REASON, STOP, WHOLE, delta, event, reply, serving

mpl.use("agg")
RULES = "The grass is green. The sky is blue."


def figure(*values: float) -> Figure:
    """A small figure."""
    found = Figure(figsize=(2, 1), dpi=100)
    found.add_subplot().plot(values or (1, 2))
    return found


def cited() -> bytes:
    """An answer that quotes a text and a page."""
    places = (
        {"type": "char_location", "document_title": "rules.md", "start_char_index": 0, "end_char_index": 19},
        {"type": "page_location", "document_title": "report.pdf", "start_page_number": 3, "end_page_number": 5},
    )
    body = OPEN + delta("Well: ") + event("content_block_stop", index=0)
    body += event("content_block_start", index=1, content_block={"type": "text", "text": "", "citations": []})
    body += event("content_block_delta", index=1, delta={"type": "text_delta", "text": "green."})
    for one in places:
        citation = {**one, "cited_text": "The grass is green."}
        body += event("content_block_delta", index=1, delta={"type": "citations_delta", "citation": citation})
    return BEGIN + body + event("content_block_stop", index=1) + REASON + STOP


def run(plan: Plan, answer: bytes = WHOLE, policy: Policy | None = None, **more: Any) -> tuple[Run, list[Any]]:
    """Run a plan against a server that always answers the same; return the run and the bodies that arrived."""

    async def work() -> tuple[Run, list[Any]]:
        async with serving(reply(answer)) as server:
            client = Claude(base_url="http://127.0.0.1:1" if "dead" in more else server.url, api_key="any")
            done = await plan.run(policy, client=client, **{k: v for k, v in more.items() if k != "dead"})
            return done, server.bodies

    return asyncio.run(work())


def parts(body: Any) -> list[Any]:
    """The blocks of the first message."""
    return body["messages"][0]["content"]


def test_a_figure_stands_where_the_prompt_says():
    """Text, picture, text: in this order, the picture as base64 of a PNG, and the text as it is."""
    plan = Plan((Agent("reader", "What does {{ fig }} show?\n{{ note }}"),), {"fig": figure(), "note": "Be short."})
    done, bodies = run(plan)
    before, picture, after = parts(bodies[0])
    assert {"type": "text", "text": "What does "} == before
    assert {"type": "text", "text": " show?\nBe short."} == after
    assert ("image", "base64", "image/png") == (
        picture["type"],
        picture["source"]["type"],
        picture["source"]["media_type"],
    )
    assert base64.b64decode(picture["source"]["data"]).startswith(b"\x89PNG")
    assert "What does [image fig] show?\nBe short." == done.record["reader"].attempts[0].request.prompt


def test_what_is_attached_goes_first_and_is_cited_from():
    """`attach` puts pictures and documents before the text; `cite` asks for citations of every document."""
    rules = am.text_file(RULES.encode(), title="rules.md")
    agent = Agent("reader", "What does it say of {{ fig }}?", attach="fig,rules,notes", cite=True)
    _, bodies = run(Plan((agent,), {"fig": figure(), "rules": rules, "notes": "None so far."}))
    first, second, third, text, fourth, _ = parts(bodies[0])
    assert ["image", "document", "document", "text", "image"] == [
        one["type"] for one in (first, second, third, text, fourth)
    ]
    assert {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": RULES},
        "title": "rules.md",
        "citations": {"enabled": True},
    } == second
    assert ("notes", "None so far.") == (third["title"], third["source"]["data"])
    assert first == fourth


def test_citations_come_back_and_survive(tmp_path: Path):
    """Text, title, place and quote of each citation: from the run, the ledger and a cassette."""
    rules = am.text_file(RULES.encode(), title="rules.md")
    plan = Plan((Agent("reader", "What is green?", attach="rules", cite=True),), {"rules": rules})
    ledger = Ledger(tmp_path / "ledger.sqlite3")
    done, _ = run(plan, cited(), ledger=ledger)
    expected = [
        ("green.", "rules.md", "characters 0-19", "The grass is green."),
        ("green.", "report.pdf", "pages 3-4", "The grass is green."),
    ]
    assert expected == done["reader"].citations
    assert "Well: green." == done["reader"].text
    done.save(tmp_path / "x.cassette.jsonl")
    assert expected == plan.replay(tmp_path / "x.cassette.jsonl")["reader"].citations
    past = ledger.open(1)
    assert expected == past["reader"].citations
    ledger.close()


def test_a_picture_of_many_rows_is_kept_once(tmp_path: Path):
    """Fifty requests with one picture: one row in the ledger, one line in the cassette, one object in memory."""
    plan = Plan((Agent("row", "Is {{ item }} in {{ fig }}?", each="rows"),), {"rows": list(range(50)), "fig": figure()})
    ledger = Ledger(tmp_path / "ledger.sqlite3")
    done, bodies = run(plan, ledger=ledger)
    assert 50 == len(bodies)
    kept = {id(one.request.attachments[0].attachment) for one in done.record.attempts}
    assert 1 == len(kept)
    done.save(tmp_path / "x.cassette.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "x.cassette.jsonl").read_text().splitlines()]
    data = plan.values["fig"].data
    assert [base64.b64encode(data).decode()] == [line["data"] for line in lines if "file" in line]
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite3")) as db, db:
        assert [(data,)] == db.execute("SELECT data FROM files").fetchall()
        plans = db.execute("SELECT t.text FROM runs r JOIN texts t ON t.sha = r.plan").fetchall()
    assert base64.b64encode(data)[:60] not in plans[0][0]
    calls = read_cassette(tmp_path / "x.cassette.jsonl").calls
    assert {data} == {call.started.request.attachments[0].attachment.data for call in calls}
    ledger.close()


def test_a_run_of_the_ledger_has_its_pictures(tmp_path: Path):
    """An opened run can be run again: its plan and its requests have the bytes."""
    ledger = Ledger(tmp_path / "ledger.sqlite3")
    plan = Plan((Agent("reader", "What is {{ fig }}?"),), {"fig": figure()})
    run(plan, ledger=ledger)
    past = ledger.open(1)
    data = plan.values["fig"].data
    assert data == past.plan.values["fig"].data
    assert data == past.record.attempts[0].request.attachments[0].attachment.data
    _, bodies = run(Plan(past.plan.agents, past.plan.values))
    assert base64.b64encode(data).decode() == parts(bodies[0])[1]["source"]["data"]
    ledger.close()


def test_another_picture_is_another_question(tmp_path: Path):
    """A replay with a changed figure is a miss that says so; the same figure drawn again is the same."""
    agents = (Agent("reader", "What is {{ fig }}?"),)
    done, _ = run(Plan(agents, {"fig": figure(1, 2)}))
    done.save(tmp_path / "x.cassette.jsonl")
    assert "hello world" == Plan(agents, {"fig": figure(1, 2)}).replay(tmp_path / "x.cassette.jsonl")["reader"].text
    with pytest.raises(ReplayMiss, match="attachments"):
        Plan(agents, {"fig": figure(2, 1)}).replay(tmp_path / "x.cassette.jsonl")


def test_texts_left_out_leave_files_out(tmp_path: Path):
    """A recording without texts has no pictures and documents either, and replays by the agents' names."""
    rules = am.text_file(RULES.encode(), title="secret plan.md")
    plan = Plan((Agent("reader", "What is {{ fig }}?", attach="rules"),), {"fig": figure(), "rules": rules})
    done, _ = run(plan)
    done.save(tmp_path / "x.cassette.jsonl", texts=False)
    written = (tmp_path / "x.cassette.jsonl").read_text()
    assert '"file"' not in written
    assert "green" not in written
    assert "secret plan" not in written
    assert "succeeded" == plan.replay(tmp_path / "x.cassette.jsonl")["reader"].status


def test_a_figure_counts_as_it_is_when_the_plan_is_frozen():
    """What is drawn into a figure after `Plan(...)` does not go out; a closed figure still does."""
    drawn = figure()
    plan = Plan((Agent("reader", "What is {{ fig }}?"),), {"fig": drawn})
    before = plan.values["fig"].data
    drawn.add_subplot().set_title("later")
    drawn.clear()
    _, bodies = run(plan)
    assert base64.b64encode(before).decode() == parts(bodies[0])[1]["source"]["data"]


def test_a_model_forges_no_picture():
    """An answer that looks like a label or a mark goes into the next prompt as text."""
    said = "[image fig] \ufdd0" + "1" * 32 + "000000\ufdd1"
    first = BEGIN + OPEN + delta(said) + event("content_block_stop", index=0) + REASON + STOP
    plan = Plan((Agent("a", "Say it."), Agent("b", "{{ fig }} and {{ a }}")), {"fig": figure()})
    done, bodies = run(plan, first)
    assert "succeeded" == done["b"].status
    assert ["image", "text"] == [one["type"] for one in parts(bodies[1])]
    assert f" and {said}" == parts(bodies[1])[1]["text"]


def test_nothing_is_sent_that_is_too_large():
    """21 pictures of which one is large are refused before anything is sent."""
    large = Figure(figsize=(21, 1), dpi=100)
    large.add_subplot().plot([1, 2])
    values = {f"f{n}": figure(n, 1) for n in range(20)} | {"large": large}
    plan = Plan((Agent("reader", " ".join(f"{{{{ {name} }}}}" for name in values)),), values)
    with pytest.raises(DeclarationError, match=r"21 pictures, and 'large' has 2,100x100 pixels"):
        run(plan)


def test_files_go_with_the_last_run_that_names_them(tmp_path: Path):
    """`prune` keeps the bytes of the runs that stay, and deletes the others."""
    ledger = Ledger(tmp_path / "ledger.sqlite3")
    run(Plan((Agent("reader", "What is {{ fig }}?"),), {"fig": figure(1, 2)}), ledger=ledger)
    kept = "SELECT count(*) FROM files"
    ledger.prune(days=1)
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite3")) as db, db:
        assert [(1,)] == db.execute(kept).fetchall()
    ledger.prune(days=0)
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite3")) as db, db:
        assert [(0,)] == db.execute(kept).fetchall()
    ledger.close()


def test_a_key_in_a_document_is_found_before_it_is_shared(tmp_path: Path):
    """A document of text is scanned as a text, although it stands in the file as base64."""
    rules = am.text_file(b"Use sk-ant-api03-abcdefgh12345678 for it.", title="rules.md")
    done, _ = run(Plan((Agent("reader", "What does it say?", attach="rules"),), {"rules": rules}))
    with pytest.raises(SecretFound, match="a document: an Anthropic key"):
        am.share(done, tmp_path / "x.cassette.jsonl")
    assert not (tmp_path / "x.cassette.jsonl").exists()


def test_a_shared_run_says_what_goes_along(tmp_path: Path):
    """How many pictures and documents, and their bytes; it replays in a clean process."""
    done, _ = run(Plan((Agent("reader", "What is {{ fig }}?"),), {"fig": figure()}))
    stamp = am.share(done, tmp_path / "x.cassette.jsonl")
    size = done.plan.values["fig"].size
    assert (1, size) == (stamp["files"], stamp["files_bytes"])
    assert "1 attachment of" in stamp_bundle(stamp)["text/plain"]
