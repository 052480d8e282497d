"""A live session on this Python: cells of a notebook, run by IPython against the mock server in the same process.

Runs under Pyodide, by `live.mjs`. Each step prints its name, and asserts what must be true where there are neither
threads nor processes nor sockets.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

SHELL: Any = InteractiveShell.instance()
LEDGER = "runs.sqlite3"
FUNCTIONS = '''
import time
import agent_magic as am

@am.task
def numbers() -> list[int]:
    return [1, 2, 3]

@am.tool
def look(what: str) -> str:
    """Look something up."""
    return f"{what}: 42"

@am.tool(main=True, timeout=5)
def here(what: str) -> str:
    """Look something up on the loop's thread."""
    return "seen"

@am.task(process=True)
def far() -> int:
    return 1
'''


async def cell(text: str, *, fails: str = "") -> str:
    """Run a cell as a notebook does. Returns what it prints and shows; what it raises must hold `fails`."""
    with capture_output() as said:
        done = await SHELL.run_cell_async(text, transformed_cell=SHELL.transform_cell(text), store_history=True)
    error = done.error_in_exec or done.error_before_exec
    if fails:
        assert fails in str(error), (text, str(error))
    elif error is not None:
        raise AssertionError(f"{text}\n{said.stdout}") from error
    return said.stdout + "".join(str(one.data.get("text/plain", "")) for one in said.outputs)


async def runs_and_reuses() -> None:
    """Agents are asked, with a retry; the ledger keeps what was bought, and a second run costs nothing."""
    await cell("%load_ext agent_magic")
    assert "mock server" in await cell("%agents connect simulator --latency x0.05")
    await cell(f"%config AgentMagics.ledger = '{LEDGER}'\n%config AgentMagics.reuse_simulated = True")
    await cell("%%agent claims\nName three claims. [[tokens:60]] [[status:529 times=1]]")
    await cell("%%agent advert --model claude-sonnet-5-5\nWrite with these: {{ claims }} [[tokens:80]]")
    assert "about $" in await cell("%agents plan")
    await cell("first = %agents run\nsecond = %agents run")
    first, second = SHELL.user_ns["first"], SHELL.user_ns["second"]
    assert [one.status for one in first.record.attempts] == ["failed", "succeeded", "succeeded"]
    assert first.totals.cost_usd > 0
    assert (second.totals.cost_usd, second.totals.succeeded) == (0, 2)
    assert first["advert"].text == second["advert"].text
    assert Path(LEDGER).stat().st_size > 0  # noqa: ASYNC240 - nothing else runs


async def reads_and_shares() -> None:
    """Forecast, pictures, an honest word where pandas is missing, a recording that replays."""
    run = SHELL.user_ns["first"]
    assert run.forecast(concurrency=1).totals.wall_s > 0
    assert "<svg" in run.timeline().bundle()["image/svg+xml"]
    assert "<svg" in run.bundle()["image/svg+xml"]
    await cell("first.agents", fails="pandas cannot be loaded here")
    assert "replayed in this page" in await cell("%agents share shared.cassette.txt --last --anywhere")
    await cell("%agents replay shared.cassette.txt\nagain = %agents run")
    assert SHELL.user_ns["again"]["advert"].text == run["advert"].text


async def calls_functions() -> None:
    """Tasks and tools are called on the loop; what needs a process says so."""
    await cell(FUNCTIONS)
    await cell("%agents connect simulator --latency none")
    calls = '[[tool:look {"what": "a"}]] [[tool@2:here {"what": "b"}]]'
    await cell(f"%%agent asks --tools look,here\n{calls} Sum {{{{ numbers }}}}")
    await cell("t = %agents run asks")
    record = SHELL.user_ns["t"].record
    assert ["succeeded"] * 3 == [one.status for result in record.results for one in result.calls]
    await cell("%%agent late\nSay {{ far }}.")
    await cell("p = %agents run late")
    assert "a browser's Python starts none" in str(SHELL.user_ns["p"]["far"].error)


async def stops() -> None:
    """Stop ends a run in the background at once."""
    await cell("%agents connect simulator")
    SHELL.kernel = SimpleNamespace()  # as in a notebook: the run is shown live
    await cell("%%agent long --plan s\nWrite at length. [[ttft:60]]")
    await cell("%agents start --plan s")
    await cell("%agents stop\ns = %agents wait")
    assert SHELL.user_ns["s"]["long"].status == "cancelled"


async def refuses() -> None:
    """What cannot be is refused in a sentence, before anything is sent."""
    await cell("%agents connect dask", fails="needs a process of its own")
    await cell("%agents mcp files npx files", fails="needs a process of its own")
    await cell("%%time\n%agents run", fails="cannot be entered")
    await cell("%agents connect api")
    SHELL.user_ns["os"] = __import__("os")
    await cell("os.environ['ANTHROPIC_API_KEY'] = 'sk-none'\n%agents run", fails="no place for a key")


async def main() -> None:
    """Run every step."""
    SHELL.run_line_magic("colors", "nocolor")
    for step in (runs_and_reuses, reads_and_shares, calls_functions, stops, refuses):
        await step()
        print("passed", step.__name__, file=sys.stderr)
