"""Kernels that use one key divide its rate limits: the decision alone, and pacers that keep to it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magic import Limits
from agent_magic.engine import Hold, Pacer, Share
from agent_magic.engine.pacing.share import (
    BEAT_S,
    IDLE,
    LEAST,
    TURN_BEAT_S,
    Claim,
    Demand,
    beat_s,
    claims,
    is_news,
    limits_of,
    row_of,
    shares_of,
)
from agent_magic.record import Ceiling
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


LARGE = Demand(0.5, held=True, largest=0.9, largest_s=0.9)


def in_turns(table, looks=60, step_s=0.3):
    """Let all look twenty times a second while whoever has its turn takes something; return the parts they had."""
    table.settle()
    had = []
    for _ in range(looks):
        for name, part in table.parts().items():
            if part > IDLE:
                taken_s = table.demands[name].taken_s + step_s
                table.demands[name] = table.demands[name]._replace(taken_s=taken_s)
        table.now -= BEAT_S - TURN_BEAT_S
        had.append(table.look())
    return had


@pytest.mark.parametrize("count", [2, 3, 4])
def test_requests_too_large_for_a_part_are_sent_in_turns(count):
    """All of it for one while the others have next to nothing, nobody has it twice, and what they took is even."""
    table = Table(a=LARGE, **{f"k{one}": HELD for one in range(1, count)})
    had = in_turns(table)
    assert set(table.demands) == {name for parts in had for name, part in parts.items() if part > 0.9}
    assert all(sum(parts.values()) <= 1 + count * LEAST for parts in had)
    took = [one.taken_s for one in table.demands.values()]
    assert max(took) - min(took) <= LARGE.largest_s + 2 * 0.3
    assert TURN_BEAT_S == beat_s(table.told["a"])


def test_one_alone_does_not_look_often():
    """Nor do those whose requests have room."""
    for table in (Table(a=LARGE), Table(a=HELD, b=HELD)):
        table.settle()
        assert BEAT_S == beat_s(table.told["a"])


@pytest.mark.parametrize("why", ["nothing to send", "refused"])
def test_whoever_cannot_send_passes_its_turn_on(why):
    """It has nothing to send, or was refused and has to wait: another one goes on at its next look."""
    table = Table(a=LARGE, b=LARGE)
    table.settle()
    has = max(table.parts(), key=lambda name: table.parts()[name])
    (other,) = set(table.demands) - {has}
    table.demands[has] = LARGE._replace(held=False) if why == "nothing to send" else LARGE._replace(shut=True)
    table.look(has)
    table.look(other)
    assert (LEAST, 1.0) == (table.parts()[has], round(table.parts()[other], 1))


def test_only_what_others_wait_for_is_written_between_beats():
    """Whose turn it is and who waits; not that something was taken."""
    table = Table(a=LARGE, b=LARGE)
    table.settle()
    before = table.told["a"]
    claim = before[CLASS]["requests"]
    assert not is_news({CLASS: {"requests": claim._replace(place=9.0)}}, before)
    assert is_news({CLASS: {"requests": claim._replace(part=0.5)}}, before)
    assert is_news({CLASS: {"requests": claim._replace(waits=0.0)}}, before)
    assert is_news({}, before)


def test_who_comes_to_those_that_take_turns_has_no_claim_to_what_was_taken_before():
    """It begins beside them: otherwise it would have all until it had taken as much."""
    table = Table(a=LARGE, b=LARGE)
    in_turns(table)
    table.demands["c"] = LARGE
    had = in_turns(table)
    assert {"a", "b", "c"} == {name for parts in had[:30] for name, part in parts.items() if part > 0.9}


def test_whoever_takes_its_turn_goes_on_from_what_the_other_left():
    """The other has used it up at some time on the common clock: what flowed in since may pass, no more and no less."""
    table = Table(a=LARGE._replace(level_s=0.3), b=LARGE._replace(level_s=9.0))
    table.settle()
    has = max(table.parts(), key=lambda name: table.parts()[name])
    (other,) = set(table.demands) - {has}
    assert shares_of(table.told[other])[CLASS]["requests"].level_s is None
    table.demands[has] = table.demands[has]._replace(taken_s=2.0)
    table.look(has)
    left_s = table.now - BEAT_S - table.demands[has].level_s
    table.look(other)
    assert left_s == table.told[other][CLASS]["requests"].empty_s
    assert table.now - BEAT_S - left_s == shares_of(table.told[other])[CLASS]["requests"].level_s


def test_what_one_has_been_told_of_a_limit_the_others_know():
    """Of the classes they ask for: so a kernel that begins is not refused to learn it. What it is told itself rules."""
    table = Table(a=HELD._replace(per_minute=600.0, capacity=10.0), b=Demand())
    table.look("a")
    assert {} == limits_of(table.rows, ["another"])
    limits = limits_of(table.rows, [CLASS])
    assert {CLASS: {"requests": Ceiling(600.0, 10.0)}} == limits
    pacer = Pacer(seed=1)
    pacer.recall(limits, {})
    assert limits == pacer.ceilings()
    given = Pacer({CLASS: Limits(60)}, seed=1)
    given.recall(limits, {})
    assert 60 == given.ceilings()[CLASS]["requests"].per_minute


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
        ("input, 5 % of them large, 2 kernels", 1, 0.97),
        ("input, 5 % of them large, 4 kernels", 1, 0.97),
        ("input, 3 of 250 beside 5,000", 1, 0.97),
    ],
)
def test_kernels_together_use_the_limit_and_are_not_refused(scene, capacity_s, least):
    """Nearly all of it, evenly where all want more, with at most one request of a hundred refused."""
    parts, refused = of_scene(scene, capacity_s, shared=True, seeds=1)
    assert least <= sum(parts[0])
    assert refused <= 0.01
    if "only" not in scene:
        within = 1.15 if "large" in scene else 1.1  # one large request is 5 % of what a kernel has in that time
        assert max(parts[0]) <= within * min(parts[0])


@pytest.mark.parametrize("count", [2, 4])
def test_kernels_divide_a_limit_that_lets_one_request_pass_at_once(count):
    """Sixty a minute as one a second: nearly all of it is used, and once they know the limit nobody is refused."""
    server = Server(60, capacity_s=1)
    results = together(server, [Kernel(count=150)] * count, seed=1, until_s=130.0)
    assert 0.97 <= sum(one.share("requests", 60, 10.0, 130.0) for one in results) <= 1.0
    refused = [at for one in results for at in one.refused]
    assert max(refused) < 5.0
    assert len(refused) <= count
    passed = [len([at for at, _ in one.admitted if at > 10.0]) for one in results]
    assert max(passed) <= 1.1 * min(passed)


@pytest.mark.parametrize(
    ("per_minute", "capacity_s", "count"), [(1, 60, 2), (2, 1, 1), (2, 1, 2), (5, 60, 2), (5, 1, 4)]
)
def test_kernels_divide_a_limit_of_a_few_requests_a_minute(per_minute, capacity_s, count):
    """Each request is large for it: they take turns that are long enough for one, and none starves."""
    server, minutes = Server(per_minute, capacity_s=capacity_s), 10
    results = together(server, [Kernel(count=90)] * count, seed=1, until_s=60.0 * minutes)
    passed = [len(one.admitted) for one in results]
    assert 0.7 * per_minute * minutes <= sum(passed) <= per_minute * (minutes + 1) + 1
    assert min(passed) >= 0.7 * sum(passed) / count
    assert sum(len(one.refused) for one in results) < count
