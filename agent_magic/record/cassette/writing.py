"""Writing a cassette, and the scan for secrets before it is shared."""

from __future__ import annotations

import base64
import hashlib
import itertools
import os
import platform
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, cast

from agent_magic.declare.user_code import reason_of, run_user_code
from agent_magic.errors import CassetteError, SecretFound, shown_value
from agent_magic.record.cassette.reading import ANYWHERE, FORMAT, NO_AGENT, checked, is_cassette
from agent_magic.record.codec import event_to_json, line_of, to_json
from agent_magic.record.events import AttemptEnded, AttemptStarted, CallEnded, FirstToken, RunEnded
from agent_magic.record.files import check_folder, check_regular, real_path, write_whole
from agent_magic.record.results import RunRecord, sharers_of
from agent_magic.record.secret_scan import Finding, not_allowed, scan_data, scan_file, scan_text, secrets_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from agent_magic.declare.content import Attachment
    from agent_magic.record.events import Event
    from agent_magic.record.results import AgentResult

STAMPED = ("agent-magic", "anthropic", "genai-prices")
ELSEWHERE = frozenset({"at_s", "agent", "number"})
"""Fields of events that stand in a line under other names."""
TEXTS = frozenset(
    "prompt system context tools schema text content partial error why arguments result value prints trace takes "
    "title cited_text where original".split()
)
"""Fields with texts by people or models, or error messages. All others are numbers, names or fixed words."""


def only_hash(text: str) -> str:
    """Replace a text by its length and its fingerprint."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"[{len(text):,} characters left out, sha256 {digest[:16]}]" if text else text


def only_length(text: str) -> str:
    """Replace a text by one of the same length and bytes, which is enough for forecasts."""
    return filler(len(text), len(text.encode("utf-8", "surrogatepass")))


def filler(characters: int, size: int) -> str:
    long, rest = divmod(size - characters, 3)
    filled = "\U00010000" * long + ("", "\u00b7", "\u2026")[rest]
    return filled + "." * (characters - len(filled))


def write_cassette(
    records: RunRecord | Sequence[RunRecord], path: str | Path, *, redact: Callable[[str], str] | None = None
) -> int:
    """Write runs to a file atomically, and return the number of calls.

    `redact` returns the replacement of a text; `only_hash` removes all texts, and the bytes of pictures and documents.
    """
    if redact is not None and not callable(redact):
        raise CassetteError(
            f"redact must be a function that takes a text and returns what is written, got {shown_value(redact)}."
        )
    runs = (records,) if isinstance(records, RunRecord) else tuple(records)
    path = real_path(path, CassetteError)
    check_folder(path, CassetteError)
    check_regular(path, CassetteError)
    if path.exists() and path.stat().st_size and not is_cassette(path):
        raise CassetteError(f"{path.name!r} is there already and is no cassette. Choose another name.")
    if any(run.redacted for run in runs):
        raise CassetteError("This run is the replay of a recording without its texts. Pass that recording on as it is.")
    write_whole(path, (line_of(checked(line)) for line in lines_of(runs, redact)))
    return sum(len(result.attempts) for run in runs for result in run.results)


def lines_of(runs: Sequence[RunRecord], redact: Callable[[str], str] | None = None) -> Iterator[dict[str, Any]]:
    for line in _lines_of(runs):
        if "file" in line and redact is not None:  # a document is a text too, and the content of a picture is unknown
            continue
        if redact is None:
            yield line
        elif "plan" in line:
            yield {**line, "redacted": True}
        else:
            yield _redacted(line, redact)


def _redacted(data: Any, redact: Callable[[str], str]) -> Any:
    if isinstance(data, list):
        return [_redacted(one, redact) for one in cast("list[Any]", data)]
    if not isinstance(data, dict):
        return data
    named = cast("dict[str, Any]", data)
    return {
        name: _replaced(value, redact) if name in TEXTS and isinstance(value, str) else _redacted(value, redact)
        for name, value in named.items()
    }


def _replaced(text: str, redact: Callable[[str], str]) -> str:
    def failed(error: BaseException) -> CassetteError:
        return CassetteError(
            f"redact raised {reason_of(error)}. It must return the text to write. Nothing was written."
        )

    found = cast("object", run_user_code(lambda: redact(text), failed))
    if not isinstance(found, str):
        raise CassetteError(f"redact must return the text to write, got {shown_value(found)}. Nothing was written.")
    return found


def _lines_of(runs: Sequence[RunRecord]) -> Iterator[dict[str, Any]]:
    yield {"cassette": FORMAT, "made_with": made_with(), "runs": len(runs)}
    written: set[str] = set()
    for number, record in enumerate(runs, 1):
        yield {"run": number, **_run_line(record)}
        for one in files_of(record):
            if one.sha256 not in written:
                written.add(one.sha256)
                yield {"run": number, "file": one.sha256, "data": base64.b64encode(one.data).decode()}
        for result, happened, leader in zip(record.results, _events_by_agent(record), sharers_of(record), strict=True):
            like = None if leader is None else record.results[leader].name
            for line in _agent_lines(record, result, happened, like):
                yield {"run": number, **line}


def files_of(record: RunRecord) -> list[Attachment]:
    sent = (one for request in record.facts.requests for one in request.files)
    ended = (event for event in record.events if isinstance(event, CallEnded))
    every = itertools.chain(sent, (one for event in ended for one in event.files))
    return list({one.sha256: one for one in every if one.data}.values())


def made_with() -> dict[str, str]:
    return {"python": platform.python_version(), **{name: _version(name) for name in STAMPED}}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _run_line(record: RunRecord) -> dict[str, Any]:
    return {
        "plan": record.plan.name,
        "recorded": record.began_at.isoformat(timespec="seconds"),
        "simulated": record.simulated,
        "ended_s": record.ended_s,
        "cut": record.cut,
        "agents": len(record.results),
        "calls": sum(len(result.attempts) for result in record.results),
        "terms": to_json(record.terms),
        "bases": to_json(record.bases),
    }


def _events_by_agent(record: RunRecord) -> list[list[Event]]:
    events: list[list[Event]] = [[] for _ in record.results]
    for event in record.events:
        if not isinstance(event, RunEnded):
            events[event.agent].append(event)
    return events


def _agent_lines(
    record: RunRecord, result: AgentResult, events: list[Event], like: str | None
) -> Iterator[dict[str, Any]]:
    starts = [index for index, event in enumerate(events) if isinstance(event, AttemptStarted)]
    before = events[: starts[0]] if starts else events
    yield {
        "agent": result.name,
        "calls": len(starts),
        "status": result.status,
        "ready_s": result.ready_s,
        "finished_s": result.finished_s,
        "error": result.error,
        **({} if like is None else {"like": like}),
        "events": [_plain(event) for event in before],
    }
    last: AttemptStarted | None = None
    for start, end in itertools.pairwise([*starts, len(events)]):
        line = _call_line(record, result, events[start:end])
        begun = cast("AttemptStarted", events[start])
        said = len(last.request.messages) if last is not None else 0
        if last is not None and said and begun.request.messages[:said] == last.request.messages:
            line["continues"], line["request"]["messages"] = last.number, line["request"]["messages"][said:]
        yield line
        last = begun


def _call_line(record: RunRecord, result: AgentResult, events: list[Event]) -> dict[str, Any]:
    line: dict[str, Any] = {"agent": result.name, "ready_s": result.ready_s, "first_token_s": None, "ended_s": None}
    then: list[Event] = []
    for event in events:
        match event:
            case AttemptStarted():
                line |= {**_rest(event), "call": event.number, "started_s": event.at_s}
                line["key"] = event.request.key(ANYWHERE)
            case FirstToken():
                line["first_token_s"] = event.at_s
            case AttemptEnded():
                line |= {**_rest(event), "ended_s": event.at_s}
                line["source"] = record.replayed.get((event.agent, event.number), event.source)
                if event.answer is not None:
                    line["answer"]["source"] = line["source"] or event.answer.source
            case _:
                then.append(event)
    return {**line, "then": [_plain(event) for event in then]}


def _rest(event: AttemptStarted | AttemptEnded) -> dict[str, Any]:
    return {name: value for name, value in to_json(event).items() if name not in ELSEWHERE}


def _plain(event: Any) -> dict[str, Any]:
    """Leave out the agent's number, which differs in other plans."""
    line = event_to_json(event._replace(agent=NO_AGENT))
    del line["agent"]
    return line


def check_for_secrets(
    records: Sequence[RunRecord],
    name: str,
    *,
    notebook: Path | None = None,
    cells: Iterable[str] = (),
    allow: Iterable[str] = (),
    redact: Callable[[str], str] | None = None,
) -> None:
    found = not_allowed(_look(lines_of(records, redact), name, notebook, cells), allow)
    if found:
        raise SecretFound([str(one) for one in found], what=name)


def _look(lines: Iterable[dict[str, Any]], name: str, notebook: Path | None, cells: Iterable[str]) -> Iterator[Finding]:
    secrets = secrets_of(os.environ)
    for line in lines:
        if "file" in line:  # bytes: only a text can hold a readable key
            data = base64.b64decode(line["data"])
            with suppress(UnicodeDecodeError):
                yield from scan_text(data.decode(), f"{name}, a document", secrets)
            continue
        who = f", {line['agent']!r}" if "agent" in line else ""
        yield from scan_data({k: v for k, v in line.items() if k != "key"}, f"{name}{who}", secrets)
    for number, cell in enumerate(cells, 1):
        yield from scan_text(cell, f"executed cell {number}", secrets)
    if notebook is not None:
        yield from scan_file(notebook.name, notebook.read_bytes(), secrets)
