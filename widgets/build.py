# ruff: noqa: INP001 - a script, no package
"""Build the front end into the package: join its modules and style sheets. Nothing is fetched.

Usage: python widgets/build.py            write agent_magic/show/static
       python widgets/build.py --check    write nothing; exit status 1 where a built file is not current
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE, TARGET = ROOT / "widgets" / "src", ROOT / "agent_magic" / "show" / "static"
INNER = ("pure.js", "dom.js", "keep.js", "header.js", "asking.js", "panel.js", "cards.js", "groups.js")
NOTE = "built from widgets/src by widgets/build.py: change it there"

sys.path.insert(0, str(ROOT))
from agent_magic.show.theme import looks_css, variables  # noqa: E402 - the package stands beside this folder


def main(arguments: list[str]) -> int:
    """Write or check the built files."""
    made = build()
    if "--check" in arguments:
        old = [name for name, text in made.items() if not current(name, text)]
        lines = [f"not current: {name}. Run python widgets/build.py" for name in old]
        sys.stdout.write("\n".join(lines or ["current"]) + "\n")
        return 1 if old else 0
    TARGET.mkdir(exist_ok=True)
    for name, text in made.items():
        (TARGET / name).write_text(text, encoding="utf-8")
    return 0


def build() -> dict[str, str]:
    """Return the built files by name."""
    base = f"/* {NOTE} */\n{_themes()}{_read('base.css')}"
    return {
        "figure.css": f"/* {NOTE} */\n{looks_css('.am-fig')}{_read('figure.css')}",
        "live.css": f"{base}{looks_css('.am-live')}{_read('figure.css')}{_read('live.css')}",
        "explore.css": f"{base}{_read('explore.css')}",
        "live.js": _joined(*INNER, "live.js"),
        "explore.js": _joined("dom.js", "keep.js", "explore.js"),
        "ask.js": _joined("dom.js", "keep.js", "explore.js", "ask.js"),
    }


def _joined(*names: str) -> str:
    """Return modules as one file; the last is the one that is loaded."""
    inner = (_module(name, inner=True) for name in names[:-1])
    return "\n".join([f"// {NOTE}", *inner, _module(names[-1], inner=False)])


def current(name: str, text: str) -> bool:
    """Tell whether a built file is what its sources make now."""
    return (TARGET / name).is_file() and (TARGET / name).read_text(encoding="utf-8") == text


def _themes() -> str:
    """Return the colours: light, dark where the system is dark, and what a notebook says of itself before both."""
    light, dark = variables("light"), variables("dark")
    return (
        f".am-live{{{light}}}\n"
        f"@media (prefers-color-scheme:dark){{.am-live{{{dark}}}}}\n"
        f'[data-jp-theme-light="true"] .am-live,body.vscode-light .am-live{{{light}}}\n'
        f'[data-jp-theme-light="false"] .am-live,body.vscode-dark .am-live{{{dark}}}\n'
    )


def _module(name: str, *, inner: bool) -> str:
    """Return a module as part of one file: without its imports, and without its exports if it is an inner one."""
    text = re.sub(r'^import .* from "\./.*";\n', "", _read(name), flags=re.MULTILINE)
    text = re.sub(r'import\("\./\w+\.js"\)\.', "", text)
    return re.sub(r"^export (default .*\n)?", "", text, flags=re.MULTILINE) if inner else text


def _read(name: str) -> str:
    return (SOURCE / name).read_text(encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
