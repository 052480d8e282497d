"""Requests on Dask workers, for more streams than one kernel can read.

```
kernel  engine ── Dask.send ── Fleet ── Link ═══ connection ═══ Serving ── Claude.send   worker
                                └── Cluster: who is there (Dask's scheduler)
```

The kernel decides: plan, limits, budget, ledger, prices and retries stay where they are, behind the seam to providers.
A worker makes one request for one stream and sends on what arrives, text at 10 Hz. Dask gives processes, addresses,
encryption, and news of who has come or gone. It is never given a request: it would repeat one without a word.

What breaks, and who notices:

* A worker is killed: its connection ends, in milliseconds. Its requests fail as cut connections do (`Unreachable`, sent
  or not), and the run's retry policy decides. Nothing is repeated below it.
* A worker hangs: it gives no sign of life, in time in which the kernel's loop was awake. After 3 s it gets no new
  requests, after 10 s it is given up: its requests fail, and the run goes on. Should it only have been cut off, it
  goes on too, and what it makes is paid for: its connection is kept while the run could use an answer, and an answer
  that comes is taken. Whichever of it and the request that was sent again comes first ends the other.
* The kernel is killed: the connection ends, and workers end what they make. Workers it
  has started end too.
* The kernel's loop is held up by a cell: nobody minds. Workers keep what arrives until it is read.
* An interrupt: the run cancels its requests, the workers are told, and stay.
* Somebody else scales the cluster: a worker that has our streams holds an actor, and Dask leaves it in its place.
"""
