"""The pacer on virtual time: what it lets go, what it holds, what it learns."""

from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magic import Limits
from agent_magic.engine import NO_READINGS, Hold, Pacer, Reading, Readings, Ticket
from agent_magic.engine.admission.pool import PATIENCE_S
from agent_magic.engine.pacing.class_pacer import LATE_S, MOST_UNSAID_S
from agent_magic.engine.pacing.window import DOUBLE_S, FIRST_WINDOW
from agent_magic.simulator.limits import Bucket

MODEL, OTHER = "claude-opus-4", "claude-sonnet-5-5"


def told(requests: float = 50, input: float = 40_000, output: float = 10_000) -> Readings:  # noqa: A002 - a dimension
    """Return what a server says that has so much left of its limits."""
    return {
        "requests": Reading(3_000, requests),
        "input": Reading(2_400_000, input),
        "output": Reading(600_000, output),
    }


def all_that_go(pacer: Pacer, now: float, model: str = MODEL, tokens: int = 100) -> list[Ticket]:
    """Ask until one is held."""
    found: list[Ticket] = []
    while isinstance(got := pacer.ask(model, tokens, 100, now), Ticket):
        found.append(got)
        assert len(found) < 10_000
    return found


def untold(seed: int = 0) -> Pacer:
    """Return a pacer whose first reply told no limit."""
    pacer = Pacer(seed=seed)
    ticket = pacer.ask(MODEL, 100, 100, 0.0)
    assert isinstance(ticket, Ticket)
    pacer.heard(ticket, NO_READINGS, 0.0)
    pacer.finished(ticket, None, None, 0.0)
    return pacer


def test_with_nothing_known_one_goes_and_after_a_moment_a_few():
    """The rest waits for the first reply, but nobody for long, and another model's first reply is its own.

    The few go one by one: a refusal comes at once, and one says as much as seven.
    """
    pacer = Pacer()
    assert 1 == len(all_that_go(pacer, 1.0))
    assert Hold("limits", 1.0 + PATIENCE_S) == pacer.ask(MODEL, 100, 100, 1.0)
    assert [] == all_that_go(pacer, 1.0 + 0.9 * PATIENCE_S)
    assert 1 == len(all_that_go(pacer, 1.0, OTHER))
    assert 1 == len(all_that_go(pacer, 1.0 + PATIENCE_S))
    assert 2 == len(all_that_go(pacer, 1.0 + PATIENCE_S + DOUBLE_S))
    assert FIRST_WINDOW - 4 == len(all_that_go(pacer, 1.0 + PATIENCE_S + 2 * DOUBLE_S))
    got = pacer.ask(MODEL, 100, 100, 1.0 + PATIENCE_S + 2 * DOUBLE_S)
    assert isinstance(got, Hold)
    assert "limits" == got.reason


@pytest.mark.parametrize("how", ["begins", "is whole", "fails", "is refused"])
def test_whatever_the_first_reply_is_nobody_waits_for_it_any_more(how):
    """Who asked for longer is asked anew, in whichever queue; of limits nothing is known still."""
    pacer = Pacer()
    first = pacer.ask(MODEL, 100, 100, 0.0)
    assert isinstance(first, Ticket)
    for queue in (1, 2):
        held = pacer.ask(MODEL, 100, 100, 0.1, queue=queue)
        assert isinstance(held, Hold)
        assert "limits" == held.reason
    if how == "begins":
        pacer.heard(first, NO_READINGS, 0.2)
    elif how == "is refused":
        pacer.refused(first, 0.0, None, 0.2)
    else:
        used = 100 if how == "is whole" else None
        pacer.finished(first, used, used, 0.2)
    assert isinstance(pacer.ask(MODEL, 100, 100, 0.5, queue=2), Ticket)


def test_with_no_limit_told_a_few_go():
    """The rest waits for a slot, and knows when to ask again."""
    pacer = untold()
    assert FIRST_WINDOW == len(all_that_go(pacer, 0.0))
    got = pacer.ask(MODEL, 100, 100, 0.0)
    assert isinstance(got, Hold)
    assert "slot" == got.reason
    assert got.until_s > 0


def test_without_headers_the_window_doubles_while_it_is_used_up_and_nothing_is_refused():
    """Every fifth of a second, though no answer comes: a refusal would have come at once."""
    pacer, now = untold(), 0.0
    all_that_go(pacer, now)
    while now < 3 * DOUBLE_S:
        held = pacer.ask(MODEL, 100, 100, now)
        now = held.until_s if isinstance(held, Hold) else now
    assert 8 * FIRST_WINDOW == pytest.approx(pacer.health(now)["claude-opus-4"].under_way, rel=0.1)


def test_the_window_does_not_grow_unused():
    """One after another never needs more than one."""
    pacer = Pacer()
    for second in range(100):
        ticket = pacer.ask(MODEL, 100, 100, float(second))
        assert isinstance(ticket, Ticket)
        pacer.finished(ticket, 100, 100, second + 0.5)
    assert FIRST_WINDOW == len(all_that_go(pacer, 200.0))


def test_what_passes_between_two_refusals_is_the_limit():
    """Many 429s of one moment are one episode. Nobody announced anything: what was inferred says so."""
    pacer = untold()
    for ticket in all_that_go(pacer, 0.0):
        pacer.refused(ticket, 1.0, None, 0.1)
    health = pacer.health(0.1)["claude-opus-4"]
    assert (8, 1) == (health.refusals, health.episodes)
    assert "inferred from 8 refusals" == health.limits["requests"].source
    now, passed, last = 1.3, 0, None
    while now < 4.1:
        got = pacer.ask(MODEL, 100, 100, now)
        if isinstance(got, Hold):
            now = got.until_s
            continue
        if last is not None:
            pacer.heard(last, NO_READINGS, now)
        last, passed = got, passed + 1
    assert last is not None
    pacer.refused(last, 1.0, None, 4.1)
    health = pacer.health(4.1)["claude-opus-4"]
    assert 2 == health.episodes
    assert 60 * (passed - 1) / 4.0 == pytest.approx(health.limits["requests"].limit_per_min, rel=0.1)


def test_a_limit_beside_those_that_are_announced_is_inferred():
    """Refusals that no announced limit explains are of another one once chance does not explain so many."""
    for left, source in ((40_000, "inferred from 6 refusals"), (100, "")):
        pacer, now = Pacer(), 0.0
        assert isinstance(pacer.ask(MODEL, 1_000, 100, now), Ticket)
        for _ in range(6):
            now += 10.0
            ticket = pacer.ask(MODEL, 1_000, 100, now)
            assert isinstance(ticket, Ticket)
            pacer.refused(ticket, 1.0, None, now + 0.1, {"input": Reading(2_400_000, left)})
            health = pacer.health(now + 0.1)["claude-opus-4"]
            assert "announced" == health.limits["input"].source
        assert source == health.limits["requests"].source


def test_a_refusal_may_tell_a_limit_before_any_header_does():
    """Its sentence names one without saying what is left: that limit explains the refusal, and none is inferred."""
    pacer = Pacer()
    assert isinstance(pacer.ask(MODEL, 5_000, 100, 0.0), Ticket)
    ticket = pacer.ask(MODEL, 5_000, 100, PATIENCE_S)
    assert isinstance(ticket, Ticket)
    pacer.refused(ticket, 1.0, "input", 0.6, {"input": Reading(30_000)})
    health = pacer.health(0.6)[MODEL]
    requests, taken = health.limits["requests"], health.limits["input"]
    assert ("", "announced", 30_000) == (requests.source, taken.source, taken.limit_per_min)


def test_an_announced_limit_takes_the_place_of_what_was_inferred():
    """The first burst may be refused before any header has come."""
    pacer = Pacer()
    first, second = (pacer.ask(MODEL, 100, 100, now) for now in (0.0, 1.0))
    assert isinstance(first, Ticket)
    assert isinstance(second, Ticket)
    pacer.refused(second, 1.0, None, 1.1)
    assert "inferred from 1 refusal" == pacer.health(1.1)["claude-opus-4"].limits["requests"].source
    pacer.heard(first, told(), 1.2)
    gauge = pacer.health(1.2)["claude-opus-4"].limits["requests"]
    assert ("announced", 3_000) == (gauge.source, gauge.limit_per_min)


def test_a_refusal_that_names_no_wait_closes_the_class_ever_longer():
    """A second, then twice as long, and so on up to a minute, until something else than a refusal comes."""
    pacer, now, waits = Pacer(seed=1), 0.0, []
    for _ in range(9):
        ticket = pacer.ask(MODEL, 100, 100, now)
        assert isinstance(ticket, Ticket)
        pacer.refused(ticket, None, None, now)
        held = pacer.ask(MODEL, 100, 100, now)
        assert isinstance(held, Hold)
        waits.append(round(held.until_s - now - 0.05))
        now = held.until_s + 60  # the limit that was inferred has been full for long
    assert [1, 2, 4, 8, 16, 32, MOST_UNSAID_S, MOST_UNSAID_S, MOST_UNSAID_S] == waits
    ticket = pacer.ask(MODEL, 100, 100, now)
    assert isinstance(ticket, Ticket)
    pacer.heard(ticket, NO_READINGS, now)
    pacer.refused(ticket, None, None, now)
    held = pacer.ask(MODEL, 100, 100, now)
    assert isinstance(held, Hold)
    assert held.until_s < now + 1.2


def test_an_overloaded_service_says_nothing_of_our_limits():
    """A 529 is a request that is over; nothing closes, nothing shrinks."""
    pacer = Pacer()
    for ticket in all_that_go(pacer, 0.0):
        pacer.finished(ticket, None, None, 0.1)
    assert FIRST_WINDOW == len(all_that_go(pacer, 0.2))
    assert 0 == pacer.health(0.2)["claude-opus-4"].episodes


def test_an_error_that_cost_nothing_teaches_nothing():
    """A hundred failures of no tokens leave expectations as they were."""
    pacer = Pacer()
    for number in range(100):
        ticket = pacer.ask(MODEL, 400, 500, float(number))
        assert isinstance(ticket, Ticket)
        pacer.finished(ticket, 0, 0, number + 0.5)
    ticket = pacer.ask(MODEL, 400, 500, 200.0)
    assert isinstance(ticket, Ticket)
    assert (400, 500) == (ticket.input, ticket.output)


def test_retry_after_closes_the_class_and_no_other():
    """Models of the class wait that long and a little more; others go."""
    pacer = Pacer(seed=1)
    first = pacer.ask(MODEL, 100, 100, 0.0)
    assert isinstance(first, Ticket)
    pacer.refused(first, 7.0, "requests", 1.0)
    got = pacer.ask(MODEL, 100, 100, 7.99)
    assert isinstance(got, Hold)
    assert "backoff" == got.reason
    assert 8.0 <= got.until_s <= 8.1
    assert isinstance(pacer.ask(OTHER, 100, 100, 1.0), Ticket)
    assert isinstance(pacer.ask(MODEL, 100, 100, got.until_s), Ticket)


def test_the_jitter_is_repeatable_and_differs_between_seeds():
    """Two processes do not come back in the same instant."""

    def until(seed: int) -> float:
        pacer = Pacer(seed=seed)
        ticket = pacer.ask(MODEL, 100, 100, 0.0)
        assert isinstance(ticket, Ticket)
        pacer.refused(ticket, 1.0, None, 0.1)
        got = pacer.ask(MODEL, 100, 100, 0.2)
        assert isinstance(got, Hold)
        return got.until_s

    assert until(1) == until(1)
    assert until(1) != until(2)


def test_waiters_are_not_released_together():
    """After a refusal, with a full bucket, they leave one by one."""
    pacer = untold(seed=1)
    tickets = all_that_go(pacer, 0.0)
    pacer.heard(tickets[0], told(), 0.1)
    pacer.refused(tickets[1], 1.0, "requests", 0.2, told(requests=0))
    together = len(all_that_go(pacer, 3.0))
    assert together <= 1 + 8 * LATE_S * 50
    now, times = 3.0, []
    while len(times) < 30:
        got = pacer.ask(MODEL, 100, 100, now)
        if isinstance(got, Ticket):
            times.append(now)
        else:
            now = got.until_s
    assert len(times) == len(set(times))


@pytest.mark.parametrize(
    ("left", "tokens", "reason"),
    [({"requests": 5}, 10, "requests"), ({"input": 1_000}, 2_000, "input"), ({"output": 0}, 10, "output")],
)
def test_headers_tell_what_holds(left, tokens, reason):
    """The limit with the least room is the reason."""
    pacer = Pacer()
    ticket = pacer.ask(MODEL, tokens, 100, 0.0)
    assert isinstance(ticket, Ticket)
    pacer.heard(ticket, told(**left), 0.5)
    now, got = 0.5, None
    for _ in range(40):
        got = pacer.ask(MODEL, tokens, 100, now)
        if isinstance(got, Hold) and got.reason == reason:
            break
        now = got.until_s if isinstance(got, Hold) else now
    assert isinstance(got, Hold)
    assert reason == got.reason


def test_a_large_request_waits_for_its_room_while_another_queue_asks_for_little():
    """What flows in is saved for the queue whose turn it is; then the other has its turn."""
    pacer = Pacer({MODEL: Limits(input_tokens=60_000, burst_s=10)})
    assert isinstance(pacer.ask(MODEL, 9_000, 10, 0.0, queue=1), Ticket)
    now, small, large = 0.1, 0, None
    for _ in range(10_000):
        got = pacer.ask(MODEL, 8_000, 10, now, queue=1)
        if isinstance(got, Ticket):
            large = now
            break
        small += isinstance(pacer.ask(MODEL, 10, 10, now, queue=2), Ticket)
        now += 0.01
    assert large is not None
    assert large < 8.5
    assert 0 == small
    assert isinstance(pacer.ask(MODEL, 10, 10, large + 1, queue=2), Ticket)


def test_a_queue_that_is_gone_blocks_nobody_for_long():
    """Its turn is over two seconds after it should have asked again."""
    pacer = Pacer({MODEL: Limits(60)})
    assert isinstance(pacer.ask(MODEL, 1, 1, 1.0, queue=1), Ticket)
    gone = pacer.ask(MODEL, 1, 1, 1.1, queue=1)
    assert isinstance(gone, Hold)
    assert isinstance(pacer.ask(MODEL, 1, 1, gone.until_s + 0.5, queue=2), Hold)
    assert isinstance(pacer.ask(MODEL, 1, 1, gone.until_s + 2.5, queue=2), Ticket)


def test_larger_than_the_bucket_goes_when_it_is_full_and_the_rest_is_owed():
    """A single large request is slow, never impossible."""
    pacer = Pacer({MODEL: Limits(input_tokens=60_000)})
    assert isinstance(pacer.ask(MODEL, 5_000, 10, 1.0), Ticket)
    got = pacer.ask(MODEL, 100, 10, 1.0)
    assert isinstance(got, Hold)
    assert "input" == got.reason
    assert 4.0 < got.until_s - 1.0 < 5.0


def test_a_ticket_counts_once():
    """A second end of the same request is ignored, in any order."""
    pacer = Pacer()
    ticket = pacer.ask(MODEL, 100, 100, 0.0)
    assert isinstance(ticket, Ticket)
    pacer.finished(ticket, 100, 100, 1.0)
    pacer.finished(ticket, 100, 100, 1.0)
    pacer.refused(ticket, 99.0, None, 1.0)
    pacer.heard(ticket, told(), 1.0)
    assert 0 == pacer.health(1.0)["claude-opus-4"].under_way
    assert isinstance(pacer.ask(MODEL, 100, 100, 1.1), Ticket)


def test_expectations_are_learned():
    """Outputs ten times shorter than believed let ten times as many go; input is corrected too."""
    pacer = Pacer()
    for number in range(100):
        ticket = pacer.ask(MODEL, 400, 500, float(number))
        assert isinstance(ticket, Ticket)
        pacer.finished(ticket, 100, 50, number + 0.5)
    ticket = pacer.ask(MODEL, 400, 500, 200.0)
    assert isinstance(ticket, Ticket)
    assert ticket.output == pytest.approx(50, rel=0.1)
    assert ticket.input == pytest.approx(100, rel=0.05)


def test_max_tokens_holds_nobody():
    """Whoever knows no better than 64,000 tokens waits no longer for the first answers than others."""
    held = []
    for believed in (500, 64_000):
        pacer = Pacer()
        first = [pacer.ask(MODEL, 100, believed, 0.0) for _ in range(4)]
        assert isinstance(first[0], Ticket)
        pacer.heard(first[0], told(output=400_000), 0.5)
        got = pacer.ask(MODEL, 100, believed, 1.0)
        held.append(isinstance(got, Hold))
    assert [False, False] == held


def test_a_first_answer_that_hangs_does_not_hold_the_others_as_long():
    """While no answer is complete nobody knows how long they take; what is under way is not waited for without end."""
    pacer, now = Pacer(seed=1), 0.0
    first = pacer.ask(MODEL, 100, 10_000, now)
    assert isinstance(first, Ticket)
    pacer.heard(first, told(output=2_000), now)
    got = pacer.ask(MODEL, 100, 10_000, now)
    assert isinstance(got, Hold)
    while isinstance(got, Hold) and now < 60:
        assert "output" == got.reason
        now = max(now + 0.01, got.until_s)
        got = pacer.ask(MODEL, 100, 10_000, now)
    assert isinstance(got, Ticket)
    assert 0 < now < 30


def test_the_users_lower_limit_is_kept_and_a_higher_one_gives_way():
    """Headers of 3,000 a minute."""
    for given_limit, per_minute in ((600, 600), (90_000, 3_000)):
        pacer = Pacer({MODEL: Limits(given_limit)})
        ticket = pacer.ask(MODEL, 1, 1, 0.0)
        assert isinstance(ticket, Ticket)
        pacer.heard(ticket, told(), 0.1)
        assert per_minute == pacer.health(0.1)["claude-opus-4"].limits["requests"].limit_per_min


def test_a_ramp_refusal_slows_the_growth():
    """The same refusals leave more room when they do not say that it grew too fast."""

    def found(limit: str | None) -> float:
        pacer, now = untold(seed=1), 2.0
        for ticket in all_that_go(pacer, 0.0):
            pacer.refused(ticket, 1.0, limit, 0.1)
        while now < 7.0:
            got = pacer.ask(MODEL, 100, 100, now)
            now = got.until_s if isinstance(got, Hold) else now
        return pacer.health(now)["claude-opus-4"].limits["requests"].limit_per_min or 0.0

    assert found(None) > 2 * found("ramp")


def test_a_burst_counts_against_its_minute():
    """Ten requests in the first second of a limit of 600 a minute are a sixtieth of it, whatever may pass at once."""
    pacer = Pacer({MODEL: Limits(600)})
    for number in range(10):
        pacer.ask(MODEL, 100, 50, number / 10)
    assert 10 / 600 == pacer.health(1.0)["claude-opus-4"].limits["requests"].used_share


def test_health_says_how_much_was_used():
    """Ten requests in ten seconds, of 600 a minute; what was used fades after a minute."""
    pacer = Pacer({MODEL: Limits(600)})
    for second in range(10):
        ticket = pacer.ask(MODEL, 100, 50, float(second))
        assert isinstance(ticket, Ticket)
        pacer.finished(ticket, 100, 50, second + 0.5)
    health = pacer.health(10.0)["claude-opus-4"]
    assert 60.0 == health.limits["requests"].used_per_min
    assert 10 / 600 == health.limits["requests"].used_share
    assert 3_000.0 == health.limits["output"].used_per_min
    assert health.limits["input"].used_share is None
    assert 0.0 == pacer.health(200.0)["claude-opus-4"].limits["requests"].used_per_min


def used_for_a_minute() -> Pacer:
    """Return a pacer that has had a request a second."""
    pacer = Pacer(seed=1)
    for second in range(60):
        ticket = pacer.ask(MODEL, 100, 100, float(second))
        assert isinstance(ticket, Ticket)
        pacer.heard(ticket, told(requests=49 - second % 40, output=9_000), second + 0.1)
        pacer.finished(ticket, 80, 50, second + 0.5)
    return pacer


def test_a_later_session_knows_the_limits_and_waits_for_no_reply():
    """What is remembered is plain JSON, and a minute later the buckets are full."""
    before, after = used_for_a_minute(), Pacer(seed=1)
    after.remember(json.loads(json.dumps(before.memory(60.0))), 7.0, 3_600.0)
    assert before.ceilings() == after.ceilings()
    assert "announced" == after.health(7.0)["claude-opus-4"].limits["requests"].source
    assert not [one for one in after.learned(7.0).values() if any(one.external)]
    now, gone = 7.0, 0
    while now < 8.0:
        got = after.ask(MODEL, 100, 100, now)
        gone += isinstance(got, Ticket)
        now = got.until_s if isinstance(got, Hold) else now
    assert gone > 60  # a second's worth was saved up, and flows in; nobody waited for a first reply


def test_what_was_left_a_moment_ago_is_still_believed():
    """Half empty two seconds ago is as much fuller by now."""
    before, after = used_for_a_minute(), Pacer(seed=1)
    memory = before.memory(60.0)
    memory["claude-opus-4"]["learned"]["levels"] = [-100.0, 0.0, 0.0]
    after.remember(memory, 0.0, 1.0)
    assert (-50.0, 40_000.0) == after.learned(0.0)["claude-opus-4"].levels[:2]


def test_the_first_reply_is_believed_over_what_is_remembered():
    """The limit may have changed since, and who uses the same key."""
    after = Pacer(seed=1)
    after.remember(used_for_a_minute().memory(60.0), 0.0, 3_600.0)
    ticket = after.ask(MODEL, 100, 100, 0.0)
    assert isinstance(ticket, Ticket)
    after.heard(ticket, {"requests": Reading(600, 3)}, 0.1)
    assert 600 == after.health(0.1)["claude-opus-4"].limits["requests"].limit_per_min
    assert 3.0 <= after.learned(0.1)["claude-opus-4"].levels[0] <= 3.0 + 0.1 * 600 / 60


def test_a_memory_that_is_too_high_is_corrected_by_the_first_refusal():
    """The server announces less than was remembered, or nothing at all: then less is inferred."""
    told: list[tuple[Readings, str, float]]
    told = [({"requests": Reading(600, 0)}, "announced", 600), (NO_READINGS, "inferred from 1 refusal", 1_000)]
    for readings, source, most in told:
        after = Pacer(seed=1)
        after.remember(used_for_a_minute().memory(60.0), 0.0, 3_600.0)
        all_that_go(after, 0.0)
        after.refused(all_that_go(after, 0.1)[-1], 1.0, None, 0.1, readings)
        gauge = after.health(0.1)["claude-opus-4"].limits["requests"]
        assert source == gauge.source
        assert (gauge.limit_per_min or 0.0) <= most


def test_what_the_user_says_is_kept_if_it_is_lower_than_what_is_inferred():
    """Eight left in the first second, so there is room for as many: the user wants one."""
    pacer = Pacer({MODEL: Limits(60, burst_s=8)}, seed=1)
    tickets = [pacer.ask(MODEL, 100, 100, place / 10) for place in range(5)]
    assert isinstance(tickets[-1], Ticket)
    pacer.refused(tickets[-1], 1.0, None, 0.5)
    gauge = pacer.health(0.5)[MODEL].limits["requests"]
    assert ("given", 60) == (gauge.source, gauge.limit_per_min)


def inferred() -> Pacer:
    """Return a pacer that was refused once, where nobody announced anything."""
    pacer = untold()
    pacer.refused(all_that_go(pacer, 0.0)[0], 1.0, None, 0.1)
    return pacer


def test_a_memory_that_is_too_low_grows_where_nobody_announces_anything():
    """What was inferred is tried for more, a day later as well as at once."""
    after, now = Pacer(seed=1), 0.0
    after.remember(inferred().memory(0.1), now, 86_400.0)
    known = after.health(now)["claude-opus-4"].limits["requests"].limit_per_min
    assert known is not None
    while now < 60.0:
        got = after.ask(MODEL, 100, 100, now)
        now = got.until_s if isinstance(got, Hold) else now
    assert (after.health(now)["claude-opus-4"].limits["requests"].limit_per_min or 0.0) > 2 * known


def test_a_refusal_before_anything_has_passed_infers_no_limit():
    """Nothing passed, so nobody knows how much may."""
    pacer = Pacer(seed=1)
    ticket = pacer.ask(MODEL, 100, 100, 0.0)
    assert isinstance(ticket, Ticket)
    pacer.refused(ticket, 1.0, None, 0.1)
    gauge = pacer.health(0.1)["claude-opus-4"].limits["requests"]
    assert ("", None) == (gauge.source, gauge.limit_per_min)


def test_a_memory_that_is_too_low_is_corrected_by_the_first_header():
    """What was inferred gives way to what is announced."""
    after = Pacer(seed=1)
    after.remember(inferred().memory(0.1), 0.0, 3_600.0)
    assert "inferred in an earlier session" == after.health(0.0)["claude-opus-4"].limits["requests"].source
    second = after.ask(MODEL, 100, 100, 0.0)
    assert isinstance(second, Ticket)
    after.heard(second, told(), 0.2)
    gauge = after.health(0.2)["claude-opus-4"].limits["requests"]
    assert ("announced", 3_000) == (gauge.source, gauge.limit_per_min)


@pytest.mark.parametrize(
    "memory",
    [
        *(None, [], {"m": None}, {"m": {"ceilings": 3}}, {"m": {"learned": {}}}, {"m": "no limit"}),
        *({"slots": [0, 9, 1, 1, 1, 1]}, {"slots": [4, 9]}, {"slots": [4, 9, 0, 1, 0, 1]}, {"minute": [3, 9, 1]}),
    ],
)
def test_a_memory_that_makes_no_sense_is_none(memory):
    """It comes from a file."""
    pacer = Pacer()
    if memory and ("slots" in memory or "minute" in memory):
        part, memory = memory, {"m": used_for_a_minute().memory(60.0)[MODEL]}
        memory["m"]["learned"].update(part)
    if memory == {"m": "no limit"}:
        memory = {"m": used_for_a_minute().memory(60.0)[MODEL]}
        memory["m"]["ceilings"]["requests"]["per_minute"] = -1.0
    pacer.remember(memory, 0.0, 1.0)
    assert {} == pacer.ceilings()


def test_what_the_user_says_is_not_remembered():
    """Another session may say something else."""
    memory = Pacer({MODEL: Limits(600)}).memory(0.0)
    assert {} == memory
    pacer = Pacer({MODEL: Limits(600)})
    pacer.ask(MODEL, 1, 1, 0.0)
    assert {} == pacer.memory(0.0)["claude-opus-4"]["ceilings"]


GAPS = st.lists(st.tuples(st.floats(0, 3), st.integers(1, 2_500)), min_size=1, max_size=120)


@settings(deadline=None)
@given(GAPS, st.floats(0.5, 20), st.floats(0, 1e9))
def test_given_limits_are_never_exceeded(asks, burst_s, began_s):
    """Whoever asks when: a server with these buckets takes every request that is let go."""
    limits = Limits(120, 60_000, burst_s=burst_s)
    pacer = Pacer({MODEL: limits})
    servers = Bucket(120, 2 * burst_s, began_s), Bucket(60_000, 1_000 * burst_s, began_s)
    now = began_s
    for gap_s, tokens in asks:
        now += gap_s
        while isinstance(got := pacer.ask(MODEL, tokens, 10, now), Hold):
            assert got.until_s > now
            now = max(got.until_s, now + 1e-3)
        for server, amount in zip(servers, (1, tokens), strict=True):
            assert server.wait_s(amount, now) == 0
            server.take(amount, now)


def happen(pacer: Pacer, ticket: Ticket, what: str, number: int, now: float) -> None:
    """Let headers come, an answer, a 429, or a failure."""
    readings = told(requests=number, input=number * 1_000, output=number * 200)
    if what == "h":
        pacer.heard(ticket, readings, now)
    elif what == "f":
        pacer.finished(ticket, number * 900, number * 90, now)
    elif what == "r":
        pacer.refused(ticket, float(number % 7), "requests", now, readings if number % 2 else NO_READINGS)
    else:
        pacer.finished(ticket, None, None, now)


HEARD = st.lists(st.tuples(st.sampled_from("ahfrn"), st.integers(0, 60), st.floats(0, 30)), max_size=150)


@settings(deadline=None)
@given(HEARD, st.integers(0, 2**32))
def test_whatever_happens_it_goes_on(events, seed):
    """Any order of answers, failures, refusals and contradicting headers: it never breaks, and never holds for ever."""
    pacer, random, now = Pacer(seed=seed), Random(seed), 0.0
    open_ones: list[Ticket] = []
    for what, number, gap_s in events:
        now += gap_s
        if what == "a" or not open_ones:
            got = pacer.ask(MODEL, number * 1_000, number * 10, now)
            if isinstance(got, Ticket):
                open_ones.append(got)
            continue
        ticket = random.choice(open_ones)
        happen(pacer, ticket, what, number, now)
        if what != "h":
            open_ones.remove(ticket)
    for ticket in open_ones:
        pacer.finished(ticket, None, None, now)
    for _ in range(2_000):
        got = pacer.ask(MODEL, 100, 100, now)
        if isinstance(got, Ticket):
            break
        now = max(now + 0.05, got.until_s)
    assert isinstance(got, Ticket)


def test_a_queue_whose_turn_it_is_not_is_told_a_time_to_come():
    """However often it asks, it is never told a time that is past: whoever asks again then would ask for ever."""
    pacer = Pacer({MODEL: Limits(60)})
    pacer.ask(MODEL, 10, 10, 0.0, queue=1)
    assert isinstance(pacer.ask(MODEL, 10, 10, 0.0, queue=1), Hold)
    now = 0.0
    for _ in range(10):
        held = pacer.ask(MODEL, 10, 10, now, queue=2)
        assert isinstance(held, Hold)
        assert held.until_s > now
        now = held.until_s
