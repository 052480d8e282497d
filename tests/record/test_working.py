"""Recordings of a run that works, with tasks, tools, a person and a picture: damaged, without texts, elsewhere, old."""

# Tests take for granted what they have just checked.
# pyright: reportOptionalMemberAccess=false, reportPrivateUsage=false

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import agent_magic as am
from agent_magic.errors import CassetteError, NoValue, ReplayMiss, SecretFound
from agent_magic.measure import agents_frame, attempts_frame, tool_calls_frame
from agent_magic.record import checked, read_cassette
from agent_magic.simulator import start
from tests.record.working import EDITED, OTHER, SALES, Work, told

HERE = Path(__file__).parent
KEPT = HERE / "ledgers" / "working"


@pytest.fixture(scope="module")
def run() -> am.Run:
    """The run."""
    return Work().run()


@pytest.fixture
def path(run: am.Run, tmp_path: Path) -> Path:
    """A cassette of it."""
    run.save(tmp_path / "run.cassette.jsonl")
    return tmp_path / "run.cassette.jsonl"


def frames(run: am.Run) -> list[str]:
    """Its frames as CSV, without where the answers came from."""
    made = [make(run.record) for make in (agents_frame, attempts_frame, tool_calls_frame)]
    return [one.drop(columns=[c for c in ("source",) if c in one]).to_csv() for one in made]


def test_it_replays_without_a_call(run: am.Run, path: Path) -> None:
    """Frames, values, what was printed and what a person changed; no function is called."""
    work = Work()
    again = work.plan().replay(path)
    assert (frames(run), told(run), []) == (frames(again), told(again), work.called)
    assert EDITED == again["analyst"].calls[2].arguments
    assert run["totals"].value.equals(again["totals"].value)
    assert ("bad", 2) == (again["label"].value.mood, again["label"].value.score)


# damage


def replayed(path: Path, rows: list[bytes]) -> am.Run | str:
    """Replay what is left; the word of an honest error where it does not fit."""
    path.write_bytes(b"".join(rows))
    try:
        return Work().plan().replay(path)
    except ReplayMiss as miss:
        return "miss" if miss.damaged else str(miss)
    except CassetteError:
        return "no cassette"


def check_is_whole_or_refused(run: am.Run, path: Path, rows: list[bytes]) -> bool:
    """Hold that a damaged file gives the run as it was, but for the pictures' bytes and times, or an honest error."""
    found = replayed(path, rows)
    if isinstance(found, str):
        assert found in {"miss", "no cassette"}
        return False
    assert told(run) == told(found)
    return True


def test_a_line_of_a_conversation_that_is_cut_or_flipped_is_never_believed(run: am.Run, path: Path) -> None:
    """Each line, at several places: the damaged line is named, and no other conversation comes out."""
    rows, rng = path.read_bytes().splitlines(keepends=True), random.Random(7)
    for number in range(1, len(rows)):
        for _ in range(6):
            cut = rows[number][: rng.randrange(1, len(rows[number]) - 1)] + b"\n"
            flipped = bytearray(rows[number])
            flipped[rng.randrange(len(flipped) - 1)] ^= 1 << rng.randrange(7)
            for one in (cut, bytes(flipped)):
                if one.count(b"\n") != 1:
                    continue
                damaged = [*rows[:number], one, *rows[number + 1 :]]
                check_is_whole_or_refused(run, path, damaged)
                assert number + 1 in read_cassette(path).damaged


def test_a_line_of_a_conversation_that_is_gone_is_missed(run: am.Run, path: Path) -> None:
    """A turn in the middle as well as the last one: the rest is no whole conversation."""
    rows = path.read_bytes().splitlines(keepends=True)
    for number in range(1, len(rows)):
        line = json.loads(rows[number])
        whole = check_is_whole_or_refused(run, path, [*rows[:number], *rows[number + 1 :]])
        if line.get("agent") == "analyst" and "call" in line:
            assert not whole, f"turn {line['call']} is gone"


def test_lines_in_another_order_are_the_same_run_or_none(run: am.Run, path: Path) -> None:
    """A turn that says only what is new needs the one before it: a file that was sorted gives no other conversation."""
    rows, rng = path.read_bytes().splitlines(keepends=True), random.Random(3)
    head, *rest = rows
    for _ in range(30):
        rng.shuffle(rest)
        check_is_whole_or_refused(run, path, [head, *rest])
    for at in range(1, len(rows) - 1):
        swapped = [*rows[:at], rows[at + 1], rows[at], *rows[at + 2 :]]
        check_is_whole_or_refused(run, path, swapped)


def test_a_line_that_stands_twice_adds_nothing(run: am.Run, path: Path) -> None:
    """A merge of two copies of a file may repeat lines: no call is counted or made twice."""
    rows = path.read_bytes().splitlines(keepends=True)
    for number in range(1, len(rows)):
        check_is_whole_or_refused(run, path, [*rows[:number], rows[number], *rows[number:]])


def test_a_turn_with_a_good_checksum_and_no_conversation_is_refused(run: am.Run, path: Path) -> None:
    """Somebody who signs a line anew can make it say what no run did: from which turn it goes on, or its number."""
    rows = [json.loads(one) for one in path.read_bytes().splitlines()]
    last = next(n for n, one in reversed([*enumerate(rows)]) if one.get("agent") == "analyst" and "call" in one)
    for change in ({"continues": 7}, {"continues": 3}, {"call": 9}, {"continues": "2"}, {"continues": None}):
        line = {key: value for key, value in rows[last].items() if key != "check"} | change
        signed = [*rows[:last], checked(line), *rows[last + 1 :]]
        data = [json.dumps(one).encode() + b"\n" for one in signed]
        assert "miss" == replayed(path, data), change


# without texts

PRIVATE = "sesame-4711"


def private_work() -> tuple[am.Plan, am.Run]:
    """A run in which everything that can hold a text holds the same word."""

    @am.tool
    def look(word: str) -> str:
        """Look."""
        print("print", word)
        return f"result {word}"

    @am.tool
    def fails(word: str) -> str:
        """Fail."""
        raise ValueError(word)

    def task(variable: str) -> dict[str, str]:
        print("task", variable)
        return {"value": variable}

    def bad(task: dict[str, str]) -> None:
        raise KeyError(task["value"])

    steps = [
        am.Task("task", task),
        am.Task("bad", bad),
        am.Agent(
            "a",
            f'{PRIVATE} {{{{ task }}}} [[tool:look {{"word": "{PRIVATE}"}}]] [[tool:fails {{"word": "{PRIVATE}"}}]]',
            tools=[look, fails],
            system=PRIVATE,
        ),
    ]
    plan = am.Plan(steps, values={"variable": PRIVATE})
    with start(latency="none", unlimited=True) as server:
        return plan, asyncio.run(plan.run(client=am.Claude(base_url=server.url, api_key="any")))


def test_without_texts_nothing_of_a_tool_run_is_left(tmp_path: Path) -> None:
    """No argument, result, print, traceback, value or text; neither by `texts=False` nor by a function, nor shared."""
    plan, run = private_work()
    assert {"succeeded", "failed"} == set(run.tool_calls["status"])
    assert PRIVATE in run["a"].calls[0].arguments + run["a"].calls[0].result
    ways: list[dict[str, Any]] = [{"texts": False}, {"redact": lambda text: str(text).replace(PRIVATE, "-")}]
    for number, more in enumerate(ways):
        path = tmp_path / f"{number}.cassette.jsonl"
        run.save(path, **more)
        assert PRIVATE not in path.read_text()
        again = plan.replay(path)
        assert list(run.tool_calls["status"]) == list(again.tool_calls["status"])
    path = tmp_path / "shared.cassette.jsonl"
    am.share(run, path, texts=False)
    assert PRIVATE not in path.read_text()
    with pytest.raises(NoValue):
        _ = plan.replay(path)["task"].value


@pytest.mark.parametrize("where", ["argument", "task"])
def test_a_key_anywhere_in_a_tool_run_is_found_before_it_is_shared(where: str, tmp_path: Path) -> None:
    """A tool is where keys come in: nothing is written, and the finding does not show it.

    A key in a result is masked before it is sent: `test_no_key_goes_out_in_a_result`.
    """
    key = "sk-ant-" + "Q9zX7vB3nM" * 3
    given = key if where == "argument" else "x"

    @am.tool
    def look(word: str) -> str:
        """Look."""
        return word

    def task() -> str:
        return key if where == "task" else "x"

    steps = [am.Task("task", task), am.Agent("a", f'Go [[tool:look {{"word": "{given}"}}]]', tools=[look])]
    with start(latency="none", unlimited=True) as server:
        run = asyncio.run(am.Plan(steps).run(client=am.Claude(base_url=server.url, api_key="any")))
    with pytest.raises(SecretFound) as caught:
        am.share(run, tmp_path / "run.cassette.jsonl")
    assert key not in str(caught.value)
    assert not (tmp_path / "run.cassette.jsonl").exists()


def test_a_key_that_a_tool_prints_never_gets_into_the_record(tmp_path: Path) -> None:
    """Nobody looks for keys in prints, so they are masked as they are printed: the run can be shared."""
    key = "sk-ant-" + "Q9zX7vB3nM" * 3

    @am.tool
    def look(word: str) -> str:
        """Look."""
        print(f"asking with {key}")
        return word

    with start(latency="none", unlimited=True) as server:
        plan = am.Plan([am.Agent("a", 'Go [[tool:look {"word": "x"}]]', tools=[look])])
        run = asyncio.run(plan.run(client=am.Claude(base_url=server.url, api_key="any")))
    path = tmp_path / "run.cassette.jsonl"
    am.share(run, path)
    assert key not in path.read_text()
    assert "asking with [" in path.read_text()


# elsewhere

EMPTY = """
import sys
import agent_magic as am
from agent_magic.measure.frames import agents_frame, attempts_frame, tool_calls_frame
import json
plan = am.Plan.from_dict(json.loads(open(sys.argv[1]).read()))
run = plan.replay(sys.argv[2])
made = [make(run.record) for make in (agents_frame, attempts_frame, tool_calls_frame)]
print(json.dumps([one.drop(columns=[c for c in ("source",) if c in one]).to_csv() for one in made]))
assert not [one for one in sys.modules if one.startswith(("anthropic", "mcp", "tests", "httpx"))], "nothing to call"
print(run["label"].value.mood, run["totals"].value.shape, run["analyst"].calls[2].arguments)
"""


def test_it_replays_where_nothing_of_it_is(run: am.Run, path: Path, tmp_path: Path) -> None:
    """Another process, folder and plan read from a file: no function, class, variable, database, server or key."""
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(Work().plan().to_dict()))
    kept = {name: value for name, value in os.environ.items() if name in {"PATH", "HOME", "TMPDIR"}}
    away = {**kept, "PYTHONPATH": str(HERE.parents[1]), "AGENT_MAGIC_LEDGER": ":memory:"}
    words = [sys.executable, "-c", EMPTY, str(plan), str(path)]
    done = subprocess.run(words, capture_output=True, text=True, env=away, cwd=tmp_path, timeout=120, check=False)
    assert 0 == done.returncode, done.stderr
    first, second = done.stdout.splitlines()
    assert frames(run) == json.loads(first)
    assert f"bad (2, 3) {EDITED}" == second


# old files


def test_a_ledger_of_today_opens_for_ever(tmp_path: Path) -> None:
    """F39: values, calls, conversations, what a person changed, pictures. `tests.record.working` made the file."""
    shutil.copy(KEPT / "ledger.sqlite3", tmp_path / "ledger.sqlite3")
    ledger = am.Ledger(tmp_path / "ledger.sqlite3")
    run = ledger.open(1)
    assert json.loads((KEPT / "told.json").read_text()) == told(run)
    assert {**SALES, "share": [0.6, 0.4]} == run["totals"].value.to_dict("list")
    assert ("bad", 2) == (run["label"].value.mood, run["label"].value.score)
    assert all(placed.attachment.data for one in run.record.attempts for placed in one.request.attachments)
    assert ledger.verify().ok
    ledger.close()


def test_a_run_of_today_goes_on_for_ever(tmp_path: Path) -> None:
    """What was cut after its first calls: no turn is bought twice, no call made twice, no task done twice."""
    shutil.copy(KEPT / "ledger.sqlite3", tmp_path / "ledger.sqlite3")
    ledger, work = am.Ledger(tmp_path / "ledger.sqlite3"), Work(OTHER)
    cut = ledger.open(2)
    assert ["succeeded", "failed", "skipped"] == [one.status for one in cut.record.results]
    run = work.run(ledger=ledger, resume=cut)
    assert run.ok
    assert ["ledger", "live", "live"] == [one.source for one in run["analyst"].attempts]
    assert ["send_mail"] == work.called
    assert json.loads((KEPT / "told.json").read_text())["texts"] == told(run)["texts"]
    ledger.close()
