"""Views: functions from a plan or a run record to SVG, HTML and text; neither knows how to draw itself."""

# pyright: reportUnusedImport=false
from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.lazy_names import lazy_names

if TYPE_CHECKING:
    from agent_magic.show.bundles import bundle_of
    from agent_magic.show.cards import context_card, declaration_card, declarations_card, plan_picture
    from agent_magic.show.charts.timeline import run_timeline
    from agent_magic.show.explore import Choice, Explorer
    from agent_magic.show.frames import frame_text
    from agent_magic.show.graph import cards_layout, picture, static_bundle
    from agent_magic.show.graph.layout import warm as warm_layout
    from agent_magic.show.graph.scene import scene_of
    from agent_magic.show.live import details_of
    from agent_magic.show.live.feed import Feed
    from agent_magic.show.notes import capped_note, ledger_notes
    from agent_magic.show.text import listed, run_text
    from agent_magic.show.theme import INKS
    from agent_magic.show.values import texts_html

__getattr__ = lazy_names(
    __name__,
    {
        "Choice": "agent_magic.show.explore",
        "Explorer": "agent_magic.show.explore",
        "Feed": "agent_magic.show.live.feed",
        "INKS": "agent_magic.show.theme",
        "bundle_of": "agent_magic.show.bundles",
        "capped_note": "agent_magic.show.notes",
        "cards_layout": "agent_magic.show.graph",
        "context_card": "agent_magic.show.cards",
        "declaration_card": "agent_magic.show.cards",
        "declarations_card": "agent_magic.show.cards",
        "details_of": "agent_magic.show.live",
        "frame_text": "agent_magic.show.frames",
        "ledger_notes": "agent_magic.show.notes",
        "listed": "agent_magic.show.text",
        "picture": "agent_magic.show.graph",
        "plan_picture": "agent_magic.show.cards",
        "run_text": "agent_magic.show.text",
        "run_timeline": "agent_magic.show.charts.timeline",
        "scene_of": "agent_magic.show.graph.scene",
        "static_bundle": "agent_magic.show.graph",
        "texts_html": "agent_magic.show.values",
        "warm_layout": "agent_magic.show.graph.layout:warm",
    },
)
