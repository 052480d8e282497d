"""Failed requests to a server: whether the server can have received them, and the message.

The package `mcp` has one error for all, with a code. Our codes come from `live.mcp.http`.
"""

from __future__ import annotations

from typing import Final

from agent_magic.declare.user_code import reason_of

UNSENT: Final = -39_001
"""There was no connection."""
LOST: Final = -39_002
"""The server does not know the session, and has done nothing."""
CUT: Final = -39_003
"""It was sent, and its answer did not arrive whole."""
REFUSED: Final = -39_004
"""It was answered by an HTTP status such as 401, or by too much."""


def code_of(error: BaseException) -> int:
    """Return the code of an error of the protocol; 0 if it is another."""
    from mcp import MCPError

    return error.error.code if isinstance(error, MCPError) else 0


def was_not_received(error: BaseException) -> bool:
    """Return whether the server has done nothing, so that the request may be repeated."""
    return code_of(error) in {UNSENT, LOST}


def has_ended(error: BaseException) -> bool:
    """Return whether the connection was closed during the request."""
    from mcp.types import CONNECTION_CLOSED

    return code_of(error) in {CONNECTION_CLOSED, CUT}


def why(error: BaseException, name: str) -> str:
    """Return the reason a request to a server failed."""
    from mcp.types import PARSE_ERROR

    code, server = code_of(error), f"MCP server {name!r}"
    if has_ended(error):
        return f"The connection to the {server} broke during the call, which may have happened."
    if code == PARSE_ERROR:
        return f"The {server} answered what is no message of the protocol. The call may have happened."
    if code in {UNSENT, LOST, REFUSED}:
        return f"The {server} did not take the call: {error}"
    return str(error) if code else reason_of(error)
