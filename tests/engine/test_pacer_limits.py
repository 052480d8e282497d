"""What a user says of limits, which models share them, and what headers say: oddities included."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magic.engine.pacing.limits import DIMENSIONS, HEADER_OF, PREFIX, Limits, Reading, class_of, read_headers
from agent_magic.engine.pacing.pacer import Hold, Pacer
from agent_magic.errors import DeclarationError

DATE = "Sat, 21 Nov 2026 10:00:00 GMT"


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("claude-opus-4-5-20251101", "claude-opus-4"),
        ("claude-opus-4-8", "claude-opus-4"),
        ("claude-opus-4-1", "claude-opus-4-1"),
        ("claude-opus-5", "claude-opus-5"),
        ("claude-opus-5-5", "claude-opus-5-5"),
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4"),
        ("claude-sonnet-4-6", "claude-sonnet-4"),
        ("claude-sonnet-4-20250514", "claude-sonnet-4"),
        ("claude-sonnet-5", "claude-sonnet-5"),
        ("claude-sonnet-5-5", "claude-sonnet-5-5"),
        ("claude-fable-5", "claude-fable-5"),
        ("claude-fable-5-2", "claude-fable-5"),
        ("claude-haiku-4-5-20251001", "claude-haiku-4-5"),
        ("claude-haiku-4-5@20251001", "claude-haiku-4-5"),
        ("my-own-model", "my-own-model"),
        ("", ""),
    ],
)
def test_models_share_a_class_where_the_page_says_so(model, name):
    """Documented pools are one class; whatever else there is, is its own."""
    assert name == class_of(model)


def test_documented_headers_are_read():
    """Limit, remaining and the seconds until the bucket is full, for each of the three."""
    headers = {"date": DATE}
    for number, name in enumerate(HEADER_OF.values(), start=1):
        headers[f"{PREFIX}{name}-limit"] = str(number * 1_000)
        headers[f"{PREFIX}{name}-remaining"] = str(number * 100)
        headers[f"{PREFIX}{name}-reset"] = f"2026-11-21T10:00:0{number}Z"
    assert tuple(Reading(n * 1_000.0, n * 100.0, float(n)) for n in (1, 2, 3)) == read_headers(headers)


def requests_of(**parts: str) -> Reading | None:
    """Read headers of the requests' limit."""
    date = {"date": parts.pop("date")} if "date" in parts else {}
    return read_headers(date | {f"{PREFIX}requests-{name}": text for name, text in parts.items()})[0]


@pytest.mark.parametrize(
    ("parts", "reading"),
    [
        ({}, None),
        ({"remaining": "5"}, None),
        ({"limit": "0", "remaining": "5"}, None),
        ({"limit": "-3"}, None),
        ({"limit": "nan"}, None),
        ({"limit": "inf"}, None),
        ({"limit": "1e30"}, None),
        ({"limit": "many"}, None),
        ({"limit": "60"}, Reading(60.0)),
        ({"limit": "60", "remaining": "-1"}, Reading(60.0)),
        ({"limit": "60", "remaining": "lots"}, Reading(60.0)),
        ({"limit": "60", "remaining": "61"}, Reading(60.0, 60.0)),
        ({"limit": "60", "remaining": "0"}, Reading(60.0, 0.0)),
        ({"limit": "60", "reset": "2026-11-21T10:00:30Z"}, Reading(60.0)),
        ({"limit": "60", "reset": "2026-11-21T10:00:30Z", "date": DATE}, Reading(60.0, None, 30.0)),
        ({"limit": "60", "reset": "2026-11-21T12:00:30+02:00", "date": DATE}, Reading(60.0, None, 30.0)),
        ({"limit": "60", "reset": "2026-11-21T10:00:30", "date": DATE}, Reading(60.0)),
        ({"limit": "60", "reset": "2026-11-20T10:00:30Z", "date": DATE}, Reading(60.0)),
        ({"limit": "60", "reset": "2027-11-21T10:00:30Z", "date": DATE}, Reading(60.0)),
        ({"limit": "60", "reset": "soon", "date": DATE}, Reading(60.0)),
        ({"limit": "60", "reset": "2026-11-21T10:00:30Z", "date": "today"}, Reading(60.0)),
    ],
)
def test_what_makes_no_sense_counts_as_not_said(parts, reading):
    """A server, a proxy or a recording may send anything."""
    assert reading == requests_of(**parts)


NAMES = st.sampled_from(
    ["date", *(f"{PREFIX}{n}-{w}" for n in HEADER_OF.values() for w in ("limit", "remaining", "reset"))]
)


@given(st.dictionaries(NAMES, st.text(max_size=30)))
def test_no_header_is_an_error(headers):
    """Reading gives sensible numbers or nothing."""
    for reading in read_headers(headers):
        assert reading is None or reading.limit > 0
        assert reading is None or reading.remaining is None or 0 <= reading.remaining <= reading.limit


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
@pytest.mark.parametrize("option", ["requests", "input_tokens", "output_tokens", "burst_s"])
def test_a_limit_that_cannot_work_is_refused_with_its_name(option, value):
    """The message shows the option and the value."""
    with pytest.raises(DeclarationError, match=option):
        Limits(**{option: value})


def test_there_are_three_limits():
    """Requests, uncached input, output."""
    assert ("requests", "input", "output") == DIMENSIONS


def test_a_limit_of_which_little_is_ever_seen_is_used():
    """A bucket below the grain of the headers always shows nothing: small requests leave at the rate all the same."""
    pacer, now, left = Pacer(seed=1), 0.0, []
    headers = {
        "anthropic-ratelimit-input-tokens-limit": "6000",
        "anthropic-ratelimit-input-tokens-remaining": "0",
    }
    while now < 20.0:
        answer = pacer.ask("m", 25, 10, now)
        if isinstance(answer, Hold):
            now = answer.until_s
            continue
        left.append(now)
        pacer.heard(answer, headers, now)
        pacer.finished(answer, 25, 10, now)
    assert len(left) * 25 > 0.8 * 20 * 100
