"""F17: several processes write one cassette at one time, while another reads it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from agent_magic.record import read_cassette

ROOT = Path(__file__).parents[2]
WRITERS, TIMES = 4, 25
SCRIPT = f"""
import sys
from pathlib import Path
from agent_magic.api import Agent, Plan
from agent_magic.record.cassette.writing import write_cassette
from tests.live.virtual import Reply, drive

plan = Plan([Agent(f"a{{one}}", "x") for one in range(3)])
record, _ = drive(plan, lambda *_: Reply(1.0, text=sys.argv[2] * 100_000))
for _ in range({TIMES}):
    write_cassette(record, Path(sys.argv[1]))
"""


def test_writers_do_not_mix(tmp_path):
    """Lines of 100 KB: whoever reads finds one writer's file, whole; nothing of a half-written one stays behind."""
    path = tmp_path / "run.cassette.jsonl"
    words = [sys.executable, "-c", SCRIPT, str(path)]
    writers = [subprocess.Popen([*words, letter], cwd=ROOT) for letter in "abcd"[:WRITERS]]
    seen, reads = set(), 0
    while any(writer.poll() is None for writer in writers):
        if not path.exists():
            continue
        cassette = read_cassette(path)
        assert ((), 0) == (cassette.damaged, cassette.missing)
        texts = {call.ended.answer.text for call in cassette.calls if call.ended is not None and call.ended.answer}
        assert len(texts) == 1
        seen |= {text[0] for text in texts}
        reads += 1
    assert [0] * WRITERS == [writer.returncode for writer in writers]
    assert reads > WRITERS
    assert seen <= set("abcd")
    assert [path.name] == [one.name for one in tmp_path.iterdir()]
