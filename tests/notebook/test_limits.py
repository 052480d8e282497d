"""`%agents limits`: what is known, and what the user says."""

from __future__ import annotations

import asyncio
import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import agent_magic as am
from agent_magic import Limits
from agent_magic.engine import Share, Ticket
from agent_magic.engine.admission.pool import PATIENCE_S
from agent_magic.notebook import AgentMagics
from agent_magic.show.charts.limits import used_lately


def test_limits_are_shown_and_set(capsys: pytest.CaptureFixture[str]):
    """Unknown at first; given ones are kept by class, beside others, and shown with where they are from."""
    from IPython.core.interactiveshell import InteractiveShell

    magics = AgentMagics(InteractiveShell.instance())
    magics.agents("limits")
    assert "No rate limits are known yet" in capsys.readouterr().out
    magics.agents("limits claude-opus-4-8 --rpm 50 --itpm 30000")
    magics.agents("limits --otpm 8000")
    shown = capsys.readouterr().out
    rows = [re.split("  +", line) for line in shown.splitlines() if line.startswith("claude-opus-4 ")]
    assert [["claude-opus-4", "0 of 50", "0 of 30,000", "0 of unknown", "given"]] == rows[:1], "a row per model"
    assert {"claude-opus-4", "claude-haiku-5-5"} == set(magics.session.shared.pacer.given)
    assert Limits(50, 30_000) == magics.session.shared.pacer.given["claude-opus-4"]
    magics.agents("limits claude-opus-4-8 --rpm 80")
    assert Limits(80, 30_000) == magics.session.shared.pacer.given["claude-opus-4"], "what is not said stays"


def test_an_inferred_limit_says_from_what(capsys: pytest.CaptureFixture[str]):
    """Where the server announces nothing, it says how many refusals showed the limit."""
    from IPython.core.interactiveshell import InteractiveShell

    magics = AgentMagics(InteractiveShell.instance())
    pacer = magics.session.shared.pacer
    now = time.monotonic()
    tickets = [pacer.ask("claude-haiku-5-5", 100, 100, now + wait_s) for wait_s in (0.0, PATIENCE_S, 2 * PATIENCE_S)]
    for ticket in tickets[1:]:
        assert isinstance(ticket, Ticket)
        pacer.refused(ticket, 1.0, None, now + 1.0)
    magics.agents("limits")
    assert "inferred from 2 refusals" in capsys.readouterr().out


def test_what_this_kernel_may_take_of_a_shared_limit_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """How many kernels divide it, and the part of this one; nothing of that while it is alone."""
    from IPython.core.interactiveshell import InteractiveShell

    monkeypatch.setenv("AGENT_MAGIC_LEDGER", str(tmp_path / "ledger.sqlite3"))
    magics = AgentMagics(InteractiveShell.instance())
    shared = magics.session.shared
    magics.session.connect(am.Claude(base_url="http://127.0.0.1:9", api_key="x"))
    magics.agents("limits claude-haiku-5-5 --rpm 50")
    shared.pacer.ask("claude-haiku-5-5", 100, 100, time.monotonic())
    magics.agents("limits")
    assert "kernels" not in capsys.readouterr().out
    sharing = shared.sharing()
    assert sharing is not None
    monkeypatch.setattr(sharing, "kernels", 3)
    shared.pacer.set_shares({"claude-haiku-5-5": {"requests": Share(0.4)}}, time.monotonic())
    magics.agents("limits")
    shown = capsys.readouterr().out
    assert "3 kernels use this key" in shown
    assert "(40 %)" in next(line for line in shown.splitlines() if "of 50 (" in line)
    assert shared.ledger is not None
    shared.ledger.close()


def test_what_was_used_is_counted_as_in_the_chart():
    """What the runs of the session used in the last minute, whoever began them; nothing of it a minute later."""
    plan = am.Plan([am.Agent("a", "x"), am.Agent("b", "y"), am.Agent("c", "{{ a }}")])
    with am.Simulator(latency="none") as server:
        session = am.Session(client=am.Claude(base_url=server.url, api_key="any"))
        run = asyncio.run(plan.run(session=session))
        asyncio.run(plan.run(session=session))
    name, now = session.client.limit_class("claude-haiku-5-5"), datetime.now(UTC)
    totals = run.totals
    once = {"requests": 3, "input tokens": totals.input_tokens, "output tokens": totals.output_tokens}
    assert {kind: 2 * number for kind, number in once.items()} == used_lately(session.recent, name, now)
    assert f"requests in the last minute: at most {once['requests']}" in run.limits_chart().text
    assert f"output tokens in the last minute: at most {once['output tokens']:,}" in run.limits_chart().text
    assert {0.0} == {*used_lately(session.recent, name, now + timedelta(seconds=61)).values()}
    session.connect(am.Claude(base_url="http://127.0.0.1:9", api_key="any"))
    assert [] == session.recent, "another provider has limits of its own"
