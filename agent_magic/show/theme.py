"""One palette, colours by role, for graph, live view, charts and cards.

A static picture has its colours as attributes (`fill="#1a7f5a"`): some viewers strip `<style>` (GitHub, older
nbconvert), and a picture styled by classes is then a black rectangle. Its `<style>` only adds dark mode.
"""

from __future__ import annotations

import functools
import re
from importlib import resources
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, get_args

from agent_magic.declare.validation import is_word
from agent_magic.errors import DeclarationError, did_you_mean, shown_value
from agent_magic.show.states import STATES

if TYPE_CHECKING:
    from agent_magic.record.phases import Kind

Ground = Literal["light", "dark"]
Theme = Literal["auto", "light", "dark"]
FONT: Final = "Inter,'Segoe UI',system-ui,'Helvetica Neue',Arial,'DejaVu Sans',sans-serif"

# The columns: on a light background, on a dark one, on either. No two light colours are equal, since the rules for dark
# pages match roles by colour. That is why cards are not quite white.
_PALETTE: Final = {
    "ground": ("#ffffff", "#111418", "transparent"),
    "card": ("#fefefe", "#1b2027", "transparent"),
    "line": ("#d9dee5", "#343c47", "#8a94a355"),
    "ink": ("#1b2330", "#e8ecf1", "#707a8a"),
    "soft": ("#667080", "#9ba6b5", "#707a8b"),
    "band": ("#f5f6f9", "#171b21", "transparent"),
    "edge": ("#bfc7d2", "#4a5462", "#8a94a399"),
    "track": ("#e9edf2", "#2a313b", "#8a94a333"),
    "run": ("#2563c9", "#78a6ff", "#3e77d9"),
    "done": ("#1a7f5a", "#3fbf8c", "#208962"),
    "wait": ("#9a5f08", "#e0a94a", "#a76d15"),
    "idle": ("#8a94a3", "#7f8b9b", "#7f8b9b"),
    "fail": ("#c2362f", "#f5827b", "#d14c45"),
    "kept": ("#7450c4", "#b096f5", "#8665d3"),
    "tape": ("#0f7c8f", "#4fc0d3", "#178598"),
    "tool": ("#a8327d", "#e88ac6", "#bd4a93"),
}
INKS: Final[dict[Ground, dict[str, str]]] = {
    "light": {role: colours[0] for role, colours in _PALETTE.items()},
    "dark": {role: colours[1] for role, colours in _PALETTE.items()},
}
"""By background and role. Text has a contrast of at least 4.5, which a test holds."""
INKS_ON_EITHER: Final = {role: colours[2] for role, colours in _PALETTE.items()}
"""For Vega-Lite, which cannot follow the theme of its page: the contrast is 4.3 on white and on dark."""


class PhaseLook(NamedTuple):
    """Without an ink, it has the colour of the attempt's state."""

    # Phases differ in height or opacity, not by colour alone.

    word: str
    ink: str
    opacity: float
    height: float
    dash: str = ""


BAR_H: Final = 11.0
PHASES: Final[dict[Kind, PhaseLook]] = {
    "queued": PhaseLook("queued", "idle", 0.8, 3.0),
    "backoff": PhaseLook("waiting to retry", "wait", 0.75, 5.0, "2.5 2"),
    "local": PhaseLook("local work", "idle", 1.0, BAR_H),
    "first": PhaseLook("waiting for the first token", "", 0.42, BAR_H),
    "stream": PhaseLook("streaming", "", 1.0, BAR_H),
    "tool": PhaseLook("in tools or tasks", "tool", 0.85, 7.0),
}


# Cards, tables and answers use JupyterLab's colours if they exist, so that they fit the page.
SOFT: Final = "color:var(--jp-ui-font-color2,#667080)"
WARN: Final = "color:var(--jp-warn-color0,#a8690a)"
Tone = Literal["", "soft", "warn"]
TONES: Final[dict[Tone, str]] = {"": "", "soft": SOFT, "warn": WARN}
PRE: Final = (
    "margin:4px 0 0;white-space:pre-wrap;overflow-wrap:break-word;word-break:normal;background:none;color:inherit;"
    "padding:0;font:12.5px/1.5 var(--jp-code-font-family,ui-monospace,monospace)"
)
_RULE: Final = "1px solid var(--jp-border-color2,#8a94a355)"
PAGE_CSS: Final = (
    ".am-value .am-rows{overflow-x:auto;margin:4px 0}"
    ".am-value table{border-collapse:collapse;border:0;margin:0;font-size:13px;font-variant-numeric:tabular-nums}"
    ".am-value .am-rows.am-rows th,.am-value .am-rows.am-rows td{text-align:left;white-space:nowrap;max-width:none;"
    "padding:2px 14px 2px 0;"
    f"background:none;border:0;border-bottom:{_RULE};line-height:1.5;vertical-align:top;color:inherit}}"
    ".am-value .am-rows.am-rows th{font-weight:600;font-size:12px;" + SOFT + "}"
    ".am-value .am-rows.am-rows .r{text-align:right}"
    ".am-value .am-rows.am-rows .w{white-space:normal;min-width:14em;overflow-wrap:break-word}"
    ".am-value details{margin:2px 0}.am-value summary{cursor:pointer;padding:3px 0}"
)
"""The style of tables and folded parts. Viewers that strip it show plain tables."""


def box(edge: str = "var(--jp-border-color1,#bfc7d2)") -> str:
    """Open a card or an answer; its classes keep MathJax from reading dollars as formulas."""
    style = (
        "font:13px/1.5 var(--jp-ui-font-family,system-ui,sans-serif);color:var(--jp-ui-font-color1,inherit);"
        f"border-left:3px solid {edge};padding:1px 0 1px 10px;margin:2px 0"
    )
    return f'<div class="am-value tex2jax_ignore mathjax_ignore" style="{style}">'


def inks_of(theme: Theme) -> dict[str, str]:
    """Raise `DeclarationError` for an unknown theme; `auto` is light."""
    known = get_args(Theme)
    if not is_word(theme, known):
        hint = f"One of {', '.join(known)}.{did_you_mean(theme, known)}"
        raise DeclarationError(f"Unknown theme: {shown_value(theme)}.", hint=hint)
    return INKS["dark" if theme == "dark" else "light"]


def dark_style(body: str) -> str:
    """Return the `<style>` that makes a light picture (class `am-auto`) dark on dark pages."""
    # An SVG shown as a file, as in JupyterLab and on GitHub, follows the browser's `prefers-color-scheme`. An SVG
    # inside a page follows the theme attributes of that page.
    rules = "".join(
        f'.am-auto [{key}="{colour}"]{{{key}:var(--am-{role},{colour})}}'
        for key in ("fill", "stroke")
        for role, colour in INKS["light"].items()
        if f'{key}="{colour}"' in body
    )
    dark = variables("dark")
    return (
        f"<style>@media screen{{{rules}:is({_DARK_PAGES}) .am-auto{{{dark}}}}}"
        f"@media screen and (prefers-color-scheme:dark){{svg.am-auto:root{{{dark}}}}}</style>"
    )


_DARK_PAGES = '[data-jp-theme-light="false"],.vscode-dark,.vscode-high-contrast'


def variables(ground: Ground) -> str:
    return "".join(f"--am-{role}:{colour};" for role, colour in INKS[ground].items())


def looks_css(scope: str) -> str:
    states = [f"{scope} .s-{key}{{color:var(--am-{state.ink})}}" for key, state in STATES.items()]
    phases: list[str] = []
    for kind, look in PHASES.items():
        ink = f"var(--am-{look.ink})" if look.ink else "currentColor"
        if look.dash:
            size = f"fill:none;stroke:{ink};stroke-width:{look.height:g};stroke-dasharray:{look.dash};"
        else:
            size = f"fill:{ink};"
        fade = f"opacity:{look.opacity:g}" if look.opacity < 1 else ""
        phases.append(f"{scope} .b-{kind[0]}{{{size}{fade}}}")
    return "\n".join([*states, *phases, ""])


def built(name: str) -> str:
    return resources.files("agent_magic.show").joinpath("static", name).read_text(encoding="utf-8")


def attributes_for_classes(markup: str, theme: Theme) -> str:
    """Replace classes by the attributes from `figure.css`; other attributes win."""
    inks = inks_of(theme)
    above: list[tuple[_Element, dict[str, str]]] = []

    def write(found: re.Match[str]) -> str:
        closing, tag, given, empty = found.groups()
        if closing:
            above.pop()
            return found[0]
        classes = _CLASSES.search(given)
        here: _Element = (tag, frozenset(classes[1].split() if classes else ()))
        inherited = above[-1][1] if above else {}
        declared = _declared((*(one for one, _ in above), here))
        color = declared.get("color", inherited.get("color", ""))
        values = {key: color if value == "currentColor" else value for key, value in declared.items()}
        fresh = {key: value for key, value in values.items() if inherited.get(key) != value}
        if not empty:
            above.append((here, {**inherited, **{key: value for key, value in values.items() if key != "opacity"}}))
        new = "".join(
            f' {key}="{inks[value[1:]] if value[0] == "@" else value}"'
            for key, value in fresh.items()
            if key != "color" and f' {key}="' not in given
        )
        return f"<{tag}{_CLASSES.sub('', given)}{new}{empty}>"

    return _TAG.sub(write, markup)


_Element = tuple[str, frozenset[str]]
_TAG = re.compile(r"<(/?)([a-z]+)((?: [^<>]*?)?)(/?)>")
_CLASSES = re.compile(r' class="([^"]*)"')
_VARIABLE = re.compile(r"var\(--am-(\w+)\)")


class _Rule(NamedTuple):
    steps: tuple[_Step, ...]
    declared: dict[str, str]


class _Step(NamedTuple):
    """A part of a selector; `is_child` is the `>` combinator."""

    is_child: bool
    tag: str
    wanted: frozenset[str]
    unwanted: frozenset[str]


@functools.cache
def _rules() -> list[_Rule]:
    """Parse `figure.css`, the more specific rules last; a colour becomes `@` and its role."""
    sheet = re.sub(r"/\*.*?\*/", "", built("figure.css"))
    rules: list[_Rule] = []
    for selectors, body in re.findall(r"([^{}]+)\{([^{}]*)\}", sheet):
        pairs = (one.split(":", 1) for one in _VARIABLE.sub(r"@\1", body).split(";") if one)
        declared = {key: value.removesuffix("px") for key, value in pairs if key in _ATTRIBUTES}
        for selector in selectors.strip().split(","):
            parts = re.findall(r"([ >]?)([^ >]+)", selector)
            rules.append(_Rule(tuple(_step(combinator, part) for combinator, part in parts), declared))
    return sorted(
        rules, key=lambda rule: sum(10 * len(one.wanted | one.unwanted) + bool(one.tag) for one in rule.steps)
    )


_ATTRIBUTES = frozenset(
    "color fill font-family font-size font-style font-weight opacity shape-rendering stroke stroke-dasharray"
    " stroke-linecap stroke-linejoin stroke-width".split()
)


def _step(combinator: str, part: str) -> _Step:
    unwanted = re.findall(r":not\(\.([\w-]+)\)", part)
    rest = part.partition(":")[0]
    tag = re.match(r"\w*", rest)
    return _Step(
        combinator == ">", tag[0] if tag else "", frozenset(re.findall(r"\.([\w-]+)", rest)), frozenset(unwanted)
    )


@functools.lru_cache(maxsize=4096)  # a picture has thousands of elements, and a few dozen kinds of them
def _declared(chain: tuple[_Element, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for rule in _rules():
        if _matches(rule.steps, chain):
            found |= rule.declared
    return found


def _matches(steps: tuple[_Step, ...], chain: tuple[_Element, ...]) -> bool:
    *_, (tag, classes) = chain
    step = steps[-1]
    if (step.tag and step.tag != tag) or not step.wanted <= classes or step.unwanted & classes:
        return False
    if len(steps) == 1:
        return True
    outer = (chain[:-1],) if step.is_child else (chain[:end] for end in range(1, len(chain)))
    return any(one and _matches(steps[:-1], one) for one in outer)
