# ruff: noqa: INP001 - a script, no package
"""Build the front end into the package: esbuild bundles and minifies the scripts, style sheets are joined.

The built files are part of the repository, so that nobody who installs the package needs Node. The first line of a
script says of which sources it was built, so that a check does not need Node either.

Usage: python widgets/build.py            write agent_magic/show/static; esbuild comes from npm
       python widgets/build.py --check    write nothing; exit status 1 where a built file is not of these sources
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE, TARGET = ROOT / "widgets" / "src", ROOT / "agent_magic" / "show" / "static"
SCRIPTS = ("live.js", "explore.js", "ask.js")
ESBUILD = "esbuild@0.28.2"
NOTE = "built from widgets/src by widgets/build.py: change it there"

sys.path.insert(0, str(ROOT))
from agent_magic.show.theme import looks_css, variables  # noqa: E402 - the package stands beside this folder


def main(arguments: list[str]) -> int:
    """Write or check the built files."""
    sheets, of = styles(), sources()
    if "--check" in arguments:
        old = [name for name, text in sheets.items() if _built(name) != text]
        old += [name for name in SCRIPTS if _built(name).partition("\n")[0] != of]
        lines = [f"not current: {name}. Run python widgets/build.py" for name in old]
        sys.stdout.write("\n".join(lines or ["current"]) + "\n")
        return 1 if old else 0
    TARGET.mkdir(exist_ok=True)
    for name, text in {**sheets, **{name: f"{of}\n{_bundled(name)}" for name in SCRIPTS}}.items():
        (TARGET / name).write_text(text, encoding="utf-8")
    return 0


def styles() -> dict[str, str]:
    """Return the built style sheets by name."""
    base = f"/* {NOTE} */\n{_themes()}{_read('base.css')}"
    return {
        "figure.css": f"/* {NOTE} */\n{looks_css('.am-fig')}{_read('figure.css')}",
        "live.css": f"{base}{looks_css('.am-live')}{_read('figure.css')}{_read('live.css')}",
        "explore.css": f"{base}{_read('explore.css')}",
    }


def sources() -> str:
    """Return the first line of each built script: what it was built of, and with which esbuild."""
    text = "".join([ESBUILD, *(_read(path.name) for path in sorted(SOURCE.glob("*.js")))])
    return f"// {NOTE}. Of {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _bundled(name: str) -> str:
    """Return a script and what it imports as one module, without comments."""
    npx = shutil.which("npx")
    if not npx:
        sys.exit("Node's npx is missing: it runs esbuild, which bundles the scripts.")
    options = ("--bundle", "--minify", "--format=esm", "--target=es2022", "--charset=utf8", "--log-level=warning")
    done = subprocess.run(
        [npx, "--yes", ESBUILD, str(SOURCE / name), *options],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout


def _built(name: str) -> str:
    """Return a built file as it is; empty where there is none."""
    return (TARGET / name).read_text(encoding="utf-8") if (TARGET / name).is_file() else ""


def _themes() -> str:
    """Return the colours: light, dark where the system is dark, and what a notebook says of itself before both."""
    light, dark = variables("light"), variables("dark")
    return (
        f".am-live{{{light}}}\n"
        f"@media (prefers-color-scheme:dark){{.am-live{{{dark}}}}}\n"
        f'[data-jp-theme-light="true"] .am-live,body.vscode-light .am-live{{{light}}}\n'
        f'[data-jp-theme-light="false"] .am-live,body.vscode-dark .am-live{{{dark}}}\n'
    )


def _read(name: str) -> str:
    return (SOURCE / name).read_text(encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
