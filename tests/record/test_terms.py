"""What a file says of the terms of its run is checked: a forecast of it works, or says what is wrong."""

from __future__ import annotations

import contextlib
import json
import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import agent_magic as am
from agent_magic import Limits
from agent_magic.engine import Pacer
from agent_magic.errors import AgentMagicError
from agent_magic.record import checked, line_of
from tests.live.virtual import Reply, drive

PLAN = am.Plan([am.Agent("a", "say a"), am.Agent("b", "after {{ a }}")])
HOSTILE = (
    None,
    True,
    "x",
    "",
    [],
    [1],
    {},
    {"x": 1},
    0,
    -1,
    -1.5,
    0.0,
    1e-300,
    1e300,
    1 << 52,
    [[]],
    {"": []},
    ["auto"],
)


def made():
    """A record whose terms say all that terms can say."""
    pacer = Pacer({"claude-haiku-5-5": Limits(requests=120, input_tokens=10_000, output_tokens=5_000)})
    for _ in range(2):
        record, _ = drive(PLAN, lambda *_: Reply(0.5, tokens=(10, 5, 0, 0)), am.Policy(seed=3), pacer=pacer)
    assert record.terms is not None
    assert record.terms.learned
    return record


def parts(data: object, *way: str | int):
    """Every place in plain data."""
    yield way
    if isinstance(data, dict | list):
        for name, value in data.items() if isinstance(data, dict) else enumerate(data):
            yield from parts(value, *way, name)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """The lines of a cassette without their checksums, and its terms."""
    path = tmp_path_factory.mktemp("terms") / "run.cassette.jsonl"
    am.Run(made()).save(path)
    found = [json.loads(row) for row in path.read_text().splitlines()]
    for row in found:
        row.pop("check", None)
    return {"rows": found, "terms": next(row["terms"] for row in found if "terms" in row)}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=300)
@given(data=st.data())
def test_hostile_terms_break_no_forecast(rows, tmp_path, data):
    """Whatever stands in place of a part of the terms: a forecast of the replay is finite, or an error of ours."""
    ways = [way for way in parts(rows["terms"]) if way]
    path = changed(rows, tmp_path, data.draw(st.sampled_from(ways)), data.draw(st.sampled_from(HOSTILE)))
    with contextlib.suppress(AgentMagicError):
        assert math.isfinite(PLAN.replay(path).forecast(concurrency=1).totals.wall_s or 0.0)


def test_a_seed_that_is_a_list(rows, tmp_path):
    """Such a policy counts as not recorded: the forecast says that it follows from the run's times."""
    found = PLAN.replay(changed(rows, tmp_path, ("policy", "seed"), [1, 2])).forecast(concurrency=1)
    assert found.record.forecast is not None
    assert "its policy was not recorded" in found.record.forecast.assumed


def changed(rows, folder, way, value):
    """Write the cassette with another value at one place of its terms, and return its path."""
    path, rows = folder / "changed.cassette.jsonl", json.loads(json.dumps(rows))
    *ways, last = way
    place = rows["terms"]
    for step in ways:
        place = place[step]
    place[last] = value
    lines = [{**row, "terms": rows["terms"]} if "terms" in row else row for row in rows["rows"]]
    path.write_text("".join(f"{line_of(checked(row))}\n" for row in lines))
    return path
