"""Tasks in runs: what of their failures is kept, when one that is done is run again, and which recording fits."""

# Tests define functions again, and take for granted what they have just checked.
# pyright: reportOptionalMemberAccess=false

from __future__ import annotations

import asyncio
import enum
import json
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import agent_magic as am
from agent_magic import Task
from agent_magic.api import Agent, Ledger, Plan, Run
from agent_magic.errors import Rejected, ReplayMiss
from tests.live.virtual import Reply, Scripted

SECRET = "hunter2hunter2"
KEY = "sk-ant-" + "abc123DEF456" * 2


def client() -> Scripted:
    """Answer at once."""
    return Scripted(lambda prompt, _: Reply(0.0, source="live", text=f"said {prompt}"))


def run(*steps: Any, values: dict[str, Any] | None = None, **more: Any) -> Run:
    """Run steps."""
    return asyncio.run(Plan(list(steps), values=values or {}).run(client=client(), **more))


class Steps:
    """Tasks that count their calls.

    Attributes:
        called: Their names, in order.
        broken: Those that fail.
    """

    def __init__(self, *broken: str) -> None:
        self.called: list[str] = []
        self.broken = set(broken)

    def do(self, name: str) -> None:
        """Count a call, or fail."""
        self.called.append(name)
        if name in self.broken:
            raise ValueError(name)

    def all(self) -> list[Any]:
        """A chain of three, and an agent behind it."""

        def load(rows: list[int]) -> list[int]:
            self.do("load")
            return [2 * one for one in rows]

        def model(load: list[int]) -> Any:
            self.do("model")
            lock = threading.Lock()  # has no form that is kept
            return load, lock

        def score(model: Any) -> int:
            self.do("score")
            return sum(model[0])

        return [Task("load", load), Task("model", model), Task("score", score), Agent("a", "{{ score }}")]


# what a failure says


def fails() -> None:
    """Fail with what nobody should read."""
    key = KEY
    raise ConnectionError(f"no user {SECRET} with {key}")


def tells() -> int:
    """Print what nobody should read."""
    print(f"connected with {SECRET} and {KEY}")
    return 1


def test_no_secret_of_a_task_s_error_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither message nor traceback: not in the record, the ledger's file, a cassette, a frame."""
    monkeypatch.setenv("DB_PASSWORD", SECRET)
    ledger = Ledger(tmp_path / "l.sqlite3")
    done = run(Task("load", fails), ledger=ledger)
    done.save(tmp_path / "run.cassette.jsonl")
    ledger.close()
    call = done["load"].calls[0]
    assert "ConnectionError: no user [the value of $DB_PASSWORD] with [an Anthropic key]" == call.error
    assert "in fails" in call.ended.trace
    kept = b"".join(one.read_bytes() for one in tmp_path.iterdir()).decode("utf-8", "replace")
    shown = [kept, str(call.ended), str(done["load"].error), done.agents.to_string(), done.tool_calls.to_string()]
    for text in shown:
        assert SECRET not in text
        assert KEY not in text


def test_no_secret_of_a_value_that_does_not_fit_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message quotes what was given."""
    monkeypatch.setenv("DB_PASSWORD", SECRET)

    def takes(word: int) -> int:
        return word

    done = run(Task("load", takes), values={"word": SECRET})
    assert SECRET not in str(done["load"].calls[0].ended)
    assert "$DB_PASSWORD" in str(done["load"].error)


@pytest.mark.parametrize("process", [False, True])
def test_no_secret_of_a_print_is_kept(monkeypatch: pytest.MonkeyPatch, process: bool) -> None:
    """Nor shown while it goes on; the rest of what was printed is."""
    monkeypatch.setenv("DB_PASSWORD", SECRET)
    done = run(Task("load", tells, process=process))
    said = done["load"].calls[0].prints
    assert SECRET not in said
    assert KEY not in said
    assert "connected with [the value of $DB_PASSWORD] and [an Anthropic key]" in said


# going on with a run


def test_a_task_that_is_done_is_not_done_again() -> None:
    """A run that goes on keeps what succeeded; a value that has no form on disk is the same object."""
    steps = Steps("score")
    first = run(*steps.all(), values={"rows": [1, 2]})
    assert ["succeeded", "succeeded", "failed", "skipped"] == list(first.agents["status"])
    steps.broken.clear()
    second = run(*steps.all(), values={"rows": [1, 2]}, resume=first)
    assert ["load", "model", "score", "score"] == steps.called
    assert second.ok
    assert ["ledger", "ledger", "live"] == [second[name].calls[0].source for name in ("load", "model", "score")]
    assert first["model"].value is second["model"].value
    third = run(*steps.all(), values={"rows": [1, 2]}, resume=second)
    assert (4, 6) == (len(steps.called), third["score"].value)


def test_a_changed_variable_runs_the_task_again() -> None:
    """Also one that was changed in place: its fingerprint is of then. What comes after goes by what it takes."""
    steps, rows = Steps(), [1, 2]
    first = run(*steps.all(), values={"rows": rows})
    rows.append(3)
    second = run(*steps.all(), values={"rows": rows}, resume=first)
    assert ["load", "model", "score"] * 2 == steps.called
    assert 12 == second["score"].value


def test_a_changed_function_runs_again() -> None:
    """And what takes its value only if that is another one."""
    called: list[str] = []

    def load(rows: list[int]) -> int:
        called.append("load")
        return len(rows)

    def score(load: int) -> int:
        called.append("score")
        return load

    first = run(Task("load", load), Task("score", score), values={"rows": [1]})

    def other(rows: list[int]) -> int:
        called.append("other")
        return len(rows)

    second = run(Task("load", other), Task("score", score), values={"rows": [1]}, resume=first)
    assert ["load", "score", "other"] == called
    assert second.ok


def test_a_task_that_is_named_runs_again() -> None:
    """By name anything runs again; what is not around it keeps its value."""
    steps = Steps()
    first = run(*steps.all(), values={"rows": [1]})
    second = run(*steps.all(), values={"rows": [1]}, resume=first, again=["score"])
    assert ["load", "model", "score", "score"] == steps.called
    assert second.ok


def test_a_run_of_another_kernel_goes_on_with_what_was_kept(tmp_path: Path) -> None:
    """Opened from the ledger, plain values are there; one that has no form is made again, and nothing before it."""
    steps = Steps("score")
    ledger = Ledger(tmp_path / "l.sqlite3")
    run(*steps.all(), values={"rows": [1, 2]}, ledger=ledger)
    ledger.close()
    steps.broken.clear()
    ledger = Ledger(tmp_path / "l.sqlite3")
    second = run(*steps.all(), values={"rows": [1, 2]}, resume=ledger.open(), ledger=ledger)
    assert ["load", "model", "score", "model", "score"] == steps.called
    assert second.ok
    ledger.close()


def test_a_task_that_was_cut_runs_again_and_that_is_said(tmp_path: Path, caplog: Any) -> None:
    """Once for all of a group: what it had begun may be there twice. One that never began, or has ended, is none."""
    began, go_on, is_first = threading.Semaphore(0), threading.Event(), [True]

    def book(item: str) -> str:
        began.release()
        if is_first[0] and item != "x":
            go_on.wait()
        return item

    async def go() -> Run:
        ledger = Ledger(tmp_path / "l.sqlite3")
        plan = Plan([Task("book", book, each="rows")], values={"rows": ["x", "y", "z"]})
        driving = asyncio.create_task(am.start(plan, client=client(), ledger=ledger).drive())
        await asyncio.to_thread(lambda: [began.acquire() for _ in range(3)])
        driving.cancel()
        await asyncio.wait({driving})
        assert not caplog.records
        is_first[0] = False
        second = await plan.run(client=client(), ledger=ledger)
        ledger.close()
        return second

    try:
        second = asyncio.run(go())
    finally:
        go_on.set()
    assert second.ok
    told = [one.message for one in caplog.records if "runs again" in one.message]
    assert 1 == len(told)
    assert told[0].startswith("book runs again: a run that was cut had begun it at ")


def test_a_plan_that_came_with_the_run_goes_on(tmp_path: Path) -> None:
    """In a kernel where nothing is declared there are no functions: what is done needs none."""

    def load(frame: pd.DataFrame) -> int:
        return len(frame)

    ledger = Ledger(tmp_path / "l.sqlite3")
    plan = Plan([Task("load", load), Agent("a", "{{ load }}")], values={"frame": pd.DataFrame({"x": [1, 2]})})
    broken = Scripted(lambda *_: Reply(0.0, error=Rejected("no", status=400)))
    assert ["succeeded", "failed"] == list(asyncio.run(plan.run(client=broken, ledger=ledger)).agents["status"])
    past: Any = ledger.open()
    second = asyncio.run(past.plan.run(client=client(), resume=past))
    assert ("said 2", 2) == (second["a"].text, second["load"].value)
    ledger.close()


def test_a_tool_agent_that_is_done_is_not_asked_again() -> None:
    """Also one whose last turn was to ask for no more tools."""
    calls: list[int] = []

    def look() -> str:
        """Look."""
        calls.append(1)
        return "seen"

    def replies(prompt: str, number: int) -> Reply:
        return Reply(0.0, source="live", text="done")

    asked = Scripted(replies)
    plan = Plan([Agent("a", "Go", tools=[look], max_turns=1)])
    first = asyncio.run(plan.run(client=asked))
    second = asyncio.run(plan.run(am.Policy(max_turns=5), client=asked, resume=first))
    assert (1, True) == (len(asked.asked), second.ok)


# which recording fits


@pytest.fixture
def taped(tmp_path: Path) -> Callable[..., Path]:
    """Record steps and return the file."""

    def record(*steps: Any, values: dict[str, Any], **more: Any) -> Path:
        run(*steps, values=values).save(tmp_path / "run.cassette.jsonl", **more)
        return tmp_path / "run.cassette.jsonl"

    return record


def test_a_recording_of_other_code_or_of_other_values_does_not_fit(taped: Any) -> None:
    """The error names the task and what differs; nothing is called."""
    steps = Steps()
    path = taped(*steps.all(), values={"rows": [1, 2]})
    plan = Plan(steps.all(), values={"rows": [1, 2]})
    assert 6 == plan.replay(path)["score"].value
    with pytest.raises(ReplayMiss, match="Task 'load' is not the one that was recorded: what it takes as 'rows' diff"):
        Plan(steps.all(), values={"rows": [1, 3]}).replay(path)

    def load(rows: list[int]) -> list[int]:
        return rows

    with pytest.raises(ReplayMiss, match="Task 'load' is not the one that was recorded: its code differs") as caught:
        Plan([Task("load", load), *steps.all()[1:]], values={"rows": [1, 2]}).replay(path)
    assert (True, 3) == (caught.value.is_task, caught.value.others)
    assert ["load", "model", "score"] == steps.called


def test_a_recording_without_its_texts_fits_by_name(taped: Any) -> None:
    """What a task took is left out too, as a fingerprint tells a short text to whoever guesses it."""
    steps = Steps()
    path = taped(*steps.all(), values={"rows": [1, 2]}, redact=lambda _: "-")
    lines = [json.loads(one) for one in path.read_text().splitlines()]
    takes = [event["takes"] for line in lines for event in line.get("events", ()) if "takes" in event]
    assert {"-"} == {*takes}
    again = Plan(steps.all(), values={"rows": [1, 2]}).replay(path)
    assert (True, True, "-") == (again.record.redacted, again.ok, again["score"].text)


@pytest.mark.parametrize(
    "value",
    [
        3,
        2.5,
        "text",
        [1, 2],
        {"a": 1},
        (1, "b"),
        None,
        pd.Timestamp("2026-01-02"),
        pd.Series([1, 2]),
        pd.DataFrame({"a": [1]}),
    ],
    ids=lambda one: type(one).__name__,
)
def test_what_a_pure_task_returned_is_there_for_later_runs(tmp_path: Path, value: Any) -> None:
    """As it was, for tasks and prompts that take it; so the agent behind it asks the same, which is served too."""
    called: list[Any] = []

    @am.task(pure=True)
    def total(words: list[str]) -> Any:
        called.append(words)
        return value

    @am.task
    def taken(total: Any) -> str:
        return repr(total)

    steps = total, taken, Agent("tell", "There are {{ total }}, and {{ taken }}.")
    ledger = Ledger(tmp_path / "kept.sqlite3")
    first = run(*steps, values={"words": ["a"]}, ledger=ledger)
    then = run(*steps, values={"words": ["a"]}, ledger=ledger)
    run(*steps, values={"words": ["b"]}, ledger=ledger)
    ledger.close()
    assert called == [["a"], ["b"]]
    assert then["total"].source == "ledger"
    assert repr(then["total"].value) == repr(first["total"].value)
    assert then["taken"].value == first["taken"].value
    assert then["tell"].attempts[-1].request == first["tell"].attempts[-1].request
    assert then["tell"].source == "ledger"


def test_a_pure_task_whose_value_cannot_be_written_runs_again(tmp_path: Path) -> None:
    """Its text alone would be another value."""
    called: list[int] = []

    @am.task(pure=True)
    def thing(words: list[str]) -> object:
        called.append(len(words))
        return object()

    ledger = Ledger(tmp_path / "kept.sqlite3")
    for _ in range(2):
        found = run(thing, values={"words": ["a"]}, ledger=ledger)
        assert type(found["thing"].value) is object
    ledger.close()
    assert called == [1, 1]


FACTOR, TIMES = 1, 0


def times_factor(value: int) -> int:
    """Multiply."""
    return value * FACTOR


def scaled(rows: list[int]) -> int:
    """Add up, by a variable that a function of ours reads."""
    global TIMES  # noqa: PLW0603 - what the test is about
    TIMES += 1
    return sum(times_factor(one) for one in rows)


@pytest.mark.parametrize("pure", [False, True])
def test_a_task_whose_variables_have_changed_runs_again(pure: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that its functions read, too: what was kept is another number now."""
    monkeypatch.setitem(globals(), "TIMES", 0)
    steps, ledger = (Task("scaled", scaled, pure=pure), Agent("tell", "{{ scaled }}")), Ledger()
    first = run(*steps, values={"rows": [1, 2]}, ledger=ledger)
    monkeypatch.setitem(globals(), "FACTOR", 1000)
    then = run(*steps, values={"rows": [1, 2]}, ledger=ledger, resume=first)
    assert (3, 3000) == (first["scaled"].value, then["scaled"].value)
    again = run(*steps, values={"rows": [1, 2]}, ledger=ledger, resume=then)
    assert (3000, 2) == (again["scaled"].value, TIMES)
    ledger.close()


def test_a_task_of_a_group_makes_the_same_prompt_in_each_run(tmp_path: Path) -> None:
    """It is handed what was answered, and what became of each row; not the seconds and dollars of this run."""
    seen: list[pd.DataFrame] = []
    rows = pd.DataFrame({"text": ["a", "b"]}, index=pd.Index(["x", "y"]))

    def worst(label: pd.DataFrame) -> pd.DataFrame:
        seen.append(label)
        return label

    label = Agent("label", "{{ item.text }}", each="rows")
    plan = Plan([label, Task("worst", worst), Agent("report", "{{ worst }}")], {"rows": rows})
    with closing(Ledger(tmp_path / "ledger.sqlite3")) as ledger:
        first = asyncio.run(plan.run(client=client(), ledger=ledger))
        again = asyncio.run(plan.run(client=client(), ledger=ledger))
    assert ["answer", "status", "error"] == list(seen[0].columns)
    assert ["x", "y"] == list(rows.join(seen[0]).query("answer.notna()").index)
    sent = first.record["report"].attempts[0].request.prompt
    assert "row,answer,status,error\nx,said a,succeeded,\ny,said b,succeeded,\n" == sent
    assert {"ledger"} == {one.source for one in again.record.results if not one.is_task}


class Far:
    """Something whose length takes a query."""

    def __len__(self) -> int:
        raise RuntimeError("nobody asked for it")


FAR = Far()


def counts(rows: list[int]) -> str:
    """Name what is far away."""
    return f"{type(FAR).__name__} {len(rows)}"


def test_a_variable_that_would_be_asked_for_is_left_alone() -> None:
    """To find out its length may run code of the user's, or a query."""
    assert "Far 1" == run(Task("counts", counts), values={"rows": [1]})["counts"].value


class Mood(enum.StrEnum):
    """A text with a class of its own."""

    GOOD = "good"


@pytest.mark.parametrize("value", [Mood.GOOD, np.str_("good")], ids=repr)
def test_a_text_of_a_class_of_its_own_is_a_result(tmp_path: Path, value: Any) -> None:
    """A task or a tool may return an enum's or numpy's text: it is kept in ledger and recording as any other."""

    def rated() -> Any:
        return value

    with closing(Ledger(tmp_path / "l.sqlite3")) as ledger:
        plan = Plan([Task("rated", rated), Agent("a", "{{ rated }}")])
        done = asyncio.run(plan.run(client=client(), ledger=ledger))
    assert ("good", "said good") == (done["rated"].text, done["a"].text)
    done.save(tmp_path / "r.jsonl")
    assert "said good" == plan.replay(tmp_path / "r.jsonl")["a"].text
