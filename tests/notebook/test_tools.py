"""Tools and tasks of cells: which function counts, whatever is run again, and whatever its name is."""

# Tests take for granted what they have just checked.
# pyright: reportOptionalMemberAccess=false, reportCallIssue=false

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

import agent_magic as am
from agent_magic.api import Plan
from agent_magic.notebook import AgentMagics
from agent_magic.simulator import start

SAYS = "def look() -> str:\n    'Look.'\n    return {!r}"


@pytest.fixture
def magics() -> Iterator[AgentMagics]:
    """A notebook."""
    shell = InteractiveShell()
    shell.user_ns["am"] = am
    made = AgentMagics(shell)
    yield made
    made.session.close()


def plan_of(magics: AgentMagics) -> Plan:
    """Freeze what is declared."""
    return magics.session.plan(magics.shell.user_ns, defaults={})


def run(plan: Plan) -> am.Run:
    """Run it against the mock server."""
    with start(latency="none", unlimited=True) as server:
        return asyncio.run(plan.run(client=am.Claude(base_url=server.url, api_key="any")))


def test_the_function_counts_that_has_the_name_when_the_plan_is_frozen(magics: AgentMagics) -> None:
    """Two cells define one name: all agents that name it call the later function; a frozen plan keeps its own."""
    magics.shell.run_cell(SAYS.format("first"))
    magics.agent("a --tools look", "Go [[tool:look]]\n")
    frozen = plan_of(magics)
    magics.shell.run_cell(SAYS.format("second"))
    magics.agent("b --tools look", "Go [[tool:look]]\n")
    assert ["second", "second"] == [run(plan_of(magics))[name].calls[0].result for name in "ab"]
    assert "first" == run(frozen)["a"].calls[0].result


@pytest.mark.parametrize("name", ["prüfe", "検索", "поиск"])
def test_a_tool_needs_a_name_that_a_request_can_hold(magics: AgentMagics, name: str) -> None:
    """Any letters are a Python name; the error says how to give another, and with that the function is called."""
    magics.shell.run_cell(SAYS.format("seen").replace("look", name))
    with pytest.raises(UsageError, match=f"name of a tool .*, got '{name}'.*am.tool\\(name="):
        magics.agent(f"a --tools {name}", "Go\n")
    magics.shell.run_cell(f"{name} = am.tool(name='look')({name})")
    magics.agent(f"a --tools {name}", "Go [[tool:look]]\n")
    assert "seen" == run(plan_of(magics))["a"].calls[0].result


def test_steps_may_have_any_letters(magics: AgentMagics) -> None:
    """Names of steps are Python's: in prompts, parameters, frames, recordings and ledgers."""
    magics.shell.run_cell("def größe(名前):\n    return len(名前)")
    plan = am.Plan(
        [am.Task("größe", magics.shell.user_ns["größe"]), am.Agent("résumé", "Sum {{ größe }}")], values={"名前": "abc"}
    )
    done = run(plan)
    assert (3, ["größe", "résumé"]) == (done["größe"].value, list(done.agents["agent"]))
