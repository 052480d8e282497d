"""Pictures and PDFs that tools return: what the model gets, and what is kept of them."""

from __future__ import annotations

import asyncio
import base64
import json
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

import agent_magic as am
from agent_magic.api import Agent, Claude, Plan, Run
from agent_magic.declare import Attachment, result_text
from agent_magic.declare.content import fitting
from agent_magic.record import only_hash
from agent_magic.show import details_of
from agent_magic.simulator import Simulator, start

PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==")
DOT = am.image(PNG, title="dot")
PDF = am.pdf(b"%PDF-1.4\n1 0 obj <</Type /Page>> endobj", title="page")


@pytest.fixture(scope="module")
def server() -> Iterator[Simulator]:
    """Serve at once."""
    with start(latency="none", unlimited=True) as running:
        yield running


def plot(name: str = "") -> Any:
    """Draw."""
    return [f"drawn {name}", DOT, {"more": PDF}]


def plan(*tools: Any) -> Plan:
    """An agent that calls `plot` twice, and answers."""
    return Plan([Agent("a", '[[tool@1:plot {"name": "x"}]] [[tool@2:plot {"name": "y"}]]', tools=list(tools))])


def run(server: Simulator, ledger: Any = None, tool: Any = plot) -> Run:
    """Run it."""
    return asyncio.run(plan(tool).run(client=Claude(base_url=server.url, api_key="any"), ledger=ledger))


def files_of(done: Run, call: int) -> list[bytes]:
    """The bytes of what a call returned."""
    ended = done.record.results[0].calls[call].ended
    return [] if ended is None else [one.data for one in ended.files]


def blocks(value: Any) -> list[dict[str, Any]]:
    """The content blocks of a result."""
    return json.loads(result_text(value).content)


def test_a_result_is_texts_and_pictures_in_their_order():
    """What stands under a name has it in front; a document that is text is text; bytes are a sha256."""
    found = blocks([1, {"figure": DOT}, "", am.text_file(b"rules", title="r.md"), PDF])
    assert ["1", "figure:"] == [one["text"] for one in found[:2]]
    assert {"type": "base64", "media_type": "image/png", "data": DOT.sha256} == found[2]["source"]
    assert "[document r.md]\nrules" == found[3]["text"]
    assert ("document", "page", PDF.sha256) == (found[4]["type"], found[4]["title"], found[4]["source"]["data"])


def test_a_figure_is_drawn_when_it_is_returned():
    """Nobody has to write it to a file first. An empty one is told as an error."""
    figures = pytest.importorskip("matplotlib.figure")
    figure = figures.Figure()
    assert "is empty" in result_text(figure).content
    assert result_text(figure).is_error
    figure.subplots().plot([1, 2])
    assert ["image/png"] == [one.media_type for one in result_text(figure).files]


def test_texts_beside_a_picture_are_cut_together():
    """They share what one result may have."""
    found = json.loads(result_text(["x" * 60, DOT, "y" * 60], most=100).content)
    assert "x" * 60 == found[0]["text"]
    assert "20 more characters left out" in found[2]["text"]


def test_too_large_a_picture_is_an_error_that_says_so():
    """The model is told, and the run goes on."""
    huge = Attachment("image", "image/png", "0" * 64, "huge", 1, 9000, 10)
    told = result_text(huge)
    assert told.is_error
    assert "9,000x10 pixels" in told.content


def test_the_model_gets_pictures_and_the_record_keeps_them_once(server, tmp_path):
    """By hash. Their bytes come back from a cassette and from a ledger, and a replay needs no tool."""
    ledger = am.Ledger(tmp_path / "ledger.db")
    done = run(server, ledger)
    assert done.ok
    assert 3 == len(done.attempts)
    asked = done.record.results[0].attempts[-1].request
    assert [DOT, PDF] * 2 == [*asked.returned]
    counted = [one.usage.total_input_tokens or 0 for one in done.record.results[0].attempts if one.usage]
    assert counted[1] - counted[0] > 1500 < counted[2] - counted[1], "a page each time"
    path = tmp_path / "run.cassette.jsonl"
    done.save(path)
    assert 1 == path.read_text().count(base64.b64encode(PNG).decode())
    again = plan(plot).replay(path)
    assert again.ok
    for one in (again, ledger.open()):
        result = one.record.results[0]
        assert [PNG, PDF.data] == files_of(one, call=0)
        assert asked.key("x") == result.attempts[-1].request.key("x")
        assert [PNG, PDF.data] == [file.data for file in result.attempts[1].request.returned]


def test_pruning_keeps_the_conversations_of_the_runs_that_stay(server, tmp_path):
    """Their texts and their pictures."""
    ledger = am.Ledger(tmp_path / "ledger.db")
    before = run(server, ledger).record.results[0].attempts[-1].request
    ledger.prune(days=1)
    after = ledger.open().record.results[0].attempts[-1].request
    assert before == after
    assert [one.data for one in before.returned] == [one.data for one in after.returned]


def test_a_recording_without_texts_has_no_pictures_and_replays(server, tmp_path):
    """What a picture shows nobody can check."""
    path = tmp_path / "run.cassette.jsonl"
    run(server).save(path, redact=only_hash)
    assert base64.b64encode(PNG).decode() not in path.read_text()
    assert plan(plot).replay(path).ok


def test_the_result_of_a_pure_tool_is_served_with_its_pictures(server, tmp_path):
    """The next run sends what the ledger has, and calls nothing."""
    ledger, drawn = am.Ledger(tmp_path / "ledger.db", reuse_simulated=True), list[str]()

    def plot(name: str) -> Any:
        """Draw."""
        drawn.append(name)
        return DOT

    tool = am.tool(pure=True)(plot)
    first, second = (run(server, ledger, tool) for _ in range(2))
    assert ["x", "y"] == drawn
    for one in (first, second):
        assert [PNG] == files_of(one, call=1)


def test_the_panel_shows_them_beside_their_call(server):
    """A thumbnail, and in the text what stands where."""
    (shown,) = details_of(run(server).record, 0)["turns"][0]["calls"]
    assert "drawn x\n[image]\nmore:\n[document]" == shown["texts"]["result"]
    assert ["[image dot] 1x1"] == [one["label"] for one in shown["pictures"]]
    assert shown["pictures"][0]["src"].startswith("data:image/png;base64,")


@pytest.mark.parametrize(("sizes", "left"), [([2600] + [10] * 29, 10), ([10] * 20 + [2600] * 10, 10), ([10] * 30, 0)])
def test_more_pictures_than_a_conversation_holds_are_left_out_and_told(server, sizes, left):
    """Over turns and within one: the server would refuse the request, and all that was paid for would be lost."""
    pictures = [am.image(png(size)) for size in sizes]
    given = iter(pictures)

    def plot(name: str = "") -> Any:
        """Draw."""
        return next(given)

    turns = [f'[[tool@{turn}:plot {{"name": "{n}"}}]]' for turn in (1, 2, 3) for n in range(10)]
    agent = Agent("a", " ".join(turns), tools=[plot])
    done = asyncio.run(Plan([agent]).run(client=Claude(base_url=server.url, api_key="any")))
    assert done.ok, done["a"].error
    assert (4, 30) == (len(done.attempts), len(done.tool_calls))
    asked = done.record.results[0].attempts[-1].request
    assert left == "".join(one.content for one in asked.messages).count("(left out: with more than 20 pictures none")
    assert 30 - left == len(asked.returned)


def png(width: int) -> bytes:
    """A grey picture one pixel high."""

    def part(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    head = width.to_bytes(4, "big") + (1).to_bytes(4, "big") + bytes([8, 0, 0, 0, 0])
    return (
        b"\x89PNG\r\n\x1a\n" + part(b"IHDR", head) + part(b"IDAT", zlib.compress(bytes(width + 1))) + part(b"IEND", b"")
    )


def test_a_conversation_of_32_mb_takes_no_more():
    """What is left out makes room for a smaller one behind it."""

    def of(size: int) -> Attachment:
        return Attachment("document", "text/plain", "0", "x", size)

    assert [True, False, True] == fitting([of(20_000_000)], [of(5_000_000), of(8_000_000), of(6_000_000)], 1_000_000)
