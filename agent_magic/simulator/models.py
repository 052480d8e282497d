"""The models of the mock server."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from agent_magic.simulator.json_types import Json


@dataclass(frozen=True, slots=True)
class Model:
    """One model.

    Attributes:
        family: `haiku`, `sonnet`, `opus`, `fable` or `mythos`; decides the pace.
        pool: The rate-limit pool; its models share limits.
        cache_min: The shortest cached prefix, in tokens.
        sampling: True if `temperature`, `top_p` and `top_k` are accepted.
        prefill: True if the last message may be an assistant turn.
        forced_tools: True if `tool_choice` may force a tool.
        picture: Maximum side in pixels and tokens of a picture; larger ones are scaled down.
        tool_prompt: Tokens of the hidden instruction on tools, for a free and for a forced choice. Undocumented for
            models since 5.1, which use those of Opus 5.
        preserved: True if a thinking block is bound to everything before it.
        notes: True if text between tool calls comes as thinking.
    """

    id: str
    name: str
    family: str
    pool: str
    cache_min: int
    context: int = 1_000_000
    max_output: int = 128_000
    sampling: bool = False
    prefill: bool = False
    forced_tools: bool = True
    picture: tuple[int, int] = (2576, 4784)
    tool_prompt: tuple[int, int] = (286, 406)
    preserved: bool = False
    notes: bool = False


_PRESERVED = partial(Model, cache_min=512, preserved=True)
_NOTING = partial(_PRESERVED, forced_tools=False, notes=True)
_CURRENT = (
    _NOTING("claude-fable-5-2", "Claude Fable 5.2", "fable", "fable-5"),
    _NOTING("claude-mythos-5-2", "Claude Mythos 5.2", "mythos", "mythos-5"),
    _PRESERVED("claude-haiku-5-5", "Claude Haiku 5.5", "haiku", "haiku-5-5"),
    _NOTING("claude-sonnet-5-5", "Claude Sonnet 5.5", "sonnet", "sonnet-5-5"),
    _NOTING("claude-fable-5-1", "Claude Fable 5.1", "fable", "fable-5"),
    _NOTING("claude-opus-5-5", "Claude Opus 5.5", "opus", "opus-5-5"),
    _NOTING("claude-mythos-5-1", "Claude Mythos 5.1", "mythos", "mythos-5"),
    Model("claude-sonnet-5", "Claude Sonnet 5", "sonnet", "sonnet-5", 1024, tool_prompt=(354, 474)),
    Model("claude-fable-5", "Claude Fable 5", "fable", "fable-5", 512),
    Model("claude-mythos-5", "Claude Mythos 5", "mythos", "mythos-5", 512),
    Model("claude-opus-5", "Claude Opus 5", "opus", "opus-5", 512),
    Model("claude-opus-4-8", "Claude Opus 4.8", "opus", "opus-4", 1024, tool_prompt=(290, 410)),
    Model("claude-opus-4-7", "Claude Opus 4.7", "opus", "opus-4", 2048, tool_prompt=(675, 804)),
)


_OLDER = partial(Model, sampling=True, picture=(1568, 1568), tool_prompt=(497, 588))
_OLDEST = partial(_OLDER, context=200_000, max_output=64_000, prefill=True)
_EARLIER = (
    _OLDER("claude-opus-4-6", "Claude Opus 4.6", "opus", "opus-4", 4096),
    _OLDER("claude-sonnet-4-6", "Claude Sonnet 4.6", "sonnet", "sonnet-4", 1024),
    *(_OLDEST(f"claude-haiku-4-5{date}", "Claude Haiku 4.5", "haiku", "haiku-4-5", 4096) for date in ("", "-20251001")),
    *(_OLDEST(f"claude-opus-4-5{date}", "Claude Opus 4.5", "opus", "opus-4", 4096) for date in ("", "-20251101")),
    *(
        _OLDEST(f"claude-sonnet-4-5{date}", "Claude Sonnet 4.5", "sonnet", "sonnet-4", 1024)
        for date in ("", "-20250929")
    ),
)

MODELS: dict[str, Model] = {model.id: model for model in (*_CURRENT, *_EARLIER)}


def describe(model: Model) -> Json:
    """The release date is unknown: the epoch."""
    return {
        "type": "model",
        "id": model.id,
        "display_name": model.name,
        "created_at": "1970-01-01T00:00:00Z",
        "deprecated_at": None,
        "retires_at": None,
        "lifecycle": "active",
        "line": model.family,
        "max_input_tokens": model.context,
        "max_tokens": model.max_output,
        "capabilities": None,
    }
