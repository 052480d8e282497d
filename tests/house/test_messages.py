"""The words on the screen: one page has them all, so that a change of a word is seen when it is reviewed."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from tests.house.source import ROOT


@pytest.fixture(scope="module")
def messages() -> Any:
    """The script that lists them."""
    spec = importlib.util.spec_from_file_location("messages", ROOT / "scripts" / "messages.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_has_every_text(messages: Any) -> None:
    """Read what the difference says, then run `python scripts/messages.py`."""
    assert messages.PAGE.read_text(encoding="utf-8").splitlines() == messages.page().splitlines()


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('raise ValueError(f"Give {name!r} a value. {hint}")', ["Give {name!r} a value. {hint}"]),
        ('say("Nothing runs now. "\n    "Start it.")', ["Nothing runs now. Start it."]),
        (
            "say(f\"{'one more' if left else 'no more'} of all of them\")",
            ["{('one more' if left else 'no more')} of all of them"],
        ),
        ('"""Return what a reader wants."""\nNOTE = "too short"', []),
        ('"beside " + "another text of three"', ["another text of three"]),
        ('run("SELECT id FROM runs WHERE plan = ?")\nre.compile(r"(?P<a>one) of these words")', []),
        ('css = ".am-card{color:red;margin: 0 auto 0 auto}"\nnames = "total_s, queued_s, api_s"', []),
        ('note("Ünknown words are words too — read them")', ["Ünknown words are words too — read them"]),
    ],
)
def test_what_counts_as_a_text(messages: Any, source: str, found: list[str]) -> None:
    """A few words that people read, fields as their code; no docstring, query, pattern, style or list of names."""
    assert found == list(messages.texts(source))
