"""What keeping every answer on the disk does to the event loop: how late it gets while answers come in.

Plans of agents side by side, over HTTP against a server that answers at once, without a ledger and with one on the
disk. The answers count as bought, so each waits for the disk before anybody sees it. `late` is how much later than
asked a sleep of 2 ms ends on the loop of the run: what a click or another stream would have waited.

Run it with `python -m benchmarks.ledger`.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from statistics import quantiles

from agent_magic.api import Agent, Claude, Ledger, Plan, Policy
from benchmarks.instant_server import instant_server
from benchmarks.measuring import print_heading, print_table

PROBE_S = 0.002
CASES = {
    "1,000 answers of 10 events, 100 at once": ("whole/10", 1000, 100),
    "100 answers of 10 million characters, 100 at once": ("large/10", 100, 100),
    "100 answers of 10 million characters, 8 at once": ("large/10", 100, 8),
}


@contextlib.asynccontextmanager
async def probed(late_s: list[float]) -> AsyncGenerator[None]:
    """Note how late the loop is, again and again."""

    async def probe() -> None:
        while True:
            asked = time.monotonic() + PROBE_S
            await asyncio.sleep(PROBE_S)
            late_s.append(time.monotonic() - asked)

    task = asyncio.create_task(probe())
    try:
        yield
    finally:
        task.cancel()


async def measure(address: str, agents: int, concurrency: int, ledger: Ledger | None) -> tuple[float, list[float]]:
    """Run a plan; return its seconds and how late the loop was."""
    plan = Plan([Agent(f"a{one}", f"question {one}") for one in range(agents)])
    client, late_s = Claude(base_url=address, api_key="x"), list[float]()
    async with client.open():
        await Plan([Agent("warm", "up")]).run(client=client)
        began = time.monotonic()
        async with probed(late_s):
            run = await plan.run(Policy(concurrency), client=client, ledger=ledger)
        took_s = time.monotonic() - began
    if not run.ok:
        run.raise_for_failures()
    return took_s, late_s


def main() -> None:
    """Print the table."""
    wanted = sys.argv[1:]
    print_heading("Ledger", "One run each. `late` in milliseconds: median, 99th percentile, most.")
    rows: list[tuple[object, ...]] = []
    with instant_server() as address, tempfile.TemporaryDirectory() as folder:
        for number, (name, (path, agents, concurrency)) in enumerate(CASES.items()):
            if wanted and str(number) not in wanted:
                continue
            for kept in (False, True):
                ledger = Ledger(Path(folder) / f"{number}.sqlite3") if kept else None
                took_s, late_s = asyncio.run(measure(f"{address}/{path}", agents, concurrency, ledger))
                cuts = quantiles(late_s, n=100, method="inclusive")
                late = (f"{value * 1000:.1f}" for value in (cuts[49], cuts[98], max(late_s)))
                rows.append((f"{name}, {'ledger' if kept else 'none'}", f"{took_s:.2f}", *late))
                if ledger is not None:
                    ledger.close()
    print_table(("answers", "seconds", "late, median", "99 %", "most"), rows)


if __name__ == "__main__":
    main()
