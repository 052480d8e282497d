"""Servers of tools with habits of their own, in plain JSON lines: `python mcp_odd.py HABIT`."""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}
HABIT = sys.argv[1]


def out(**message: Any) -> None:
    """Write a message."""
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def tools(calls: int) -> list[dict[str, Any]]:
    """Return the tools after so many calls."""
    names = [f"t{number}" for number in range(500)] if HABIT == "many" else ["echo"]
    names += ["late"] if HABIT == "changes" and calls else []
    return [{"name": name, "description": f"The tool {name}.", "inputSchema": SCHEMA} for name in names]


def main() -> None:
    """Answer until the input ends."""
    calls = 0
    for line in sys.stdin:
        asked = json.loads(line)
        method = asked.get("method")
        if HABIT == "chatty":
            print("listening on port 3000 ...\nready {", flush=True)
        if method == "initialize":
            version = asked["params"]["protocolVersion"]
            about = {"capabilities": {"tools": {"listChanged": True}}, "serverInfo": {"name": "odd", "version": "1"}}
            out(id=asked["id"], result={"protocolVersion": version, **about})
        elif method == "tools/list":
            out(id=asked["id"], result={"tools": tools(calls)})
            if HABIT == "deaf":  # and does not see that its input is closed
                threading.Event().wait()
        elif method == "tools/call":
            calls += 1
            if HABIT == "dies":
                os._exit(9)
            if HABIT == "changes":
                out(method="notifications/tools/list_changed")
            out(id=asked["id"], result={"content": [{"type": "text", "text": str(os.getpid())}], "isError": False})
        elif "id" in asked:
            out(id=asked["id"], error={"code": -32601, "message": "no such method"})


if __name__ == "__main__":
    main()
