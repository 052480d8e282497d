"""Requests on workers, over connections in memory: no process, no Dask."""

from __future__ import annotations

import asyncio
import sys
from random import Random

import anthropic
import pytest

from agent_magic import Autoscale, Chat, Claude, Dask
from agent_magic.declare.values import sendable
from agent_magic.engine import Readings, failure_of
from agent_magic.errors import (
    AgentMagicError,
    DeclarationError,
    Late,
    NotConnected,
    Overloaded,
    RateLimited,
    Unreachable,
)
from agent_magic.providers import Fleet, Reading, Stream, serve, useful_workers
from agent_magic.providers.dask import fleet as fleets
from agent_magic.providers.dask.fleet import LOST_S, SILENT_S, Link, greet
from agent_magic.providers.dask.serving import (
    CALL_ERRORS,
    error_in,
    error_out,
    readings_in,
    readings_out,
    request_in,
    request_out,
    text_in,
    text_out,
)
from agent_magic.record import Answer
from tests.providers.memory import PIECES, Counting, Hub, asked, outcome, pair

WHOLE = "".join(PIECES)
NOTES = []
"""What workers say to the user."""
SENT = sendable(WHOLE)
"""As `Stream.text` has it: without lone surrogates."""
KINDS = ("call", "cancel", "replied", "opened", "began", "usage", "text", "answer", "error")


def a_fleet(hub):
    """Return the workers of a hub as a loop sees them."""
    return Fleet(hub, {}, dict)


async def link_to(provider, name="w"):
    """Return a link to a worker in memory, and the worker's task."""
    kernel, worker = pair()
    task = asyncio.ensure_future(serve(worker, lambda **_: provider))
    await greet(kernel, name, {}, {})
    return Link(name, kernel, lambda _: None, NOTES.append), kernel, task


async def until(condition):
    """Wait for something to be so."""
    while not condition():  # noqa: ASYNC110 - what is waited for tells nobody
        await asyncio.sleep(0.001)


class Ear:
    """Notes what it is told of a stream."""

    def __init__(self):
        self.heard = []

    def replied(self, stream):
        """Note it."""
        self.heard.append(("replied", stream.status_code, stream.readings, stream.simulated))

    def opened(self, stream):
        """Note it."""
        self.heard.append(("opened", stream.text))

    def first_token(self, stream):
        """Note it."""
        self.heard.append(("first", stream.text))


class TestOneRequest:
    async def made(self, provider, listener=None):
        """Return the stream and the answer of one request."""
        link, _, task = await link_to(provider)
        stream = Stream(listener)
        try:
            return stream, await link.send(asked(1), stream)
        finally:
            await link.close()
            await task

    def test_an_answer_arrives_as_the_provider_gave_it(self):
        """Text, usage, stop reason and the worker's name are those of the worker, half surrogate pairs too."""
        stream, answer = asyncio.run(self.made(Counting()))
        assert (WHOLE, "end_turn", 7, 5) == (
            answer.text,
            answer.stop_reason,
            answer.usage.input_tokens,
            answer.usage.output_tokens,
        )
        assert [WHOLE, "w", 200] == ["".join(stream.parts), stream.worker, stream.status_code]
        assert stream.answer == answer

    def test_a_stream_is_told_in_the_order_of_the_seam(self):
        """The reply, its beginning, the first token: as one by one as without a worker."""
        ear = Ear()
        asyncio.run(self.made(Counting(), ear))
        assert ["replied", "opened", "first"] == [one[0] for one in ear.heard]

    def test_notes_of_the_worker_s_provider_reach_the_kernel(self):
        """What it learned of the server by this request, before the answer."""

        class Learning(Counting):
            def take_notes(self):
                return ["The server tells no rate limits."]

        NOTES.clear()
        asyncio.run(self.made(Learning()))
        assert ["The server tells no rate limits."] == NOTES

    def test_limits_cross_as_readings(self):
        """What a response says of limits reaches the pacer, and whether it is simulated."""

        class Limited(Counting):
            async def send(self, request, stream):
                stream.replied(429, {"requests": Reading(50, 0)}, simulated=True)
                raise RateLimited("Wait.", retry_after_s=3.0, limit="requests")

        ear = Ear()
        with pytest.raises(RateLimited, match="Wait") as found:
            asyncio.run(self.made(Limited(), ear))
        assert (3.0, "requests", False) == (found.value.retry_after_s, found.value.limit, found.value.final)
        assert [("replied", 429, {"requests": Reading(50, 0)}, True)] == ear.heard

    def test_a_bug_of_the_provider_is_an_error_of_its_request(self):
        """An exception that is no failure of an attempt keeps its words, and nothing else ends."""

        class Broken(Counting):
            async def send(self, request, stream):
                raise ZeroDivisionError("by zero")

        with pytest.raises(AgentMagicError, match="ZeroDivisionError: by zero"):
            asyncio.run(self.made(Broken()))

    def test_a_bug_of_the_listener_is_raised_where_the_answer_is_awaited(self):
        """It does not end the other streams of the worker."""

        class Deaf(Ear):
            def opened(self, stream):
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            asyncio.run(self.made(Counting(), Deaf()))

    def test_a_cancelled_request_stops_at_the_worker(self):
        """Nothing goes on spending."""

        async def go():
            provider = Counting()
            provider.hold.clear()
            link, _, task = await link_to(provider)
            sending = asyncio.ensure_future(link.send(asked(1), Stream()))
            await until(lambda: provider.running)
            sending.cancel()
            await until(lambda: not provider.running)
            assert 0 == link.streams
            await link.close()
            await task

        asyncio.run(go())

    def test_an_answer_that_starts_again_starts_again_here(self):
        """The kernel shows what the worker would, and counts as much."""

        class Again(Counting):
            async def send(self, request, stream):
                await super().send(request, stream)
                stream.restart()
                return await super().send(request, stream)

        async def go():
            link, _, task = await link_to(Again())
            stream = Stream()
            await link.send(asked(1), stream)
            assert (SENT, len(SENT.encode())) == (stream.text, stream.unseen)
            await link.close()
            await task

        asyncio.run(go())

    def test_a_worker_ends_a_request_at_its_deadline(self):
        """Also where nobody tells it to."""

        async def go():
            provider = Counting()
            provider.hold.clear()
            link, _, task = await link_to(provider)
            with pytest.raises(Late, match="within 0") as found:
                await link.send(asked(1, timeout_s=0.05), Stream())
            assert SENT == found.value.partial
            await link.close()
            await task

        asyncio.run(go())


class TestGreeting:
    def greeted(self, make=lambda **_: Counting(), **hello):
        """Greet a worker, or say this to it and return its reply."""

        async def go():
            kernel, worker = pair()
            task = asyncio.ensure_future(serve(worker, make))
            if hello:
                await kernel.write({"settings": {}, "environ": {}, **hello})
                return await kernel.read()
            try:
                await greet(kernel, "w", {}, {})
            finally:
                kernel.abort()
                await task
            return None

        return asyncio.run(go())

    def test_a_worker_of_another_version_is_refused_in_plain_words(self):
        """Before anything is sent, on either side."""
        assert "speaks another version of agent_magic" == (self.greeted(wire=99) or {})["error"]

    def test_a_worker_without_a_key_says_what_to_do(self):
        """Its key is that of its own environment."""

        class Keyless(Counting):
            def open(self):
                raise NotConnected

        with pytest.raises(AgentMagicError, match="Worker 'w' has no API key"):
            self.greeted(lambda **_: Keyless())


class TestLosing:
    def test_requests_of_a_lost_worker_are_cut_connections(self):
        """What had reached it may have been paid for; the partial text is kept. Nothing is sent again here."""

        async def go():
            provider = Counting()
            provider.hold.clear()
            link, kernel, task = await link_to(provider)
            stream = Stream()
            sending = asyncio.ensure_future(link.send(asked(1), stream))
            await until(lambda: "".join(stream.parts) == WHOLE)
            kernel.abort()
            with pytest.raises(Unreachable, match="Worker 'w' was lost") as found:
                await sending
            assert (True, stream.text) == (found.value.sent, found.value.partial)
            await task
            assert not provider.running
            assert {"request 1": 1} == provider.asked
            await link.close()

        asyncio.run(go())

    def test_what_was_never_written_was_not_sent(self):
        """It cost nothing, and its error says so."""

        async def go():
            link, kernel, task = await link_to(Counting())
            sending = asyncio.ensure_future(link.send(asked(1), Stream()))
            await asyncio.sleep(0)
            kernel.abort()
            link.lose("was lost")
            with pytest.raises(Unreachable) as found:
                await sending
            assert found.value.sent is False
            await task
            await link.close()

        asyncio.run(go())

    def test_silence_counts_only_while_the_kernel_is_awake(self):
        """After 3 s a worker gets nothing new, after 10 s it is lost; a sign of life clears it."""

        async def go():
            provider = Counting()
            link, kernel, task = await link_to(provider)
            link.tick(SILENT_S)
            assert not link.is_free
            await link.send(asked(1), Stream())
            assert link.is_free
            link.tick(LOST_S)
            assert link.lost
            assert kernel.closed
            await task
            await link.close()

        asyncio.run(go())

    def test_a_silent_worker_gives_signs_of_life(self, monkeypatch):
        """A worker with nothing to say is heard all the same."""
        monkeypatch.setattr("agent_magic.providers.dask.serving.BEAT_S", 0.01)

        async def go():
            link, _, task = await link_to(Counting())
            link.silent_s = 1.0
            await until(lambda: link.silent_s == 0.0)
            await link.close()
            await task

        asyncio.run(go())


class TestFleet:
    def test_the_worker_with_the_fewest_streams_is_next(self):
        """Requests are shared out evenly."""

        async def go():
            provider = Counting()
            provider.hold.clear()
            hub = Hub(provider, 3)
            fleet = a_fleet(hub)
            await fleet.start()
            sending = [asyncio.ensure_future(fleet.send(asked(one), Stream())) for one in range(9)]
            await until(lambda: len(provider.running) == 9)
            assert [3, 3, 3] == [one.streams for one in fleet.links.values()]
            provider.hold.set()
            assert {WHOLE} == {one.text for one in await asyncio.gather(*sending)}
            await fleet.close()
            await asyncio.gather(*hub.served)
            assert sorted(hub.workers) == sorted(hub.released)

        asyncio.run(go())

    def test_what_workers_did_stays_known_until_the_next_run(self):
        """Answers and failures by name, also of a worker that was lost and came again."""

        async def go():
            hub, tally = Hub(Counting(), 2), {"gone": (1, 2)}
            fleet = a_fleet(hub)
            fleet._tally = tally
            await fleet.start()
            assert not tally
            for number in range(4):
                await fleet.send(asked(number), Stream())
            first = next(iter(fleet.links.values()))
            first.answered, first.failed = 3, 1
            first.lose("was lost")
            assert {first.name: (3, 1)} == tally
            await fleet.close()
            assert 2 == len(tally)
            assert (3, 1) == tally[first.name]

        asyncio.run(go())

    def test_a_worker_that_comes_is_used(self, monkeypatch):
        """A request waits for one where there is none: a killed worker is started again meanwhile."""
        monkeypatch.setattr(fleets, "TICK_S", 0.01)

        async def go():
            hub = Hub(Counting(), 1)
            fleet = a_fleet(hub)
            await fleet.start()
            hub.workers.clear()
            hub.ends[0][1].abort()
            await until(lambda: not fleet.links)
            sending = asyncio.ensure_future(fleet.send(asked(1), Stream()))
            await asyncio.sleep(0)
            hub.workers["mem://new"] = "new"
            assert WHOLE == (await sending).text
            await fleet.close()

        asyncio.run(go())

    def test_a_worker_that_is_heard_again_gets_what_has_waited_for_it(self, monkeypatch):
        """Nothing else happens that could wake whoever waits."""
        monkeypatch.setattr(fleets, "TICK_S", 0.01)

        async def go():
            fleet = a_fleet(Hub(Counting(), 1))
            await fleet.start()
            (link,) = fleet.links.values()
            link.silent_s = SILENT_S
            sending = asyncio.ensure_future(fleet.send(asked(1), Stream()))
            await until(lambda: fleet.waiting)
            link.silent_s = 0.0
            async with asyncio.timeout(fleets.PATIENCE_S / 2):
                assert WHOLE == (await sending).text
            await fleet.close()

        asyncio.run(go())

    def test_where_no_worker_comes_nothing_was_sent(self, monkeypatch):
        """The error says so, and what to look at."""
        monkeypatch.setattr(fleets, "PATIENCE_S", 0.05)

        async def go():
            hub = Hub(Counting(), 1)
            fleet = a_fleet(hub)
            await fleet.start()
            hub.workers.clear()
            hub.ends[0][1].abort()
            await until(lambda: not fleet.links)
            with pytest.raises(Unreachable, match="%agents workers") as found:
                await fleet.send(asked(1), Stream())
            assert found.value.sent is False
            assert found.value.final
            await fleet.close()

        asyncio.run(go())

    def test_a_scheduler_that_is_gone_with_its_workers_ends_the_run(self, monkeypatch):
        """Not one request after the other, each with its patience: nobody else fares better, as without a key."""
        monkeypatch.setattr(fleets, "UNANSWERED_S", 0.05)
        monkeypatch.setattr(fleets, "TICK_S", 0.01)

        async def go():
            hub = Hub(Counting(), 1)
            fleet = a_fleet(hub)
            await fleet.start()

            async def gone():
                raise OSError

            hub.names = gone
            hub.ends[0][1].abort()
            await until(lambda: not fleet.links)
            with pytest.raises(Unreachable, match="%agents connect dask") as found:
                await fleet.send(asked(1), Stream())
            assert failure_of(found.value, 3).stops_run
            assert not failure_of(found.value, 3).reached
            await fleet.close()

        asyncio.run(go())

    def test_no_worker_at_all_is_an_error_before_the_run(self):
        """Nothing was sent."""
        with pytest.raises(AgentMagicError, match="There are no Dask workers"):
            asyncio.run(a_fleet(Hub(Counting(), 0)).start())


async def cut_scene(seed):
    """Let requests run on workers whose connections are cut somewhere; return what broke a rule."""
    random = Random(seed)
    numbers = range(random.randint(1, 8))
    provider = Counting(fail={f"request {one}" for one in numbers if random.random() < 0.2})

    def cut(kernel, worker):
        if random.random() < 0.8:
            random.choice((kernel, worker, worker)).cut_after = random.randint(1, 24)

    hub = Hub(provider, random.randint(1, 3), cut)
    fleet = a_fleet(hub)
    await fleet.start()
    streams = [Stream() for _ in numbers]
    sending = [asyncio.ensure_future(outcome(fleet, one, streams[one])) for one in numbers]
    if random.random() < 0.3:
        await asyncio.sleep(random.random() * 0.02)
        random.choice(sending).cancel()
    found = await asyncio.gather(*sending, return_exceptions=True)
    await fleet.close()
    await asyncio.gather(*hub.served)
    broken = [f"{one} came {n} times" for one, n in provider.asked.items() if n > 1]
    broken += [f"{one} goes on" for one in provider.running]
    for number, (stream, one) in enumerate(zip(streams, found, strict=True)):
        came, text = provider.asked[f"request {number}"], "".join(stream.parts)
        if isinstance(one, Answer) and (one.text, text) != (WHOLE, WHOLE):
            broken.append(f"{number}: {one.text!r} and {text!r} are not the answer")
        if isinstance(one, Unreachable) and not one.sent and came:
            broken.append(f"{number} was sent, and its error says it was not")
        if not isinstance(one, Answer | Unreachable | Overloaded | asyncio.CancelledError):
            broken.append(f"{number}: {one!r}")
        if not WHOLE.startswith(text):
            broken.append(f"{number}: {text!r} is not part of the answer")
    return broken, {kind for ends in hub.ends for end in ends if len(end.log) == end.cut_after for kind in end.log[-1:]}


def test_a_connection_cut_after_any_message_repeats_nothing(monkeypatch):
    """500 seeds: each request comes at most once, each has an outcome, none goes on, each partial text is a part."""
    monkeypatch.setattr(fleets, "TICK_S", 0.01)

    async def all_scenes():
        broken, kinds = {}, set()
        for start in range(0, 500, 100):
            scenes = [cut_scene(seed) for seed in range(start, start + 100)]
            for seed, (found, cut) in enumerate(await asyncio.gather(*scenes), start):
                kinds |= cut
                broken |= {seed: found} if found else {}
        return broken, kinds

    broken, kinds = asyncio.run(all_scenes())
    assert {} == broken
    assert set(KINDS) == kinds


class TestWire:
    def test_every_error_of_an_attempt_crosses_whole(self):
        """Its class, its words and what it holds: the engine decides by them."""
        late = Late(3.0, partial="half \ud83d")
        there = error_in(*error_out(late))
        assert (type(late), str(late), vars(late)) == (type(there), str(there), vars(there))
        assert {"RateLimited", "Overloaded", "Rejected", "Refused", "Truncated", "Unreachable"} <= set(CALL_ERRORS)

    def test_a_request_crosses_whole(self):
        """Lone surrogates, the conversation and the options too."""
        one = asked(1, system="\ud83d", effort="low", schema='{"type":"object"}', timeout_s=3.5)
        assert one == request_in(*request_out(one))

    def test_readings_and_texts_cross_whole(self):
        """What is not said stays unsaid."""
        said: Readings = {"requests": Reading(50.0, None), "input": Reading(1e6, 3000.0)}
        assert said == readings_in(readings_out(said))
        assert "\ud83d" == text_in(text_out("\ud83d"))


class TestDask:
    def test_without_dask_it_says_what_to_install(self, monkeypatch):
        """The wheel alone has none of it."""
        monkeypatch.setitem(sys.modules, "distributed", None)
        with pytest.raises(AgentMagicError, match=r'pip install "agent-magic\[dask\]"'):
            Dask(client=Claude(api_key="k")).start()

    @pytest.mark.parametrize("address", ["tcp://10.0.0.5:8786", "10.0.0.5:8786", "ucx://h:1", "tcp://localhost.evil:1"])
    def test_an_open_way_is_refused(self, address):
        """Anyone who reaches such a port can read prompts and give orders."""
        with pytest.raises(DeclarationError, match="neither encrypted nor on this machine"):
            Dask(address, client=Claude(api_key="k"))

    @pytest.mark.parametrize(
        "address", ["tls://10.0.0.5:8786", "tcp://127.0.0.1:8786", "localhost:8786", "tcp://[::1]:1"]
    )
    def test_encryption_and_this_machine_are_accepted(self, address):
        """Nothing starts yet."""
        assert address == Dask(address, client=Claude(api_key="k")).cluster.address

    def test_it_passes_for_whoever_answers(self):
        """Answers in the ledger, prices and limits are the same with and without workers."""
        claude = Claude(base_url="http://127.0.0.1:1", api_key="k")
        dask = Dask(client=claude)
        for name in ("endpoint", "account", "price_list", "credentials", "models"):
            assert getattr(claude, name) == getattr(dask, name)
        assert claude.limit_class("claude-haiku-5-5") == dask.limit_class("claude-haiku-5-5")
        assert "k'" not in repr(dask)

    def test_a_note_of_many_workers_is_shown_once(self):
        """Each has learned it by itself, in this run and in a later one."""
        dask = Dask(client=Chat("http://127.0.0.1:1"))
        for expected in (["Learned."], []):
            for _ in range(2):
                dask._take_note("Learned.")
            assert expected == [*dask.take_notes()]

    def test_a_client_of_the_sdk_cannot_be_made_elsewhere(self):
        """It says what to give."""
        sdk = anthropic.AsyncAnthropic(api_key="k")
        with pytest.raises(DeclarationError, match="cannot be made in another process"):
            Dask(client=Claude(client=sdk))

    def test_somebody_elses_cluster_is_not_scaled(self):
        """Neither by hand nor by itself."""
        with pytest.raises(DeclarationError, match="autoscale= is for workers started here"):
            Dask("tls://h:1", client=Claude(api_key="k"), autoscale=Autoscale())
        with pytest.raises(AgentMagicError, match="started elsewhere"):
            Dask("tls://h:1", client=Claude(api_key="k")).scale(2)

    def test_workers_help_above_two_hundred_streams(self):
        """Below, they only add ways to fail."""
        assert [0, 0, 2, 5] == [useful_workers(one) for one in (1, 200, 201, 1000)]
