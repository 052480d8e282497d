"""What goes wrong in a run: with the connection, with one attempt, with the run as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.errors.root import AgentMagicError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class NotConnected(AgentMagicError):
    """There is no key, and neither the stand-in nor a recording was chosen."""

    def __init__(self) -> None:
        super().__init__(
            "No API key found, so nothing was sent. Choose one:\n"
            "  with a key   set ANTHROPIC_API_KEY before the kernel starts (or: import os, getpass; "
            "os.environ['ANTHROPIC_API_KEY'] = getpass.getpass())\n"
            "  offline      %agents connect simulator     # made-up answers, labelled as simulated\n"
            "  a recording  %agents replay FILE           # somebody's recorded run, no key, no network"
        )


class CannotNest(AgentMagicError):
    """A blocking call was made where the running loop cannot be entered again."""


class CallError(AgentMagicError):
    """One attempt failed.

    Attributes:
        partial: The text that had arrived, or an empty string.
    """

    def __init__(self, message: str, *, partial: str = "") -> None:
        super().__init__(message)
        self.partial = partial


class RateLimited(CallError):
    """429: a limit of this key was reached.

    Attributes:
        retry_after_s: How many seconds the answer said to wait, or `None`.
        limit: Which limit, such as `requests`, or `None` where the answer did not say.
        final: Whether waiting cannot help: the account may not spend more.
    """

    def __init__(
        self, message: str, *, retry_after_s: float | None = None, limit: str | None = None, final: bool = False
    ) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.limit = limit
        self.final = final


class Overloaded(CallError):
    """5xx or 529: the service failed or is full. It says nothing about our own limits."""

    def __init__(
        self, message: str, *, status: int | None = None, retry_after_s: float | None = None, partial: str = ""
    ) -> None:
        super().__init__(message, partial=partial)
        self.status = status
        self.retry_after_s = retry_after_s


class Rejected(CallError):
    """4xx: the request is wrong, and sending it again cannot help."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class Refused(CallError):
    """The model declined to answer."""

    def __init__(self, message: str, *, category: str | None = None, partial: str = "") -> None:
        super().__init__(message, partial=partial)
        self.category = category


class Capped(CallError):
    """The answer was cut at `max_tokens`, and the policy does not pass such answers on."""


class Truncated(CallError):
    """The stream ended without a `stop_reason`: a cut answer, never a success."""


class Unreadable(CallError):
    """A reply came that is not the API's: a web page, broken JSON, wrong bytes."""


class Unreachable(CallError):
    """No connection, or it broke.

    Attributes:
        sent: Whether anything of the request can have arrived. Where not even a connection was made, it used nothing.
    """

    def __init__(self, message: str, *, sent: bool = True, partial: str = "") -> None:
        super().__init__(message, partial=partial)
        self.sent = sent


class Late(CallError):
    """The agent's deadline passed, or the run's."""

    def __init__(self, deadline_s: float, *, of_run: bool = False, partial: str = "") -> None:
        whose, option = ("the run's ", "--deadline") if of_run else ("", "--timeout")
        super().__init__(
            f"No complete answer within {whose}{deadline_s:g} s. Give it longer with {option}, or ask for less.",
            partial=partial,
        )
        self.deadline_s = deadline_s


_MOST_FAILURES = 10
_MOST_NAMES = 4


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


class RunFailed(AgentMagicError):
    """Some agents of a run did not succeed. Raised only when asked for."""

    def __init__(self, failures: Mapping[str, str]) -> None:
        self.failures = dict(failures)
        of_same: dict[str, list[str]] = {}
        for name, why in self.failures.items():
            of_same.setdefault(why, []).append(name)
        lines = [f"  {_some(names)}: {why}" for why, names in list(of_same.items())[:_MOST_FAILURES]]
        more = sum(map(len, list(of_same.values())[_MOST_FAILURES:]))
        tail = [f"  and {more} more"] if more else []
        head = (
            "1 agent did not succeed:" if len(self.failures) == 1 else f"{len(self.failures)} agents did not succeed:"
        )
        next_ = "%agents error NAME tells all that is known of one; so does run[NAME].attempts."
        super().__init__("\n".join([head, *lines, *tail, next_]))
