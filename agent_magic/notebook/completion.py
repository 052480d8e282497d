"""Completion by Tab, and help by Shift+Tab.

Tab offers subcommands, options and their values, agents, models, plans, files. From 8.6 on, IPython passes the whole
cell, before that only the cursor's line. Shift+Tab shows the help of the command, the magic or the option at the
cursor: IPython looks up the word there, `%%plan` for `%agents plan`, its own `%run` for `%agents run`, nothing for an
option.
"""

from __future__ import annotations

import inspect
import os
import re
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from IPython.core import completer

from agent_magic.declare.agent import ROLES
from agent_magic.declare.coordinator import PRESETS, STRATEGIES
from agent_magic.declare.options import AGENT, AUTO
from agent_magic.declare.plan import PLAN_WORDS
from agent_magic.engine.policy import POLICY_WORDS
from agent_magic.notebook.declaring import PARSERS, help_of
from agent_magic.notebook.front_end import is_kernel
from agent_magic.notebook.verbs import VERBS

if TYPE_CHECKING:
    from argparse import Action
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from agent_magic.notebook.command import Parser
    from agent_magic.notebook.magics import AgentMagics


MOST_FILES = 200
_LINE = re.compile(r"(?:^|[=;\s])%(?:am_)?agents[ \t]+(?P<rest>.*)$")
_CELL = re.compile(r"^%%(?:am_)?(?P<magic>agents?|context|plan)[ \t]+(?P<rest>.*)$")
_HEADING = re.compile(r"^##[ \t]+(?P<rest>.*)$")
_NAMED = re.compile(r"^##[ \t]+(?P<name>\w+)")
_ROLE = re.compile(r"^\w+[ \t]+\((?P<word>\w*)$")
_SECTIONS = re.compile(r"^%%(?:am_)?agents\b")
_OPEN = re.compile(r"\{\{\s*(?P<word>[A-Za-z_]\w*)?$")
_ENDS = re.compile(r"[\s,=]")
_WORDS: Mapping[str, Iterable[str]] = {
    **POLICY_WORDS,
    **PLAN_WORDS,
    **{row.name: row.words for row in AGENT.values() if row.words},
    "latency": ("real", "fast", "none"),
    "where": ("simulator", "api"),
    "role": ROLES,
    "strategy": STRATEGIES,
    "preset": tuple(PRESETS),
}


class Known(NamedTuple):
    """Known names; `awaited` are undeclared names in prompts, `unwritten` undeclared contexts."""

    agents: Sequence[str] = ()
    awaited: Sequence[str] = ()
    plans: Sequence[str] = ()
    ran: Sequence[str] = ()
    models: Sequence[str] = ()
    variables: Sequence[str] = ()
    contexts: Sequence[str] = ()
    unwritten: Sequence[str] = ()


class Offer(NamedTuple):
    """The typed part of the word, and its possible replacements."""

    fragment: str
    words: tuple[str, ...]


def offer(line: str, known: Known, *, cell: str | None) -> Offer | None:
    """Return `None` if the place is not ours; `cell` is the cell's first line, if known."""
    found: tuple[str, Iterable[str]] | None = None
    if cell is None and (match := _CELL.match(line)):
        found = _arguments(match["rest"], PARSERS[match["magic"]], known, match["magic"])
    elif cell is not None and _SECTIONS.match(cell) and (match := _HEADING.match(line)):
        role = _ROLE.match(match["rest"])
        rest = re.sub(r"\([^()]*\)", "", match["rest"])
        found = (role["word"], ROLES) if role else _arguments(rest, PARSERS["agent"], known, "agent")
    elif (match := _OPEN.search(line)) and (cell is None or _CELL.match(cell) or _SECTIONS.match(cell)):
        found = match["word"] or "", _in_prompt(cell or "", known)
    elif match := _LINE.search(line):
        found = _command(match["rest"], known)
    if found is None:
        return None
    fragment, words = found
    return Offer(fragment, tuple(dict.fromkeys(word for word in words if word.startswith(fragment))))


def known_to(magics: AgentMagics, line: str) -> Known:
    session, names, hidden = magics.session, magics.shell.user_ns, magics.shell.user_ns_hidden
    named = re.search(r"--plan[ =](\S+)", line)
    plan = named[1] if named else "agents"
    registry = session.registry(plan) if plan in session.plans else None
    declared = registry.agents if registry else ()
    own = [agent.name for agent in declared]
    contexts = [one.name for one in registry.contexts] if registry else []
    undefined = [(agent, name) for agent in declared if registry for name in registry.undefined(agent, names)]
    variables = [
        name
        for name, value in list(names.items())
        if name not in hidden and not name.startswith("_")
        if not isinstance(value, ModuleType | type) and not inspect.isroutine(value)
    ]
    return Known(
        own,
        [name for agent, name in undefined if name != agent.context],
        session.plans,
        [result.name for result in session.last.record.results] if session.last else own,
        [magics.model, AUTO, *(agent.model for agent in declared if agent.model), *session.shared.client.models],
        variables,
        contexts,
        [name for agent, name in undefined if name == agent.context],
    )


def attach(magics: AgentMagics) -> Callable[[], None]:
    shell: Any = magics.shell
    asking: Any = getattr(shell, "Completer", None)
    if asking is None:
        return lambda: None
    if hasattr(completer, "context_matcher"):
        matcher = _matcher(magics)
        asking.custom_matchers.append(matcher)
        return lambda: asking.custom_matchers.remove(matcher)
    old = _old_matcher(magics, asking)
    asking.magic_arg_matchers.append(old)
    return lambda: asking.magic_arg_matchers.remove(old)


def _matcher(magics: AgentMagics) -> Callable[[Any], Any]:
    api: Any = completer  # its types are not all there in IPython 7

    @api.context_matcher()
    def agent_magic_matcher(context: Any) -> Any:
        lines = context.full_text.split("\n")
        line = lines[context.cursor_line][: context.cursor_position]
        first = lines[0] if context.cursor_line else None
        found = _ask(magics, line, first, lines)
        if found is None:
            return {"completions": []}
        # The typed text stands for nothing: IPython would else offer Python's names, after seconds of looking for them.
        shown = [api.SimpleCompletion(text=word, type="agents") for word in found.words or (found.fragment,)]
        return {"completions": shown, "matched_fragment": found.fragment, "suppress": True, "ordered": True}

    return agent_magic_matcher


def _old_matcher(magics: AgentMagics, asking: Any) -> Callable[[str], list[str]]:
    """Return the matcher for IPython before 8.6, which knows only the line."""

    def agent_magic_matches(_: str) -> list[str]:
        line: str = asking.text_until_cursor
        found = _ask(magics, line, None)
        token: str = asking.splitter.split_line(line)
        if found is None or not found.fragment.endswith(token):
            return []
        skip = len(found.fragment) - len(token)  # it takes a shorter piece for the word
        return [word[skip:] for word in found.words or (found.fragment,)]

    return agent_magic_matches


def _ask(magics: AgentMagics, line: str, first: str | None, lines: Sequence[str] = ()) -> Offer | None:
    heading = line.startswith("##") and first is not None and _SECTIONS.match(first)
    if not heading and not any(word in line for word in ("agent", "context", "%%plan", "{{")):
        return None
    known = known_to(magics, first or line)
    if first is not None and _SECTIONS.match(first):  # the names of its sections, which are not declared yet
        heads = [match["name"] for one in lines if (match := _NAMED.match(one))]
        known = known._replace(agents=list(dict.fromkeys([*heads, *known.agents])))
    return offer(line, known, cell=first)


def _command(rest: str, known: Known) -> tuple[str, Iterable[str]] | None:
    command, space, options = rest.partition(" ")
    if not space:
        return command, VERBS
    if command not in VERBS:
        return None
    return _arguments(options, VERBS.parser(command), known, command)


def _arguments(rest: str, parser: Parser, known: Known, command: str) -> tuple[str, Iterable[str]] | None:
    fragment = _ENDS.split(rest)[-1]
    before = rest[: len(rest) - len(fragment)]
    actions = parser._actions  # noqa: SLF001 - argparse has no public list of its options
    by_option = {option: action for action in actions for option in action.option_strings}
    # A list such as `a,b` is one word of the line; what stands before its last comma belongs to the same option.
    words = re.sub(r"\S+,$", "", before).replace("=", " ").split()
    option = by_option.get(words[-1]) if words else None
    if option is not None and option.nargs != 0:
        return fragment, _values(parser, option, fragment, known, command)
    flags = [one for one, action in by_option.items() if one.startswith("--") and one not in words and action]
    if fragment.startswith("-"):
        return fragment, flags
    place = sum(not word.startswith("-") for word in _without_values(words, by_option))
    positional = [action for action in actions if not action.option_strings]
    if not positional:
        return fragment, flags
    chosen = positional[min(place, len(positional) - 1)]
    if place >= len(positional) and chosen.nargs not in {"*", "+"}:
        return fragment, flags
    taken = set(words)
    values = [word for word in _values(parser, chosen, fragment, known, command) if word not in taken]
    return fragment, [*values, *([] if fragment else flags)]


def _without_values(words: Sequence[str], by_option: Mapping[str, Action]) -> list[str]:
    kept: list[str] = []
    skip = False
    for word in words:
        if not skip:
            kept.append(word)
        action = by_option.get(word)
        skip = not skip and action is not None and action.nargs != 0
    return kept


def _values(parser: Parser, action: Action, fragment: str, known: Known, command: str) -> Iterable[str]:
    if action.choices is not None:
        return [str(choice) for choice in action.choices]
    if words := parser.words.get(action.dest) or _WORDS.get(action.dest):
        return words
    if action.dest == "name":
        return known.awaited if command == "agent" else known.unwritten if command == "context" else known.ran
    if action.dest == "names" and command == "drop":
        return [*known.agents, *known.contexts]
    find = _FOUND.get(action.dest)
    return find(known, fragment) if find else ()


def _in_prompt(cell: str, known: Known) -> list[str]:
    """Return other agents first, then variables; a context uses variables only."""
    magic, *own = cell.split()[:2] or [""]
    if magic.endswith("context"):
        return [*known.variables]
    return [*(name for name in known.agents if name not in own), *known.variables, *known.contexts]


def _files(fragment: str) -> list[str]:
    folder, _, start = fragment.rpartition("/")
    place = Path(f"{folder}/" if fragment.startswith("/") else folder or ".").expanduser()
    try:
        with os.scandir(place) as entries:
            found = [(entry.name, entry.is_dir()) for entry in entries if entry.name.startswith(start)]
    except OSError:  # no such folder: there is nothing to offer
        return []
    head = f"{folder}/" if "/" in fragment else ""
    shown = [
        head + name + ("/" if is_folder else "")
        for name, is_folder in sorted(found)
        if not name.startswith(".") and (is_folder or name.endswith((".jsonl", ".jsonl.gz")))
    ]
    return shown[:MOST_FILES]


_FOUND: Mapping[str, Callable[[Known, str], Iterable[str]]] = {
    **dict.fromkeys(("names", "after", "first_of", "drop"), lambda known, _: known.agents),
    "plan": lambda known, _: known.plans,
    **dict.fromkeys(("model", "fallback", "cascade"), lambda known, _: known.models),
    "context": lambda known, _: [*known.contexts, *known.variables],
    "command": lambda _, __: VERBS,
    **dict.fromkeys(("file", "script", "path"), lambda _, fragment: _files(fragment)),
}


_TIP_CELL = re.compile(r"%%(?:am_)?(?P<magic>agents?|context|plan)\b")
_TIP_LINE = re.compile(r"(?:^|[=;\s])%(?:am_)?agents\b[ \t]*(?P<command>[\w-]*)")
_TIP_HEADING = re.compile(r" {0,3}##[ \t]")
_OPTION = re.compile(r"--[\w-]+")


def attach_tooltips(shell: Any) -> Callable[[], None]:
    kernel: Any = shell.kernel if is_kernel(shell) else None
    own = getattr(kernel, "do_inspect", None)
    if own is None:
        return lambda: None

    def do_inspect(code: str, cursor_pos: int, *more: Any, **options: Any) -> Any:
        if (text := tooltip(code, cursor_pos)) is None:
            return own(code, cursor_pos, *more, **options)
        return {"status": "ok", "found": True, "data": {"text/plain": text}, "metadata": {}}

    kernel.do_inspect = do_inspect

    def detach() -> None:
        if kernel.do_inspect is do_inspect:
            kernel.do_inspect = own

    return detach


def tooltip(code: str, cursor: int) -> str | None:
    """Return `None` if the place is not ours."""
    before, after = code[:cursor], code[cursor:]
    line = before.rpartition("\n")[2] + after.partition("\n")[0]
    at = len(before.rpartition("\n")[2])
    cell = _TIP_CELL.match(code.lstrip())
    if cell is None:
        return _of_command(line, at)
    if not before.strip() or "\n" not in before.lstrip():
        return _option(PARSERS[cell["magic"]], line, at) or help_of(cell["magic"])
    is_heading = cell["magic"] == "agents" and _TIP_HEADING.match(line)
    return _option(PARSERS["agent"], line, at) if is_heading else None


def _of_command(line: str, at: int) -> str | None:
    found = [one for one in _TIP_LINE.finditer(line) if one.start() <= at]
    if not found:
        return None
    command = found[-1]["command"]
    if command not in VERBS:
        return VERBS.help().text()
    return _option(VERBS.parser(command), line, at) or VERBS.help(command).text()


def _option(parser: Parser, line: str, at: int) -> str | None:
    named = [one[0] for one in _OPTION.finditer(line) if one.start() <= at]
    told = (
        f"{option}\n    {said}" for option, said in parser.told() if named and named[-1] in re.split(r"[ ,]+", option)
    )
    return next(told, None)
