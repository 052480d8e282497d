"""A mock server of the Messages API on 127.0.0.1, for offline use, tests and benchmarks. It imports no other room.

A request passes `program` (HTTP), `request` (parsing and validation), `service` (limits, prompt cache), `answer`
(blocks and citations) and `response` (bytes and their times, faults).
"""

from agent_magic.simulator.child import Simulator, SimulatorError, start

__all__ = ["Simulator", "SimulatorError", "start"]
