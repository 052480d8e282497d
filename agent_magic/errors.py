"""Every error this package raises, on one page.

```
AgentMagicError
├─ DeclarationError       a declaration cannot be read                 .agent .hint
├─ PlanError              the plan is wrong; nothing was spent
│  ├─ DuplicateAgent      two agents of one name                       .agent
│  ├─ UnknownAgent        a parent that nobody declared                .agent .known
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

import difflib
import linecache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import TracebackType

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
    "Unreachable",
    "Unreadable",
]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ` Did you mean 'x'?` for the nearest known word, or an empty string."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


MOST_LINES = 15
"""No error is longer on the screen."""
_LONGEST_LINE = 500


def shown_message(error: BaseException, most: int = MOST_LINES) -> str:
    """Return an error's message, its middle left out where it has more than `most` lines."""
    lines = [line if len(line) <= _LONGEST_LINE else line[:_LONGEST_LINE] + " …" for line in str(error).splitlines()]
    if len(lines) > most:
        keep = most - 3
        lines = [*lines[:keep], f"  … {len(lines) - keep - 2} more lines …", *lines[-2:]]
    return "\n".join(lines)


def shorten_path(names: Sequence[str], most: int = 10) -> str:
    """Write a path as `a -> b -> c`, its middle left out where it has more than `most` steps."""
    if len(names) > most:
        names = [*names[: most - 2], f"({len(names) - most + 1} more)", *names[-1:]]
    return " -> ".join(names)


class AgentMagicError(Exception):
    """The root of the tree: catch this to catch all of them."""

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows in a cell: the message, and the user's line. The frames in here say nothing."""
        message = f"{type(self).__name__}: {shown_message(self, MOST_LINES - 2)}"
        place = _users_line(self.__traceback__)
        return [message, "", place] if place else [message]


def _users_line(trace: TracebackType | None) -> str:
    """Return the innermost line outside this package, and outside the libraries beneath it."""
    here, found = str(Path(__file__).parent), ""
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if name.startswith(here):
            break
        line = linecache.getline(name, trace.tb_lineno).strip()
        found = f"----> {trace.tb_lineno} {line}" if line else found
        trace = trace.tb_next
    return found


class DeclarationError(AgentMagicError):
    """A declaration cannot be read."""

    def __init__(self, message: str, *, agent: str | None = None, hint: str = "") -> None:
        super().__init__(f"{message} {hint}".strip())
        self.agent = agent
        self.hint = hint


class PlanError(AgentMagicError):
    """The plan is wrong. Nothing was spent."""


class DuplicateAgent(PlanError):
    """Two agents of one plan have the same name."""

    def __init__(self, agent: str) -> None:
        super().__init__(f"Two agents are named {agent!r}. Names are keys: rename one of them.")
        self.agent = agent


class UnknownAgent(PlanError):
    """An agent is named that nobody declared."""

    def __init__(self, agent: str, *, known: Iterable[str], wanted_by: str | None = None) -> None:
        self.agent = agent
        self.known = tuple(known)
        self.wanted_by = wanted_by
        who = f"Agent {wanted_by!r} waits for {agent!r}, which" if wanted_by else f"Agent {agent!r}"
        hint = did_you_mean(agent, self.known) or " Declare it, or take the name out."
        super().__init__(f"{who} is not declared.{hint}")


class UnknownGroup(PlanError):
    """An agent is named that was not declared for each item of a value."""

    def __init__(self, group: str, *, known: Iterable[str]) -> None:
        self.group = group
        self.known = tuple(known)
        hint = did_you_mean(group, self.known) or " Declare it with --each, or each=."
        super().__init__(f"No agent {group!r} was declared for each of something.{hint}")


class Cycle(PlanError):
    """Agents wait for each other, so none of them can start."""

    def __init__(self, cycle: Sequence[str]) -> None:
        self.cycle = tuple(cycle)
        super().__init__(
            f"These agents wait for each other: {shorten_path(self.cycle)}. Take one of these edges out, "
            "or run in declared order with on_cycle='sequential' (%config AgentMagics.on_cycle = 'sequential')."
        )


class UndefinedVariable(PlanError):
    """A prompt names something that is neither an agent nor a value."""

    def __init__(
        self, variable: str, *, agent: str = "", user: str = "", known: Iterable[str] = (), what: str = ""
    ) -> None:
        self.variable = variable
        self.agent = agent
        otherwise = f"declare it with %%context {variable}" if what else "declare an agent of that name"
        hint = did_you_mean(variable, known) or f" Define it in a cell{'' if user else f', or {otherwise}'}."
        used = f"{what} {variable!r}" if what else f"{{{{ {variable} }}}}"
        super().__init__(f"{user or f'Agent {agent!r}'} uses {used}, which is not defined.{hint}")


class NotConnected(AgentMagicError):
    """There is no key, and neither the stand-in nor a recording was chosen."""

    def __init__(self) -> None:
        super().__init__(
            "No API key found, so nothing was sent. Choose one:\n"
            "  with a key   set ANTHROPIC_API_KEY before the kernel starts (or: import os, getpass; "
            "os.environ['ANTHROPIC_API_KEY'] = getpass.getpass())\n"
            "  offline      %agents connect simulator     # made-up answers, labelled as simulated\n"
            "  a recording  %agents replay FILE           # somebody's recorded run, no key, no network"
        )


class CannotNest(AgentMagicError):
    """A blocking call was made where the running loop cannot be entered again."""


class CallError(AgentMagicError):
    """One attempt failed.

    Attributes:
        partial: The text that had arrived, or an empty string.
    """

    def __init__(self, message: str, *, partial: str = "") -> None:
        super().__init__(message)
        self.partial = partial


class RateLimited(CallError):
    """429: a limit of this key was reached."""

    def __init__(
        self, message: str, *, retry_after_s: float | None = None, limit: str | None = None, final: bool = False
    ) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.limit = limit
        self.final = final


class Overloaded(CallError):
    """5xx or 529: the service failed or is full. It says nothing about our own limits."""

    def __init__(
        self, message: str, *, status: int | None = None, retry_after_s: float | None = None, partial: str = ""
    ) -> None:
        super().__init__(message, partial=partial)
        self.status = status
        self.retry_after_s = retry_after_s


class Rejected(CallError):
    """4xx: the request is wrong, and sending it again cannot help."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class Refused(CallError):
    """The model declined to answer."""

    def __init__(self, message: str, *, category: str | None = None, partial: str = "") -> None:
        super().__init__(message, partial=partial)
        self.category = category


class Capped(CallError):
    """The answer was cut at `max_tokens`, and the policy does not pass such answers on."""


class Truncated(CallError):
    """The stream ended without a `stop_reason`: a cut answer, never a success."""


class Unreadable(CallError):
    """A reply came that is not the API's: a web page, broken JSON, wrong bytes."""


class Unreachable(CallError):
    """No connection, or it broke."""


class Late(CallError):
    """The agent's deadline passed, or the run's."""

    def __init__(self, deadline_s: float, *, of_run: bool = False, partial: str = "") -> None:
        whose, option = ("the run's ", "--deadline") if of_run else ("", "--timeout")
        super().__init__(
            f"No complete answer within {whose}{deadline_s:g} s. Give it longer with {option}, or ask for less.",
            partial=partial,
        )
        self.deadline_s = deadline_s


class CassetteError(AgentMagicError):
    """A file is no cassette, or of a format this version does not know."""


class LedgerError(AgentMagicError):
    """The ledger cannot be opened, read or written. Nothing that was bought is lost by it.

    Attributes:
        unwritable: Whether the place is at fault, not the file: another place will do.
    """

    def __init__(self, message: str, *, unwritable: bool = False) -> None:
        super().__init__(message)
        self.unwritable = unwritable


class SecretFound(AgentMagicError):
    """What is to be shared holds something that looks like a key. Nothing was written.

    Attributes:
        findings: Where it is and what it looks like, one line each; never the secret itself.
    """

    def __init__(self, findings: Sequence[str], *, what: str) -> None:
        self.findings = tuple(findings)
        lines = [f"  {line}" for line in self.findings[:8]]
        more = [f"  and {len(self.findings) - 8} more"] if len(self.findings) > 8 else []
        places = "1 place looks" if len(self.findings) == 1 else f"{len(self.findings)} places look"
        super().__init__(
            "\n".join(
                [
                    f"{what} was not written: {places} like a key.",
                    *lines,
                    *more,
                    "Take it out, and revoke the key if anybody has seen it; a past run stays out with --last.",
                    "If it is none, add --allow MARK.",
                ]
            )
        )


class ReplayMiss(AgentMagicError):
    """An agent asks for something that was not recorded. Nothing was sent.

    Attributes:
        agent: The agent that asked.
        nearest: The recorded agent that comes nearest, or `None`.
        differences: Per field that differs, what was recorded and what is asked. Prompts stay out of the message.
        damaged: Whether a line about it is damaged.
        others: How many more agents miss their recording, or wait for one that does.
    """

    def __init__(
        self,
        agent: str,
        *,
        nearest: str | None,
        differences: Mapping[str, tuple[object, object]],
        damaged: bool = False,
        others: int = 0,
    ) -> None:
        self.agent, self.nearest, self.differences = agent, nearest, dict(differences)
        self.damaged, self.others = damaged, others
        if damaged:
            why = f"lines about {nearest or agent!r} are damaged or gone"
        elif nearest is None:
            why = "the recording has nothing like it"
        else:
            fields = ", ".join(_difference(name, *values) for name, values in self.differences.items())
            why = f"the nearest recorded call, of {nearest!r}, differs in {fields or 'nothing, but was served already'}"
        more = f" {others} more depend on it or miss too." if others else ""
        super().__init__(
            f"Agent {agent!r} asks for what was never recorded: {why}.{more} Nothing was sent. Undo the change, buy "
            "what is missing (%agents replay FILE --fill), or run it with a key (%agents connect api)."
        )

    def beside(self, others: int) -> ReplayMiss:
        """Return the same miss, with so many more beside it."""
        return ReplayMiss(
            self.agent, nearest=self.nearest, differences=self.differences, damaged=self.damaged, others=others
        )


def _difference(name: str, recorded: object, asked: object) -> str:
    """Say how two values of a field differ. Of long texts, which may be private, only where."""
    if not isinstance(recorded, str) or not isinstance(asked, str) or name in {"model", "effort"}:
        return f"{name} ({_short(recorded)} recorded, {_short(asked)} asked)"
    pairs = zip(recorded, asked, strict=False)
    place = next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(recorded), len(asked)))
    return f"{name} (from character {place + 1:,} on; {len(recorded):,} recorded, {len(asked):,} asked)"


def _short(value: object) -> str:
    if value is None:
        return "none"
    return f"{len(value):,} characters" if isinstance(value, str) and len(value) > 60 else repr(value)


class RunFailed(AgentMagicError):
    """Some agents of a run did not succeed. Raised only when asked for."""

    def __init__(self, failures: Mapping[str, str]) -> None:
        self.failures = dict(failures)
        lines = [f"  {name}: {why}" for name, why in list(self.failures.items())[:10]]
        more = len(self.failures) - len(lines)
        tail = [f"  and {more} more"] if more > 0 else []
        head = (
            "1 agent did not succeed:" if len(self.failures) == 1 else f"{len(self.failures)} agents did not succeed:"
        )
        next_ = "%agents error NAME tells all that is known of one; so does run[NAME].attempts."
        super().__init__("\n".join([head, *lines, *tail, next_]))
