"""What front ends with rules of their own get: those that clean HTML, reset styles, run no scripts, or know no bundles.

The rules are those that the front ends publish:

* VS Code draws HTML and SVG in a webview, and in a workspace that is not trusted it drops scripts, handlers of events
  and links of other schemes (`vscode/extensions/notebook-renderers`).
* Colab draws each output in a frame of another origin, with no files of the notebook's folder.
* GitHub and an untrusted JupyterLab drop `<style>` and what could run; a text must be left.
* Panel asks for `_repr_svg_` and `_repr_html_`, not for bundles (`panel/pane/image.py`, `panel/pane/markup.py`).
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from typing import Any

import pytest

from agent_magic import compare
from agent_magic.api import Plan, Run
from tests.show.story import business_run
from tests.show.test_charts import all_charts

ELSEWHERE = re.compile(
    r"""(?:src|href|xlink:href|action|data)\s*=\s*["']?(?!#|data:image/)[^"'\s>]+|url\((?!["']?#)|@import"""
)
RUNS = frozenset({"script", "iframe", "object", "embed", "foreignobject", "link", "form", "base", "meta"})


def shown() -> dict[str, Any]:
    """Return one of each value that people leave at the end of a cell."""
    run = Run(business_run())
    plan = Plan(run.plan.agents, values=run.plan.values)
    whatif = run.whatif(concurrency=[1, 2])
    values = {
        "run": run, "plan": plan, "answer": run[run.plan.names[0]], "agents": run.agents, "whatif": whatif,
        "advice": run.advise(), "path": run.critical_path(), "estimate": plan.estimate(),
        "tradeoff": run.tradeoff(whatif), "interactive": run.dashboard().interactive(),
        "comparison": compare(run, run),
    }  # fmt: skip
    return values | all_charts(run)


def bundles() -> dict[str, dict[str, Any]]:
    """Return their bundles, asked of the values themselves."""
    return {name: value._repr_mimebundle_() for name, value in shown().items()}


class Tags(HTMLParser):
    """Collects the tags and the attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note one tag."""
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


@pytest.mark.parametrize("kind", ["image/svg+xml", "text/html"])
def test_nothing_runs_and_nothing_is_loaded(kind: str) -> None:
    """No script, no handler of an event, no file and no address elsewhere: what a sanitiser drops is not there."""
    found = {name: bundle[kind] for name, bundle in bundles().items() if kind in bundle}
    assert len(found) > 3
    for name, text in found.items():
        page = Tags()
        page.feed(text)
        assert not RUNS & page.tags, name
        assert not [one for one in page.attributes if one.startswith("on")], name
        assert not ELSEWHERE.search(text.replace('xmlns="http://www.w3.org/2000/svg"', "")), name


def test_pictures_bring_their_own_look() -> None:
    """A picture has its size, its typeface and its colours inside: a page that resets styles changes nothing."""
    for name, bundle in bundles().items():
        if "image/svg+xml" not in bundle:
            continue
        svg = bundle["image/svg+xml"]
        root = ET.fromstring(svg)
        assert {"viewBox", "width"} <= set(root.attrib), name
        assert "font-family" in svg, name
        selectors = re.findall(
            r"(?:^|[}>])\s*([^{}<>@]+?)\s*\{",
            re.sub(r"@media[^{]*\{", "}", "".join(one.text or "" for one in root.iter() if one.tag.endswith("style"))),
        )
        assert not [one for one in selectors if ".am-" not in one], name


def test_where_nothing_else_is_kept_there_is_a_text() -> None:
    """Every value says in plain text what its picture or table shows, with its source."""
    for name, bundle in bundles().items():
        assert bundle["text/plain"].strip(), name
        assert "<" not in bundle["text/plain"][:1], name


def test_a_part_asked_for_alone_is_that_of_the_bundle() -> None:
    """Panel and others ask for one form: it is the same, so that a notebook never stores both."""
    for name, value in shown().items():
        bundle = value._repr_mimebundle_()
        forms = {"image/svg+xml": getattr(value, "_repr_svg_", None), "text/html": getattr(value, "_repr_html_", None)}
        for kind, form in forms.items():
            assert (kind in bundle) == (form is not None), (name, kind)
            if form is not None:
                assert re.sub(r"am-\w+-\d+", "", bundle[kind]) == re.sub(r"am-\w+-\d+", "", form()), (name, kind)
