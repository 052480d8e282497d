"""When workers are started and let go: the decision, and what a fleet makes of it."""

from __future__ import annotations

import asyncio
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magic import Autoscale
from agent_magic.errors import DeclarationError, Overloaded
from agent_magic.providers import Fleet, Stream
from agent_magic.providers.dask import fleet as fleets
from tests.providers.memory import Counting, Hub, asked

COUNTS = st.integers(0, 3000)
AGENTS = st.integers(1, 300)


@st.composite
def options(draw):
    """Draw options that fit each other."""
    least, step = draw(st.integers(1, 50)), st.integers(1, 40)
    down = draw(st.integers(1, 60))
    return Autoscale(
        least,
        least + draw(st.integers(0, 200)),
        scale_up_percent=down + draw(st.integers(1, 40)),
        scale_down_percent=down,
        scale_up_step=draw(step),
        scale_down_step=draw(step),
        pool_size=draw(st.integers(1, 60)),
        queue_size=draw(st.integers(1, 1000)),
    )


@given(options(), AGENTS, COUNTS, COUNTS)
def test_there_is_always_room_for_the_least_and_never_for_more_than_the_most(scale, agents, streams, waiting):
    """Whatever there was before."""
    assert scale.min_agents <= scale.decide(agents, streams, waiting) <= scale.max_agents


@given(options(), AGENTS, COUNTS, COUNTS, COUNTS)
def test_more_load_never_means_less_room(scale, agents, streams, waiting, more):
    """The decision grows with streams and with what waits."""
    assert scale.decide(agents, streams, waiting) <= scale.decide(agents, streams + more, waiting)
    assert scale.decide(agents, streams, waiting) <= scale.decide(agents, streams, waiting + more)


@given(options(), st.data())
def test_between_the_thresholds_nothing_changes(scale, data):
    """A share in use between both percentages is what one wants."""
    agents = data.draw(st.integers(scale.min_agents, scale.max_agents))
    low = math.ceil(scale.scale_down_percent * agents / 100)
    high = math.floor(scale.scale_up_percent * agents / 100)
    if low <= high:
        assert agents == scale.decide(agents, data.draw(st.integers(low, high)))


@given(options())
def test_without_work_it_comes_down_to_the_least(scale):
    """Step by step, and a flood brings it to the most."""
    agents = scale.max_agents
    for _ in range(scale.max_agents):
        agents = scale.decide(agents, 0)
    assert agents == scale.min_agents
    for _ in range(scale.max_agents):
        agents = scale.decide(agents, scale.max_agents * 100)
    assert agents == scale.max_agents


@given(options(), AGENTS, st.integers(0, 400))
def test_a_constant_load_comes_to_rest_with_room_for_all_of_it(scale, agents, load):
    """After some decisions nothing changes any more, whatever there was before."""
    agents = scale.within(agents)
    for _ in range(2 * scale.max_agents):
        agents = decided(scale, agents, load)
    assert agents == decided(scale, agents, load)
    assert agents == scale.max_agents or load <= scale.workers(agents) * scale.pool_size


def decided(scale, agents, load):
    """Decide with so many requests: what exceeds the room of the workers waits."""
    streams = min(load, scale.workers(agents) * scale.pool_size)
    return scale.decide(agents, streams, load - streams)


def test_what_is_let_go_would_not_be_taken_again():
    """A step down ends where 80 % of the rest are in use."""
    scale = Autoscale(1, 100, scale_down_step=40, scale_down_percent=30)
    assert (20, 20) == (scale.decide(54, 16), scale.decide(20, 16))


@given(options(), AGENTS)
def test_the_workers_have_room_for_all_and_no_worker_is_idle_by_plan(scale, agents):
    """One worker fewer would not do."""
    workers = scale.workers(agents)
    assert (workers - 1) * scale.pool_size < agents <= workers * scale.pool_size


def test_the_options_of_the_sources_are_the_defaults():
    """From 10 to 100 by 10 above 80 %, and back by 5 below 20 %; 25 to a worker; a full queue takes all."""
    scale = Autoscale()
    assert (20, 10, 15, 20) == (scale.decide(10, 9), scale.decide(10, 8), scale.decide(20, 3), scale.decide(20, 4))
    assert (1, 1, 2, 4) == (scale.workers(10), scale.workers(25), scale.workers(26), scale.workers(100))
    assert (100, 20) == (scale.decide(10, 10, 1001), scale.decide(10, 10, 1000))
    assert (100, 4, 30.0) == (scale.policy.concurrency, scale.policy.max_attempts, scale.policy.timeout_s)


@pytest.mark.parametrize(
    "wrong", [{"min_agents": 0}, {"max_agents": 5}, {"scale_up_percent": 20.0}, {"pool_size": "many"}], ids=str
)
def test_options_that_contradict_each_other_are_refused(wrong):
    """The message names the option."""
    with pytest.raises(DeclarationError, match=next(iter(wrong))):
        Autoscale(**wrong)


class TestFleet:
    async def until(self, condition):
        """Wait for something to be so."""
        while not condition():  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0.001)

    def test_a_worker_that_is_too_many_finishes_its_streams_first(self, monkeypatch):
        """Scaling down loses nothing and repeats nothing."""
        monkeypatch.setattr(fleets, "TICK_S", 0.01)
        monkeypatch.setattr(fleets, "LOOK_S", 0.05)

        async def go():
            provider = Counting()
            provider.hold.clear()
            hub = Hub(provider, 3)
            fleet = Fleet(hub, {}, dict)
            await fleet.start()
            await self.until(lambda: len(fleet.links) == 3)
            sending = [asyncio.ensure_future(fleet.send(asked(one), Stream())) for one in range(6)]
            await self.until(lambda: len(provider.running) == 6)
            fleet.scale(1)
            await asyncio.sleep(0.05)
            assert 3 == len(hub.workers)
            provider.hold.set()
            await asyncio.gather(*sending)
            await self.until(lambda: len(hub.workers) == 1)
            assert {1} == set(provider.asked.values())
            fleet.scale(2)
            await self.until(lambda: len(fleet.links) == 2)
            await fleet.close()

        asyncio.run(go())

    @pytest.mark.parametrize("wanted", [1, 3])
    def test_a_size_that_was_asked_for_as_the_run_ends_is_kept(self, wanted):
        """Whoever looks next is told of it, before the next look at the workers too."""

        async def go():
            hub = Hub(Counting(), 2)
            fleet = Fleet(hub, {}, dict)
            await fleet.start()
            await self.until(lambda: len(fleet.links) == 2)
            fleet.scale(wanted)
            await fleet.close()
            assert wanted == len(hub.workers)

        asyncio.run(go())

    def test_a_worker_that_is_let_go_is_not_started_again(self, monkeypatch):
        """Nor are others in its place: one that was idle is gone before the missing ones are counted."""
        monkeypatch.setattr(fleets, "TICK_S", 0.01)
        monkeypatch.setattr(fleets, "LOOK_S", 0.02)

        async def go():
            hub = Hub(Counting(), 3)
            fleet = Fleet(hub, {}, dict)
            await fleet.start()
            await self.until(lambda: len(fleet.links) == 3)
            connected = len(hub.ends)
            fleet.scale(1)
            await self.until(lambda: len(hub.workers) == 1)
            for _ in range(3):  # it looks at them again
                hub.looks.clear()
                await hub.looks.wait()
            assert (1, connected) == (len(hub.workers), len(hub.ends))
            await fleet.close()

        asyncio.run(go())

    def test_it_begins_with_the_workers_there_are(self, monkeypatch):
        """None is let go by the first decision that the next one would start again; more than the most are."""
        monkeypatch.setattr(fleets, "TICK_S", 0.01)
        monkeypatch.setattr(fleets, "LOOK_S", 0.02)

        async def go(most):
            hub = Hub(Counting(), 3)
            fleet = Fleet(hub, {}, dict, Autoscale(1, most, pool_size=2))
            await fleet.start()
            await self.until(lambda: len(fleet.links) == 3)
            hub.looks.clear()
            await hub.looks.wait()  # behind the first decision
            kept = sum(not one.draining for one in fleet.links.values())
            await fleet.close()
            return kept

        assert 3 == asyncio.run(go(100))
        assert 1 == asyncio.run(go(2))

    @pytest.mark.parametrize(("wanted", "kept"), [(3, 3), (1, 1)])
    def test_decisions_go_on_from_what_the_user_asked_for(self, monkeypatch, wanted, kept):
        """The next one does not take it back where the load fits."""
        monkeypatch.setattr(fleets, "TICK_S", 0.01)
        monkeypatch.setattr(fleets, "LOOK_S", 0.02)

        async def go():
            provider = Counting()
            provider.hold.clear()
            hub = Hub(provider, 2)
            scale = Autoscale(1, 20, scale_down_percent=10, pool_size=2, interval_s=0.02)
            fleet = Fleet(hub, {}, dict, scale)
            await fleet.start()
            sending = asyncio.ensure_future(fleet.send(asked(1), Stream()))
            await self.until(lambda: len(provider.running) == 1)
            fleet.scale(wanted)
            await self.until(lambda: len(fleet.links) == kept)
            for _ in range(3):
                hub.looks.clear()
                await hub.looks.wait()
            assert kept == len(hub.workers)
            provider.hold.set()
            await sending
            await fleet.close()

        asyncio.run(go())

    def test_a_drained_worker_gets_nothing_new(self, monkeypatch):
        """The others do."""
        monkeypatch.setattr(fleets, "TICK_S", 0.01)
        monkeypatch.setattr(fleets, "LOOK_S", 0.05)

        async def go():
            hub = Hub(Counting(), 2)
            fleet = Fleet(hub, {}, dict)
            await fleet.start()
            await self.until(lambda: len(fleet.links) == 2)
            fleet.drain({"worker-0"})
            streams = [Stream() for _ in range(6)]
            await asyncio.gather(*(fleet.send(asked(one), stream) for one, stream in enumerate(streams)))
            assert {"worker-1"} == {one.worker for one in streams}
            await fleet.close()

        asyncio.run(go())

    def test_it_grows_with_what_waits_and_a_full_queue_says_so(self, monkeypatch):
        """A worker takes `pool_size` streams; what exceeds the queue is told to come back."""
        monkeypatch.setattr(fleets, "TICK_S", 0.01)
        monkeypatch.setattr(fleets, "LOOK_S", 0.05)

        async def go():
            provider = Counting()
            provider.hold.clear()
            hub = Hub(provider, 1)
            scale = Autoscale(2, 6, scale_up_step=2, pool_size=2, queue_size=4, interval_s=0.02)
            fleet = Fleet(hub, {}, dict, scale)
            await fleet.start()
            sending = [asyncio.ensure_future(fleet.send(asked(one), Stream())) for one in range(6)]
            await asyncio.sleep(0)
            assert 4 == fleet.waiting
            with pytest.raises(Overloaded, match="4 requests wait"):
                await fleet.send(asked(6), Stream())
            await self.until(lambda: len(provider.running) == 6)
            assert 3 == len(fleet.links)
            provider.hold.set()
            await asyncio.gather(*sending)
            await self.until(lambda: len(fleet.links) == 1)
            await fleet.close()

        asyncio.run(go())
