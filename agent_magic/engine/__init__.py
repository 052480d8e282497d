r"""Deciding, without I/O: the whole life of a run.

# Theory of operation

An `Engine` (`run.py`) runs one plan. It has no clock, no tasks and no network. What happens goes in as a method call
with the time, actions for a driver come out, and a `RunRecord` grows:

```
driver -> engine   start  send  replied  began  first_token  ended  call_ended  counted  wake  room_changed
user   -> engine   stop  skip  retry  pause  resume
engine -> driver   Send  Call  Count  Abort  WakeAt  Done
engine -> record   AgentReady  AttemptStarted  FirstToken  AttemptEnded  BackoffStarted  AgentEnded  RunEnded ...
```

The live driver maps actions to asyncio tasks, the virtual driver pops a heap. A forecast, an estimate, a replay that is
completed and a test of a thousand agents turn this same engine: everything that admits, reserves, settles or retries is
written here, once. h11 showed the way: a protocol is a state machine that returns bytes, and the sockets are somebody
else's. Ours returns requests.

## States of a step

```
          parents done             slot, room              answer
PENDING ----------------> READY --------------> RUNNING -----------------> ENDED (succeeded, capped)
   |                        ^                      |  \------------------> ENDED (failed, cancelled)
   | an ancestor failed     |  time, next turn     |
   v                        +----- BACKOFF <-------+  a failure that another attempt can mend
ENDED (skipped, unused)
```

When its parents are done, a step may be left out: its condition is false, no item came for its place, its loop is over
(`agent_magic.declare.flow`). What can do without it goes on, so a plan stays fixed while its run decides.

A step is a model request today. A *turn* is one response of its conversation: a response that was paused, or that asks
for a tool, is no answer but leads to another request, which uses up no attempt (`turns.py`). So does an answer that
does not fit its type or its check, once: its attempt has failed, and the next one says in the same conversation why.
Between turns a step may have something done that is no request (`Call`): it then holds no slot and no room, and goes on
when that has ended.

## Who decides what

* `conductor/` decides who goes next: ready steps, the longest expected remaining path first, slots, deadlines,
  retries, barriers. It asks the admission before it lets a step go.
* `admission/` says whether there is room: the pacer (`pacing/`), the budget, the breakers, the leaders of
  the prompt cache, the key, the slots of the session. Everybody is asked before anything is taken, the pacer last,
  since what it grants is counted.
* `requests.py` writes the requests and bounds what each may use.
* `settlement.py` settles each request when it ends, `calls.py` has functions called between turns.
* `run.py` brings them together and records what happened.

## Laws

1. **Reserve, then send, then settle.** What a request may use at worst is reserved before it leaves, and what it has
   used replaces that when it ends, in whichever way. So siblings under way can never cross a cap together. Unknown
   usage counts as the worst case: it may have been billed.
2. **Every launch is settled exactly once**, also one whose request never left. A slot, a ticket of the pacer or a
   reservation that leaks is found by the books of `tests/engine/whole_book.py`.
3. **A decision depends on nothing but what came in**: no clock, no randomness that is not seeded, no order of a hash.
   The same inputs give the same run to the last bit, which is what makes a forecast worth anything.
4. **A failure of a step is a result.** Only its descendants are skipped; a refused key or account ends the run, since
   no other step can fare better.
5. **Asking again is free, waiting without an end is not allowed.** Each hold says until when; holds that only another
   step can end say infinity, and end when that step is settled.
6. **Time is monotonic and given.** Times are on a grid of 2**-20 s (`record/events.py`), so durations add up exactly.

## What was tried and lost

* *Two copies, one for live runs and one for forecasts.* They agreed to the last bit, by constant work: each new reason
  to wait had to be written four times, and the tests compared copies.
* *An asyncio engine on a virtual loop for forecasts.* Right by construction, but 6.0 ms for a run of 100 agents where
  a heap takes under 2 (`benchmarks/forecast.py`).
* *A queue per limit.* Requests wait for several limits at once; queues gave each of them another order, and the
  longest path stopped going first. One line per model class, and one place where everybody is asked, keeps the order.
* *Retries inside the request's task.* A task that sleeps through a backoff holds its slot; the conductor gives the slot
  to somebody else and puts the step back into its line.
"""
