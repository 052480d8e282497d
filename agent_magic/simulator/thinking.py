"""Thinking blocks: the parameter, and signatures that are checked when blocks come back.

Every model refuses an edited block. Models with preserved thinking refuse a block if anything before it has changed, or
after a gap. A block of another model is dropped silently. Source: the vendor's pages on thinking and on preserved
thinking.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from agent_magic.simulator.api import Json, as_int, as_object, invalid
from agent_magic.simulator.content import blocks_of
from agent_magic.simulator.models import Model

LEAST_BUDGET = 1024
KINDS = ("adaptive", "enabled", "disabled", "between_tools")
BLOCKS = ("thinking", "redacted_thinking")
_SIZE = 8
_LENGTH = 4
_BOUND = (
    "Invalid `signature` in `thinking` block. The block is bound to a different conversation. Remove the block, or set "
    '`thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
)


@dataclass(frozen=True, slots=True)
class Thinking:
    """Without a kind the model decides."""

    kind: str | None = None
    shown: bool = False


USUAL = Thinking()


def parse_thinking(body: Json, model: Model, choice: str) -> Thinking:
    given = as_object(body.get("thinking"))
    if given is None:
        return Thinking(shown=not model.preserved)
    kind = given.get("type")
    if kind not in KINDS:
        raise invalid(f"thinking.type: Input should be one of {', '.join(KINDS)}")
    if kind == "enabled" and not model.sampling:
        raise invalid('"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive".')
    if kind == "adaptive" and model.prefill:
        raise invalid("adaptive thinking is not supported on this model")
    budget = as_int(given.get("budget_tokens"))
    if kind == "enabled":
        if budget is None or budget < LEAST_BUDGET:
            raise invalid(f"thinking.enabled.budget_tokens: Input should be greater than or equal to {LEAST_BUDGET}")
        if (most := as_int(body.get("max_tokens"))) is not None and most <= budget:
            raise invalid("`max_tokens` must be greater than `thinking.budget_tokens`.")
        if choice in ("any", "tool"):
            raise invalid("Thinking may not be enabled when tool_choice forces tool use.")
    return Thinking(kind, given.get("display", "omitted" if model.preserved else "summarized") == "summarized")


def digest(*parts: str | bytes) -> bytes:
    state = hashlib.blake2b(digest_size=_SIZE, key=b"simulated")
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "big"))
        state.update(data)
    return state.digest()


class Chain:
    """Walks a conversation block by block, checks its signatures, and signs new blocks."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._before = bytes(_SIZE)
        self._last = bytes(_SIZE)

    def add(self, label: str, text: str) -> None:
        self._before = digest(self._before, label, text)

    def sign(self, kind: str, text: str, tokens: int) -> str:
        links = digest(self._model.id) + self._before + self._last
        length = tokens.to_bytes(_LENGTH, "big")
        self._last = digest(kind, text, length, links)
        return base64.b64encode(length + links + self._last).decode()

    def check(self, block: Json, where: str) -> int:
        """Return the tokens of a returned block, 0 for another model's. An edit is an error."""
        kind = str(block["type"])
        text, signature = (
            str(block.get("thinking", "")),
            block.get("data" if kind == "redacted_thinking" else "signature"),
        )
        if not isinstance(signature, str):
            raise invalid(f"{where}.signature: Field required")
        try:
            data = base64.b64decode(signature, validate=True)
        except ValueError:
            data = b""
        length, links, own = data[:_LENGTH], data[_LENGTH:-_SIZE], data[-_SIZE:]
        if len(data) != _LENGTH + 4 * _SIZE or own != digest(kind, text, length, links):
            raise invalid(f"{where}: Invalid `signature` in `{kind}` block")
        model, before, last = (links[at : at + _SIZE] for at in range(0, 3 * _SIZE, _SIZE))
        if model != digest(self._model.id):
            return 0
        gap = any(self._last) and last != self._last
        if self._model.preserved and (before != self._before or gap):
            raise invalid(f"{where}: {_BOUND}")
        self._last = own
        return int.from_bytes(length, "big")


def check_start(messages: Sequence[Json], thinking: Thinking) -> None:
    """Refuse tool results after a turn without thinking if thinking is enabled explicitly."""
    if thinking.kind != "enabled":
        return
    if (blocks_of(messages[-1]["content"]) or [{"type": ""}])[0]["type"] != "tool_result":
        return
    turns = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
    first = messages[turns[-1]]["content"][0]["type"]
    if first not in BLOCKS:
        raise invalid(
            f"messages.{turns[-1]}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{first}`. "
            "When `thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the "
            "lastmost set of `tool_use` and `tool_result` blocks). To avoid this requirement, disable `thinking`."
        )


def block_of(text: str) -> Json:
    return as_object(json.loads(text)) or {}
