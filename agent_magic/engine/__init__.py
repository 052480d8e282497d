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

The live driver maps actions to asyncio tasks, the virtual driver pops a heap. A forecast, an estimate, a replay that is
completed and a test of a thousand agents use this same engine: everything that admits, reserves, settles or retries is
written here, once. The design is h11's: a protocol is a state machine that returns bytes, and other code has the
sockets. This one returns requests.

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
(`agent_magic.declare.flow`). Steps that do not need it continue, so a plan stays fixed while its run decides.

A *turn* is one response of a step's conversation: a response that was paused, or that asks for a tool, is no answer but
leads to another request, which uses up no attempt (`turns.py`). An answer that does not fit its type or its check also
leads to one, once: its attempt has failed, and the next one gives the reason in the same conversation. Between turns a
step may call a function (`Call`): until that ends it holds no slot and no room.

## Modules

* `conductor/` decides which step is next: ready steps, the longest expected remaining path first, slots, deadlines,
  retries, barriers. It asks the admission before it launches a step.
* `admission/` decides whether there is room: the pacer (`pacing/`), the budget, the breakers, the leaders of the prompt
  cache, the key, the slots of the session. All are asked before any of them reserves something, the pacer last, since
  its grants count.
* `requests.py` writes the requests and bounds the usage of each.
* `settlement.py` settles each request when it ends, `calls.py` has functions called between turns.
* `run.py` brings them together and records the events.

## Laws

1. **Reserve, then send, then settle.** The worst case of a request is reserved before it leaves, and its usage replaces
   the reservation however it ends. So concurrent siblings can never cross a cap together. Unknown usage counts as the
   worst case: it may have been billed.
2. **Every launch is settled exactly once**, even if its request never left. The books of `tests/engine/whole_book.py`
   find a slot, a ticket of the pacer or a reservation that leaks.
3. **A decision depends on its inputs only**: no clock, no unseeded randomness, no hash order. The same inputs give the
   same run to the last bit, so a forecast can be trusted.
4. **A failure of a step is a result.** Only its descendants are skipped; a refused key or account ends the run, since
   no other step can fare better.
5. **Asking again is free, waiting without an end is not allowed.** Each hold says when it ends; holds that only
   another step can end say infinity, and end when that step is settled.
6. **Time is monotonic and given.** Times are on a grid of 2**-20 s (`record/events.py`), so durations add up exactly.

## Tried and lost

* *Two copies, one for live runs and one for forecasts.* They agreed to the last bit, by constant work: each new reason
  to wait had to be written four times, and the tests compared copies.
* *An asyncio engine on a virtual loop for forecasts.* Right by construction, but 6.0 ms for a run of 100 agents, under
  2 with a heap (`benchmarks/forecast.py`).
* *A queue per limit.* Requests wait for several limits at once; queues gave each of them another order, and the longest
  path stopped going first. One line per model class, and one place that asks all limits, keeps the order.
* *Retries inside the request's task.* A task that sleeps through a backoff holds its slot; the conductor gives the slot
  to another step and puts this one back into its line.
"""
