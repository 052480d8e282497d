"""The command line of the mock server. It ends on a signal, at the end of its input, or when its parent is gone."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable

from aiohttp import web

from agent_magic.simulator import batches, latency
from agent_magic.simulator.directives import FAULTS, read_script
from agent_magic.simulator.models import MODELS
from agent_magic.simulator.rate_limits import Allowance
from agent_magic.simulator.server import application
from agent_magic.simulator.service import Service, Settings

HOST = "127.0.0.1"
BACKLOG = 2048
POLL_S = 0.5
EPILOG = f"""\
directives in the prompt change the response:
  [[fault:NAME]]   {", ".join(FAULTS[:7])},
                   {", ".join(FAULTS[7:])}
  [[status:529]]   an error, also with retry_after=1 error_code=... message=... times=2
  [[tool:NAME {{"a": 1}}]]   a call of this tool, where tools are offered; several are one response
  [[text:I look it up.]]   the text before the calls, or alone; [[text:]] is an answer without content
  [[think]] [[think:Hm.]] [[think:redacted]]   a thinking block, with a signature that is checked
  [[broken]]   arguments that are no JSON, of tools with eager_input_streaming
  [[expire]]   in a batch: it expires unanswered
  [[ttft:2.0]] [[pace:50]] [[tokens:50]] [[stop:refusal]] [[echo]]
  [[stop:max_tokens]]   cuts the last call in the middle of its arguments
  [[stop:pause_turn times=1]]   a search that goes on in the next response
  [[NAME@2:...]] [[NAME@2-4:...]]   holds in turn 2, after the first tool results; calls hold in turn 1
without [[tool]], tools that fit the words of the prompt are called, one to three times, with arguments that fit.
a line of a script:  {{"match": "text or /regex/", "text": "...", "turn": 2, "times": 2, ...}}
"""
TOKEN = re.compile(r"[A-Za-z0-9_-]{1,128}")


def main(argv: list[str] | None = None) -> int:
    """Run the mock server until it is stopped.

    Args:
        argv: The arguments; `None` takes those of the process.

    Returns:
        The exit status: 0 after an orderly end, 1 if the port is taken. Invalid arguments exit with 2.
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
        description="A mock server of the Messages API on 127.0.0.1. Prints a line of JSON with its url, then serves.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--host", choices=[HOST], default=HOST, help="the only address it listens on")
    add("--port", type=int, default=0, help="port (default: any free one)")
    add("--seed", type=int, default=0, help="changes every text and duration (default 0)")
    add("--latency", type=_option(latency.parse), default="real", help=latency.FORMS)
    add("--rpm", type=_positive, help="requests per minute and model class (default: the Start tier)")
    add("--itpm", type=_positive, help="uncached input tokens per minute")
    add("--otpm", type=_positive, help="output tokens per minute")
    add("--burst", type=_positive, default=1.0, help="seconds' worth of a given limit that may pass at once (1)")
    add("--unlimited", action="store_true", help="no limits and no limit headers")
    add("--script", type=_option(read_script), default=(), help="file of scripted responses, one JSON object per line")
    add("--slips", type=_option(_slips), default={}, help="how often a choice is wrong, by family: haiku=0.2,opus=0.02")
    add("--batch", type=_option(batches.parse), default=batches.Pace(), metavar="PACE", help=batches.FORMS)
    add("--token", type=_token, help="path prefix that requests must have; 'auto' draws a random one")
    add("--parent-pid", type=int, help="end when this process is gone")
    add("--until-stdin-closes", action="store_true", help="end when standard input ends")
    return parser


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < 1e12:
        raise argparse.ArgumentTypeError(f"{text!r} must be more than 0")
    return number


def _slips(text: str) -> dict[str, float]:
    """Read `haiku=0.2,opus=0.02`: how often a choice is another one than the prompt suggests."""
    found: dict[str, float] = {}
    for part in text.split(","):
        family, _, share = part.partition("=")
        try:
            found[family.strip()] = float(share)
        except ValueError:
            raise ValueError(f"slips are FAMILY=SHARE with commas, such as haiku=0.2,opus=0.02, got {text!r}") from None
    families = {model.family for model in MODELS.values()}
    if not (found.keys() <= families and all(0 <= one <= 1 for one in found.values())):
        raise ValueError(f"slips are shares from 0 to 1 of {', '.join(sorted(families))}, got {text!r}")
    return found


def _option(read: Callable[[str], object]) -> Callable[[str], object]:
    """Return a reader whose error messages `argparse` shows unchanged."""

    def typed(text: str) -> object:
        try:
            return read(text)
        except (ValueError, OSError) as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return typed


def _token(text: str) -> str:
    if not TOKEN.fullmatch(text):
        raise argparse.ArgumentTypeError("a token has letters, digits, - and _ only")
    return secrets.token_urlsafe(24) if text == "auto" else text


async def _serve(options: argparse.Namespace) -> None:
    """Listen, print the address, and serve until the end."""
    allowance = Allowance(options.rpm, options.itpm, options.otpm, options.burst, options.unlimited)
    settings = Settings(options.seed, options.latency, allowance, options.script, options.slips, options.batch)
    service = Service(settings, time.monotonic())
    # A lost connection cancels its handler, so an abandoned stream is noticed immediately, not at the next write.
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
    stop, loop, parent = asyncio.Event(), asyncio.get_running_loop(), options.parent_pid
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: loop.call_soon_threadsafe(stop.set))
    if options.until_stdin_closes:
        _at_stdin_end(lambda: loop.call_soon_threadsafe(stop.set))
    while not stop.is_set() and (parent is None or _alive(parent)):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), None if parent is None else POLL_S)


def _at_stdin_end(stop: Callable[[], object]) -> None:
    """Call `stop` in a thread when standard input ends.

    A thread works for pipes, terminals, files and on Windows. It reads the descriptor, because a thread that blocks in
    `sys.stdin` would hold its lock when the interpreter exits.
    """

    def read() -> None:
        with contextlib.suppress(OSError):  # Closed or never opened.
            while os.read(0, 4096):
                pass
        with contextlib.suppress(RuntimeError):  # The loop is closed already.
            stop()

    threading.Thread(target=read, name="stdin", daemon=True).start()


def _alive(pid: int) -> bool:
    if sys.platform != "win32":  # Signal 0 would end the process there; standard input tells on Windows.
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
    return True
