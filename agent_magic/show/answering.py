"""Answers the what-ifs of a page: opens the run that `run_page` packed, and answers choices as JSON.

`widgets/src/ask.js` starts Pyodide in a worker, and passes the answers to the panel that notebooks use.
"""

from __future__ import annotations

import base64
import json
import warnings
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from agent_magic.declare.edges import PlanWarning
from agent_magic.declare.plan import Plan
from agent_magic.declare.plan_json import plan_from_dict
from agent_magic.forecast.forecast import Forecaster
from agent_magic.providers.recorded import recorded_run
from agent_magic.record.cassette.reading import read_cassette
from agent_magic.record.codec import from_json
from agent_magic.record.prices import Prices, Tariff
from agent_magic.show.explore import Controls, Explorer

if TYPE_CHECKING:
    from collections.abc import Callable


def open_packed(packed: str) -> Forecaster:
    """Open what `pack_run` packed; raise `AgentMagicError` if it is of another version."""
    data = json.loads(zlib.decompress(base64.b64decode(packed)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PlanWarning)  # they were shown when it ran
        plan = plan_from_dict(data["plan"], Plan)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "run.cassette.jsonl"
        file.write_text(data["recording"], encoding="utf-8")
        recorded = read_cassette(file).runs[0]
    listed = from_json(dict[str, tuple[Tariff, str]], data["prices"])
    return Forecaster(recorded_run(plan, recorded), prices=Prices(listed=listed, tell=lambda _: None))


def answering(packed: str) -> Callable[[str], str]:
    """Return a function from a choice to the displayed data, as JSON; an empty text asks for the controls."""
    controls = Controls(Explorer(open_packed(packed)))

    def answer(asked: str) -> str:
        first = {"setup": controls.setup, "shown": controls.shown}
        return json.dumps(controls.choose(json.loads(asked)) if asked else first)

    return answer
