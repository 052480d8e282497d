"""Files of every release open for ever. Add a folder with each release; never change one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_magic.api import Plan
from agent_magic.record import read_cassette

RELEASES = Path(__file__).parent / "releases"
FOLDERS = sorted(path for path in RELEASES.iterdir() if path.is_dir())


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_old_cassettes_replay(folder):
    """Every line is read, and the plan of then gets the texts, the seconds and the dollars of then."""
    told = json.loads((folder / "told.json").read_text())
    cassette = read_cassette(folder / "run.cassette.jsonl")
    assert ((), 0) == (cassette.damaged, cassette.missing)
    run = Plan.from_dict(told["plan"]).replay(folder / "run.cassette.jsonl")
    assert told["api_s"] == {result.name: result.api_s for result in run.record.results}
    assert told["cost_usd"] == {result.name: result.cost_usd for result in run.record.results}
    assert told["attempts"] == {result.name: len(result.attempts) for result in run.record.results}
    assert told["characters"] == {name: len(text) for name, text in run.texts.items()}
    assert run.record.simulated
    if "policy" in told:
        kept = run.record.terms.policy if run.record.terms else {}
        assert told["policy"].items() <= kept.items()
        assert told["cost_multiple"] == run.summary["cost_multiple"][0]
