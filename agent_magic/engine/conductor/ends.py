"""What a conductor knows of steps that end otherwise than with an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_magic.declare.flow import Left
    from agent_magic.record.answer import Status


class Ends:
    """Which steps ended without success, or are to end, and why.

    Args:
        done: As the attribute.
        left: The steps of `done` that were left out, and why.

    Attributes:
        done: The steps that have ended before the run begins, each with its status; none once it has begun.
        stopping: The steps under way that are being aborted, each with the status and the reason.
        lost: The steps that did not succeed, each with the one that was the cause: itself, or an ancestor.
        left: The steps that were left out, and why.
        again: The steps that run again as soon as they have been aborted.
        cut: Whether the run was stopped, or its deadline has passed.
        late: Why nobody asks any more, once that deadline has passed.
    """

    __slots__ = ("again", "cut", "done", "late", "left", "lost", "stopping")

    def __init__(self, done: Mapping[int, Status] | None, left: Mapping[int, Left] | None) -> None:
        self.done: dict[int, Status] = dict(done or {})
        self.left: dict[int, Left] = dict(left or {})
        self.stopping: dict[int, tuple[Status, str]] = {}
        self.lost: dict[int, int] = {}
        self.again: set[int] = set()
        self.cut, self.late = False, ""
