"""Requests on Dask workers, for more streams than one kernel can read.

```
kernel  engine ── Dask.send ── Fleet ── Link ═══ connection ═══ Serving ── Claude.send   worker
                                └── Cluster: Dask's scheduler
```

The kernel decides everything. A worker makes one request per stream and forwards the response, text at 10 Hz. Dask
provides processes, addresses, encryption, and news of workers. It never gets a request, since it would silently repeat
one.

Failures:

* A worker is killed: its requests fail as broken connections (`Unreachable`, sent or not), and the run's retry policy
  decides.
* A worker hangs: without a sign of life while the kernel's loop is awake, it gets no new requests after 3 s, and its
  requests fail after 10 s. If it was only disconnected, its answers are paid for: its connection is kept while the run
  could use one.
* The kernel is killed: workers abort their requests, and workers started by it end.
* The kernel's loop is blocked by a cell: workers keep responses until they are read.
* Someone else scales the cluster: a worker with our streams holds an actor, and Dask does not retire it.
"""
