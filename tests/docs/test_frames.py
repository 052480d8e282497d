"""The reference of frames against the code: which there are, their columns, dtypes, units and meanings."""

from __future__ import annotations

import ast
import asyncio
import importlib
import pkgutil
from collections.abc import Mapping
from typing import Any, Final

import pytest

import agent_magic as am
from agent_magic import forecast, measure, record
from agent_magic.api import Run
from agent_magic.forecast.estimate.value import Estimate
from agent_magic.measure import Trial
from tests.docs.test_site import load
from tests.house.source import ROOT
from tests.show.story import finished_run, layered_plan

reference: Final = load("tools/reference")
columns: Final = load("tools/columns")
DTYPES: Final = {"string", "Float64", "Int64", "bool", "boolean", "object", "datetime64[s, UTC]"}
NO_FRAMES: Final = {
    "measure.each.DTYPES",  # of typed answers, by their schema
    "measure.each.OF_ASKED",  # some of those of one agent
    "measure.each.OF_SEVERAL",  # three of those of one agent
    "measure.frames.DTYPES",  # of every column
    "forecast.whatif.ASKED",  # of arguments, which are columns under their own names
}
HOLDERS: Final = ("api/reading.py", "api/run.py", "api/plan.py", "api/ledger.py", "forecast/estimate/value.py")
"""The classes whose frames a user gets."""
FOUND: Final = {"whatif", "judge", "score", "would_alert"}
"""Methods that are said beside another one, or with arguments."""


def is_dtype(value: object) -> bool:
    """Whether it is the dtype of a column."""
    return isinstance(value, str) and value in DTYPES


def declared() -> dict[str, Mapping[str, str]]:
    """Return every table of columns that the package declares, by module and name."""
    found: dict[str, Mapping[str, str]] = {}
    for package in (measure, forecast, record):
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            for name, value in vars(importlib.import_module(info.name)).items():
                if name.isupper() and isinstance(value, Mapping) and value and all(map(is_dtype, value.values())):
                    found[f"{info.name.removeprefix('agent_magic.')}.{name}"] = value
    return found


def own(tables: Mapping[str, Mapping[str, str]]) -> set[str]:
    """Leave out what a module has imported from another."""
    first: dict[int, str] = {}
    for name in sorted(tables, key=lambda one: (one.rpartition(".")[0] != "measure.frames", one)):
        source = (ROOT / "agent_magic" / (name.rpartition(".")[0].replace(".", "/") + ".py")).read_text("utf-8")
        if f"\n{name.rpartition('.')[2]}" in source:
            first.setdefault(id(tables[name]), name)
    return set(first.values())


def test_every_table_of_columns_is_a_frame_of_the_reference() -> None:
    """What the package declares is explained, and nothing else is."""
    explained = {frame.table for frame in columns.FRAMES if not frame.table.endswith("OF_EACH")}
    assert explained == own(declared()) - NO_FRAMES


def test_every_column_has_a_meaning_and_none_is_left_over() -> None:
    """Each column of each frame says what it is; a meaning without a column is stale."""
    meanings, used = reference.Meanings(), set[str]()
    for frame in columns.FRAMES:
        for column in (*reference.columns_of(frame), *frame.further.split()):
            assert meanings.of(column, frame), f"{frame.said}: {column}"
            own_name = f"{frame.table.rpartition('.')[2]}.{column}"
            used.add(own_name if own_name in columns.MEANINGS else column)
    assert set() == set(columns.MEANINGS) - used


def test_every_frame_that_a_public_name_returns_is_said() -> None:
    """Properties and methods that return a `DataFrame` are among the headings."""
    said = " ".join(frame.said for frame in columns.FRAMES)
    for holder in HOLDERS:
        tree = ast.parse((ROOT / "agent_magic" / holder).read_text(encoding="utf-8"))
        for one in [each for held in ast.walk(tree) if isinstance(held, ast.ClassDef) for each in held.body]:
            if not isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) or one.name.startswith("_"):
                continue
            if one.returns is not None and ast.unparse(one.returns) == "pd.DataFrame" and one.name not in FOUND:
                assert f".{one.name}" in said, f"{holder}: {one.name}"
    assert {"agents", "whatif"} <= set(dir(Estimate))
    assert {"frame", "pairs"} <= set(dir(Trial))


@pytest.fixture(scope="module")
def run() -> Run:
    """A run whose frames are looked at."""
    return Run(finished_run(layered_plan(6, 2)))


FRAMES: Final[Mapping[str, Any]] = {
    "run.agents": lambda run: run.agents,
    "run.attempts": lambda run: run.attempts,
    "run.tool_calls": lambda run: run.tool_calls,
    "run.layers": lambda run: run.layers,
    "run.summary": lambda run: run.summary,
    "run.events": lambda run: run.events,
    "run.contexts": lambda run: run.contexts,
    "run.savings": lambda run: run.savings,
    "run.critical_path().frame": lambda run: run.critical_path().frame,
    "run.percentiles()": lambda run: run.percentiles(),
    "run.utilization()": lambda run: run.utilization(),
    "run.slo()": lambda run: run.slo(),
    "run.dead": lambda run: run.dead,
    "run.kernel": lambda run: run.kernel,
    "run.scores": lambda run: run.scores,
    "am.compare(a, b).frame": lambda run: am.compare(run, run).frame,
    "am.calibration(a, b)": am.calibration,
    "run.advise().frame": lambda run: run.advise().frame,
    "plan.estimate().agents": lambda run: am.Plan(run.record.plan.agents, run.record.plan.values).estimate().agents,
    "plan.scenarios()": lambda run: am.Plan(run.record.plan.agents, run.record.plan.values).scenarios(rpm=50),
    "plan.todo()": lambda run: am.Plan(run.record.plan.agents, run.record.plan.values).todo(),
    "am.capacity(...).frame": lambda _: am.capacity(50, requests=2).frame,
    "am.tiers(...).frame": lambda _: am.tiers(5, seconds_per_job=10, requests=1).frame,
}


@pytest.mark.parametrize("said", FRAMES)
def test_a_frame_has_the_columns_and_dtypes_that_are_told(run: Run, said: str) -> None:
    """What a user gets is what the reference says, in its order; what is there only at times is told too."""
    (frame,) = (one for one in columns.FRAMES if one.said == said)
    found = FRAMES[said](run)
    told = {**reference.columns_of(frame), **{one: reference.further_dtype(one) for one in frame.further.split()}}
    assert {name: str(dtype) for name, dtype in found.dtypes.items()} == {name: told[name] for name in found.columns}
    assert [one for one in reference.columns_of(frame) if one not in found.columns] == []


def test_a_whatif_has_its_arguments_first(run: Run) -> None:
    """A column per argument, then those that are told."""
    (frame,) = (one for one in columns.FRAMES if one.said == "run.whatif(...)")
    found = run.whatif(concurrency=[1, 2], cache="off")
    assert ["concurrency", "cache", *reference.columns_of(frame)] == list(found.columns)


def test_the_answers_of_rows_stand_before_what_is_told() -> None:
    """`run.each` has the answers, then the columns of the reference."""
    plan = am.Plan([am.Agent("label", "Read {{ item }}", each="rows")], {"rows": ["a", "b"]})
    with am.Simulator(latency="fast") as server:
        done = asyncio.run(plan.run(client=am.Claude(base_url=server.url, api_key="any")))
    (frame,) = (one for one in columns.FRAMES if one.said.startswith("run.each"))
    assert ["answer", *reference.columns_of(frame)] == list(done.each("label").columns)
