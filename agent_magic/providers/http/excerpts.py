"""Server texts in messages: shortened, without control characters, and never with a key.

A server's words are not trusted.
"""

from __future__ import annotations

import os
import re

from agent_magic.declare.values import sendable
from agent_magic.record.secret_scan import masked
from agent_magic.record.secret_scan import secrets_of as secrets_in

EXCERPT = 200
SHORTEST_SECRET = 8
"""A shorter text, such as the `test` of a local server, is no secret: masking it would tear words apart."""
ENVIRONMENT_KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
"""What would recolour or clear a terminal."""
_KEY = re.compile(r"sk-ant-[\w-]+|(?i:bearer)\s+\S+")


def excerpt(what: object, secrets: tuple[str, ...] = ()) -> str:
    """Write the beginning of a text on one line, without keys."""
    text = hide(sendable(" ".join(_CONTROL.sub(" ", str(what)).split())), secrets)
    return (text[: EXCERPT - 1] + "…" if len(text) > EXCERPT else text).rstrip(".")


def hide(text: str, secrets: tuple[str, ...]) -> str:
    """Replace keys, these or of the environment, with `[key]`, and mask other probable secrets."""
    known = [os.environ.get(name, "") for name in ENVIRONMENT_KEYS]
    for secret in sorted({*secrets, *known}, key=len, reverse=True):
        if len(secret) >= SHORTEST_SECRET:
            text = text.replace(secret, "[key]")
    return masked(_KEY.sub("[key]", text), secrets_in(os.environ))


def word(said: object) -> str | None:
    """Return a word of the API, such as a `stop_reason`, on one line and short, even if a server sends more."""
    if said is None or (isinstance(said, str) and len(said) < EXCERPT and said.isprintable()):
        return said
    return excerpt(said)
