"""Every picture has an accessible name that says what it shows, with its numbers."""

from __future__ import annotations

import inspect
import re
from xml.etree import ElementTree as ET

import pytest

import agent_magic as am
from agent_magic.show import Choice, Explorer, plan_picture
from tests.live.virtual import Reply, drive

PLAN = am.Plan([am.Agent("one", "x"), am.Agent("two", "y"), am.Agent("sum", "{{ one }} {{ two }}")])


@pytest.fixture(scope="module")
def run():
    """A run whose agents worked."""
    record, *_ = drive(PLAN, lambda *_: Reply(2.0, tokens=(1000, 500, 0, 0)))
    return am.Run(record)


def pictures(run) -> dict[str, str]:
    """Draw every picture there is, by name."""
    frame = run.whatif(concurrency=[1, 2])
    comparison = am.compare(run, run)
    charts = {name: getattr(run, name) for name in charts_of(am.Run)}
    charts["tradeoff"] = lambda: run.tradeoff(frame)
    charts |= {f"compare.{name}": getattr(comparison, name) for name in charts_of(type(comparison))}
    charts["am.tradeoff"] = lambda: am.tradeoff(frame)
    found = {name: draw() for name, draw in charts.items()}
    assert {"timeline", "waterfall", "limits_chart", "dashboard", "tradeoff", "compare.chart"} < found.keys()
    assert all(one.spec["description"] for one in found.values())
    return {
        **{name: one.svg for name, one in found.items()},
        "run": run.bundle()["image/svg+xml"],
        "plan": PLAN._repr_mimebundle_()["image/svg+xml"],
        "plan before it runs": plan_picture(PLAN)["image/svg+xml"],
        "explorer": Explorer(run.forecaster()).answer(Choice()).bundle["image/svg+xml"],
    }


def charts_of(kind: type) -> list[str]:
    """Name the public methods that return a chart: one that is added is looked at too."""
    public = [name for name in dir(kind) if not name.startswith("_") and inspect.isfunction(getattr(kind, name))]
    return [name for name in public if "Chart" in str(inspect.signature(getattr(kind, name)).return_annotation)]


def test_each_has_a_role_and_a_name_with_numbers(run):
    """The name is that of the whole picture: its parts are not read out one by one."""
    for name, svg in pictures(run).items():
        root = ET.fromstring(re.sub(r"^<\?xml.*?\?>", "", svg))
        assert "img" == root.get("role"), name
        said = root.get("aria-label") or ""
        assert re.search(r"\d", said), f"{name}: {said!r}"
        assert not re.search(r"None|nan|<", said), f"{name}: {said!r}"
