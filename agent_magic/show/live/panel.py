"""The details of one agent, for the panel that a click opens: prompt, answer, and a row per attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_magic.record.plaintext import clean, single_line
from agent_magic.show.attachments import thumbnails
from agent_magic.show.states import STATES, state_of
from agent_magic.show.text import result_facts
from agent_magic.show.units import UNKNOWN, count, dollars, seconds
from agent_magic.show.values import markdown_html

if TYPE_CHECKING:
    from agent_magic.record.answer import Citation
    from agent_magic.record.results import Attempt, RunRecord

MOST_CHARS = 5_000
"""The characters of a text that is shown. Arriving text is sent again every second."""
MOST_ANSWER = 100_000
"""The characters of an answer that is complete, which is sent once."""
MOST_ATTEMPTS = 20
HEADINGS = ("", "sent at", "took", "first token", "tokens in", "tokens out", "cost")
"""The columns of the table of attempts. The first has its number and its status."""


def details_of(record: RunRecord, agent: int, text: str = "") -> dict[str, Any]:
    """Return the details of one agent.

    Args:
        record: The run.
        agent: Its number.
        text: The part of an unfinished answer that has arrived.

    Returns:
        Plain data: name, state, `facts` as one line, `attempts` as rows of a table, and `texts` by heading, the answer
        first. Long texts are cut and marked. `rendered` is a complete answer as safe HTML, empty where it is a value.
        `pictures` are small ones of what was sent.
    """
    result = record.results[agent]
    state = state_of(result)
    return {
        "agent": agent,
        "name": single_line(result.name),
        "state": state,
        "word": STATES[state].word,
        "facts": " · ".join(result_facts(result)),
        "headings": list(HEADINGS),
        "attempts": [_row(one) for one in result.attempts[-MOST_ATTEMPTS:]],
        "error": single_line(result.error or result.waits_why)[:600],
        "texts": _texts(record, agent, text),
        "rendered": markdown_html(result.text[:MOST_ANSWER]) if result.answer and result.returns is None else "",
        "pictures": _pictures(record, agent),
    }


def _row(attempt: Attempt) -> list[str]:
    """Return the cells of one attempt, and its error."""
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


def _texts(record: RunRecord, agent: int, text: str) -> dict[str, str]:
    result, declared = record.results[agent], record.plan.agents[agent]
    answer, found = result.text or text, dict[str, str | None]()
    if result.attempts:
        request = result.attempts[-1].request
        found |= {"prompt as sent": request.prompt, "system": request.system, "shared context": request.context}
    else:
        found |= {"prompt as declared": declared.prompt, "system": declared.system_text}
    found["citations"] = "\n".join(map(_citation, result.citations))
    first = {"answer": _cut(answer, declared.name, MOST_ANSWER)} if result.answer else {}
    if answer and not first:
        first = {"answer so far": _cut(answer, declared.name, MOST_CHARS)}
    return {**first, **{heading: _cut(text, declared.name, MOST_CHARS) for heading, text in found.items() if text}}


def _citation(one: Citation) -> str:
    return f"{single_line(one.text)} — {single_line(one.title)}, {one.where}: {single_line(one.cited_text)}"


def _pictures(record: RunRecord, agent: int) -> list[dict[str, str]]:
    """Return thumbnails of what the agent sent."""
    attempts = record.results[agent].attempts
    return thumbnails(one.attachment for one in attempts[-1].request.attachments) if attempts else []


def _cut(text: str, name: str, most: int) -> str:
    if len(text) <= most:
        return clean(text)
    return f"{clean(text[:most])}\n… {len(text) - most:,} more characters: run[{name!r}]"
