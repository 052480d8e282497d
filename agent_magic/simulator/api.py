"""Shared by the APIs: decoded JSON, error responses, and tokens of four bytes of UTF-8 each."""

from __future__ import annotations

import math
import sys
from dataclasses import KW_ONLY, dataclass
from random import Random
from typing import Any, TypeAlias, cast

Json: TypeAlias = dict[str, Any]


def as_object(value: object) -> Json | None:
    return cast("Json", value) if isinstance(value, dict) else None


def as_list(value: object) -> list[Any] | None:
    return cast("list[Any]", value) if isinstance(value, list) else None


def as_text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def as_flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def as_int(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def as_number(value: object) -> float | None:
    """Return a finite number, or `None`."""
    if not isinstance(value, int | float) or isinstance(value, bool) or abs(value) > sys.float_info.max:
        return None
    return None if math.isnan(value) else float(value)


CHAT = "/chat/completions"
"""Suffix of paths of the chat completions API, even without a route."""
KIND_OF_STATUS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}


@dataclass(eq=False)
class ApiError(Exception):
    """An error response, after some seconds; its default kind is the documented one."""

    status: int
    message: str
    _: KW_ONLY
    kind: str | None = None
    code: str | None = None
    retry_after_s: int | None = None
    after_s: float = 0.0

    def __post_init__(self) -> None:
        other = "invalid_request_error" if self.status < 500 else "api_error"
        self.kind = self.kind or KIND_OF_STATUS.get(self.status, other)

    def body(self, request_id: str, route: str = "") -> Json:
        """Return the documented body of the API that has this route."""
        error: Json = {"type": self.kind, "message": self.message}
        if self.code:
            error["details"] = {"error_code": self.code}
        if route.endswith(CHAT):
            return chat_error(error)
        return {"type": "error", "error": error, "request_id": request_id}


def chat_error(error: Json) -> Json:
    code = (as_object(error.get("details")) or {}).get("error_code")
    return {"error": {"message": error["message"], "type": error["type"], "param": None, "code": code}}


def invalid(message: str, *, code: str | None = None) -> ApiError:
    return ApiError(400, message, code=code)


BYTES_PER_TOKEN = 4


def _bytes(text: str) -> bytes:
    # A JSON body may have lone surrogates, which count like other characters.
    return text.encode("utf-8", "surrogatepass")


def count_tokens(text: str) -> int:
    size = len(text) if text.isascii() else len(_bytes(text))
    return -(-size // BYTES_PER_TOKEN)


def cut_text(text: str, tokens: int) -> str:
    if text.isascii():
        return text[: tokens * BYTES_PER_TOKEN]
    return _bytes(text)[: tokens * BYTES_PER_TOKEN].decode("utf-8", "ignore")


def pieces_of(text: str, rng: Random) -> list[str]:
    """Split a text into pieces of three to eight tokens, at spaces if possible."""
    found: list[str] = []
    start = 0
    while start < len(text):
        size = int(12 + 20 * rng.random())
        space = text.find(" ", start + size, start + size + 12)
        end = space if space > 0 else start + size
        found.append(text[start:end])
        start = end
    return found
