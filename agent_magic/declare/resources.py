"""What steps and tools hold while they run: resources that only so many may hold at once, and things that are written.

```
am.resource("db", 2)                                # two connections, no more

@am.tool(uses="db")
def run_sql(query: str) -> str: ...

%%agent note --writes report.md                     # nobody else writes or uses report.md meanwhile
```
"""

from __future__ import annotations

import math
import os.path
from typing import TYPE_CHECKING, Final, NamedTuple

from agent_magic.declare.validation import check_integer, check_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agent_magic.declare.dag import Dag
    from agent_magic.declare.step import Step

_LIMITS: Final[dict[str, int]] = {}


class Held(NamedTuple):
    """Something that is held while a call or a step runs.

    Attributes:
        name: The resource, or the path.
        most: How many may hold it at once: 1 for a writer, any number of readers.
    """

    name: str
    most: float = 1.0


def resource(name: str, most: int) -> str:
    """Limit how many steps and calls may hold a resource at once, in this process.

    Args:
        name: The resource, as `uses` of tools and tasks and `--uses` of agents name it.
        most: How many.

    Returns:
        The name.

    Raises:
        DeclarationError: An argument is not what it must be.
    """
    check_text("name of a resource", name)
    check_integer("most of a resource", most)
    _LIMITS[name] = most
    return name


def held_by(uses: Iterable[str], writes: Iterable[str]) -> tuple[Held, ...]:
    """Return what is held by who uses and writes these. What is no resource is read, by as many as like.

    Args:
        uses: Names of resources, and paths that are read.
        writes: Names and paths that are written.
    """
    found = {_plain(name): _LIMITS.get(name, math.inf) for name in uses}
    return tuple(Held(*one) for one in {**found, **dict.fromkeys(map(_plain, writes), 1.0)}.items())


def held_by_all(steps: Iterable[Step], saves: Mapping[int, str]) -> list[tuple[Held, ...]]:
    """Return per step what it holds while it runs.

    Args:
        steps: The steps of a plan.
        saves: The file that the answer of a step is saved at, by its number.
    """
    found: list[tuple[Held, ...]] = []
    for number, one in enumerate(steps):
        file = (saves[number],) if number in saves else ()
        holds = one.uses_resources or one.writes or file
        found.append(held_by(one.uses_resources, (*one.writes, *file)) if holds else ())
    return found


def conflicts(holds: Sequence[tuple[Held, ...]], dag: Dag) -> list[tuple[str, int, int]]:
    """Return who could write or use a thing while somebody writes it: the thing, and two steps without an order.

    A thing that only one step writes, and nobody else uses, is never in it.

    Args:
        holds: Per step, what it holds.
        dag: Who waits for whom.
    """
    users: dict[str, list[tuple[int, float]]] = {}
    for step, held in enumerate(holds):
        for one in held:
            users.setdefault(one.name, []).append((step, one.most))
    found: list[tuple[str, int, int]] = []
    for name, steps in users.items():
        writers = [step for step, most in steps if most == 1.0 and name not in _LIMITS]
        for writer in writers:
            ordered = dag.ancestors([writer]) | dag.descendants([writer])
            others = [one for one, _ in steps if one != writer and one not in ordered]
            found += [(name, writer, other) for other in others if other not in writers or writer < other]
    return found


def _plain(name: str) -> str:
    return name if name in _LIMITS else os.path.normpath(name)
