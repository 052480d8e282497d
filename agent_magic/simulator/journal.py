"""A journal with one entry per request, for tests and benchmarks."""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import asdict, dataclass

from agent_magic.simulator.json_types import Json

KEPT = 100_000
PREVIEW = 80


@dataclass(slots=True)
class Entry:
    """One request. Times are seconds since the journal began; `None` if it did not happen.

    Attributes:
        route: The path, without the token.
        overlap: Requests in flight on arrival, including itself.
        prompt: The first 80 characters of the last user message.
        aborted_s: When the client disconnected before the end.
    """

    number: int
    route: str
    started_s: float
    overlap: int
    request_id: str
    model: str | None = None
    stream: bool = False
    prompt: str = ""
    prompt_hash: str = ""
    status: int | None = None
    error: str | None = None
    fault: str | None = None
    first_byte_s: float | None = None
    finished_s: float | None = None
    aborted_s: float | None = None
    input_tokens: int = 0
    cache_write_tokens: int = 0
    cache_read_tokens: int = 0
    output_tokens: int = 0

    def asked(self, model: str, prompt: str, *, stream: bool) -> None:
        """Record the start of the prompt and 16 hexadecimal digits of its SHA-256."""
        self.model, self.stream = model, stream
        self.prompt = prompt[:PREVIEW]
        self.prompt_hash = hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def billed(self, uncached: int, written: int, read: int) -> None:
        self.input_tokens, self.cache_write_tokens, self.cache_read_tokens = uncached, written, read


class Journal:
    """The last 100,000 requests. Times are arguments."""

    def __init__(self, now_s: float) -> None:
        self.in_flight = 0
        self._began_s = now_s
        self._peak = 0
        self._count = 0
        self._entries: deque[Entry] = deque(maxlen=KEPT)

    def open(self, route: str, now_s: float) -> Entry:
        self.in_flight += 1
        self._peak = max(self._peak, self.in_flight)
        self._count += 1
        entry = Entry(self._count, route, self.at(now_s), self.in_flight, f"req_sim_{self._count:010d}")
        self._entries.append(entry)
        return entry

    def close(self, entry: Entry, now_s: float) -> None:
        """Aborted unless finished."""
        self.in_flight -= 1
        if entry.finished_s is None:
            entry.aborted_s = self.at(now_s)

    def at(self, now_s: float) -> float:
        return round(now_s - self._began_s, 6)

    def report(self) -> Json:
        entries = [asdict(entry) for entry in self._entries]
        return {
            "requests": entries,
            "in_flight": self.in_flight,
            "peak_overlap": self._peak,
            "finished": sum(entry["finished_s"] is not None for entry in entries),
            "aborted": sum(entry["aborted_s"] is not None for entry in entries),
        }

    def reset(self, now_s: float) -> None:
        """Requests in flight stay counted."""
        self._began_s = now_s
        self._peak = self.in_flight
        self._entries.clear()
