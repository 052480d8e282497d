"""Operate many agents: permanent failures, alerts, the dashboard, and telemetry."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from IPython.core.error import UsageError

from agent_magic.api import Run
from agent_magic.engine.alerts import METRICS, ON_ALERT, Alerts
from agent_magic.measure.service import all_dead_frame, to_requeue
from agent_magic.measure.telemetry import Telemetry
from agent_magic.notebook.command import CommandContext, Verb, argument, one_of
from agent_magic.notebook.front_end import is_kernel, note, say, show_page
from agent_magic.notebook.verbs.results import is_own
from agent_magic.notebook.verbs.runs import RUN_OPTIONS
from agent_magic.notebook.verbs.steering import run_again
from agent_magic.show.charts.chart import following
from agent_magic.show.page import Column, Line, Page, Table

if TYPE_CHECKING:
    from argparse import Namespace

    import pandas as pd

    from agent_magic.show.charts.chart import Chart


RULES = re.compile(r"[^\s>]+\s*>\s*[^\s>]+|\S+")
DOES = {
    "tell": "an alert is shown, and has a row in run.alerts.",
    "pause": "an alert pauses the run, and the cell says what continues it.",
    "stop": "an alert stops the run; what has finished is kept.",
}


async def _dead(ctx: CommandContext, given: Namespace) -> pd.DataFrame | Run:
    session, ledger = ctx.session, ctx.session.keeping.ledger
    if given.of is not None and ledger is None:
        raise UsageError("The ledger is off. %config AgentMagics.ledger = 'FILE' turns it on.")
    chosen = ledger.open(given.of) if given.of is not None and ledger is not None else None
    if given.what is None:
        if chosen is None and ledger is not None:
            frame = ledger.dead(only=partial(is_own, session, ledger))
        else:
            frame = (chosen or session.last_run()).dead
        if not len(frame):
            note("nothing failed for good" if chosen is not None else "nothing failed for good in this notebook's runs")
        return frame
    one_of("%agents dead", given.what, ("requeue",))
    last = chosen or session.last_run()
    again = to_requeue(last.record, given.names or None, _dead_before(ctx, last) if given.names else ())
    given.names = []
    return await run_again(ctx, given, last, again)


def _dead_before(ctx: CommandContext, last: Run) -> list[str]:
    session, ledger = ctx.session, ctx.session.keeping.ledger
    runs = ((number, run.record) for number, run in enumerate(reversed(session.runs)))
    frame = all_dead_frame(runs) if ledger is None else ledger.dead(only=partial(is_own, session, ledger))
    return [*frame["agent"][frame["plan"] == last.plan.name]]


def _alert(ctx: CommandContext, given: Namespace) -> None:
    shared = ctx.session.shared
    if given.rules == ["off"]:
        shared.alerts = None
        say("Alerts are off.")
        return
    shared.alerts = alerts = Alerts(*RULES.findall(" ".join(given.rules)), on_alert=given.on_alert)
    rows = [(str(rule), METRICS[rule.metric]) for rule in alerts.rules]
    table = Table((Column("alert"), Column("what is measured", "prose")), rows, strong=True)
    show_page(Page([Line(DOES[alerts.on_alert], head="From the next run on:"), table]), graphic=is_kernel(ctx.shell))


def _dashboard(ctx: CommandContext, _: Namespace) -> Chart:
    session = ctx.session
    if not session.running:
        return session.last_run().dashboard(theme=session.theme)
    run = Run(session.running[-1].record, session.running[-1])
    draw = partial(run.dashboard, theme=session.theme)
    return following(draw, lambda: run.record.ended_s is not None)


def _telemetry(ctx: CommandContext, given: Namespace) -> None:
    shared = ctx.session.shared
    if given.what is not None or given.content:
        on = one_of("%agents telemetry", given.what or "on", ("on", "off")) == "on"
        shared.telemetry = Telemetry(content=given.content) if on else None
    if shared.telemetry is None:
        say("Runs are not emitted. %agents telemetry on emits them to OpenTelemetry.")
        return
    texts = "with prompts and answers" if shared.telemetry.content else "without prompts and answers"
    say(f"Runs are emitted to OpenTelemetry when they are over, {texts}.")


VERBS = {
    "telemetry": Verb(
        "Emit runs to OpenTelemetry: spans of run and steps, metrics of tokens and seconds. Off by default.",
        (
            argument(
                "what", nargs="?", metavar="on|off", help="on: emit runs from now on. off: stop. Without: say which."
            ),
            argument("--content", action="store_true", help="Prompts and answers too: they leave this machine."),
        ),
        _telemetry,
        examples=("%agents telemetry on", "%agents telemetry off"),
    ),
    "dashboard": Verb(
        "Draw throughput, waiting, errors, latency, dollars and limits over time: of the run under way, or the last.",
        (),
        _dashboard,
        examples=("%agents dashboard    # while a run goes on it follows it",),
    ),
    "alert": Verb(
        "Watch the runs from now on: a strip on the picture while a rule is broken, a row in run.alerts.",
        (
            argument(
                "rules",
                nargs="*",
                metavar="RULE",
                help='Such as p95 > 30; without any, four defaults. "off" stops watching.',
            ),
            argument("--on-alert", default="tell", metavar="WORD", help=f"One of {', '.join(ON_ALERT)}."),
        ),
        _alert,
        examples=(
            "%agents alert    # the four defaults",
            "%agents alert p95 > 30 errors > 2% usd_per_min > 1",
            "%agents alert errors > 10% --on-alert pause    # %agents resume continues",
            "%agents alert off",
        ),
    ),
    "dead": Verb(
        "List the permanent failures of this notebook, from all kernels; requeue asks them again.",
        (
            argument("what", nargs="?", metavar="requeue", help="requeue [NAMES]: ask those again."),
            *RUN_OPTIONS,
            argument("--of", type=int, metavar="RUN", help="A run of %agents runs; by default the last one."),
        ),
        _dead,
        waits=True,
        examples=(
            "%agents dead",
            "run = %agents dead requeue    # where asking again can help",
            "run = %agents dead requeue draft    # this one, whatever the cause",
            "run = %agents dead requeue --of 12    # of an earlier run",
        ),
    ),
}
