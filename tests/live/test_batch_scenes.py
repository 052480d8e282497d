"""Processes that share a ledger and a provider's batches, in drawn scenes: nothing is paid twice, and nothing is lost.

They are stopped, killed and taken up again at any moment, on one machine or several, with clocks that differ; a
creation's reply is lost, requests of a batch fail, expire or are cancelled, results come torn, twice or in any order.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import agent_magic as am
from agent_magic.record import Answer, Usage
from tests.conftest import NIGHTLY
from tests.live.batch_scenes import Batches, Fate, Process, World, lost, play, shown_usd

if TYPE_CHECKING:
    from agent_magic.record import Request
    from tests.live.batch_scenes import Ended

ROWS = {"rows": [str(one) for one in range(6)], "same": ["x", "x", "y"]}
KINDS = {None, "Unused", "Skipped", "Condition", "Late", "Stopped", "Rejected", "Overloaded", "RateLimited"} | {
    "Unreachable",
    "NotInBatch",
    "InvalidAnswer",
}
"""How steps may end here; anything else is a fault."""
MOMENTS = [0.1, 0.35, 0.6, 1.0, 3.0, 25.0, 33.0, 40.0, 200.0]
"""In seconds; before, in and after a creation, while it is waited for, and after its end."""


def look(word: str) -> str:
    """Look a word up."""
    return word.upper()


@st.composite
def plans(draw: st.DrawFn) -> am.Plan:
    """A plan with rows, tools, typed answers, conditions and equal prompts; some steps go live."""
    steps: list[am.Agent] = []
    names: list[str] = []
    for number in range(draw(st.integers(1, 5))):
        name = f"s{number}"
        used = draw(st.lists(st.sampled_from(names), max_size=2, unique=True)) if names else []
        kind = draw(st.sampled_from(["plain", "rows", "same rows", "live", "tool", "typed", "same", "condition"]))
        prompt = f"{name} {' '.join(f'{{{{ {one} }}}}' for one in used)}"
        options: dict[str, Any] = {}
        if kind in {"rows", "same rows"}:
            prompt, options["each"] = f"{prompt} {{{{ item }}}}", "rows" if kind == "rows" else "same"
        elif kind == "tool":
            options |= {"tools": [am.tool(safe=True)(look)], "batch": draw(st.booleans())}
        elif kind == "typed":
            options["returns"] = int
        elif kind == "same":
            prompt = "the same"
        elif kind == "live":
            options["batch"] = False
        elif kind == "condition" and names:
            options["when"] = f"'{draw(st.integers(0, 3))}' in ({draw(st.sampled_from(names))} | string)"
        steps.append(am.Agent(name, prompt, **options))
        names.append(name)
    return am.Plan(steps, ROWS)


def answer(request: Request, number: int) -> Answer:
    """Answer: a tool is called first; one typed answer of three is no number at first."""
    chance = Random(f"{request.prompt} {request.messages} {number}")
    usage = Usage(len(request.prompt) // 3 + 5, output_tokens=chance.randint(3, 40))
    text, stop_reason, content = str(chance.randint(0, 9999)), "end_turn", None
    if request.tools and not request.messages:
        content = json.dumps([{"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"word": "x"}}])
        text, stop_reason = "", "tool_use"
    elif request.schema:
        text = "none" if chance.random() < 0.3 and not request.messages else json.dumps({"value": int(text)})
    return Answer(text, stop_reason, usage=usage, model=request.model, content=content)


CREATIONS = ["ok", "ok", "ok", "ok", "unsaid", "unsaid", "gone", "refused", "limited", "busy", "away"]
ENDS = ["busy", "wrong", "expired", "cancelled"]
FATES = st.builds(
    Fate,
    creation=st.sampled_from(CREATIONS),
    takes_s=st.sampled_from([1.0, 20.0, 400.0, 5000.0]),
    hidden_s=st.sampled_from([0.0, 0.0, 5.0, 40.0]),
    ends=st.one_of(st.just(("succeeded",)), st.sampled_from(ENDS).map(lambda one: ("succeeded", one))),
    torn=st.sampled_from([0, 0, 1]),
    extra=st.sampled_from(["", "twice", "foreign", "denied"]),
    upload_s=st.sampled_from([0.4, 0.4, 90.0]),
)
POLICIES = st.builds(
    am.Policy,
    batch=st.sampled_from([True, True, "auto", False]),
    seed=st.just(1),
    max_attempts=st.integers(1, 3),
    batch_fallback=st.sampled_from(["batch", "live"]),
    deadline_s=st.sampled_from([None, None, 300.0, 10_000.0]),
    concurrency=st.sampled_from([1, 8]),
    identical=st.sampled_from(["once", "each"]),
)
CONTROLS = st.tuples(
    st.sampled_from(MOMENTS), st.sampled_from(["retry", "skip", "stop"]), st.sampled_from([["s0"], None])
).filter(lambda one: one[1] != "skip" or one[2] is not None)
PROCESSES = st.builds(
    Process,
    at_s=st.sampled_from([0.0, 0.2, 0.5, 30.0]),
    policy=POLICIES,
    fresh=st.just(False),
    ends=st.one_of(st.none(), st.tuples(st.sampled_from(["stop", "kill"]), st.sampled_from(MOMENTS))),
    skew_s=st.sampled_from([0.0, 0.0, -400.0, 400.0]),  # two clocks may differ by `SKEW_S`, no more
    controls=st.lists(CONTROLS, max_size=2).map(tuple),
)
ROUNDS = st.lists(st.lists(PROCESSES, min_size=1, max_size=2), min_size=1, max_size=2)


@settings(max_examples=10_000 if NIGHTLY else 100)
@given(plans(), ROUNDS, st.lists(FATES, max_size=5), st.integers(0, 99), st.booleans())
def test_nothing_is_paid_twice_and_nothing_is_lost(
    plan: am.Plan, rounds: list[list[Process]], fates: list[Fate], seed: int, known: bool
) -> None:
    """Each run ends, the last one with all answers that can be had; frames show what was billed, and replay."""
    world = play(plan, rounds, fates, answer, seed=seed, known=known)
    check(world)
    for one in world.ended:
        if not one.killed:
            check_replay(plan, one)


def check(world: World) -> None:
    """Check what is left of a scene."""
    assert [] == [trouble for one in world.ended for trouble in one.client.trouble]
    assert [] == lost(world)
    for one in world.ended:
        assert {result.kind for result in one.record.results} <= KINDS
        assert all(result.status for result in one.record.results)
    is_wrong = any("wrong" in one.fate.ends for one in world.server.sent.values())
    known = {"succeeded", "skipped", *({"failed"} if is_wrong else ())}
    assert {result.status for result in world.ended[-1].record.results} <= known
    billed: dict[tuple[str, str], float] = defaultdict(float)
    for bill in world.server.bought:
        billed[bill.batch, bill.key] += bill.usd
    shown = shown_usd(world)
    assert {place: pytest.approx(billed[place]) for place in shown} == shown


def check_replay(plan: am.Plan, one: Ended) -> None:
    """A replay has the steps of the run, with their texts, times and dollars."""
    with TemporaryDirectory() as folder:
        am.Run(one.record).save(f"{folder}/run.jsonl")
        found = plan.replay(f"{folder}/run.jsonl", one.process.policy).record
    assert [(row.status, row.kind, row.finished_s, row.text, row.cost_usd) for row in one.record.results] == [
        (row.status, row.kind, row.finished_s, row.text, row.cost_usd) for row in found.results
    ]


ONE = am.Plan([am.Agent("a", "A")])
UNSAID = Fate("unsaid", hidden_s=5.0)


@pytest.mark.parametrize("known", [True, False], ids=["here", "on another machine"])
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_batch_that_its_process_could_not_name_is_found(how: str, *, known: bool) -> None:
    """Whoever asks next finds it, also where nobody can know whether its process is still about to create it."""
    world = play(ONE, [[Process(ends=(how, 1.0))]], [UNSAID], answer, known=known)
    check(world)
    assert 1 == len(world.server.sent)


@pytest.mark.parametrize("fates", [(Fate("gone"), UNSAID), (UNSAID, Fate("gone")), (UNSAID, UNSAID)])
def test_two_batches_of_one_size_that_could_not_be_named_are_told_apart(fates: tuple[Fate, Fate]) -> None:
    """What is taken for one of them is free for the other: only its results show whose it is."""
    plan = am.Plan([am.Agent("a", "{{ item }}", each="rows")], {"rows": [*"abcdefgh"]})
    world = play(plan, [[Process(ends=("kill", 3.0))]], fates, answer)
    check(world)
    assert [4, 4] == [len(one.requests) for one in world.server.sent.values()]


def test_the_ledger_is_asked_again_before_a_batch_is_created_again() -> None:
    """Meanwhile another run may have bought the answer."""
    live = Process(30.0, am.Policy(seed=1), fresh=True)
    world = play(ONE, [[Process(), live]], [Fate("gone")], answer)
    assert (1, 0) == (len(world.server.bought), len(world.server.sent))
    assert [None, "ledger"] == [attempt.source for attempt in world.ended[0].record.results[0].attempts]


def test_a_batch_whose_upload_took_long_is_looked_for_as_long() -> None:
    """A provider's list may lag: the time for that begins where the creation ended."""
    world = play(ONE, [[Process()]], [Fate("unsaid", hidden_s=5.0, upload_s=90.0)], answer)
    assert 1 == len(world.server.sent)
    check(world)


@pytest.mark.parametrize("skew_s", [-600.0, 600.0])
def test_a_run_on_another_machine_is_not_taken_for_dead_by_its_clock(skew_s: float) -> None:
    """Ten minutes off: its requests are waited for, as its leases are, and bought once."""
    world = play(ONE, [[Process(skew_s=skew_s), Process(at_s=0.2)]], [], answer, known=False)
    check(world)
    assert 1 == len(world.server.bought)


def test_what_is_tried_again_before_the_run_begins_is_sent_when_it_begins() -> None:
    """Until the provider has said that it can, the run has no ledger, and an answer would be bought again."""
    plan = am.Plan([am.Agent("s0", "s0", batch=False), am.Agent("s1", "s1")])
    world = play(plan, [[Process(controls=((0.05, "skip", ["s0"]), (0.05, "retry", ["s0"])))]], [], answer)
    check(world)
    assert 2 == len(world.server.bought)


def test_an_answer_that_came_for_a_skipped_agent_is_there_when_it_is_tried_again() -> None:
    """It is billed, although nobody waited for it when its batch ended."""
    plan = am.Plan([am.Agent("s0", "s0"), am.Agent("s1", "s1"), am.Agent("s2", "s2 {{ s1 }}")])
    moves = ((0.9, "skip", ["s0"]), (25.0, "retry", ["s0"]))
    world = play(plan, [[Process(controls=moves)]], [Fate(takes_s=1.0), Fate(takes_s=90.0)], answer)
    check(world)
    assert 3 == len(world.server.bought)


def test_an_agent_tried_again_while_its_batch_is_created_waits_for_that() -> None:
    """Its upload takes long, its reply is lost, and the list shows it late: it is still the one."""
    moves = ((33.0, "skip", [*ONE.names]), (33.0, "retry", [*ONE.names]))
    world = play(ONE, [[Process(controls=moves)]], [Fate("unsaid", takes_s=1.0, hidden_s=5.0, upload_s=90.0)], answer)
    check(world)
    assert 1 == len(world.server.sent)


def test_who_joined_a_batch_that_could_not_be_created_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of another kind, such as of a request's body, ends each attempt that waits, and none waits for ever."""

    async def broken(self: Batches, requests: Any) -> Any:
        del requests
        await self.client.hop(90.0)
        raise TypeError("no body")

    monkeypatch.setattr(Batches, "create", broken)
    moves = ((33.0, "skip", [*ONE.names]), (33.0, "retry", [*ONE.names]))
    world = play(ONE, [[Process(controls=moves)]], [], answer, last=None)
    assert ["failed"] == [result.status for result in world.ended[0].record.results]


def alone(plan: am.Plan, policy: am.Policy, fates: list[Fate], seed: int) -> World:
    """Run a plan once; equal requests have equal answers."""
    return play(plan, [[Process(policy=policy)]], fates, lambda request, _: answer(request, 1), seed=seed, last=None)


@settings(max_examples=5_000 if NIGHTLY else 30)
@given(plans(), POLICIES, st.lists(FATES.map(lambda one: one._replace(creation="ok", torn=0)), max_size=3))
def test_a_forecast_of_a_run_by_batch_is_what_it_was(plan: am.Plan, policy: am.Policy, fates: list[Fate]) -> None:
    """The same ends at the same times, for the dollars that were billed."""
    world = alone(plan, replace(policy, deadline_s=None), fates, 1)
    run = am.Run(world.ended[0].record)
    found = run.forecast().record
    assume(not any(attempt.is_served for result in run.record.results for attempt in result.attempts))
    assert [(one.name, one.status, one.kind, one.finished_s) for one in run.record.rows] == [
        (one.name, one.status, one.kind, one.finished_s) for one in found.rows
    ]
    billed = pytest.approx(sum(bill.usd for bill in world.server.bought))
    assert billed == sum(one.cost_usd or 0.0 for one in run.record.results)
    assert billed == sum(one.cost_usd or 0.0 for one in found.results)


@settings(max_examples=5_000 if NIGHTLY else 30)
@given(plans(), st.booleans(), st.sampled_from([1, 8]), st.sampled_from(["once", "each"]))
def test_a_what_if_tells_what_the_other_way_costs(plan: am.Plan, batch: bool, concurrency: int, identical: Any) -> None:
    """A run by batch tells what it costs live, and the other way round, with its turns and what was asked again."""
    policies = [am.Policy(concurrency, batch=one, seed=1, identical=identical) for one in (batch, not batch)]
    world, other = (alone(plan, one, [], 1) for one in policies)
    frame = am.Run(world.ended[0].record).whatif(batch=not batch)
    assert pytest.approx(sum(bill.usd for bill in other.server.bought)) == frame["cost_usd"].iloc[0]


def test_an_answer_that_a_batch_gave_wrongly_takes_no_hours_live() -> None:
    """The batch says nothing about how long a model works: asked live, it is mended within the step's time."""
    plan = am.Plan([am.Agent("a", "A", returns=int), am.Agent("b", "{{ a }}")])

    def first_wrong(request: Request, _: int) -> Answer:
        text = json.dumps({"value": 1}) if request.messages else "none"
        return Answer(text, "end_turn", usage=Usage(9, output_tokens=3), model=request.model)

    world = play(plan, [[Process()]], [Fate(takes_s=5000.0)], first_wrong, last=None)
    found = am.Run(world.ended[0].record).forecast(batch=False)
    assert ["succeeded", "succeeded"] == [*found.agents["status"]]
    assert 60.0 > (found.totals.wall_s or 0.0)
    assert 2 * sum(bill.usd for bill in world.server.bought) == pytest.approx(found.totals.cost_usd)
