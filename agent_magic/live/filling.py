"""A recording whose gaps are bought. It is shown and stopped as a live run is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent_magic.declare.plan import Plan
from agent_magic.engine.asking import model_of
from agent_magic.record.events import AgentEnded, AttemptStarted, BackoffStarted, Event, RunEnded
from agent_magic.record.results import RunRecord

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Mapping

    from agent_magic.engine.health import Health
    from agent_magic.engine.policy import Policy
    from agent_magic.live.driver import Driver
    from agent_magic.providers.base import Stream
    from agent_magic.providers.recorded import Match
    from agent_magic.record.prices import Prices


class Filling:
    """A run of which a part is recorded: that is taken as it was, and the rest is bought after it.

    The bought agents run as a plan of their own, in which the recorded answers are values; their times follow the last
    recorded one. So the record holds measured seconds only, and the sources are told apart agent by agent.

    Args:
        match: What is recorded, and what is missing.
        start: Makes ready to run a plan live.

    Attributes:
        record: The recorded part, and as much of the rest as has happened.
        bought: The names of the agents that are bought.
    """

    def __init__(self, match: Match, start: Callable[[Plan], Driver], provenance: Mapping[str, Any]) -> None:
        self.plan = match.plan
        self.record = match.found()
        self.record.provenance = dict(provenance)
        self._after_s = match.ended_s
        blocked = self._block(match)
        self._missing = [agent for agent in match.missing if agent not in blocked]
        self.bought = tuple(self.plan.agents[agent].name for agent in self._missing)
        self._number = {self.plan.agents[agent].name: agent for agent in self._missing}
        self._driver = start(self._rest(match)) if self._missing else None
        if self._driver is not None:
            live = self._driver.record
            self._driver.record = _Telling(live, self._hear)

    @property
    def policy(self) -> Policy:
        """How the rest runs."""
        return self._live.policy

    @property
    def prices(self) -> Prices:
        """What the rest costs."""
        return self._live.prices

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop it runs on."""
        return self._live.loop

    @property
    def streams(self) -> dict[int, Stream]:
        """The answers that are arriving, by agent."""
        return {self._agent(agent): stream for agent, stream in self._live.streams.items()}

    @property
    def paused(self) -> bool:
        """Whether no agent is let go until `resume`."""
        return self._live.paused

    def health(self) -> Health:
        """Say how the rest fares with the provider."""
        return self._live.health()

    @property
    def _live(self) -> Driver:
        if self._driver is None:
            raise RuntimeError("nothing is bought")
        return self._driver

    def now(self) -> float:
        """Seconds since the run began, the recorded part before those that pass now."""
        return self._after_s + self._live.now()

    def held_by(self, agent: int) -> str:
        """Say what holds an agent that is bought."""
        name = self.plan.agents[agent].name
        return self._live.held_by(self._live.plan.number(name)) if name in self._number else ""

    def stop(self, names: Iterable[str] | None = None) -> None:
        """Stop these agents, or the run. Call it on the loop."""
        self._live.stop(None if names is None else self._own(names))

    def retry(self, names: Iterable[str] | None = None) -> None:
        """Run these agents again, of those that are bought, or all that did not succeed."""
        self._live.retry(None if names is None else self._own(names))

    def skip(self, names: Iterable[str]) -> None:
        """Leave these agents out, of those that are bought."""
        self._live.skip(self._own(names))

    def pause(self) -> None:
        """Let nobody go until `resume`."""
        self._live.pause()

    def resume(self) -> None:
        """Let agents go again."""
        self._live.resume()

    async def drive(self) -> None:
        """Buy what is missing."""
        await self._live.drive()

    def whole(self) -> RunRecord:
        """Return the run where nothing has to be bought, because all that is missing waits for what had failed."""
        self.record.add(RunEnded(self._after_s, cut=False))
        return self.record

    def _own(self, names: Iterable[str]) -> list[str]:
        """Name those of these agents, or of these groups, that are bought."""
        named = (self.plan.agents[number].name for number in self.plan.numbers(names))
        return [name for name in named if name in self._number]

    def _agent(self, number: int) -> int:
        return self._number[self._live.plan.agents[number].name]

    def _hear(self, event: Any) -> None:
        """Take over what happens in the live part, at its place and time."""
        later: dict[str, Any] = {"at_s": self._after_s + event.at_s}
        if not isinstance(event, RunEnded):
            later["agent"] = self._agent(event.agent)
        if isinstance(event, AttemptStarted):
            later["granted_s"] = self._after_s + event.granted_s
        if isinstance(event, BackoffStarted):
            later["until_s"] = self._after_s + event.until_s
        self.record.add(event._replace(**later))

    def _block(self, match: Match) -> set[int]:
        """Skip what is missing below an agent that was recorded without success."""
        blocked: set[int] = set()
        for agent in match.missing:
            for parent in self.plan.dag.parents[agent]:
                name = self.plan.agents[parent].name
                if parent in blocked or (parent not in match.missing and name not in match.texts):
                    blocked.add(agent)
                    self.record.add(AgentEnded(self._after_s, agent, "skipped", f"{name!r} did not succeed"))
                    break
        return blocked

    def _rest(self, match: Match) -> Plan:
        """Make a plan of what is missing."""
        plan, missing = self.plan, set(self._missing)
        bought = {*self._number, *(name for name, group in plan.groups.items() if missing.intersection(group.values()))}
        agents = tuple(
            replace(agent, after=tuple(one for one in agent.after if one in bought))
            for agent in (plan.agents[number] for number in sorted(missing))
        )
        known = {**match.texts, **dict.fromkeys(set(plan.groups) - bought, "")}
        rest = _Rest(
            agents,
            {**plan.values, **known},
            name=plan.name,
            description=plan.description,
            on_cycle=plan.on_cycle,
            on_missing=plan.on_missing,
        )
        return rest.of(plan, match.texts)


class _Rest(Plan):
    """What is missing of a plan. Its prompts are the whole plan's: of a group some answers may be recorded."""

    _whole: Plan
    _texts: Mapping[str, str]

    def of(self, whole: Plan, texts: Mapping[str, str]) -> Plan:
        """Belong to a plan, of which these answers are recorded."""
        self._put(_whole=whole, _texts=texts)
        return self

    def prompt_of(self, number: int, answers: Mapping[str, str]) -> str:
        """Write the prompt of an agent, answers that are recorded beside those that are bought."""
        return self._whole.prompt_of(self._whole.number(self.agents[number].name), {**self._texts, **answers})


class _Telling(RunRecord):
    """A record that tells of every event."""

    def __init__(self, like: RunRecord, tell: Callable[[Event], None]) -> None:
        models = map(model_of, like.plan.agents)
        super().__init__(like.plan, began_at=like.began_at, models=models, origin=like.origin)
        self._tell = tell

    def add(self, event: Event) -> None:
        """Take an event in, and tell of it."""
        super().add(event)
        self._tell(event)
