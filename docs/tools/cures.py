"""What to do about each error. A message says it for its case; this is what the reference says of the class."""

from __future__ import annotations

from typing import Final

CURES: Final = {
    "AgentMagicError": "Read the message: it ends with the next step.",
    "DeclarationError": (
        "Mend the cell or the call that the message names; `.hint` has the nearest right spelling. Nothing was sent."
    ),
    "PlanError": "Mend the plan. `%agents plan` and `%agents lint` show it without spending anything.",
    "DuplicateAgent": "Give one of them another name. In a notebook a cell that is run again replaces its agent.",
    "UnknownAgent": "Write one of `.known`, or declare the agent. `%agents` lists what is declared.",
    "UnknownGroup": "Declare the agent with `--each`, or write one of `.known`.",
    "Cycle": (
        "Take one edge of `.cycle` out, write rounds as `--until ... --rounds N`, or run in declared order: "
        "`%config AgentMagics.on_cycle = 'sequential'`."
    ),
    "UndefinedVariable": (
        "Define the variable in a cell, or declare an agent of that name. Braces that are meant as text stand"
        " between `{% raw %}` and `{% endraw %}`."
    ),
    "UndefinedField": "Write one of `.known`, or add the field to the class that the agent returns.",
    "NotConnected": "Set `ANTHROPIC_API_KEY`, or `%agents connect simulator`, or `%agents replay FILE`.",
    "CannotNest": (
        "Use `%agents run` at the top of a cell, or `await plan.run()`; under `trio` or `uvloop` run it in a thread."
    ),
    "CallError": "Look at `run.attempts`: it has a row per request. `%agents error NAME` tells all of one agent.",
    "RateLimited": (
        "Nothing, mostly: it is waited for and asked again. Where `.final` is true the account may not spend "
        "more: raise its limit. `%agents limits` shows what was learned."
    ),
    "Overloaded": "Nothing, mostly: it is asked again. If it stays, `%agents run` later goes on where it ended.",
    "Rejected": "Mend what the message names: model, parameter, size, key. Asking again cannot help.",
    "LeftOut": "Check that endpoint's key and account; the others answer meanwhile.",
    "NotInBatch": "`%agents run` asks again what expired; leave `--batch` out to have it at once.",
    "Refused": "Word the prompt otherwise, or let another model answer. `.category` says what for, where the API does.",
    "Capped": "Raise `--max-tokens`, or ask for less. `--on-max-tokens` says whether what there is passes on.",
    "UnexpectedToolUse": "Give the agent the tool with `--tools`, or say in the prompt that there is none.",
    "InvalidAnswer": (
        "`run[NAME].text` has the answer. Describe the fields in the class, loosen the type or the check, "
        "then `%agents run --fresh`."
    ),
    "Escalated": "Nothing: the next model answers. `run.attempts` has both.",
    "Truncated": "Nothing, mostly: it is asked again. If it stays, look for a proxy that ends long responses.",
    "Unreadable": "Check `ANTHROPIC_BASE_URL`: a sign-in page or another API answers there.",
    "Unreachable": "Check the network, the proxy and `ANTHROPIC_BASE_URL`; `%agents run` goes on afterwards.",
    "Late": "Give it longer with `--timeout` or `--deadline`, or ask for less.",
    "InvalidArguments": (
        "Nothing: the model is told, and asks again. If it stays, say more in the tool's docstring and types."
    ),
    "NoValue": (
        "Look at `run[NAME]`: `.error` says why, `.text` has what came. Read it only where `.status` is `succeeded`."
    ),
    "BudgetExceeded": (
        "Raise `--budget`, or make it cheaper: `run.advise('dollars')`. `%agents run` buys only what is missing."
    ),
    "CassetteError": "Check the name; a file of a newer version needs a newer agent_magic. No file was changed.",
    "LedgerError": (
        "Name another file: `%config AgentMagics.ledger = 'FILE'`, or `'off'` for none. Nothing that was "
        "bought is lost."
    ),
    "SecretFound": (
        "Take out what `.findings` points at, and revoke the key if anybody has seen it. If it is none: `--allow MARK`."
    ),
    "ReplayMiss": "Undo the change that `.differences` names, or buy what is missing: `%agents replay FILE --fill`.",
    "RunFailed": (
        "`.failures` has the reason of each; mend it and `%agents run` again: what succeeded is not bought twice."
    ),
}
