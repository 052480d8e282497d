"""Reading a request body as the API does: the first thing that is wrong is answered with a message that names it."""

from __future__ import annotations

import json
from typing import Any

from agent_magic.simulator.ask import Ask, segments_of, text_of
from agent_magic.simulator.catalog import MODELS, Model
from agent_magic.simulator.problem import Problem, invalid
from agent_magic.simulator.shapes import Json, as_int, as_list, as_object

ROLES = ("user", "assistant", "system")
SAMPLING = ("temperature", "top_p", "top_k")
MAX_MESSAGES = 100_000
MAX_BREAKPOINTS = 4


def read_ask(body: bytes, *, counting: bool = False) -> Ask:
    """Read and validate a request.

    Args:
        body: The bytes of the request.
        counting: Whether this is `count_tokens`, which needs no `max_tokens`.

    Raises:
        Problem: The request is wrong; it carries the answer.
    """
    found = _decoded(body)
    model_id = found.get("model")
    if not isinstance(model_id, str):
        raise invalid("model: Field required" if model_id is None else "model: Input should be a valid string")
    max_tokens = None if counting else _max_tokens(found)
    messages = _checked_messages(found)
    _check_system(found)
    _check_tools(found)
    model = MODELS.get(model_id)
    if model is None:
        raise Problem(404, f"model: {model_id}")
    _check_model(found, model, messages, max_tokens)
    return _ask(found, model, messages, max_tokens)


def _ask(found: Json, model: Model, messages: list[Json], max_tokens: int | None) -> Ask:
    ask = Ask(
        model,
        segments_of(found),
        max_tokens=max_tokens,
        stream=_flag(found, "stream"),
        stop_sequences=_stop_sequences(found),
        system=text_of(found.get("system")),
        prompt=next((text_of(each["content"]) for each in reversed(messages) if each["role"] == "user"), ""),
        schema=_schema(found),
    )
    if ask.breakpoints > MAX_BREAKPOINTS:
        raise invalid(f"At most {MAX_BREAKPOINTS} blocks with cache_control may be provided; found {ask.breakpoints}.")
    if ask.input_tokens > model.context:
        raise invalid(f"prompt is too long: {ask.input_tokens} tokens > {model.context} maximum")
    return ask


def _decoded(body: bytes) -> Json:
    try:
        found = as_object(json.loads(body))
    except (ValueError, RecursionError) as error:  # JSONDecodeError and UnicodeDecodeError are both ValueErrors.
        raise invalid(f"The request body is not valid JSON: {error}") from None
    if found is None:
        raise invalid("The request body must be a JSON object")
    return found


def _max_tokens(found: Json) -> int:
    value = found.get("max_tokens")
    if value is None:
        raise invalid("max_tokens: Field required")
    number = as_int(value)
    if number is None:
        raise invalid("max_tokens: Input should be a valid integer")
    if number < 0:
        raise invalid("max_tokens: Input should be greater than or equal to 0")
    return number


def _checked_messages(found: Json) -> list[Json]:
    if "messages" not in found:
        raise invalid("messages: Field required")
    messages = as_list(found["messages"])
    if messages is None:
        raise invalid("messages: Input should be a valid list")
    if not messages:
        raise invalid("messages: at least one message is required")
    if len(messages) > MAX_MESSAGES:
        raise invalid(f"messages: at most {MAX_MESSAGES} messages are allowed")
    return [_checked_message(message, f"messages.{place}") for place, message in enumerate(messages)]


def _checked_message(value: object, where: str) -> Json:
    message = as_object(value)
    if message is None:
        raise invalid(f"{where}: Input should be an object")
    if message.get("role") not in ROLES:
        raise invalid(f"{where}.role: Input should be 'user', 'assistant' or 'system'")
    if "content" not in message:
        raise invalid(f"{where}.content: Field required")
    _check_blocks(message["content"], f"{where}.content")
    return message


def _check_blocks(content: object, where: str) -> None:
    if isinstance(content, str):
        if not content:
            raise invalid(f"{where}: text content must be non-empty")
        return
    blocks = as_list(content)
    if not blocks:
        raise invalid(f"{where}: Input should be a valid string or a non-empty list of blocks")
    for place, each in enumerate(blocks):
        block = as_object(each)
        if block is None or not isinstance(block.get("type"), str):
            raise invalid(f"{where}.{place}.type: Field required")
        if block["type"] == "text" and not (isinstance(block.get("text"), str) and block["text"]):
            raise invalid(f"{where}.{place}.text: text content blocks must be non-empty strings")


def _check_system(found: Json) -> None:
    system = found.get("system")
    if system is None or isinstance(system, str):
        return
    if as_list(system) is None:
        raise invalid("system: Input should be a valid string or a list of text blocks")
    if system:
        _check_blocks(system, "system")


def _check_tools(found: Json) -> None:
    tools = found.get("tools")
    if tools is None:
        return
    listed = as_list(tools)
    if listed is None:
        raise invalid("tools: Input should be a valid list")
    for place, each in enumerate(listed):
        tool = as_object(each)
        if tool is None or not isinstance(tool.get("name"), str):
            raise invalid(f"tools.{place}.name: Field required")


def _check_model(found: Json, model: Model, messages: list[Json], max_tokens: int | None) -> None:
    """Refuse what this model does not take."""
    if max_tokens is not None and max_tokens > model.max_output:
        raise invalid(f"max_tokens: {max_tokens} > {model.max_output}, which is the maximum for {model.id}")
    for key in SAMPLING:
        if found.get(key) is not None and not model.sampling:
            raise invalid(f"{key}: this parameter is not supported by {model.id}; leave it out")
    if messages[-1]["role"] == "assistant" and not model.prefill and not _goes_on(messages[-1]):
        raise invalid(f"messages: {model.id} takes no assistant prefill; the last message must be a user message")
    choice = (as_object(found.get("tool_choice")) or {}).get("type")
    if choice in ("any", "tool") and not model.forced_tools:
        raise invalid(f"tool_choice: {choice!r} is not supported by {model.id}; use 'auto' or output_config.format")
    if found.get("thread") is not None:
        raise invalid("thread: message threads are not simulated", code="thread_unsupported_request")


def _goes_on(message: Json) -> bool:
    """Tell whether a message is a turn that was paused: it ends with what a server's tool does."""
    last = as_object((as_list(message["content"]) or [None])[-1]) or {}
    return last.get("type") == "server_tool_use" or str(last.get("type")).endswith("_tool_result")


def _flag(found: Json, key: str) -> bool:
    value = found.get(key)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise invalid(f"{key}: Input should be a valid boolean")


def _stop_sequences(found: Json) -> tuple[str, ...]:
    value: Any = found.get("stop_sequences")
    if value is None:
        return ()
    listed = as_list(value)
    if listed is None or not all(isinstance(each, str) for each in listed):
        raise invalid("stop_sequences: Input should be a list of strings")
    if any(not each.strip() for each in listed):
        raise invalid("stop_sequences: each stop sequence must contain non-whitespace")
    return tuple(listed)


def _schema(found: Json) -> Json | None:
    wanted = as_object((as_object(found.get("output_config")) or {}).get("format"))
    if wanted is None:
        return None
    schema = as_object(wanted.get("schema"))
    if wanted.get("type") != "json_schema" or schema is None:
        raise invalid("output_config.format: Input should be {'type': 'json_schema', 'schema': {...}}")
    return schema
