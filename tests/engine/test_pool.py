"""Slots that the runs of a session share: as many as the largest asks for; what is free goes to who has the fewest."""

from __future__ import annotations

from agent_magic.engine import Pool, Seat


def fill(seat: Seat) -> bool:
    """Take all that there is, as far as the run itself goes."""
    while seat.taken < seat.most and seat.pool.has_room(seat):
        seat.take()
    return True


def joined(pool: Pool, most: int) -> Seat:
    """Begin a run that always wants all that it may have."""
    seat = pool.join(most, lambda: fill(seat))
    fill(seat)
    seat.pool.offer()
    return seat


def give(seat: Seat) -> None:
    """Give one back, and take one again if it is this run's turn."""
    seat.give()
    fill(seat)
    seat.pool.offer()


def taken(*seats: Seat) -> list[int]:
    """Return how many each has."""
    return [seat.taken for seat in seats]


def test_a_run_alone_has_all_it_asks_for():
    """Nothing changes for it."""
    assert [5] == taken(joined(Pool(), 5))


def test_two_runs_share_the_larger_number():
    """Together never more than that; the second waits until the first gives back, and has its part at once."""
    pool = Pool()
    first, second = joined(pool, 4), joined(pool, 2)
    assert [4, 0] == taken(first, second)
    give(first)
    assert [3, 1] == taken(first, second)
    give(first)
    assert [2, 2] == taken(first, second)
    give(first)
    assert [2, 2] == taken(first, second)


def test_no_slot_is_idle_while_somebody_waits():
    """Three slots for two runs: one has two of them. What one does not need any more the other has."""
    pool = Pool()
    first, second = joined(pool, 3), joined(pool, 3)
    for _ in range(8):
        give(first)
        assert 3 == sum(taken(first, second))
    assert [1, 2] == sorted(taken(first, second))
    second.wake = lambda: True
    while second.taken:
        second.give()
        second.pool.offer()
    assert [3, 0] == taken(first, second)


def test_of_many_runs_none_starves():
    """One slot for three runs goes round, however they came."""
    pool = Pool()
    runs = [joined(pool, 1) for _ in range(3)]
    turns: list[int] = []
    for _ in range(6):
        has = next(number for number, seat in enumerate(runs) if seat.taken)
        turns.append(has)
        give(runs[has])
    assert [0, 1, 2, 0, 1, 2] == turns


def test_a_newcomer_has_its_slots_and_leaves_the_rest():
    """A run that may have more makes room for all; what it does not take itself goes to those that wait."""
    pool = Pool()
    first, second = joined(pool, 4), joined(pool, 4)
    give(first)
    give(first)
    assert [2, 2] == taken(first, second)
    third = joined(pool, 8)
    assert 8 == sum(taken(first, second, third))
    assert 2 <= min(taken(first, second, third))


def test_a_run_on_another_loop_keeps_its_turn():
    """It asks later; until then nobody else has the slot."""
    pool = Pool()
    first = joined(pool, 1)
    second = pool.join(1, lambda: False)
    assert not second.pool.has_room(second)
    give(first)
    assert [0, 0] == taken(first, second)
    assert second.pool.has_room(second)


def test_a_run_that_ends_gives_all_back():
    """Whoever waits has them then."""
    pool = Pool()
    first, second = joined(pool, 3), joined(pool, 3)
    assert [3, 0] == taken(first, second)
    first.pool.forget(first)
    assert [3] == taken(second)
