"""The command line of the mock server. It ends on a signal, at the end of its input, or with its parent."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

from aiohttp import web

from agent_magic.simulator.options import HOST, make_parser, settings_of
from agent_magic.simulator.server import application
from agent_magic.simulator.service import Service

BACKLOG = 2048
POLL_S = 0.5


def main(argv: list[str] | None = None) -> int:
    """Run the mock server until it is stopped.

    Returns:
        The exit status: 0 after an orderly end, 1 if the port is taken. Invalid arguments exit with 2.
    """
    options = make_parser().parse_args(argv)
    try:
        asyncio.run(_serve(options))
    except OSError as error:
        sys.stderr.write(f"simulator: cannot listen on {HOST}:{options.port}: {error.strerror or error}\n")
        return 1
    except KeyboardInterrupt:  # Before the signal handlers were in place.
        return 0
    return 0


async def _serve(options: argparse.Namespace) -> None:
    """Listen, print the address, and serve until stopped."""
    service = Service(settings_of(options), time.monotonic())
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
