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
