"""What happened, kept."""

# pyright: reportUnusedImport=false
from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.lazy_names import lazy_names

if TYPE_CHECKING:
    from agent_magic.record.answer import NOTHING_USED, Answer, Price, Usage
    from agent_magic.record.cassette.reading import read_cassette
    from agent_magic.record.cassette.writing import write_cassette
    from agent_magic.record.codec import from_json, to_json
    from agent_magic.record.events import (
        AgentEnded,
        AgentReady,
        AgentReopened,
        AttemptEnded,
        AttemptStarted,
        BackoffStarted,
        Event,
        FirstToken,
        RunEnded,
        on_grid,
    )
    from agent_magic.record.history import History, Past, answers_of
    from agent_magic.record.ledger.base import Busy
    from agent_magic.record.ledger.file import LedgerFile
    from agent_magic.record.prices import Prices, PriceWarning
    from agent_magic.record.request import Message, Request
    from agent_magic.record.results import AgentResult, RunRecord
    from agent_magic.record.secret_scan import scan_text
    from agent_magic.record.terms import Ceiling, ModelFacts

__getattr__ = lazy_names(
    __name__,
    {
        "AgentEnded": "agent_magic.record.events",
        "AgentReady": "agent_magic.record.events",
        "AgentReopened": "agent_magic.record.events",
        "AgentResult": "agent_magic.record.results",
        "Answer": "agent_magic.record.answer",
        "AttemptEnded": "agent_magic.record.events",
        "AttemptStarted": "agent_magic.record.events",
        "BackoffStarted": "agent_magic.record.events",
        "Busy": "agent_magic.record.ledger.base",
        "Ceiling": "agent_magic.record.terms",
        "Event": "agent_magic.record.events",
        "FirstToken": "agent_magic.record.events",
        "History": "agent_magic.record.history",
        "LedgerFile": "agent_magic.record.ledger.file",
        "Message": "agent_magic.record.request",
        "ModelFacts": "agent_magic.record.terms",
        "NOTHING_USED": "agent_magic.record.answer",
        "Past": "agent_magic.record.history",
        "Price": "agent_magic.record.answer",
        "PriceWarning": "agent_magic.record.prices",
        "Prices": "agent_magic.record.prices",
        "Request": "agent_magic.record.request",
        "RunEnded": "agent_magic.record.events",
        "RunRecord": "agent_magic.record.results",
        "Usage": "agent_magic.record.answer",
        "answers_of": "agent_magic.record.history",
        "from_json": "agent_magic.record.codec",
        "on_grid": "agent_magic.record.events",
        "read_cassette": "agent_magic.record.cassette.reading",
        "scan_text": "agent_magic.record.secret_scan",
        "to_json": "agent_magic.record.codec",
        "write_cassette": "agent_magic.record.cassette.writing",
    },
)
