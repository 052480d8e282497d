"""Where each agent of a forecast is in its work: which of its attempts comes next, and by which model."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_magic.forecast.work import Try, Work


class Scripts:
    """Future attempts of each agent in stages; each further model begins one.

    The modelled service and requests read the same scripts, so both know the model of an attempt.

    Args:
        works: Work per agent; `None` if left out.
    """

    def __init__(self, works: Sequence[Work | None]) -> None:
        self._works = works
        self._stages = {
            step: [tuple(tries) for _, tries in groupby(work.tries, key=attrgetter("model"))]
            for step, work in enumerate(works)
            if work is not None and work.moves
        }
        self._stage = [0] * len(works)
        self._place = [0] * len(works)

    def work(self, step: int) -> Work:
        """Return the work of an agent."""
        work = self._works[step]
        if work is None:
            raise RuntimeError(f"agent {step} was left out")
        return work

    def tries(self, step: int) -> tuple[Try, ...]:
        """Return the attempts by the model that an agent asks now."""
        stages = self._stages.get(step)
        return self.work(step).tries if stages is None else stages[self._stage[step]]

    def next(self, step: int) -> Try:
        """Return the attempt that comes next; the last one comes for ever."""
        tries = self.tries(step)
        return tries[min(self._place[step], len(tries) - 1)]

    def leave_out(self, step: int, *, by_batch: bool) -> None:
        """Leave out the attempts that cannot come as the agent is asked, while others by the same model follow."""
        left = len(self.tries(step)) - 1 - self._place[step]
        while left > 0 and not self.next(step).fits(by_batch=by_batch):
            self._place[step] += 1
            left -= 1

    def last(self, step: int) -> Try:
        """Return the attempt that has ended last."""
        return self.tries(step)[self._place[step] - 1]

    def done(self, step: int) -> None:
        """Record that an attempt has ended."""
        self._place[step] += 1

    def model(self, step: int) -> str:
        """Return the model that an agent asks now."""
        return self.tries(step)[0].model or self.work(step).model

    def pool(self, step: int) -> str:
        """Return the class of that model."""
        return self.tries(step)[0].pool or self.work(step).pool

    def has_moved(self, step: int) -> bool:
        """Return True if an agent has changed its model."""
        return self._stage[step] > 0

    def may_move(self, step: int) -> bool:
        """Return True if attempts of another model follow."""
        return self._stage[step] + 1 < len(self._stages.get(step, ()))

    def move(self, step: int) -> None:
        """Go on to the attempts by the next model."""
        self._stage[step], self._place[step] = self._stage[step] + 1, 0
