"""The pacer keeps requests inside the provider's rate limits, nearly without being told them.

```
ask --- Hold(reason, until_s): ask again then, and whenever an answer came
 |
 `- Ticket --- heard(readings) --- finished(usage)       usage None: failed, or not known
      |
      `------- refused(retry_after, limit, readings)     429
```

**The server.** A rate limit is a token bucket: it refills at `limit / 60` a second, holds some unannounced
capacity, and refuses requests it has no room for. Requests and uncached input are taken at admission. Output is taken
as it is produced, `max_tokens` is not reserved, and a request is admitted while any is left. Models of one class share
their buckets. A refusal takes nothing and says in whole seconds when to come back; earlier retries fail. A 529 says
nothing of our own limits. (Source: the vendor's page on rate limits.)

**The pacer.** One idea for each unknown:

* *The level* (`bucket`). Dead reckoning: a request takes its share when it leaves, `remaining` of each response
  corrects the rest. The response may have been computed at any time between sending and hearing, so only what lies
  outside the levels at both ends is news.
* *The capacity* (`bucket`). The most that was ever seen certainly fits. Something larger waits until the bucket is
  full, and the rest is owed.
* *What others use* with the same key (`bucket`). What goes missing without explanation, smoothed, is taken from the
  expected refill, up to half of the limit, or two pacers would starve each other. Kernels that tell each other divide
  the limit (`share`).
* *How long answers are* (`bucket`). Expectations are corrected by what answers used. By Little's law as much
  output may be under way as flows in while it is.
* *An unannounced limit* (`window`). One request, as through a half-open circuit breaker, until a reply begins or half a
  second has passed; then slow start by time, since refusals come at once and silence is good news. What passes between
  two refusals is what flows in: the inferred limit. From then on it is a bucket like any other, and is probed.
* *How many may run at once* (`concurrency`), if a server refuses more and says nothing. It refuses with the full number
  under way, at any rate; a limit of a rate refuses at any number. Log odds of the two are kept.
* *How many in a minute* (`window`), if a small gateway counts them and says nothing. It admits the number at any pace,
  then none until its minute is over, while a bucket would soon admit the next one. Believed, no more are sent within
  any minute: right whenever its minutes begin.
* *Refusals without a limit* (`window`): of a proxy, or injected. They come at any load; a limit refuses nothing while
  less leaves than has passed before. After two that say otherwise, refusals are taken for chance: they lower nothing
  and hold no other request, until more are refused than that chance explains.

Four laws hold over all of it (`class_pacer`):

1. Nothing leaves before the server's `retry-after` is over; without one the wait is a second and doubles. Where a
   server only had no place, or refuses by chance, a wait of a second is that request's own.
2. Savings are spent ever more slowly, so nothing leaves in a clump, also after a refusal.
3. Who asks first goes first. What flows in is saved for it, however large it is; queues take turns.
4. No hold ends at a time that has come: a caller that asks again then would ask for ever.

**States of a limit.** `None` (unknown) becomes `announced` by the first reading, or `inferred` by the first refusal
that no announced limit explains; `given` is the user's. An announced limit takes the place of an inferred one, unless
the lower one was inferred beside it. Across sessions limits are remembered, levels fade within a minute, and the first
reading is believed over both.

**Tried and lost**, in the benchmark (`benchmarks/rates.py`):

* *A semaphore with retries*: 10 % refused in its table of large requests, and 107 small ones go before a large one.
* *Only mirroring, without room for others*: two pacers on one key share 0.41 to 0.86 in place of even halves.
  *Correcting the level without an expected external rate*: the same, with three to eight times the refusals.
* *AIMD on requests under way* without an announced limit: it needs round trips of answers to learn as much as one
  refusal tells. 0.72 of an unannounced output limit, 17 to 25 % refused if one limit of three was announced.
* *Lowering the inferred limit at each refusal*: by then our own pace decides how much passes between two, so if chance
  refuses four in a hundred 0.05 of the limit is used. *Trying more by the time alone*: of 60 a minute one in fourteen
  was refused, so a limit is kept for a number of requests.
* *A refusal that fits a limit as proof of it*, though it came while the limit was kept: chance fits as well. One of
  twelve draws stayed at 0.03 to 0.5 of the true limit.
* *A long `retry-after` as evidence of minutes*: proxies say ten times too much.
* *Taking the first refusal for a limit of requests at once*: learned 5 s sooner, 0.5 to 5 % more refused by rate
  limits. *Refusals a little below that number as evidence for it*: they lower the number and prove nothing.
* *A pace that is halved by refusals*, beside the buckets: an inferred limit says the same, in requests per minute.
* *Passing a large request before the bucket is full*: 4 % of those of 70 % of a bucket refused, 0.91 of the limit used
  in place of 0.94.
* *Watching how much of each answer has arrived*: better in one case, and forecasts could not repeat it.
* *Bounds of the capacity from `reset`*, *dating each response*, *variances learned per request*, *shrinking the
  capacity* after large ones: no difference above the noise.
"""
