"""F40: a process that ends behind runs which failed, were late and were cut: nothing is left to complain about."""

from __future__ import annotations

import subprocess
import sys

from agent_magic.simulator import child

SCRIPT = """
import asyncio, sys
import agent_magic as am

async def main(url):
    asyncio.get_running_loop().slow_callback_duration = 60  # how fast is not the question
    client = am.Claude(base_url=url, api_key="a-key-of-a-test")
    faults = ["[[status:529]]", "[[status:400]]", "[[fault:clean_end]]", "[[fault:hang]]"]
    prompts = ["fine", *faults, "{{ a0 }}", "{{ a2 }}"]
    limits_s = [1.0 if "hang" in prompt else 60.0 for prompt in prompts]
    agents = [am.Agent(f"a{n}", prompt, timeout_s=limits_s[n]) for n, prompt in enumerate(prompts)]
    run = await am.Plan(agents).run(am.Policy(8, max_attempts=2), client=client)
    print(sorted(set(run.agents["status"])))
    cut = asyncio.create_task(am.Plan([am.Agent("slow", "[[fault:hang]]")]).run(client=client))
    await asyncio.sleep(0.3)
    cut.cancel()
    await asyncio.wait([cut])
    print("cut" if cut.cancelled() else cut.exception())
    left = asyncio.all_tasks() - {asyncio.current_task()}
    print("left", len(left))

asyncio.run(main(sys.argv[1]))
"""


def test_nothing_is_left_to_complain_about():
    """Every warning is an error, the loop is in debug mode: not a line on the error stream, not a task left."""
    with child.start(latency="none") as simulator:
        words = [sys.executable, "-X", "dev", "-W", "error::ResourceWarning", "-c", SCRIPT, simulator.url]
        done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)
    assert ["['failed', 'skipped', 'succeeded']", "cut", "left 0"] == done.stdout.splitlines()
    assert "" == done.stderr
    assert 0 == done.returncode
