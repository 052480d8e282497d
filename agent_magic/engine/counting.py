"""Input tokens of requests: bounded by bytes, counted by the provider, corrected by usage."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent_magic.record.answer import Usage
    from agent_magic.record.request import Request


class Counting:
    """Knows the input tokens of a run's requests."""

    def __init__(self) -> None:
        self._counted: dict[int, int | None] = {}
        self._uncounted: list[tuple[int, Request]] = []
        self._asked: set[int] = set()
        self._countless = False
        self._expected: dict[int, tuple[str, int, int | None]] = {}
        self._excess: dict[bool, dict[str, int]] = {False: {}, True: {}}  # of bounds by bytes, and by counts

    def ask(self, step: int, request: Request) -> bool:
        """Queue a step's next request for counting. Return True if it must wait for the count."""
        if step in self._asked:
            return True
        if self._countless:
            return False
        self._asked.add(step)
        self._uncounted.append((step, request))
        return True

    def to_count(self) -> list[tuple[int, Request]]:
        """Return the requests queued for counting since the last call."""
        found, self._uncounted = self._uncounted, []
        return found

    def counted(self, step: int, tokens: int | None) -> None:
        """Record the input tokens of a request; after `None` no request is counted any more."""
        self._asked.discard(step)
        self._countless = self._countless or tokens is None
        self._counted[step] = tokens

    def forget(self, step: int) -> None:
        """Forget the count of a step whose next request has changed."""
        self._counted.pop(step, None)

    def bound(self, step: int, model: str, size: int) -> tuple[int, bool]:
        """Return the maximum input tokens of a request, and True if its count was requested.

        Args:
            step: The step.
            model: The model.
            size: The bound by bytes.
        """
        counted, excess = self._counted.get(step), self._excess[False].get(model, 0)
        self._expected[step] = model, size, counted
        if counted is None or excess:
            return size + excess, step in self._counted
        return counted + self._excess[True].get(model, 0), True

    def used(self, step: int, usage: Usage) -> None:
        """Record the input tokens of a request. If they exceed the bound, later bounds are raised."""
        if step not in self._expected:
            return
        model, most, counted = self._expected.pop(step)
        given = usage.total_input_tokens
        for is_counted, bound in ((False, most), (True, counted)):
            if given is not None and bound is not None and given > bound:
                known = self._excess[is_counted]
                known[model] = max(known.get(model, 0), given - bound)
