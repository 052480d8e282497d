"""Resources of steps and tools: limited ones, files and other things that are written, and saved answers.

`am.resource("db", 2)` limits what `uses="db"` runs at once; `--writes report.md` keeps others from writing or using it.
`%%agent NAME --save FILE` writes an answer to a path inside the folder of the notebook. The path is a template with a
few names, so that each row of an `--each` has its own file: `letters/{{ item.id }}.md`.
"""

from __future__ import annotations

import math
import os
import os.path
import re
import sys
import unicodedata
from functools import cache, lru_cache
from pathlib import PurePath, PureWindowsPath
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agent_magic.declare.each import ITEM, KEY, firsts
from agent_magic.declare.template import Template
from agent_magic.declare.validation import check_integer, check_text
from agent_magic.errors import DeclarationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent_magic.declare.dag import Dag
    from agent_magic.declare.options import AgentOptions

_LIMITS: Final[dict[str, int]] = {}
_UNITS: Final[dict[str, str]] = {}


class Held(NamedTuple):
    """A resource held while a step runs: `amount` of `most`; of a path 1 for a writer, infinity for readers."""

    name: str
    most: float = 1.0
    amount: float = 1.0


def resource(name: str, most: int, *, unit: str = "") -> str:
    """Limit how many steps and calls may hold a resource at once, or how much of it, in this process.

    Args:
        name: The resource, as named in `uses` of tools and tasks and `--uses` of agents.
        most: The limit.
        unit: Unit of a resource of which each takes an amount, as in `uses="memory:500MB"` or `"memory:500"`.

    Returns:
        The name.

    Raises:
        DeclarationError: An argument is invalid.
    """
    check_text("name of a resource", name)
    check_integer("most of a resource", most)
    if unit:
        check_text("unit of a resource", unit)
    _LIMITS[name], _UNITS[name] = most, unit
    return name


def _held(text: str) -> Held:
    name, _, amount = text.rpartition(":")
    if text in _LIMITS or name not in _LIMITS:
        if _UNITS.get(text):
            wanted = f"{text}:100{_UNITS[text]}"
            raise DeclarationError(
                f"uses={text!r} takes an amount of it, in {_UNITS[text]}.", hint=f"Write {wanted!r}."
            )
        return Held(_plain(text), _LIMITS.get(text, math.inf))
    number, most = amount.strip().removesuffix(_UNITS[name]).strip(), _LIMITS[name]
    try:
        taken = float(number)
    except ValueError:
        taken = math.nan
    if not 0 < taken <= most:
        unit = _UNITS[name]
        raise DeclarationError(
            f"uses={text!r} must take an amount of {name!r} from 0 to {most:,}{unit}, got {amount!r}."
        )
    return Held(name, most, taken)


def held_by(uses: Iterable[str], writes: Iterable[str]) -> tuple[Held, ...]:
    used, written = map(_held, uses), (Held(_plain(name)) for name in writes)
    return tuple({one.name: one for one in (*used, *written)}.values())


def held_beside(own: Sequence[Held], uses: Iterable[str], writes: Iterable[str]) -> tuple[Held, ...]:
    """Return the resources of a tool's call beyond its step's `own`."""
    return tuple(one for one in held_by(uses, writes) if not any(overlap(one.name, other.name) for other in own))


def check_uses(uses: Iterable[str]) -> None:
    """Refuse a resource with amounts that is used without one, or with too much."""
    if uses:
        held_by(uses, ())


def conflicts(holds: Sequence[tuple[Held, ...]], dag: Dag) -> list[tuple[str, int, int]]:
    # Using a folder uses all files in it; the resource is then the inner one. One used by a single step is never in
    # conflict.
    users: dict[str, list[tuple[int, bool]]] = {}
    for step, held in enumerate(holds):
        for one in held:
            if one.name not in _LIMITS:
                users.setdefault(one.name, []).append((step, one.most == 1.0))

    @cache
    def ordered(step: int) -> set[int]:
        return {*dag.ancestors([step]), *dag.descendants([step])}

    found: list[tuple[str, int, int]] = []
    for name, steps in users.items():
        around = [one for folder in _folders(name) for one in users.get(folder, ())]
        for number, (step, writes) in enumerate(steps):
            others = [one for one, also in (*steps[number + 1 :], *around) if (writes or also) and one != step]
            found += [(name, min(step, one), max(step, one)) for one in others if one not in ordered(step)]
    return list(dict.fromkeys(found))


def overlap(name: str, other: str) -> bool:
    """Return whether two paths are equal, or one is a folder of the other; a resource is no folder."""
    if name == other:
        return True
    return not (name in _LIMITS or other in _LIMITS) and (name in _folders(other) or other in _folders(name))


@lru_cache(maxsize=4096)
def _folders(path: str) -> frozenset[str]:
    inside = PurePath(path)
    return frozenset() if os.pardir in inside.parts else frozenset(map(str, inside.parents))


def _plain(name: str) -> str:
    return name if name in _LIMITS else os.path.normpath(name)


CODE = frozenset({".ipynb", ".py", ".pyw", ".pyc", ".pyd", ".so", ".pth"})
"""Endings of files that a kernel opens, imports or runs."""
SETTINGS = re.compile(r"(?:jupyter|ipython)\w*_config\.|(?:sitecustomize|usercustomize|conftest)\.", re.IGNORECASE)
"""Files that Jupyter, IPython, Python or pytest read from the folder by themselves."""
SHOWN = 60
"""Characters in a message."""
CASELESS = frozenset({"darwin", "win32"})
"""Systems that treat `A.md` and `a.md` as one file; macOS also both encodings of an accent."""
LONGEST_NAME = 255
"""Bytes."""
DEVICES = re.compile(r"(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9¹²³]) *(?:[.:]|$)", re.IGNORECASE)
"""Names that Windows keeps for devices. Source: "Naming Files, Paths, and Namespaces", Microsoft Learn."""
NAME = "name"
"""The agent's name in a path: `letter_0` for the first row of `letter`."""


def check_save(agent: AgentOptions) -> None:
    if agent.save is None:
        return
    template = _template(agent)
    item = (ITEM, KEY) if agent.each is not None or agent.part is not None else ()
    for name in template.names:
        if name not in {NAME, *item}:
            known = ", ".join(f"{{{{ {one} }}}}" for one in (NAME, *item))
            raise DeclarationError(
                f"save of agent {agent.name!r} uses {{{{ {name} }}}}, and a path takes {known} only.",
                agent=agent.name,
                hint="" if item else f"{{{{ {ITEM} }}}} is there for agents with each.",
            )
    if not template.names:
        checked_path(agent.save, f"save of agent {agent.name!r}")


def saved_paths(steps: Sequence[Any], alike: Sequence[range] = ()) -> dict[int, str]:
    if alike and all(one.save is None for one in firsts(steps, alike)):
        return {}
    found: dict[int, str] = {}
    rows: dict[tuple[str, str], str] = {}
    for number, agent in enumerate(steps):
        if agent.save is None:
            continue
        path = found[number] = _path(agent)
        if agent.part is None or agent.part.rounds:  # the rounds of a loop come one after the other: the last one stays
            continue
        group = agent.part.group
        if (other := rows.setdefault((group, _file_of(path)), agent.name)) != agent.name:
            raise DeclarationError(
                f"save of {group!r} gives {other} and {agent.name} one file, {path!r}.",
                agent=agent.name,
                hint=f"Write what tells them apart into the path, such as {{{{ {KEY} }}}} or {{{{ {NAME} }}}}.",
            )
    return found


def _file_of(path: str) -> str:
    """Return the path as this system compares names: accents in one form, without case."""
    return unicodedata.normalize("NFC", path).casefold() if sys.platform in CASELESS else path


def checked_path(path: str, what: str) -> str:
    """Return a relative path in its shortest form; refuse a path out of the folder."""
    plain = os.path.normpath(path) if path.strip() else ""
    parts = PurePath(plain).parts
    leads_out = PurePath(path).is_absolute() or bool(PureWindowsPath(path).anchor) or path.startswith("~")
    if leads_out or ".." in parts:
        raise DeclarationError(
            f"{what} is {path!r}, which leads out of the folder of the notebook.",
            hint="Name a file in it, such as 'out/report.md'.",
        )
    if not parts or path.endswith(("/", os.sep)) or "\0" in path or "\n" in path:
        raise DeclarationError(f"{what} must be the name of a file, got {path!r}.")
    encoded = [one.encode("utf-8", "replace") for one in parts]
    if any(len(one) > LONGEST_NAME for one in encoded) or "".join(parts) != b"".join(encoded).decode():
        raise DeclarationError(
            f"{what} is {excerpt_of(path)!r}, which no file can be called: a name has at most {LONGEST_NAME} bytes.",
            hint="Name the files by something shorter, such as {{ key }}.",
        )
    if sys.platform == "win32" and (wrong := not_on_windows(parts)):
        raise DeclarationError(
            f"{what} is {excerpt_of(path)!r}, and Windows takes no file named {excerpt_of(wrong)!r}.",
            hint="Write something before it, such as 'answer_{{ key }}.md', and leave out <>:\"|?* and a last dot.",
        )
    return PurePath(plain).as_posix()


def not_on_windows(parts: Sequence[str]) -> str:
    """Return the first part that Windows cannot store, or takes for a device."""
    return next((one for one in parts if DEVICES.match(one) or set('<>:"|?*') & set(one) or one[-1] in ". "), "")


def excerpt_of(path: str) -> str:
    shown = path.encode("utf-8", "replace").decode()
    return shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}…"


def _template(agent: AgentOptions) -> Template:
    return Template.parse(agent.save or "", agent=agent.name, title=f"save of agent {agent.name!r}")


def _path(agent: AgentOptions) -> str:
    template, part = _template(agent), agent.part
    values: dict[str, Any] = {NAME: agent.name, **(part.values if part is not None else {})}
    missing = [name for name in template.names if name not in values]
    if missing:
        raise DeclarationError(
            f"save of agent {agent.name!r} uses {{{{ {missing[0]} }}}}, which is known only while the plan runs.",
            agent=agent.name,
            hint=f"Use {{{{ {NAME} }}}}, or am.save(name, value) in a task.",
        )
    path = checked_path(template.render(values).text, f"save of agent {agent.name!r}")
    return _checked_data(agent, path) if template.names else path


def _checked_data(agent: AgentOptions, path: str) -> str:
    """Refuse a path with items that leads into a hidden folder or file, or is settings or code."""
    # An item may come from anyone, and an answer in such a file would be run, or read as settings.
    written = (agent.save or "").replace("\\", "/")
    for part in PurePath(path).parts:
        if part.startswith(".") and part not in written.split("/"):
            raise DeclarationError(
                f"save of agent {agent.name!r} gives {path!r}, and an item must not name what is hidden: {part!r}.",
                agent=agent.name,
                hint="Write the folder itself into save, or put the items into a folder: 'out/{{ key }}.md'.",
            )
    if SETTINGS.match(name := PurePath(path).name) and not SETTINGS.match(PurePath(written).name):
        raise DeclarationError(
            f"save of agent {agent.name!r} gives {path!r}, and an item must not name a file of settings: {name!r}.",
            agent=agent.name,
            hint="Write the name itself into save, or something before it: 'answer_{{ key }}.json'.",
        )
    ending = ending_of(path)
    if ending in CODE and not written.lower().endswith(ending):
        raise DeclarationError(
            f"save of agent {agent.name!r} gives {path!r}, and an item must not name a file of code.",
            agent=agent.name,
            hint=f"Write the ending into save: '{{{{ key }}}}{ending}'.",
        )
    return path


def ending_of(path: str) -> str:
    """Return a file's ending, as the least careful file system reads it."""
    named = PurePath(path).name.partition(":")[0]  # a stream of a file, on Windows
    return PurePath(named.rstrip(". ")).suffix.lower()
