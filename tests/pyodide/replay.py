"""What recordings give on this Python: hashes of pictures, texts and forecasts. Runs under CPython and under Pyodide.

`python replay.py prepare FOLDER` writes the plans and cassettes of the gallery, of the site and of every release into a
folder, and each run as a shared page holds it;
`python replay.py FOLDER` prints the hashes as JSON.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
MORE = ".cassette.jsonl"
CHOICES = ({}, {"concurrency": 1}, {"schedule": "layers", "limits": "10"}, {"cache": "off", "batch": True})
"""What the controls of a page are set to."""


def prepare(folder: Path) -> None:
    """Write a plan and a cassette for each recording of the checkout."""
    from agent_magic import Plan
    from agent_magic.notebook.files import cells

    for cassette in sorted((ROOT / "notebooks").glob(f"*{MORE}")):
        name = cassette.name.removesuffix(MORE)
        notebook = cassette.with_name(f"{name}.ipynb")
        if not notebook.exists():  # what a notebook wrote when the tests ran it
            continue
        found = cells.find_agents(cells.read_cells(cells.read_text(notebook), notebook.name))
        plan, unknown = cells.plan_data(found, "agents")
        assert not unknown, unknown
        _write(folder, name, Plan.from_dict(plan).to_json(), cassette)
    for plan in sorted((ROOT / "docs" / "runs").glob("*.plan.json")):
        name = plan.name.removesuffix(".plan.json")
        _write(folder, f"site-{name}", plan.read_text(), plan.with_name(f"{name}{MORE}"))
    for told in sorted((ROOT / "tests" / "record" / "releases").glob("*/told.json")):
        plan = json.loads(told.read_text())["plan"]
        _write(folder, told.parent.name, Plan.from_dict(plan).to_json(), told.with_name(f"run{MORE}"))


def _write(folder: Path, name: str, plan: str, cassette: Path) -> None:
    from agent_magic import Plan
    from agent_magic.show import pack_run

    (folder / f"{name}.plan.json").write_text(plan)
    shutil.copy(cassette, folder / f"{name}{MORE}")
    (folder / f"{name}.packed.txt").write_text(pack_run(Plan.from_json(plan).replay(cassette).record))


def hashes(folder: Path) -> dict[str, dict[str, str]]:
    """Replay each recording and hash what it says; the same on every Python."""
    from agent_magic import Plan
    from agent_magic.show import answering, run_timeline, static_bundle

    found = {}
    for file in sorted(folder.glob("*.plan.json")):
        name = file.name.removesuffix(".plan.json")
        run = Plan.from_json(file.read_text()).replay(folder / f"{name}{MORE}")
        forecasts = [
            run.forecast(concurrency=most, schedule=schedule).record.results
            for most in (1, 2, 4)
            for schedule in ("ready", "layers")
        ]
        answer = answering((folder / f"{name}.packed.txt").read_text())
        said = {
            "graph": static_bundle(run.plan, run.record)["image/svg+xml"],
            "timeline": run_timeline(run.record).bundle()["image/svg+xml"],
            "texts": json.dumps([one.text for one in run.record.results]),
            "page": "".join(answer(json.dumps(choice)) for choice in CHOICES),
            "forecast": repr([(one.name, one.cost_usd, one.total_s) for every in forecasts for one in every]),
        }
        found[name] = {part: hashlib.sha256(text.encode()).hexdigest() for part, text in said.items()}
    return found


if __name__ == "__main__":
    if sys.argv[1] == "prepare":
        prepare(Path(sys.argv[2]))
    else:
        print(json.dumps(hashes(Path(sys.argv[1])), indent=1, sort_keys=True))
