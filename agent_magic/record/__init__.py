"""What happened, kept."""

# pyright: reportUnusedImport=false
from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.lazy_names import lazy_names

if TYPE_CHECKING:
    from agent_magic.record.answer import NOTHING_USED, Answer, Price, Source, Usage
    from agent_magic.record.cassette.reading import ENDING as CASSETTE_ENDING
    from agent_magic.record.cassette.reading import TEXT_ENDING as CASSETTE_TEXT_ENDING
    from agent_magic.record.cassette.reading import checked, read_cassette
    from agent_magic.record.cassette.writing import only_hash, write_cassette
    from agent_magic.record.codec import from_json, line_of, to_json
    from agent_magic.record.events import (
        TICKS_PER_S,
        AgentEnded,
        AgentReady,
        AgentReopened,
        AttemptEnded,
        AttemptStarted,
        BackoffStarted,
        CallEnded,
        CallStarted,
        Event,
        FirstToken,
        RunEnded,
        on_grid,
    )
    from agent_magic.record.facts import Attempt
    from agent_magic.record.history import History, Past, answers_of
    from agent_magic.record.ledger.base import Busy
    from agent_magic.record.ledger.file import LedgerFile
    from agent_magic.record.ledger.lease import Owner
    from agent_magic.record.ledger.store import SqliteLedger
    from agent_magic.record.phases import phases_of, spans_of
    from agent_magic.record.prices import Prices, PriceWarning, saved_usd
    from agent_magic.record.request import Message, Request
    from agent_magic.record.results import AgentResult, RunRecord
    from agent_magic.record.secret_scan import masked, not_allowed, scan_text, secrets_of
    from agent_magic.record.terms import Ceiling, ModelFacts

__getattr__ = lazy_names(
    __name__,
    {
        "AgentEnded": "agent_magic.record.events",
        "AgentReady": "agent_magic.record.events",
        "AgentReopened": "agent_magic.record.events",
        "AgentResult": "agent_magic.record.results",
        "Answer": "agent_magic.record.answer",
        "Attempt": "agent_magic.record.facts",
        "AttemptEnded": "agent_magic.record.events",
        "AttemptStarted": "agent_magic.record.events",
        "BackoffStarted": "agent_magic.record.events",
        "Busy": "agent_magic.record.ledger.base",
        "CASSETTE_ENDING": "agent_magic.record.cassette.reading:ENDING",
        "CASSETTE_TEXT_ENDING": "agent_magic.record.cassette.reading:TEXT_ENDING",
        "CallEnded": "agent_magic.record.events",
        "CallStarted": "agent_magic.record.events",
        "Ceiling": "agent_magic.record.terms",
        "Event": "agent_magic.record.events",
        "FirstToken": "agent_magic.record.events",
        "History": "agent_magic.record.history",
        "LedgerFile": "agent_magic.record.ledger.file",
        "Message": "agent_magic.record.request",
        "ModelFacts": "agent_magic.record.terms",
        "NOTHING_USED": "agent_magic.record.answer",
        "Owner": "agent_magic.record.ledger.lease",
        "Past": "agent_magic.record.history",
        "Price": "agent_magic.record.answer",
        "PriceWarning": "agent_magic.record.prices",
        "Prices": "agent_magic.record.prices",
        "Request": "agent_magic.record.request",
        "RunEnded": "agent_magic.record.events",
        "RunRecord": "agent_magic.record.results",
        "Source": "agent_magic.record.answer",
        "SqliteLedger": "agent_magic.record.ledger.store",
        "TICKS_PER_S": "agent_magic.record.events",
        "Usage": "agent_magic.record.answer",
        "answers_of": "agent_magic.record.history",
        "checked": "agent_magic.record.cassette.reading",
        "from_json": "agent_magic.record.codec",
        "line_of": "agent_magic.record.codec",
        "masked": "agent_magic.record.secret_scan",
        "not_allowed": "agent_magic.record.secret_scan",
        "on_grid": "agent_magic.record.events",
        "only_hash": "agent_magic.record.cassette.writing",
        "phases_of": "agent_magic.record.phases",
        "read_cassette": "agent_magic.record.cassette.reading",
        "saved_usd": "agent_magic.record.prices",
        "scan_text": "agent_magic.record.secret_scan",
        "secrets_of": "agent_magic.record.secret_scan",
        "spans_of": "agent_magic.record.phases",
        "to_json": "agent_magic.record.codec",
        "write_cassette": "agent_magic.record.cassette.writing",
    },
)
