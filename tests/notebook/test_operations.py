"""`%agents alert`, how rules may be written, and `%agents telemetry`."""

from __future__ import annotations

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from agent_magic.notebook import AgentMagics


@pytest.mark.parametrize(
    "line",
    ["p95 > 30 errors > 2%", '"p95 > 30" "errors > 2%"', "p95>30 errors >2%", "'p95 > 30' errors> 2%"],
)
def test_rules_need_no_quotes(line: str):
    """A rule is a word, a > and a number, wherever the spaces are."""
    magics = AgentMagics(InteractiveShell.instance())
    magics.agents(f"alert {line}")
    alerts = magics.session.shared.alerts
    assert alerts is not None
    assert ["p95 > 30 s", "errors > 2%"] == [str(rule) for rule in alerts.rules]


def test_off_is_a_word():
    """And without rules the defaults are meant."""
    magics = AgentMagics(InteractiveShell.instance())
    magics.agents("alert")
    assert magics.session.shared.alerts is not None
    magics.agents("alert off")
    assert magics.session.shared.alerts is None


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("p95 30", "no rule"),
        ("eror > 2%", "Did you mean 'errors'"),
        ("p95 > 30 --on-alert puase", "Did you mean 'pause'"),
        ("p95 > 30 of", "'of' is no rule"),
    ],
)
def test_what_is_no_rule_is_refused_with_a_way_on(line: str, words: str):
    """The message shows what was read."""
    with pytest.raises(UsageError, match=words):
        AgentMagics(InteractiveShell.instance()).agents(f"alert {line}")


def test_telemetry_without_a_word_says_what_is_so(capsys: pytest.CaptureFixture[str]):
    """It switches nothing on: what leaves the machine is asked for."""
    magics = AgentMagics(InteractiveShell.instance())
    for line, said in (
        ("telemetry", "Runs are not emitted"),
        ("telemetry on", "without prompts and answers"),
        ("telemetry", "Runs are emitted"),
        ("telemetry on --content", "with prompts and answers"),
        ("telemetry", "with prompts and answers"),
        ("telemetry off", "Runs are not emitted"),
    ):
        magics.agents(line)
        assert said in capsys.readouterr().out
