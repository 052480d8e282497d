"""The cassette: runs as a file to share. JSON lines, plain data only.

```
{"cassette": 1, "made_with": {"agent-magic": "0.1.0", "anthropic": "2.11.0", …}, "runs": 1, …}
{"run": 1, "plan": "agents", "recorded": "2026-11-21T10:00:00+00:00", "agents": 2, "calls": 2, "terms": {…}, …}
{"run": 1, "file": "<sha256 of a picture or document>", "data": "<base64>"}
{"run": 1, "agent": "python", "status": "succeeded", "events": [{"event": "AgentReady", "at_s": 0.0}], …}
{"run": 1, "agent": "python", "call": 1, "request": {…}, "answer": {…}, "started_s": 0.1, "ended_s": 2.2, …}
```

An agent's line has its events before its first request, a request's line those until the next. There are no headers,
keys or endpoints. Each line has a checksum, so a damaged or edited line costs only itself. A valid checksum does not
make a line trustworthy: values are read into classes chosen by the reader, and must be possible in a run. Requests are
matched by their content, never by a key in the file; if texts were removed or replaced, by the agents' names.

The same runs make the same bytes. `FORMAT` is raised only for changes that an old reader would misread, since readers
skip unknown fields and have defaults for missing ones.
"""
