"""What goes wrong with what was kept: a ledger, a cassette, a file to be shared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.errors.root import AgentMagicError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


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
