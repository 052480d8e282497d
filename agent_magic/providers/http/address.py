"""Addresses of servers and keys, checked before anything is sent."""

from __future__ import annotations

from urllib.parse import urlsplit

from agent_magic.errors import DeclarationError

QUOTES = frozenset("\"'`")


class Hidden:
    """A text that tracebacks do not show, even with all attributes."""

    __slots__ = ("_text",)

    def __init__(self, text: str | None) -> None:
        self._text = text

    def __repr__(self) -> str:
        return "'…'"

    def reveal(self) -> str | None:
        return self._text


def check_key(key: object, name: str) -> None:
    """Raise `DeclarationError`, without showing it, for a key that no header can hold, or copied wrongly."""
    hint = "The usual cause is a line break at its end: strip it."
    if key is None:
        return
    if not isinstance(key, str):
        what = "not a string"
    elif not key:
        what = "empty"
    elif not key.isascii() or not key.isprintable():
        what = "not one line of plain characters"
    elif key[0] in QUOTES or key[-1] in QUOTES:
        what, hint = "in quotation marks", "Remove them: they became part of the key."
    elif " " in key:
        what, hint = "more than one word: it has a blank in it", "Copy the key again, without the text around it."
    else:
        return
    raise DeclarationError(f"The key in {name} is {what}.", hint=hint)


def checked_url(url: object, name: str, hint: str) -> str:
    """Return the address of a server, or raise with the `hint`."""
    shown = without_credentials(url) if isinstance(url, str) else type(url).__name__
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        known = bool(parts.hostname) and parts.scheme in {"http", "https"} and (parts.port or 1) > 0
    except ValueError:
        parts, known = urlsplit(""), False
    if not known or not isinstance(url, str) or not url.isprintable() or " " in url:
        raise DeclarationError(f"{name}={shown!r} is not the address of a server.", hint=hint)
    if parts.username is not None or parts.password is not None:
        raise DeclarationError(f"{name}={shown!r} holds a user name or a password.", hint="Give a key by api_key=.")
    return url


def without_credentials(url: str) -> str:
    start, mark, rest = url.partition("://")
    return f"{start}{mark}{rest.rpartition('@')[2]}"
