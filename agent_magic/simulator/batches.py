"""Message batches: create, retrieve, cancel, and results as JSON lines in shuffled order.

As in the API, the counts change only when the whole batch has ended.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from random import Random
from secrets import token_hex
from typing import Any

from agent_magic.simulator.api import ApiError, Json, as_list, as_object, invalid
from agent_magic.simulator.models import read_numbers
from agent_magic.simulator.response import encode

PATH = "/v1/messages/batches"
MOST_REQUESTS = 100_000
MOST_BYTES = 256 * 1024 * 1024
FORMS = "takes=S,hidden=S,expires=S,poll=S: seconds that a batch takes (10), is unknown at first, expires after (86400)"


@dataclass(frozen=True, slots=True)
class Pace:
    """Timing of batches, in seconds; a new batch is `hidden` (404) at first."""

    takes: float = 10.0
    hidden: float = 0.0
    expires: float = 86_400.0
    poll: float = 0.5


def parse(text: str) -> Pace:
    """Parse a text such as `takes=2,hidden=0.5`."""
    with suppress(ValueError):  # no number
        found = read_numbers(text)
        if found.keys() <= {one.name for one in fields(Pace)} and max(found.values()) < 1e9:
            return Pace(**found)
    raise ValueError(f"batches are {FORMS}; got {text!r}")


def page_of(rows: list[Json], limit: int, after: str | None) -> Json:
    """Begin after the row with an id."""
    names = [one["id"] for one in rows]
    begin = names.index(after) + 1 if after in names else 0
    page = rows[begin : begin + limit]
    return {
        "data": page,
        "has_more": begin + limit < len(rows),
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
    }


@dataclass(slots=True)
class Batch:
    """One batch; `done_s` has when each request ends, in seconds after creation."""

    id: str
    requests: dict[str, Json]
    done_s: dict[str, float]
    created_s: float
    created: datetime
    ends_s: float
    cancelled_s: float | None = None
    lines: list[bytes] = field(default_factory=list[bytes])


class Batches:
    """The batches of one server."""

    def __init__(self, pace: Pace, seed: int, answer: Callable[[bytes, float], Json]) -> None:
        self._pace, self._seed, self._answer = pace, seed, answer
        self._stem = f"msgbatch_sim_{token_hex(4)}"  # a server that is started again has other batches
        self._batches: dict[str, Batch] = {}
        self._made = 0

    def create(self, body: bytes, now_s: float) -> tuple[Json, float | None]:
        """Create a batch; invalid parameters appear as results."""
        try:
            given = as_list((as_object(json.loads(body)) or {}).get("requests"))
        except ValueError:
            raise invalid("The request body is not valid JSON.") from None
        if not given or len(given) > MOST_REQUESTS:
            raise invalid(f"requests: a list of 1 to {MOST_REQUESTS} requests is required")
        requests: dict[str, Json] = {}
        for index, one in enumerate(given):
            row = as_object(one) or {}
            name, params = row.get("custom_id"), as_object(row.get("params"))
            if not isinstance(name, str) or not 1 <= len(name) <= 64 or name in requests or params is None:
                raise invalid(f"requests.{index}: a custom_id of its own and params are required")
            requests[name] = params
        self._made = number = self._made + 1
        id_ = f"{self._stem}{number:06d}"
        draw = Random(f"batch:{self._seed}:{number}")
        done_s = {name: draw.random() * self._pace.takes for name in requests}
        ends_s = now_s + min(self._pace.takes, self._pace.expires)
        self._batches[id_] = batch = Batch(id_, requests, done_s, now_s, datetime.now(UTC), ends_s)
        return self._described(batch, now_s), self._pace.poll

    def look(self, id_: str, now_s: float) -> tuple[Json, float | None]:
        """Return a batch and the seconds until the next poll, if it has not ended."""
        batch = self._find(id_, now_s)
        return self._described(batch, now_s), None if now_s >= batch.ends_s else self._pace.poll

    def list(self, limit: int, after: str | None, now_s: float) -> Json:
        return page_of([self._described(one, now_s) for one in reversed(self._batches.values())], limit, after)

    def cancel(self, id_: str, now_s: float) -> Json:
        batch = self._find(id_, now_s)
        if now_s < batch.ends_s and batch.cancelled_s is None:
            batch.cancelled_s = now_s
            batch.ends_s = min(batch.ends_s, now_s + self._pace.poll)
        return self._described(batch, now_s)

    def delete(self, id_: str, now_s: float) -> Json:
        if now_s < self._find(id_, now_s).ends_s:
            raise invalid("The batch is still being processed. Cancel it first.")
        del self._batches[id_]
        return {"id": id_, "type": "message_batch_deleted"}

    def results(self, id_: str, now_s: float) -> Iterator[bytes]:
        batch = self._find(id_, now_s)
        if now_s < batch.ends_s:
            raise invalid("The batch is still being processed.")
        names = list(batch.requests)
        Random(f"order:{self._seed}:{len(names)}").shuffle(names)
        if batch.lines:
            return iter(batch.lines)
        return self._lines(batch, names)

    def report(self) -> list[Json]:
        found = self._batches.values()
        return [
            {"id": one.id, "custom_ids": [*one.requests], "cancelled": one.cancelled_s is not None} for one in found
        ]

    def _lines(self, batch: Batch, names: list[str]) -> Iterator[bytes]:
        lines: list[bytes] = []
        for name in names:
            lines.append(encode({"custom_id": name, "result": self._result(batch, name)}) + b"\n")
            yield lines[-1]
        batch.lines = lines  # asked again, they are the same

    def _result(self, batch: Batch, name: str) -> Json:
        state = self._outcome(batch, name)
        if state != "succeeded":
            return {"type": state}
        try:
            message = self._answer(encode({**batch.requests[name], "stream": False}), batch.created_s)
        except ApiError as error:
            return {"type": "errored", "error": error.body(f"req_{batch.id}")}
        usage: Any = message.get("usage") or {}
        return {"type": "succeeded", "message": {**message, "usage": {**usage, "service_tier": "batch"}}}

    def _outcome(self, batch: Batch, name: str) -> str:
        done_s = batch.done_s[name]
        if "[[expire]]" in json.dumps(batch.requests[name].get("messages")) or done_s > self._pace.expires:
            return "expired"
        late = batch.cancelled_s is not None and batch.created_s + done_s > batch.cancelled_s
        return "canceled" if late else "succeeded"

    def _find(self, id_: str, now_s: float) -> Batch:
        batch = self._batches.get(id_)
        if batch is None or now_s < batch.created_s + self._pace.hidden:
            raise ApiError(404, f"Message batch {id_} not found.")
        return batch

    def _described(self, batch: Batch, now_s: float) -> Json:
        ended = now_s >= batch.ends_s
        counts: dict[str, int] = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
        for name in batch.requests:
            counts[self._outcome(batch, name) if ended else "processing"] += 1
        after = batch.created + timedelta(seconds=batch.ends_s - batch.created_s)
        status = "ended" if ended else "in_progress" if batch.cancelled_s is None else "canceling"
        cancelled = None
        if batch.cancelled_s is not None:
            cancelled = (batch.created + timedelta(seconds=batch.cancelled_s - batch.created_s)).isoformat()
        return {
            "id": batch.id,
            "type": "message_batch",
            "processing_status": status,
            "request_counts": counts,
            "created_at": batch.created.isoformat(),
            "expires_at": (batch.created + timedelta(seconds=self._pace.expires)).isoformat(),
            "ended_at": after.isoformat() if ended else None,
            "cancel_initiated_at": cancelled,
            "archived_at": None,
            "results_url": f"{PATH}/{batch.id}/results" if ended else None,
        }
