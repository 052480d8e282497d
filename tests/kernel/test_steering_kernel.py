"""`%agents retry`, `skip`, `pause`, `resume` in a real kernel, over real HTTP to the stand-in API."""

from __future__ import annotations

import json
import re
import urllib.request

import pytest

from tests.kernels import Kernel

pytestmark = pytest.mark.kernel

MAGICS = "next(one for one in get_ipython().configurables if type(one).__name__ == 'AgentMagics')"
STATUSES = "print(dict(zip(run.agents.agent, run.agents.status)))"


@pytest.fixture(scope="module")
def kernel():
    """A kernel with the extension, connected to a stand-in API."""
    with Kernel() as started:
        for code in ("%load_ext agent_magic\nimport asyncio", "%agents connect simulator --latency none"):
            assert "ok" == started.do(code).status
        yield started


@pytest.fixture
def calls(kernel):
    """Count the requests since here."""
    kernel.do("%agents clear")
    url = kernel.do(f"print({MAGICS}.session._simulator.url)").text.strip()

    def count():
        with urllib.request.urlopen(f"{url}/simulator/log", timeout=60) as reply:
            return sum(entry["route"] == "/v1/messages" for entry in json.load(reply)["requests"])

    before = count()
    return lambda: count() - before


def declare(kernel, **prompts):
    """Declare agents."""
    for name, prompt in prompts.items():
        assert "ok" == kernel.do(f"%%agent {name}\n{prompt}").status


def statuses(kernel):
    """Status by agent of the last run."""
    kernel.do("run = %agents last")
    return kernel.do(STATUSES).text.strip()


@pytest.mark.parametrize("command", ["run", "retry b"])
def test_a_run_with_failures_goes_on(kernel, calls, command):
    """F25: `%agents run`, or `retry`, asks only what failed or was skipped; 0 repeated, simulated answers too."""
    declare(kernel, a="one", b=f"two {command} [[status:400 times=1]] {{{{ a }}}}", c="three {{ b }}", d="four")
    kernel.do("run = %agents run")
    assert "{'a': 'succeeded', 'b': 'failed', 'c': 'skipped', 'd': 'succeeded'}" == statuses(kernel)
    assert 3 == calls()
    done = kernel.do(f"run = %agents {command}")
    assert "2 of 4 reused" in done.text
    assert "{'a': 'succeeded', 'b': 'succeeded', 'c': 'succeeded', 'd': 'succeeded'}" == statuses(kernel)
    assert 5 == calls()
    assert "True" in kernel.do("print(run.record.simulated)").text
    assert "ok" == kernel.do("run = %agents run --fresh").status
    assert 9 == calls()


def test_retry_buys_nothing_that_the_last_run_did_not_have(kernel, calls):
    """Agents declared beside it wait to be run, or to be named."""
    declare(kernel, a="one [[status:529 times=1]]", b="two")
    kernel.do("run = %agents run a --max-attempts 1")
    assert 1 == calls()
    kernel.do("run = %agents retry")
    assert "{'a': 'succeeded'}" == statuses(kernel)
    assert 2 == calls()
    kernel.do("%agents drop a")
    assert "No agent of the last run is declared any more" in kernel.do("%agents retry").text
    assert 2 == calls()


def test_a_rejected_request_is_sent_as_it_was_only_by_name(kernel, calls):
    """A bare retry asks the others, also after it left the rejected one out; mended it is asked, and so by its name."""
    declare(kernel, a="bad [[status:400]]", b="busy [[status:529 times=2]]", c="{{ a }}", d="{{ b }}")
    kernel.do("run = %agents run --max-attempts 1")
    assert 2 == calls()
    for after in ("{'a': 'skipped', 'b': 'failed', 'c': 'skipped', 'd': 'skipped'}", None):
        said = kernel.do("run = %agents retry --max-attempts 1").text
        assert "a is not asked again, since the same request was rejected as wrong. Fix it;" in said
        assert "1 failed: Overloaded, 1 skipped because of it, 2 not asked" in said or after is None
        assert after is None or after == statuses(kernel)
    assert "{'a': 'skipped', 'b': 'succeeded', 'c': 'skipped', 'd': 'succeeded'}" == statuses(kernel)
    assert "not asked again, since the same request was rejected" in kernel.do("%agents error a").text
    assert 5 == calls()
    assert "Nothing was sent: a is not asked again" in kernel.do("run = %agents retry").text
    assert 5 == calls()
    kernel.do("run = %agents retry a")
    assert 6 == calls()
    declare(kernel, a="good")
    kernel.do("run = %agents retry")
    assert "{'a': 'succeeded', 'b': 'succeeded', 'c': 'succeeded', 'd': 'succeeded'}" == statuses(kernel)
    assert 8 == calls()


def test_an_edited_agent_runs_again_with_what_its_text_changes(kernel, calls):
    """After a run with a failure: the edit and what follows from it, not the rest."""
    declare(kernel, a="one", b="two {{ a }}", c="three [[status:400]]")
    kernel.do("run = %agents run")
    assert 3 == calls()
    declare(kernel, c="three, mended")
    kernel.do("run = %agents run")
    assert 4 == calls()


def test_steering_what_runs_in_the_background(kernel, calls):
    """Pause holds what waits, skip leaves out, retry brings back, resume goes on; each from a cell of its own."""
    hangs = "[[fault:hang]]"
    declare(kernel, slow=f"slow {hangs}", bad="bad [[status:400 times=1]]", b="b {{ bad }}")
    kernel.do("%agents start --concurrency 4")
    driver = f"{MAGICS}.session.running[0]"
    failed = f"while {driver}.record['bad'].status != 'failed': await asyncio.sleep(0)"
    assert "ok" == kernel.do(failed).status
    assert "Paused" in kernel.do("%agents pause").text
    assert "The run asks bad again." in kernel.do("%agents retry bad").text
    assert "paused queued\n" == kernel.do(f"print({driver}.held_by(1), {driver}.record['bad'].status)").text
    assert 2 == calls()
    assert "The run goes on." in kernel.do("%agents resume").text
    assert "Skipped: slow, with what waits for it. The rest goes on." in kernel.do("%agents skip slow").text
    assert "1 skipped" in kernel.do("run = %agents wait").text
    assert "{'slow': 'skipped', 'bad': 'succeeded', 'b': 'succeeded'}" == statuses(kernel)
    assert 4 == calls()
    assert "skipped by the user" in kernel.do("%agents error slow").text


@pytest.mark.parametrize("line", ["pause", "resume", "skip x", "stop"])
def test_nothing_to_steer_says_so(kernel, line):
    """An error in a line, which says what to do."""
    done = kernel.do(f"%agents {line}")
    assert "error" == done.status
    assert "%agents start" in str(done)


def test_the_first_run_in_the_background_can_be_stopped_by_the_next_cell():
    """However long its libraries take to load: `start` gives the notebook back when there is something to steer."""
    with Kernel() as fresh:
        fresh.do("%load_ext agent_magic\n%agents connect simulator")
        declare(fresh, a="[[ttft:60]] never comes")
        assert "ok" == fresh.do("%agents start").status
        assert "ok" == fresh.do("%agents stop").status
        assert "cancelled" in fresh.do("run = %agents wait\nprint(set(run.agents.status))").text


@pytest.mark.parametrize("file", ["", "off"])
def test_a_dead_letter_is_named_after_a_requeue_of_the_others(kernel, calls, file):
    """What was refused as wrong is left out of a requeue, and can still be asked by its name, with a ledger or none."""
    kernel.do(f"%config AgentMagics.ledger = {file!r}")
    wrong = f"three {file} [[status:400 times=1]]"
    declare(kernel, a="one", b=f"two {file} [[status:529 times=3]]", c=wrong, d="{{ c }}")
    kernel.do("run = %agents run --max-attempts 2")
    assert "{'a': 'succeeded', 'b': 'failed', 'c': 'failed', 'd': 'skipped'}" == statuses(kernel)
    kernel.do("run = %agents dead requeue")
    assert "{'a': 'succeeded', 'b': 'succeeded', 'c': 'skipped', 'd': 'skipped'}" == statuses(kernel)
    assert "ok" == kernel.do("run = %agents dead requeue c").status
    assert "{'a': 'succeeded', 'b': 'succeeded', 'c': 'succeeded', 'd': 'succeeded'}" == statuses(kernel)
    assert "None of c failed" in kernel.do("run = %agents dead requeue c").evalue
    kernel.do("%config AgentMagics.ledger = ''")
    assert calls()


def test_a_run_in_the_background_says_what_it_waits_for(kernel, calls):
    """`%agents` tells how far it is and until when the provider has told it to wait, `error` what an agent met."""
    kernel.do("%agents connect simulator --latency none")
    declare(kernel, a="a [[status:429 retry_after=100]]", b="b {{ a }}")
    kernel.do("%agents start")
    kernel.do(
        f"record = {MAGICS}.session.running[0].record\n"
        "while not any(one.ended for one in record.attempts):\n"
        "    await asyncio.sleep(0.01)"
    )
    listed = " ".join(kernel.do("%agents").text.split())
    assert "agents, running for " in listed
    assert ": 0 of 2 done · 1 queued · " in listed
    assert " was told to wait (429): " in listed
    told = kernel.do("%agents error a").text
    assert "a: queued" in told
    assert re.search(r"^ +1 +429 ", told, re.MULTILINE)
    kernel.do("%agents stop")
    kernel.do("run = %agents wait")
    assert "running for" not in kernel.do("%agents").text
