"""A person's nod where the front end has no buttons, such as the Jupyter console."""

from __future__ import annotations

import pytest

from tests.kernels import Kernel

pytestmark = pytest.mark.kernel
DECLARE = """%%agent a --tools send_mail
Write. [[tool:send_mail {"to": "anna"}]]"""
TOOL = """import agent_magic as am
sent = []

@am.tool(ask=True)
def send_mail(to: str) -> str:
    'Send.'
    sent.append(to)
    return 'ok'"""


@pytest.mark.parametrize("of_notebook", [True, False], ids=["a notebook's kernel", "its own"])
def test_a_console_is_not_waited_for(of_notebook: bool) -> None:
    """Denied at once and said: it shows no button and sends nothing else while the cell runs."""
    with Kernel(**({"JPY_SESSION_NAME": "n.ipynb"} if of_notebook else {})) as kernel:
        for cell in ("%load_ext agent_magic", "%agents connect simulator --latency none", TOOL, DECLARE):
            assert "ok" == kernel.do(cell).status
        reply = kernel.do("run = %agents run")
        assert "Denied, since nobody could be asked: a (send_mail)." in reply.text
        assert "denied [] True" == kernel.do("print(run['a'].calls[0].status, sent, run.ok)").text.strip()


ON_A_DESK = """import asyncio
plan = am.Plan([am.Agent('a', 'Write. [[tool:send_mail {"to": "anna"}]]', tools=[send_mail])])
desk = am.Desk(plan)
server = am.Simulator(latency="none").__enter__()
running = asyncio.create_task(plan.run(client=am.Claude(base_url=server.url, api_key="any"), ask=desk.ask))
while not desk.pending and not running.done():
    await asyncio.sleep(0)"""


def test_a_later_cell_answers_from_python() -> None:
    """A run in the background waits on its desk, and another cell agrees without buttons or stdin."""
    with Kernel() as kernel:
        for cell in (TOOL, ON_A_DESK, "desk.approve('a', text='{\"to\": \"bea\"}')"):
            reply = kernel.do(cell)
            assert "ok" == reply.status, reply.text
        shown = kernel.do("run = await running; server.__exit__(None, None, None); print(sent, run.ok)").text
        assert "['bea'] True" == shown.strip()
