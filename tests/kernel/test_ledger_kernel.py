"""The ledger in real kernels: on without being asked, there after a restart, and reported after a kill."""

from __future__ import annotations

import os
import re
import signal

import pytest

import agent_magic as am
from tests.kernels import Kernel

pytestmark = [pytest.mark.kernel, pytest.mark.slow]
BEGIN = """%load_ext agent_magic
%agents connect simulator --latency fast
for name in ("a", "b", "c"):
    get_ipython().run_cell_magic("agent", name, f"[[tokens:20]] question {name}")"""
LAST = "%%agent last\n[[ttft:600 times=1]] Sum it up: {{ a }} {{ b }} {{ c }}"
"""The answer does not come; if it is asked for once more, it does."""
REUSE = "%load_ext agent_magic\n%config AgentMagics.reuse_simulated = True"


@pytest.fixture
def env(tmp_path):
    """A data folder that outlives the kernels, and nobody who says where the ledger is."""
    return {"XDG_DATA_HOME": str(tmp_path), "AGENT_MAGIC_LEDGER": ""}


def ok(reply):
    """The text of a cell that went well."""
    assert "ok" == reply.status, reply.text
    return reply.text


def test_a_restarted_kernel_buys_nothing_again(env, tmp_path):
    """F04: the second kernel serves all of it from the file, says what that saved, and opens the first one's run."""
    with Kernel(**env) as kernel:
        ok(kernel.do(REUSE))
        ok(kernel.do(BEGIN))
        ok(kernel.do("run = %agents run"))
        texts = ok(kernel.do("print(list(run.texts))"))
    assert [tmp_path / "agent-magic" / "ledger.sqlite3"] == sorted((tmp_path / "agent-magic").glob("*.sqlite3"))
    assert 0o600 == (tmp_path / "agent-magic" / "ledger.sqlite3").stat().st_mode & 0o777
    with Kernel(**env) as kernel:
        ok(kernel.do(REUSE))
        ok(kernel.do(BEGIN))
        said = ok(kernel.do("run = %agents run"))
        assert re.search(r"all 3 reused, <?\$0\.\d+ saved", said)
        assert texts == ok(kernel.do("print(list(run.texts))"))
        assert "{'ledger'} 0.0" in ok(kernel.do("print(set(run.agents['source']), run.totals.cost_usd)"))
        assert "[2, 1] [0, 3]" in ok(
            kernel.do("runs = %agents runs\nprint(runs['run'].tolist(), runs['calls'].tolist())")
        )
        ok(kernel.do("old = %agents open 1"))
        assert "True" in ok(kernel.do("print(set(old.agents['source']) == {'simulated'} and len(old.attempts) == 3)"))
        assert "3 answers of 2 runs are intact" in ok(kernel.do("%agents ledger verify"))
        assert "3 answers (3 simulated) of 2 runs" in ok(kernel.do("%agents ledger"))
        assert " reused" not in ok(kernel.do("run = %agents run --fresh"))


def test_a_run_of_another_kernel_goes_on(env):
    """What failed there is asked again here, though no agent is declared; its plan runs by the Python API too."""
    with Kernel(**env) as kernel:
        ok(kernel.do("%load_ext agent_magic\n%agents connect simulator --latency none"))
        ok(kernel.do("topics = ['tea', 'coffee']"))
        ok(kernel.do("%%context rules\nBe brief about {{ topics }}."))
        ok(kernel.do("%%agent one --each topics --context rules\nWhat of {{ item }}?"))
        ok(kernel.do("%%agent two\n[[status:400 times=1]] Sum it up: {{ one }}"))
        ok(kernel.do("%%agent three\nShorter: {{ two }}"))
        said = ok(kernel.do("run = %agents run"))
        assert re.search(
            r"1 failed: Rejected, 1 skipped because of it(?s:.*)Fix it, then %agents run goes on, about <?\$0\.", said
        )
        texts = ok(kernel.do("print(list(run.texts[:2]))"))
    with Kernel(**env) as kernel:
        ok(kernel.do("%load_ext agent_magic\n%agents connect simulator --latency none"))
        ok(kernel.do("old = %agents open 1"))
        ok(kernel.do("run = %agents retry two"))  # the mock server is another one, and refuses once as well
        said = ok(kernel.do("run = %agents retry two"))  # the same request is sent again only by name
        assert "2 of 4 reused" in said
        assert "{'succeeded'}" in ok(kernel.do("print(set(run.agents['status']))"))
        assert texts == ok(kernel.do("print(list(run.texts[:2]))"))
        ok(kernel.do("run = %agents retry three"))
        find = "magics = next(one for one in get_ipython().configurables if type(one).__name__ == 'AgentMagics')"
        ok(kernel.do(f"{find}\nagain = await old.plan.run(session=magics.session.shared)"))
        assert "4 {'succeeded'}" in ok(kernel.do("print(len(again.agents), set(again.agents['status']))"))


def test_a_fresh_kernel_knows_the_limits_of_its_key(env):
    """The first run of a second kernel has no trial request: the ledger remembers what the first one learned.

    Made-up answers are not served by default, so the second kernel asks the mock server again.
    """
    waits = "print(sorted({one.held_by for one in run.record.attempts} & {'key', 'limits'}))"
    found: list[str] = []
    with am.Simulator(latency="none", rpm=6000) as server:
        for _ in range(2):
            with Kernel(**env) as kernel:
                ok(kernel.do(f"%load_ext agent_magic\n%agents connect {server.url}"))
                ok(kernel.do("items = list(range(8))"))
                ok(kernel.do("%%agent each --each items\n[[ttft:0.3]] item {{ item }}"))
                assert " reused" not in ok(kernel.do("run = %agents run"))
                assert "{'simulated'}" in ok(kernel.do("print(set(run.agents['source']))"))
                found.append(ok(kernel.do(waits)).strip())
                assert re.search(r" of 6,000 .* announced", ok(kernel.do("%agents limits")))
    assert found[0] != "[]"
    assert "[]" == found[1]


SIMULATOR = "simulator --latency fast"


def killed_in_flight(kernel, cell, server=SIMULATOR):
    """Begin a run with one more agent, and kill the kernel once three have their answers and that one was asked."""
    ok(kernel.do(REUSE))
    ok(kernel.do(BEGIN.replace(SIMULATOR, server)))
    ok(kernel.do(cell))
    pid = int(ok(kernel.do("import os; print(os.getpid())")))
    ok(kernel.do("%agents start"))
    ok(
        kernel.do(
            "import asyncio\n"
            "magics = next(one for one in get_ipython().configurables if type(one).__name__ == 'AgentMagics')\n"
            "*first, last = magics.session.running[0].record.results\n"
            "while not (last.attempts and all(one.status == 'succeeded' for one in first)):\n"
            "    await asyncio.sleep(0.01)"
        )
    )
    os.kill(pid, signal.SIGKILL)


def test_a_killed_kernel_is_told_of(env):
    """F03, G3: the next kernel says how many calls were in flight, and has what had finished."""
    with Kernel(**env) as kernel:
        killed_in_flight(kernel, "%%agent slow\n[[ttft:60]] never comes")
    with Kernel(**env) as kernel:
        ok(kernel.do(REUSE))
        assert re.search(r"lost\s+4\s+3\s", ok(kernel.do("%agents runs")))
        ok(kernel.do(BEGIN))
        said = ok(kernel.do("run = %agents run"))
        assert "all 3 reused" in said
        assert "1 call was in flight when the kernel of run 1" in said
        assert "in flight" not in ok(kernel.do("run = %agents run"))


def test_resume_takes_a_run_up_where_a_kill_left_it(env):
    """In a new kernel of the notebook, with nothing declared: what had finished is kept, and the rest is asked.

    Another notebook's kernel asks nothing, and says whose run was cut and how to name it.
    """
    one, two = ({**env, "JPY_SESSION_NAME": f"/books/{name}.ipynb"} for name in ("one", "two"))
    with am.Simulator(latency="none") as server:
        with Kernel(**one) as kernel:
            killed_in_flight(kernel, LAST, server.url)
        with Kernel(**two) as kernel:
            ok(kernel.do(f"{REUSE}\n%agents connect {server.url}"))
            said = kernel.do("run = %agents resume").text
            assert "run 1 of 'agents' in books/one.ipynb" in said
            assert "%agents resume --of 1" in said
            assert "True" in ok(kernel.do("runs = %agents runs\nprint(len(runs) == 1)"))
        with Kernel(**one) as kernel:
            ok(kernel.do(f"{REUSE}\n%agents connect {server.url}"))
            said = ok(kernel.do("run = %agents resume"))
            assert "Run 1 of 'agents' was cut: 3 of 4 agents had finished; 1 request may have been billed." in said
            assert "What is left: 1 agent, about " in said
            assert "3 of 4 reused" in said
            assert "{'succeeded'}" in ok(kernel.do("print(set(run.agents['status']))"))


@pytest.mark.parametrize("choice", ["off", ":memory:"])
def test_no_file_where_none_is_wanted(env, tmp_path, choice):
    """`off` keeps nothing, `:memory:` keeps it for the session; neither leaves a file."""
    with Kernel(**{**env, "AGENT_MAGIC_LEDGER": choice}) as kernel:
        ok(kernel.do(REUSE))
        ok(kernel.do(BEGIN))
        ok(kernel.do("run = %agents run"))
        again = ok(kernel.do("run = %agents run"))
        assert (choice == ":memory:") == (" reused" in again)
        if choice == "off":
            assert "The ledger is off" in kernel.do("%agents runs").text
    assert [] == list(tmp_path.iterdir())
