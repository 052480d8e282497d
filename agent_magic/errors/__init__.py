"""Every error this package raises, on one page.

```
AgentMagicError
├─ DeclarationError       a declaration cannot be read                 .agent .hint
├─ PlanError              the plan is wrong; nothing was spent
│  ├─ DuplicateAgent      two agents of one name                       .agent
│  ├─ UnknownAgent        a parent that nobody declared                .agent .known
│  ├─ UnknownGroup        a name not declared for each of something    .group .known
│  ├─ Cycle               agents that wait for each other              .cycle
│  └─ UndefinedVariable   a template name that has no value            .variable .agent
├─ NotConnected           no key, no stand-in, no recording chosen
├─ CannotNest             a blocking call where the loop cannot nest
├─ CallError              one attempt failed                           .partial
│  ├─ RateLimited         429                                          .retry_after_s .limit
│  ├─ Overloaded          5xx, 529: the service, not us                .status .retry_after_s
│  ├─ Rejected            4xx: sending it again cannot help            .status
│  ├─ Refused             the model declined                           .category
│  ├─ Capped              the answer was cut at `max_tokens`
│  ├─ Truncated           the stream ended without a `stop_reason`
│  ├─ Unreadable          a reply that is not the API's
│  ├─ Unreachable         no connection, or it broke
│  └─ Late                the deadline passed                          .deadline_s
├─ CassetteError          a file is no cassette
├─ LedgerError            the ledger cannot be opened, read or written
├─ SecretFound            what is to be shared looks like it holds a key .findings
├─ ReplayMiss             a call was never recorded                    .agent .nearest .differences .others
└─ RunFailed              raised only by `run.raise_for_failures()`    .failures
```

A message says what happened, shows the offending value with `!r`, and says what to do next. The same facts are
attributes. Prompts and keys never enter a message.
"""

from __future__ import annotations

from agent_magic.errors.declared import (
    Cycle,
    DeclarationError,
    DuplicateAgent,
    PlanError,
    UndefinedVariable,
    UnknownAgent,
    UnknownGroup,
)
from agent_magic.errors.kept import CassetteError, LedgerError, ReplayMiss, SecretFound
from agent_magic.errors.root import AgentMagicError, did_you_mean, shown_message, shown_value
from agent_magic.errors.running import (
    CallError,
    CannotNest,
    Capped,
    Late,
    NotConnected,
    Overloaded,
    RateLimited,
    Refused,
    Rejected,
    RunFailed,
    Truncated,
    Unreachable,
    Unreadable,
)

__all__ = [
    "AgentMagicError",
    "CallError",
    "CannotNest",
    "Capped",
    "CassetteError",
    "Cycle",
    "DeclarationError",
    "DuplicateAgent",
    "Late",
    "LedgerError",
    "NotConnected",
    "Overloaded",
    "PlanError",
    "RateLimited",
    "Refused",
    "Rejected",
    "ReplayMiss",
    "RunFailed",
    "SecretFound",
    "Truncated",
    "UndefinedVariable",
    "UnknownAgent",
    "UnknownGroup",
    "Unreachable",
    "Unreadable",
    "did_you_mean",
    "shown_message",
    "shown_value",
]

for _name in __all__:  # a traceback and a pickle name them as people import them, whichever page they stand on
    globals()[_name].__module__ = __name__
