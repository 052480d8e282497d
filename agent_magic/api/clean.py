"""A clean process, without keys, network or session: what replays there replays for a reader.

`python -m agent_magic.api.clean` reads plans and a cassette as JSON, and writes the fingerprints of the replays'
frames.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_magic.api.plan import Plan
from agent_magic.declare.plan_json import plan_to_dict
from agent_magic.errors import AgentMagicError
from agent_magic.machine import in_browser
from agent_magic.measure.frames import fingerprint
from agent_magic.providers.recorded import Deck
from agent_magic.record.cassette.reading import read_cassette
from agent_magic.record.secret_scan import secrets_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent_magic.declare.plan import Plan as DeclaredPlan

PATIENCE_S = 300.0
NETWORK = frozenset({"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"})
"""The audit events of what would leave the process."""
OURS = ("ANTHROPIC_", "CLAUDE_", "AGENT_MAGIC_")


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without keys of providers and without our settings."""
    secrets = secrets_of(environment)
    return {
        name: value
        for name, value in environment.items()
        if value not in secrets and not name.startswith(OURS) and not name.lower().endswith("_proxy")
    }


def block_network() -> None:
    """Block the network for this process, for good."""
    sys.addaudithook(_refuse)


def _refuse(event: str, _: tuple[Any, ...]) -> None:
    if event in NETWORK:
        raise PermissionError(f"a clean replay reaches no network ({event})")


def fingerprints(
    plans: Sequence[DeclaredPlan], cassette: Path, *, timeout_s: float, texts: bool = True
) -> list[dict[str, str]]:
    """Replay plans in a clean process, in a browser in this one, and return the fingerprints of their frames."""
    rows = [{"plan": plan_to_dict(plan)} for plan in plans]
    task = json.dumps({"plans": rows, "cassette": str(cassette), "timeout_s": timeout_s, "texts": texts})
    if in_browser():
        return _replayed(json.loads(task))
    done = subprocess.run(
        [sys.executable, "-m", "agent_magic.api.clean"],
        input=task,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env=clean_environment(os.environ),
    )
    if done.returncode:
        why = (done.stderr.strip() or "no error was printed").splitlines()[-1]
        raise AgentMagicError(f"The replay failed in a clean process: {why}")
    return json.loads(done.stdout)


def main() -> int:
    """Replay what standard input names."""
    block_network()
    task: dict[str, Any] = json.load(sys.stdin)
    try:
        found = _replayed(task)
    except AgentMagicError as error:
        print(error, file=sys.stderr)  # noqa: T201 - for the process that asked
        return 1
    json.dump(found, sys.stdout)
    return 0


def _replayed(task: Mapping[str, Any]) -> list[dict[str, str]]:
    deck = Deck(read_cassette(Path(task["cassette"])))
    plans = [Plan.from_dict(row["plan"]) for row in task["plans"]]
    played = [deck.play(plan, timeout_s=task["timeout_s"]) for plan in plans]
    return [fingerprint(record, texts=task["texts"]) for record in played]


if __name__ == "__main__":
    sys.exit(main())
