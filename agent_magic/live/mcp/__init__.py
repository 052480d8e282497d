"""Tool servers that speak the Model Context Protocol: a process on this machine, or an address.

```
%agents mcp files npx -y @modelcontextprotocol/server-filesystem .
%agents mcp --key-env CRM_KEY crm https://crm.example/mcp
%%agent librarian --tools files.*,crm.find
```

A session must be closed by the task that opened it, from any cell or run. So each has a task, on a loop in a separate
thread, and calls come from other loops.

| | `process` | `http` |
| --- | --- | --- |
| the session is lost | the process has ended: the user starts it again | the next call opens another one |
| a call was never received | cannot be known | it is repeated, once |
| a call may have been received | it has failed, and says so | the same |
"""

from agent_magic.live.mcp.server import CALL_S, McpError, McpServer

__all__ = ["CALL_S", "McpError", "McpServer"]
