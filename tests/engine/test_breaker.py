"""Breakers: when they open, whom they let probe, when they close and give up."""

from __future__ import annotations

import pytest

from agent_magic.engine import Blame, BurnBreaker, ErrorBreaker, Fault, Hold, Worst
from agent_magic.engine.admission.breaker import HANDFUL, PATIENCE_S, UNREACHED_S

NOWHERE = Fault("Unreachable: No connection to x", reached=False)


def failing(breaker: ErrorBreaker, times: int, now: float = 0.0, how: Fault | None = None) -> None:
    """Let so many requests fail."""
    for agent in range(times):
        breaker.left(agent, now)
        breaker.ended(agent, bad=how or Fault("Overloaded: full (529)."), now=now)


def opened(now: float = 0.0) -> ErrorBreaker:
    """A breaker that has just opened."""
    breaker = ErrorBreaker(0.5)
    failing(breaker, 10, now)
    return breaker


def test_it_opens_at_ten_of_twenty_failures():
    """Nine failures among any number of answers leave it closed; the tenth within twenty attempts opens it."""
    breaker = ErrorBreaker(0.5)
    for _ in range(40):
        breaker.ended(1, bad=False, now=0.0)
    failing(breaker, 9)
    assert breaker.hold(0.0) is None
    assert "" == breaker.words(0.0)
    failing(breaker, 1)
    assert Hold("breaker", 1.0) == breaker.hold(0.0)
    failed = "errors: 10 of the last 20 attempts failed; "
    assert f"{failed}next try in 1 s, given up in 60 s" == breaker.words(0.0)
    assert f"{failed}next try in 1 s, given up in 60 s" == breaker.words(0.75), "never in 0 s"
    assert f"{failed}one request at a time, given up in 59 s" == breaker.words(1.0)


def test_failures_far_apart_do_not_open_it():
    """Every third attempt fails for ever: it stays closed."""
    breaker = ErrorBreaker(0.5)
    for number in range(600):
        breaker.ended(number, bad=Fault() if number % 3 == 0 else False, now=float(number))
    assert breaker.hold(600.0) is None


def test_what_says_nothing_of_the_service_does_not_count():
    """Cancelled requests, wrong requests and refusals by a rate limit open nothing."""
    breaker = ErrorBreaker(0.5)
    for agent in range(100):
        breaker.ended(agent, bad=None, now=0.0)
    assert breaker.hold(0.0) is None


def test_one_probe_goes_and_closes_it():
    """After the wait one request goes, the next waits for its end; an answer closes it for all."""
    breaker = opened()
    assert breaker.hold(1.0) is None
    breaker.left(50, 0.0)
    assert Hold("breaker", float("inf")) == breaker.hold(1.0)
    breaker.ended(3, bad=False, now=1.5)  # one that had left before says nothing now
    assert breaker.hold(1.5) is not None
    breaker.ended(50, bad=False, now=2.0)
    assert breaker.hold(2.0) is None
    breaker.left(51, 0.0)
    assert breaker.hold(2.0) is None


def test_failed_probes_wait_twice_as_long():
    """1, 2, 4, 8 seconds, and on to 30."""
    breaker, now, waits = opened(), 0.0, []
    for agent in range(7):
        hold = breaker.hold(now)
        assert hold is not None
        waits.append(hold.until_s - now)
        now = hold.until_s
        breaker.left(agent, 0.0)
        breaker.ended(agent, bad=Fault(), now=now)
    assert [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0] == waits


def test_a_cancelled_probe_lets_the_next_one_go():
    """Nothing is learned from it, and nobody waits for it."""
    breaker = opened()
    breaker.left(5, 0.0)
    breaker.ended(5, bad=None, now=1.5)
    assert breaker.hold(1.5) is None


def test_the_second_time_takes_two_answers_one_at_a_time():
    """Full concurrency first, then one at a time: the more often it has opened, the more answers in a row."""
    breaker = opened()
    breaker.left(5, 0.0)
    breaker.ended(5, bad=False, now=1.0)
    failing(breaker, 10, 2.0)
    for agent in (1, 2):
        assert breaker.hold(3.0) is None
        breaker.left(agent, 0.0)
        assert breaker.hold(3.0) is not None
        breaker.ended(agent, bad=False, now=3.0)
    breaker.left(3, 0.0)
    assert breaker.hold(3.0) is None


def test_it_gives_up_when_nothing_answers_for_a_minute():
    """Not before, and not while single requests are answered."""
    breaker = opened()
    assert "" == breaker.gives_up(PATIENCE_S - 1)
    said = breaker.gives_up(PATIENCE_S)
    assert "failed for 1 min 00 s" in said
    assert said.endswith("Last: Overloaded: full (529).")
    assert "" == ErrorBreaker(0.5).gives_up(1e9)


def test_an_address_that_nobody_ever_reached_is_given_up_soon():
    """Twenty tries without a connection open it; after one more, three seconds later, the rest is given up."""
    breaker = ErrorBreaker(1.0)
    failing(breaker, 20, 0.5, NOWHERE)
    assert Hold("breaker", 1.5) == breaker.hold(0.5)
    failing(breaker, 1, 1.5, NOWHERE)
    assert "" == breaker.gives_up(0.4 + UNREACHED_S)
    said = breaker.gives_up(0.5 + UNREACHED_S)
    assert "no connection in 21 tries. Last: Unreachable: No connection to x" == said


def test_a_probe_that_is_under_way_is_waited_for():
    """Connections that nobody answers take ten seconds to fail: nothing is given up before one single try has."""
    breaker = ErrorBreaker(1.0)
    for agent in range(HANDFUL):
        breaker.left(agent, 0.0)
    for agent in range(HANDFUL):
        assert breaker.hold(10.0) is None
        breaker.ended(agent, bad=NOWHERE, now=10.0)
    assert Hold("breaker", 11.0) == breaker.hold(10.0), "a handful over a few seconds is enough"
    breaker.left(9, 11.0)
    assert "" == breaker.gives_up(20.0)
    breaker.ended(9, bad=NOWHERE, now=21.0)
    assert breaker.gives_up(21.0)


@pytest.mark.parametrize("sign", [False, Fault("reset")], ids=["a refusal", "a broken connection"])
def test_what_was_reached_once_keeps_its_patience(sign: Blame):
    """A network that drops in mid-run may come back: whoever replied once is waited for."""
    breaker = ErrorBreaker(1.0)
    breaker.ended(99, bad=sign, now=0.0)
    failing(breaker, 20, 1.0, NOWHERE)
    failing(breaker, 1, 2.0, NOWHERE)
    assert "" == breaker.gives_up(1.0 + PATIENCE_S - 1)
    assert "failed for 1 min 00 s" in breaker.gives_up(1.0 + PATIENCE_S)


def test_few_tries_over_long_do_not_open_it_where_something_was_reached():
    """The handful is for addresses that never answer; others have twenty tries."""
    breaker = ErrorBreaker(1.0)
    failing(breaker, 19, 100.0)
    assert breaker.hold(100.0) is None


def usd(dollars: float | None) -> Worst:
    """A request that costs at most so much."""
    return Worst(dollars, 0)


def test_dollars_within_a_minute_are_never_more_than_allowed():
    """What is under way counts with its worst case; what was spent counts for a minute."""
    breaker = BurnBreaker(1.0)
    assert breaker.hold(usd(0.6), 0.0) is None
    breaker.left(1, usd(0.6))
    assert Hold("spend", float("inf")) == breaker.hold(usd(0.6), 0.0)
    breaker.ended(1, 0.5, 10.0)
    assert breaker.hold(usd(0.5), 10.0) is None
    assert "" == breaker.words(10.0)
    assert Hold("spend", 70.0) == breaker.hold(usd(0.6), 10.0)
    assert "spending: $0.5000 of $1.00 allowed a minute" == breaker.words(10.0), "it holds somebody"
    breaker.left(2, usd(0.45))
    assert "spending: $0.9500 of $1.00 allowed a minute" == breaker.words(10.0)
    breaker.ended(2, 0.0, 11.0)
    assert breaker.hold(usd(0.6), 70.0) is None
    assert "" == breaker.words(70.0)


def test_an_unknown_cost_counts_as_the_worst():
    """It may have been billed."""
    breaker = BurnBreaker(1.0)
    breaker.left(1, usd(0.8))
    breaker.ended(1, None, 0.0)
    assert breaker.hold(usd(0.3), 0.0) is not None


@pytest.mark.parametrize(("worst", "words"), [(usd(None), "no known price"), (usd(2.0), "a minute is the cap")])
def test_what_can_never_go_is_told(worst: Worst, words: str):
    """An unknown price, or one request that is too much for a minute."""
    assert words in BurnBreaker(1.0).never(worst)
    assert "" == BurnBreaker(1.0).never(usd(0.1))
