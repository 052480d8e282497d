"""Real runs at several concurrencies beside their forecasts."""

# Tests hand over wrong types on purpose, and take for granted what they have just checked.
# pyright: reportArgumentType=false
# pyright: reportOperatorIssue=false
# pyright: reportOptionalOperand=false
# pyright: reportOptionalMemberAccess=false

from __future__ import annotations

import asyncio

from agent_magic import Policy
from agent_magic.api import Run
from agent_magic.forecast import make_sweep
from agent_magic.forecast.calibration import SWEEP
from tests.declare.examples import E3
from tests.measure.test_path import run_of


def swept(slots, work=E3.work_s):
    """Sweep the fifteen agents on a virtual clock."""

    async def run(policy):
        return Run(await asyncio.to_thread(run_of, E3.parents, work, policy))  # a virtual loop of its own

    return asyncio.run(make_sweep(run, slots, Policy()))


def test_each_run_beside_its_forecast():
    """Where nothing varies, the forecast from the first run is what the others take; speedup is measured at 1."""
    found = swept([1, 2, 6])
    frame = found.frame
    assert [29.0, 17.0, 9.0] == list(frame["wall_s"]) == list(frame["forecast_s"])
    assert [0.0, 0.0, 0.0] == list(frame["wall_error"])
    assert [1.0, 29 / 17, 29 / 9] == list(frame["speedup"])
    assert [1, 2, 6] == list(frame["concurrency"])
    assert SWEEP == {name: str(kind) for name, kind in frame.dtypes.items()}
    assert 3 == len(found.runs)
    assert "Sweep: 3 runs" in repr(found)


def test_without_a_run_at_one_there_is_no_speedup():
    """It would be a guess."""
    assert swept([2, 6]).frame["speedup"].isna().all()
