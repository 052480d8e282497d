"""How soon a fresh kernel sends its first request: ours against the bare SDK, imported in the cell.

Real kernels, driven as a front end does it. Seconds count from sending a cell until the request arrives at a server of
this process; CPU seconds are the kernel's in that time. `Run All` sends every cell at once; `after 3 s` waits so long
between the last declaration and the run, and counts from the run. The loop's lag is measured inside the kernel between
declaration and run: how late a timer of 5 ms fires. Every round measures all cases in turn, because the machine is
shared.

Run it with `python -m benchmarks.start [ROUNDS]`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.instant_server import events
from benchmarks.measuring import print_heading, print_table, ratio
from tests.kernels import Kernel

PAUSE_S = 3.0
WAIT_S = 60.0
TABLES = "import asyncio, json, pathlib, collections  # a cell of the user's own"
BARE = [
    TABLES,
    "topic = 'a public web API'",
    """import anthropic
client = anthropic.AsyncAnthropic(http_client=anthropic.DefaultAioHttpClient())
stream = await client.messages.create(model="claude-haiku-5-5", max_tokens=500, stream=True,
                                      messages=[{"role": "user", "content": f"Which framework for {topic}?"}])
async for event in stream:
    pass""",
]
DECLARED = [
    TABLES,
    "%load_ext agent_magic",
    "topic = 'a public web API'",
    "%%agent python\nWhich framework for {{ topic }}?",
    "%%agent rust\nWhich Rust framework for {{ topic }}?",
    "%%agent compare\nCompare {{ python }} {{ rust }}",
]
RUN = "run = %agents run"
PROBE = """
import asyncio, time
_lags = []
async def _probe():
    while True:
        due = time.perf_counter() + 0.005
        await asyncio.sleep(0.005)
        _lags.append(time.perf_counter() - due)
_probing = asyncio.get_running_loop().create_task(_probe())
"""
LAGS = "import json; print(json.dumps(_lags))"


class First(NamedTuple):
    """When the first request came: seconds, and CPU seconds of the kernel."""

    seconds: float
    cpu_s: float


class Arrivals(BaseHTTPRequestHandler):
    """Answers every request at once, and keeps when the first one came."""

    protocol_version = "HTTP/1.1"
    first: First | None = None
    came = threading.Event()
    pid = 0

    def do_POST(self) -> None:
        """Answer a stream of ten events."""
        self.rfile.read(int(self.headers.get("content-length", 0)))
        if Arrivals.first is None:
            Arrivals.first = First(time.monotonic(), cpu_s(Arrivals.pid))
        Arrivals.came.set()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"".join(events(10)) + b"0\r\n\r\n")

    def log_message(self, *_: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Say nothing."""


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def first_request(url: str, before: Sequence[str], cells: Sequence[str]) -> First:
    """Run the cells `before`, pause where there are any, send `cells`; return when the first request came."""
    with Kernel(ANTHROPIC_API_KEY="sk-not-a-key", ANTHROPIC_BASE_URL=url, AGENT_MAGIC_LEDGER=":memory:") as kernel:
        Arrivals.pid = int(kernel.do("import os; print(os.getpid())").text)
        for cell in before:
            kernel.do(cell)
        if before:
            time.sleep(PAUSE_S)
        Arrivals.first = None
        Arrivals.came.clear()
        began = First(time.monotonic(), cpu_s(Arrivals.pid))
        sent = [kernel.start(cell) for cell in cells]
        assert Arrivals.came.wait(WAIT_S)
        assert Arrivals.first is not None
        reply = kernel.wait(sent[-1])
        assert reply.status == "ok", reply.text
        return First(Arrivals.first.seconds - began.seconds, Arrivals.first.cpu_s - began.cpu_s)


def lags(url: str, cells: Sequence[str]) -> list[float]:
    """Return how late timers fire from the first of these cells until `PAUSE_S` after the last."""
    with Kernel(ANTHROPIC_API_KEY="sk-not-a-key", ANTHROPIC_BASE_URL=url, AGENT_MAGIC_LEDGER=":memory:") as kernel:
        kernel.do(DECLARED[0])
        for cell in cells[:-1]:
            kernel.do(cell)
        kernel.do(PROBE)
        kernel.do(cells[-1])
        time.sleep(PAUSE_S)
        return json.loads(kernel.do(LAGS).text.strip().splitlines()[-1])


def main() -> None:
    """Print the tables."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    server = ThreadingHTTPServer(("127.0.0.1", 0), Arrivals)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    print_heading("The first request of a fresh kernel", "Seconds; ratios are medians of the rounds' ratios.")
    cases = {
        "the bare SDK, imported in the cell": ((), BARE),
        "Run All": ((), [*DECLARED, RUN]),
        f"after {PAUSE_S:g} s": (DECLARED, [RUN]),
    }
    found: dict[str, list[First]] = {name: [] for name in cases}
    late: dict[str, list[float]] = {"nothing declared": [], "declared, loading": []}
    for _ in range(rounds):
        for name, (before, cells) in cases.items():
            found[name].append(first_request(url, before, cells))
        late["nothing declared"] += lags(url, DECLARED[:3])
        late["declared, loading"] += lags(url, DECLARED)
        print(
            "; ".join(f"{one[-1].seconds:.2f} s, {one[-1].cpu_s:.2f} s CPU" for one in found.values()), file=sys.stderr
        )
    bare = next(iter(found.values()))
    print_table(
        ("first request", "least, s", "median, s", "against the SDK", "CPU, s", "against the SDK"),
        [(name, *_row(ours, bare)) for name, ours in found.items()],
    )
    shares = (0.5, 0.99, 1.0)
    rows = [(name, *(f"{1000 * _quantile(each, share):.1f}" for share in shares)) for name, each in late.items()]
    print_table(("the loop's lag, ms", "median", "p99", "most"), rows)


def _row(ours: Sequence[First], bare: Sequence[First]) -> tuple[str, ...]:
    took, cpu = [one.seconds for one in ours], [one.cpu_s for one in ours]
    wall = ratio(took, [one.seconds for one in bare])
    return (
        f"{min(took):.2f}",
        f"{median(took):.2f}",
        f"{wall:.2f}x",
        f"{median(cpu):.2f}",
        f"{ratio(cpu, [one.cpu_s for one in bare]):.2f}x",
    )


def _quantile(found: Sequence[float], share: float) -> float:
    ordered = sorted(found)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


if __name__ == "__main__":
    main()
