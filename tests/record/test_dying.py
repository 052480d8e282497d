"""Real processes that are killed, interrupted, or share one ledger, against the stand-in over HTTP."""

# Tests take for granted what they have just checked.
# pyright: reportIndexIssue=false

from __future__ import annotations

import faulthandler
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent_magic.simulator import start
from tests.record.dying import AGENTS, requests_of

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the children are forked, to begin at once"),
]
NIGHTLY = {"kill": 200, "interrupt": 1000, "twice": 200}
TRIALS = NIGHTLY if os.environ.get("AGENT_MAGIC_NIGHTLY") else {"kill": 25, "interrupt": 40, "twice": 20}
"""`AGENT_MAGIC_NIGHTLY=1` runs all of them: a quarter of an hour."""


@pytest.fixture
def simulator():
    """A stand-in without limits."""
    with start(latency="fast", unlimited=True) as running:
        yield running


def run(*words, timeout_s=1500.0):
    """Run the program with the children, and read what it says."""
    faulthandler.cancel_dump_traceback_later()  # which would end the whole run
    done = subprocess.run(
        [sys.executable, "-m", "tests.record.dying", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        cwd=ROOT,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    print(done.stdout)
    return json.loads(done.stdout)


def test_killed_at_random_instants(simulator, tmp_path):
    """F03: what anybody could see is never asked for again; what is asked for again is counted; the file is whole."""
    found = run("kill", simulator.url, tmp_path / "l.sqlite3", TRIALS["kill"], 1)
    assert TRIALS["kill"] <= found["kills"]
    assert found["shown"] > AGENTS
    assert 0 == found["again"]
    assert found["answers"] == 2 * AGENTS * found["generations"]
    assert found["repeated"] <= found["unknown"]
    assert found["lost"] > 0
    assert (True, []) == (found["ok"], found["notes"])


def test_interrupted_at_random_instants(simulator, tmp_path):
    """F01: what anybody could see is never asked for again, and nothing is sent after the interrupt is over."""
    found = run("interrupt", simulator.url, tmp_path / "l.sqlite3", TRIALS["interrupt"], 1)
    assert found["cut"] > TRIALS["interrupt"] // 4
    assert (0, 0) == (found["again"], found["late"])
    assert found["answers"] == 2 * AGENTS * found["generations"]
    assert (True, []) == (found["ok"], found["notes"])


def test_interrupted_twice(simulator, tmp_path):
    """F02: the second interrupt ends the wait for a slow clean-up within half a second; nothing is lost by it."""
    found = run("twice", simulator.url, tmp_path / "l.sqlite3", TRIALS["twice"], 1)
    assert found["twice"] > TRIALS["twice"] // 4
    assert found["slow"] > TRIALS["twice"] // 10, "some were cleaning up when it came"
    # More than half a second, and by how much a bare timer was late meanwhile: a busy disk may hold one or two up.
    assert found["over"] <= TRIALS["twice"] // 10, "all that were slow, if nothing ends their wait"
    assert found["answers"] == 2 * AGENTS * found["generations"]
    assert 0 == found["again"]
    assert (True, []) == (found["ok"], found["notes"])


def test_two_processes_buy_each_answer_once(simulator, tmp_path):
    """F16: two processes run one plan at one time on one ledger: one call for each agent, and both have all answers."""
    words = [sys.executable, "-m", "tests.record.dying", "together", simulator.url, str(tmp_path / "l"), "1000", "0"]
    both = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ROOT) for _ in range(2)]
    said = [json.loads(one.communicate(timeout=120)[0]) for one in both]
    assert [0, 0] == [one.returncode for one in both]
    assert [1000, 1000] == [one["succeeded"] for one in said]
    assert 1000 == sum(one["bought"] for one in said)
    prompts = [one["prompt_hash"] for one in requests_of(simulator.url)]
    assert 1000 == len(prompts) == len(set(prompts))


def test_the_lease_of_the_dead_is_taken_over(simulator, tmp_path):
    """F16: a process waits for another that buys the same, and buys it itself as soon as that one is killed."""
    words = [sys.executable, "-m", "tests.record.dying", "together", simulator.url, str(tmp_path / "l"), "4", "9"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, cwd=ROOT) as first:
        while len(requests_of(simulator.url)) < 4:
            assert first.poll() is None
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ROOT) as second:
            with pytest.raises(subprocess.TimeoutExpired):
                second.wait(4)
            assert 4 == len(requests_of(simulator.url)), "it waits"
            first.kill()
            said = json.loads(second.communicate(timeout=60)[0])
    assert (4, 4) == (said["succeeded"], said["bought"])
    assert 8 == len(requests_of(simulator.url))
    assert 4 == said["unknown"]


def two(simulator, path, first_how, second_how, seconds=7):
    """Let one process buy four answers, and another run the same plan as soon as the four requests are out."""
    words = [sys.executable, "-m", "tests.record.dying", "together", simulator.url, str(path), "4", str(seconds)]
    with subprocess.Popen([*words, first_how], stdout=subprocess.PIPE, cwd=ROOT) as first:
        while len(requests_of(simulator.url)) < 4:
            assert first.poll() is None
        with subprocess.Popen([*words, second_how], stdout=subprocess.PIPE, cwd=ROOT) as second:
            yield first, second
            yield [json.loads(one.communicate(timeout=60)[0]) for one in (first, second)]


@pytest.mark.parametrize(
    ("first", "second"),
    [("busy", "plain"), ("ahead", "behind"), ("behind", "ahead")],
)
def test_a_lease_holds_as_long_as_its_process_lives(simulator, tmp_path, first, second):
    """F16, F28, F31: calls longer than a lease, a loop that is held up, clocks a day apart: all is bought once."""
    processes = two(simulator, tmp_path / "l", first, second)
    next(processes)
    said = next(processes)
    assert [4, 0] == [one["bought"] for one in said]
    assert [4, 4] == [one["succeeded"] for one in said]
    assert [0, 0] == [one["backwards"] for one in said]
    assert 4 == len(requests_of(simulator.url))


def test_a_process_that_stands_still_loses_its_leases(simulator, tmp_path):
    """F16: one that is there and renews nothing any more, such as a stopped one, is not waited for for ever."""
    processes = two(simulator, tmp_path / "l", "plain", "plain", seconds=5)
    first, second = next(processes)
    first.send_signal(signal.SIGSTOP)
    said = json.loads(second.communicate(timeout=60)[0])
    first.kill()
    processes.close()
    assert (4, 4) == (said["bought"], said["succeeded"])


def full(simulator, words, path):
    """Run 60 agents on a ledger that gets full; check that what came in is kept, and that nothing more is bought."""
    words = [*words, str(simulator.url), str(path), "60", "0"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, cwd=ROOT, check=False)
    assert 0 == done.returncode, done.stderr
    said = json.loads(done.stdout)
    asked = len(requests_of(simulator.url))
    assert said["before"] <= asked < 60
    assert asked == said["succeeded"]
    assert asked == said["stored"], "what came in while it was full was written when there was room again"
    assert 60 - asked == said["failed"]
    assert (True, 1) == (said["ok"], len(said["notes"]))


def test_a_file_that_may_not_grow(simulator, tmp_path):
    """F15: a process whose files may not grow any more keeps what came in, and buys nothing more."""
    full(simulator, [sys.executable, "-m", "tests.record.dying", "limited"], tmp_path / "l")


def test_a_full_file_system(simulator, tmp_path):
    """F15: the same on a file system in memory without room; its mapped files kill nobody."""
    mount = f"mount -t tmpfs -o size=8m tmpfs '{tmp_path}'"
    if subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    program = f'{mount} && exec "$0" -m tests.record.dying full "$@"'
    full(simulator, ["unshare", "-m", "sh", "-c", program, sys.executable], tmp_path / "l")
