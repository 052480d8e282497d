"""Collect what this package needs in a browser's Python (Pyodide): wheels, and Pyodide's list of them.

Usage: python scripts/pyodide_wheels.py FOLDER [LOCK]

Downloads into FOLDER, with pip, the wheels of the package's dependencies there, in the versions that this environment
has, of IPython and of what JupyterLite's kernel installs, and builds the package's own. With LOCK, the
`pyodide-lock.json` of npm's `pyodide`, it writes a `pyodide-lock.json` that lists those wheels and nothing else: what
they need is loaded from beside it, without an index. pandas is left out: no index has its compiled part, numpy, for
this Python.
"""

from __future__ import annotations

import email
import hashlib
import importlib.metadata
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
OURS = "agent-magic"
PYTHON = "3.14"
TAG = "pyemscripten_2026_0_wasm32"
"""Of compiled wheels for Pyodide 314. Source: PEP 783."""
COMPILED = ("jiter", "pydantic-core")
PURE = "markupsafe"
"""It has no wheel for browsers, but works without its compiled part."""
LEFT_OUT = ("numpy", "pandas", "python-dateutil", "six", "tzdata")
MORE = ("micropip", "packaging", "httpx2-jsfetch")
"""What the kernel, and the HTTP client in a page, need besides."""
BROWSER = {
    "sys_platform": "emscripten",
    "platform_system": "Emscripten",
    "platform_machine": "wasm32",
    "os_name": "posix",
    "python_version": PYTHON,
    "python_full_version": f"{PYTHON}.2",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
    "extra": "",
}


def is_needed(requirement: Requirement) -> bool:
    """Tell whether a requirement counts in a browser."""
    return requirement.marker is None or requirement.marker.evaluate(BROWSER)


def needed() -> dict[str, str]:
    """Return what the package needs in a browser, all in all, as pip is asked for it, by name."""
    found: dict[str, str] = {}
    waiting = [OURS, *MORE]
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in found or name in LEFT_OUT:
            continue
        try:
            there = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = name
            continue
        found[name] = f"{name}=={there.version}"
        asked = map(Requirement, there.requires or ())
        waiting += [one.name for one in asked if is_needed(one)]
    del found[OURS]
    return found


def download(folder: Path) -> None:
    """Download the wheels, and make those that nobody has."""
    folder.mkdir(exist_ok=True)
    wanted = needed()
    del wanted[PURE]
    compiled = [wanted.pop(name) for name in COMPILED]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    fetch = [*pip, "download", "--no-deps", "--only-binary", ":all:", "--python-version", PYTHON, "--dest", str(folder)]
    subprocess.run([*fetch, "--platform", "any", *sorted(wanted.values())], check=True)
    subprocess.run([*fetch, "--platform", TAG, "--implementation", "cp", "--abi", "cp314", *compiled], check=True)
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT)], check=True)
    make_pure(PURE, folder)


def make_pure(name: str, folder: Path) -> None:
    """Write the Python files of an installed package as a wheel."""
    there = importlib.metadata.distribution(name)
    stem = f"{name}-{there.version}"
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        for file in there.files or ():
            if file.suffix == ".py":
                wheel.writestr(str(file), file.read_text())
        wheel.writestr(f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {there.version}\n")
        wheel.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{stem}.dist-info/RECORD", "")


def entry_of(wheel: Path) -> tuple[str, dict[str, Any]]:
    """Return the name of a wheel's package, and its entry in Pyodide's list."""
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        said = email.message_from_bytes(file.read(next(one for one in names if one.endswith(".dist-info/METADATA"))))
    tops = {one.split("/")[0].removesuffix(".py") for one in names if one.endswith(".py") and ".data/" not in one}
    asked = map(Requirement, said.get_all("Requires-Dist", []))
    name = canonicalize_name(said["Name"])
    return name, {
        "name": name,
        "version": said["Version"],
        "file_name": wheel.name,
        "install_dir": "site",
        "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
        "package_type": "package",
        "imports": sorted(tops),
        "depends": [canonicalize_name(one.name) for one in asked if is_needed(one)],
        "unvendored_tests": False,
    }


def write_lock(folder: Path, lock: Path) -> None:
    """Write the list of the wheels, as Pyodide reads it."""
    entries = dict(sorted(entry_of(wheel) for wheel in folder.glob("*.whl")))
    for one in entries.values():
        one["depends"] = sorted({name for name in one["depends"] if name in entries})
    head = json.loads(lock.read_text(encoding="utf-8"))
    (folder / "pyodide-lock.json").write_text(json.dumps({**head, "packages": entries}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    target = Path(sys.argv[1])
    download(target)
    if len(sys.argv) > 2:
        write_lock(target, Path(sys.argv[2]))
