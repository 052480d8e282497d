"""Ways to break the engine, each a patch of one method. A scene that shows nothing wrong with them proves nothing.

Errors of rounding are not among them: a driver's times are on a grid, and its alarms ring on the grid at or after the
time that was asked for, so nothing waits for the last digit of a sum.
"""

# It reaches into what it breaks.
# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownParameterType=false
# pyright: reportMissingParameterType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent_magic.engine import Budget, BurnBreaker, Conductor, ErrorBreaker, Gate, Key, Prefixes, Seat, Slots, WakeAt
from agent_magic.engine import Pool as Session
from agent_magic.engine.admission import breaker
from agent_magic.engine.calls import Holding
from agent_magic.engine.pacing import class_pacer
from agent_magic.engine.pacing import window as pacer_window
from agent_magic.engine.pacing.bucket import Bucket
from agent_magic.engine.pacing.class_pacer import ClassPacer
from agent_magic.engine.queues import Barrier
from agent_magic.engine.retry import Tries

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

Break = tuple[Any, str, "Callable[[Any], Any]"]


def always(value):
    """Return the same, whatever is asked."""
    return lambda _: lambda *_, **__: value


def one_slot_more(whole):
    """There is one slot more than the policy says."""

    def init(self, *args, **options):
        whole(self, *args, **options)
        self._slots = Slots(self._slots.width + 1)

    return init


def one_attempt_more(whole):
    """A failure is worth one attempt more than the policy allows."""

    def next_s(self, agent, failure, now, deadline_s):
        self._most += 1
        try:
            return whole(self, agent, replace(failure, attempts=failure.attempts + 1), now, deadline_s)
        finally:
            self._most -= 1

    return next_s


def at_once(whole):
    """A backoff is announced, and not kept."""

    def failed(self, agent, failure, now):
        actions = whole(self, agent, failure, now)
        if agent in self.tries.until_s:
            self.tries.until_s[agent] = 0.0
            self.alarms.set(0.0, agent)
        return [*actions, WakeAt(now)]

    return failed


def deadline_per_attempt(whole):
    """Every attempt has the whole time."""

    def launch(self, agent, now, reason):
        self._deadline_s[agent] = None
        whole(self, agent, now, reason)

    return launch


def all_but_the_last(whole):
    """A stop overlooks the last agent."""

    def cancel_all(self, now, why):
        for agent in self.dag.order[:-1]:
            self._cancel_one(agent, now, why)

    return cancel_all


def one_parent_less(whole):
    """An agent goes when one parent is still to come."""

    def pass_on(self, agent, *args):
        for child in self.dag.children[agent]:
            if self.missing[child] > 1:
                self.missing[child] -= 1
        return whole(self, agent, *args)

    return pass_on


def overdrawn(whole):
    """A budget may be overrun by one token."""

    def fits(self, worst):
        return whole(self, replace(worst, tokens=max(0, worst.tokens - 1)))

    return fits


def unknown_is_free(whole):
    """A request whose usage is not known has used nothing."""
    return lambda self, agent, usd, tokens: whole(self, agent, usd or 0.0, tokens or 0)


def stays_open(whole):
    """Good answers do not close a breaker."""

    def take_probe(self, now, *, bad):
        if bad:
            whole(self, now, bad=bad)

    return take_probe


def gives_up_soon(whole):
    """What was reached is given up as soon as what never was."""

    def gives_up(self, now):
        return whole(self, now + breaker.PATIENCE_S if self._reached else now)

    return gives_up


def ends_nobody(whole):
    """The leader of a group stays the leader when it fails."""
    return lambda self, agent, read_tokens, *, followed: None


def half_a_wait(whole):
    """Only half of what a server demands is waited for."""

    def refused(self, ticket, retry_after_s, limit, readings, now):
        whole(self, ticket, (retry_after_s or 0.0) / 2, limit, readings, now)

    return refused


def one_more_for_all(whole):
    """The session has a slot more than its largest run asks for."""
    return lambda self: whole(self) + 1


def the_first_gets_all(whole):
    """A free slot goes to the run that came first."""
    return staticmethod(lambda seats: seats[-1])


def keeps_one(whole):
    """A slot that is given back is not counted."""

    def give(self):
        if self.taken > 1:
            whole(self)

    return give


def keeps_its_turn(whole):
    """A request that was stopped is not given back to the pacer."""

    def settle(self, agent, used, cost_usd, bad, now, *, is_final):
        if bad is None:
            self._tickets.pop(agent, None)
        whole(self, agent, used, cost_usd, bad, now, is_final=is_final)

    return settle


def keeps_what_was_stopped(whole):
    """What was set aside for a request that was stopped stays aside."""

    def settle(self, agent, usd, tokens):
        if tokens is not None:
            whole(self, agent, usd, tokens)

    return settle


def two_at_a_time(whole):
    """After a crowd has failed two go at a time."""

    def failed(self, agent, failure, *, tries_left):
        whole(self, agent, failure, tries_left=tries_left)
        if self.last_tries:
            self.width = min(2, self._most)

    return failed


def one_too_soon(whole):
    """Failures make requests go one at a time before anybody's last try."""
    return lambda self, agent, failure, *, tries_left: whole(self, agent, failure, tries_left=min(1, tries_left))


BREAKS: dict[str, Break] = {
    "one slot more": (Conductor, "__init__", one_slot_more),
    "one attempt more": (Tries, "next_s", one_attempt_more),
    "a backoff is forgotten": (Conductor, "failed", at_once),
    "deadlines are ignored": (Conductor, "_set_deadline", always(None)),
    "each attempt has a deadline of its own": (Conductor, "_launch", deadline_per_attempt),
    "the run's deadline is ignored": (Conductor, "_run_out", always(None)),
    "a stop overlooks one": (Conductor, "_cancel_all", all_but_the_last),
    "a pause holds nobody": (Conductor, "pause", always([])),
    "one parent is not waited for": (Conductor, "pass_on", one_parent_less),
    "descendants of the failed go on waiting": (Conductor, "skip_descendants", always(None)),
    "no barrier": (Barrier, "hold", always(False)),
    "the barrier forgets who runs again": (Barrier, "reopened", always(False)),
    "the barrier never opens": (Barrier, "ended", always(())),
    "a step that waits for its retry lets the next one go": (Holding, "take", always(None)),
    "a budget is overrun by one token": (Budget, "fits", overdrawn),
    "what is under way is not set aside": (Budget, "set_aside", always(None)),
    "unknown usage is free": (Budget, "settle", unknown_is_free),
    "followers do not wait": (Prefixes, "hold", always(None)),
    "followers wait for the whole patience": (Prefixes, "began", always(None)),
    "followers wait for a leader that failed": (Prefixes, "ended", ends_nobody),
    "the error breaker never opens": (ErrorBreaker, "_open", always(None)),
    "the error breaker never closes": (ErrorBreaker, "_take_probe", stays_open),
    "no probe goes alone": (ErrorBreaker, "left", always(None)),
    "nobody is soon given up where nothing is reached": (breaker, "UNREACHED_S", lambda _: math.inf),
    "who is reached is soon given up": (ErrorBreaker, "gives_up", gives_up_soon),
    "few tries are enough to give up": (breaker, "HANDFUL", lambda _: 1),
    "dollars a minute are not counted": (BurnBreaker, "ended", always(None)),
    "dollars under way are not counted": (BurnBreaker, "left", always(None)),
    "nobody waits for the key": (Key, "left", always(None)),
    "nobody waits for the first reply": (pacer_window, "PATIENCE_S", lambda _: 0.0),
    "who waited for the first reply waits on": (ClassPacer, "_speak", always(None)),
    "other runs are not told of the first reply": (Session, "news", always(None)),
    "a request is not taken from its bucket": (Bucket, "take", always(0.0)),
    "half of retry-after is enough": (ClassPacer, "refused", half_a_wait),
    "a class is not closed by a refusal": (class_pacer, "UNSAID_S", lambda _: -math.inf),
    "a resumed run goes on waiting": (Conductor, "resume", always([])),
    "requests never go one at a time": (Slots, "failed", always(None)),
    "two go at a time": (Slots, "failed", two_at_a_time),
    "one goes at a time too soon": (Slots, "failed", one_too_soon),
    "one goes at a time for ever": (Slots, "answered", always(None)),
    "who gave up holds the others up": (Slots, "ended", always(None)),
    "runs share no slots": (Session, "has_room", always(True)),
    "runs share one slot too many": (Session, "_free", one_more_for_all),
    "slots go to whoever asks last": (Session, "_first", the_first_gets_all),
    "nobody is offered a slot": (Session, "offer", always(None)),
    "a slot is not given back": (Seat, "give", keeps_one),
    "a run that is over keeps its seat": (Session, "forget", always(None)),
    "the pacer counts what was stopped": (Gate, "settle", keeps_its_turn),
    "a budget counts what was stopped": (Budget, "settle", keeps_what_was_stopped),
    "runs take no turns": (ClassPacer, "_ahead", always(None)),
    "who cannot go keeps its turn": (Gate, "_forgo", always(None)),
}


def broken(patch: pytest.MonkeyPatch, name: str) -> None:
    """Break the engine in this way."""
    owner, attribute, change = BREAKS[name]
    patch.setattr(owner, attribute, change(getattr(owner, attribute)))
