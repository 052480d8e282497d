"""A run as one HTML file: it shows the run, holds the recording, and nothing in it can act but its own script."""

from __future__ import annotations

import base64
import errno
import hashlib
import html
import os
import re
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from agent_magic import image, text_file
from agent_magic.api import Agent, Plan, Policy, Run
from agent_magic.errors import AgentMagicError, DeclarationError, SecretFound
from agent_magic.providers import Deck
from agent_magic.record import read_cassette
from agent_magic.show import run_page
from tests.declare.test_content import png
from tests.house.source import ROOT
from tests.live.virtual import Reply, drive
from tests.show.story import business_run
from tests.show.test_pictures import HOSTILE

CANARY = "quetzal-4711"


class Tags(HTMLParser):
    """The tags of a page, and their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep a tag."""
        self.found.append((tag, dict(attrs)))


def tags_of(page: str) -> list[tuple[str, dict[str, str | None]]]:
    """Return the tags of a page."""
    reader = Tags()
    reader.feed(page)
    return reader.found


def answered(text: str, prompt: str = "Say it.") -> Run:
    """Return a run of two agents that answer with a text."""
    plan = Plan([Agent("first", prompt), Agent("second", "And {{ first }}")], name="pages")
    record, _ = drive(plan, lambda *_: Reply(1.0, text=text), Policy(2, seed=1))
    return Run(record)


def recording_of(path: Path) -> bytes:
    """Return the recording that a page offers."""
    page = path.read_text(encoding="utf-8")
    data = re.search(r'href="data:application/octet-stream;base64,([^"]+)"', page)
    assert data is not None
    return base64.b64decode(data[1])


def refused(*_: Any) -> None:
    """Write nothing: the disk is full."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_page_shows_the_run(tmp_path: Path) -> None:
    """Pictures, numbers, each prompt and answer, and what-ifs are in it; it is small."""
    run = Run(business_run())
    path = run.to_page(tmp_path / "run.html")
    page = path.read_text(encoding="utf-8")
    assert len(page.encode()) < 500_000
    for result in run.record.results:
        assert f"<b>{html.escape(result.name)}</b>" in page
    assert 2 == page.count('<img src="data:image/svg+xml,')
    assert all(attributes.get("alt") for tag, attributes in tags_of(page) if tag == "img")
    assert "What it would have cost and taken" in page


def test_a_page_says_what_it_is_about_and_why_a_loop_ended(tmp_path: Path) -> None:
    """The title has the plan, what it comes to and the day; a loop at its cap has its reason and its word."""
    draft = Agent("draft", "d {{ critic }}", until="critic > 3", rounds=2)
    plan = Plan([draft, Agent("critic", "rate {{ draft }}", returns=int), Agent("final", "{{ draft }}")], name="essay")
    record, _ = drive(plan, lambda prompt, _: Reply(text='{"value": 1}' if prompt[0] == "r" else "text"))
    page = Run(record).to_page(tmp_path / "run.html", python=None).read_text(encoding="utf-8")
    assert re.search(r"<title>essay: [^<]*final · \d{4}-\d{2}-\d{2}</title>", page)
    assert "draft capped: it ran all its rounds and critic > 3 does not hold." in html.unescape(page)
    assert '<b>draft_2</b> <span class="soft">capped' in page
    assert "essay: Find it" in page_of_plan(tmp_path)


def page_of_plan(folder: Path) -> str:
    """The page of a plan that says what it is for."""
    plan = Plan([Agent("one", "Say it.")], name="essay", description="Find it")
    record, _ = drive(plan, lambda *_: Reply(1.0, text="1"), Policy(2, seed=1))
    return Run(record).to_page(folder / "about.html", python=None).read_text(encoding="utf-8")


def test_a_page_of_the_site_is_small(tmp_path: Path) -> None:
    """Twenty agents whose conditions need Jinja2 in the page: with the engine it is under 555 KB."""
    runs = ROOT / "docs" / "runs"
    plan = Plan.from_json((runs / "map_reduce.plan.json").read_text(encoding="utf-8"))
    page = plan.replay(runs / "map_reduce.cassette.jsonl").to_page(tmp_path / "run.html")
    assert page.stat().st_size < 555_000


def test_the_recording_comes_out_again(tmp_path: Path) -> None:
    """The file that the page offers replays the run."""
    run = answered("An answer.")
    saved = tmp_path / "run.cassette.jsonl"
    saved.write_bytes(recording_of(run.to_page(tmp_path / "run.html")))
    played = Deck(read_cassette(saved)).play(run.plan, timeout_s=1e9)
    assert [one.text for one in run.record.results] == [one.text for one in played.results]


def test_a_page_holds_what_was_attached(tmp_path: Path) -> None:
    """The recording in it replays prompts with pictures and text files; without texts they are not in it."""
    rules = text_file(CANARY.encode(), title="rules.md")
    plan = Plan([Agent("see", "See {{ fig }} and {{ rules }}")], {"fig": image(png()), "rules": rules}, name="pages")
    run = Run(drive(plan, lambda *_: Reply(1.0, text="Seen."))[0])
    whole = recording_of(run.to_page(tmp_path / "run.html"))
    (tmp_path / "run.cassette.jsonl").write_bytes(whole)
    assert {"see": "Seen."} == plan.replay(tmp_path / "run.cassette.jsonl").texts.to_dict()
    bare = recording_of(run.to_page(tmp_path / "bare.html", texts=False))
    for file in (rules, plan.values["fig"]):
        assert base64.b64encode(file.data) in whole
        assert base64.b64encode(file.data) not in bare


@pytest.mark.parametrize("wrong", [None, 5, b"run.html", [], "", "a\0b", "none/run.html", "."])
def test_a_page_goes_to_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: Any) -> None:
    """What is no file, or is in no folder, is an error that says so; nothing is written."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AgentMagicError, match=r"is no file name|is a folder|does not exist"):
        answered("An answer.").to_page(wrong)
    with pytest.raises(AgentMagicError, match=r"is no file name|is a folder|does not exist"):
        answered("An answer.").save(wrong)
    assert not list(tmp_path.iterdir())


def test_a_page_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that refuses is an error of ours, with its reason; an older page is unchanged."""
    (tmp_path / "run.html").write_text("older")
    monkeypatch.setattr(run_page, "write_bytes", refused)
    with pytest.raises(AgentMagicError, match=r"'run.html' cannot be written: No space left on device"):
        answered("An answer.").to_page(tmp_path / "run.html")
    assert "older" == (tmp_path / "run.html").read_text()


@pytest.mark.parametrize("payload", [*HOSTILE, "</script><script>alert(1)</script>", "[x](javascript:alert(1))"])
def test_texts_stay_texts(tmp_path: Path, payload: str) -> None:
    """No text of a person or a model becomes a script, a frame, an event or a request; the policy forbids them too."""
    answered(payload, prompt="Say this. " + payload.replace("{", "(")).to_page(tmp_path / "run.html")
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    found = tags_of(page)
    assert not {"iframe", "object", "embed", "form", "base", "link"} & {tag for tag, _ in found}
    assert ["application/octet-stream"] * 2 + ["module"] == [one.get("type") for tag, one in found if tag == "script"]
    assert not [key for _, attributes in found for key in attributes if key.startswith("on")]
    for tag, attributes in found:
        address = str(attributes.get("src") or attributes.get("href") or "data:")
        assert address.startswith(("data:", "http", "mailto:")), (tag, address)
        assert tag == "a" or address.startswith("data:")
    policy: Any = next(one for _, one in found if one.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy["content"]
    script = page.rpartition('<script type="module">')[2].partition("</script>")[0]
    fingerprint = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{fingerprint}' 'wasm-unsafe-eval' https://" in policy["content"]


@pytest.mark.parametrize("given", [{"texts": False}, {"redact": lambda text: text.replace(CANARY, "[name]")}])
def test_what_is_left_out_is_nowhere(tmp_path: Path, given: dict[str, Any]) -> None:
    """Without texts, and with texts that are replaced, the word is neither shown nor in a picture nor recorded."""
    answered(f"The word is {CANARY}.", prompt=f"What about {CANARY}?").to_page(tmp_path / "run.html", **given)
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    hidden = [base64.b64decode(one).decode() for one in re.findall(r";base64,([A-Za-z0-9+/=]+)", page)]
    hidden += [zlib.decompress(base64.b64decode(one)).decode() for one in re.findall(r'"am-run">([^<]+)<', page)]
    assert 2 == len(hidden)
    assert CANARY not in unquote(page) + "".join(hidden)


def test_a_key_is_not_written(tmp_path: Path) -> None:
    """A page with what looks like a key is refused, and nothing is there."""
    run = answered("The key is sk-ant-api03-" + "a1B2" * 22)
    with pytest.raises(SecretFound):
        run.to_page(tmp_path / "run.html")
    assert not list(tmp_path.iterdir())


def test_a_page_without_python_has_no_script(tmp_path: Path):
    """`python=None` leaves the button and all scripts out; no page loads anything by itself."""
    answered("An answer.").to_page(tmp_path / "run.html", python=None)
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "script-src" not in page


@pytest.mark.parametrize("python", ["", "javascript:alert(1)//", "https://a b/", "x'; script-src *", 3])
def test_python_is_an_address_or_a_folder(tmp_path: Path, python: Any):
    """Whatever else is refused: it becomes a part of the page's policy. Nothing is written then."""
    with pytest.raises(DeclarationError, match="python must be a folder beside the page, or an address"):
        answered("An answer.").to_page(tmp_path / "run.html", python=python)
    assert not list(tmp_path.iterdir())
