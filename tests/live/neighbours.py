"""Kernels on one key: processes that run a plan of many requests with one ledger, and say how it went.

    python -m tests.live.neighbours URL LEDGER NAME AGENTS SHARED [KEY]

Prints a line when it begins to send and one JSON object at the end.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

import agent_magic as am
from agent_magic import Policy


async def run(url, path, name, agents, shared, key="x"):
    """Run so many agents; each asks something of its own."""
    plan = am.Plan([am.Agent(f"a{one}", f"[[tokens:20]] {name} {one}") for one in range(agents)])
    with_ledger = am.Ledger(Path(path))
    try:
        policy = Policy(200, shared=shared, max_attempts=20)
        driver = am.start(plan, policy, client=am.Claude(base_url=url, api_key=key), ledger=with_ledger)
        print("begun", flush=True)
        began_s = time.time()
        record = await driver.drive()
        refused = sum(one.kind == "RateLimited" for one in record.attempts)
        ended_s = [one.ended_s for one in record.attempts if one.status == "succeeded"]
        times = [at_s + began_s for at_s in ended_s if at_s is not None]
        succeeded = sum(one.status == "succeeded" for one in record.results)
        print(json.dumps({"succeeded": succeeded, "refused": refused, "sent": len(record.attempts), "times": times}))
    finally:
        with_ledger.close()


if __name__ == "__main__":
    URL, LEDGER, NAME, AGENTS, SHARED, *KEY = sys.argv[1:]
    asyncio.run(run(URL, LEDGER, NAME, int(AGENTS), SHARED, *KEY))
