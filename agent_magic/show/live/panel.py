"""The details of one agent, opened by a click: prompt, answer, attempts, conversation."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from agent_magic.declare.units import UNKNOWN, count, dollars, seconds
from agent_magic.record.answer import TOOL_USE
from agent_magic.record.display import clean, single_line
from agent_magic.record.results import capped_steps
from agent_magic.show.attachments import thumbnails
from agent_magic.show.states import STATES, states_of, unmet
from agent_magic.show.text import result_facts
from agent_magic.show.values import markdown_html

if TYPE_CHECKING:
    from agent_magic.record.call import ToolCall
    from agent_magic.record.results import AgentResult, Attempt, RunRecord

MOST_CHARS = 5_000
"""Maximum of a shown text: arriving text is sent again every second."""
MOST_ANSWER = 100_000
"""Maximum of a complete answer, which is sent once."""
MOST_ATTEMPTS = 20
MOST_CALLS = 30
MOST_RESULT = 2_000
MOST_ARGUMENT = 600
HEADINGS = ("", "sent at", "took", "first token", "tokens in", "tokens out", "cost")


def details_of(record: RunRecord, agent: int, text: str = "") -> dict[str, Any]:
    result = record.results[agent]
    state = states_of(record)[agent]
    facts = filter(None, [unmet(capped_steps(record).get(agent)), *result_facts(result, record.source_at(agent))])
    is_text = result.answer and not _is_turn(result) and not result.returns
    return {
        "agent": agent,
        "name": single_line(result.name),
        "state": state,
        "word": STATES[state].word,
        "facts": " · ".join(facts),
        "headings": list(HEADINGS),
        "attempts": [_row(one) for one in result.attempts[-MOST_ATTEMPTS:]],
        "error": single_line(result.error or result.waits_why)[:600],
        "turns": _turns(result),
        "texts": _texts(record, agent, text),
        "rendered": markdown_html(result.text[:MOST_ANSWER]) if is_text else "",
        "pictures": thumbnails(result.attempts[-1].request.files) if result.attempts else [],
    }


def is_editable(record: RunRecord, agent: int) -> bool:
    result = record.results[agent]
    return record.ended_s is not None and bool(result.attempts) and not result.is_task


def _is_turn(result: AgentResult) -> bool:
    return result.stop_reason == TOOL_USE


def _row(attempt: Attempt) -> list[str]:
    usage = attempt.usage
    return [
        f"{attempt.number} {attempt.status}",
        seconds(attempt.started_s),
        seconds(attempt.api_s) if attempt.api_s is not None else "…",
        seconds(attempt.ttft_s) if attempt.ttft_s is not None else UNKNOWN,
        count(usage.total_input_tokens) if usage else UNKNOWN,
        count(usage.output_tokens) if usage else UNKNOWN,
        dollars(attempt.price.cost_usd if attempt.price else None),
        single_line(attempt.error or "")[:300],
    ]


def _turns(result: AgentResult) -> list[dict[str, Any]]:
    calls = result.calls[-MOST_CALLS:] if len(result.calls) > result.is_task else ()
    found: list[dict[str, Any]] = []
    for turn in dict.fromkeys(one.turn for one in calls):
        asked = result.attempts[turn - 1] if turn else None
        said = "" if asked is None or asked.answer is None else asked.answer.text
        found.append(
            {
                "heading": "calls" if asked is None else f"turn {asked.turn}",
                "said": _cut(said.strip(), result.name, MOST_CHARS),
                "calls": [_call(one, result.name) for one in calls if one.turn == turn],
            }
        )
    return found


def _call(call: ToolCall, name: str) -> dict[str, Any]:
    took = "…" if call.duration_s is None else seconds(call.duration_s)
    trace = "" if call.ended is None else call.ended.trace
    texts = {"result": _shown_result(call), "printed": call.prints, "traceback": trace}
    return {
        "number": call.number,
        "tool": single_line(call.tool),
        "status": call.status,
        "facts": " · ".join([took, *([] if call.status == "succeeded" else [call.status])]),
        "arguments": _arguments(call.arguments, name),
        "texts": {what: _cut(text, name, MOST_RESULT) for what, text in texts.items() if text},
        "pictures": thumbnails(() if call.ended is None else call.ended.files),
    }


def _arguments(text: str, name: str) -> list[list[str]]:
    """Return rows; JSON that is not an object unchanged."""
    try:
        given: Any = json.loads(text or "{}")
    except ValueError:
        given = text
    named = cast("dict[str, Any]", given) if isinstance(given, dict) else {"": given}
    written = {key: one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for key, one in named.items()}
    return [[single_line(key), _cut(one, name, MOST_ARGUMENT)] for key, one in written.items()]


def _shown_result(call: ToolCall) -> str:
    if call.ended is None or not call.ended.blocks:
        return call.result
    try:
        blocks = json.loads(call.result)
        return "\n".join(one["text"] if one["type"] == "text" else f"[{one['type']}]" for one in blocks)
    except (ValueError, TypeError, KeyError):
        return call.result


def _texts(record: RunRecord, agent: int, text: str) -> dict[str, str]:
    result, declared = record.results[agent], record.plan.agents[agent]
    answer, found = result.text or text, dict[str, str | None]()
    if result.is_task:
        return _task_texts(result)
    if result.attempts:
        request = result.attempts[-1].request
        found |= {"prompt as sent": request.prompt, "system": request.system, "shared context": request.context}
    else:
        found |= {"prompt as declared": declared.prompt, "system": declared.system_text}
    found["citations"] = "\n".join(
        f"{single_line(one.text)} — {single_line(one.title)}, {one.where}: {single_line(one.cited_text)}"
        for one in result.citations
    )
    if _is_turn(result):
        answer = ""
    first = {"answer": _cut(answer, declared.name, MOST_ANSWER)} if answer and result.answer else {}
    if answer and not first:
        first = {"answer so far": _cut(answer, declared.name, MOST_CHARS)}
    return {**first, **{heading: _cut(text, declared.name, MOST_CHARS) for heading, text in found.items() if text}}


def _task_texts(result: AgentResult) -> dict[str, str]:
    if not result.calls:
        return {}
    last = result.calls[-1]
    found = {
        "value": last.result if last.status == "succeeded" else "",
        "printed": last.prints,
        "traceback": "" if last.ended is None else last.ended.trace,
    }
    return {heading: _cut(text, result.name, MOST_CHARS) for heading, text in found.items() if text}


def _cut(text: str, name: str, most: int) -> str:
    if len(text) <= most:
        return clean(text)
    return f"{clean(text[:most])}\n… {len(text) - most:,} more characters: run[{name!r}]"
