"""What headers say of rate limits: oddities included."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magic.engine.pacing.limits import Reading
from agent_magic.providers.anthropic.limits import HEADER_OF, PREFIX, read_headers

DATE = "Sat, 21 Nov 2026 10:00:00 GMT"


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
