"""The command line of the simulator."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import secrets
import sys
import time
from pathlib import Path

from aiohttp import web

from agent_magic.simulator import latency
from agent_magic.simulator.behaviour import FAULTS, BehaviourError, Rule, read_script
from agent_magic.simulator.quota import Allowance
from agent_magic.simulator.server import application
from agent_magic.simulator.service import Service, Settings
from agent_magic.simulator.watching import on_signals, on_stdin_end, parent_gone

HOST = "127.0.0.1"
BACKLOG = 2048
EPILOG = f"""\
markers in the last user message change its answer:
  [[fault:NAME]]   {", ".join(FAULTS[:7])},
                   {", ".join(FAULTS[7:])}
  [[status:529]]   an error, also with retry_after=1 error_code=... message=... times=2
  [[ttft:2.0]] [[pace:50]] [[tokens:50]] [[stop:refusal]] [[echo]]
a script line:     {{"match": "text or /regex/", "text": "...", "times": 2, "fault": "cut", ...}}
"""
TOKEN = re.compile(r"[A-Za-z0-9_-]{1,128}")


def main(argv: list[str] | None = None) -> int:
    """Run the simulator until it is told to end.

    Args:
        argv: The arguments; `None` takes those of the process.

    Returns:
        The exit status: 0 after an orderly end, 1 if the port cannot be had. Wrong arguments leave with 2.
    """
    options = _parser().parse_args(argv)
    try:
        asyncio.run(_serve(options))
    except OSError as error:
        sys.stderr.write(f"simulator: cannot listen on {HOST}:{options.port}: {error.strerror or error}\n")
        return 1
    except KeyboardInterrupt:  # Before the signal handlers were in place.
        return 0
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="agent-magic simulate",
        description="A stand-in for the Messages API on this machine. Prints a line of JSON with its url, then serves.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--host", choices=[HOST], default=HOST, help="the only address it listens on")
    add("--port", type=int, default=0, help="port (default: any free one)")
    add("--seed", type=int, default=0, help="changes every text and duration (default 0)")
    add("--latency", type=_latency, default="real", help="none, fast, real, x0.1 or ttft=0.3,pace=200,spread=0.4")
    add("--rpm", type=_positive, help="requests per minute and model class (default: the Start tier)")
    add("--itpm", type=_positive, help="uncached input tokens per minute")
    add("--otpm", type=_positive, help="output tokens per minute")
    add("--burst", type=_positive, default=1.0, help="seconds' worth of a given limit that may pass at once (1)")
    add("--unlimited", action="store_true", help="no limits and no limit headers")
    add("--script", type=_script, default=(), help="file of scripted answers, one JSON object per line")
    add("--token", type=_token, help="path prefix that requests must have; 'auto' makes a random one")
    add("--parent-pid", type=int, help="end when this process is gone")
    add("--until-stdin-closes", action="store_true", help="end when standard input ends")
    return parser


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < 1e12:
        raise argparse.ArgumentTypeError(f"{text!r} must be more than 0")
    return number


def _latency(text: str) -> latency.Latency:
    try:
        return latency.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _script(text: str) -> tuple[Rule, ...]:
    try:
        return tuple(read_script(Path(text)))
    except (BehaviourError, OSError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _token(text: str) -> str:
    if not TOKEN.fullmatch(text):
        raise argparse.ArgumentTypeError("a token has letters, digits, - and _ only")
    return secrets.token_urlsafe(24) if text == "auto" else text


async def _serve(options: argparse.Namespace) -> None:
    """Listen, say where, and serve until the end."""
    allowance = Allowance(options.rpm, options.itpm, options.otpm, options.burst, options.unlimited)
    settings = Settings(options.seed, options.latency, allowance, options.script)
    service = Service(settings, time.monotonic())
    # A lost connection cancels its handler, so an abandoned stream is noticed at once, not at the next write.
    runner = web.AppRunner(
        application(service, options.token or ""), access_log=None, handler_cancellation=True, shutdown_timeout=0.1
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, HOST, options.port, backlog=BACKLOG)
        await site.start()
        port = runner.addresses[0][1]
        prefix = f"/{options.token}" if options.token else ""
        sys.stdout.write(json.dumps({"url": f"http://{HOST}:{port}{prefix}", "pid": os.getpid()}) + "\n")
        sys.stdout.flush()
        await _until_the_end(options)
    finally:
        await runner.cleanup()


async def _until_the_end(options: argparse.Namespace) -> None:
    """Wait for a signal, the end of standard input, or the death of the parent."""
    stop = asyncio.Event()
    on_signals(stop.set)
    if options.until_stdin_closes:
        on_stdin_end(stop.set)
    waiting: list[asyncio.Task[object]] = [asyncio.create_task(stop.wait())]
    if options.parent_pid is not None:
        waiting.append(asyncio.create_task(parent_gone(options.parent_pid)))
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
