"""Views: functions from a plan or a run record to SVG, HTML and text; neither knows how to draw itself."""

# pyright: reportUnusedImport=false
from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.lazy_names import lazy_names

if TYPE_CHECKING:
    from agent_magic.show import explore, live
    from agent_magic.show.asking import DOUBT, asked_text, limit_of, ways_of
    from agent_magic.show.bundles import advice_page, bundle_of, trial_page
    from agent_magic.show.cards import (
        attachments_card,
        context_card,
        declaration_card,
        declarations_card,
        plan_picture,
        prompt_words,
    )
    from agent_magic.show.charts.comparison import comparison_chart
    from agent_magic.show.charts.dashboard import run_dashboard
    from agent_magic.show.charts.front import check_by, front_chart
    from agent_magic.show.charts.limits import run_limits
    from agent_magic.show.charts.timeline import run_timeline
    from agent_magic.show.charts.tradeoff import run_tradeoff
    from agent_magic.show.charts.waterfall import run_waterfall
    from agent_magic.show.displays import Progress
    from agent_magic.show.estimates import estimate_page, headline, outlay_line, price_line
    from agent_magic.show.explore import Choice, Explorer, Panel, answering
    from agent_magic.show.frames import frame_bundle, frame_text, to_take
    from agent_magic.show.graph import cards_layout, digraph, picture, static_bundle
    from agent_magic.show.graph.groups import sheet_of
    from agent_magic.show.graph.layout import Layout
    from agent_magic.show.graph.layout import warm as warm_layout
    from agent_magic.show.graph.scene import node_view, scene_of
    from agent_magic.show.graph.timeline import Shades
    from agent_magic.show.live import details_of, make_live_view
    from agent_magic.show.live.feed import Around, Feed
    from agent_magic.show.notes import (
        REJECTED,
        budget_note,
        capped_note,
        closing,
        context_notes,
        ending_notes,
        ledger_notes,
        races_note,
        replayed_files_note,
    )
    from agent_magic.show.page import Page, columns_of
    from agent_magic.show.run_page import pack_run, write_page
    from agent_magic.show.states import STATES, states_of
    from agent_magic.show.terminal import Lines, LineView, StillView, TableView, groups_of, terminal_view
    from agent_magic.show.text import forecast_words, listed, one_line, plan_text, run_line, run_text
    from agent_magic.show.theme import INKS, Theme
    from agent_magic.show.values import AnswerView, Markdown, answer_page, result_bundle, texts_html

__getattr__ = lazy_names(
    __name__,
    {
        "AnswerView": "agent_magic.show.values",
        "Around": "agent_magic.show.live.feed",
        "Choice": "agent_magic.show.explore",
        "DOUBT": "agent_magic.show.asking",
        "Explorer": "agent_magic.show.explore",
        "Feed": "agent_magic.show.live.feed",
        "INKS": "agent_magic.show.theme",
        "Layout": "agent_magic.show.graph.layout",
        "LineView": "agent_magic.show.terminal",
        "Lines": "agent_magic.show.terminal",
        "Markdown": "agent_magic.show.values",
        "Page": "agent_magic.show.page",
        "Panel": "agent_magic.show.explore",
        "Progress": "agent_magic.show.displays",
        "REJECTED": "agent_magic.show.notes",
        "STATES": "agent_magic.show.states",
        "Shades": "agent_magic.show.graph.timeline",
        "StillView": "agent_magic.show.terminal",
        "TableView": "agent_magic.show.terminal",
        "Theme": "agent_magic.show.theme",
        "advice_page": "agent_magic.show.bundles",
        "answer_page": "agent_magic.show.values",
        "answering": "agent_magic.show.explore",
        "asked_text": "agent_magic.show.asking",
        "attachments_card": "agent_magic.show.cards",
        "budget_note": "agent_magic.show.notes",
        "bundle_of": "agent_magic.show.bundles",
        "capped_note": "agent_magic.show.notes",
        "cards_layout": "agent_magic.show.graph",
        "check_by": "agent_magic.show.charts.front",
        "closing": "agent_magic.show.notes",
        "columns_of": "agent_magic.show.page",
        "comparison_chart": "agent_magic.show.charts.comparison",
        "context_card": "agent_magic.show.cards",
        "context_notes": "agent_magic.show.notes",
        "declaration_card": "agent_magic.show.cards",
        "declarations_card": "agent_magic.show.cards",
        "details_of": "agent_magic.show.live",
        "digraph": "agent_magic.show.graph",
        "ending_notes": "agent_magic.show.notes",
        "estimate_page": "agent_magic.show.estimates",
        "explore": "agent_magic.show.explore:",
        "forecast_words": "agent_magic.show.text",
        "frame_bundle": "agent_magic.show.frames",
        "frame_text": "agent_magic.show.frames",
        "front_chart": "agent_magic.show.charts.front",
        "groups_of": "agent_magic.show.terminal",
        "headline": "agent_magic.show.estimates",
        "ledger_notes": "agent_magic.show.notes",
        "limit_of": "agent_magic.show.asking",
        "listed": "agent_magic.show.text",
        "live": "agent_magic.show.live:",
        "make_live_view": "agent_magic.show.live",
        "node_view": "agent_magic.show.graph.scene",
        "one_line": "agent_magic.show.text",
        "outlay_line": "agent_magic.show.estimates",
        "pack_run": "agent_magic.show.run_page",
        "picture": "agent_magic.show.graph",
        "plan_picture": "agent_magic.show.cards",
        "plan_text": "agent_magic.show.text",
        "price_line": "agent_magic.show.estimates",
        "prompt_words": "agent_magic.show.cards",
        "races_note": "agent_magic.show.notes",
        "replayed_files_note": "agent_magic.show.notes",
        "result_bundle": "agent_magic.show.values",
        "run_dashboard": "agent_magic.show.charts.dashboard",
        "run_limits": "agent_magic.show.charts.limits",
        "run_line": "agent_magic.show.text",
        "run_text": "agent_magic.show.text",
        "run_timeline": "agent_magic.show.charts.timeline",
        "run_tradeoff": "agent_magic.show.charts.tradeoff",
        "run_waterfall": "agent_magic.show.charts.waterfall",
        "scene_of": "agent_magic.show.graph.scene",
        "sheet_of": "agent_magic.show.graph.groups",
        "states_of": "agent_magic.show.states",
        "static_bundle": "agent_magic.show.graph",
        "terminal_view": "agent_magic.show.terminal",
        "texts_html": "agent_magic.show.values",
        "to_take": "agent_magic.show.frames",
        "trial_page": "agent_magic.show.bundles",
        "warm_layout": "agent_magic.show.graph.layout:warm",
        "ways_of": "agent_magic.show.asking",
        "write_page": "agent_magic.show.run_page",
    },
)
