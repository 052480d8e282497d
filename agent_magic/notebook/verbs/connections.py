"""Connections: the provider with its rate limits, prices and workers, and tool servers."""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from agent_magic.declare.units import plural
from agent_magic.engine.pacing.limits import KINDS, Limits
from agent_magic.engine.pacing.pacer import ROUTES
from agent_magic.errors import AgentMagicError, shown_value
from agent_magic.live.mcp import CALL_S, McpServer
from agent_magic.notebook.command import CommandContext, Verb, argument, one_of
from agent_magic.notebook.front_end import is_kernel, note, say, show_page
from agent_magic.providers.anthropic.client import Claude, as_provider
from agent_magic.record.prices import TokenPrice
from agent_magic.show.charts.limits import used_lately
from agent_magic.show.estimates import prices_page
from agent_magic.show.page import Column, Line, Page, Table

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping, Sequence

    from agent_magic.engine.pacing.pacer import Pacer
    from agent_magic.providers.chat.client import Chat
    from agent_magic.providers.dask.client import Dask
    from agent_magic.record.results import RunRecord


NO_WORKERS = "The kernel makes the requests itself. %agents connect dask has workers make them."
WORKER_COLUMNS = (
    Column("worker"),
    Column("state"),
    Column("streams", "number"),
    Column("answered", "number"),
    Column("failed", "number"),
)
PLACES = ("simulator", "api", "chat", "dask")
CAPACITY = ("slots", "shared_rate", "cap", "prompt_rate")
SIMULATOR_OPTIONS = ("seed", "latency", "rpm", "itpm", "otpm", "script", "slips", "batch", *CAPACITY)
LIMIT_COLUMNS = (
    Column("model"),
    *(Column(kind.unit, "number") for kind in KINDS.values()),
    Column("source"),
)
RATES = ("input", "output", "cache_read", "cache_write")


def _connect(ctx: CommandContext, given: Namespace) -> None:
    where, variables = given.where, ctx.shell.user_ns
    is_variable = _is_variable(where, variables)
    _check_options(given, is_variable=is_variable)
    among: Any = {"name": given.name, "weight": given.weight, "route": given.route}
    if where == "dask" and not is_variable:
        ctx.session.connect_dask(given.address, given.workers)
    elif where == "chat" and not is_variable:
        ctx.session.connect(_chat(given), **among)
    elif where is not None and "://" in where:
        ctx.session.connect(Claude(base_url=where), **among)
    elif is_variable:
        ctx.session.connect(as_provider(variables[where]), **among)
    elif where is not None:
        if one_of("%agents connect", where, PLACES) == "simulator":
            ctx.session.connect_simulator(**{name: getattr(given, name) for name in SIMULATOR_OPTIONS})
        else:
            ctx.session.connect(Claude(), **among)
    say(f"Connected to {ctx.session.connection}.")
    if told := ctx.session.leaving_note():  # said here, the next run need not say it
        note(told)
    _note_place(ctx, where, is_variable=is_variable)


def _note_place(ctx: CommandContext, where: str | None, *, is_variable: bool) -> None:
    if is_variable and where in PLACES:
        note(f"{where} is your variable here, and was used. For {where} itself: del {where}, then this again")
    elif where == "chat":
        note(f"agents without --model ask it for {ctx.model!r}; another for all: %config AgentMagics.model = 'NAME'")
    if where in {"api", "dask"} and ctx.session.shared.client.account is None:
        note("no API key is set: set ANTHROPIC_API_KEY before the next run, or connect to a server first")


def _chat(given: Namespace) -> Chat:
    """The key is from the environment, since a cell is saved with its text."""
    if given.address is None:
        raise UsageError("Where is it? %agents connect chat http://127.0.0.1:8000/v1")
    from agent_magic.providers.chat.client import Chat  # noqa: PLC0415  # lazy: most notebooks never ask such a server

    name = given.key_env
    if name is not None and not os.environ.get(name):
        what = f"No variable {name!r} is set" if name.isidentifier() else "--key-env takes the name of a variable"
        raise UsageError(f"{what}. Set it: os.environ['NAME'] = getpass.getpass(), then --key-env NAME.")
    return Chat(given.address, api_key=None if name is None else os.environ[name], free=given.free)


def _check_options(given: Namespace, *, is_variable: bool) -> None:
    where = given.where
    if given.workers is not None and where != "dask":
        raise UsageError("--workers comes after dask: %agents connect dask [ADDRESS] [--workers N].")
    if given.address is not None and where not in {"chat", "dask"}:
        raise UsageError("An address comes after chat or dask: %agents connect chat URL, or dask [ADDRESS].")
    if (given.key_env is not None or given.free) and where != "chat":
        raise UsageError("--key-env and --free come after chat: %agents connect chat URL --key-env NAME.")
    counts = any((given.address, given.workers, given.key_env, given.free))
    if counts and is_variable:
        raise UsageError(
            f"{where} is your variable here, a provider of its own. Give it another name, and del {where}."
        )
    if not given.name and (given.weight != 1.0 or given.route):
        raise UsageError("--weight and --route come with --name: %agents connect api --name work --weight 2.")
    if given.name and not is_variable and given.where in {None, "dask", "simulator"}:
        raise UsageError("--name is for api, a URL, chat URL, or a variable with a provider.")


def _is_variable(where: str | None, variables: Mapping[str, Any]) -> bool:
    """True if a word names a variable, not a module, as after `import dask`."""
    if where in PLACES and where in variables:
        try:
            as_provider(variables[where])
        except AgentMagicError:
            return False
    return where in variables


def _limits(ctx: CommandContext, given: Namespace) -> None:
    session = ctx.session
    options = {kind.field: getattr(given, kind.field) for kind in KINDS.values()}
    said = {field: value for field, value in options.items() if value is not None}
    if said:
        if session.running:
            raise UsageError("Limits cannot change during a run. %agents wait for it first.")
        name = session.shared.client.limit_class(given.model or ctx.model)
        session.shared.set_limits(name, replace(session.shared.pacer.given.get(name, Limits()), **said))
    sharing = session.shared.sharing()
    records = [*session.shared.recent, *(driver.record for driver in session.running)]
    page = _limits_page(session.shared.pacer, records, 1 if sharing is None else sharing.kernels)
    show_page(page, graphic=is_kernel(ctx.shell))


def _limits_page(pacer: Pacer, records: Sequence[RunRecord], kernels: int) -> Page:
    pools, rows = pacer.health(time.monotonic()), list[tuple[str, ...]]()
    for name in dict.fromkeys((*pacer.given, *pools)):
        if name in pools:
            uses = pools[name].limits.values()
            each = {one.kind: (one.limit_per_min, one.source, one.share) for one in uses}
        else:
            each = {kind: (limit, "given", 1.0) for kind, limit in pacer.given[name].rates.items()}
        used = used_lately(records, name, datetime.now(UTC))
        told = [(each[word][0], used[kind.unit], each[word][2] if kernels > 1 else 1.0) for word, kind in KINDS.items()]
        cells = [_used(*one) for one in told]
        sources = {kind: source for kind, (limit, source, _) in each.items() if limit is not None}
        same = len(set(sources.values())) == 1
        said = [*sources.values()][:1] if same else [f"{kind} {source}" for kind, source in sources.items()]
        rows.append((name, *cells, ", ".join(said)))
    if not rows:
        return Page([Line("No rate limits are known yet. The first responses report them, or set them with --rpm.")])
    shared = f"{kernels} kernels use this key and divide its limits; this one may take the part in brackets."
    head = Line(
        "used in the last minute, out of the limit per minute. run.limits_chart() shows a run's minutes.", "", "limits:"
    )
    return Page([head, Table(LIMIT_COLUMNS, rows, strong=True), *([Line(shared)] if kernels > 1 else [])])


def _used(limit: float | None, used: float, share: float) -> str:
    part = f" ({100 * share:.0f} %)" if share < 1.0 else ""
    return f"{used:,.0f} of {'unknown' if limit is None else _round(limit)}{part}"


def _round(limit: float) -> str:
    for by, sign in ((1_000_000, "M"), (1_000, "k")):
        if limit >= max(by, 100_000) and limit % by == 0:
            return f"{limit / by:,.0f}{sign}"
    return f"{limit:,.0f}"


def _prices(ctx: CommandContext, given: Namespace) -> None:
    session, model = ctx.session, given.model
    shared = session.shared
    if any(getattr(given, name) is not None for name in RATES):
        if model is None or given.input is None or given.output is None:
            raise UsageError("A price needs a model, its input and its output: MODEL --input USD --output USD.")
        extra = {"cache_read": given.cache_read, "cache_write": given.cache_write}
        shared.set_price(model, TokenPrice(given.input, given.output, **extra))
    declared = [one.model for plan in session.plans for one in session.registry(plan).agents]
    wanted = [model] if model else [*(one or ctx.model for one in declared), *shared.prices]
    prices = shared.price_book()
    tariffs = {name: prices.tariff_of(name) for name in dict.fromkeys(wanted or [ctx.model])}
    show_page(prices_page(tariffs), graphic=is_kernel(ctx.shell))


def _workers(ctx: CommandContext, given: Namespace) -> None:
    dask = ctx.session.workers
    if dask is None and given.what is None:
        say(NO_WORKERS)
        return
    if dask is None:
        raise UsageError(NO_WORKERS)
    if given.what is not None and one_of("%agents workers", given.what, ("scale", "drain")) == "scale":
        _scale(dask, given.which)
    elif given.what is not None:
        _drain(dask, given.which)
    show_page(_workers_page(dask), graphic=is_kernel(ctx.shell))


def _scale(dask: Dask, which: list[str]) -> None:
    if len(which) != 1 or not which[0].isdecimal() or not int(which[0]):
        raise UsageError(f"%agents workers scale: the number of workers must be >= 1, got {' '.join(which)!r}.")
    wanted, there = int(which[0]), sum(one.state != "draining" for one in dask.workers())
    dask.scale(wanted)
    fewer = " Workers that are no longer needed finish their streams first." if wanted < there else ""
    auto = dask.autoscale
    more = "" if auto is None else f" Automatic scaling goes on from there: it decides every {auto.interval_s:g} s."
    say(f"From now on there {'is' if wanted == 1 else 'are'} {wanted}.{fewer}{more}")


def _drain(dask: Dask, which: list[str]) -> None:
    known = [one.name for one in dask.workers()]
    for name in which:
        one_of("%agents workers drain", name, known)
    dask.drain(which or None)


def _workers_page(dask: Dask) -> Page:
    found = dask.workers()
    rows = [(one.name, one.state, f"{one.streams:,}", f"{one.answered:,}", f"{one.failed:,}") for one in found]
    count, more = dask.starting, list[Line]()
    if count:
        more.append(Line(f"{count} more {'is' if count == 1 else 'are'} being started, which takes seconds"))
    if not rows and not dask.cluster.is_started:
        return Page([Line("The workers start with the first run.")])
    if not rows:
        how = "%agents workers scale 2 starts some." if dask.cluster.is_own else "Start some where the cluster runs."
        return Page(more or [Line(f"There are no workers. {how}")])
    which = "the last run" if all(one.state == "idle" for one in found) else "the run under way"
    return Page([Table(WORKER_COLUMNS, rows, strong=True), *more, Line(f"answered and failed: in {which}")])


MOST_TOOLS = 20


async def _mcp(ctx: CommandContext, given: Namespace) -> None:
    servers = ctx.session.servers
    if given.command:
        # In a thread: a server that has to be downloaded takes long to start, and Stop must be heard.
        server = await asyncio.to_thread(_started, given)
        ctx.session.add_server(server)
    elif given.name and given.name not in servers:
        say(f"There is no MCP server {given.name!r}. Start it: %agents mcp {given.name} COMMAND, or URL")
        return
    say(
        "\n".join(_server_lines(servers[one]) for one in ([given.name] if given.name else servers))
        or "No MCP server runs."
    )


def _started(given: Namespace) -> McpServer:
    url, *rest = given.command
    headers = _headers(given.key_env, given.header)
    if "://" not in url:
        if headers:
            raise UsageError("--key-env and --header are for a URL. A process gets variables by --env A,B.")
        return McpServer(given.name, given.command, env=given.env, timeout=given.timeout)
    if rest:
        raise UsageError(f"{shown_value(' '.join(rest))} stands behind the URL. Options come before the name.")
    return McpServer(given.name, url=url, headers=headers, env=given.env, timeout=given.timeout)


def _headers(key: str | None, others: Sequence[str]) -> dict[str, str]:
    """Return headers with values from the environment, since a cell is saved with its text."""
    found = {} if key is None else {"Authorization": f"Bearer {_variable(key, '--key-env')}"}
    for other in others:
        name, _, variable = other.partition("=")
        found[name] = _variable(variable, f"--header {name}=VARIABLE" if variable else "--header NAME=VARIABLE")
    return found


def _variable(name: str, option: str) -> str:
    if value := os.environ.get(name, ""):
        return value
    what = f"No variable {name!r} is set" if name.isidentifier() else f"{option} takes the name of a variable"
    raise UsageError(f"{what}. Set it: os.environ['NAME'] = getpass.getpass(), then give NAME.")


def _server_lines(server: McpServer) -> str:
    if server.has_ended:
        return f"{server.name}: has ended. {server.again}"
    shown = [*server.tools.items()][:MOST_TOOLS]
    width = max((len(name) for name, _ in shown), default=0)
    tools = [f"  {name:<{width}}  {tool.description.partition(chr(10))[0]}".rstrip() for name, tool in shown]
    count = len(server.tools)
    if count > MOST_TOOLS:
        names = ",".join(f"{server.name}.{name}" for name, _ in shown[:2])
        tools.append(f"  and {count - MOST_TOOLS:,} more. Each is sent with every request, and models choose worse")
        tools.append(f"  among many: --tools {names} takes those that are needed.")
    head = f"{server.name}: {plural(count, 'tool')}. --tools {server.name}.* takes all."
    if not count:
        head = f"{server.name}: no tools. It runs, and has none to call."
    said = shown_value(server.ignored) if server.ignored else ""
    odd = [f"  note: it prints lines that are no messages of the protocol (ignored): {said}"] if said else []
    if server.unlisted:
        odd.append(f"  note: its tools have changed and could not be listed again: {server.unlisted}")
    return "\n".join([head, *tools, *odd])


VERBS = {
    "connect": Verb(
        "Choose the provider: simulator (the mock server), api, a URL, chat URL, a variable, dask. Alone: show it.",
        (
            argument(
                "where",
                nargs="?",
                metavar="WHERE",
                help="simulator: the mock server. api: the real one. URL: a server of the same API. chat URL: a server "
                "of the chat completions API. dask: the current provider, over workers. Or a variable with a provider.",
            ),
            argument(
                "address", nargs="?", metavar="ADDRESS", help="After chat: its address. After dask: its scheduler."
            ),
            argument("--key-env", metavar="NAME", help="After chat: the variable of the environment with the key."),
            argument("--free", action="store_true", help="After chat: its answers cost nothing."),
            argument("--workers", type=int, metavar="N", help="After dask: how many to start here; 2 by default."),
            argument(
                "--name", default="", metavar="NAME", help="Add it to the named endpoints, which share the requests."
            ),
            argument("--weight", type=float, default=1.0, metavar="W", help="With --name: its share of the requests."),
            argument("--route", metavar="WORDS", help=f"With --name: {', '.join(map(repr, ROUTES))}."),
            argument("--seed", type=int, default=0, help="Changes every simulated text and duration."),
            argument("--latency", default="real", help="none, fast, real, or a factor such as x0.1."),
            argument("--rpm", type=float, help="Simulated limit of requests per minute."),
            argument("--itpm", type=float, help="Simulated limit of input tokens per minute."),
            argument("--otpm", type=float, help="Simulated limit of output tokens per minute."),
            argument("--script", metavar="FILE", help="Scripted answers, one JSON object a line."),
            argument("--slips", metavar="M=SHARE", help="How often a simulated choice is wrong: haiku=0.2,opus=0.02."),
            argument("--slots", type=int, metavar="N", help="Simulated requests that it works on at once."),
            argument("--shared-rate", type=float, metavar="N", help="Simulated tokens a second that all share."),
            argument("--cap", type=float, metavar="N", help="Simulated tokens a second of one answer, at most."),
            argument("--prompt-rate", type=float, metavar="N", help="Simulated input tokens a second it reads."),
            argument("--batch", metavar="PACE", help="How simulated batches go: takes=S,hidden=S,expires=S,poll=S."),
        ),
        _connect,
        examples=(
            "%agents connect simulator",
            "%agents connect simulator --latency fast --rpm 50    # quick answers, at most 50 requests a minute",
            "%agents connect simulator --slots 4 --shared-rate 400 --cap 200    # as a model of your own",
            "%agents connect api",
            "%agents connect http://127.0.0.1:11434    # Ollama, or any server that speaks the Messages API",
            "%agents connect chat http://127.0.0.1:8000/v1 --free    # vLLM, llama.cpp and the like",
            "%agents connect chat https://gateway.example/v1 --key-env GATEWAY_KEY",
            "%agents connect mine    # a variable with a provider of your own",
            "%agents connect work --name work --weight 2    # beside others with a name: see am.Pool",
            "%agents connect dask --workers 4    # whoever answers now, over four workers of this machine",
            "%agents connect dask tls://host:8786    # over the workers of a cluster",
        ),
    ),
    "limits": Verb(
        "Show the rate limits, or set them: MODEL --rpm N --itpm N --otpm N.",
        (
            argument("model", nargs="?", metavar="MODEL", help="The model, or one of its class."),
            *(
                argument(
                    f"--{kind.option}",
                    dest=kind.field,
                    type=float,
                    metavar="N",
                    help=f"{kind.counted.capitalize()} per minute.",
                )
                for kind in KINDS.values()
            ),
        ),
        _limits,
        examples=("%agents limits", "%agents limits claude-haiku-5-5 --rpm 50 --otpm 10000"),
    ),
    "prices": Verb(
        "Show prices per million tokens, or set one: MODEL --input USD --output USD.",
        (
            argument("model", nargs="?", metavar="MODEL", help="The model; without it, those declared."),
            argument("--input", type=float, metavar="USD", help="Per million uncached input tokens."),
            argument("--output", type=float, metavar="USD", help="Per million output tokens."),
            argument("--cache-read", type=float, metavar="USD", help="Cache reads; by default 0.1 of the input."),
            argument("--cache-write", type=float, metavar="USD", help="Cache writes; by default 1.25 of the input."),
        ),
        _prices,
        examples=("%agents prices", "%agents prices my-model --input 3 --output 15 --cache-read 0.30"),
    ),
    "workers": Verb(
        "Show the worker processes that make requests, or change them: scale N, drain [NAMES].",
        (
            argument(
                "what", nargs="?", metavar="scale|drain", help="scale N: run N workers. drain: send them nothing new."
            ),
            argument("which", nargs="*", metavar="N|NAME", help="How many; or names to drain, by default all."),
        ),
        _workers,
        examples=(
            "%agents workers",
            "%agents workers scale 4",
            "%agents workers drain worker-0    # its streams end, nothing new begins",
        ),
    ),
    "mcp": Verb(
        "Start a tool server that speaks the Model Context Protocol, connect to one at a URL, or list its tools.",
        (
            argument("--env", default="", metavar="A,B", help="Variables of the environment that a process gets."),
            argument("--key-env", metavar="VARIABLE", help="For a URL: the environment variable with its key."),
            argument(
                "--header",
                action="append",
                default=[],
                metavar="NAME=VARIABLE",
                help="For a URL: another header, and the environment variable with its value.",
            ),
            argument("--timeout", type=float, default=CALL_S, metavar="SECONDS", help="Timeout of a call: 300."),
            argument("name", nargs="?", metavar="NAME", help="Its name: --tools NAME.*"),
            argument(
                "command",
                nargs=argparse.REMAINDER,
                metavar="COMMAND | URL",
                help="The program and its arguments, or the URL.",
            ),
        ),
        _mcp,
        examples=(
            "%agents mcp files npx -y @modelcontextprotocol/server-filesystem .",
            "%agents mcp --env GITHUB_TOKEN github github-mcp-server stdio",
            "%agents mcp --key-env CRM_KEY crm https://crm.example/mcp    # sent as Authorization: Bearer ...",
            "%agents mcp --header X-Api-Key=CRM_KEY crm https://crm.example/mcp",
            "%agents mcp    # what runs",
            "%%agent librarian --tools files.*    # or files.read_file",
        ),
        waits=True,
    ),
}
