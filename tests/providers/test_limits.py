"""What headers say of rate limits: oddities included."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magic.engine.pacing.limits import Reading
from agent_magic.providers.anthropic.limits import HEADER_OF, PREFIX, read_headers


def test_documented_headers_are_read():
    """Limit and remaining, for each of the three."""
    headers: dict[str, str] = {}
    for number, name in enumerate(HEADER_OF.values(), start=1):
        headers[f"{PREFIX}{name}-limit"] = str(number * 1_000)
        headers[f"{PREFIX}{name}-remaining"] = str(number * 100)
    assert tuple(Reading(n * 1_000.0, n * 100.0) for n in (1, 2, 3)) == read_headers(headers)


def requests_of(**parts: str) -> Reading | None:
    """Read headers of the requests' limit."""
    return read_headers({f"{PREFIX}requests-{name}": text for name, text in parts.items()})[0]


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
    for reading in read_headers(headers):
        assert reading is None or reading.limit > 0
        assert reading is None or reading.remaining is None or 0 <= reading.remaining <= reading.limit
