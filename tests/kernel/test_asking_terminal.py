"""A person's nod in a real terminal IPython."""

from __future__ import annotations

import pytest

from tests.terminal import Terminal

pytestmark = pytest.mark.kernel
TOOL = """@am.tool(ask=True)
def send_mail(to: str) -> str:
    'Send.'
    sent.append(to)
    return 'ok'
"""
DECLARE = """get_ipython().run_cell_magic('agent', 'a --tools send_mail', 'Write. [[tool:send_mail {"to": "anna"}]]')"""


def test_a_terminal_asks() -> None:
    """An empty line agrees to nothing; a changed argument is what runs; Ctrl-C while it asks leaves the keyboard."""
    with Terminal(AGENT_MAGIC_LEDGER=":memory:", TERM="xterm") as terminal:
        for cell in ("%load_ext agent_magic", "%agents connect simulator", "import agent_magic as am", "sent = []"):
            terminal.do(cell)
        terminal.do(TOOL)
        terminal.do(DECLARE)
        terminal.start("run = %agents run")
        terminal.until("a wants to call send_mail")
        terminal.until("n denies: ")
        terminal.start("")
        terminal.until("n denies: ")
        terminal.start("e")
        terminal.until("on one line: ")
        terminal.start('{"to": "bert"}')
        terminal.wait()
        assert "['bert']" in terminal.do("print(sent)")
        terminal.start("run = %agents run --fresh")
        terminal.until("n denies: ")
        terminal.interrupt()
        terminal.wait()
        assert "['bert'] 42" in terminal.do("print(sent, 6 * 7)")
