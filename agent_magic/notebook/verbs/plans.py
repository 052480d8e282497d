"""Plans written for you: presets, exports, the check of a plan, and its list of things to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from IPython.core.error import UsageError

from agent_magic.declare.cells import to_cell
from agent_magic.declare.presets import PRESETS
from agent_magic.notebook.command import CommandContext, Parser, Verb, add_plan, one_of
from agent_magic.notebook.files.cells import to_notebook
from agent_magic.notebook.front_end import put_cell, say
from agent_magic.notebook.session import DEFAULT_PLAN
from agent_magic.record.files import inside

if TYPE_CHECKING:
    from argparse import Namespace

FORMS = ("cell", "cells", "json")
"""What a plan is exported as."""


def _preset_options(parser: Parser) -> None:
    parser.add_argument("preset", nargs="?", metavar="NAME", help=f"One of {', '.join(PRESETS)}.")


def _preset(ctx: CommandContext, given: Namespace) -> None:
    if given.preset is None:
        say("\n".join(f"%agents preset {name:<13} {text.splitlines()[1]}" for name, text in PRESETS.items()))
        return
    put_cell(ctx.shell, PRESETS[one_of("%agents preset", given.preset.lower(), PRESETS)])


def _export_options(parser: Parser) -> None:
    said = "cell: one %%%%agents cell below. cells: a notebook of %%%%agent cells. json: a plan as JSON."
    parser.add_argument("form", metavar="FORM", help=said)
    parser.add_argument("file", nargs="?", metavar="FILE", help="Where cells and json are written: PLAN.ipynb, .json.")
    parser.add_argument("--anywhere", action="store_true", help="The file may lie outside the notebook's folder.")
    add_plan(parser)


def _export(ctx: CommandContext, given: Namespace) -> None:
    one_of("%agents export", given.form, FORMS)
    registry = ctx.session.registry(given.plan or DEFAULT_PLAN)
    if given.form == "cell":
        put_cell(ctx.shell, to_cell(registry.agents, name=registry.name))
        return
    names = ctx.shell.user_ns
    plan, known = ctx.session.plan(names, name=registry.name, defaults={}), registry.values(names)
    as_cells = given.form == "cells"
    data = to_notebook(plan, steps=registry.agents, known=known) if as_cells else plan.to_dict()
    ending = ".ipynb" if as_cells else ".json"
    name = given.file or plan.name + ending
    path = Path(name).expanduser() if given.anywhere else inside(name, Path.cwd())
    try:
        path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{name!r} cannot be written: {error.strerror}. Choose another place.") from None
    say(f"{len(plan)} agents written to {name}.")


VERBS = {
    "preset": Verb(
        "Put a ready plan below, as a %%agents cell to change and run. Without a name it lists them.",
        _preset_options,
        _preset,
        examples=("%agents preset", "%agents preset review    # four reviewers and a synthesis"),
    ),
    "export": Verb(
        "Write the declared agents as one %%agents cell, as a notebook of %%agent cells, or as JSON.",
        _export_options,
        _export,
        examples=(
            "%agents export cell    # one cell with all agents, below",
            "%agents export cells    # a notebook with a cell for each",
            "%agents export json plan.json    # am.Plan.from_json reads it",
        ),
    ),
}
