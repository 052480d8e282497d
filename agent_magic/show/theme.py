"""Colours, and the style sheet of a static picture."""

from __future__ import annotations

import re
from importlib import resources
from typing import Literal

Theme = Literal["light", "dark"]

INKS: dict[Theme, dict[str, str]] = {
    "light": {
        "ground": "#ffffff",
        "card": "#ffffff",
        "line": "#d9dee5",
        "ink": "#1b2330",
        "soft": "#667080",
        "band": "#f5f6f9",
        "edge": "#bfc7d2",
        "track": "#e9edf2",
        "run": "#2563c9",
        "done": "#1a7f5a",
        "wait": "#9a5f08",
        "none": "#8a94a3",
        "fail": "#c2362f",
        "kept": "#7450c4",
        "tape": "#0f7c8f",
    },
    "dark": {
        "ground": "#111418",
        "card": "#1b2027",
        "line": "#343c47",
        "ink": "#e8ecf1",
        "soft": "#9ba6b5",
        "band": "#171b21",
        "edge": "#4a5462",
        "track": "#2a313b",
        "run": "#78a6ff",
        "done": "#3fbf8c",
        "wait": "#e0a94a",
        "none": "#7f8b9b",
        "fail": "#f5827b",
        "kept": "#b096f5",
        "tape": "#4fc0d3",
    },
}
"""Per theme, what a colour is for. Words on their ground have a contrast of 4.5 or more, which a test holds."""


def built(name: str) -> str:
    """Read a built front-end file."""
    return resources.files("agent_magic.show").joinpath("static", name).read_text(encoding="utf-8")


def style_sheet(theme: Theme) -> str:
    """Return the style of a static picture.

    Its colours are written out, for not every program knows CSS variables. Its rules name the theme, for pictures of
    two themes can stand in one page.
    """
    inks = INKS[theme]
    rules = built("figure.css").partition("*/\n")[2].replace(".am-fig", f".am-fig.am-{theme}")
    return re.sub(r"var\(--am-(\w+)\)", lambda found: inks[found[1]], rules).strip()


def variables(theme: Theme) -> str:
    """Return the colours of a theme as CSS variables, for the live view."""
    return "".join(f"--am-{name}:{colour};" for name, colour in INKS[theme].items())
