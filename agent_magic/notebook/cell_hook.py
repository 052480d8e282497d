"""What reads the cells of a shell before they run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class CellHook:
    """An input transformer: IPython calls it with the lines of each cell. What it does with them, a subclass says.

    Two of a kind with the same values are equal, so that loading an extension twice leaves one.

    Attributes:
        ip: The `InteractiveShell` whose cells are read.
    """

    ip: Any

    def install(self) -> None:
        """Read the cells from the next one on. Doing it twice changes nothing."""
        if self not in self._hooks:
            self._hooks.append(self)

    def uninstall(self) -> None:
        """Leave cells alone from the next one on. Doing it twice changes nothing."""
        self._hooks[:] = [hook for hook in self._hooks if hook != self]

    def __call__(self, lines: list[str]) -> list[str]:
        """Return the lines to run in place of these."""
        raise NotImplementedError

    @property
    def _hooks(self) -> list[Any]:
        return self.ip.input_transformers_post
