"""Requests on Dask workers, for more streams than one kernel can read.

```
kernel  engine ── Dask.send ── Fleet ── Link ═══ connection ═══ Serving ── Claude.send   worker
                                └── Cluster: Dask's scheduler
```

The kernel decides: plan, limits, budget, ledger, prices and retries stay in it. A worker makes one request per stream
and forwards the response, text at 10 Hz. Dask provides processes, addresses, encryption, and news of workers. It never
gets a request, since it would silently repeat one.

Failures:

* A worker is killed: its connection ends, in milliseconds. Its requests fail as broken connections (`Unreachable`, sent
  or not), and the run's retry policy decides. Nothing is repeated below it.
* A worker hangs: it gives no sign of life while the kernel's loop is awake. After 3 s it gets no new requests, after 10
  s its requests fail. If it was only disconnected, its answers are paid for: its connection is kept while the run could
  use one. The first of it and the repeated request ends the other.
* The kernel is killed: the connection ends, and workers abort their requests. Workers started by it end too.
* The kernel's loop is blocked by a cell: workers keep responses until they are read.
* An interrupt: the run cancels its requests, the workers are told, and stay.
* Someone else scales the cluster: a worker with our streams holds an actor, and Dask does not retire it.
"""
