"""Facts of requests: one attempt of each kind, and which facts it belongs to."""

from __future__ import annotations

import pytest

from agent_magic.record import (
    NOTHING_USED,
    Answer,
    Attempt,
    AttemptEnded,
    AttemptStarted,
    Price,
    Request,
    Source,
    Usage,
)
from agent_magic.record.answer import NOT_BILLED, PAID_BEFORE, SHARED
from agent_magic.record.facts import Facts, overlap

CENT, UNKNOWN = Price(0.01, "given"), Price(None, "unknown")
COUNTED, GUESSED = Usage(10, output_tokens=5), Usage(10, output_tokens=5, estimated=True)


def attempt(
    *,
    answer: Answer | None = None,
    kind: str | None = None,
    usage: Usage | None = COUNTED,
    price: Price = CENT,
    source: Source = "live",
) -> Attempt:
    """An attempt that took a second."""
    error = f"{kind}: x" if kind else None
    ended = AttemptEnded(1.0, 0, 1, answer, error, kind, "", usage, price, source if answer else None, None)
    return Attempt("a", AttemptStarted(0.0, 0, 1, 0.0, "", Request("m", "x", 10)), 0.0, ended=ended)


TEXT = Answer("text", "end_turn", usage=COUNTED, model="m", request_id="r")
BATCHED = Answer("text", "end_turn", usage=COUNTED, model="m", request_id="r", batch="b")
KINDS = {
    "running": (
        Attempt("a", AttemptStarted(0.0, 0, 1, 0.0, "", Request("m", "x", 10)), 0.0),
        {"sent", "running"},
    ),
    "answered": (attempt(answer=TEXT), {"sent", "answered", "timed", "ended", "succeeded"}),
    "guessed": (attempt(answer=TEXT, usage=GUESSED), {"sent", "answered", "timed", "ended", "succeeded", "estimated"}),
    "unpriced": (attempt(answer=TEXT, price=UNKNOWN), {"sent", "answered", "timed", "ended", "succeeded", "unpriced"}),
    "batched": (attempt(answer=BATCHED), {"sent", "answered", "batched", "ended", "succeeded"}),
    "from the ledger": (
        attempt(answer=BATCHED, price=PAID_BEFORE, source="ledger", usage=GUESSED),
        {"paid_before", "ended", "succeeded"},
    ),
    "shared": (attempt(answer=BATCHED, price=SHARED, source="shared"), {"shared", "ended", "succeeded"}),
    "unsure": (attempt(answer=TEXT, kind="Escalated"), {"sent", "answered", "timed", "ended"}),
    "refused": (
        attempt(kind="RateLimited", usage=NOTHING_USED, price=NOT_BILLED),
        {"sent", "ended", "failed", "rate_limited"},
    ),
    "broken off": (attempt(kind="Unreachable", usage=None, price=UNKNOWN), {"sent", "ended", "failed", "unpriced"}),
    "cancelled": (attempt(kind="cancelled", usage=None, price=NOT_BILLED), {"sent", "ended"}),
}
PARTS = sorted({part for _, parts in KINDS.values() for part in parts})


@pytest.mark.parametrize("part", PARTS)
def test_each_part_has_its_attempts_in_order(part):
    """Each part holds the attempts of its definition and no other, in the order of the run."""
    facts = Facts([one for one, _ in KINDS.values()])
    assert [name for name, (_, parts) in KINDS.items() if part in parts] == [
        next(name for name, (each, _) in KINDS.items() if each is one) for one in getattr(facts, part)
    ]


def test_sources_tell_of_attempts_without_answer():
    """The sources of all answers, and `None` for an attempt that has none."""
    assert {"live", "ledger", "shared", None} == Facts([one for one, _ in KINDS.values()]).sources
    assert set() == Facts([]).sources


def test_columns_have_a_value_per_attempt_and_sums_skip_what_is_not_known():
    """Costs keep unknown ones as `None`; tokens, seconds and spans are of those that have them."""
    facts = Facts([KINDS[name][0] for name in ("running", "answered", "shared", "refused", "broken off")])
    assert [None, 0.01, 0.0, 0.0, None] == facts.costs_usd
    assert [COUNTED, COUNTED, NOTHING_USED] == facts.usages
    assert 4.0 == facts.api_s
    assert [(0.0, 1.0)] * 3 == facts.spans
    assert {None, "RateLimited", "Unreachable"} == facts.kinds


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([], (0, 0.0)),
        ([(0.0, 1.0), (1.0, 2.0)], (1, 2.0)),
        ([(0.0, 3.0), (1.0, 2.0), (5.0, 6.0)], (2, 4.0)),
    ],
)
def test_spans_that_touch_do_not_overlap(spans, expected):
    """The most spans at once, and the seconds that at least one covers."""
    assert expected == overlap(spans)
