r"""Deciding, without I/O: the whole life of a run.

# Theory of operation

An `Engine` (`run.py`) runs one plan. It has no clock, no tasks and no network. Events go in as method calls with the
time, actions for a driver come out, and a `RunRecord` grows:

```
driver -> engine   start  send  replied  began  first_token  ended  call_ended  counted  wake  room_changed
user   -> engine   stop  skip  retry  pause  resume
engine -> driver   Send  Call  Count  Abort  WakeAt  Done
engine -> record   AgentReady  AttemptStarted  FirstToken  AttemptEnded  BackoffStarted  AgentEnded  RunEnded ...
```

The live driver maps actions to asyncio tasks, the virtual driver pops a heap. Live runs, forecasts, estimates, replays
and the tests' thousand agents use this same engine. The design is h11's: a state machine that returns requests, and
other code has the sockets.

## States of a step

```
          parents done             slot, room              answer
PENDING ----------------> READY --------------> RUNNING -----------------> ENDED (succeeded, capped)
   |                        ^                      |  \------------------> ENDED (failed, cancelled)
   | an ancestor failed     |  time, next turn     |
   v                        +----- BACKOFF <-------+  a failure that another attempt can mend
ENDED (skipped, unused)
```

With its parents done, a step may be left out: its condition is false, no item came for its place, its loop is over
(`agent_magic.declare.flow`). So a plan stays fixed while its run decides.

A *turn* is one response of a conversation. One that was paused, or that asks for a tool, leads to another request,
which uses up no attempt. An answer that does not fit its type or check fails its attempt, and the next one gives the
reason in the same conversation. While a step calls a function (`Call`), it holds no slot and no room.

## Modules

* `candidates` decides which of several steps with one result counts: races, hedges, steps that begin early.
* `conductor` decides which step is next: the longest remaining path first, slots, deadlines, retries.
* `admission/` decides whether there is room: the pacer (`pacing/`), the budget, the breakers, the leaders of the prompt
  cache, the key, the slots of the session.
* `requests` writes the requests and bounds the usage of each, `calls` has functions called between turns.
* `run` brings them together, settles reservations, and records the events.

## Laws

1. **Reserve, then send, then settle.** The worst case of a request is reserved before it leaves, and its usage replaces
   the reservation however it ends, so siblings never cross a cap together. Unknown usage counts as the worst case.
2. **Every launch is settled exactly once**, even if its request never left (`tests/engine/whole_book.py`).
3. **A decision depends on its inputs only**: no clock, no unseeded randomness, no hash order. The same inputs give the
   same run to the last bit, so a forecast can be trusted.
4. **A failure of a step is a result.** Only its descendants are skipped; a refused key or account ends the run.
5. **Asking again is free, waiting without an end is not allowed.** Each hold says when it ends; a hold that only
   another step can end says infinity, and ends when that step is settled.
6. **Time is monotonic and given**, on a grid of 2**-20 s (`record/events.py`), so durations add up exactly.

## Tried and lost

* *Two copies, one for live runs and one for forecasts*: each new reason to wait had to be written four times.
* *An asyncio engine on a virtual loop for forecasts*: 6.0 ms for a run of 100 agents, under 2 with a heap
  (`benchmarks/forecast.py`).
* *A queue per limit*: each gave another order, and the longest path stopped going first. Hence a line per class.
* *Retries inside the request's task*: a task that sleeps through a backoff holds its slot.
"""

# pyright: reportUnusedImport=false
from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.lazy_names import lazy_names

if TYPE_CHECKING:
    from agent_magic.engine.admission.breaker import Blame, BurnBreaker, ErrorBreaker, Fault
    from agent_magic.engine.admission.budget import Budget, Worst
    from agent_magic.engine.admission.gate import Gate
    from agent_magic.engine.admission.pool import Key, Pool, Seat
    from agent_magic.engine.admission.prefix import Prefixes
    from agent_magic.engine.alerts import episodes_of, rules_of
    from agent_magic.engine.calls import Call, Resources, Result
    from agent_magic.engine.conductor import Conductor
    from agent_magic.engine.contract import (
        Abort,
        Ask,
        Backoff,
        Begin,
        Done,
        Hold,
        Need,
        Outcome,
        Reopened,
        Send,
        Skipped,
        WakeAt,
    )
    from agent_magic.engine.expected import expected_work_s, kinds_of
    from agent_magic.engine.health import Health
    from agent_magic.engine.pacing.class_pacer import Ticket
    from agent_magic.engine.pacing.limits import NO_READINGS, Reading, Readings
    from agent_magic.engine.pacing.pacer import Pacer
    from agent_magic.engine.pacing.share import Share
    from agent_magic.engine.policy import Schedule
    from agent_magic.engine.queues import Order, Queues
    from agent_magic.engine.requests import PlanRequests
    from agent_magic.engine.retry import Failure, Slots, failure_of
    from agent_magic.engine.run import Engine

__getattr__ = lazy_names(
    __name__,
    {
        "Abort": "agent_magic.engine.contract",
        "Ask": "agent_magic.engine.contract",
        "Backoff": "agent_magic.engine.contract",
        "Begin": "agent_magic.engine.contract",
        "Blame": "agent_magic.engine.admission.breaker",
        "Budget": "agent_magic.engine.admission.budget",
        "BurnBreaker": "agent_magic.engine.admission.breaker",
        "Call": "agent_magic.engine.calls",
        "Conductor": "agent_magic.engine.conductor",
        "Done": "agent_magic.engine.contract",
        "Engine": "agent_magic.engine.run",
        "ErrorBreaker": "agent_magic.engine.admission.breaker",
        "Failure": "agent_magic.engine.retry",
        "Fault": "agent_magic.engine.admission.breaker",
        "Gate": "agent_magic.engine.admission.gate",
        "Health": "agent_magic.engine.health",
        "Hold": "agent_magic.engine.contract",
        "Key": "agent_magic.engine.admission.pool",
        "NO_READINGS": "agent_magic.engine.pacing.limits",
        "Need": "agent_magic.engine.contract",
        "Order": "agent_magic.engine.queues",
        "Outcome": "agent_magic.engine.contract",
        "Pacer": "agent_magic.engine.pacing.pacer",
        "PlanRequests": "agent_magic.engine.requests",
        "Pool": "agent_magic.engine.admission.pool",
        "Prefixes": "agent_magic.engine.admission.prefix",
        "Queues": "agent_magic.engine.queues",
        "Reading": "agent_magic.engine.pacing.limits",
        "Readings": "agent_magic.engine.pacing.limits",
        "Reopened": "agent_magic.engine.contract",
        "Resources": "agent_magic.engine.calls",
        "Result": "agent_magic.engine.calls",
        "Schedule": "agent_magic.engine.policy",
        "Seat": "agent_magic.engine.admission.pool",
        "Send": "agent_magic.engine.contract",
        "Share": "agent_magic.engine.pacing.share",
        "Skipped": "agent_magic.engine.contract",
        "Slots": "agent_magic.engine.retry",
        "Ticket": "agent_magic.engine.pacing.class_pacer",
        "WakeAt": "agent_magic.engine.contract",
        "Worst": "agent_magic.engine.admission.budget",
        "episodes_of": "agent_magic.engine.alerts",
        "expected_work_s": "agent_magic.engine.expected",
        "failure_of": "agent_magic.engine.retry",
        "kinds_of": "agent_magic.engine.expected",
        "rules_of": "agent_magic.engine.alerts",
    },
)
