"""The commands of `%agents`: one parser reads the line, writes the help, and completes by Tab.

IPython expands `{name}` and `$name` only for some calls, so our magics opt out, and `read_line` expands every line.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
from collections.abc import Mapping
from numbers import Number
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast

from IPython.core.error import UsageError
from IPython.core.magic_arguments import MagicArgumentParser
from IPython.utils.text import EvalFormatter

from agent_magic.declare.options import AGENT, flag_of
from agent_magic.errors import did_you_mean
from agent_magic.record.files import inside
from agent_magic.show.markup import TEXT_WIDTH
from agent_magic.show.page import Column, Line, Page, Table, Words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from agent_magic.api import Plan
    from agent_magic.engine.policy import Policy
    from agent_magic.notebook.session import Session


HELP_WIDTH = 100
EDIT = "edit"
"""The command that is a cell too: `%%agents edit NAME`."""
_HELP = frozenset({"--help", "-h"})
MORE_HELP = (
    "%agents help COMMAND shows options and examples. %%agent? shows how to declare an agent.",
    "%config AgentMagics lists the defaults. %agents doctor tells what is set up.",
    'logging.getLogger("agent_magic").setLevel("DEBUG") logs each step of a run.',
)


class CommandContext(Protocol):
    """The context of a command: the session, the shell, and the defaults of `%config AgentMagics`."""

    session: Session
    shell: Any
    model: Any
    confirm_agents: Any
    confirm_usd: Any

    def defaults(self, timeout_s: float | None = None) -> dict[str, Any]: ...

    def freeze(self, given: argparse.Namespace) -> Plan: ...

    def configure(self, name: str, value: Any) -> Callable[[], None]:
        """Set a default of `%config AgentMagics`; return a function that restores it."""
        ...

    def policy(self, given: argparse.Namespace) -> Policy: ...


class _Layout(argparse.HelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30, width=HELP_WIDTH)


class Argument(NamedTuple):
    """A name or an option of a line: what argparse is told, and the words that Tab offers."""

    names: tuple[str, ...]
    settings: Mapping[str, Any]
    words: Iterable[str]


def argument(*names: str, words: Iterable[str] = (), **settings: Any) -> Argument:
    return Argument(names, settings, words)


class Parser(MagicArgumentParser):
    """A parser of one line; its errors name the closest option, or advice from `instead`."""

    def __init__(
        self, called: str, instead: Mapping[str, str] | None = None, *, arguments: Iterable[Argument] = ()
    ) -> None:
        base: Any = super()
        base.__init__(called, add_help=False, formatter_class=_Layout)
        self.called, self._instead = called, instead or {}
        self.words: dict[str, Iterable[str]] = {}
        for one in arguments:
            self.words[self.add_argument(*one.names, **one.settings).dest] = one.words

    def add_argument(self, *names: Any, help: str = "", **settings: Any) -> argparse.Action:  # noqa: A002 - argparse's name
        """Add an option; argparse formats its help, so percent signs are doubled here."""
        return super().add_argument(*names, help=help.replace("%", "%%"), **settings)

    def read(self, line: str) -> argparse.Namespace:
        """Parse a line without its comment and the quotes around values."""
        try:
            found: argparse.Namespace = cast("Any", self).parse_argstring(without_comment(line))
        except ValueError as error:  # shlex found no closing quotation
            raise UsageError(f"{self.called}: {error}. Close the quotes.") from None
        for name, value in vars(found).items():
            if isinstance(value, list):
                plain = [_unquoted(one) for one in cast("list[Any]", value)]
                if name == "names":
                    plain = [part for one in plain for part in one.split(",") if part]  # a,b as in --tools a,b
                setattr(found, name, plain)
            else:
                setattr(found, name, _unquoted(value))
        return found

    @property
    def flags(self) -> list[str]:
        return [flag for action in self._actions for flag in action.option_strings]

    def told(self) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        for action in self._actions:
            names = ", ".join(action.option_strings)
            value = "" if action.nargs == 0 else str(action.metavar or (action.dest if not names else "VALUE"))
            found.append((f"{names} {value}".strip(), (action.help or "").replace("%%", "%")))
        return found

    def error(self, message: str) -> Any:
        """Raise `UsageError`, where argparse would exit the program."""
        unknown = message.removeprefix("unrecognized arguments: ")
        if unknown == message:
            magic, _, command = self.called.partition(" ")
            help_ = f" help {command}" if command else ("?" if magic else "")
            raise UsageError(f"{self.called}: {message}. See {self.called.split()[0]}{help_}")
        if not unknown.startswith("-"):
            raise UsageError(
                f"{self.called}: unexpected {unknown!r}. Put text with spaces in quotes: names and values are one word."
            )
        flag = unknown.split()[0].partition("=")[0]
        if flag in self._instead:
            raise UsageError(f"{self.called}: {flag} is not available. {self._instead[flag]}")
        hint = did_you_mean(flag, self.flags) or (
            f" Options: {', '.join(self.flags)}." if self.flags else " It has no options."
        )
        raise UsageError(f"{self.called}: unknown option {unknown!r}.{hint}")


_PICTURE = "%agents plan shows the graph before a run, the variable of a run its picture."
_ANSWER = "%agents show NAME shows an answer, run.texts all of them."
_ASKED = "Ask a run in Python: run.timeline(), run.tradeoff(), run.slo(), am.compare(run, other)."
_WHATIF = "%agents whatif --concurrency 1,4,16 --model A,B forecasts other settings; %agents explore opens a panel."
_PRICE = "%agents plan says what a run may cost, run.agents what it cost."
_SIZE = "%agents size says what limits carry and how far a month's tokens go; %agents run --budget USD caps a run."
TRIED: Mapping[str, str] = {
    **dict.fromkeys(("graph", "draw", "diagram", "visualize"), _PICTURE),
    **dict.fromkeys(("results", "result", "answers", "answer", "output", "print"), _ANSWER),
    **dict.fromkeys(("cost", "costs", "price", "estimate"), _PRICE),
    **dict.fromkeys(("capacity", "tiers", "roi", "budget", "monthly"), _SIZE),
    "decompose": "%agents split FILES or TEXT splits a job into agents.",
    **dict.fromkeys(("status", "ps", "progress"), "%agents lists what is declared, and what runs."),
    **dict.fromkeys(("cancel", "abort", "kill", "interrupt"), "%agents stop ends the run; what has finished is kept."),
    **dict.fromkeys(("reset", "delete", "remove", "rm"), "%agents drop NAME removes one, %agents clear removes all."),
    **dict.fromkeys(("compare", "diff", "tradeoff", "timeline", "slo"), _ASKED),
    **dict.fromkeys(("forecast", "what-if", "simulate", "predict"), _WHATIF),
    **dict.fromkeys(("history", "log", "logs"), "%agents runs lists the runs of before."),
    **dict.fromkeys(("config", "set", "options"), "%config AgentMagics shows and sets the defaults of a run."),
    **dict.fromkeys(
        ("init", "setup", "login", "key"), "%agents doctor tells what is set up, %agents connect who answers."
    ),
}
"""Commands that people try and that do not exist, and what to do."""
OF_RUNS = frozenset({"--timeout", "--max-turns", "--batch"})
"""Options of agents that are also defaults of a run."""
TRIED_OF_RUNS: Mapping[str, str] = {
    **{
        flag: f"It belongs to one agent: %%agent NAME {flag} ..."
        for flag in [*map(flag_of, AGENT.values()), "--first-of", "--prompt", "--run"]
        if flag and flag not in OF_RUNS
    },
    **dict.fromkeys(("--parallel", "--workers", "--jobs", "-n", "--n"), "--concurrency N says how many run at once."),
    **dict.fromkeys(("--retries", "--retry", "--max-retries"), "--max-attempts N says how often a request is sent."),
    **dict.fromkeys(("--dry-run", "--dry"), "%agents plan shows what a run would send and cost; nothing is spent."),
    **dict.fromkeys(
        ("--force", "--no-cache", "--rerun"), "--fresh asks again instead of taking answers of the ledger."
    ),
    **dict.fromkeys(("--max-cost", "--cost", "--usd", "--spend"), "--budget USD ends a run before it costs more."),
    **dict.fromkeys(("--model", "--max-tokens", "--system"), "Give it to the agents: %%agent NAME --model M."),
    **dict.fromkeys(("--background", "--async", "--bg"), "%agents start runs in the background."),
}
"""Options of a run that people try in vain, and the alternatives."""


class Verb(NamedTuple):
    """One command of `%agents`; a coroutine is awaited on the notebook's loop."""

    help: str
    options: Sequence[Argument]
    do: Callable[[CommandContext, argparse.Namespace], Any]
    examples: tuple[str, ...]
    waits: bool = False


class Commands(Mapping[str, Verb]):
    """The commands by name, loaded by group on first use. An empty line means `list`."""

    def __init__(
        self,
        topics: Mapping[str, Mapping[str, str]],
        load: Callable[[str], Mapping[str, Verb]],
        first: Sequence[str] = (),
    ) -> None:
        groups = [(group, names.split()) for one in topics.values() for group, names in one.items()]
        self._groups = {name: group for group, names in groups for name in names}
        self._load = load
        named = {topic: " ".join(one.values()).split() for topic, one in topics.items()}
        others = {topic: tuple(name for name in names if name not in first) for topic, names in named.items()}
        self._topics = {"begin": tuple(first), **others}

    def __getitem__(self, command: str) -> Verb:
        return self._load(self._groups[command])[command]

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def __len__(self) -> int:
        return len(self._groups)

    def __contains__(self, command: object) -> bool:
        return command in self._groups  # without loading it

    def split(self, line: str) -> tuple[str, str]:
        """Split `run a --fresh` into `run` and the rest; `run --help` is `help run`."""
        line = without_comment(line).strip().removesuffix(";").rstrip()
        command, _, rest = line.partition(" ")
        command = command or "list"
        if command in _HELP:
            return "help", rest.strip()
        if command.startswith("-"):
            return "list", line
        self.find(command)
        if _HELP.intersection(rest.split()):
            return "help", command
        return command, rest.strip()

    def find(self, command: str) -> Verb:
        if command not in self:
            if command in TRIED:
                raise UsageError(f"%agents {command}: unknown command. {TRIED[command]}")
            hint = did_you_mean(command, self) or f" One of {', '.join(self)}."
            raise UsageError(f"%agents {command}: unknown command.{hint}")
        return self[command]

    def parser(self, command: str) -> Parser:
        instead = TRIED_OF_RUNS if command in {"run", "start", "plan", "retry"} else None
        return Parser(f"%agents {command}", instead, arguments=self.find(command).options)

    def waits(self, magic: str, argument: str | None) -> bool:
        """True for calls that must be awaited, as all of `%%plan`."""
        if argument is None or magic.endswith("plan"):
            return True
        verb = self.get(without_comment(argument).strip().partition(" ")[0].removesuffix(";"))
        return verb is not None and verb.waits

    def help(self, command: str | None = None) -> Page:
        """Return the help of one command, or one line for each."""
        if command is None:
            rows = [
                ("" if index else topic, name, self[name].help)
                for topic, names in self._topics.items()
                for index, name in enumerate(names)
            ]
            table = Table((Column("to"), Column("%agents"), Column("what it does", "prose")), rows, strong=True)
            return Page([table, *(Line(line, "soft") for line in MORE_HELP)])
        verb = self.find(command)
        options = self.parser(command).told()
        table = [Table((Column("option"), Column("", "prose")), options, strong=True)] if options else []
        return Page(
            [Line(verb.help, head=f"%agents {command}:"), Words("\n".join(map(_example, verb.examples))), *table]
        )


def _example(line: str) -> str:
    command, *comment = re.split(r"\s{2,}(?=# )", line, maxsplit=1)
    return line if len(line) <= TEXT_WIDTH or not comment else f"{comment[0]}\n{command}"


def is_edit(line: str) -> bool:
    return line.split(maxsplit=1)[:1] == [EDIT]


def without_comment(line: str) -> str:
    """Cut off a comment: a `#` that begins a word outside quotes, and the rest."""
    quote = ""
    for index, letter in enumerate(line):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter == "#" and (index == 0 or line[index - 1].isspace()):
            return line[:index].rstrip()
    return line


def _unquoted(value: Any) -> Any:
    quoted = isinstance(value, str) and len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value


OF_PLAN: Final = (argument("--plan", default=None, metavar="P", help="The plan; 'agents' by default."),)


NAMES: Final = (
    argument("names", nargs="*", metavar="NAME", help="Agents."),
    *OF_PLAN,
)


NAME: Final = (argument("name", metavar="NAME", help="An agent of the last run."),)


def path_of(name: str, given: argparse.Namespace) -> Path:
    return Path(name).expanduser() if given.anywhere else inside(name, Path.cwd())


def one_of(command: str, word: str, words: Iterable[str]) -> str:
    known = list(words)
    if word not in known:
        hint = did_you_mean(word, known) or f" One of {', '.join(known)}."
        raise UsageError(f"{command} {word}: unknown.{hint}")
    return word


CURLY = "“”„‟‘’‚‛«»″′"  # noqa: RUF001 - the signs it is about
DASHES = "‐‑‒–—―−"  # noqa: RUF001 - the signs it is about
BLANKS = re.compile(r"[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")
INVISIBLE = re.compile(r"[\u200b-\u200d\u2060\ufeff]")
"""Letters without a width, which are copied from pages along with a line."""
_QUOTED = r"""(?<!\S)"[^"]*"(?!\S)|(?<!\S)'[^']*'(?!\S)"""
_TEMPLATE = r"\{\{.*?\}\}|\{%.*?%\}"
_DOLLAR = r"\$\$?[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_NESTED = rf"\{{(?:[^{{}}]|\{{[^{{}}]*\}})*\}}|{_DOLLAR}"
"""A placeholder outside quotes: its braces may hold others, as of a dict or a format's width."""
_FLAT = rf"\{{[^{{}}]*\}}|{_DOLLAR}"
"""A placeholder in quotes, where braces around it may be text."""
_PARTS = re.compile(rf"(?P<quoted>{_QUOTED})|(?P<template>{_TEMPLATE})|(?P<place>{_NESTED})")
_FOUND = "__the_value_of_a_place__"
_INSIDE = re.compile(rf"(?P<template>{_TEMPLATE})|(?P<place>{_FLAT})")


def read_line(line: str, variables: Mapping[str, Any], *, magic: str) -> str:
    """Expand the variables, and refuse characters that only look like quotes and hyphens."""
    if line.isascii() and not any(sign in line for sign in "{$\\"):
        return line
    plain = without_comment(line)
    _check_signs(re.sub(_QUOTED, "", plain), magic)
    made, at = list[str](), 0
    for part in _PARTS.finditer(plain):
        made += [_plain_blanks(plain[at : part.start()]), _filled(part, variables, magic)]
        at = part.end()
    return "".join([*made, _plain_blanks(plain[at:])])


def _check_signs(outside: str, magic: str) -> None:
    if outside.rstrip().endswith("\\"):
        raise UsageError(f"{magic}: a backslash does not continue the line. Write all options in that one line.")
    for word in outside.split():
        if word[0] in CURLY or re.match(rf"-[\w-]+=[{CURLY}]", word):
            raise UsageError(f"{magic}: {word!r} has curly quotes. Write straight ones: \"...\" or '...'.")
        if word[0] in DASHES:
            meant = word.lstrip(DASHES + "-")
            hyphens = "a hyphen: -" if meant[:1].isdecimal() else "two hyphens: --"
            raise UsageError(f"{magic}: {word!r} begins with a dash. Write {hyphens}{meant}")


def _plain_blanks(text: str) -> str:
    return INVISIBLE.sub("", BLANKS.sub(" ", text))


def _filled(part: re.Match[str], variables: Mapping[str, Any], magic: str) -> str:
    if part["template"]:
        return part["template"]
    if part["place"]:
        return _value(part["place"], variables, magic)
    quote, text = part["quoted"][0], part["quoted"][1:-1]
    if re.fullmatch(_NESTED, text) and _has_names(text):  # in quotes so that it is one word
        return quote + _in_quotes(_value(text, variables, magic), quote, text, magic) + quote

    def inside(found: re.Match[str]) -> str:
        if found["template"] or not _has_names(found[0]):  # such as {"a": 1}
            return found[0]
        try:
            return _in_quotes(_text(found[0], variables), quote, found[0], magic)
        except _NoValueError:  # text may have its own braces
            return found[0]

    return quote + _INSIDE.sub(inside, text) + quote


def _in_quotes(value: str, quote: str, place: str, magic: str) -> str:
    if quote in value:
        other = "'" if quote == '"' else '"'
        raise UsageError(f"{magic}: the text of {place} has {quote} in it. Write {other}{place}{other}, or change it.")
    return value


class _NoValueError(Exception):
    """A placeholder has no value that a line can hold."""


def _value(place: str, variables: Mapping[str, Any], magic: str) -> str:
    try:
        return _text(place, variables)
    except _NoValueError as error:
        raise UsageError(
            f"{magic}: {place} in braces or with $ stands for a variable, and has no value here: {error}. "
            "Define it in a cell above, or put text with braces in quotes."
        ) from None


def _text(place: str, variables: Mapping[str, Any]) -> str:
    """Return a placeholder's value, read as in an f-string: an expression, with a conversion and a format."""
    if place.startswith("$$"):  # as in IPython, the way to write the sign itself
        return place[1:]
    try:
        return _text_of(_parsed(place), dict(variables))
    except SyntaxError as error:
        if not place.strip("{} "):
            raise _NoValueError("the braces are empty") from None  # words differ between Pythons
        raise _NoValueError(error.msg) from None
    except Exception as error:  # noqa: BLE001 - any error of the user's expression
        raise _NoValueError(str(error) or type(error).__name__) from None


def _parsed(place: str) -> ast.FormattedValue:
    written = place if place[0] == "{" else f"{{{place[1:]}}}"
    match ast.parse(f"f'''{written}'''", mode="eval").body:
        case ast.JoinedStr(values=[ast.FormattedValue() as part]):
            return part
        case _:
            raise SyntaxError("it is not one expression")


def _has_names(place: str) -> bool:
    try:
        value = place.startswith("$") or _parsed(place).value
    except (SyntaxError, ValueError):
        return False
    return value is True or any(isinstance(one, ast.Name) for one in ast.walk(value))


def _text_of(part: ast.FormattedValue, variables: dict[str, Any]) -> str:
    variables[_FOUND] = value = _evaluated(part.value, variables)
    if not isinstance(value, str | Number | os.PathLike):
        raise TypeError(f"it is a {type(value).__name__}, and a line holds text and numbers")
    part.value = ast.Name(_FOUND, ast.Load())  # evaluated once
    return _evaluated(ast.JoinedStr([part]), variables)


def _evaluated(expression: ast.expr, variables: dict[str, Any]) -> Any:
    formatter: Any = EvalFormatter()
    return formatter.get_field(ast.unparse(expression), [], variables)[0]
