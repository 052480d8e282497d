"""What headers say of rate limits: oddities included."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magic.engine import NO_READINGS, Reading, Readings
from agent_magic.providers import read_headers
from agent_magic.providers.anthropic.errors import HEADER_OF, PREFIX, named_limit, with_sentence


def test_documented_headers_are_read():
    """Limit and remaining, for each of the three."""
    headers: dict[str, str] = {}
    for number, name in enumerate(HEADER_OF.values(), start=1):
        headers[f"{PREFIX}{name}-limit"] = str(number * 1_000)
        headers[f"{PREFIX}{name}-remaining"] = str(number * 100)
    expected = {kind: Reading(n * 1_000.0, n * 100.0) for n, kind in enumerate(HEADER_OF, start=1)}
    assert expected == read_headers(headers)


def requests_of(**parts: str) -> Reading | None:
    """Read headers of the requests' limit."""
    return read_headers({f"{PREFIX}requests-{name}": text for name, text in parts.items()}).get("requests")


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
    ],
)
def test_what_makes_no_sense_counts_as_not_said(parts, reading):
    """A server, a proxy or a recording may send anything."""
    assert reading == requests_of(**parts)


NAMES = st.sampled_from([f"{PREFIX}{n}-{w}" for n in HEADER_OF.values() for w in ("limit", "remaining")])


@given(st.dictionaries(NAMES, st.text(max_size=30)))
def test_no_header_is_an_error(headers):
    """Reading gives sensible numbers or nothing."""
    for reading in read_headers(headers).values():
        assert reading.limit > 0
        assert reading.remaining is None or 0 <= reading.remaining <= reading.limit


@pytest.mark.parametrize(
    ("sentence", "name", "per_minute"),
    [
        ("would exceed your organization's rate limit of 30,000 input tokens per minute", "input", 30_000),
        ("exceed the rate limit for your organization of 50 requests per minute", "requests", 50),
        ("your rate limit of 8,000 output tokens per minute", "output", 8_000),
        ("Number of requests has exceeded your rate limit", "requests", None),
        ("Too many. Come back later.", None, None),
    ],
)
def test_the_sentence_of_a_429_names_the_limit(sentence, name, per_minute):
    """It may be the first that is heard of a limit, where no header tells it."""
    assert name == named_limit(sentence)
    assert ({name: Reading(per_minute)} if per_minute else {}) == with_sentence(NO_READINGS, sentence)


def test_headers_are_believed_over_the_sentence():
    """They say what is left too."""
    told: Readings = {"input": Reading(40_000.0, 1_000.0)}
    assert told == with_sentence(told, "rate limit of 30,000 input tokens per minute")
