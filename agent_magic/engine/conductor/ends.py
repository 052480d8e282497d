"""Steps that end without an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_magic.declare.flow import Left
    from agent_magic.record.answer import Status


class Ends:
    """Steps that ended without success, or are about to, with the reasons.

    Args:
        done: See the attribute.
        left: The skipped steps among `done`, with reasons.

    Attributes:
        done: Steps that ended before the run, with their status; empty once it has started.
        stopping: Steps being aborted, with status and reason.
        lost: Steps without success, each with the step that caused it: itself or an ancestor.
        left: Skipped steps, with reasons.
        again: Steps to run again as soon as they are aborted.
        cut: True if the run was stopped or its deadline has passed.
        late: Reason for starting nothing more after that deadline.
    """

    __slots__ = ("again", "cut", "done", "late", "left", "lost", "stopping")

    def __init__(self, done: Mapping[int, Status] | None, left: Mapping[int, Left] | None) -> None:
        self.done: dict[int, Status] = dict(done or {})
        self.left: dict[int, Left] = dict(left or {})
        self.stopping: dict[int, tuple[Status, str]] = {}
        self.lost: dict[int, int] = {}
        self.again: set[int] = set()
        self.cut, self.late = False, ""
