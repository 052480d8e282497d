"""The command line: `agent-magic simulate`."""

from __future__ import annotations

import argparse
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING

from agent_magic.simulator.program import main as simulate

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return its exit status."""
    given = list(sys.argv[1:] if argv is None else argv)
    if given[:1] == ["simulate"]:
        return simulate(given[1:])
    parser = argparse.ArgumentParser(prog="agent-magic", description="Concurrent Claude agents in notebooks.")
    parser.add_argument("--version", action="version", version=f"agent-magic {version('agent-magic')}")
    commands = parser.add_subparsers(title="commands", required=True)
    commands.add_parser("simulate", help="serve the stand-in Messages API on 127.0.0.1", add_help=False)
    parser.parse_args(given)
    return 2


if __name__ == "__main__":
    sys.exit(main())
