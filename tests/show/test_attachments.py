"""What people see of pictures and documents: a line with size and tokens, a thumbnail, a card of the plan."""

from __future__ import annotations

import base64
import io
import re
import sys
from dataclasses import replace

import pytest
from PIL import Image

from agent_magic import Agent, image, text_file
from agent_magic.declare import Attachment, Plan, TokenRule
from agent_magic.show import attachments_card, prompt_words
from agent_magic.show.cards import MOST_BYTES, thumbnail, thumbnails, words

RULE = TokenRule(28, 2576, 4784, (2000, 8000))
HOSTILE = '"><script>alert(1)</script>'


def picture(size: tuple[int, int] = (640, 480), title: str = "fig") -> Attachment:
    """A picture that is no small file: noise."""
    drawn = io.BytesIO()
    Image.effect_noise(size, 90).save(drawn, "PNG")
    return image(drawn.getvalue(), title=title)


def test_a_prompt_says_how_many_tokens_a_picture_has():
    """In place of its label; of a document of text by its characters; without a rule it says nothing of tokens."""
    plan = Plan((Agent("a", "See {{ fig }} and {{ rules }}."),), {"fig": picture(), "rules": text_file(b"x" * 400)})
    prompt = plan.prompt_of(0, {})
    expected = "See [image fig: 640x480, about 414 tokens] and [document rules: 400 bytes, about 101 tokens]."
    assert expected == prompt_words(prompt, RULE)
    assert "[image fig: 640x480]" == words(plan.values["fig"], None)


def test_a_thumbnail_is_small_and_a_small_picture_is_its_own():
    """A data URI of a PNG, smaller than the picture, never above the limit."""
    large, small = picture(), picture((20, 20))
    shown = thumbnail(large)
    assert shown.startswith("data:image/png;base64,")
    assert len(base64.b64decode(shown.partition(",")[2])) <= MOST_BYTES < large.size
    assert small.data == base64.b64decode(thumbnail(small).partition(",")[2])


def test_without_pil_a_large_picture_has_no_thumbnail(monkeypatch: pytest.MonkeyPatch):
    """Nothing is imported for it."""
    large = picture((650, 480))
    monkeypatch.delitem(sys.modules, "PIL")
    assert "" == thumbnail(large)


@pytest.mark.parametrize("data", [b"\x89PNG\r\n\x1a\n" + bytes(30_000), b"GIF89a" + b"x" * 30_000])
def test_a_broken_picture_has_no_thumbnail(data: bytes):
    """The bytes may come from a stranger's file."""
    assert "" == thumbnail(replace(picture((20, 20)), data=data))


def test_only_pictures_that_pages_show_safely_become_thumbnails():
    """A media type from a stranger's file is no part of a page."""
    assert "" == thumbnail(replace(picture((20, 20)), media_type=f"image/svg+xml{HOSTILE}"))
    assert [] == thumbnails([text_file(b"text", title="x")])


def test_titles_are_escaped():
    """In the card's HTML, and on one line in its text."""
    bundle = attachments_card([picture((20, 20), HOSTILE), text_file(b"x", title=HOSTILE)], RULE)
    assert "<script" not in bundle["text/html"]
    assert 2 == len(bundle["text/plain"].splitlines())


def test_a_card_shows_each_picture_once_and_a_few():
    """Twenty different ones are six, and a word on the rest."""
    one = picture((20, 20))
    assert 1 == attachments_card([one, one], RULE)["text/html"].count("<img")
    many = attachments_card([replace(one, sha256=f"{n}") for n in range(20)], RULE)
    assert 6 == many["text/html"].count("<img")
    assert re.search("and 14 more attachments", many["text/plain"])
