"""The ledger in memory: what is served again, and what is not."""

# Tests hand over wrong types on purpose, and take for granted what they have just checked.
# pyright: reportOptionalMemberAccess=false

from __future__ import annotations

import pytest

from agent_magic.record.answer import Answer, Usage
from agent_magic.record.ledger import MemoryLedger


def answer(text="x", **more):
    """An answer, with what matters to the test."""
    return Answer(text, **{"stop_reason": "end_turn", "usage": Usage(1, output_tokens=2), "model": "m", **more})


def test_an_answer_is_served_again_as_from_the_ledger():
    """The same text and tokens, with another source."""
    ledger = MemoryLedger()
    ledger.keep("k", 0, answer())
    assert answer(source="ledger") == ledger.find("k", 0)
    assert 1 == len(ledger)


def test_repeated_requests_are_served_in_order():
    """The first answer goes to the first of equal requests, the second to the second; a third is bought."""
    ledger = MemoryLedger()
    ledger.keep("k", 1, answer("second"))
    ledger.keep("k", 0, answer("first"))
    assert ["first", "second"] == [ledger.find("k", one).text for one in range(2)]
    assert ledger.find("k", 2) is None
    assert ledger.find("other", 0) is None


def test_buying_again_replaces():
    """A fresh answer takes the place of the one before."""
    ledger = MemoryLedger()
    ledger.keep("k", 0, answer("old"))
    ledger.keep("k", 0, answer("new"))
    assert "new" == ledger.find("k", 0).text


NEVER = {
    "refusal": {"stop_reason": "refusal"},
    "cut": {"stop_reason": "max_tokens"},
    "out of window": {"stop_reason": "model_context_window_exceeded"},
    "paused": {"stop_reason": "pause_turn"},
    "simulated": {"source": "simulated"},
    "from the ledger": {"source": "ledger"},
    "replayed": {"source": "replay"},
}


@pytest.mark.parametrize("more", NEVER.values(), ids=NEVER)
def test_what_is_never_served_again(more):
    """Refusals, cut answers and what was not bought live are not kept."""
    ledger = MemoryLedger()
    ledger.keep("k", 0, answer(**more))
    assert ledger.find("k", 0) is None
    assert 0 == len(ledger)


@pytest.mark.parametrize("reason", ["end_turn", "stop_sequence", "tool_use"])
def test_whole_answers_are_kept(reason):
    """An answer that ended by itself is kept, and so is an empty one."""
    ledger = MemoryLedger()
    ledger.keep("k", 0, answer("", stop_reason=reason))
    assert "" == ledger.find("k", 0).text
