"""What the conductor says: actions to take, and events of `agent_magic.record.events` to record. Plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agent_magic.record.events import AgentEnded, AgentReady

if TYPE_CHECKING:
    from agent_magic.record.answer import Status


class Launch(NamedTuple):
    """Send a request for the agent now.

    Attributes:
        number: 1 for its first attempt.
        held_by: What it waited for: `slot`, `barrier`, `backoff`, a limit, `paused`, `retry`, or an empty string.
    """

    agent: int
    number: int
    held_by: str


class Backoff(NamedTuple):
    """The attempt failed; another follows at `until_s`, not sooner."""

    agent: int
    until_s: float
    why: str


class Cancel(NamedTuple):
    """Stop the agent's request. `late` where its deadline passed, `over` the run's, `stopped` where somebody asked."""

    agent: int
    why: str


class Skipped(NamedTuple):
    """The agent will not run, because an ancestor, `cause`, did not succeed. This is its last status."""

    agent: int
    cause: int

    @property
    def status(self) -> Status:
        """As `AgentEnded` has one."""
        return "skipped"


class Reopened(NamedTuple):
    """The agent had ended without success and is to run again. It waits for its parents as at first."""

    agent: int


class WakeAt(NamedTuple):
    """Call `wake` at this time, if not called before."""

    at_s: float


class Finished(NamedTuple):
    """Nothing runs and nothing waits. `cut` where somebody stopped the run."""

    cut: bool


Action = Launch | AgentReady | AgentEnded | Skipped | Backoff | Cancel | Reopened | WakeAt | Finished
