"""A stand-in for the Messages API on 127.0.0.1: its own program, for offline use, tests and benchmarks.

The server is started as a child process with `start`, or by hand with `python -m agent_magic.simulator`. It imports no
other room of the package, and this module imports nothing of the server, so that a client pays only for the starter.
"""

from agent_magic.simulator.child import Simulator, SimulatorError, start

__all__ = ["Simulator", "SimulatorError", "start"]
