"""Cassettes: what is written comes back, is the same bytes each time, and damage costs the damaged line only."""

# Tests hand over wrong types on purpose, and take for granted what they have just checked.
# pyright: reportOptionalMemberAccess=false

from __future__ import annotations

import errno
import functools
import json
import operator
import os
import random
import stat
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_magic import Agent
from agent_magic.declare import Plan
from agent_magic.errors import CassetteError, Overloaded, RateLimited, ReplayMiss
from agent_magic.measure import agents_frame, attempts_frame, layers_frame, summary_frame, texts_series
from agent_magic.providers import Deck
from agent_magic.record import checked, line_of, read_cassette, write_cassette
from agent_magic.record.files import inside
from tests.live.virtual import Reply, drive
from tests.record.histories import histories

FRAMES = (agents_frame, attempts_frame, layers_frame, summary_frame)
TIMEOUT_S = 300.0


def frames(record):
    """The frames of a run as CSV, without where the answers came from."""
    made = [make(record) for make in FRAMES]
    return [frame.drop(columns=[c for c in ("source",) if c in frame]).to_csv() for frame in made]


def chain(**more):
    """Two agents, the second with the first one's answer; the first fails once."""
    plan = Plan([Agent("a", "say a"), Agent("b", "after {{ a }}")])

    def script(prompt, number):
        if prompt == "say a" and number == 1:
            return Reply(0.5, RateLimited("busy", retry_after_s=1.5), status=429)
        return Reply(2.0, None, 0.25, f"answer to {prompt}")

    return drive(plan, script, **more)[0]


@pytest.fixture
def path(tmp_path):
    """A place for a cassette."""
    return tmp_path / "run.cassette.jsonl"


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(history=histories())
def test_a_replay_has_the_frames_of_the_run(path, history):
    """Failures, retries, stops, refusals, caps: every number comes out as it was, to the last byte."""
    record, _ = history
    write_cassette(record, path)
    again = Deck(read_cassette(path)).play(record.plan, timeout_s=TIMEOUT_S)
    assert frames(record) == frames(again)
    assert texts_series(record).to_dict() == texts_series(again).to_dict()
    assert (record.ended_s, record.cut, record.simulated) == (again.ended_s, again.cut, again.simulated)
    assert {"replay"} >= {attempt.source for attempt in again.attempts}


def test_one_simulated_attempt_labels_a_run_and_its_replay(path):
    """A simulated answer was refused and the retry is live: the run is labelled, and so is its replay."""
    replies = [Reply(1.0, stop_reason="refusal", source="simulated"), Reply(1.0)]
    plan = Plan([Agent("a", "p"), Agent("slow", "q")])
    record, _ = drive(
        plan,
        lambda prompt, number: Reply(9.0) if prompt == "q" else replies[number - 1],
        controls=[(2.0, "retry", ["a"])],
    )
    assert ["simulated", "live"] == [one.source for one in record["a"].attempts]
    write_cassette(record, path)
    assert record.simulated
    assert Deck(read_cassette(path)).play(plan, timeout_s=TIMEOUT_S).simulated


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(history=histories())
def test_recording_a_replay_gives_the_same_file(path, history):
    """Nothing is lost or added on the way, whatever the number of copies."""
    record, _ = history
    write_cassette(record, path)
    first = path.read_bytes()
    write_cassette(Deck(read_cassette(path)).play(record.plan, timeout_s=TIMEOUT_S), path)
    one, two = (sorted((json.loads(row) for row in data.splitlines()), key=str) for data in (first, path.read_bytes()))
    for line in (*one, *two):
        line.pop("check", None)
        if line.get("recorded"):
            line["recorded"] = line["recorded"][:19]
    assert one == two


def test_the_same_run_makes_the_same_bytes(tmp_path):
    """The file is ASCII, a line for a call, keys in order."""
    record = chain()
    for name in ("one", "two"):
        assert 3 == write_cassette(record, tmp_path / name)
    data = (tmp_path / "one").read_bytes()
    assert data == (tmp_path / "two").read_bytes()
    assert data.isascii()
    rows = [json.loads(row) for row in data.splitlines()]
    assert all(list(row) == sorted(row) for row in rows)
    assert [("a", 1), ("a", 2), ("b", 1)] == [(row["agent"], row["call"]) for row in rows if "call" in row]


def test_a_call_says_what_it_cost_and_how_it_went(path):
    """Usage, stop reason, times, price and versions; of failed attempts too."""
    write_cassette(chain(), path)
    rows = [json.loads(row) for row in path.read_text().splitlines()]
    failed, answered = [row for row in rows if row.get("agent") == "a" and "call" in row]
    assert ("RateLimited", 429, None) == (failed["kind"], failed["status_code"], failed["answer"])
    assert "BackoffStarted" == failed["then"][0]["event"]
    assert "end_turn" == answered["answer"]["stop_reason"]
    assert {"input_tokens": 10, "output_tokens": 5}.items() <= answered["usage"].items()
    assert answered["price"]["cost_usd"] > 0
    assert answered["price"]["basis"].startswith("genai-prices ")
    assert answered["started_s"] + 0.25 == answered["first_token_s"]
    assert {"agent-magic", "anthropic", "genai-prices", "python"} == set(rows[0]["made_with"])


def test_only_allowed_fields_are_written(path):
    """No headers, no endpoint, no key: a new field has to be let in here."""
    write_cassette(chain(), path)
    rows = [json.loads(row) for row in path.read_text().splitlines()]
    call = next(row for row in rows if "call" in row)
    assert sorted(call) == sorted(
        "agent answer call check ended_s error first_token_s granted_s held_by key kind partial price ready_s request "
        "run source started_s status_code then usage".split()
    )
    assert {"model", "prompt", "max_tokens", "system", "context", "cached", "effort", "timeout_s"} <= set(
        call["request"]
    )
    assert "scripted" not in path.read_text()  # the endpoint


@pytest.mark.parametrize("text", ["\ud800 lone", "nul \x00", "\u2028\x85\r\n", "\u202eright to left", "x" * 10_000_000])
def test_odd_texts_come_back_as_they_were(path, text):
    """What no encoding holds, what ends lines elsewhere, and ten megabytes."""
    record, _ = drive(Plan([Agent("a", "p")]), lambda *_: Reply(text=text))
    write_cassette(record, path)
    assert text == Deck(read_cassette(path)).play(record.plan, timeout_s=TIMEOUT_S)["a"].text


def test_damage_costs_one_line(path):
    """Whatever byte of a line flips: the line is named, and all the others are read."""
    write_cassette(chain(), path)
    rows = path.read_bytes().splitlines(keepends=True)
    rng = random.Random(5)
    for number in range(1, len(rows)):
        for _ in range(40):
            row = bytearray(rows[number])
            row[rng.randrange(len(row) - 1)] ^= 1 << rng.randrange(8)
            if row.count(b"\n") > 1 or row == rows[number]:
                continue
            path.write_bytes(b"".join([*rows[:number], bytes(row), *rows[number + 1 :]]))
            cassette = read_cassette(path)
            assert (number + 1,) == cassette.damaged
            found = len(cassette.calls) + sum(one.events is not None for run in cassette.runs for one in run.agents)
            assert len(rows) - 2 - (number > 1) == found


def test_a_file_that_was_cut_says_so(path):
    """A torn line is damaged; lines behind it are counted as missing."""
    record = chain()
    write_cassette(record, path)
    data = path.read_bytes()
    path.write_bytes(data[: data.rindex(b"\n", 0, -1) - 20])
    cassette = read_cassette(path)
    assert (1, 1) == (len(cassette.damaged), cassette.missing)
    with pytest.raises(ReplayMiss, match="damaged or gone") as miss:
        Deck(cassette).play(record.plan, timeout_s=TIMEOUT_S)
    assert "b" == miss.value.agent
    path.write_bytes(data[: data.rindex(b"\n", 0, -1) + 1])
    assert 1 == read_cassette(path).missing


def test_an_agents_calls_are_enough(path):
    """Where only the line about an agent is damaged, its calls tell when it was ready."""
    record = chain()
    write_cassette(record, path)
    rows = path.read_bytes().splitlines(keepends=True)
    place = next(n for n, row in enumerate(rows) if b'"status": "succeeded"' in row and b'"agent": "b"' in row)
    path.write_bytes(b"".join([*rows[:place], b"garbage\n", *rows[place + 1 :]]))
    again = Deck(read_cassette(path)).play(record.plan, timeout_s=TIMEOUT_S)
    assert frames(record) == frames(again)


def test_a_lost_attempt_is_a_miss(path):
    """A run whose first attempt is gone is not the run that was recorded."""
    record = chain()
    write_cassette(record, path)
    rows = path.read_bytes().splitlines(keepends=True)
    place = next(n for n, row in enumerate(rows) if b'"RateLimited"' in row)
    path.write_bytes(b"".join(rows[:place] + rows[place + 1 :]))
    cassette = read_cassette(path)
    assert 1 == cassette.missing
    with pytest.raises(ReplayMiss, match="lines about 'a' are damaged or gone"):
        Deck(cassette).play(record.plan, timeout_s=TIMEOUT_S)


def test_windows_line_ends_do_no_harm(path):
    """Git may change them on the way."""
    record = chain()
    write_cassette(record, path)
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert () == read_cassette(path).damaged


def test_a_changed_answer_is_found(path):
    """A line that somebody edited is damaged: the answer is not what was paid for."""
    record = chain()
    write_cassette(record, path)
    path.write_text(path.read_text().replace('"text": "answer to say a"', '"text": "poison"'))
    assert 1 == len(read_cassette(path).damaged)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is no cassette"),
        (b"hello\n", "is no cassette"),
        (b'{"nbformat": 4}\n', "is no cassette"),
        (b'["cassette", 1]\n', "is no cassette"),
        (b'{"cassette": "1"}\n', "is no cassette"),
        (b"\xff\xfe\x00", "is no cassette"),
        (b'{"cassette": 2}\n', r"has format 2; this version reads up to 1\. Update"),
    ],
)
def test_other_files_are_refused(path, content, message):
    """A file that does not say what it is, or of a later format."""
    path.write_bytes(content)
    with pytest.raises(CassetteError, match=message):
        read_cassette(path)


def test_a_missing_file_is_an_error_with_its_name(tmp_path):
    """Not a traceback of Python's."""
    with pytest.raises(CassetteError, match="'none' cannot be read: No such file"):
        read_cassette(tmp_path / "none")


def test_other_files_are_not_overwritten(path):
    """A notebook with the name of the cassette stays."""
    path.write_text("mine")
    with pytest.raises(CassetteError, match="is there already and is no cassette"):
        write_cassette(chain(), path)
    assert "mine" == path.read_text()


@pytest.mark.parametrize("content", ["", '{"cassette": 1}\n', '{"cassette": 99}\n'])
def test_cassettes_and_empty_files_are(path, content):
    """The same name again is what recording again means."""
    path.write_text(content)
    write_cassette(chain(), path)
    assert 3 == len(read_cassette(path).calls)


def test_a_full_disk_leaves_the_old_file(path, monkeypatch):
    """Whole or as before, and no half file beside it."""
    record = chain()
    write_cassette(record, path)
    before = path.read_bytes()

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_cassette(record, path)
    assert before == path.read_bytes()
    assert [path] == list(path.parent.iterdir())


def test_the_mode_of_an_old_file_is_kept(path):
    """Who could read it still can, and nobody else."""
    write_cassette(chain(), path)
    path.chmod(0o640)
    write_cassette(chain(), path)
    assert 0o640 == stat.S_IMODE(path.stat().st_mode)


def pipe(path):
    """Make a named pipe."""
    os.mkfifo(path)


def device(path):
    """Make a device of our own, the same as the null device."""
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root makes devices")


@pytest.mark.parametrize("make", [pipe, device, Path.mkdir], ids=["pipe", "device", "folder"])
@pytest.mark.parametrize("way", ["itself", "a link to it"])
def test_what_is_no_file_is_neither_replaced_nor_read(path, make, way):
    """A pipe, a device or a folder stays what it is, and nothing waits for it."""
    make(path)
    given = path
    if way != "itself":
        given = path.with_name("link")
        given.symlink_to(path)
    before = path.lstat()
    for do in (lambda: write_cassette(chain(), given), lambda: read_cassette(given)):
        with pytest.raises(CassetteError, match=r"is a (named pipe|device|folder), not a file"):
            do()
    after = path.lstat()
    assert (before.st_mode, before.st_ino) == (after.st_mode, after.st_ino)


@pytest.mark.parametrize("there", [True, False], ids=["a cassette", "nothing yet"])
def test_a_link_stays_a_link(path, there):
    """Its target is written, and read."""
    target = path.with_name("target")
    if there:
        write_cassette(drive(Plan([Agent("a", "p")]), lambda *_: Reply())[0], target)
    path.symlink_to(target)
    write_cassette(chain(), path)
    assert path.is_symlink()
    assert 3 == len(read_cassette(target).calls) == len(read_cassette(path).calls)


@pytest.mark.parametrize(
    ("name", "message"), [("none/x", "The folder of 'x' does not exist"), ("a\0b", "is no file name")]
)
def test_what_cannot_be_written_is_said(tmp_path, name, message):
    """A folder that is missing, a NUL."""
    with pytest.raises(CassetteError, match=message):
        write_cassette(chain(), tmp_path / name)


def test_a_working_directory_that_is_gone_is_said(tmp_path, monkeypatch):
    """A relative name then means nothing."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    for do in (lambda: write_cassette(chain(), Path("x")), lambda: read_cassette(Path("x"))):
        with pytest.raises(CassetteError, match="working directory does not exist"):
            do()


@pytest.mark.parametrize("redact", [lambda _: 1 / 0, lambda _: None, lambda _: b"x"], ids=["raises", "None", "bytes"])
def test_a_redact_that_fails_writes_nothing(path, redact):
    """The error says what it raised or returned."""
    with pytest.raises(CassetteError, match=r"redact (raised|must return).*Nothing was written"):
        write_cassette(chain(), path, redact=redact)
    assert [] == list(path.parent.iterdir())


def numbers_in(data, place=()):
    """Where numbers and times stand in plain data."""
    if isinstance(data, dict | list):
        for name, value in data.items() if isinstance(data, dict) else enumerate(data):
            yield from numbers_in(value, (*place, name))
    elif data is None or isinstance(data, int | float):
        yield place


@pytest.mark.parametrize("value", [-1.0, -(10**30), 1e308, 10**400, 1 << 63, 3.5], ids=lambda value: f"{value!r:.9}")
def test_absurd_numbers_with_the_right_checksum_raise_nothing_else(path, value):
    """Times before the beginning or out of order, a price of 1e308, 2**63 tokens: read, or said to be damaged."""
    record = chain()
    write_cassette(record, path)
    rows = [json.loads(row) for row in path.read_text().splitlines()]
    refused = 0
    seen = set()
    for number, row in enumerate(rows):
        for *way, name in numbers_in(row):
            kind = (*row, *(step for step in way if isinstance(step, str)), name)
            if kind in seen:
                continue  # a row of the same fields has shown what this number does
            seen.add(kind)
            changed = json.loads(json.dumps(row))
            functools.reduce(operator.getitem, way, changed)[name] = value
            changed.pop("check", None)
            lines = [*rows[:number], checked(changed) if number else changed, *rows[number + 1 :]]
            path.write_text("".join(f"{line_of(line)}\n" for line in lines))
            try:
                frames(Deck(read_cassette(path)).play(record.plan, timeout_s=TIMEOUT_S))
            except (CassetteError, ReplayMiss):
                refused += 1
    assert refused > 10


class TestPlaces:
    """Paths stay inside the project."""

    @pytest.mark.parametrize("name", ["run.jsonl", "deep/run.jsonl", "./a/../run.jsonl", "..."])
    def test_inside(self, tmp_path, name):
        """Names in the folder and below."""
        assert inside(name, tmp_path).is_relative_to(tmp_path.resolve())

    @pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/passwd", "", ".", "~/x", "~nobody-at-all/x", "a\0b"])
    def test_outside(self, tmp_path, name):
        """Upwards, elsewhere, the folder itself."""
        with pytest.raises(CassetteError, match=r"leads out of the project|is no file name"):
            inside(name, tmp_path)

    def test_links(self, tmp_path):
        """A link that leads out is outside; one that stays is not."""
        project = tmp_path / "project"
        project.mkdir()
        (tmp_path / "secret").write_text("x")
        (project / "out").symlink_to(tmp_path / "secret")
        (project / "folder").symlink_to(tmp_path)
        (project / "in").symlink_to(project / "real")
        for name in ("out", "folder/secret"):
            with pytest.raises(CassetteError, match="leads out"):
                inside(name, project)
        assert project.resolve() / "real" == inside("in", project)


class TestRuns:
    """Several runs in one file."""

    def test_each_is_played_in_its_turn(self, path):
        """Two recorded runs of one plan come out in order, and begin anew after the last."""
        plan = Plan([Agent("a", "p")])
        one, two = (drive(plan, lambda *_, text=text: Reply(text=text))[0] for text in ("one", "two"))
        assert 2 == write_cassette([one, two], path)
        deck = Deck(read_cassette(path))
        said = [deck.play(plan, timeout_s=TIMEOUT_S)["a"].text for _ in range(5)]
        assert ["one", "two", "one", "two", "one"] == said

    def test_each_plan_finds_its_own(self, path):
        """Runs are found by what they ask."""
        plans = [Plan([Agent("a", prompt)]) for prompt in ("p", "q")]
        write_cassette([drive(plan, lambda prompt, _: Reply(text=prompt * 2))[0] for plan in plans], path)
        deck = Deck(read_cassette(path))
        assert ["qq", "pp"] == [deck.play(plan, timeout_s=TIMEOUT_S)["a"].text for plan in reversed(plans)]


class TestMatching:
    """Which recording answers whom."""

    def test_repeated_identical_calls_are_served_in_order(self, path):
        """Three equal agents get the three answers, each once."""
        plan = Plan([Agent(name, "draw") for name in "abc"])
        record, _ = drive(plan, lambda _, number: Reply(float(number), text=f"draw {number}"))
        write_cassette(record, path)
        again = Deck(read_cassette(path)).play(plan, timeout_s=TIMEOUT_S)
        assert ["draw 1", "draw 2", "draw 3"] == [result.text for result in again.results]
        renamed = Plan([Agent(name, "draw") for name in "xyz"])
        again = Deck(read_cassette(path)).play(renamed, timeout_s=TIMEOUT_S)
        assert ["draw 1", "draw 2", "draw 3"] == [result.text for result in again.results]
        with pytest.raises(ReplayMiss, match="served already"):
            Deck(read_cassette(path)).play(Plan([Agent(name, "draw") for name in "abcd"]), timeout_s=TIMEOUT_S)

    def test_an_agent_that_was_stopped_takes_no_ones_answer(self, path):
        """Of two equal agents the one that was stopped before it was asked stays so."""
        plan = Plan([Agent("a", "draw"), Agent("b", "draw")])
        from agent_magic import Policy

        record, _ = drive(plan, lambda *_: Reply(2.0), Policy(concurrency=1), stops=[(1.0, ["b"])])
        assert ["succeeded", "cancelled"] == [result.status for result in record.results]
        write_cassette(record, path)
        again = Deck(read_cassette(path)).play(Plan(plan.agents[::-1]), timeout_s=TIMEOUT_S)
        assert "cancelled" == again["b"].status
        assert "succeeded" == again["a"].status

    @pytest.mark.parametrize(
        ("change", "differs"),
        [
            ({"prompt": "say z"}, r"prompt \(from character 5 on; 5 recorded, 5 asked\)"),
            ({"model": "claude-opus-5-5"}, r"model \('claude-haiku-5-5' recorded, 'claude-opus-5-5' asked\)"),
            ({"max_tokens": 7}, r"max_tokens \(2048 recorded, 7 asked\)"),
            ({"effort": "low"}, r"effort \(none recorded, 'low' asked\)"),
            ({"system": "Be brief."}, r"system \(none recorded, 'Be brief\.' asked\)"),
        ],
    )
    def test_a_miss_names_what_differs(self, path, change, differs):
        """The nearest recording and the differing fields; prompts stay out of the message."""
        write_cassette(chain(), path)
        plan = Plan([Agent(**{"name": "a", "prompt": "say a", **change}), Agent("b", "after {{ a }}")])
        with pytest.raises(ReplayMiss, match=differs) as miss:
            Deck(read_cassette(path)).play(plan, timeout_s=TIMEOUT_S)
        assert ("a", "a", list(change), 1) == (
            miss.value.agent,
            miss.value.nearest,
            list(miss.value.differences),
            miss.value.others,
        )
        assert "say a" not in str(miss.value)

    def test_the_nearest_is_by_likeness_where_the_name_is_new(self, path):
        """A renamed and changed agent is laid beside the prompt most like its own."""
        write_cassette(chain(), path)
        with pytest.raises(ReplayMiss, match="of 'b'"):
            Deck(read_cassette(path)).play(Plan([Agent("new", "after answer to say b")]), timeout_s=TIMEOUT_S)

    def test_a_part_of_the_plan_is_found(self, path):
        """Only some agents of the recorded run."""
        write_cassette(chain(), path)
        again = Deck(read_cassette(path)).play(Plan([Agent("a", "say a")]), timeout_s=TIMEOUT_S)
        assert ("succeeded", 2) == (again["a"].status, len(again["a"].attempts))

    def test_an_empty_cassette_misses(self, path):
        """A header and nothing else."""
        path.write_text('{"cassette": 1}\n')
        with pytest.raises(ReplayMiss, match="nothing like it"):
            Deck(read_cassette(path)).play(Plan([Agent("a", "p")]), timeout_s=TIMEOUT_S)


def test_provenance_survives_every_copy(path):
    """Made-up answers stay marked when a replay is recorded, and replayed again."""
    record, _ = drive(Plan([Agent("a", "p")]), lambda *_: Reply(source="simulated"))
    for _ in range(3):
        write_cassette(record, path)
        deck = Deck(read_cassette(path))
        record = deck.play(record.plan, timeout_s=TIMEOUT_S)
        assert record.simulated
        assert "simulated" == json.loads(path.read_text().splitlines()[-1])["source"]
        assert {"cassette": path.name, "simulated": True}.items() <= record.provenance.items()
        assert agents_frame(record).attrs["provenance"]["sha256"] == deck.cassette.sha256


def test_a_damaged_header_of_a_run_leaves_its_answers(path):
    """The line about a run may go: its calls are there."""
    record = chain()
    write_cassette(record, path)
    rows = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([rows[0], b"{}\n", *rows[2:]]))
    again = Deck(read_cassette(path)).play(record.plan, timeout_s=TIMEOUT_S)
    assert texts_series(record).to_dict() == texts_series(again).to_dict()
    pd.testing.assert_frame_equal(
        agents_frame(record).drop(columns="source"), agents_frame(again).drop(columns="source")
    )


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(tmp_path_factory, data):
    """Nothing but `CassetteError` comes of a file, whatever is in it."""
    path = tmp_path_factory.mktemp("any") / "x"
    path.write_bytes(b'{"cassette": 1}\n' + data)
    cassette = read_cassette(path)
    assert len(cassette.damaged) == len([row for row in data.split(b"\n") if row.strip()])


def test_failures_of_the_service_are_recorded(path):
    """An agent that failed for good fails again in the replay, and its child is skipped."""
    plan = Plan([Agent("a", "p"), Agent("b", "{{ a }}")])
    record, _ = drive(plan, lambda *_: Reply(0.5, Overloaded("full", status=529), status=529))
    write_cassette(record, path)
    again = Deck(read_cassette(path)).play(plan, timeout_s=TIMEOUT_S)
    assert ["failed", "skipped"] == [result.status for result in again.results]
    assert record["a"].error == again["a"].error
