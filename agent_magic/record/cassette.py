"""A cassette: a recorded run as a file to share. JSON lines, one call a line, plain data only.

```
{"cassette": 1, "plan": "agents", "made_with": "agent-magic 0.1.0", "recorded": "2026-11-21T10:00:00+00:00"}
{"call": 1, "agent": "python", "key": "…", "request": {…}, "answer": {…}, "started_s": 0.1, "ended_s": 2.2, …}
{"agent": "python", "status": "succeeded", "ready_s": 0.0, "finished_s": 2.2, "error": null}
```

No headers, no keys, no endpoint. Calls are matched by the fingerprint of what was asked, not by the agent's name.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from agent_magic.errors import CassetteError
from agent_magic.record.answer import Answer, Price, Usage
from agent_magic.record.request import Request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_magic.record.attempt import Attempt
    from agent_magic.record.results import AgentResult, RunRecord

FORMAT = 1
ANYWHERE = ""
"""The endpoint in the keys of a cassette: the same call is the same wherever it was answered."""


@dataclass(frozen=True, slots=True)
class Call:
    """One recorded request. Times in seconds since the recorded run began."""

    agent: str
    number: int
    key: str
    request: Request
    granted_s: float
    started_s: float
    first_token_s: float | None
    ended_s: float
    held_by: str
    backoff_s: float
    answer: Answer | None
    error: str | None
    kind: str | None
    partial: str
    usage: Usage | None
    price: Price
    status_code: int | None


@dataclass(frozen=True, slots=True)
class End:
    """What became of a recorded agent."""

    agent: str
    status: str
    ready_s: float | None
    finished_s: float
    error: str | None


@dataclass(frozen=True, slots=True)
class Cassette:
    """A recorded run.

    Attributes:
        recorded: When, in UTC.
        simulated: Whether the stand-in API had answered.
        damaged: Numbers of lines that could not be read. Each costs only itself.
    """

    plan: str
    recorded: str
    simulated: bool
    calls: tuple[Call, ...]
    ends: tuple[End, ...]
    damaged: tuple[int, ...] = ()


def write_cassette(record: RunRecord, path: Path) -> int:
    """Write a run to a file, whole or not at all. Returns the number of calls.

    Raises:
        OSError: The file cannot be written; an older one is as before.
    """
    lines = [json.dumps(line, ensure_ascii=True, sort_keys=True) for line in _lines(record)]
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return sum('"call"' in line for line in lines)


def read_cassette(path: Path) -> Cassette:
    """Read a file.

    Raises:
        CassetteError: It is no cassette, or of a later format.
    """
    try:
        rows = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise CassetteError(f"{path.name!r} cannot be read: {error.strerror}. Check the name.") from None
    head = _plain(rows[0]) if rows else None
    if head is None or not isinstance(head.get("cassette"), int):
        raise CassetteError(f"{path.name!r} is no cassette: its first line does not say so.")
    if head["cassette"] > FORMAT:
        raise CassetteError(f"{path.name!r} has format {head['cassette']}; this version reads up to {FORMAT}. Update.")
    calls: list[Call] = []
    ends: list[End] = []
    damaged: list[int] = []
    for number, row in enumerate(rows[1:], 2):
        try:
            data = _plain(row) or {}
            if "call" in data:
                calls.append(_call(data))
            else:
                ends.append(End(**data))
        except (KeyError, TypeError, ValueError):
            damaged.append(number)
    return Cassette(
        str(head.get("plan", "")),
        str(head.get("recorded", "")),
        bool(head.get("simulated")),
        tuple(calls),
        tuple(ends),
        tuple(damaged),
    )


def _lines(record: RunRecord) -> Iterator[dict[str, Any]]:
    yield {
        "cassette": FORMAT,
        "plan": record.plan.name,
        "made_with": _made_with(),
        "recorded": record.began_at.isoformat(timespec="seconds"),
        "simulated": record.simulated,
    }
    for result in record.results:
        yield from (_call_line(attempt) for attempt in result.attempts if attempt.ended_s is not None)
        yield _end_line(result)


def _made_with() -> str:
    try:
        return f"agent-magic {version('agent-magic')}"
    except PackageNotFoundError:
        return "agent-magic, not installed"


def _call_line(attempt: Attempt) -> dict[str, Any]:
    names = ("agent", "granted_s", "started_s", "first_token_s", "ended_s", "held_by", "backoff_s", "error", "kind")
    return {
        **{name: getattr(attempt, name) for name in (*names, "partial", "status_code")},
        "call": attempt.number,
        "key": attempt.request.key(ANYWHERE),
        "request": attempt.request._asdict(),
        "answer": asdict(attempt.answer) if attempt.answer else None,
        "usage": asdict(attempt.usage) if attempt.usage else None,
        "price": (attempt.price or Price(None, "unknown"))._asdict(),
    }


def _end_line(result: AgentResult) -> dict[str, Any]:
    names = ("status", "ready_s", "finished_s", "error")
    return {"agent": result.name, **{name: getattr(result, name) for name in names}}


def _plain(line: str) -> dict[str, Any] | None:
    try:
        data: Any = json.loads(line)
    except ValueError:
        return None
    return cast("dict[str, Any]", data) if isinstance(data, dict) else None


def _call(data: dict[str, Any]) -> Call:
    """Read a call. Which class is made never depends on the data."""
    answer: dict[str, Any] | None = data.pop("answer")
    usage: dict[str, Any] | None = data.pop("usage")
    request = Request(**data.pop("request"))
    price = Price(**data.pop("price"))
    number = data.pop("call")
    rest: dict[str, Any] = {**data, "key": request.key(ANYWHERE)}
    return Call(
        number=number,
        request=request,
        answer=Answer(usage=Usage(**answer.pop("usage")), **answer) if answer else None,
        usage=Usage(**usage) if usage else None,
        price=price,
        **rest,
    )
