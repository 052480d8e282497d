"""Kernels that use one key divide its rate limits: the decision alone, and pacers that keep to it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magic.engine.pacing.limits import Limits
from agent_magic.engine.pacing.pacer import Hold, Pacer
from agent_magic.engine.pacing.share import BEAT_S, IDLE, LEAST, TURN_S, Claim, Demand, Share, claims, row_of, shares_of
from benchmarks.rate_kernels import Kernel, of_scene, together
from benchmarks.rate_world import Server

CLASS = "claude-sonnet-5"
HELD = Demand(0.5, held=True)


class Table:
    """Rows that kernels write, and what each of them wants."""

    def __init__(self, **demands):
        self.demands, self.told, self.rows, self.now = demands, {}, {}, 0.0

    def look(self, *names):
        """Let these look, one after the other, all of them by default."""
        for name in names or self.demands:
            others = {other: row for other, row in self.rows.items() if other != name}
            wanted: Any = {CLASS: {"requests": self.demands[name]}}
            self.told[name] = claims(wanted, self.told.get(name, {}), name, others, self.now)
            self.rows[name] = row_of(self.told[name])
        self.now += BEAT_S
        return self.parts()

    def parts(self):
        """Return the part that each has."""
        return {name: round(each[CLASS]["requests"].part, 3) for name, each in self.told.items() if name in self.rows}

    def settle(self):
        """Let all look until what they want has grown."""
        for _ in range(12):
            found = self.look()
        return found


def test_one_alone_has_all():
    """Held or not, from its first look."""
    assert {"a": 1.0} == Table(a=HELD).look()
    assert {"a": 1.0} == Table(a=Demand()).look()


@pytest.mark.parametrize("count", [2, 3, 4, 10])
def test_equal_ones_get_equal_parts_of_all_of_it(count):
    """However many they are, and the parts add to one."""
    parts = Table(**{f"k{one}": HELD for one in range(count)}).settle()
    assert dict.fromkeys(parts, round(1 / count, 3)) == parts


def test_what_one_leaves_the_others_have():
    """One that uses a tenth may take a little more; the rest is divided evenly, and no headroom is kept free."""
    parts = Table(a=Demand(0.1), b=HELD, c=HELD).settle()
    assert {"a": 0.1, "b": 0.45, "c": 0.45} == parts


def test_nobody_takes_what_another_still_has():
    """One that joins beside one that is held waits for its next look, and then has half."""
    table = Table(a=HELD)
    table.settle()
    table.demands["b"] = HELD
    assert {"a": 1.0, "b": LEAST} == table.look("b")
    for _ in range(8):
        parts = table.look("a", "b")
    assert {"a": 0.5, "b": 0.5} == parts


def test_who_joins_beside_an_idle_one_need_not_wait():
    """What one has beyond what it wants it gives away at once."""
    table = Table(a=Demand(0.2))
    table.look()
    table.demands["b"] = Demand(0.7)
    assert 0.75 <= table.look("b")["b"] <= 0.8


def test_one_that_is_gone_leaves_its_part():
    """At the next look."""
    table = Table(a=HELD, b=HELD)
    table.settle()
    del table.rows["b"]
    assert {"a": 1.0} == table.look("a")


def test_requests_too_large_for_a_part_are_sent_in_turns():
    """All of it for one while the other has next to nothing, by the clock they share, and nobody has it twice."""
    table = Table(a=Demand(0.5, held=True, largest=0.9), b=HELD)
    table.settle()
    had = [table.look() for _ in range(int(4 * TURN_S / BEAT_S))]
    assert {"a", "b"} == {name for parts in had for name, part in parts.items() if part > 0.9}
    assert all(sum(parts.values()) <= 1 + 2 * LEAST for parts in had)


def test_whoever_takes_its_turn_goes_on_from_what_the_other_left():
    """The other has used it up at some time on the common clock: what flowed in since may pass, no more and no less."""
    table = Table(a=Demand(0.5, held=True, largest=0.9, level_s=0.3), b=Demand(0.5, held=True, level_s=9.0))
    table.settle()
    taken = 0
    for _ in range(int(6 * TURN_S / BEAT_S)):
        before = table.parts()
        for name, other in (("a", "b"), ("b", "a")):
            left_s = table.told[other][CLASS]["requests"].empty_s
            table.look(name)
            table.now -= BEAT_S
            share = shares_of(table.told[name])[CLASS]["requests"]
            if before[name] <= IDLE < share.part:
                assert share.level_s == max(0.0, table.now - max(left_s, table.told[name][CLASS]["requests"].empty_s))
                taken += 1
            else:
                assert share.level_s is None
        table.now += BEAT_S
    assert taken >= 4


@given(st.data())
@settings(max_examples=200)
def test_together_they_never_take_more_than_there_is(data):
    """Whoever looks when, wants what and goes away: what is bound adds to no more than one, but for the least parts."""
    table = Table(a=Demand(), b=Demand(), c=Demand())
    for _ in range(data.draw(st.integers(1, 25))):
        name = data.draw(st.sampled_from("abc"))
        if data.draw(st.integers(0, 9)) == 0:
            table.rows.pop(name, None)
            continue
        part, largest = data.draw(st.floats(0, 1.5)), data.draw(st.sampled_from([0.0, 0.0, 0.6, 2.0]))
        table.demands[name] = Demand(part, data.draw(st.booleans()), largest)
        table.look(name)
        bound = sum(min(Claim(*row[CLASS]["requests"]).part, row[CLASS]["requests"][0]) for row in table.rows.values())
        assert bound <= 1 + 3 * LEAST


def test_a_row_that_cannot_be_read_is_left_out():
    """Of a later version, or damaged: nobody stops because of it."""
    for row in (None, 3, [], {"x": 3}, {CLASS: {"requests": "all"}}, {CLASS: {"requests": [1]}}):
        told = claims({CLASS: {"requests": HELD}}, {}, "me", {"other": row}, 0.0)
        assert {CLASS: {"requests": Share(1.0)}} == shares_of(told)


def test_a_pacer_keeps_to_its_share_of_what_is_announced_and_given():
    """It goes half as fast, and says of the limit itself what it is."""
    pacer = Pacer({CLASS: Limits(600)}, seed=1)
    pacer.set_shares({CLASS: {"requests": Share(0.5)}}, 0.0)
    sent = 0
    for tick in range(6_001):
        sent += not isinstance(pacer.ask(CLASS, 10, 10, tick / 100), Hold)
    assert 298 <= sent <= 306
    assert 600 == pacer.ceilings()[CLASS]["requests"].per_minute


@pytest.mark.parametrize(
    ("scene", "capacity_s", "least"),
    [
        ("requests, 2 kernels", 1, 0.97),
        ("requests, 4 kernels", 10, 0.97),
        ("input, 4 kernels", 1, 0.97),
        ("output, 2 kernels", 1, 0.97),
        ("output, 4 kernels", 10, 0.97),
        ("input, 250 beside 5,000 tokens", 10, 0.97),
        ("output, one needs only 20 %", 1, 0.97),
    ],
)
def test_kernels_together_use_the_limit_and_are_not_refused(scene, capacity_s, least):
    """Nearly all of it, evenly where all want more, with at most one request of a hundred refused."""
    parts, refused = of_scene(scene, capacity_s, shared=True, seeds=1)
    assert least <= sum(parts[0])
    assert refused <= 0.01
    if "only" not in scene:
        assert max(parts[0]) <= 1.1 * min(parts[0])


@pytest.mark.parametrize("count", [2, 4])
def test_kernels_divide_a_limit_that_lets_one_request_pass_at_once(count):
    """Sixty a minute as one a second: nearly all of it is used, and once they know the limit nobody is refused."""
    server = Server(60, capacity_s=1)
    results = together(server, [Kernel(count=90)] * count, seed=1, until_s=90.0)
    assert 0.95 <= sum(one.share("requests", 60, 10.0, 90.0) for one in results) <= 1.0
    assert not [at for one in results for at in one.refused if at > 5.0]
    passed = [len([at for at, _ in one.admitted if at > 10.0]) for one in results]
    assert max(passed) <= 1.3 * min(passed)


@pytest.mark.parametrize(
    ("per_minute", "capacity_s", "count"), [(1, 60, 2), (2, 1, 1), (2, 1, 2), (5, 60, 2), (5, 1, 4)]
)
def test_kernels_divide_a_limit_of_a_few_requests_a_minute(per_minute, capacity_s, count):
    """Each request is large for it: they take turns that are long enough for one, and none starves."""
    server, minutes = Server(per_minute, capacity_s=capacity_s), 15
    results = together(server, [Kernel(count=90)] * count, seed=1, until_s=60.0 * minutes)
    passed = [len(one.admitted) for one in results]
    assert 0.7 * per_minute * minutes <= sum(passed) <= per_minute * (minutes + 1) + 1
    assert min(passed) >= 0.7 * sum(passed) / count
    assert sum(len(one.refused) for one in results) < count
