"""A mock server of the Messages API on 127.0.0.1, for offline use, tests and benchmarks.

`start` runs it as a child process, `python -m agent_magic.simulator` by hand. It imports no other room; this module
imports only the starter.

A request passes `server` (HTTP), `request` (parsing and validation, with `conversation`, `tools`, `content` and
`thinking`), `service` (limits, prompt cache), `answer` (blocks and citations, with `calls` and `server_tools`) and
`response` (bytes and their times), which `faults` may change.
"""

from agent_magic.simulator.child import Simulator, SimulatorError, start

__all__ = ["Simulator", "SimulatorError", "start"]
