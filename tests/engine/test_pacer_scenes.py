"""The pacer where servers, proxies and clocks do what nobody tuned it for: no stop, no storm, no collapse."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from random import Random

import pytest

from agent_magic.engine import Pacer
from agent_magic.engine.admission.pool import PATIENCE_S
from agent_magic.engine.pacing.window import FIRST_WINDOW
from agent_magic.providers import read_headers
from agent_magic.simulator.limits import Bucket
from benchmarks.rate_world import Paced, Server, World, draw

PER_MINUTE = 3_000
OUTPUT = 6e5


def play(server, count, change=lambda world, client: None, client=Paced, **jobs):
    """Send so many through a pacer that knows nothing, to the end."""
    world = World(server, 1)
    sender = client(world, draw(count, Random(1), **jobs), Pacer(seed=1), attempts=10**9)
    change(world, sender)
    world.run(10_000)
    assert 0 == sender.result.left
    return sender.result


@pytest.mark.parametrize(("later", "until_s"), [(12_000, 28), (750, 60)])
def test_a_limit_that_changes_in_mid_run_is_followed(later, until_s):
    """To a quarter and to the fourfold, at second 20: from then on the new one is used up and kept."""

    def change(world, _):
        def set_limit():
            bucket = world.pool.requests
            bucket.take(0, world.now)
            bucket.per_minute, bucket.capacity = later, later / 60

        world.later(20, set_limit)

    result = play(Server(PER_MINUTE), 3_000 if later > PER_MINUTE else 1_600, change)
    assert result.share("requests", PER_MINUTE, 5, 20) > 0.98
    assert 0.97 < result.share("requests", later, 24, until_s) < 1.02
    assert result.refused_share() < 0.01


class Misled(Paced):
    """Is told to wait for another time than would help, or for none."""

    factor = None

    def refused(self, job, headers):
        """Take in a 429 whose `retry-after` was lost or changed."""
        said = {name: text for name, text in headers.items() if name != "retry-after"}
        if self.factor is not None:
            said["retry-after"] = str(self.factor * float(headers["retry-after"]))
        self.result.refused.append(self.world.now)
        wait_s = float(said["retry-after"]) if "retry-after" in said else None
        self.pacer.refused(self._tickets.pop(job.number), wait_s, None, self.world.now, read_headers(said))
        self._jobs.appendleft(job)
        self.pump()


@pytest.mark.parametrize(("factor", "least"), [(None, 0.95), (0.0, 0.95), (0.01, 0.95), (10.0, 0.25)])
def test_a_proxy_without_headers_may_say_nothing_sensible_of_when_to_come_again(factor, least):
    """Absent, zero or too small: no storm. Ten times too long is obeyed, and then the rate is found at once."""
    misled = type("Client", (Misled,), {"factor": factor})
    result = play(Server(PER_MINUTE, headers="none"), 1_000, client=misled)
    assert result.share("requests", PER_MINUTE) > least
    assert result.refused_share() < 0.03


@pytest.mark.parametrize("skew_s", [-30, 30, 600])
@pytest.mark.parametrize(("server", "kind", "per_minute", "jobs"), [
    (Server(PER_MINUTE), "requests", PER_MINUTE, {}),
    (Server(itpm=2.4e6), "input", 2.4e6, {"inputs": (1000, 0.5)}),
    (Server(otpm=OUTPUT), "output", OUTPUT, {}),
])  # fmt: skip
def test_a_reset_by_a_clock_that_is_off_changes_little(server, kind, per_minute, jobs, skew_s):
    """The capacity that it suggests is nonsense, and `remaining` says better."""

    def change(world, _):
        told = world.headers

        def off():
            found = told()
            for name in found:
                if name.endswith("reset"):
                    then = datetime.fromisoformat(found[name]) + timedelta(seconds=skew_s)
                    found[name] = then.isoformat().replace("+00:00", "Z")
            return found

        world.headers = off

    result = play(server, 800, change, **jobs)
    assert result.share(kind, per_minute) > 0.97
    assert result.refused_share() < 0.01


class Window(Bucket):
    """Counts in fixed windows of the clock instead of refilling."""

    def __init__(self, per_minute, seconds):
        super().__init__(per_minute, per_minute * seconds / 60)
        self.seconds, self.number = seconds, -1

    def level(self, now_s):
        """Return what is left of this window."""
        if int(now_s / self.seconds) != self.number:
            self.number, self._level = int(now_s / self.seconds), self.capacity
        return self._level

    def take(self, amount, now_s):
        """Take an amount out of it."""
        self._level = self.level(now_s) - amount

    def wait_s(self, amount, now_s):
        """Return the seconds to the next window, if this one has too little left."""
        return 0.0 if self.level(now_s) >= amount else self.full_in_s(now_s)

    def full_in_s(self, now_s):
        """Return the seconds to the next window."""
        return (int(now_s / self.seconds) + 1) * self.seconds - now_s


@pytest.mark.parametrize(("headers", "seconds", "least"), [
    ("response", 1, 0.75), ("none", 1, 0.7), ("response", 10, 0.9), ("none", 10, 0.95), ("response", 60, 0.95),
])  # fmt: skip
def test_a_server_that_counts_in_fixed_windows_is_no_trouble(headers, seconds, least):
    """It announces the same limit, but everything comes back at once: most of it is used, next to nothing refused."""

    def change(world, _):
        world.pool.requests = Window(PER_MINUTE, seconds)

    result = play(Server(PER_MINUTE, headers=headers), 6_000, change)
    assert result.share("requests", PER_MINUTE) > least
    assert result.refused_share() < 0.01


@pytest.mark.parametrize(("server", "least_s"), [(Server(PER_MINUTE), 4), (Server(otpm=OUTPUT), 7)])
def test_after_a_pause_it_goes_on_as_fast_as_before(server, least_s):
    """Five times 200 requests, one every 30 seconds: none is refused, and each burst is as quick as its limit."""

    def change(world, client):
        waiting = list(client._jobs)
        client._jobs.clear()
        for number in range(5):
            part = waiting[number * 200 : (number + 1) * 200]
            world.later(number * 30.0, lambda part=part: (client._jobs.extend(part), client.pump()))

    result = play(server, 1_000, change)
    assert 0 == len(result.refused)
    for number in range(5):
        burst = [at - number * 30 for at, job in result.admitted if job.number // 200 == number]
        assert max(burst) < least_s


class Stormy(Paced):
    """Meets an overloaded service from second 5 to 15: every answer of that time is a 529."""

    def done(self, job):
        """Take in an answer, or that there is none."""
        if not 5 < self.world.now < 15:
            return super().done(job)
        self.pacer.finished(self._tickets.pop(job.number), None, None, self.world.now)
        self._jobs.append(job)
        return self.pump()


@pytest.mark.parametrize("server", [Server(PER_MINUTE), Server(otpm=OUTPUT), Server(PER_MINUTE, headers="none")])
def test_an_overloaded_service_leaves_no_trace(server):
    """After ten seconds of it the limit is used as before, and was kept all the time."""
    kind, per_minute = ("output", OUTPUT) if server.otpm == OUTPUT else ("requests", PER_MINUTE)
    result = play(server, 1_500, client=Stormy)
    assert 0.95 < result.share(kind, per_minute, 18, 28) < 1.05
    assert result.refused_share() < 0.01


def test_two_limits_that_bind_in_turn_are_both_kept_busy():
    """A hundred with much input, a hundred with much output, and again."""
    world = World(Server(itpm=2.4e6, otpm=OUTPUT), 1)
    random = Random(1)
    jobs = []
    for number in range(12):
        part = draw(100, random, inputs=(4_000, 0.3), outputs=(20, 0.3)) if number % 2 else draw(100, random)
        jobs += [replace(job, number=place) for place, job in enumerate(part, len(jobs))]
    client = Paced(world, jobs, Pacer(seed=1))
    world.run()
    needed_s = sum(job.input_tokens for job in jobs) / 40_000 + sum(job.output_tokens for job in jobs) / 10_000
    assert 0 == client.result.failed
    assert max(at for at, _ in client.result.admitted) < 1.05 * needed_s
    assert client.result.refused_share() < 0.01


class Hanging(Paced):
    """Never hears the end of every tenth answer."""

    def done(self, job):
        """Take in an answer, unless it hangs."""
        if job.number % 10:
            super().done(job)
        else:
            self.result.left -= 1


def test_answers_that_hang_do_not_hold_the_others():
    """What is expected of them stays under way for ever; the bucket is full all the same, and so the others go."""
    result = play(Server(otpm=OUTPUT), 1_500, client=Hanging)
    assert result.share("output", OUTPUT) > 0.75
    assert result.refused_share() < 0.05


def test_slow_answers_keep_an_output_limit_busy():
    """Answers of ten seconds and a bucket of one: the hardest corner, as nobody knows how far each of them has come."""
    for headers in ("response", "admission"):
        server = Server(otpm=OUTPUT, headers=headers, streamed=True)
        result = play(server, 1_500, outputs=(1000, 0.6), latency=(10, 0.5))
        assert result.share("output", OUTPUT) > 0.8
        assert result.refused_share() < 0.03


def test_a_hundred_at_once_without_any_limit_are_soon_all_under_way():
    """A proxy that tells nothing and refuses nothing: each reply makes room for more, not each answer."""
    result = play(Server(headers="none"), 100, latency=(5, 0.4))
    assert max(result.sent) < result.first_s + 6.5


@pytest.mark.parametrize("first_s", [0.4, 1.5, 5.0])
@pytest.mark.parametrize("per_minute", [50, 60])
def test_a_low_limit_refuses_none_that_waited_for_its_headers(per_minute, first_s):
    """A limit counted by the second, which the first reply tells; if that takes long, the first window learns it."""
    server = Server(per_minute, first_byte=0.5)
    result = play(server, 40, latency=(2 * first_s, 0))
    assert len(result.refused) <= (FIRST_WINDOW - 1 if first_s > PATIENCE_S else 0)
    assert max(result.sent) < 40 * 60 / per_minute + first_s + FIRST_WINDOW
