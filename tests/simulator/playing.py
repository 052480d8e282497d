"""Conversations with tools against the service alone: no HTTP, no clock."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

from agent_magic.simulator.limits import Allowance
from agent_magic.simulator.models import parse_latency
from agent_magic.simulator.service import Service, Settings

SQL: dict[str, Any] = {
    "name": "run_sql",
    "description": "Run one SELECT on the sales database.",
    "input_schema": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
}
WEATHER: dict[str, Any] = {
    "name": "get_weather",
    "description": "Return the weather of a city.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
        "required": ["city"],
    },
}
MAIL: dict[str, Any] = {
    "name": "send_mail",
    "description": "Send a mail.",
    "input_schema": {
        "type": "object",
        "properties": {"to": {"type": "string"}, "text": {"type": "string"}},
        "required": ["to", "text"],
    },
}
TOOLS = [SQL, WEATHER, MAIL]
SEARCH: dict[str, Any] = {"type": "web_search_20260318", "name": "web_search"}
QUESTION = "Which region lost most? Check with SQL on the table orders(region, amount)."


def service() -> Service:
    """A service without delays and limits."""
    return Service(Settings(0, parse_latency("none"), Allowance(unlimited=True)), 0.0)


def asking(prompt: Any = QUESTION, **more: Any) -> dict[str, Any]:
    """A request with tools."""
    messages = [{"role": "user", "content": prompt}]
    return {"model": "claude-haiku-5-5", "max_tokens": 4000, "messages": messages, "tools": TOOLS, **more}


def reply(body: dict[str, Any], by: Service | None = None) -> dict[str, Any]:
    """The message that answers a request."""
    found = by or service()
    exchange = found.exchange(json.dumps(body).encode(), found.journal.open("/v1/messages", 0.0), 0.0)
    return json.loads(exchange.response.frames[0].data)


def calls_of(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The calls that the client has to answer."""
    return [block for block in message["content"] if block["type"] == "tool_use"]


def result(call: dict[str, Any], content: Any = "north, -12.4") -> dict[str, Any]:
    """The result of a call."""
    return {"type": "tool_result", "tool_use_id": call["id"], "content": content}


def continued(body: dict[str, Any], message: dict[str, Any], *results: dict[str, Any]) -> dict[str, Any]:
    """The request with a reply and its results appended."""
    found = copy.deepcopy(body)
    found["messages"].append({"role": "assistant", "content": message["content"]})
    if results:
        found["messages"].append({"role": "user", "content": list(results)})
    return found


def play(
    body: dict[str, Any], answer: Callable[[dict[str, Any]], dict[str, Any]] = result, most: int = 9
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Play a conversation to its end; return the requests and the replies."""
    found, requests, replies = service(), [body], list[dict[str, Any]]()
    for _ in range(most):
        replies.append(message := reply(requests[-1], found))
        if message["stop_reason"] == "pause_turn":
            requests.append(continued(requests[-1], message))
        elif calls := calls_of(message):
            requests.append(continued(requests[-1], message, *map(answer, calls)))
        else:
            break
    return requests, replies
