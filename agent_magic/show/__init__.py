"""Views: functions from a plan or a run record to SVG, HTML and text; neither knows how to draw itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.lazy_names import lazy_names

if TYPE_CHECKING:
    from agent_magic.show.bundles import bundle_of
    from agent_magic.show.cards import context_card, declaration_card, declarations_card
    from agent_magic.show.graph.layout import warm as warm_layout
    from agent_magic.show.notes import ledger_notes
    from agent_magic.show.text import listed
    from agent_magic.show.values import texts_html

__all__ = [
    "bundle_of",
    "context_card",
    "declaration_card",
    "declarations_card",
    "ledger_notes",
    "listed",
    "texts_html",
    "warm_layout",
]

__getattr__ = lazy_names(
    __name__,
    {
        "bundle_of": "agent_magic.show.bundles",
        "context_card": "agent_magic.show.cards",
        "declaration_card": "agent_magic.show.cards",
        "declarations_card": "agent_magic.show.cards",
        "ledger_notes": "agent_magic.show.notes",
        "listed": "agent_magic.show.text",
        "texts_html": "agent_magic.show.values",
        "warm_layout": "agent_magic.show.graph.layout:warm",
    },
)
