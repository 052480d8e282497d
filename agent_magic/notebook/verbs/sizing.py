"""Arithmetic before much is spent: how far limits and budgets go, and how a job splits into agents."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from IPython.core.error import UsageError

from agent_magic.api import decompose
from agent_magic.declare.units import count, dollars, plural, seconds
from agent_magic.engine.pacing.limits import Limits
from agent_magic.forecast.capacity import capacity, monthly, roi, tiers
from agent_magic.notebook.command import CommandContext, Verb, argument, one_of
from agent_magic.notebook.front_end import is_kernel, put_cell, say, show_page
from agent_magic.show.page import Column, Line, Page, Table

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterable

    from agent_magic.api import Plan, Run
    from agent_magic.record.ledger.runs import PastRun
    from agent_magic.show.page import Block

DAY_S = 86_400
NUMBER = re.compile(r"(\d+(?:\.\d+)?)([kmb]?)", re.IGNORECASE)
THOUSANDS = {"": 1, "k": 1_000, "m": 1_000_000, "b": 1_000_000_000}


class Month(NamedTuple):
    """The use of a ledger's runs in this month."""

    days: float
    tokens: int
    cost_usd: float | None
    answers: int
    runs: int


def _size(ctx: CommandContext, given: Namespace) -> None:
    if (given.value is None) is not (given.accepted is None) or (given.value is None and given.review is not None):
        raise UsageError("%agents size takes --value USD and --accepted SHARE together, and --review USD with them.")
    run, limits = ctx.session.last_run(), Limits(given.rpm, given.itpm, output_tokens=given.otpm)
    if not _requests(run):
        raise UsageError(
            "The last run bought no answers, so it has no numbers of a job. %agents run --fresh buys them again."
        )
    totals = run.totals
    words = f"{plural(_requests(run), 'request')}, {count(totals.tokens)} tokens, {dollars(totals.cost_usd)}"
    job = Line(f"{words}, {seconds(totals.agent_s)} of work.", head="One job is the last run:")
    blocks: list[Block] = [job]
    is_limited = any(one is not None for one in limits.rates.values())
    if is_limited or (given.jobs is None and given.monthly is None and given.value is None):
        blocks += _carried(run, limits)
    if given.jobs is not None:
        blocks += _needed(run, limits, _rates(given.jobs))
    if given.monthly is not None or given.value is not None:
        ledger = ctx.session.keeping.ledger
        month = None if ledger is None else month_of(ledger.past(), datetime.now(UTC), simulated=run.record.simulated)
        if month is None:
            blocks.append(Line("The ledger is off, so nothing is known of this month.", "warn"))
        if given.monthly is not None:
            blocks += _left(run, month, _tokens(given.monthly))
        if given.value is not None and month is not None:
            blocks += _worth(month, given)
    show_page(Page(blocks), graphic=is_kernel(ctx.shell))


def month_of(runs: Iterable[PastRun], now: datetime, *, simulated: bool) -> Month:
    """Return the use since the month began, in UTC; simulated and real runs are never added up."""
    begin = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    found = [
        one for one in runs
        if begin <= datetime.fromisoformat(one.began_at).replace(tzinfo=UTC) <= now
        and bool(one.simulated) is simulated
    ]  # fmt: skip
    costs = [one.cost_usd for one in found if one.cost_usd is not None]
    return Month(
        (now - begin).total_seconds() / DAY_S,
        sum(one.tokens or 0 for one in found),
        sum(costs) if costs else None,
        sum(one.succeeded for one in found),
        len(found),
    )


def _requests(run: Run) -> int:
    return len(run.record.facts.answered)


def _carried(run: Run, limits: Limits) -> list[Block]:
    found = capacity(limits, run=run)
    if found.jobs_per_s is None:
        return [Line("Give --rpm, --itpm or --otpm to see how many jobs an account carries.", "soft")]
    more = f", {found.concurrent:,.1f} requests at once" if found.concurrent is not None else ""
    cost = f", {dollars(found.usd_per_hour)} an hour" if found.usd_per_hour is not None else ""
    words = f"{found.jobs_per_s:,.3g} jobs a second{more}{cost}; limited by {found.limited_by}."
    rows = [(str(row["limit"]), f"{row['per_job']:,.6g}", f"{row['jobs_per_s']:,.3g}") for row in found.rows]
    columns = (Column("limit"), Column("of one job", "number"), Column("jobs a second", "number"))
    return [Line(words, head="These limits carry"), *([Table(columns, rows)] if len(rows) > 1 else [])]


def _needed(run: Run, limits: Limits, rates: list[float]) -> list[Block]:
    totals = run.totals
    sized = tiers(
        rates,
        totals.agent_s or 0.0,
        requests=_requests(run),
        input_tokens=totals.input_tokens,
        output_tokens=totals.output_tokens,
        limits=limits,
        usd_per_job=totals.cost_usd,
    )
    names = ("jobs_per_s", "agents", "kernels", "workers", "requests_per_min", "accounts")
    rows = [
        (*("-" if row[name] is None else f"{row[name]:,.6g}" for name in names), dollars(row["usd_per_hour"]))
        for row in sized.rows
    ]
    titles = ("jobs a second", "agents", "kernels", "workers", "requests a minute", "accounts", "$ an hour")
    return [Table([Column(one, "number") for one in titles], rows)]


def _left(run: Run, month: Month | None, budget: float) -> list[Block]:
    used, days = (month.tokens, month.days) if month is not None else (0, 0.0)
    found = monthly(run.totals.tokens or 0, budget, used_tokens=used, days_gone=days, usd_per_run=run.totals.cost_usd)
    lines = [
        Line(f"{plural(found.runs, 'run')} a month, {_short(found.runs_a_day)} a day.", head=f"{count(budget)} tokens:")
    ]
    if month is not None:
        pace = "" if found.days_left is None else f" At this pace it lasts {_short(found.days_left)} days more."
        words = f"{count(used)} tokens in {plural(month.runs, 'run')}; {plural(found.runs_left, 'run')} left.{pace}"
        lines.append(Line(words, "warn" if not found.runs_left else "", head="Used this month:"))
    return [*lines]


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:,.1f}"


def _worth(month: Month, given: Namespace) -> list[Block]:
    if not month.answers or month.cost_usd is None:
        return [Line("The ledger has no answers with a known price in this month.", "warn")]
    found = roi(
        value_per_answer=given.value,
        cost_usd=month.cost_usd,
        answers=month.answers,
        accepted_share=given.accepted,
        review_usd_per_answer=given.review,
    )
    each = f", {dollars(found.cost_per_accepted_usd)} for each good one" if found.accepted else ""
    share = found.break_even_share
    even = "" if share is None else f" It pays from {share:.1%} good answers on."
    words = (
        f"{plural(month.answers, 'answer')} cost {dollars(found.cost_usd)}{each}, and are worth "
        f"{dollars(found.value_usd)}.{even}"
    )
    return [Line(words, head="Worth, this month:")]


def _rates(text: str) -> list[float]:
    try:
        return [float(one) for one in text.split(",")]
    except ValueError:
        raise UsageError(f"%agents size --jobs {text}: it takes numbers such as 1,5,10.") from None


def _tokens(text: str) -> float:
    if (read := NUMBER.fullmatch(text.replace(",", "").replace("_", ""))) is None:
        raise UsageError(f"%agents size --monthly {text}: it takes tokens such as 5M or 800k.")
    return float(read[1]) * THOUSANDS[read[2].lower()]


BY: dict[str, Callable[[list[str]], Plan]] = {
    "line": lambda words: decompose.by_line("\n".join(words)),
    "file": decompose.by_file,
    "feature": decompose.by_feature,
    "layer": lambda words: decompose.by_layer(" ".join(words)),
    "phase": decompose.by_phase,
    "module": lambda words: decompose.by_module(" ".join(words)),
}
"""Ways to split a job: each returns a plan from the words of a line."""


def _split(ctx: CommandContext, given: Namespace) -> None:
    if not given.what:
        say(_told(decompose.analyse(ctx.session.plan(ctx.shell.user_ns, defaults=ctx.defaults()))))
        return
    names = ctx.shell.user_ns
    values = [names[one] if isinstance(names.get(one), str) else one for one in given.what]
    by = one_of("%agents split --by", given.by, BY) if given.by else "file" if _are_files(values) else "line"
    if by == "line":  # bare words are one line; texts in quotes, or of variables, are a line each or more
        values = values if any(re.search(r"\s", one) for one in values) else [" ".join(values)]
    plan = BY[by](values)
    found = decompose.analyse("\n".join(values) if by == "line" else plan)
    say(_told(found))
    if not found.note:
        put_cell(ctx.shell, plan.to_cell())


def _are_files(words: list[str]) -> bool:
    try:
        return all(Path(one).exists() for one in words)
    except OSError:  # a text is too long for a name
        return False


def _told(found: decompose.Analysis) -> str:
    if math.isnan(found.score):
        return found.note
    apart, behind = len(found.independent), len(found.sequential)
    waits = "waits" if behind == 1 else "wait"
    shared = f" Used by several: {', '.join(found.shared)}." if found.shared else ""
    return (
        f"{plural(apart, 'step')} can begin at once, {behind:,} {waits} for others. Score {found.score:.2f}: 0 is one "
        f"after another, near 1 all at once.{shared}"
    )


VERBS = {
    "size": Verb(
        "With the last run as one job: jobs within limits, needs of a rate, runs left this month, value of answers.",
        (
            argument("--rpm", type=float, metavar="N", help="The account's requests a minute."),
            argument("--itpm", type=float, metavar="N", help="Its input tokens a minute."),
            argument("--otpm", type=float, metavar="N", help="Its output tokens a minute."),
            argument("--jobs", metavar="1,5,10", help="Jobs a second that come in: what each rate needs."),
            argument("--monthly", metavar="TOKENS", help="A month's budget, such as 5M: the runs that are left."),
            argument("--value", type=float, metavar="USD", help="What one good answer is worth to you."),
            argument("--accepted", type=float, metavar="SHARE", help="With --value: the share that is good."),
            argument("--review", type=float, metavar="USD", help="With --value: what it costs to look at one."),
        ),
        _size,
        examples=(
            "%agents size --rpm 1000 --itpm 2000000",
            "%agents size --jobs 1,5,10 --rpm 1000    # agents, workers, accounts and dollars of each rate",
            "%agents size --monthly 5M    # runs left, by what the ledger says of this month",
            "%agents size --value 0.50 --accepted 0.9 --review 0.05",
        ),
    ),
    "split": Verb(
        "Split files, a folder or a text into agents, put as a cell below, and say how much can run at once. Nothing "
        "is sent.",
        (
            argument(
                "what",
                nargs="*",
                metavar="WHAT",
                help="Files, a folder, a text in quotes, or a variable with a text. Without: what is declared.",
            ),
            argument("--by", metavar="PART", help=f"{', '.join(BY)}. By default file for files, else line."),
        ),
        _split,
        examples=(
            "%agents split    # how much of what is declared can run at once",
            "%agents split src/shop README.md",
            "%agents split goal    # a variable with a text, a step per line",
            "%agents split --by module src/shop",
            '%agents split --by feature "sign up" "pay"',
        ),
    ),
}
