"""Simulated runs for pictures: the business plan of nine agents, at any moment, and plans of any size."""

from __future__ import annotations

import random
from datetime import UTC, datetime

from agent_magic import Agent
from agent_magic.declare import Plan
from agent_magic.record import (
    AgentEnded,
    AgentReady,
    Answer,
    AttemptEnded,
    AttemptStarted,
    BackoffStarted,
    Event,
    FirstToken,
    Price,
    Request,
    RunEnded,
    RunRecord,
    Usage,
)

MODEL = "claude-haiku-5-5"
REQUEST = Request(MODEL, "Write.", 800)
BUSINESS = {
    "market_size": (),
    "competitors": (),
    "financials": (),
    "operations": (),
    "market_analysis": ("market_size", "competitors"),
    "summary": ("market_size", "competitors"),
    "review_finance": ("financials", "market_analysis"),
    "review_ops": ("operations", "market_analysis"),
    "business_plan": ("summary", "review_finance", "review_ops"),
}


def plan_of(parents: dict[str, tuple[str, ...]], name: str = "business_plan") -> Plan:
    """Declare agents that use the answers of these parents."""
    agents = [Agent(one, "Write. " + " ".join(f"{{{{ {two} }}}}" for two in after)) for one, after in parents.items()]
    return Plan(tuple(agents), name=name)


def business_plan() -> Plan:
    """Return the plan of nine agents in four layers."""
    return plan_of(BUSINESS)


def each_plan(count: int) -> Plan:
    """Return a plan of a question about each row, and a report of all answers."""
    rows = [{"text": f"row {number}"} for number in range(count)]
    agents = (Agent("label", "Which? {{ item.text }}", each="rows"), Agent("report", "Sum up. {{ label }}"))
    return Plan(agents, name="labels", values={"rows": rows})


def layered_plan(count: int, width: int, seed: int = 1) -> Plan:
    """Return a plan whose layers are `width` agents, each after one to three of the layer before."""
    chance = random.Random(seed)
    parents: dict[str, tuple[str, ...]] = {}
    for agent in range(count):
        layer = agent // width
        before = range((layer - 1) * width, layer * width) if layer else range(0)
        chosen = sorted(chance.sample(before, min(len(before), chance.randint(1, 3))))
        parents[f"agent_{agent}"] = tuple(f"agent_{parent}" for parent in chosen)
    return plan_of(parents, "layered")


def record_of(plan: Plan) -> RunRecord:
    """Return the record of a run that has not begun."""
    return RunRecord(plan, began_at=datetime(2026, 1, 2, tzinfo=UTC), models=[MODEL] * len(plan))


def answered(
    at_s: float, agent: int, number: int = 1, *, source: str = "simulated", text: str = "Good."
) -> list[Event]:
    """Return the events of a complete answer."""
    usage = Usage(400, output_tokens=412)
    answer = Answer(text, "end_turn", usage=usage, model=MODEL, source=source)  # pyright: ignore[reportArgumentType]
    price = Price(0.0 if source == "ledger" else 0.0021, "given")
    return [
        AttemptEnded(at_s, agent, number, answer, None, None, "", usage, price, answer.source, 200),
        AgentEnded(at_s, agent, "succeeded", None),
    ]


def broken(at_s: float, agent: int, number: int = 1, *, error: str = "529: the service is full") -> AttemptEnded:
    """Return the event of a failed attempt."""
    return AttemptEnded(at_s, agent, number, None, error, "Overloaded", "", None, Price(None, "given"), None, 529)


def business_events() -> list[Event]:
    """Return the whole story of the business plan: a ledger hit, a queue, an overload with its retry."""
    events: list[Event] = [AgentReady(0.0, agent) for agent in range(4)]

    def request(agent: int, at_s: float, first_s: float, number: int = 1, *, held_by: str = "") -> None:
        events.append(AttemptStarted(at_s, agent, number, at_s, held_by, REQUEST))
        events.append(FirstToken(first_s, agent, number))

    for agent in (0, 1, 2, 3):
        request(agent, 0.0, 0.01 if agent == 2 else 0.5 + agent / 10)
    events += answered(0.02, 2, source="ledger") + answered(2.1, 0) + answered(2.6, 1)
    events += [AgentReady(2.6, 4), AgentReady(2.6, 5)]
    request(4, 2.62, 3.0)
    request(5, 3.9, 4.2, held_by="slot")
    events += [*answered(4.5, 4), AgentReady(4.5, 6)]
    request(6, 4.7, 5.2)
    events += [*answered(5.6, 3), AgentReady(5.6, 7)]
    request(7, 5.62, 6.0)
    events += [broken(5.8, 6), BackoffStarted(5.8, 6, 6.9, "529: the service is full"), *answered(6.4, 5)]
    request(6, 7.0, 7.3, 2)
    events += [*answered(8.0, 7), *answered(8.3, 6, 2), AgentReady(8.3, 8)]
    request(8, 8.31, 8.8)
    events += [*answered(9.6, 8), RunEnded(9.6, cut=False)]
    return sorted(events, key=lambda event: event.at_s)


def business_run(until_s: float = 99.0) -> RunRecord:
    """Return the run of the business plan as it stands at a moment."""
    record = record_of(business_plan())
    for event in business_events():
        if event.at_s <= until_s:
            record.add(event)
    return record


def finished_run(plan: Plan, seed: int = 1, *, until_s: float = float("inf")) -> RunRecord:
    """Return a run in which every agent starts when its parents are done; one in thirty fails."""
    chance = random.Random(seed)
    done_s: list[float] = [0.0] * len(plan)
    events: list[Event] = []
    for agent in plan.dag.order:
        ready = max((done_s[parent] for parent in plan.dag.parents[agent]), default=0.0)
        done_s[agent] = end = ready + chance.uniform(0.5, 3)
        events += [AgentReady(ready, agent), AttemptStarted(ready, agent, 1, ready, "", REQUEST)]
        events.append(FirstToken(ready + 0.3, agent, 1))
        if chance.random() < 1 / 30:
            events += [broken(end, agent), AgentEnded(end, agent, "failed", "529: the service is full")]
        else:
            events += answered(end, agent)
    record = record_of(plan)
    for event in sorted(events, key=lambda event: event.at_s):
        if event.at_s <= until_s:
            record.add(event)
    if until_s == float("inf"):
        record.add(RunEnded(max(done_s), cut=False))
    return record
