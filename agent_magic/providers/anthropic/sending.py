"""Sending a request: by the SDK's `messages.create`, or as bytes through the same client.

`messages.create` copies a body piece by piece and looks for tracers: together a sixth of the cost of a turn
(2026-11-25). So if the client is ours and nothing watches that method, the body is written as text, with each message
in its stored form, and sent through the client's `post`, which authenticates, connects and raises like the method. A
user's client, a replaced method, or OpenTelemetry see each
request go through the method.
"""

from __future__ import annotations

import functools
import os
import sys
from types import FunctionType
from typing import TYPE_CHECKING, Any

from agent_magic.providers.anthropic.stream import named_stream, plain
from agent_magic.providers.anthropic.wire import body, body_text

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic, AsyncStream

    from agent_magic.record.request import Request

PATH = "/v1/messages"
UNTRACED = frozenset({"ProxyTracerProvider", "NoOpTracerProvider"})
"""The providers of OpenTelemetry that record nothing."""


async def begin(
    sdk: AsyncAnthropic, request: Request, limits: Any, *, own: bool, basic_tools: bool
) -> AsyncStream[Any]:
    """Send a request, and return the events of its response; `own` if the client was created here."""
    if own and _is_unwatched(sdk, request.model):
        content = body_text(request, basic_tools=basic_tools)
        options: Any = {"timeout": limits}
        return await sdk.post(
            PATH, cast_to=object, content=content, options=options, stream=True, stream_cls=named_stream()
        )
    asked = body(request, basic_tools=basic_tools)
    more: dict[str, Any] = {}
    if request.options:  # the method knows only the fields of its day
        known = body(request._replace(options=""), basic_tools=basic_tools)
        more = {"extra_body": {name: asked.pop(name) for name in [*asked] if name not in known}}
    made = await sdk.messages.create(**asked, stream=True, timeout=limits, **more)
    return plain(made, sdk)


def _is_unwatched(sdk: AsyncAnthropic, model: str) -> bool:
    """Return whether a request can bypass `messages.create` with the same effect and without an observer."""
    import anthropic

    if type(sdk) is not anthropic.AsyncAnthropic or _warns_of(model):
        return False
    create: Any = type(sdk.messages).create
    if type(create) is not FunctionType or not create.__code__.co_filename.startswith(_folder()):
        return False
    traces = sys.modules.get("opentelemetry.trace")
    return traces is None or type(traces.get_tracer_provider()).__name__ in UNTRACED


@functools.lru_cache(maxsize=1024)
def _warns_of(model: str) -> bool:
    """Return whether the SDK warns of a model."""
    from anthropic.resources.messages import DEPRECATED_MODELS

    return model in DEPRECATED_MODELS


@functools.lru_cache(maxsize=1)
def _folder() -> str:
    import anthropic

    return os.path.join(os.path.dirname(anthropic.__file__), "")  # noqa: PTH118, PTH120 - names of code objects
