"""Messages between a kernel and a worker.

```
down   call id request files      run id job      cancel id
up     replied id status readings simulated      opened id      began id      text id bytes
       usage id usage unseen model
       answer id answer           error id kind message facts      ended id result
```

They are sent in lists; an empty list is a sign of life. Only a job, a pickled function of the user, is called: a
process that reaches this port may run code through Dask anyway. Text is sent as bytes, since it may contain lone
surrogates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from agent_magic import errors
from agent_magic.declare.user_code import reason_of
from agent_magic.engine.pacing.limits import Reading
from agent_magic.errors import AgentMagicError, CallError
from agent_magic.record.codec import data_of, from_json, line_of, to_json
from agent_magic.record.request import Request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_magic.engine.pacing.limits import Readings

WIRE: Final = 5
"""Raised with every change of these messages, so that both ends can compare it."""
OPERATION: Final = "agent_magic"
ANCHOR: Final = "agent_magic-anchor"
"""Prefix of the names of actors that anchor workers."""
BEAT_S: Final = 1.0
"""Between an idle worker's signs of life."""
TEXT_S: Final = 0.1
"""Between texts: at 10 Hz a stream costs its kernel half as much as at 30 Hz (measured)."""
URGENT_S: Final = 0.005
"""Other messages wait for more to send together."""
PLAIN = (str, int, float, bool, type(None))
CALL_ERRORS: Final[Mapping[str, type[CallError]]] = {
    kind.__name__: kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, CallError)
}

Message = tuple[Any, ...]


class Channel(Protocol):
    """A connection that carries messages in order. When it breaks, `read` and `write` raise `OSError`."""

    async def read(self) -> Any: ...

    async def write(self, msg: Any, /) -> Any: ...

    def abort(self) -> None: ...


def request_out(request: Request) -> tuple[str, dict[str, bytes]]:
    """Write a request and, separately, the bytes of its pictures and documents."""
    files = {one.sha256: one.data for one in request.files}
    return line_of(to_json(request)), files


def request_in(line: str, files: Mapping[str, bytes]) -> Request:
    return from_json(Request, data_of(line)).with_files(files.__getitem__)


def text_out(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def text_in(data: bytes) -> str:
    return bytes(data).decode("utf-8", "surrogatepass")


def readings_out(readings: Readings) -> dict[str, tuple[float, float | None]]:
    return {name: (one.limit, one.remaining) for name, one in readings.items()}


def readings_in(data: Mapping[Any, Any]) -> Readings:
    return {name: Reading(*one) for name, one in data.items()}


def error_out(error: Exception) -> Message:
    if not isinstance(error, CallError):  # not of the provider's: its message may be anything
        return "", reason_of(error), {}
    facts = {name: value for name, value in vars(error).items() if isinstance(value, PLAIN)}
    return type(error).__name__, str(error), {**facts, "partial": text_out(error.partial)}


def error_in(kind: str, message: str, facts: Mapping[str, Any]) -> Exception:
    """Return the error of a message; of an unknown kind only the text is kept."""
    if kind not in CALL_ERRORS:
        return AgentMagicError(message)
    error = CALL_ERRORS[kind].__new__(CALL_ERRORS[kind], message)
    error.__setstate__({**facts, "partial": text_in(facts["partial"])})
    return error
