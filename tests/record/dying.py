"""Children that are killed, or interrupted, while they run a plan; forked from a process that has loaded everything.

    python -m tests.record.dying kill URL LEDGER TRIALS SEED
    python -m tests.record.dying interrupt URL LEDGER TRIALS SEED
    python -m tests.record.dying twice URL LEDGER TRIALS SEED
    python -m tests.record.dying together URL LEDGER AGENTS SECONDS [plain|busy|ahead|behind]
    python -m tests.record.dying limited URL LEDGER AGENTS 0
    python -m tests.record.dying full URL LEDGER AGENTS 0

Prints one JSON object. Each trial begins a new plan on the same ledger when the last one is done, so that every trial
hits a run in some state.
"""

# Tests take for granted what they have just checked.
# pyright: reportOptionalMemberAccess=false

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import signal
import sys
import time
import urllib.request
from pathlib import Path

import agent_magic as am
from agent_magic import Policy
from agent_magic.live import interruptible
from agent_magic.record.ledger import journal as store_journal
from agent_magic.record.ledger import lease as store_lease
from tests.record.lateness import Timer

AGENTS = 12
LEASE_S = 2.0
CLEANUP_S = 5.0
LINGER_S = 0.4
ENOUGH_S = 0.5
DAY_S = 86400.0
CONCURRENCY = 6


def plan_of(generation):
    """Two layers of calls that take some hundredths of a second each."""
    first = [
        am.Agent(f"a{one}", f"[[ttft:0.02]] [[tokens:12]] [[pace:300]] plan {generation} question {one}")
        for one in range(AGENTS)
    ]
    second = [
        am.Agent(f"b{one}", f"[[ttft:0.01]] [[tokens:8]] [[pace:300]] plan {generation} of {one}: {{{{ a{one} }}}}")
        for one in range(AGENTS)
    ]
    return am.Plan([*first, *second])


async def run_once(url, path, generation, shown=None):
    """Run the plan of a generation; what was bought before comes from the ledger.

    Args:
        url: The server.
        path: The ledger.
        generation: Which plan.
        shown: A file descriptor that is told each answer as soon as anybody can see it.
    """
    ledger = am.Ledger(path, reuse_simulated=True)
    client = am.Claude(base_url=url, api_key="x")
    driver = am.start(plan_of(generation), Policy(concurrency=CONCURRENCY), client=client, ledger=ledger)
    telling = asyncio.create_task(tell(driver.record, generation, shown)) if shown is not None else None
    try:
        await driver.drive()
    finally:
        if telling is not None:
            telling.cancel()
            say(driver.record, generation, shown, set())
        ledger.close()
    return driver.record


async def tell(record, generation, shown):
    """Say at once what has succeeded."""
    said = set()
    while True:
        say(record, generation, shown, said)
        await asyncio.sleep(0.001)


def say(record, generation, shown, said):
    """Say what has succeeded since."""
    for result in record.results:
        if result.status == "succeeded" and result.name not in said:
            said.add(result.name)
            os.write(shown, f"{generation} {result.name}\n".encode())


def requests_of(url):
    """What reached the server."""
    with urllib.request.urlopen(f"{url}/simulator/log") as reply:
        return [one for one in json.load(reply)["requests"] if one["route"] == "/v1/messages"]


def asked(url):
    """Count the requests of each agent of each generation."""
    found = {}
    for one in requests_of(url):
        generation, kind, number = re.search(r"plan (\d+) (question|of) (\d+)", one["prompt"]).groups()
        name = f"{generation} {'a' if kind == 'question' else 'b'}{number}"
        found[name] = found.get(name, 0) + 1
    return found


class Child:
    """A forked process, and what it has said."""

    def __init__(self, work):
        self._reader, writer = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.close(self._reader)
            status = 1
            try:
                status = work(writer)
            finally:
                os._exit(status)
        os.close(writer)

    def end(self):
        """Wait for it; return its status and the lines it said."""
        _, status = os.waitpid(self.pid, 0)
        said = b"".join(iter(lambda: os.read(self._reader, 65536), b""))
        os.close(self._reader)
        return os.waitstatus_to_exitcode(status), said.decode().splitlines()


class Watch:
    """How often everything had been asked for when it was shown."""

    def __init__(self, url):
        self._url = url
        self._shown = {}

    def add(self, names):
        """Take in what was shown, and what was asked for until then: the dead may have sent what is still unread."""
        requests_of(self._url)
        now = asked(self._url)
        for name in names:
            self._shown.setdefault(name, now.get(name, 0))

    def asked_again(self):
        """Count what was asked for again although it had been shown."""
        now = asked(self._url)
        return sum(now[name] - times for name, times in self._shown.items())

    def has_all(self, generation):
        """Tell whether all answers of a generation were shown."""
        return sum(name.startswith(f"{generation} ") for name in self._shown) == 2 * AGENTS

    def __len__(self):
        return len(self._shown)


def measured_s(url, path):
    """Return how long a run takes here and now, from its child's first step on, so that instants fall into it."""
    began = time.monotonic()
    Child(lambda _: asyncio.run(run_once(url, f"{path}.warm", 1)) and 0).end()
    return time.monotonic() - began


def finish(url, path, generations):
    """Run every plan to its end."""
    for generation in range(generations):
        status, _ = Child(lambda _, now=generation: asyncio.run(run_once(url, path, now)) and 0).end()
        assert status == 0


def killed(url, path, trials, rng, longest_s):
    """Kill children at random instants, as long as little was shown more often: a machine may become busier meanwhile.

    A generation that came to its end makes room for the next.
    """
    generation = kills = 0
    watch = Watch(url)
    while kills < trials or len(watch) <= AGENTS:
        child = Child(lambda shown, now=generation: asyncio.run(run_once(url, path, now, shown)) and 0)
        time.sleep(rng.uniform(0.0, longest_s))
        os.kill(child.pid, signal.SIGKILL)
        status, shown = child.end()
        assert status in {0, -signal.SIGKILL}, f"a child ended with {status}"
        watch.add(shown)
        kills += status == -signal.SIGKILL
        generation += status == 0
    finish(url, path, generation + 1)
    return {"kills": kills, "generations": generation + 1, "shown": len(watch), "again": watch.asked_again()}


def interrupted(url, path, trials, rng, longest_s):
    """Interrupt children at random instants; each lives on for a moment, in which nothing may be sent.

    A machine may become busier or freer meanwhile: where many children came to their end first, more are tried.
    """
    generation = cut = late = tried = 0
    watch = Watch(url)

    async def work(shown, now):
        try:
            os.write(shown, b"ready\n")
            await interruptible(run_once(url, path, now, shown))
        except KeyboardInterrupt:
            before = len(requests_of(url))
            await asyncio.sleep(0.05)
            os.write(shown, f"late {len(requests_of(url)) - before}\n".encode())
            return 7
        return 0

    while tried < trials or (cut <= trials // 4 and tried < 5 * trials):
        tried += 1
        child = Child(lambda shown, now=generation: asyncio.run(work(shown, now)))
        time.sleep(rng.uniform(0.02, longest_s))
        os.kill(child.pid, signal.SIGINT)
        status, said = child.end()
        assert status in {0, 1, 7, -signal.SIGINT}, f"a child ended with {status}"
        watch.add([line for line in said if line[0].isdigit()])
        late += sum(int(line.split()[1]) for line in said if line.startswith("late"))
        cut += status == 7
        generation += status == 0
    finish(url, path, generation + 1)
    return {"cut": cut, "late": late, "generations": generation + 1, "shown": len(watch), "again": watch.asked_again()}


def interrupted_twice(url, path, trials, rng, longest_s):
    """Interrupt children twice, half of them while something of theirs cleans up slowly.

    More are tried where few were cut or caught cleaning up: a machine may become busier or freer meanwhile.
    """
    generation = slow = tried = 0
    waits_s, over = [], 0
    watch = Watch(url)

    async def work(now, shown, *, slowly):
        try:
            await run_once(url, path, now, shown)
        finally:
            if slowly:
                await asyncio.sleep(CLEANUP_S)

    def child_of(now, *, slowly):
        def begin(shown):
            try:
                try:
                    asyncio.run(interruptible(work(now, shown, slowly=slowly)))
                finally:
                    os.write(shown, f"ended {time.monotonic()}\n".encode())
                    time.sleep(LINGER_S)  # in which the second one comes, if the first was quick
            except KeyboardInterrupt:
                return 7
            return 0

        return Child(begin)

    few = trials // 4
    while tried < trials or ((len(waits_s) <= few or slow <= few // 2) and tried < 5 * trials):
        tried += 1
        slowly = rng.random() < 0.5
        child = child_of(generation, slowly=slowly)
        time.sleep(rng.uniform(0.02, longest_s))
        os.kill(child.pid, signal.SIGINT)
        time.sleep(0.1)
        os.kill(child.pid, signal.SIGINT)
        second_s, timer = time.monotonic(), Timer()
        status, said = child.end()
        timer.end()
        assert status in {0, 1, 7, -signal.SIGINT}, f"a child ended with {status}"
        watch.add([line for line in said if line[0].isdigit()])
        ends = [float(line.split()[1]) for line in said if line.startswith("ended")]
        if status == 7 and ends:
            waits_s.append(max(0.0, ends[0] - second_s))
            slow += waits_s[-1] > 0
            over += waits_s[-1] - timer.late_s(ends[0]) > ENOUGH_S
        generation += status == 0 or watch.has_all(generation)
    finish(url, path, generation + 1)
    waited = {
        "twice": len(waits_s),
        "slow": slow,
        "longest_s": max(waits_s, default=0.0),
        "generations": generation + 1,
    }
    return {**waited, "over": over, "shown": len(watch), "again": watch.asked_again()}


def counts(url, path):
    """Count what was asked, what more than once, and what the ledger says."""
    times = asked(url)
    ledger = am.Ledger(path, reuse_simulated=True)
    ledger._find_lost_runs()
    runs = ledger._past_runs()
    check = ledger.verify()
    return {
        "requests": sum(times.values()),
        "repeated": sum(count - 1 for count in times.values()),
        "answers": len(ledger),
        "unknown": sum(one.unknown for one in runs),
        "lost": sum(one.state == "lost" for one in runs),
        "ok": check.ok,
        "notes": ledger.notes,
    }


def flat(agents, seconds):
    """A plan of so many calls, each of which takes so long."""
    return am.Plan([am.Agent(f"a{one}", f"[[ttft:{seconds}]] [[tokens:5]] question {one}") for one in range(agents)])


def shorten_leases():
    """Let leases hold for two seconds and be renewed five times in one, so that tests need not wait."""
    store_journal.LEASE_S = store_lease.LEASE_S = LEASE_S
    store_journal.BEATS, store_lease.TICK_S = 1, 0.2


def turn_clock(by_s):
    """Let this process live on another day. The monotonic clock goes on."""
    real = time.time
    time.time = lambda: real() + by_s


async def hold_up(url, driver):
    """Hold the loop up for longer than a lease, as user code in another cell does, while calls are under way."""
    running = asyncio.create_task(driver.drive())
    while len(requests_of(url)) < len(driver.plan):  # noqa: ASYNC110 - another process counts them
        await asyncio.sleep(0.05)
    time.sleep(2 * LEASE_S)  # noqa: ASYNC251 - that is what is tried
    await running


def together(url, path, agents, seconds, how="long"):
    """Run a plan beside another process that does the same."""
    if how != "long":
        shorten_leases()
    if how in {"ahead", "behind"}:
        turn_clock(DAY_S if how == "ahead" else -DAY_S)
    ledger = am.Ledger(path, reuse_simulated=True)
    driver = am.start(flat(agents, seconds), Policy(10), client=am.Claude(base_url=url, api_key="x"), ledger=ledger)
    asyncio.run(hold_up(url, driver) if how == "busy" else driver.drive())
    results = driver.record.results
    ledger._find_lost_runs()  # marks those that the run itself has not come upon
    return {
        "succeeded": sum(one.status == "succeeded" for one in results),
        "bought": sum(one.source == "simulated" for one in results),
        "backwards": sum((one.total_s or 0.0) < 0 or one.api_s < 0 for one in results),
        "notes": ledger.notes,
        "unknown": sum(one.unknown for one in ledger._past_runs()),
    }


def size_of_largest(path):
    """The larger of a ledger's file and its log."""
    return max(Path(f"{path}{end}").stat().st_size for end in ("", "-wal"))


def limited(url, path, agents):
    """Run a plan whose ledger cannot grow from some moment on."""
    import resource

    def stop_growing():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size_of_largest(path), resource.RLIM_INFINITY))

    found = until_full(url, path, agents, stop_growing)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return found()


def full(url, path, agents):
    """Run a plan whose ledger is on a file system that is full from some moment on, and has room again later."""
    filler = Path(path).with_name("filler")

    def fill():
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(4096)):
                pass

    found = until_full(url, path, agents, fill)
    filler.unlink()
    return found()


def until_full(url, path, agents, make_full):
    """Run a plan; make its disk full when a third of the agents is done. What is found is counted when it is called."""
    ledger = am.Ledger(path, reuse_simulated=True)
    client = am.Claude(base_url=url, api_key="x")
    driver = am.start(flat(agents, 0.02), Policy(CONCURRENCY), client=client, ledger=ledger)
    found = {}

    async def watched():
        running = asyncio.create_task(driver.drive())
        while len(found) < 1:
            done = sum(one.status == "succeeded" for one in driver.record.results)
            if done >= agents // 3:
                found["before"] = done
                make_full()
            await asyncio.sleep(0.001)
        await running

    asyncio.run(watched())
    statuses = [one.status for one in driver.record.results]

    def look():
        ledger.close()
        again = am.Ledger(path, reuse_simulated=True)
        return {
            **found,
            "succeeded": statuses.count("succeeded"),
            "failed": statuses.count("failed"),
            "stored": len(again),
            "ok": again.verify().ok,
            "notes": ledger.notes,
        }

    return look


def main():
    """Do what the line says."""
    what, url, path, number, last, *how = sys.argv[1:]
    if what in {"together", "limited", "full"}:
        more = (float(last), *how) if what == "together" else ()
        print(json.dumps(globals()[what](url, path, int(number), *more)))
        return
    trials, seed = number, last
    import anthropic  # noqa: F401 - loaded once, for all children

    asyncio.run(run_once(url, f"{path}.warm", 0))
    do = {"kill": killed, "interrupt": interrupted, "twice": interrupted_twice}[what]
    longest_s = 1.2 * measured_s(url, path)
    with urllib.request.urlopen(urllib.request.Request(f"{url}/simulator/reset", method="POST")):
        pass
    began = time.monotonic()
    found = do(url, path, int(trials), random.Random(int(seed)), longest_s)
    print(json.dumps({**found, **counts(url, path), "seconds": round(time.monotonic() - began, 1)}))


if __name__ == "__main__":
    main()
