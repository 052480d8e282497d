"""A shared notebook executed as its reader would: without a key, without a network, compared with what was saved."""

from __future__ import annotations

import json
import shutil

import pytest

from agent_magic.cli import main
from tests.kernels import ROOT

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

NAME = "share_and_replay"
KEY = "sk-" + "ant-api03-" + "CanaryCanary0123456789xyz"
NETWORK = "import socket\nsocket.create_connection(('127.0.0.1', 9))"
SILENT = {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": []}


def test_a_reader_gets_what_was_saved_or_hears_what_differs(tmp_path, monkeypatch, capsys):
    """Edited outputs differ, a changed prompt and the network fail, the key is gone; the notebook stays as it is."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    path = tmp_path / f"{NAME}.ipynb"
    notebook = json.loads((ROOT / "notebooks" / path.name).read_text())
    shutil.copy(ROOT / "notebooks" / f"{NAME}.cassette.jsonl", tmp_path)
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"][:8]
    shown = next(cell for cell in cells if "run.attempts[" in "".join(cell["source"]))
    shown["outputs"][0]["data"]["text/plain"] = ["something else"]
    key = "import os\nassert 'ANTHROPIC_API_KEY' not in os.environ"
    changed = "%%agent claims\nChanged.\n"
    for number, source in enumerate((key, NETWORK, "open('made', 'w')", changed, "%agents run"), 90):
        cells.append({**SILENT, "id": f"n-{number}", "source": source})
    path.write_text(json.dumps({**notebook, "cells": cells}))
    before = path.read_bytes()
    assert 2 == main(["replay", str(path), "--output", str(tmp_path / "out.ipynb")])
    said = capsys.readouterr()
    failed = [line for line in said.out.splitlines() if ": failed: " in line]
    assert "-something else" in said.out
    assert ["PermissionError", "UsageError"] == [line.split("failed: ")[1].split(":")[0] for line in failed]
    assert "a clean replay reaches no network" in failed[0]
    assert "differs in" in failed[1]
    assert "2 cells failed, 1 of" in said.err
    assert before == path.read_bytes()
    assert not (tmp_path / "made").exists()
    assert KEY not in (tmp_path / "out.ipynb").read_text() + said.out + said.err


def test_the_notebook_on_sharing_is_what_it_shows(tmp_path, capsys):
    """The gallery's own one, on this machine, whatever versions it was saved by."""
    text = (ROOT / "notebooks" / f"{NAME}.ipynb").read_text()
    assert ", python 3." in text
    (tmp_path / f"{NAME}.ipynb").write_text(text.replace(", python 3.", ", python 2."))
    shutil.copy(ROOT / "notebooks" / f"{NAME}.cassette.jsonl", tmp_path)
    assert 0 == main(["replay", str(tmp_path / f"{NAME}.ipynb")])
    assert "the same in all" in capsys.readouterr().out
