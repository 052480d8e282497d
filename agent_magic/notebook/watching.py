"""What the live view is told of a run under way, and what its buttons do to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.forecast.remaining import remaining
from agent_magic.live.controls import Controls
from agent_magic.measure.metrics import summarize
from agent_magic.record.reasons import wording
from agent_magic.show.live import VERBS, LiveView, make_live_view
from agent_magic.show.live.status import Around

if TYPE_CHECKING:
    from agent_magic.engine.health import Health
    from agent_magic.live.driver import Driver
    from agent_magic.record.history import History

MOST_SAID = 200
FEEL_EVERY_S = 0.5
"""How often the health of the service is looked at."""
LOOK_EVERY_S = 1.0
"""How often the time that is left is worked out, for a thousand agents; for more as much later."""


class Watch:
    """Looks at a run for whoever shows it.

    Args:
        driver: What runs.
        history: What earlier answers took.
    """

    def __init__(self, driver: Driver, history: History) -> None:
        self._driver, self._history = driver, history
        self._health: Health | None = None
        self._policy = driver.policy
        self._left_s: tuple[float, float] | None = None
        self._looked_s = self._felt_s = float("-inf")
        self._every_s = LOOK_EVERY_S * max(1.0, len(driver.plan) / 1000)

    def said(self) -> dict[int, str]:
        """Return the end of each arriving answer, and in plans small enough to read what holds each queued agent."""
        driver = self._driver
        if len(driver.plan) > MOST_SAID:
            return {}
        said = {agent: stream.tail() for agent, stream in driver.streams.items()}
        for agent, result in enumerate(driver.record.results):
            if result.status == "queued":
                said[agent] = wording(driver.held_by(agent)).label
        return said

    def around(self, now_s: float) -> Around:
        """Return what the record does not know."""
        policy = self._policy
        if now_s - self._looked_s >= self._every_s:
            self._looked_s = now_s
            self._left_s = remaining(self._driver.record, now_s, self._history, policy.concurrency)
        if now_s - self._felt_s >= FEEL_EVERY_S:
            self._felt_s = now_s
            self._health = self._driver.health()
        return Around(policy.concurrency, policy.budget_usd, self._driver.paused, self._health, self._left_s)

    def arriving(self, agent: int) -> str:
        """Return the text that has arrived of an answer under way."""
        stream = self._driver.streams.get(agent)
        return stream.text if stream is not None else ""

    def view(self) -> LiveView:
        """Make the live view, with its buttons. A click can come on any thread."""
        controls = Controls(self._driver)

        def press(verb: str, agent: str | None) -> None:
            do = getattr(controls, verb)
            do() if agent is None else do([agent])

        return make_live_view(self._driver.record, press, self.arriving, summarize=summarize, verbs=VERBS)
