"""The pacer against a server on a virtual clock that keeps its capacities to itself: rates, refusals, fairness."""

from __future__ import annotations

import json
from functools import partial
from random import Random
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magic.engine import Hold, Pacer
from benchmarks.rate_world import Naive, Paced, Secret, Server, World, draw

INPUT = {"inputs": (1000, 0.5)}
MIXED = {"inputs": (500, 0.5), "large": 0.05, "large_input": 20_000}
TOLD: list[tuple[Literal["response", "admission", "none"], bool]] = [
    ("response", False),
    ("response", True),
    ("admission", False),
    ("admission", True),
]


def run(server, count, seed=1, **jobs):
    """Send so many through a pacer that knows nothing, to the end."""
    world = World(server, seed)
    client = Paced(world, draw(count, Random(seed), **jobs), Pacer(seed=seed))
    world.run()
    assert 0 == client.result.left
    return client.result


@pytest.mark.parametrize("capacity_s", [1, 10, 60])
@pytest.mark.parametrize(
    ("kind", "per_minute", "count", "jobs", "least", "refused"),
    [
        ("requests", 3_000, 1_000, {}, 0.98, 0.005),
        ("input", 2.4e6, 600, INPUT, 0.98, 0.005),
        ("output", 6e5, 900, {}, 0.97, 0.05),
        ("input", 2.4e6, 600, MIXED, 0.95, 0.005),
    ],
)
def test_a_limit_is_reached_without_being_told(capacity_s, kind, per_minute, count, jobs, least, refused):
    """Nearly all of the permitted rate after the first answer, next to no refusals, no failures."""
    name = {"requests": "rpm", "input": "itpm", "output": "otpm"}[kind]
    for headers, streamed in TOLD:
        server = Server(**{name: per_minute}, capacity_s=capacity_s, headers=headers, streamed=streamed)
        result = run(server, count, **jobs)
        assert least <= result.share(kind, per_minute)
        assert result.refused_share() <= refused
        assert 0 == result.failed


def test_large_ones_are_not_overtaken():
    """Nothing that was queued behind a large request is let in before it, but for what a refusal of it lets by."""
    assert run(Server(itpm=2.4e6), 600, **MIXED).overtaken(10_000) <= 1


def test_nothing_is_left_of_a_wrong_belief():
    """Estimates four times too low, and four times too high, end at the same rate."""
    for believed in (70, 1_200):
        result = run(Server(otpm=6e5), 900, believed_output=believed)
        assert 0.93 <= result.share("output", 6e5)
        assert 0 == result.failed


def test_hours_make_no_difference():
    """Two hours at one a second: the limit is kept, and kept busy, to the end."""
    result = run(Server(rpm=60, capacity_s=10), 7_200)
    assert 0 == len(result.refused)
    assert 0.98 <= result.share("requests", 60, 3_600, 7_000) <= 1.001


def test_without_headers_most_of_the_rate_is_found():
    """A window alone: fewer refusals than a hundredth, nobody fails."""
    result = run(Server(rpm=3_000, headers="none"), 3_000)
    assert 0.9 <= result.share("requests", 3_000)
    assert result.refused_share() < 0.01
    assert 0 == result.failed


@pytest.mark.parametrize(("headers", "told", "part", "least"), [
    ("response", False, 0.01, 0.9), ("response", False, 0.04, 0.6), ("response", True, 0.04, 0.6),
    ("none", False, 0.01, 0.8), ("none", False, 0.04, 0.5),
])  # fmt: skip
def test_refusals_without_a_limit_cost_little_but_their_pause(headers, told, part, least):
    """Most of the limit is used, and few more are refused than by chance: nothing else waits."""
    world = World(Server(rpm=3_000, capacity_s=10, headers=headers, stray=part, stray_told=told), 1)
    client = Paced(world, draw(3_000, Random(1)), Pacer(seed=1), attempts=10**9)
    world.run()
    assert least <= client.result.share("requests", 3_000)
    assert client.result.refused_share() < part + 0.015


@pytest.mark.parametrize(("stray", "bare", "least"), [(0.01, False, 0.6), (0.0, True, 0.95)])
def test_a_hidden_limit_is_found_where_refusals_may_have_none(stray, bare, least):
    """Half of what is announced: among refusals by chance, and by a proxy that says nothing else."""
    world = World(Server(rpm=3_000, secret=Secret(1_500, bare=bare), stray=stray), 1)
    client = Paced(world, draw(1_500, Random(1)), Pacer(seed=1), attempts=10**9)
    world.run()
    assert least <= client.result.share("requests", 1_500) <= 1.01
    assert client.result.refused_share() < stray + 0.02


@pytest.mark.parametrize("capacity_s", [1, 10])
def test_two_pacers_share_a_key(capacity_s):
    """Neither starves, neither storms, and together they use what there is."""
    world = World(Server(rpm=3_000, capacity_s=capacity_s), 1)
    both = [Paced(world, draw(4_000, Random(seed)), Pacer(seed=seed), attempts=10**9) for seed in (1, 2)]
    world.run(60)
    shares = [client.result.share("requests", 3_000, 10, 60) for client in both]
    assert min(shares) > 0.3
    assert 0.97 < sum(shares) < 1.02
    assert max(client.result.refused_share() for client in both) < 0.03


def test_a_colleague_with_a_steady_need_keeps_it():
    """What he does not take is ours."""
    world = World(Server(rpm=3_000), 1)
    ours = Paced(world, draw(4_000, Random(1)), Pacer(seed=1))
    colleague = Naive(world, [], slots=0)
    for number, job in enumerate(draw(1_100, Random(2))):
        world.later(5 + number / 20, partial(colleague.send, job))
    world.run(60)
    assert colleague.result.share("requests", 3_000, 10, 60) > 0.39
    assert ours.result.share("requests", 3_000, 10, 60) > 0.57
    assert ours.result.refused_share() < 0.01


@settings(max_examples=30, deadline=None)
@given(
    rpm=st.floats(30, 20_000),
    itpm=st.floats(20_000, 5e6),
    otpm=st.floats(20_000, 5e6),
    capacity_s=st.sampled_from([1, 3, 10, 60]),
    told=st.sampled_from([*TOLD, ("none", False)]),
    latency=st.tuples(st.floats(0.05, 20), st.floats(0, 1)),
    seed=st.integers(0, 1_000),
)
def test_every_request_is_answered_in_the_end(rpm, itpm, otpm, capacity_s, told, latency, seed):
    """Whatever the limits: no deadlock, no starvation, nothing sent before its turn, and the run repeats exactly."""
    server = Server(rpm, itpm, otpm, capacity_s, headers=told[0], streamed=told[1])

    def once():
        world = World(server, seed)
        jobs = draw(60, Random(seed), inputs=(2_000, 1.0), latency=latency)
        client = Paced(world, jobs, Pacer(seed=seed), attempts=10**9)
        world.run(100_000)
        return client.result

    result = once()
    assert 0 == result.left
    assert result.sent == once().sent


@pytest.mark.parametrize(("rpm", "capacity_s", "wait", "least"), [
    (60, 1, "true", 0.7), (60, 1, None, 0.7), (60, 60, 1.0, 1.1), (300, 10, None, 0.98), (3_000, 1, 1.0, 0.97),
])  # fmt: skip
def test_a_limit_that_nobody_announces_refuses_little_once_it_is_known(rpm, capacity_s, wait, least):
    """After the first minute under two in a hundred, whatever a refusal says of when to come again."""
    world = World(Server(rpm, capacity_s=capacity_s, headers="none", wait=wait), 5)
    client = Paced(world, draw(5 * rpm + 100, Random(5)), Pacer(seed=5), attempts=10**9)
    until_s = 240 if rpm < 1_000 else 100
    world.run(until_s)
    assert least <= client.result.share("requests", rpm, client.result.first_s, until_s)
    assert client.result.refused_share(60) <= 0.02


@pytest.mark.parametrize(("part", "seed"), [(0.04, 7), (0.1, 1)])
def test_chance_at_the_start_is_not_taken_for_a_low_limit(part, seed):
    """What passes between refusals varies by chance: most of the limit is used within a minute."""
    world = World(Server(3_000, capacity_s=10, headers="none", wait=None if seed == 7 else "true", stray=part), seed)
    client = Paced(world, draw(5_000, Random(seed)), Pacer(seed=seed), attempts=10**9)
    world.run(60)
    assert 0.7 < client.result.share("requests", 3_000, client.result.first_s, 60)


@pytest.mark.parametrize(
    ("rpm", "capacity_s", "part", "wait", "seed"),
    [(3_000, 10, 0.04, None, 38), (3_000, 10, 0.1, "true", 23), (3_000, 10, 0.1, "true", 28), (300, 1, 0.04, None, 32)],
)
def test_refusals_by_chance_do_not_confirm_each_other(rpm, capacity_s, part, wait, seed):
    """Unlucky draws, which measured what had just been sent as a limit: half of the true one is used, or more."""
    world = World(Server(rpm, capacity_s=capacity_s, headers="none", wait=wait, stray=part), seed)
    until_s = 120 if rpm > 500 else 300
    jobs = draw(2 * rpm * until_s // 60 + 50, Random(seed))
    client = Paced(world, jobs, Pacer(seed=seed), attempts=10**9)
    world.run(until_s)
    assert 0.5 < client.result.share("requests", rpm, client.result.first_s, until_s)


def test_a_limit_of_output_is_not_taken_for_chance():
    """Answers differ in length, so what passes between two refusals of a limit varies too."""
    world = World(Server(otpm=6e5, headers="none"), 4)
    client = Paced(world, draw(900, Random(4)), Pacer(seed=4))
    world.run()
    assert 0.87 < client.result.share("output", 6e5)


@pytest.mark.parametrize("windows", [True, False])
def test_a_gateway_of_three_a_minute_that_says_nothing_fails_no_row(windows):
    """Its minute's bucket is used, and each of twelve is answered within five minutes of its first request."""
    world = World(Server(3, capacity_s=60, headers="none", wait=None, windows=windows), 2)
    client = Paced(world, draw(12, Random(2)), Pacer(seed=2), attempts=10**9, most=8)
    world.run()
    assert 0 == client.result.left
    assert client.result.longest_s < 300


@pytest.mark.parametrize(("rpm", "begin_s", "refused"), [(3, 7, 0.15), (10, 20, 0.05), (60, 45, 0.02)])
def test_a_count_by_the_minute_is_learned_whenever_its_minutes_begin(rpm, begin_s, refused):
    """All of each minute is used, and after the first one few are refused: now and then one more is tried."""
    world = World(Server(rpm, headers="none", wait=None, windows=True), 1)
    world.now = begin_s
    pacer = Pacer(seed=1)
    client = Paced(world, draw(10 * rpm, Random(1)), pacer, attempts=10**9)
    world.run(begin_s + 300)
    assert 5 * rpm <= len(client.result.admitted)
    assert client.result.refused_share(begin_s + 60) <= refused
    assert rpm == pacer.ceilings()["claude-sonnet-5-5"]["requests"].per_minute


@pytest.mark.parametrize(("server", "most"), [
    (Server(60, capacity_s=60, headers="none", wait=None, windows=True), 0.055),
    (Server(10, capacity_s=1, headers="none"), 0.065),
    (Server(10, capacity_s=1, headers="none", wait=1.0), 0.065),
])  # fmt: skip
def test_small_limits_that_nobody_announces_are_not_taken_for_places(server, most):
    """Whoever is refused alone was refused by a rate, and a server that was shut for long is asked less often."""
    for seed in range(3):
        world = World(server, seed)
        client = Paced(world, draw(600, Random(seed)), Pacer(seed=seed), attempts=10**9)
        world.run(300)
        assert 0.7 <= client.result.share("requests", server.rpm, client.result.first_s, 300)
        assert client.result.refused_share(60) <= most


def crowd(slots, latency_s, count, seed=1, *, wait: float | None = 1.0, spread=0.6):
    """Send so many to a server that lets a few run at once and says nothing of it."""
    world = World(Server(headers="none", slots=slots, wait=wait), seed)
    jobs = draw(count, Random(seed), latency=(latency_s, spread))
    client = Paced(world, jobs, Pacer(seed=seed), attempts=10**9)
    world.run()
    assert 0 == client.result.left
    return client


@pytest.mark.parametrize("wait", [1.0, None])
@pytest.mark.parametrize(("slots", "latency_s", "count"), [(4, 0.8, 800), (16, 2, 1_200), (50, 1, 3_000), (8, 10, 300)])
def test_places_that_nobody_announces_are_all_used(slots, latency_s, count, wait):
    """A server that refuses what it has no place for is kept full, and refuses next to nothing."""
    result = crowd(slots, latency_s, count, wait=wait).result
    assert 0.95 <= result.busy(slots)
    assert result.refused_share() < 0.02
    late = [at for at in result.sent if at > 60]
    assert sum(at > 60 for at in result.refused) < 0.01 * max(len(late), 100)


@pytest.mark.parametrize(("slots", "latency_s"), [(8, 0.05), (30, 0.1), (16, 0.3)])
def test_places_are_found_where_answers_take_little_longer_than_the_wire(slots, latency_s):
    """Counts are off by what is on the wire: the number is found all the same, and as many are under way to the end."""
    world = World(Server(headers="none", slots=slots, wait=1.0), 3)
    per_minute = 60 * slots / (latency_s + sum(world.server.wire_s))
    jobs = draw(int(2 * per_minute), Random(3), latency=(latency_s, 0.0))
    result = Paced(world, jobs, Pacer(seed=3), attempts=10**9).result
    world.run(60)
    assert 0.95 <= result.share("requests", per_minute, 30, 60)
    assert result.refused_share() < 0.02


@pytest.mark.parametrize(
    ("server", "count", "refused"),
    [
        (Server(slots=8, headers="none"), 200, 0.01),
        (Server(3, headers="none", wait=None, windows=True), 30, 0.10),
        (Server(10, headers="none", wait=None, windows=True), 40, 0.03),
    ],
    ids=["slots", "three a minute", "ten a minute"],
)
@pytest.mark.parametrize("gap_s", [1.0, 300.0])
def test_a_later_session_knows_what_nobody_announces(server, count, refused, gap_s):
    """It goes on as one that never ended: what was learned of slots and of minutes is remembered as rates are."""
    world, pacer = World(server, 3), Pacer(seed=3)
    Paced(world, draw(count, Random(3), latency=(5.0, 0.3)), pacer, attempts=10**9)
    world.run()
    later = Pacer(seed=4)
    later.remember(json.loads(json.dumps(pacer.memory(world.now))), world.now + gap_s, gap_s)
    world.now += gap_s
    client = Paced(world, draw(count, Random(4), latency=(5.0, 0.3)), later, attempts=10**9)
    world.run()
    assert 0 == client.result.left
    assert client.result.refused_share() <= refused


def test_a_wait_for_a_place_says_so():
    """What holds a request is the number that the server takes at once, not a rate."""
    pacer = Pacer(seed=1)
    world = World(Server(headers="none", slots=4, wait=1.0), 1)
    Paced(world, draw(400, Random(1)), pacer, attempts=10**9)
    world.run(60)
    holds = [pacer.ask("claude-sonnet-5-5", 300, 500, world.now) for _ in range(5)]
    assert isinstance(holds[-1], Hold)
    assert "concurrent" == holds[-1].reason
    assert not pacer.health(world.now)["claude-sonnet-5-5"].limits["requests"].limit_per_min


@settings(max_examples=15, deadline=None)
@given(slots=st.integers(2, 64), load=st.floats(0.3, 5), seed=st.integers(0, 1_000))
def test_any_number_of_places_is_found(slots, load, seed):
    """Whatever the number and the latency: most of it is used in the second half, and few are refused."""
    result = crowd(slots, load, min(150 * slots, 2_000), seed).result
    half = result.sent[len(result.sent) // 2]
    assert sum(at > half for at in result.refused) <= 0.02 * len(result.sent) / 2 + 1
    assert 0.6 <= result.busy(slots)


@settings(max_examples=15, deadline=None)
@given(rpm=st.floats(200, 4_000), latency=st.tuples(st.floats(0.05, 5), st.floats(0, 0.8)), seed=st.integers(0, 1_000))
def test_a_limit_of_a_rate_is_not_taken_for_one_of_places(rpm, latency, seed):
    """With any latency a rate that nobody announces is used, and refuses little after the first minute."""
    world = World(Server(rpm=rpm, headers="none"), seed)
    client = Paced(world, draw(int(rpm * 2), Random(seed), latency=latency), Pacer(seed=seed), attempts=10**9)
    world.run()
    late = sum(at > 60 for at in client.result.sent)
    assert 0.7 <= client.result.share("requests", rpm)
    assert sum(at > 60 for at in client.result.refused) <= 0.02 * late + 2
