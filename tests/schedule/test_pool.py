"""Slots that the runs of a session share: as many as the largest asks for, an even share for each while others wait."""

from __future__ import annotations

from agent_magic.schedule.pool import Pool, Seat


def fill(seat: Seat) -> int:
    """Take all that there is, as far as the run itself goes; return how many it has."""
    while seat.taken < seat.most and seat.is_free():
        seat.take()
    return seat.taken


def test_a_run_alone_has_all_it_asks_for():
    """Nothing changes for it."""
    assert 5 == fill(Pool().join(5, lambda: None))


def test_two_runs_share_the_larger_number():
    """Together never more than that; the second one waits until the first gives back, and is woken at once."""
    pool = Pool()
    first = pool.join(4, lambda: None)
    assert 4 == fill(first)
    second = pool.join(2, lambda: fill(second))
    assert 0 == fill(second)
    first.give()
    assert (3, 1) == (first.taken, second.taken)
    assert not first.is_free()
    first.give()
    assert (2, 2) == (first.taken, second.taken)


def test_neither_starves():
    """While the other waits, a run takes no more than its even share; what the other does not need it may have."""
    pool = Pool()
    seats: list[Seat] = []
    seats.append(pool.join(4, lambda: fill(seats[0])))
    seats.append(pool.join(4, lambda: fill(seats[1])))
    fill(seats[0])
    fill(seats[1])
    for _ in range(8):
        seats[0].give()
        fill(seats[0])
        assert 4 == sum(seat.taken for seat in seats)
    assert [2, 2] == [seat.taken for seat in seats]
    seats[1].wake = lambda: None  # it needs no more
    seats[1].give()
    seats[1].give()
    seats[0].give()
    assert 4 == fill(seats[0])


def test_a_run_that_ends_gives_all_back():
    """Whoever waits is woken then."""
    pool = Pool()
    first = pool.join(3, lambda: None)
    fill(first)
    second = pool.join(3, lambda: fill(second))
    assert 0 == fill(second)
    first.leave()
    assert 3 == second.taken
