"""The command line: serve the mock server; replay, export, import and scan notebooks."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_magic.errors import AgentMagicError
from agent_magic.record.cassette.writing import made_with
from agent_magic.record.secret_scan import not_allowed, scan_file, secrets_of
from agent_magic.simulator.program import main as simulate

if TYPE_CHECKING:
    from collections.abc import Sequence

DIFFERS, FAILED = 1, 2
"""Exit statuses: something differs or was found; it could not be done."""
_WITH = "a file or folder beside it that its cells read without naming it"


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return its exit status."""
    given = list(sys.argv[1:] if argv is None else argv)
    if given[:1] == ["simulate"]:
        return simulate(given[1:])
    chosen = _parser().parse_args(given)
    try:
        return chosen.do(chosen)
    except AgentMagicError as error:
        print(error, file=sys.stderr)
    except OSError as error:
        print(f"{error.filename or 'a file'}: {error.strerror}", file=sys.stderr)
    return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="agent-magic", description="Concurrent Claude agents in notebooks.")
    parser.add_argument("--version", action="version", version=f"agent-magic {made_with()['agent-magic']}")
    commands = parser.add_subparsers(title="commands", required=True)
    commands.add_parser("simulate", help="serve the mock Messages API on 127.0.0.1", add_help=False)
    one = commands.add_parser(
        "replay", help="execute a notebook on its recording, without key and network, and compare"
    )
    one.add_argument("notebook", type=Path)
    one.add_argument("--cassette", type=Path, help="what answers; by default NOTEBOOK.cassette.jsonl beside it")
    one.add_argument("--output", type=Path, help="where to write the executed notebook")
    one.add_argument("--with", action="append", default=[], type=Path, metavar="PATH", dest="more", help=_WITH)
    one.set_defaults(do=_replay)
    one = commands.add_parser("export", help="write the agents of a notebook as a script or as a JSON plan")
    one.add_argument("notebook", help="a notebook, or - for standard input")
    one.add_argument("--format", choices=("py", "json"), default="py")
    one.add_argument("--plan", default="agents", help="which plan, where the notebook declares several")
    one.add_argument("--output", type=Path, help="where to write; by default standard output")
    one.set_defaults(do=_export)
    one = commands.add_parser("import", help="write a JSON plan, or a script that export wrote, as a notebook")
    one.add_argument("plan", help="a JSON plan or a Python script, or - for standard input")
    one.add_argument("--output", type=Path, help="where to write; by default standard output")
    one.set_defaults(do=_import)
    one = commands.add_parser("scan", help="look for keys in notebooks, recordings and other files")
    one.add_argument("files", nargs="+", type=Path)
    one.add_argument("--allow", action="append", default=[], metavar="MARK", help="a finding that is not a key")
    one.set_defaults(do=_scan)
    return parser


def _replay(given: argparse.Namespace) -> int:
    from agent_magic.notebook.files.sharing import rerun  # lazy: it loads IPython

    compared = rerun(given.notebook, cassette=given.cassette, output=given.output, more=given.more)
    for one in compared:
        if one.error:
            print(f"cell {one.number}: failed: {one.error}")
        for line in one.difference:
            print(f"cell {one.number}: {line}")
    failed = [one for one in compared if one.error]
    differ = [one for one in compared if one.difference]
    if failed or differ:
        print(f"{len(failed)} cells failed, {len(differ)} of {len(compared)} show something else", file=sys.stderr)
        if any(one.error.startswith(("FileNotFoundError", "ModuleNotFoundError")) for one in failed):
            print("Add other files that the cells read with --with PATH.", file=sys.stderr)
        return FAILED if failed else DIFFERS
    if not compared:
        print("no cell failed; the notebook has no saved outputs to compare")
    else:
        print(f"the same in all {len(compared)} cells with outputs")
    return 0


def _export(given: argparse.Namespace) -> int:
    from agent_magic.declare.plan_json import with_files  # lazy: other commands need none of it
    from agent_magic.notebook.files.cells import find_agents, plan_data, read_cells  # lazy: it loads IPython
    from agent_magic.notebook.files.scripts import (
        read,  # lazy: it loads IPython
        to_script,  # lazy: it loads IPython
    )

    found = find_agents(read_cells(_text(given.notebook), given.notebook))
    plan, unknown = plan_data(found, given.plan)
    for name, cell in unknown.items():
        where = f"cell {cell} computes it" if cell else "no cell sets it"
        print(f"note: {name!r} has no plain value ({where}): give it in the result", file=sys.stderr)
    if given.format == "json":
        plan |= with_files(read(plan["values"], _folder(given.notebook)))
        return _write(json.dumps(plan, indent=2) + "\n", given.output)
    title = "The agents of a notebook." if given.notebook == "-" else f"The agents of {Path(given.notebook).name}."
    run = found.runs[-1] if found.runs else ""
    return _write(to_script(plan, title=title, unknown=unknown, run=run), given.output)


def _import(given: argparse.Namespace) -> int:
    from agent_magic.api import Plan  # lazy: other commands need none of it
    from agent_magic.notebook.files.cells import to_notebook  # lazy: it loads IPython
    from agent_magic.notebook.files.scripts import (
        from_script,  # lazy: it loads IPython
        read,  # lazy: it loads IPython
    )

    text, run = _text(given.plan), ""
    if given.plan.endswith(".py") or not text.lstrip().startswith(("{", "[")):
        data, run = from_script(text)
        written: dict[str, Any] = data["values"]
        plan = Plan.from_dict({**data, "values": read(written, _folder(given.plan))})
    else:
        plan, written = Plan.from_json(text), dict[str, Any]()
    for note in plan.notes:
        print(f"note: {note}", file=sys.stderr)
    known = {**plan.values, **{name: one for name, one in written.items() if name in plan.values}}
    return _write(json.dumps(to_notebook(plan, run, known=known), indent=1) + "\n", given.output)


def _scan(given: argparse.Namespace) -> int:
    secrets = secrets_of(os.environ)
    found = [one for path in given.files for one in scan_file(str(path), path.read_bytes(), secrets)]
    found = not_allowed(found, given.allow)
    for one in found:
        print(one)
    if found:
        print("Take it out, or allow what is not a key with --allow MARK.", file=sys.stderr)
        return DIFFERS
    print(f"no key found in {len(given.files)} files" if len(given.files) > 1 else "no key found")
    return 0


def _folder(name: str) -> Path:
    """Return the base folder of a file's paths; for standard input the current one."""
    return Path() if name == "-" else Path(name).parent


def _text(name: str) -> str:
    from agent_magic.notebook.files.cells import read_text  # lazy: it loads IPython

    return sys.stdin.read() if name == "-" else read_text(Path(name))


def _write(text: str, path: Path | None) -> int:
    if path is None:
        sys.stdout.write(text)
    else:
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
