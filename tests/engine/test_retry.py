"""Which failures another attempt can mend, and how long to wait before it."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magic.engine import Failure, failure_of
from agent_magic.engine.retry import backoff_s
from agent_magic.errors import (
    CallError,
    Capped,
    DeclarationError,
    Late,
    Overloaded,
    RateLimited,
    Refused,
    Rejected,
    Truncated,
    Unreachable,
    Unreadable,
)

# error, attempts of 5, the server's demand, whether the run stops
KINDS = {
    "429": (RateLimited("x"), 5, None, False),
    "429 with a wait": (RateLimited("x", retry_after_s=7.0), 5, 7.0, False),
    "spend limit": (RateLimited("x", final=True), 1, None, True),
    "529": (Overloaded("x", status=529), 5, None, False),
    "503 with a wait": (Overloaded("x", status=503, retry_after_s=0.0), 5, 0.0, False),
    "no connection": (Unreachable("x"), 5, None, False),
    "cut": (Truncated("x"), 2, None, False),
    "garbled": (Unreadable("x"), 2, None, False),
    "400": (Rejected("x", status=400), 1, None, False),
    "401": (Rejected("x", status=401), 1, None, True),
    "402": (Rejected("x", status=402), 1, None, True),
    "403": (Rejected("x", status=403), 1, None, False),
    "404": (Rejected("x", status=404), 1, None, False),
    "refused": (Refused("x"), 1, None, False),
    "capped": (Capped("x"), 1, None, False),
    "late": (Late(3.0), 1, None, False),
    "any other": (CallError("x"), 1, None, False),
    "a prompt": (DeclarationError("x"), 1, None, False),
    "a crash": (ZeroDivisionError("x"), 1, None, False),
}


@pytest.mark.parametrize(("error", "attempts", "wait", "stops"), KINDS.values(), ids=KINDS)
def test_what_each_kind_of_failure_is_worth(error, attempts, wait, stops):
    """Temporary failures get all attempts, cut and garbled replies two, the rest one; a refused key stops the run."""
    failure = failure_of(error, 5)
    assert (attempts, wait, stops) == (failure.attempts, failure.retry_after_s, failure.stops_run)
    assert failure.why.startswith(f"{type(error).__name__}: ")


@pytest.mark.parametrize("error", [Truncated("x"), Unreadable("x"), Unreachable("x"), RateLimited("x")], ids=repr)
def test_a_policy_of_one_attempt_repeats_nothing(error):
    """`max_attempts=1` holds for every kind."""
    assert 1 == failure_of(error, 1).attempts


def test_an_error_without_words_is_named_by_its_kind():
    """The reason is never empty."""
    assert "KeyError" == failure_of(KeyError(), 3).why


class Jitter(Random):
    """A source of jitter that always says the same."""

    def __init__(self, value):
        super().__init__()
        self.value = value

    def random(self):
        """The same number always."""
        return self.value


@pytest.mark.parametrize(
    ("attempt", "least"), [(1, 0.5), (2, 1.0), (3, 2.0), (4, 4.0), (5, 8.0), (6, 8.0), (60, 8.0), (5000, 8.0)]
)
def test_waits_double_up_to_eight_seconds(attempt, least):
    """Without a demand of the server the wait doubles from 0.5 s to 8 s, plus up to a quarter of jitter."""
    assert least == backoff_s(Failure("x", 9), attempt, Jitter(0.0))
    assert least * 1.125 == backoff_s(Failure("x", 9), attempt, Jitter(0.5))


@given(st.floats(0, 1e6), st.integers(1, 10), st.integers())
def test_a_demand_of_the_server_is_only_lengthened(wait, attempt, seed):
    """`retry-after` is a promise that earlier attempts fail; a demand of 0 still waits the ordinary time."""
    found = backoff_s(Failure("x", 9, retry_after_s=wait), attempt, Random(seed))
    ordinary = min(8.0, 0.5 * 2 ** (attempt - 1)) * 1.25
    assert ordinary / 1.25 <= found
    assert wait <= found <= wait + ordinary


def test_jitter_is_repeatable():
    """One seed, one sequence of waits."""
    waits = [[backoff_s(Failure("x", 9), one, random) for one in range(1, 9)] for random in (Random(3), Random(3))]
    assert waits[0] == waits[1]


@pytest.mark.parametrize(
    ("wait_s", "most", "counts"), [(None, 3, False), (7.0, 3, False), (0.0, 3, False), (None, 1, True)]
)
def test_a_rate_limit_uses_up_no_attempt(wait_s: float | None, most: int, counts: bool):
    """However long to wait it says, or nothing, the deadline ends it; unless the policy allows one attempt only."""
    assert counts == failure_of(RateLimited("x", retry_after_s=wait_s), most).counts
