"""The cassette: runs as a file to share. JSON lines, plain data only.

```
{"cassette": 1, "made_with": {"agent-magic": "0.1.0", "anthropic": "2.11.0", …}, "runs": 1, …}
{"run": 1, "plan": "agents", "recorded": "2026-11-21T10:00:00+00:00", "agents": 2, "calls": 2, "terms": {…}, …}
{"run": 1, "file": "<sha256 of a picture or document>", "data": "<base64>"}
{"run": 1, "agent": "python", "status": "succeeded", "events": [{"event": "AgentReady", "at_s": 0.0}], …}
{"run": 1, "agent": "python", "call": 1, "request": {…}, "answer": {…}, "started_s": 0.1, "ended_s": 2.2, …}
```

Lines
-----
The first line says what wrote the file. Then each run has a line, each of its agents a line with what happened before
its first request, and each request a line with what happened until the next. A picture or document that requests name
by its sha256 has one line, however many send it. There are no headers, keys or endpoints.

A line holds everything it needs and a checksum of itself. A damaged line costs only itself, a line that somebody edited
counts as damaged, and lines that are gone are counted. A line with a right checksum is still from a stranger: its
values are read into the classes the reader names, its times must be in order, its numbers such as a run can have.

Requests are matched by what was asked, never by a key in the file. If texts were left out or replaced when the file was
written, only the agents' names are left to go by.

Compatibility
-------------
The same runs make the same bytes. Fields that a reader does not know are skipped, fields that a file does not have take
their defaults, so older files open and newer ones of the same format do too. `FORMAT` is raised only for a change that
an old reader would misread; it then says "update agent-magic". Files of every release are kept in the tests.

`reading` has the values and the reader, `writing` the writer.
"""
