"""Colours, and the style sheet of a static picture."""

from __future__ import annotations

import re
from importlib import resources
from typing import Literal, get_args

from agent_magic.declare.validation import is_word
from agent_magic.errors import DeclarationError, did_you_mean, shown_value

Ground = Literal["light", "dark"]
Theme = Literal["auto", "light", "dark"]
"""`auto` is light, and dark where the page that shows it is known to be."""

INKS: dict[Ground, dict[str, str]] = {
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


def inks_of(theme: Theme) -> dict[str, str]:
    """Return the colours of a picture as they are written out: those of `auto` are light.

    Raises:
        DeclarationError: There is no such theme.
    """
    known = get_args(Theme)
    if not is_word(theme, known):
        hint = f"One of {', '.join(known)}.{did_you_mean(theme, known)}"
        raise DeclarationError(f"theme={shown_value(theme)} cannot work.", hint=hint)
    return INKS["light" if theme == "auto" else theme]


def style_sheet(theme: Theme) -> str:
    """Return the style of a static picture.

    Its colours are written out, for not every program knows CSS variables. Its rules name the theme, for pictures of
    two themes can stand in one page. What makes `auto` dark stands in media rules, which such programs leave out.
    """
    inks = inks_of(theme)
    rules = built("figure.css").partition("*/\n")[2].replace(".am-fig", f".am-fig.am-{theme}").strip()
    plain = _VARIABLE.sub(lambda found: inks[found[1]], rules)
    if theme != "auto":
        return plain
    coloured = "".join(_coloured(*rule) for rule in re.findall(r"([^{}]+)\{([^{}]*)\}", rules))
    changing = _VARIABLE.sub(lambda found: f"var(--am-{found[1]},{inks[found[1]]})", coloured)
    return f"{plain}\n@media screen{{{changing}}}\n{dark_where(variables('dark'), '.am-auto')}"


def dark_where(rules: str, picture: str) -> str:
    """Return rules for pictures on dark pages.

    A picture that is a file of its own, as in JupyterLab and on GitHub, is told by the browser what its page or the
    system likes; one that is part of a page goes by what the page says of itself. Paper is light.

    Args:
        rules: Declarations, or whole rules with `&` in place of the picture.
        picture: A selector of it.
    """
    alone, inside = f"svg{picture}:root", f":is({_DARK_PAGES}) {picture}"
    whole = [rules.replace("&", one) if "&" in rules else f"{one}{{{rules}}}" for one in (alone, inside)]
    return f"@media screen and (prefers-color-scheme:dark){{{whole[0]}}}\n@media screen{{{whole[1]}}}"


def _coloured(selector: str, body: str) -> str:
    """Return of a rule what gives colours."""
    kept = [one for one in body.split(";") if "var(" in one]
    return f"{selector.strip()}{{{';'.join(kept)}}}" if kept else ""


_VARIABLE = re.compile(r"var\(--am-(\w+)\)")
_DARK_PAGES = '[data-jp-theme-light="false"],.vscode-dark,.vscode-high-contrast'


def variables(theme: Ground) -> str:
    """Return the colours of a theme as CSS variables, for the live view."""
    return "".join(f"--am-{name}:{colour};" for name, colour in INKS[theme].items())
