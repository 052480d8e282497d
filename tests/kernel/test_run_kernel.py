"""The magics in a real kernel, over real HTTP to the stand-in API."""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request

import pytest
from ipykernel._version import version_info

from tests.kernels import Kernel

pytestmark = pytest.mark.kernel

# Stop is promised within a second, and by so much later as the machine is slow. What hangs here hangs for ever, so
# nothing else ends these cells.
STOP_S = 1.0
SECOND_STOP_S = 0.8
PATIENCE_S = 60.0

HANG = "[[fault:hang]]"
MAGICS = "next(one for one in get_ipython().configurables if type(one).__name__ == 'AgentMagics')"
TASKS = "print(sorted(t.get_coro().__qualname__ for t in asyncio.all_tasks() if 'agent_magic' in repr(t)))"
STATUSES = "print({name: status for name, status in zip(run.agents.agent, run.agents.status)})"

# Prints when the cell's own handler of Stop is there, which is when its magic has begun to wait.
TELL = """\
import signal
async def tell():
    while "agent_magic" not in type(signal.getsignal(signal.SIGINT)).__module__:
        await asyncio.sleep(0)
    print("waiting", flush=True)
task = asyncio.create_task(tell())"""

IN_DEF = "def f():\n    r = %agents run\n    return r\nrun = f()"


class Server:
    """The stand-in API of a kernel, seen from outside."""

    def __init__(self, kernel):
        self.url = kernel.do(f"print({MAGICS}.session._simulator.url)").text.strip()

    def log(self):
        """Return what was asked so far; `messages` are the requests that cost something."""
        with urllib.request.urlopen(f"{self.url}/simulator/log", timeout=PATIENCE_S) as reply:
            found = json.load(reply)
        found["messages"] = [entry for entry in found["requests"] if entry["route"] == "/v1/messages"]
        return found

    def until(self, wanted):
        """Wait until the log is as wanted, and return it."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            log = self.log()
            if wanted(log):
                return log
        raise AssertionError(f"The log never became what was wanted: {log}")


@pytest.fixture(scope="module")
def started():
    """A kernel with the extension, connected to the mock server; it has run once: no Stop waits for an import."""
    setup = ("%load_ext agent_magic\nimport asyncio", "%agents connect simulator --latency none")
    with Kernel() as kernel:
        for code in (*setup, "%%agent first\nHello.", "%agents run"):
            assert "ok" == kernel.do(code).status
        yield kernel, Server(kernel)


@pytest.fixture
def kernel(started):
    """The kernel, with nothing declared."""
    started[0].do("%agents clear")
    return started[0]


@pytest.fixture
def server(started):
    """The stand-in API of the kernel."""
    return started[1]


def declare(kernel, **prompts):
    """Declare an agent per prompt."""
    for name, prompt in prompts.items():
        assert "ok" == kernel.do(f"%%agent {name}\n{prompt}").status


def test_declare_run_and_look(kernel, server):
    """Declared agents run in the order of the graph and come back as frames, priced, labelled as simulated."""
    asked = len(server.log()["messages"])
    kernel.do("topic = 'tea'")
    declare(
        kernel,
        one="About {{ topic }}. [[tokens:20]]",
        two="Also {{ topic }}. [[tokens:30]]",
        three="{{ one }}{{ two }}",
    )
    assert "ok" == kernel.do("run = %agents run").status
    assert "{'one': 'succeeded', 'two': 'succeeded', 'three': 'succeeded'}\n" == kernel.do(STATUSES).text
    assert "20 30\n" == kernel.do("print(*run.agents.output_tokens[:2])").text
    assert "{'simulated'} 3\n" == kernel.do("print(set(run.agents.source), len(run.attempts))").text
    assert "True\n" == kernel.do("print(run.agents.input_tokens[2] > 50)").text
    assert asked + 3 == len(server.log()["messages"])


def test_the_run_is_shown_as_it_goes_and_stays_as_a_picture(kernel):
    """A run shows one picture that changes, ends as a static one with its text, and says that it was simulated."""
    declare(kernel, one="Hello.")
    reply = kernel.do("%agents run")
    kinds = [kind for kind, _ in reply.outputs]
    assert 2 == kinds.count("display_data")  # the picture, and the line below it
    final = [content["data"] for kind, content in reply.outputs if kind == "update_display_data"][-1]
    assert {"image/svg+xml", "text/plain"} <= set(final)
    assert "application/vnd.jupyter.widget-view+json" not in final
    assert "simulated" in final["text/plain"]


def test_run_all(kernel):
    """Run All: declarations, the run and the cells behind it run in order, each after the one before."""
    codes = ["%%agent a\nHello. [[ttft:0.3]]", "%%agent b\n{{ a }}", "run = %agents run", "print(run.ok)"]
    codes += [f"{IN_DEF}\nprint(len(run.agents))", "print('end')"]
    replies = [kernel.wait(cell) for cell in [kernel.start(code) for code in codes]]
    assert ["ok"] * 6 == [reply.status for reply in replies]
    assert ["True\n", "end\n"] == [replies[3].text, replies[5].text]
    assert replies[4].text.endswith("2\n")


def test_a_context_cell_behind_its_agents(kernel):
    """Agents that name it wait for nothing but its text: one writes the cache, the other reads as many tokens."""
    declare(kernel, **{"left --context rules": "What is left?", "right --context rules": "And what is right?"})
    reply = kernel.do("%%context rules\nFor {{ firm }}: {% for n in range(900) %}rule {{ n }}, {% endfor %}")
    assert "shared by left, right\n  not defined yet: firm" in reply.text
    assert "Context 'rules' uses {{ firm }}" in kernel.do("run = %agents run").text
    kernel.do("firm = 'ACME'")
    assert "ok" == kernel.do("run = %agents run").status
    written, read = kernel.do("print(*run.agents.cache_write_tokens, *run.agents.cache_read_tokens)").text.split()[::3]
    assert int(written) == int(read) > 1000
    sent = "print({one.request.context[:22] for result in run.record.results for one in result.attempts})"
    assert "{'For ACME: rule 0, rule'}\n" == kernel.do(sent).text
    assert "now stale: left, right" in kernel.do("%%context rules\nno rules").text


@pytest.mark.parametrize("code", ["run = %agents run", IN_DEF], ids=["awaited", "nested"])
def test_stop_while_agents_hang(kernel, server, code):
    """Stop ends a run at once: streams are cut, what finished is kept, no task and no request comes after it."""
    declare(
        kernel, done="Hello.", left=f"{{{{ done }}}} {HANG}", right=f"Also {{{{ done }}}} {HANG}", after="{{ left }}"
    )
    aborted = server.log()["aborted"]
    cell = kernel.start(code)
    before = server.until(lambda log: log["in_flight"] == 2)
    kernel.interrupt(cell)
    reply = kernel.wait(cell)
    assert ("error", "KeyboardInterrupt") == (reply.status, reply.ename)
    assert reply.seconds <= STOP_S + kernel.slack_s()
    assert "stopped: 1 of 4 agents had finished and are kept" in reply.evalue
    log = server.until(lambda log: log["in_flight"] == 0)
    assert aborted + 2 == log["aborted"]
    kernel.do("run = %agents last")
    kept = "{'done': 'succeeded', 'left': 'cancelled', 'right': 'cancelled', 'after': 'cancelled'}\n"
    assert kept == kernel.do(STATUSES).text
    assert "[]\n" == kernel.do(TASKS).text
    assert len(before["requests"]) == len(server.log()["requests"])
    kernel.do("%agents drop left right after")
    assert "True\n" in kernel.do("run = %agents run\nprint(run.ok)").text


def test_an_agent_is_asked_at_once(kernel, server):
    """`%%agent NAME --run` is a run of it and what it needs; its answer is one output, which ends with the numbers."""
    declare(kernel, one="Hello.", other="Not asked.")
    finished = server.log()["finished"]
    reply = kernel.do("%%agent two --run\nMore on {{ one }}")
    assert "ok" == reply.status
    assert finished + 2 == server.log()["finished"]
    shown = [(kind, content) for kind, content in reply.outputs if "display" in kind]
    kinds = [kind for kind, _ in shown]
    assert ["display_data", "display_data"] == kinds[:2]  # its card, and its answer
    assert {"update_display_data"} == {*kinds[2:]}
    text = kernel.do("run = %agents last\nprint(run['two'].text)").text.strip()
    last = shown[-1][1]["data"]
    assert last["text/plain"].startswith(text)
    assert "simulated" in last["text/plain"].removeprefix(text)
    assert "2\n" == kernel.do("print(len(run.agents))").text


def test_an_agent_is_asked_at_once_inside_a_function(kernel):
    """Where no `await` is possible the cell magic runs all the same."""
    code = "def f():\n    get_ipython().run_cell_magic('agent', 'one --run', 'Hello.')\nf()\nprint('after')"
    reply = kernel.do(code)
    assert "ok" == reply.status
    assert "after" in reply.text
    assert "True\n" in kernel.do("run = %agents last\nprint(run.ok)").text


def test_stop_while_an_agent_is_asked_at_once(kernel, server):
    """Stop ends it as it ends a run, and leaves no task."""
    aborted = server.log()["aborted"]
    cell = kernel.start(f"%%agent one --run\nHello. {HANG}")
    server.until(lambda log: log["in_flight"] == 1)
    kernel.interrupt(cell)
    assert "KeyboardInterrupt" == kernel.wait(cell).ename
    assert aborted + 1 == server.until(lambda log: log["in_flight"] == 0)["aborted"]
    assert "[]\n" == kernel.do(TASKS).text


def test_stop_twice(kernel, server):
    """A second Stop right behind the first changes nothing for the worse: ended, kept, nothing left, kernel alive."""
    declare(kernel, done="Hello.", left=f"{{{{ done }}}} {HANG}", right=f"Also {{{{ done }}}} {HANG}")
    cell = kernel.start("run = %agents run")
    server.until(lambda log: log["in_flight"] == 2)
    kernel.interrupt(cell)
    kernel.interrupt(cell)
    reply = kernel.wait(cell)
    assert "KeyboardInterrupt" == reply.ename
    assert reply.seconds <= SECOND_STOP_S + kernel.slack_s()
    assert "succeeded" in kernel.do("run = %agents last\nprint(run['done'].status)").text
    assert "[]\n" == kernel.do(TASKS).text
    assert "ok" == kernel.do("%agents drop left right\n%agents run").status


def test_stop_aborts_the_cells_behind(kernel, server):
    """Stop stops Run All: the cells queued behind the run are aborted."""
    declare(kernel, left=HANG)
    cell, queued = kernel.start("%agents run"), kernel.start("print('too late')")
    server.until(lambda log: log["in_flight"] == 1)
    kernel.interrupt(cell)
    assert ["error", "aborted"] == [kernel.wait(cell).status, kernel.wait(queued).status]


def test_run_in_the_background(kernel, server):
    """`%agents start` gives the notebook back while the run goes on; `%agents wait` waits and returns it."""
    declare(kernel, slow="Hello. [[ttft:4]]", after="{{ slow }}")
    finished = server.log()["finished"]
    assert "ok" == kernel.do("%agents start").status
    assert "2\n" == kernel.do("1 + 1").text
    assert finished == server.log()["finished"]
    assert "True\n" in kernel.do("run = %agents wait\nprint(run.ok)").text
    assert finished + 2 == server.log()["finished"]


def test_the_dashboard_follows_a_run_in_the_background(kernel, server):
    """It is drawn again in its place while other cells run, for the last time when the run is over, with the kernel."""
    declare(kernel, slow="Hello. [[ttft:5]]", after="{{ slow }}")
    kernel.do("%agents start")
    cell = kernel.start("%agents dashboard")
    assert "ok" == kernel.wait(cell).status
    assert ["display_data"] == [kind for kind, _ in kernel.drawn(cell)]
    kernel.do("run = %agents wait")
    kernel.do("import asyncio\nawait asyncio.sleep(1.5)")
    if version_info < (7,):
        pytest.skip(
            "this ipykernel sends what is displayed again with the cell that runs now; a page finds it all the same"
        )
    kinds, drawn = zip(*kernel.drawn(cell), strict=True)
    assert {"update_display_data"} == set(kinds[1:])
    assert len(kinds) >= 3
    assert 1 == len({one["transient"]["display_id"] for one in drawn}), "in one place"
    last = drawn[-1]["data"]
    assert "2 agents in 2 layers" in last["text/plain"]
    assert "memory" in last["image/svg+xml"], "of the kernel"
    assert "[]\n" == kernel.do(TASKS).text


def test_stop_a_run_in_the_background(kernel, server):
    """`%agents stop` ends the run in the background, says what is kept, and `%agents wait` returns what it became."""
    declare(kernel, left=HANG, after="{{ left }}")
    kernel.do("%agents start")
    server.until(lambda log: log["in_flight"] == 1)
    stopped = kernel.do("%agents stop").text
    assert "stopped, 0 kept" in stopped
    assert "%agents run goes on with the 2 left." in stopped
    assert "cancelled" in kernel.do("run = %agents wait\nprint(run['left'].status)").text
    server.until(lambda log: log["in_flight"] == 0)
    assert "[]\n" == kernel.do(TASKS).text


def test_stop_while_waiting_for_the_background(kernel, server):
    """Stop in `%agents wait` stops the run it waits for: nothing goes on spending."""
    declare(kernel, left=HANG)
    kernel.do("%agents start")
    server.until(lambda log: log["in_flight"] == 1)
    cell = kernel.start(f"{TELL}\n%agents wait")
    kernel.until(cell, "waiting")
    kernel.interrupt(cell)
    reply = kernel.wait(cell)
    assert "KeyboardInterrupt" == reply.ename
    assert reply.seconds <= STOP_S + kernel.slack_s()
    server.until(lambda log: log["in_flight"] == 0)
    assert "cancelled" in kernel.do("run = %agents last\nprint(run['left'].status)").text
    assert "[]\n" == kernel.do(TASKS).text


NESTED = {
    "in def": IN_DEF,
    "under %%time": "%%time\nrun = %agents run",
    "under %%capture": "%%capture\nrun = %agents run",
    "under run_cell": "_ = get_ipython().run_cell('run = %agents run')",
}


@pytest.mark.parametrize("code", NESTED.values(), ids=NESTED)
def test_blocking_form(kernel, code):
    """Where a cell cannot await, the same run comes back from a blocking call."""
    declare(kernel, one="Hello.", two="{{ one }}")
    kernel.do("run = None")
    assert "ok" == kernel.do(code).status
    assert "True 2\n" == kernel.do("print(run.ok, len(run.agents))").text
    assert "[]\n" == kernel.do(TASKS).text


WRONG = {
    "an unknown command": ("%agents runn", "Did you mean 'run'?"),
    "an unknown option": ("%agents run --fersh", "Did you mean '--fresh'?"),
    "an unknown option of a declaration": ("%%agent a --modell x\nHello.", "Did you mean '--model'?"),
    "a bad name": ("%%agent 1a\nHello.", "'1a'"),
    "no name": ("%%agent\nHello.", "NAME"),
    "a template error": ("%%agent a\n{{ topic", "a"),
    "an agent that is not declared": ("%agents run nobody", "'nobody' is not declared"),
    "nothing to wait for": ("%agents wait", "%agents start"),
    "a value out of range": ("%agents run --concurrency 0", "concurrency"),
}


@pytest.mark.parametrize(("code", "said"), WRONG.values(), ids=WRONG)
def test_a_mistake_is_one_short_error(kernel, code, said):
    """The user's mistake is a `UsageError` that says what to do, without a traceback."""
    declare(kernel, known="Hello.")
    wrong = kernel.do(code)
    assert ("error", "UsageError") == (wrong.status, wrong.ename)
    assert said in wrong.text
    assert "Traceback" not in wrong.text
    assert len(wrong.text.splitlines()) <= 15


@pytest.mark.parametrize("code", ["%agents run nobody", "%%agent 1a\nHello."], ids=["run", "declare"])
def test_a_mistake_stops_run_all(kernel, code):
    """The cells queued behind a mistake are aborted."""
    declare(kernel, known="Hello.")
    gate = kernel.home / "gate"
    gate.unlink(missing_ok=True)
    os.mkfifo(gate)
    cells = [kernel.start(each) for each in ("_ = open('gate').read()", code, "print('too late')")]
    gate.write_text("all cells are queued")
    assert ["ok", "error", "aborted"] == [kernel.wait(cell).status for cell in cells]


PLANS = {
    "a cycle": ({"b": "%%agent b --after a\nHello.", "a": "%%agent a --after b\nHello."}, "a -> b -> a", "b -> a -> b"),
    "an unknown parent": ({"a": "%%agent a --after nobody\nHello."}, "'nobody', which is not declared", ""),
    "an undefined variable": ({"a": "%%agent a\n{{ nothing_of_that_name }}"}, "nothing_of_that_name", ""),
}


@pytest.mark.parametrize(("cells", "said", "or_said"), PLANS.values(), ids=PLANS)
def test_a_wrong_plan_is_an_error_before_anything_is_sent(kernel, server, cells, said, or_said):
    """A plan that cannot run is a `UsageError`, at the latest when it is to run, and nothing is sent."""
    asked = len(server.log()["requests"])
    replies = [kernel.do(code) for code in cells.values()] + [kernel.do("%agents run")]
    wrong = [reply for reply in replies if reply.status == "error"]
    assert {"UsageError"} == {reply.ename for reply in wrong}
    assert any(said in reply.text or (or_said and or_said in reply.text) for reply in wrong)
    assert asked == len(server.log()["requests"])


def test_a_failed_agent_is_a_result(kernel):
    """A failed agent costs its descendants only: the cell succeeds, and `%agents error` says why."""
    declare(kernel, bad="Hello. [[status:400]]", good="Hello.", after="{{ bad }}")
    assert "ok" == kernel.do("run = %agents run").status
    assert "{'bad': 'failed', 'good': 'succeeded', 'after': 'skipped'}\n" == kernel.do(STATUSES).text
    assert "400" in kernel.do("%agents error bad").text


def test_without_a_key_and_without_a_choice(fresh_kernel):
    """Without a key the cell says what to choose from, here and in a script; declaring and planning need none."""
    fresh_kernel.do("%load_ext agent_magic")
    declare(fresh_kernel, one="Hello.")
    reply = fresh_kernel.do("%agents run")
    assert ("error", "UsageError") == (reply.status, reply.ename)
    *choices, script = reply.text.strip().splitlines()[1:]
    assert ["with a key", "offline", "a recording"] == [line.split("  ")[1].strip() for line in choices]
    assert script.startswith("A plan in a variable: %agents run --plan NAME. plan.run(client=...) takes a provider:")
    assert "ok" == fresh_kernel.do("%agents plan").status


def test_loading_twice_and_unloading(fresh_kernel):
    """Loading twice is loading once; unloading takes magics, hooks and the stand-in API away; it can come back."""
    hooks = "[type(hook).__name__ for hook in get_ipython().input_transformers_post].count('AwaitRewriter')"
    fresh_kernel.do("%load_ext agent_magic\nimport agent_magic\nagent_magic.load_ipython_extension(get_ipython())")
    assert "2\n" == fresh_kernel.do(hooks).text
    fresh_kernel.do("%agents connect simulator --latency none")
    server = Server(fresh_kernel)
    assert 0 == server.log()["in_flight"]
    assert "ok" == fresh_kernel.do("%unload_ext agent_magic").status
    assert "0\n" == fresh_kernel.do(hooks).text
    assert "UsageError" == fresh_kernel.do("%agents").ename
    with pytest.raises(urllib.error.URLError):
        server.log()
    fresh_kernel.do("%load_ext agent_magic\n%agents connect simulator --latency none")
    declare(fresh_kernel, one="Hello.")
    assert "True\n" in fresh_kernel.do("run = %agents run\nprint(run.ok)").text


def test_the_cell_that_loads_it_can_run_it(fresh_kernel):
    """Loading, connecting and running in one cell works, though that cell was read before it loaded the extension."""
    code = "%load_ext agent_magic\n%agents connect simulator --latency none"
    fresh_kernel.do(f"{code}\nget_ipython().run_cell_magic('agent', 'one', 'Hello.')\nrun = %agents run")
    assert "True\n" == fresh_kernel.do("print(run.ok)").text


def test_unloading_stops_what_runs_in_the_background(fresh_kernel):
    """Unloading ends a run in the background: nothing goes on spending."""
    fresh_kernel.do("%load_ext agent_magic\nimport asyncio")
    fresh_kernel.do("%agents connect simulator --latency none")
    server = Server(fresh_kernel)
    declare(fresh_kernel, left=HANG)
    fresh_kernel.do("%agents start")
    server.until(lambda log: log["in_flight"] == 1)
    assert "ok" == fresh_kernel.do("%unload_ext agent_magic").status
    assert (
        "ok"
        == fresh_kernel.do(
            "while ours := [t for t in asyncio.all_tasks() if 'agent_magic' in repr(t)]:\n    await asyncio.wait(ours)"
        ).status
    )
