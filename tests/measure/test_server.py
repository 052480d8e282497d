"""The server behind an endpoint: what its answers tell of it, and how it serves requests in a forecast."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magic.api import Agent, Claude, Plan, Policy, Run
from agent_magic.measure import CONSTANT, Needs, Observed, Server, fit
from agent_magic.measure.server import NEVER, Serving, limit_of, shortest_s
from agent_magic.record.history import Exchange
from agent_magic.simulator import start

if TYPE_CHECKING:
    from collections.abc import Sequence


def served(needs: Sequence[Needs], tokens: Sequence[int], model: Server, concurrency: int) -> list[Exchange]:
    """Serve requests that are all ready, so many at once, and return what a client sees of it."""
    serving, now = Serving[int](model), 0.0
    sent, first = dict[int, float](), dict[int, float]()
    found: list[Exchange] = []
    left = list(range(len(needs)))
    while left or len(found) < len(needs):
        while left and len(sent) - len(found) < concurrency:
            sent[left[0]] = now
            serving.join(left[0], needs[left[0]], now)
            left.pop(0)
        now = serving.next_s()
        one, over = serving.pop(now)
        if over:
            found.append(Exchange(sent[one], first[one], now, 100, tokens[one]))
        else:
            first[one] = now
    return found


def seen_by_a_client(lot: Random, needs: Sequence[Needs], tokens: Sequence[int], truth: Server, most: int) -> Observed:
    """Serve requests to a client that sends them one after the other, and reads its frames a little late."""
    late_s = lot.choice([0.0, 0.002, 0.01])
    serving = Serving[int](truth)
    sent, first, found = dict[int, float](), dict[int, float](), dict[int, Exchange]()
    ready = [0.001 * number for number in range(min(most, len(needs)))]
    while len(found) < len(needs):
        next_s = serving.next_s()
        if len(sent) < len(needs) and ready and ready[0] <= next_s:
            now, number = ready.pop(0), len(sent)
            sent[number] = now
            serving.join(number, needs[number], now)
            continue
        number, over = serving.pop(next_s)
        seen_s = next_s + late_s * lot.random()
        if over:
            found[number] = Exchange(sent[number], min(first[number], seen_s), seen_s, 100, tokens[number])
            ready = sorted([*ready, seen_s])
        else:
            first[number] = seen_s
    return Observed(found[number] for number in range(len(needs)))


def drawn(seed: int, count: int = 40) -> tuple[list[Needs], list[int]]:
    """Draw answers of 40 to 400 tokens at 100 tokens a second, after a tenth of a second."""
    lot = Random(seed)
    tokens = [lot.randrange(40, 400) for _ in range(count)]
    return [Needs(0.1, one / 100) for one in tokens], tokens


def test_processor_sharing_halves_the_speed_of_two() -> None:
    """Two requests on a server of one speed take as long together as one after the other."""
    assert 4.0 == pytest.approx(shortest_s([Needs(0.0, 2.0)] * 2, [(), ()], 2, Server(full=1.0)))
    assert 2.0 == pytest.approx(shortest_s([Needs(0.0, 2.0)] * 2, [(), ()], 2, Server(full=2.0)))


def test_a_queue_behind_the_slots_is_first_come_first_served() -> None:
    """With one slot, the second request begins when the first one is over."""
    found = served([Needs(0.5, 1.0), Needs(0.5, 2.0)], [1, 1], Server(slots=1.0), 2)
    assert [(0.5, 1.5), (2.0, 4.0)] == [(one.first_s, one.ended_s) for one in found]


def test_a_request_that_is_cut_leaves_its_speed_to_the_others() -> None:
    """What is left of a request goes on at the speed that one frees which was aborted."""
    serving = Serving[str](Server(full=1.0))
    serving.join("a", Needs(0.0, 2.0), 0.0)
    serving.join("b", Needs(0.0, 2.0), 0.0)
    assert [("a", False), ("b", False)] == [serving.pop(serving.next_s()) for _ in range(2)]
    assert 0.75 == serving.left("a", 1.0)
    serving.leave("b", 1.0)
    assert 2.5 == serving.next_s()
    assert ("a", True) == serving.pop(2.5)
    assert NEVER == serving.next_s()


def test_prompts_that_are_read_apart_slow_nobody() -> None:
    """Where prompts are read apart, that takes its own time, whatever runs."""
    apart = Server(full=1.0, reads_beside=False)
    found = served([Needs(1.0, 1.0), Needs(1.0, 1.0)], [1, 1], apart, 2)
    assert [1.0, 1.0] == [one.first_s for one in found]
    assert [3.0, 3.0] == [one.ended_s for one in found]


@pytest.mark.parametrize("apart", [True, False])
def test_a_time_that_is_rounded_ends_no_answer_early(apart: bool) -> None:
    """Events come at times on a grid, up to half a step early: each is still the next one."""
    lot, serving, step_s = Random(1), Serving[int](Server(4.0, 1.5, reads_beside=not apart)), 2.0**-20
    for number in range(40):
        serving.join(number, Needs(lot.uniform(0.01, 0.1), 0.5), 0.0)
    begun, taken = dict[int, float](), list[float]()
    while (next_s := serving.next_s()) < NEVER:
        now = round(next_s / step_s) * step_s
        number, over = serving.pop(now)
        if over:
            taken.append(now - begun[number])
        else:
            begun[number] = now
    assert 40 == len(taken)
    assert min(taken) > 0.49


@settings(max_examples=25, deadline=None)
@given(
    slots=st.sampled_from([1, 2, 4, 8, 16]),
    full=st.sampled_from([1.0, 1.5, 2.0, 3.0, 6.0, NEVER]),
    concurrency=st.sampled_from([2, 4, 8, 16]),
    apart=st.booleans(),
    seed=st.integers(0, 999),
)
def test_a_server_is_recovered_or_said_to_be_open(
    slots: int,
    full: float,
    concurrency: int,
    apart: bool,
    seed: int,
) -> None:
    """Slots come out within one and the shared rate within 5 %, or the truth is among what is left open.

    What never mattered in the run cannot be known: slots beyond those in use, a speed that is not reached.
    """
    truth = Server(float(slots), full, reads_beside=not apart)
    needs, tokens = drawn(seed)
    observed = Observed(served(needs, tokens, truth, concurrency))
    found = fit([observed])
    used = min(slots, concurrency)
    if slots < concurrency and full == NEVER:
        assert slots - 1 <= found.likely.slots <= slots + 1
    rates = [min(one.full, one.slots, used) for one in found.open]
    true_rate = min(full, slots, used)
    assert min(rates) * 0.95 <= true_rate <= max(rates) * 1.05


@settings(max_examples=15, deadline=None)
@given(slots=st.sampled_from([2.0, 4.0, NEVER]), full=st.sampled_from([1.0, 2.0, 5.0, NEVER]), seed=st.integers(0, 99))
def test_what_a_request_needs_alone_takes_as_long_as_it_took(slots: float, full: float, seed: int) -> None:
    """Whatever the model, a run that is served again by it takes as long as it took."""
    needs, tokens = drawn(seed, 12)
    seen = served(needs, tokens, Server(4.0, 2.0), 4)
    model = Server(slots if slots >= 4 else 4.0, full)
    again = Observed(seen).needs(model)
    taken = max(one.ended_s for one in seen)
    assert taken == pytest.approx(shortest_s(again, [()] * len(again), 4, model), rel=1e-6)


def test_a_constant_server_is_constant() -> None:
    """Where the load changes nothing, nothing is made of it, though speeds differ from answer to answer."""
    lot = Random(3)
    tokens = [lot.randrange(40, 400) for _ in range(48)]
    needs = [Needs(0.1, one / 100 * lot.lognormvariate(0.0, 0.25)) for one in tokens]
    for concurrency in (1, 4, 12):
        assert CONSTANT == fit([Observed(served(needs, tokens, CONSTANT, concurrency))]).likely._replace(
            reads_beside=True
        )


@pytest.mark.parametrize("seed", range(60))
def test_a_constant_server_of_any_spread_has_no_slots(seed: int) -> None:
    """First tokens that differ by a factor of ten are no queue, and no speed that is shared: 60 of 60 draws."""
    lot = Random(seed)
    first_s, pace = lot.choice([0.05, 0.2, 0.4, 1.0]), lot.choice([50, 150, 600])
    of_first, of_pace = lot.choice([0.0, 0.1, 0.25, 0.5, 0.8, 1.2]), lot.choice([0.0, 0.1, 0.25, 0.5])
    count, most = lot.choice([12, 16, 24, 40, 60, 100]), lot.choice([1, 2, 3, 4, 6, 8, 12, 24])
    size = lot.choice([(5, 20), (20, 90), (40, 400), (75, 76)])
    tokens = [lot.randrange(*size) for _ in range(count)]
    needs = [
        Needs(first_s * lot.lognormvariate(0.0, of_first), one / pace * lot.lognormvariate(0.0, of_pace))
        for one in tokens
    ]
    assert fit([seen_by_a_client(lot, needs, tokens, CONSTANT, most)]).likely.is_constant


@pytest.mark.parametrize("seed", range(60))
def test_a_drawn_server_is_recovered_or_left_open(seed: int) -> None:
    """Slots within one and the rate within 5 %, or among what is left open, whatever the plan and its noise.

    What never mattered cannot be known: slots beyond those in use, a speed that is not reached.
    """
    lot = Random(seed)
    first_s, pace = lot.choice([0.02, 0.1, 0.3]), lot.choice([50, 150, 400])
    noise = lot.choice([0.0, 0.05, 0.1, 0.25])
    count, most = lot.choice([24, 40, 60, 100]), lot.choice([2, 4, 8, 16, 24])
    slots: float = lot.choice([1.0, 2.0, 4.0, 8.0, 16.0, NEVER])
    fulls: list[float] = [1.0, 1.5, 2.0, 3.0]
    full = lot.choice([*fulls, NEVER] if slots < NEVER else fulls)
    truth = Server(slots, full, reads_beside=lot.random() < 0.5)
    tokens = [lot.randrange(*lot.choice([(20, 90), (40, 400)])) for _ in range(count)]
    needs = [
        Needs(first_s * lot.lognormvariate(0.0, noise), one / pace * lot.lognormvariate(0.0, noise)) for one in tokens
    ]
    found, used = fit([seen_by_a_client(lot, needs, tokens, truth, most)]), min(slots, most, count)
    if slots < min(most, count):
        assert abs(found.likely.slots - slots) <= 1
    else:
        assert found.likely.slots >= used - 1
    rates = [min(one.full, one.slots, most) for one in found.open]
    assert min(rates) * 0.95 <= min(full, used) <= max(rates) * 1.05


def test_two_runs_tell_what_one_cannot() -> None:
    """A run of one at a time says what a request takes alone; together with a full one the shared rate is known."""
    needs, tokens = drawn(5, 24)
    truth = Server(4.0, 2.0)
    runs = [Observed(served(needs[:12], tokens[:12], truth, concurrency)) for concurrency in (1, 8)]
    found = fit(runs)
    assert (4.0, 8) == (found.likely.slots, found.most)
    assert 2.0 == pytest.approx(found.likely.full, rel=0.05)
    assert 100 == pytest.approx(found.pace, rel=0.05)


def test_a_run_on_a_shared_server_forecasts_other_concurrencies() -> None:
    """From one run on a mock server of two slots, more at once is forecast to gain nothing, and one to take twice."""
    lot = Random(1)
    plan = Plan([Agent(f"a{n}", f"Item {n}. [[tokens:{lot.randrange(20, 90)}]]") for n in range(12)])

    async def runs(url: str) -> list[Run]:
        client = Claude(base_url=url, api_key="simulator")
        return [await plan.run(Policy(each), client=client) for each in (4, 1)]

    with start(latency="ttft=0.02,spread=0", slots=2, shared_rate=200, cap=100, unlimited=True) as server:
        run, alone = asyncio.run(runs(server.url))
    frame = run.whatif(concurrency=[1, 4, 12])
    recorded, one_s = (float(each.totals.wall_s or 0.0) for each in (run, alone))
    assert recorded == pytest.approx(frame.wall_s[1], rel=0.05)
    assert recorded == pytest.approx(frame.wall_s[2], rel=0.1)
    assert one_s == pytest.approx(frame.wall_s[0], rel=0.25)
    assert frame.wall_low_s[0] <= one_s <= frame.wall_high_s[0]
    assert ["measured", "measured", "assumed"] == list(frame.basis)
    assert ["the server (2 slots)"] * 2 == [run.totals.limited_by, frame.limited_by[1]]
    assert "limited by the server (2 slots)" in repr(run)
    assert any("Agents mostly waited for the server (2 slots)." in one.measured for one in run.advise())


def test_the_server_holds_a_run_only_where_the_load_changes_what_a_request_takes() -> None:
    """A queue behind slots and a shared speed are named; a constant server, or one with room left, is not."""
    needs, tokens = drawn(7)
    lot = Random(7)
    spread = [one._replace(after_s=one.after_s * lot.lognormvariate(0.0, 0.2)) for one in needs]

    def held(needs: Sequence[Needs], truth: Server, concurrency: int) -> str:
        seen = Observed(served(needs, tokens, truth, concurrency))
        return limit_of([seen.held(fit([seen]).likely)])

    assert "the server (2 slots)" == held(needs, Server(2.0), 8)
    assert "the server's speed" == held(needs, Server(full=2.0), 8)
    assert ["", ""] == [held(spread, CONSTANT, 8), held(needs, Server(8.0), 4)]
    assert "" == limit_of([])


@pytest.mark.parametrize("seed", range(8))
def test_short_answers_of_a_constant_server_are_no_queue(seed: int) -> None:
    """Four at once, each as quick as alone: streams of 40 ms overlap by little, and still show that several ran."""
    draw, free_s, found = Random(seed), [0.0] * 4, []
    for _ in range(60):
        sent_s = min(free_s)
        first_s = sent_s + draw.uniform(0.3, 0.6)
        ended_s = first_s + draw.uniform(0.03, 0.06)
        free_s[free_s.index(sent_s)] = ended_s + 0.001
        found.append(Exchange(sent_s, first_s, ended_s, 6000, 6, True))
    run = Observed(found)
    assert not limit_of([run.held(fit([run]).likely)])


def test_requests_that_ran_together_say_nothing_of_a_shared_speed() -> None:
    """All begin at once and end in one burst, one after the other as a loop reads them: the load never varied."""
    found = [Exchange(0.005, 0.55, 2.048 + 0.0009 * number, 26, 75, True) for number in range(60)]
    assert fit([Observed(found)]).likely.is_constant


@pytest.mark.parametrize("seed", range(8))
def test_answers_under_way_while_the_client_stood_still_are_no_evidence(seed: int) -> None:
    """A constant server whose client reads nothing for three seconds is constant, and needs what it needed before."""
    draw, free_s, found, truth = Random(seed), [0.0] * 4, [], []
    for _ in range(40):
        sent_s, tokens = min(free_s), draw.randrange(20, 160)
        begun_s = sent_s + 0.1 * draw.lognormvariate(0.0, 0.1)
        first_s, ended_s = (7.0 if 4.0 < at < 7.0 else at for at in (begun_s, begun_s + tokens / 100))
        free_s[free_s.index(sent_s)] = ended_s
        found.append(Exchange(sent_s, first_s, ended_s, 100, tokens))
        truth.append(Needs(begun_s - sent_s, tokens / 100))
    run = Observed(found)
    assert 4 == len(run.caught)
    assert fit([run]).likely.is_constant
    needs = run.needs(CONSTANT)
    assert sum(map(sum, truth)) == pytest.approx(sum(map(sum, needs)), rel=0.03)
    assert all(sum(truth[one]) == pytest.approx(sum(needs[one]), rel=0.1) for one in run.caught)


def test_silences_are_no_stall_where_requests_were_sent_together() -> None:
    """Rows that begin together end together, wave after wave: the client was there all the time."""
    found = [Exchange(wave, wave + 0.1, wave + 0.99 + 0.001 * n, 20, 80) for wave in range(6) for n in range(8)]
    assert not Observed(found).caught


def test_two_late_first_tokens_are_outliers_and_no_shared_speed() -> None:
    """A network that faltered for a quarter of a second in a run of 24 hardly ever makes a constant server shared."""
    wrong = 0
    for seed in range(24):
        draw, free_s, found = Random(seed), [0.0] * 4, []
        for number in range(24):
            sent_s, tokens, late_s = min(free_s), draw.randrange(20, 160), 0.25 if number in {20, 21} else 0.0
            due_s = sent_s + 0.1 * draw.lognormvariate(0.0, 0.1)
            first_s = due_s + late_s
            ended_s = max(first_s, due_s + tokens / 200 * draw.lognormvariate(0.0, 0.1))
            free_s[free_s.index(sent_s)] = ended_s
            found.append(Exchange(sent_s, first_s, ended_s, 100, tokens))
        wrong += not fit([Observed(found)]).likely.is_constant
    assert wrong <= 1
