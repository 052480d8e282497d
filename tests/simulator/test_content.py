"""Pictures, documents and citations: measured by their bytes, refused by the API's limits, cited with places."""

from __future__ import annotations

import base64
import io
import zlib
from typing import Any

import pytest
from PIL import Image

from agent_magic.simulator import content
from agent_magic.simulator.api import ApiError
from tests.simulator.playing import asking, reply


def picture(width: int, height: int, kind: str = "png", **more: Any) -> dict[str, Any]:
    """A picture of one colour."""
    data = io.BytesIO()
    Image.new("RGB", (width, height)).save(data, kind, **more)
    source = {"type": "base64", "media_type": f"image/{kind}", "data": base64.b64encode(data.getvalue()).decode()}
    return {"type": "image", "source": source}


def pdf(*pages: str, packed: bool = True, more: bytes = b"") -> dict[str, Any]:
    """A PDF with a text on each page; only what the mock reads is in it."""
    parts = [b"%PDF-1.7\n", b"1 0 obj << /Type /Pages /Count %d >> endobj\n" % len(pages), more]
    for text in pages:
        shown = f"BT ({text}) Tj ET".encode()
        parts.append(b"2 0 obj << /Type /Page >> endobj\n3 0 obj << >> stream\n")
        parts += [zlib.compress(shown) if packed else shown, b"\nendstream endobj\n"]
    data = base64.b64encode(b"".join(parts)).decode()
    return {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": data}}


def text(data: str, **more: Any) -> dict[str, Any]:
    """A text document."""
    return {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": data}, **more}


def ask(*blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A request for these blocks and a question."""
    return asking([*blocks, {"type": "text", "text": "What is said? Briefly."}], **{"tools": [], **more})


def refused(body: dict[str, Any]) -> ApiError:
    """The error for a request."""
    with pytest.raises(ApiError) as caught:
        reply(body)
    assert 400 == caught.value.status
    return caught.value


@pytest.mark.parametrize("kind", ["png", "jpeg", "gif", "webp"])
def test_every_kind_of_picture_is_measured(kind) -> None:
    """Width and height are read from the header of the file."""
    data = base64.b64decode(picture(300, 120, kind)["source"]["data"])
    assert (f"image/{kind}", (300, 120)) == content.picture_size(data)


@pytest.mark.parametrize("more", [{"lossless": True}, {"lossless": True, "exif": b"Exif\0\0MM\0*\0\0\0\x08\0\0"}])
def test_every_form_of_webp_is_measured(more) -> None:
    """Lossless, and with an extended header."""
    data = base64.b64decode(picture(300, 120, "webp", **more)["source"]["data"])
    assert ("image/webp", (300, 120)) == content.picture_size(data)


@pytest.mark.parametrize(
    "data", [b"", b"GIF89a", content.PNG_HEADER, b"\xff\xd8\xff\xe0\0\x04ab", b"\xff\xd8abc", b"x" * 99]
)
def test_what_is_no_picture_has_no_size(data) -> None:
    """Bytes without a whole header have no size."""
    assert content.picture_size(data) is None


def test_limits_of_pictures() -> None:
    """8,000 pixels; above 20 pictures 2,000, with a code; 600 a request, 100 in a small context; 10 MB each."""
    one = refused(ask(picture(8001, 1)))
    assert "dimensions exceed max allowed size: 8000 pixels" in one.message
    assert "image_dimensions_too_large" == one.code
    many = refused(ask(*[picture(2001, 1)] * 21))
    assert "messages.0.content.0.image.source.base64.data: " in many.message
    assert "many-image requests: 2000 pixels" in many.message
    reply(ask(*[picture(2001, 1)] * 20))
    assert "Too many images" in refused(ask(*[picture(1, 1)] * 601)).message
    assert "101 + 0 > 100" in refused(ask(*[picture(1, 1)] * 101, model="claude-haiku-4-5")).message
    large = picture(10, 10)
    large["source"]["data"] += "A" * content.MOST_BYTES
    assert "image exceeds 10 MB maximum" in refused(ask(large)).message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"media_type": "image/jpeg"}, "Image does not match the provided media type image/jpeg"),
        ({"media_type": "image/bmp"}, "media_type: Input should be 'image/jpeg'"),
        ({"data": "not base64!"}, "invalid base64 data"),
        ({"data": "AAAA"}, "Could not process image"),
        ({"type": "path"}, "Input tag 'path' does not match any of the expected tags"),
    ],
)
def test_wrong_pictures_are_refused(change, message) -> None:
    """What is said of a picture is true of its bytes."""
    block = picture(10, 10)
    block["source"] |= change
    assert message in refused(ask(block)).message


def test_pages_are_counted() -> None:
    """A page costs 1,500 to 3,000 tokens; a fuller one more."""
    plain, one, three = (
        reply(ask(*blocks))["usage"]["input_tokens"] for blocks in ([], [pdf("a")], [pdf("a", "b", "c")])
    )
    assert 1500 <= one - plain <= 1600
    assert 4500 <= three - plain <= 4800
    full = reply(ask(pdf("x" * 200_000, packed=False)))["usage"]["input_tokens"]
    assert 3000 == full - plain


def test_wrong_pdfs_are_refused() -> None:
    """No PDF, one with a password, too many pages, another media type."""
    wrong = pdf("a")
    wrong["source"]["data"] = base64.b64encode(b"plain text").decode()
    assert "The PDF specified was not valid." in refused(ask(wrong)).message
    assert "password protected" in refused(ask(pdf("a", more=b"/Encrypt 5 0 R"))).message
    assert "A maximum of 600 PDF pages" in refused(ask(pdf(*"a" * 601))).message
    assert "A maximum of 100 PDF pages" in refused(ask(pdf(*"a" * 101), model="claude-haiku-4-5")).message
    wrong = pdf("a")
    wrong["source"]["media_type"] = "application/msword"
    assert "media_type: Input should be 'application/pdf'" in refused(ask(wrong)).message


CITED = {"citations": {"enabled": True}}
STORY = "Night trains are slow. They save a hotel. Some are sold out early."


def citations(*blocks: dict[str, Any]) -> list[dict[str, Any]]:
    """The citations of the answer about some documents."""
    return [each for block in reply(ask(*blocks))["content"] for each in block.get("citations", ())]


def test_a_text_is_cited_by_its_characters() -> None:
    """The cited text stands in the document where the citation says."""
    found = citations(text(STORY, title="Trains", **CITED))
    assert found
    for each in found:
        assert ("char_location", 0, "Trains") == (each["type"], each["document_index"], each["document_title"])
        assert each["cited_text"] == STORY[each["start_char_index"] : each["end_char_index"]]


@pytest.mark.parametrize("packed", [True, False])
def test_a_pdf_is_cited_by_its_pages(packed) -> None:
    """With the text of the page, where it can be read."""
    found = citations({**pdf("Alpha is first.", "Beta is second.", packed=packed), **CITED})
    assert (
        {("page_location", 1, 2, "Alpha is first."), ("page_location", 2, 3, "Beta is second.")}
        >= {(each["type"], each["start_page_number"], each["end_page_number"], each["cited_text"]) for each in found}
        > set()
    )


def test_parts_and_search_results_are_cited_by_block() -> None:
    """Documents of several parts, and search results, also inside a tool result."""
    parts = [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]
    document = {"type": "document", "source": {"type": "content", "content": parts}, **CITED}
    (first, second) = citations(document)
    assert ("content_block_location", "One.", 0, 1) == (
        first["type"],
        first["cited_text"],
        first["start_block_index"],
        first["end_block_index"],
    ) or first["start_block_index"] == 1
    assert {"One.", "Two."} == {first["cited_text"], second["cited_text"]}
    own = {"type": "search_result", "source": "wiki/1", "title": "Wiki", "content": parts[:1], **CITED}
    (found,) = citations(own)
    assert ("search_result_location", "wiki/1", 0) == (found["type"], found["source"], found["search_result_index"])


def test_the_sdk_sees_citations_in_a_stream(talk) -> None:
    """Text blocks of their own, each with what it cites; a cited text is not billed."""
    message = talk.stream("", tools=[], messages=ask(text(STORY, **CITED))["messages"])
    cited = [block for block in message.content if block.citations]
    assert cited
    said = sum(-(-len(block.text.encode()) // 4) for block in message.content)
    assert said == message.usage.output_tokens


def test_citations_are_for_all_documents_or_none_and_not_beside_a_schema() -> None:
    """Both are a 400."""
    assert "must be enabled on all documents" in refused(ask(text("a", **CITED), text("b"))).message
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    config = {"format": {"type": "json_schema", "schema": schema}}
    message = refused(ask(text("a", **CITED), output_config=config)).message
    assert "output_config.format: cannot be combined with citations" == message
    assert not citations(text(STORY))
