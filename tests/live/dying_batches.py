"""A child that is killed at one step of a batch; forked from a process that has loaded everything.

    python -m tests.live.dying_batches URL FOLDER [together]

Kills a run at each step, runs it again, and prints per step how many requests the run that was killed had sent, how
many batches there are in all, and which prompts were bought twice.
"""

# Tests take for granted what they have just checked.
# pyright: reportOptionalMemberAccess=false

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import urllib.request
from collections import Counter
from pathlib import Path

import agent_magic as am
from agent_magic.live import batching
from agent_magic.live.batching import Batcher
from agent_magic.providers import MessageBatches
from agent_magic.record import Prices
from agent_magic.record.ledger.batches import BatchBook
from agent_magic.record.ledger.journal import SqliteJournal

AGENTS = 8
SETTLED_S = 1.0


def plan_of(step):
    """A layer of agents, and one that waits for them."""
    return am.Plan(
        [am.Agent("a", f"{step}: {{{{ item }}}}", each="rows"), am.Agent("sum", "Sum up {{ a }}")],
        {"rows": [*"abcdefgh"]},
    )


def die_after(owner, name, times=1):
    """Kill this process when a method has returned for the last of so many times."""
    method, left = getattr(owner, name), Counter({name: times})

    def count():
        left[name] -= 1
        if not left[name]:
            os.kill(os.getpid(), signal.SIGKILL)

    async def awaited(*given):
        found = await method(*given)
        count()
        return found

    def called(*given, **more):
        found = method(*given, **more)
        count()
        return found

    setattr(owner, name, awaited if asyncio.iscoroutinefunction(method) else called)


KILLS = {
    "planned": lambda: die_after(BatchBook, "plan"),
    "created": lambda: die_after(MessageBatches, "create"),
    "sent": lambda: die_after(BatchBook, "sent"),
    "looked": lambda: die_after(MessageBatches, "state"),
    "read": lambda: die_after(Batcher, "_read"),
    "kept one": lambda: die_after(SqliteJournal, "keep"),
    "kept some": lambda: die_after(SqliteJournal, "keep", AGENTS // 2),
    "second planned": lambda: die_after(BatchBook, "plan", 2),
    "second created": lambda: die_after(MessageBatches, "create", 2),
    "over": lambda: die_after(BatchBook, "over"),
}
"""What kills a run at each step."""


def run(url, path, step, done=None):
    """Run the plan of a step; write down what came of it."""
    batching.SETTLED_S = SETTLED_S
    ledger = am.Ledger(path, reuse_simulated=True)
    client = am.Claude(base_url=url, api_key="x")
    found = asyncio.run(plan_of(step).run(am.Policy(batch=True), client=client, ledger=ledger))
    if done is not None:
        open_ = len(ledger.batches.open())
        done.write_text(json.dumps({"ok": found.ok, "open": open_, "notes": ledger.notes}))
    ledger.close()


def child(work):
    """Do something in a forked process; return how that ended."""
    pid = os.fork()
    if not pid:
        try:
            work()
            os._exit(0)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the parent is told
            sys.stderr.write(f"{error!r}\n")
            os._exit(1)
    return os.waitpid(pid, 0)[1]


def sent(url):
    """Return what is in each batch that the server has."""
    with urllib.request.urlopen(f"{url}/simulator/log") as page:
        return [one["custom_ids"] for one in json.loads(page.read())["batches"]]


def kill_and_run_again(url, folder, step):
    """Kill a run at a step, and run it again."""
    path, done, before = folder / f"{step}.sqlite3", folder / f"{step}.json", len(sent(url))

    def dying():
        KILLS[step]()
        run(url, path, step)

    killed = child(dying)
    at_kill = [len(names) for names in sent(url)[before:]]
    again = child(lambda: run(url, path, step, done))
    names = Counter(name for part in sent(url)[before:] for name in part)
    return {
        "step": step,
        "killed": killed == signal.SIGKILL,
        "at_kill": at_kill,
        "sizes": [len(part) for part in sent(url)[before:]],
        "twice": [name for name, count in names.items() if count > 1],
        "again": again,
        **json.loads(done.read_text()),
    }


def main():
    """Kill at every step."""
    url, folder = sys.argv[1], Path(sys.argv[2])
    am.Claude().warm_up()  # the children are forked with all of it loaded
    Prices().find("claude-haiku-5-5")
    plan_of("x")
    if "together" in sys.argv:
        run(url, folder / "shared.sqlite3", "together", done := folder / f"{os.getpid()}.json")
        print(done.read_text())
        return
    print(json.dumps([kill_and_run_again(url, folder, step) for step in KILLS]))


if __name__ == "__main__":
    main()
