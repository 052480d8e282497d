"""The ledger: everything that was bought, in one private SQLite file. Nothing paid for is lost or bought twice.

The laws
--------
1. **A complete answer is committed before it is shown, priced or passed on.** An identical request is then served for
   $0, in this run, the next kernel or another process.
2. **A start is committed before its request is sent.** A call that is `started` and has no end may have been billed,
   and the next run says so.
3. **If the start cannot be committed, nothing is sent.** If an answer cannot be committed it is shown all the same,
   served from memory, and written as soon as the file takes it; the user is told.
4. **The event loop never waits long.** See "Who writes when".
5. **Nobody else's file is changed.** A device, another program's database, a text or another user's file is refused
   before it is touched. Ours is readable for its owner only.

Who writes when
---------------
The live driver calls a run's `Journal` on the event loop: `ask` before a request (it serves the answer, says that
another run is buying it, or takes a lease and commits the start), `keep` and `on_disk` when the answer is complete,
`write` after a failure, `close` at the end. Each commits all that is new in one transaction, and what starts or ends in
one turn of the loop shares one: it takes a third off the time of ten thousand rows. With a write-ahead log a commit
takes 0.1 ms and no `fsync`; a thread does the `fsync`, shared by all who wait in `on_disk`, and only then is the answer
shown. A heartbeat thread renews leases and checkpoints the log; another writes answers of more than 256 KB.

Another process that holds the file locked is normal for milliseconds. The first commit that meets it waits 50 ms, the
following ones not at all: `ask` says `Busy`, `on_disk` tries again, and both give up after 30 s. What `close` cannot
write the heartbeat writes later.

After a kill
------------
The write-ahead log outlives the process, so every commit does. The next run marks the runs of dead processes as lost,
frees their leases and notes what may have been billed. `open` completes such a run: finished answers, and the reason
why others are missing.

Damage
------
Rows of `answers` carry a mark, their key and a checksum. A damaged answer is never served. A damaged file is renamed
with its log, a new one begins in its place, and every intact answer comes over; see `maintenance`.

Tried and lost
--------------
* `synchronous=FULL`: an `fsync` on the loop for every answer, 3.4 ms each instead of one shared by all that arrive.
* Writing on a thread throughout: between the reply and the commit a stop could find an answer without an owner.
* Trusting SQLite's word that a network file system carries a write-ahead log: the first write failed.
* Leases by wall clock: a laptop that woke up lost them, and a clock a day ahead took them over.
* Opening the file to look at it: closing it drops the locks of this process's own connection (SQLite's "How to
  corrupt", 2.2), and another process then deletes the log.
* A parser of SQLite's pages for recovery. SQLite reads them itself if they are put in the right place.
"""
