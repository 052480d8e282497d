"""How Sphinx builds the site. `scripts/site` stages the pages, makes the reference, and calls it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pygments.lexers.python import PythonLexer
from pygments.token import Comment, Keyword, Name, Text
from sphinx.ext.napoleon.docstring import GoogleDocstring

import agent_magic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

project = "agent_magic"
author = "The agent_magic contributors"
release = version = agent_magic.__version__
project_copyright = author

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton", "sphinx_llms_txt"]
exclude_patterns = ["tools", "browser/src"]
suppress_warnings = ["mystnb.unknown_mime_type"]  # widgets and Vega specifications: a picture stands beside each

# Docstrings are Google sections with Markdown's backticks.
default_role = "code"
smartquotes = False  # options are copied from these pages: two hyphens stay two hyphens
napoleon_numpy_docstring = False
napoleon_use_ivar = True
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"

# Notebooks are shown as they were saved; the tests execute them.
nb_execution_mode = "off"
nb_mime_priority_overrides = [("html", "image/svg+xml", 0), ("html", "text/html", 10)]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
copybutton_exclude = ".linenos, .gp, .go"

html_theme = "furo"
html_title = "agent_magic"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = True
html_show_sphinx = False
html_theme_options = {
    "top_of_page_buttons": [],
    "light_css_variables": {
        "color-brand-primary": "#1f57b3",
        "color-brand-content": "#1f57b3",
        "color-background-secondary": "#f5f6f9",
        "color-background-border": "#d9dee5",
        "color-foreground-primary": "#1b2330",
        "color-foreground-muted": "#5c6675",
        "color-code-background": "#f5f6f9",
    },
    "dark_css_variables": {
        "color-brand-primary": "#8db4ff",
        "color-brand-content": "#8db4ff",
        "color-background-primary": "#111418",
        "color-background-secondary": "#171b21",
        "color-background-border": "#343c47",
        "color-foreground-primary": "#e8ecf1",
        "color-foreground-muted": "#9ba6b5",
        "color-code-background": "#171b21",
    },
}
llms_txt_summary = "Declare Claude agents in notebook cells, run the graph, and ask the finished run what-ifs."
llms_txt_uri_template = "_sources/{docname}{suffix}{sourcelink_suffix}"
llms_txt_exclude = ["gallery/*"]  # outputs of notebooks: two megabytes of pictures

LINE = re.compile(r"(?P<magic>^\s*(?:[\w.]+ *= *)?(?:%%?\w+|!))|(?P<option>(?<=\s)--[\w-]+)|(?P<comment>(?<=\s)#.*)")
PROMPT = re.compile(r"(?P<field>\{\{.*?\}\}|\{%.*?%\})")
KINDS = {"magic": Keyword.Pseudo, "option": Name.Attribute, "comment": Comment, "field": Name.Variable}


class CellLexer(PythonLexer):
    """Highlight a cell: Python with magics, or a `%%agent` line over a prompt with `{{ names }}`."""

    name = "agent_magic cell"
    aliases = ("ipython", "ipython3")

    def get_tokens_unprocessed(self, text: str, stack: tuple[str, ...] = ("root",)) -> Iterator[tuple[int, Any, str]]:
        """Yield the place, kind and text of each token."""
        if text.lstrip().startswith("%%"):
            head, line_end, body = text.partition("\n")
            yield from _marked(head, 0, LINE)
            yield from _marked(line_end + body, len(head), PROMPT)
            return
        at, python = 0, ""
        for line in text.splitlines(keepends=True):
            if LINE.match(line) or line.rstrip().endswith("?"):
                yield from self._python(python, at - len(python), stack)
                yield from _marked(line, at, LINE)
                python = ""
            else:
                python += line
            at += len(line)
        yield from self._python(python, at - len(python), stack)

    def _python(self, text: str, at: int, stack: tuple[str, ...]) -> Iterator[tuple[int, Any, str]]:
        for place, kind, token in super().get_tokens_unprocessed(text, stack):
            yield at + place, kind, token


def _marked(text: str, at: int, marks: re.Pattern[str]) -> Iterator[tuple[int, Any, str]]:
    """Yield what a pattern finds as the kind of its group, and the text between as text."""
    done = 0
    for found in marks.finditer(text):
        yield at + done, Text, text[done : found.start()]
        yield at + found.start(), KINDS[found.lastgroup or ""], found.group()
        done = found.end()
    yield at + done, Text, text[done:]


SHARED = re.compile(r"^ +([\w, ]+): As in `[\w.]+`\.$")


def _shared_arguments(*given: Any) -> None:
    """Put arguments that are explained elsewhere into one line, without types: the signature has them."""
    lines: list[str] = given[-1]
    for at in [at for at, line in enumerate(lines) if SHARED.match(line)]:
        names, _, home = lines[at].strip().rpartition(": As in ")
        words = ", ".join(f"`{name}`" for name in names.split(", "))
        lines[at : at + 1] = []
        args = lines.index("Args:")
        lines[args:args] = [f"{words}: as in {home}", ""]


def _text_of_attribute(self: Any) -> tuple[str, list[str]]:
    """Read the docstring of a property as text: napoleon takes what stands before a colon for its type."""
    lines = self._dedent(self._consume_to_end())
    return "", GoogleDocstring(lines, self._config).lines()


def setup(app: Sphinx) -> None:
    """Add the lexer under the names that notebooks and pages use, and shorten what docstrings repeat."""
    app.connect("autodoc-process-docstring", _shared_arguments, priority=100)  # before napoleon reads the sections
    GoogleDocstring._consume_inline_attribute = _text_of_attribute
    for alias in ("ipython", "ipython3"):
        app.add_lexer(alias, CellLexer)
