"""What is wrong before a run: with a declaration, or with the plan made of several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.errors.root import AgentMagicError, did_you_mean, shorten_path

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence


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
    """An agent is named that nobody declared, or that a run did not have."""

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
            super().__init__(f"{agent!r} is declared for each of something: {first!r} is one of them{answers}.")
            return
        if in_run:
            super().__init__(f"The run has no agent {agent!r}.{meant or _has(self.known)}")
            return
        who = f"Agent {wanted_by!r} waits for {agent!r}, which" if wanted_by else f"Agent {agent!r}"
        super().__init__(f"{who} is not declared.{meant or ' Declare it, or take the name out.'}")


class UnknownGroup(PlanError):
    """An agent is named that the run did not ask for each item of a value."""

    def __init__(self, group: object, *, known: Iterable[str]) -> None:
        self.group = group
        self.known = tuple(known)
        hint = did_you_mean(group, self.known) or _has(self.known) or " Declare one with --each, or each=."
        super().__init__(f"The run has no agent {group!r} that was declared for each of something.{hint}")


def _has(known: Sequence[str], most: int = 8) -> str:
    """Say what there is instead."""
    more = f" and {len(known) - most} more" if len(known) > most else ""
    return f" It has {', '.join(known[:most])}{more}." if known else ""


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
