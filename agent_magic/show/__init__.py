"""Views: functions from a plan or a run record to SVG, HTML and text; neither knows how to draw itself."""

# pyright: reportUnusedImport=false
from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.lazy_names import lazy_names

if TYPE_CHECKING:
    from agent_magic.show.bundles import advice_page, bundle_of, trial_page
    from agent_magic.show.cards import context_card, declaration_card, declarations_card, plan_picture
    from agent_magic.show.charts.timeline import run_timeline
    from agent_magic.show.estimates import estimate_page, outlay_line, price_line
    from agent_magic.show.explore import Choice, Explorer, Panel, answering
    from agent_magic.show.frames import frame_text
    from agent_magic.show.graph import cards_layout, digraph, picture, static_bundle
    from agent_magic.show.graph.groups import sheet_of
    from agent_magic.show.graph.layout import Layout
    from agent_magic.show.graph.layout import warm as warm_layout
    from agent_magic.show.graph.scene import node_view, scene_of
    from agent_magic.show.graph.timeline import Shades
    from agent_magic.show.live import details_of, make_live_view
    from agent_magic.show.live.feed import Feed
    from agent_magic.show.notes import budget_note, capped_note, closing, context_notes, ledger_notes, races_note
    from agent_magic.show.page import Page, columns_of
    from agent_magic.show.run_page import pack_run
    from agent_magic.show.states import STATES, states_of
    from agent_magic.show.terminal import LineView, groups_of
    from agent_magic.show.text import listed, one_line, plan_text, run_line, run_text
    from agent_magic.show.theme import INKS, Theme
    from agent_magic.show.values import Markdown, result_bundle, texts_html

__getattr__ = lazy_names(
    __name__,
    {
        "Choice": "agent_magic.show.explore",
        "Explorer": "agent_magic.show.explore",
        "Feed": "agent_magic.show.live.feed",
        "INKS": "agent_magic.show.theme",
        "Layout": "agent_magic.show.graph.layout",
        "LineView": "agent_magic.show.terminal",
        "Markdown": "agent_magic.show.values",
        "Page": "agent_magic.show.page",
        "Panel": "agent_magic.show.explore",
        "STATES": "agent_magic.show.states",
        "Shades": "agent_magic.show.graph.timeline",
        "Theme": "agent_magic.show.theme",
        "advice_page": "agent_magic.show.bundles",
        "answering": "agent_magic.show.explore",
        "budget_note": "agent_magic.show.notes",
        "bundle_of": "agent_magic.show.bundles",
        "capped_note": "agent_magic.show.notes",
        "cards_layout": "agent_magic.show.graph",
        "closing": "agent_magic.show.notes",
        "columns_of": "agent_magic.show.page",
        "context_card": "agent_magic.show.cards",
        "context_notes": "agent_magic.show.notes",
        "declaration_card": "agent_magic.show.cards",
        "declarations_card": "agent_magic.show.cards",
        "details_of": "agent_magic.show.live",
        "digraph": "agent_magic.show.graph",
        "estimate_page": "agent_magic.show.estimates",
        "frame_text": "agent_magic.show.frames",
        "groups_of": "agent_magic.show.terminal",
        "ledger_notes": "agent_magic.show.notes",
        "listed": "agent_magic.show.text",
        "make_live_view": "agent_magic.show.live",
        "node_view": "agent_magic.show.graph.scene",
        "one_line": "agent_magic.show.text",
        "outlay_line": "agent_magic.show.estimates",
        "pack_run": "agent_magic.show.run_page",
        "picture": "agent_magic.show.graph",
        "plan_picture": "agent_magic.show.cards",
        "plan_text": "agent_magic.show.text",
        "price_line": "agent_magic.show.estimates",
        "races_note": "agent_magic.show.notes",
        "result_bundle": "agent_magic.show.values",
        "run_line": "agent_magic.show.text",
        "run_text": "agent_magic.show.text",
        "run_timeline": "agent_magic.show.charts.timeline",
        "scene_of": "agent_magic.show.graph.scene",
        "sheet_of": "agent_magic.show.graph.groups",
        "states_of": "agent_magic.show.states",
        "static_bundle": "agent_magic.show.graph",
        "texts_html": "agent_magic.show.values",
        "trial_page": "agent_magic.show.bundles",
        "warm_layout": "agent_magic.show.graph.layout:warm",
    },
)
