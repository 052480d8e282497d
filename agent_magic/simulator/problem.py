"""The one exception of the server: a request that is answered with an error body."""

from __future__ import annotations

from agent_magic.simulator.shapes import Json

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


def kind_of(status: int) -> str:
    """Name the documented error type of an HTTP status."""
    return KIND_OF_STATUS.get(status, "invalid_request_error" if status < 500 else "api_error")


class Problem(Exception):
    """A request answered with an error.

    Attributes:
        status: The HTTP status.
        kind: The `error.type` of the body.
        message: The `error.message` of the body.
        code: The `error.details.error_code`, or `None`.
        retry_after_s: The `retry-after` header in whole seconds, or `None` for no header.
        after_s: Seconds to wait before answering.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str | None = None,
        code: str | None = None,
        retry_after_s: int | None = None,
        after_s: float = 0.0,
    ) -> None:
        """Describe the answer; without `kind` the documented type of the status is taken."""
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind or kind_of(status)
        self.code = code
        self.retry_after_s = retry_after_s
        self.after_s = after_s

    def body(self, request_id: str) -> Json:
        """Return the documented error body."""
        error: Json = {"type": self.kind, "message": self.message}
        if self.code:
            error["details"] = {"error_code": self.code}
        return {"type": "error", "error": error, "request_id": request_id}


def invalid(message: str, *, code: str | None = None) -> Problem:
    """Return the problem of a request that is malformed."""
    return Problem(400, message, code=code)
