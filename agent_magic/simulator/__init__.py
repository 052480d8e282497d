"""A mock server of the Messages API on 127.0.0.1, for offline use, tests and benchmarks.

It is a program of its own: `start` runs it as a child process, `python -m agent_magic.simulator` by hand. It imports no
other room, and this module imports nothing of the server, so that a client loads only the starter.

A request goes through `server` (HTTP), `request` (parsed and validated), `service` (limits, prompt cache), `answer`
(the text or the tool calls) and `response` (the bytes and their times), which `faults` may spoil.
"""

from agent_magic.simulator.child import Simulator, SimulatorError, start

__all__ = ["Simulator", "SimulatorError", "start"]
