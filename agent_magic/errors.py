"""Every error this package raises, on one page.

```
AgentMagicError
├─ DeclarationError       a declaration cannot be read                 .agent .hint
├─ PlanError              the plan is wrong; nothing was spent
│  ├─ DuplicateAgent      two agents with one name                     .agent
│  ├─ UnknownAgent        no agent of this name                        .agent .known
│  ├─ UnknownGroup        no agent of this name declared with --each   .group .known
│  ├─ Cycle               agents that wait for each other              .cycle
│  ├─ UndefinedVariable   a template variable without a value          .variable .agent
│  └─ UndefinedField      a typed answer has no such field             .field .agent .known
├─ NotConnected           no API key, mock server or recording chosen
├─ CannotNest             a blocking call inside a loop that cannot nest
├─ CallError              one attempt failed                           .partial
│  ├─ RateLimited         429                                          .retry_after_s .limit .final .again
│  ├─ Overloaded          5xx, 529: the service failed                 .status .retry_after_s
│  ├─ Rejected            4xx: the request is wrong                    .status
│  ├─ LeftOut             an endpoint refuses us; others are asked     .endpoint
│  ├─ NotInBatch          a batch ended without an answer to it        .again
│  ├─ Refused             the model declined to answer                 .category
│  ├─ Capped              the answer was cut at `max_tokens`
│  ├─ UnexpectedToolUse   the model asks for a tool that is not there
│  ├─ InvalidAnswer       the answer does not fit its type, or check   .mendable
│  ├─ Escalated           the next model of a cascade is to answer
│  ├─ Truncated           the stream ended without a `stop_reason`
│  ├─ Unreadable          the response is not one of the API
│  ├─ Unreachable         no connection, or it broke                   .sent
│  └─ Late                a deadline passed                            .deadline_s
├─ InvalidArguments       a tool, or a task, cannot take these arguments
├─ NoValue                an agent that did not succeed has no value   .agent
├─ BudgetExceeded         the budget has no room for the next request; in `run.agents`, never raised
├─ CassetteError          a cassette cannot be read or written
├─ LedgerError            a ledger cannot be opened, read or written   .unwritable
├─ SecretFound            a file to be shared seems to hold a key      .findings
├─ ReplayMiss             a request that was never recorded            .agent .nearest .differences .others
└─ RunFailed              raised only by `run.raise_for_failures()`    .failures
```

A message says what happened, shows the offending value with `!r`, and says what to do next. The same facts are
attributes. Prompts and keys never enter a message.
"""

from __future__ import annotations

import difflib
import linecache
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from types import TracebackType

_MOST_LINES = 15
"""No error is longer on the screen."""
_LONGEST_LINE = 500
_LONGEST_VALUE = 80
_MOST_FINDINGS = 8
_MOST_FAILURES = 10
_MOST_NAMES = 4


def did_you_mean(word: object, known: Iterable[object], *, alike: float = 0.6) -> str:
    """Return ` Did you mean 'x'?` for the nearest known word, or an empty string if none is near."""
    words = [one for one in known if isinstance(one, str)]
    near = difflib.get_close_matches(word, words, n=1, cutoff=alike) if isinstance(word, str) else []
    return f" Did you mean {near[0]!r}?" if near else ""


def shown_value(value: object) -> str:
    """Return a value on one line, cut if it is long."""
    text = " ".join(repr(value).split())
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def shown_message(error: BaseException, most: int = _MOST_LINES) -> str:
    """Leave out the middle of a message that has more than `most` lines."""
    lines = [line if len(line) <= _LONGEST_LINE else line[:_LONGEST_LINE] + " …" for line in str(error).splitlines()]
    if len(lines) > most:
        keep = most - 3
        lines = [*lines[:keep], f"  … {len(lines) - keep - 2} more lines …", *lines[-2:]]
    return "\n".join(lines)


class AgentMagicError(Exception):
    """The root of the tree: catch this to catch every error. Each can be pickled, with its attributes."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), self.args), self.__dict__

    def _render_traceback_(self) -> list[str]:
        """Return the message and the user's line, without frames of this package, for IPython."""
        message = f"{type(self).__name__}: {shown_message(self, _MOST_LINES - 2)}"
        place = _users_line(self.__traceback__)
        return [message, "", place] if place else [message]


def _rebuilt(kind: type[AgentMagicError], args: tuple[Any, ...]) -> AgentMagicError:
    """Rebuild an error from its message, without the arguments of `__init__`."""
    return kind.__new__(kind, *args)


def _users_line(trace: TracebackType | None) -> str:
    """Return the last line before the traceback enters this package."""
    here, found = str(Path(__file__).parent) + os.sep, ""
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if name.startswith(here):
            break
        line = linecache.getline(name, trace.tb_lineno).strip()
        found = f"----> {trace.tb_lineno} {line}" if line else found
        trace = trace.tb_next
    return found


# Before a run


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
    """A name stands for no agent of the plan, or of the run."""

    def __init__(
        self,
        agent: object,
        *,
        known: Iterable[str],
        wanted_by: str | None = None,
        in_run: bool = False,
        groups: Collection[object] = (),
    ) -> None:
        self.agent = agent
        self.known = tuple(known)
        self.wanted_by = wanted_by
        meant = did_you_mean(agent, self.known)
        if isinstance(agent, str) and agent in groups:
            answers = f", and run.each({agent!r}) has all answers" if in_run else ""
            first = next((name for name in self.known if name.startswith(f"{agent}_")), f"{agent}_0")
            super().__init__(f"{agent!r} is a group of agents, such as {first!r}{answers}.")
            return
        if in_run:
            super().__init__(f"The run has no agent {agent!r}.{meant or _has(self.known)}")
            return
        who = f"Agent {wanted_by!r} waits for {agent!r}, which" if wanted_by else f"Agent {agent!r}"
        super().__init__(f"{who} is not declared.{meant or ' Declare it, or take the name out.'}")


class UnknownGroup(PlanError):
    """A name stands for no agent that was declared with `--each`."""

    def __init__(self, group: object, *, known: Iterable[str]) -> None:
        self.group = group
        self.known = tuple(known)
        hint = did_you_mean(group, self.known) or _has(self.known) or " Declare one with --each, or each=."
        super().__init__(f"The run has no agent {group!r} that was declared for each of something.{hint}")


def _has(known: Sequence[str]) -> str:
    return f" It has {some_of(known, 8)}." if known else ""


def _more(left: int) -> list[str]:
    return [f" {and_more(left)}"] if left > 0 else []


def and_more(left: int) -> str:
    return f" and {left:,} more" if left > 0 else ""


def some_of(names: Sequence[str], most: int = 4) -> str:
    """Write `a, b and 3 more`."""
    return ", ".join(names[:most]) + and_more(len(names) - most)


def shortened(steps: Sequence[str], most: int) -> Sequence[str]:
    """Leave out the middle of a long path."""
    return steps if len(steps) <= most else [*steps[: most - 2], f"({len(steps) - most + 1} more)", steps[-1]]


class Cycle(PlanError):
    """Agents wait for each other, so none of them can start."""

    def __init__(self, cycle: Sequence[str]) -> None:
        self.cycle = tuple(cycle)
        last, first = self.cycle[-2:]
        path = " -> ".join(shortened(self.cycle, 10))
        super().__init__(
            f"These agents wait for each other: {path}. If they are to work in rounds, say so at "
            f'the one that begins: {first} --until "{last}.ok" --rounds 3, with a condition on {last}. Else take one '
            f"edge out: {{{{ {last} }}}} out of the prompt of {first!r}, or out of its --after. "
            "%config AgentMagics.on_cycle = 'sequential' runs them in declared order."
        )


class UndefinedVariable(PlanError):
    """A prompt names something that is neither an agent nor a value."""

    def __init__(
        self,
        variable: str,
        *,
        agent: str = "",
        task: str = "",
        user: str = "",
        known: Iterable[str] = (),
        what: str = "",
        hint: str = "",
    ) -> None:
        self.variable = variable
        self.agent = agent
        otherwise = f"declare it with %%context {variable}" if what else "declare an agent of that name"
        define = f"Define it in a cell{'' if user else f', or {otherwise}'}."
        then = f" {hint}." if hint else did_you_mean(variable, known) or f" {define}"
        used = f"{what} {variable!r}" if what else f"{{{{ {variable} }}}}"
        uses = f"Task {task!r} takes {variable!r}" if task else f"{user or f'Agent {agent!r}'} uses {used}"
        super().__init__(f"{uses}, which is not defined.{then}")


class UndefinedField(PlanError):
    """A prompt uses a field that the type of an answer does not have."""

    def __init__(self, field: str, *, of: str, agent: str, known: Sequence[str], kind: str = "") -> None:
        self.field, self.agent, self.known = field, agent, tuple(known)
        hint = did_you_mean(field, known) or (f" It is {kind}." if kind else _has(self.known))
        super().__init__(f"Agent {agent!r} uses {{{{ {of}.{field} }}}}, but {of} has no field {field!r}.{hint}")


# In a run


class NotConnected(AgentMagicError):
    """There is no API key, and neither the mock server nor a recording was chosen."""

    def __init__(self) -> None:
        super().__init__(
            "No API key found, so nothing was sent. Choose one:\n"
            "  with a key   set ANTHROPIC_API_KEY before the kernel starts (or: import os, getpass; "
            "os.environ['ANTHROPIC_API_KEY'] = getpass.getpass())\n"
            "  offline      %agents connect simulator     # a mock server, its answers labelled as simulated\n"
            "  a recording  %agents replay FILE           # somebody's recorded run, no key, no network\n"
            "A plan in a variable: %agents run --plan NAME. plan.run(client=...) takes a provider: am.Claude(), "
            "with am.Simulator() as server: am.Claude(base_url=server.url, api_key='any'), or plan.replay(FILE)."
        )


class CannotNest(AgentMagicError):
    """A blocking call inside a running event loop that cannot be entered again."""


class CallError(AgentMagicError):
    """One attempt failed.

    Attributes:
        partial: The text that had arrived, or an empty string.
    """

    def __init__(self, message: str, *, partial: str = "") -> None:
        super().__init__(message)
        self.partial = partial


class RateLimited(CallError):
    """429: a rate limit of this key was reached.

    Attributes:
        retry_after_s: Seconds to wait, as the response says, or `None`.
        limit: Which limit, such as `requests`, or `None` if the response did not say.
        final: True if waiting cannot help: the account may not spend more.
        again: True unless the server said that this request should not be sent again.
    """

    def __init__(
        self,
        message: str,
        *,
        retry_after_s: float | None = None,
        limit: str | None = None,
        final: bool = False,
        again: bool = True,
    ) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.limit = limit
        self.final = final
        self.again = again


class Overloaded(CallError):
    """5xx or 529: the service failed or is overloaded. It says nothing about our own limits."""

    def __init__(
        self, message: str, *, status: int | None = None, retry_after_s: float | None = None, partial: str = ""
    ) -> None:
        super().__init__(message, partial=partial)
        self.status = status
        self.retry_after_s = retry_after_s


class Rejected(CallError):
    """4xx: the request is wrong. A retry cannot help.

    Attributes:
        status: The HTTP status; `None` if the client did not even send it.
    """

    def __init__(self, message: str, *, status: int | None) -> None:
        super().__init__(message)
        self.status = status


class Refused(CallError):
    """The model declined to answer."""

    def __init__(self, message: str, *, category: str | None = None, partial: str = "") -> None:
        super().__init__(message, partial=partial)
        self.category = category


class NotInBatch(CallError):
    """A batch has ended without an answer to this request: it expired, was cancelled, or its answer was lost.

    Attributes:
        again: True if it may be asked again; False if a person has cancelled it.
        billed: True if it may have been billed: only if an answer was lost.
    """

    def __init__(self, message: str, *, again: bool = True, billed: bool = False) -> None:
        super().__init__(message)
        self.again, self.billed = again, billed


class Capped(CallError):
    """The answer was cut at `max_tokens`, and the policy does not pass such answers on."""


class UnexpectedToolUse(CallError):
    """The model asks for a tool call, and there is no tool to call."""


class InvalidAnswer(CallError):
    """An answer does not fit its agent's type, or its check refused it.

    Attributes:
        mendable: True if asking again can help; False if a user's check or class itself failed.
        again: The message to the model then; empty asks once for the whole answer again.
    """

    def __init__(self, message: str, *, mendable: bool = True, again: str = "") -> None:
        super().__init__(message)
        self.mendable, self.again = mendable, again


class Escalated(CallError):
    """An answer is not sure or not right enough, and the next model of the cascade is asked."""


class Truncated(CallError):
    """The stream ended without a `stop_reason`: an incomplete answer, never a success."""


class Unreadable(CallError):
    """The response is not one of the API: a web page, broken JSON, wrong bytes.

    Attributes:
        final: True if the next one would be no better: it is in an encoding that cannot be read, or endless.
    """

    def __init__(self, message: str, *, final: bool = False, partial: str = "") -> None:
        super().__init__(message, partial=partial)
        self.final = final


class Unreachable(CallError):
    """There was no connection, or it broke.

    Attributes:
        sent: True if any of the request may have arrived. Without a connection it used nothing.
        final: True if waiting cannot help: there is no worker for requests.
    """

    def __init__(self, message: str, *, sent: bool = True, final: bool = False, partial: str = "") -> None:
        super().__init__(message, partial=partial)
        self.sent = sent
        self.final = final


class LeftOut(CallError):
    """One of several endpoints refuses the key or the account: it is asked no more, the others are.

    Attributes:
        endpoint: Its name.
    """

    def __init__(self, endpoint: str, why: str) -> None:
        super().__init__(f"The endpoint {endpoint!r} is left out. {why}")
        self.endpoint = endpoint


class Late(CallError):
    """The timeout of the agent or task, or the run's deadline passed."""

    def __init__(self, deadline_s: float, *, of_run: bool = False, of_task: bool = False, partial: str = "") -> None:
        own = "@am.task(timeout=...)" if of_task else "--timeout"
        whose, option = ("the run's ", "--deadline") if of_run else ("", own)
        what, end = ("Not finished", "; it may finish later") if of_task else ("No complete answer", "")
        less = "" if of_task else ", or ask for less"
        told = f"{what} within {whose}{deadline_s:g} s{end}. Give it longer with {option}{less}."
        super().__init__(told, partial=partial)
        self.deadline_s = deadline_s


class InvalidArguments(AgentMagicError):
    """A function cannot take these arguments. The model that asked for a tool is told the message."""


class NoValue(AgentMagicError):
    """An agent without success has no value. Its text, if any, is in `.text`."""

    def __init__(self, agent: str, why: str) -> None:
        self.agent = agent
        super().__init__(f"Agent {agent!r} has no value: {why}. Its text is in run[{agent!r}].text.")


class BudgetExceeded(AgentMagicError):
    """The budget has no room for an agent's next request. The agent failed; nothing was sent.

    It is not raised: `run.agents` shows it as the agent's error, and `RunFailed` among its failures.
    """


class RunFailed(AgentMagicError):
    """Some agents of a run did not succeed. Raised only by `run.raise_for_failures()`."""

    def __init__(self, failures: Mapping[str, str]) -> None:
        self.failures = dict(failures)
        of_same: dict[str, list[str]] = {}
        for name, why in self.failures.items():
            of_same.setdefault(why, []).append(name)
        lines = [f"  {some_of(names, _MOST_NAMES)}: {why}" for why, names in list(of_same.items())[:_MOST_FAILURES]]
        more = sum(map(len, list(of_same.values())[_MOST_FAILURES:]))
        head = f"{len(self.failures)} agent{'s' * (len(self.failures) != 1)} did not succeed:"
        next_ = "%agents error NAME says all about one; so does run[NAME].attempts."
        super().__init__("\n".join([head, *lines, *_more(more), next_]))


# Of the kept lines


class CassetteError(AgentMagicError):
    """A cassette cannot be read or written."""


class LedgerError(AgentMagicError):
    """The ledger cannot be opened, read or written. No bought answer is lost.

    Attributes:
        unwritable: True if another place for the file would work.
    """

    def __init__(self, message: str, *, unwritable: bool = False) -> None:
        super().__init__(message)
        self.unwritable = unwritable


class SecretFound(AgentMagicError):
    """Data to be shared has a probable secret. Nothing was written.

    Attributes:
        findings: Places and kinds, one line each; never the secret itself.
    """

    def __init__(self, findings: Sequence[str], *, what: str) -> None:
        self.findings = tuple(findings)
        places = "1 place looks" if len(self.findings) == 1 else f"{len(self.findings)} places look"
        lines = [
            f"{what} was not written: {places} like a key.",
            *(f"  {line}" for line in self.findings[:_MOST_FINDINGS]),
            *_more(len(self.findings) - _MOST_FINDINGS),
            "Take it out, and revoke the key if anybody has seen it; --last leaves past runs out.",
            "If it is not a key, add --allow MARK.",
        ]
        super().__init__("\n".join(lines))


class ReplayMiss(AgentMagicError):
    """An agent's request was never recorded. Nothing was sent.

    Attributes:
        agent: The agent.
        nearest: The recorded agent with the nearest request, or `None`.
        differences: Recorded and new value of each differing field. Prompts stay out of the message.
        damaged: True if a line about it is damaged.
        others: Number of other agents without a recording, or waiting for one without.
        is_task: True for a task: its code and arguments differ.
    """

    def __init__(
        self,
        agent: str,
        *,
        nearest: str | None,
        differences: Mapping[str, tuple[object, object]],
        damaged: bool = False,
        others: int = 0,
        is_task: bool = False,
    ) -> None:
        self.agent, self.nearest, self.differences = agent, nearest, dict(differences)
        self.damaged, self.others, self.is_task = damaged, others, is_task
        if damaged:
            why = f"lines about {nearest or agent!r} are damaged or gone"
        elif nearest is None:
            why = "the recording has nothing like it"
        else:
            fields = ", ".join(_difference(name, *values) for name, values in self.differences.items())
            why = f"the nearest recorded call, of {nearest!r}, differs in {fields or 'nothing, but was served already'}"
        more = f" {others} more depend on it or miss too." if others else ""
        if is_task:
            super().__init__(
                f"Task {agent!r} is not the one that was recorded: {' and '.join(differences)} differs.{more} Nothing "
                "was called. Undo the change, run what is missing (%agents replay FILE --fill), or run all of it again."
            )
            return
        super().__init__(
            f"Agent {agent!r} sends a request that was never recorded: {why}.{more} Nothing was sent. Undo the change, "
            "buy what is missing (%agents replay FILE --fill), or run it with a key (%agents connect api)."
        )

    def beside(self, others: int) -> ReplayMiss:
        """Return the same error with this number of `others`."""
        same = {name: getattr(self, name) for name in ("nearest", "differences", "damaged", "is_task")}
        return ReplayMiss(self.agent, others=others, **same)


def _difference(name: str, recorded: object, asked: object) -> str:
    """Return how a field's values differ; long texts may be private: only the position is given."""
    if not isinstance(recorded, str) or not isinstance(asked, str) or name in {"model", "effort"}:
        return f"{name} ({_short(recorded)} recorded, {_short(asked)} asked)"
    pairs = zip(recorded, asked, strict=False)
    place = next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(recorded), len(asked)))
    return f"{name} (from character {place + 1:,} on; {len(recorded):,} recorded, {len(asked):,} asked)"


def _short(value: object) -> str:
    if value is None:
        return "none"
    return f"{len(value):,} characters" if isinstance(value, str) and len(value) > 60 else repr(value)
