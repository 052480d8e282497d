"""A large run asks first, in a kernel whose front end passes questions on, and never where nobody can answer."""

from __future__ import annotations

import itertools
import json
import re
import urllib.request

import pytest

from agent_magic.simulator import child
from tests.kernels import Kernel

pytestmark = pytest.mark.kernel

QUESTION = r"3 agents, about <?\$0\.\d+ expected \(estimate\), at most \$0\.\d+: run\? \[y/N\] $"
DECLARE = """%load_ext agent_magic
%config AgentMagics.ledger = "off"
for name in ("a", "b", "c"):
    get_ipython().run_cell_magic("agent", name, f"[[tokens:20]] question {name}")"""
LOWER = "%config AgentMagics.confirm_agents = 2"


@pytest.fixture(scope="module")
def server():
    """A server that the kernels take for the API."""
    with child.start(latency="none", unlimited=True) as started:
        yield started.url


@pytest.fixture(scope="module")
def kernel(server):
    """A kernel with three agents, in a notebook that somebody has open."""
    env = {"ANTHROPIC_BASE_URL": server, "ANTHROPIC_API_KEY": "any", "JPY_SESSION_NAME": "some.ipynb"}
    with Kernel(**env) as started:
        assert "ok" == started.do(DECLARE).status
        yield started


def asked(server):
    """Count the requests that cost something."""
    with urllib.request.urlopen(f"{server}/simulator/log", timeout=60) as reply:
        return sum(entry["route"] == "/v1/messages" for entry in json.load(reply)["requests"])


@pytest.mark.parametrize(
    "code", ["%agents run --fresh", "%agents start --fresh", "def f():\n    %agents run --fresh\nf()"]
)
@pytest.mark.parametrize("answer", ["n", "", "y"])
def test_a_large_run_asks_and_does_what_is_said(kernel, server, code, answer):
    """One question with agents and dollars; anything but yes sends nothing and says so."""
    kernel.do(LOWER)
    before = asked(server)
    cell = kernel.start(code)
    assert re.search(QUESTION, kernel.asked(answer))
    reply = kernel.wait(cell)
    if answer == "y":
        assert "ok" == reply.status
        kernel.do("run = %agents wait" if "start" in code else "")
        assert before + 3 == asked(server)
    else:
        assert "Nothing was sent: 3 agents" in reply.text
        assert "Traceback" not in reply.text
        assert before == asked(server)


def test_stop_at_the_question_is_no(kernel, server):
    """The kernel is free again at once, and nothing was sent."""
    kernel.do(LOWER)
    before = asked(server)
    cell = kernel.start("%agents run --fresh")
    assert "run? [y/N]" in kernel.asked(None)
    kernel.interrupt(cell)
    assert "Nothing was sent" in kernel.wait(cell).text
    assert before == asked(server)
    assert "2\n" == kernel.do("print(1 + 1)").text


@pytest.mark.parametrize(
    ("config", "line"), [("confirm_agents = 2", "--yes"), ("confirm_agents = 3", ""), ("confirm_agents = 0", "")]
)
def test_yes_and_the_thresholds(kernel, server, config, line):
    """`--yes`, a run that is not larger, and 0: nobody is asked."""
    kernel.do(f"%config AgentMagics.{config}")
    before = asked(server)
    assert "ok" == kernel.do(f"%agents run --fresh {line}").status
    assert before + 3 == asked(server)


def test_dollars_count_by_the_prices_given(kernel, server):
    """A price of one's own is what the question counts with, and the run; lengths are those of the run before."""
    kernel.do("%config AgentMagics.confirm_agents = 0\n%config AgentMagics.confirm_usd = 1.0")
    kernel.do("%agents run --fresh --yes")
    kernel.do("%agents prices claude-haiku-5-5 --input 1000 --output 20000")
    before = asked(server)
    cell = kernel.start("run = %agents run --fresh")
    assert "3 agents, about $1.2" in kernel.asked("y")  # 60 tokens of output, 39 of input
    assert "ok" == kernel.wait(cell).status
    assert (
        "given True\n"
        == kernel.do("print(run.record.results[0].attempts[-1].price.basis, run.totals.cost_usd > 1)").text
    )
    assert before + 3 == asked(server)


def test_where_nobody_can_answer_it_goes_on_with_a_note(server):
    """A program gets a note of agents, dollars and the cap, whether it says that it takes questions or not."""
    with Kernel(ANTHROPIC_BASE_URL=server, ANTHROPIC_API_KEY="any") as kernel:
        assert "ok" == kernel.do(DECLARE).status
        kernel.do(LOWER)
        before = asked(server)
        # `jupyter_client` says that it does unless told otherwise.
        for budget, allowed in itertools.product(("", "--budget 2"), (True, False)):
            reply = kernel.wait(kernel.start(f"%agents run --fresh {budget}", allow_stdin=allowed))
            assert "ok" == reply.status
            assert 1 == len(re.findall(r"note: 3 agents, about <?\$0", reply.text))
            assert ("--budget USD sets a cap" in reply.text) == (not budget)
        assert before + 12 == asked(server)


def test_made_up_answers_are_not_asked_about():
    """The stand-in costs nothing, so nobody is asked; without a key neither."""
    with Kernel(JPY_SESSION_NAME="some.ipynb") as kernel:
        assert "ok" == kernel.do(DECLARE).status
        kernel.do(LOWER)
        assert "No API key found" in kernel.do("%agents run").text
        kernel.do("%agents connect simulator --latency none")
        reply = kernel.do("%agents run")
        assert "ok" == reply.status
        assert "note: 3 agents" not in reply.text


def test_an_unknown_price_under_a_budget_says_how_to_give_one(kernel, server):
    """It is refused with the line that mends it, and with that line it is sent: this server has no such model."""
    kernel.do("%config AgentMagics.confirm_agents = 0\n%config AgentMagics.confirm_usd = 0")
    kernel.do("%agents clear")
    kernel.do("%%agent one --model claude-mine\n[[tokens:20]] Hello.")
    before = asked(server)
    kernel.do("run = %agents run --budget 1")
    said = kernel.do("print(*run.agents['error'])").text
    assert "%agents prices claude-mine --input USD --output USD" in said
    assert before == asked(server)
    kernel.do("%agents prices claude-mine --input 1 --output 2")
    assert "claude-mine (404)" in kernel.do("%agents run --budget 1").text
