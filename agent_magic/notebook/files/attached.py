"""Values as Python source: plain ones, and attached files as the call that reads them.

`report = am.pdf("report.pdf")` is recognised by its text, without running it.
"""

from __future__ import annotations

import ast
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from agent_magic.declare.content import PLAIN_TEXT, Attachment
from agent_magic.declare.values import PDF, image, pdf, text_file

if TYPE_CHECKING:
    from collections.abc import Callable

READERS = {"image": image, "pdf": pdf, "text_file": text_file}
_HOMES = frozenset({"am", "agent_magic"})


class Reading(NamedTuple):
    """A file to read, `am.pdf('report.pdf')`; without a title its file name is the title."""

    reader: str
    path: str
    title: str | None = None

    def __repr__(self) -> str:
        titled = "" if self.title is None else f", title={self.title!r}"
        return f"am.{self.reader}({self.path!r}{titled})"


def value_of(node: ast.expr) -> Any:
    """Return the value written out; raise `ValueError`, or as `ast.literal_eval`, if it is computed."""
    match node:
        case ast.Call():
            return _reading(node)
        case ast.List(items):
            return [value_of(one) for one in items]
        case ast.Tuple(items):
            return tuple(value_of(one) for one in items)
        case ast.Dict(keys, values):
            names = [ast.literal_eval(one) for one in cast("list[ast.expr]", keys)]
            return dict(zip(names, map(value_of, values), strict=True))
        case _:
            return ast.literal_eval(node)


def _reading(node: ast.Call) -> Reading:
    match node:
        case ast.Call(ast.Attribute(ast.Name(home), reader), [file], titles) if home in _HOMES and reader in READERS:
            match file:
                case ast.Call(ast.Name("Path"), [written], []):
                    path = ast.literal_eval(written)
                case _:
                    path = ast.literal_eval(file)
            named = {one.arg: ast.literal_eval(one.value) for one in titles}
            if isinstance(path, str) and named.keys() <= {"title"}:
                return Reading(reader, path, named.get("title"))
        case _:
            pass
    raise ValueError("a call")


def read(value: Any, folder: Path) -> Any:
    return _each(value, lambda one: READERS[one.reader](folder / one.path, title=one.title), Reading)


def unread(value: Any, folder: Path) -> Any:
    """Replace pictures and documents by readings of their files in a folder."""
    return _each(value, lambda one: _file_of(one, folder) or one, Attachment)


def _file_of(one: Attachment, folder: Path) -> Reading | None:
    path = folder / one.title if one.title else folder
    if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != one.sha256:
        return None
    reader = "image" if one.kind == "image" else {PDF: "pdf", PLAIN_TEXT: "text_file"}[one.media_type]
    return Reading(reader, one.title)


def _each(value: Any, change: Callable[[Any], Any], kind: type[Any]) -> Any:
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, dict):
        return {name: _each(one, change, kind) for name, one in cast("dict[Any, Any]", value).items()}
    if type(value) in {list, tuple}:
        return type(value)(_each(one, change, kind) for one in value)
    return value
