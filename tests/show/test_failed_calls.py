"""Calls of functions that failed: the note below the run, and `%agents error`, which shows the lines."""

from __future__ import annotations

import sqlite3

import agent_magic as am
from agent_magic.notebook import error_page
from agent_magic.show import frame_text
from agent_magic.show.notes import failed_tools_note
from tests.live.test_tool_turns import asks, call, given, played, raising, says
from tests.live.virtual import drive

DB = sqlite3.connect(":memory:")


def rows() -> list[tuple[int]]:
    """Return rows."""
    return DB.execute("select 1").fetchall()


def test_a_tool_no_call_of_which_succeeded_is_told():
    """The agent goes on without it, and looks well: a note says what was raised, and what helps where that is known."""
    done, _ = played(asks(call(0, "{}", "rows")), asks(call(0, "{}", "rows")), says("x"), tools=[rows])
    note = failed_tools_note(done.record)
    assert note.startswith("No call of rows succeeded (2 failed): ProgrammingError: SQLite objects created in a thread")
    assert note.endswith(
        "main=True in @am.tool or @am.task calls it on the main thread, where the connection was opened. "
        "%agents error NAME shows where."
    )


def test_one_success_is_enough():
    """A call that failed and was made again is the usual way."""
    results = iter([ValueError("not now"), None])

    def give() -> str:
        """Give."""
        if (error := next(results)) is not None:
            raise error
        return "done"

    done, _ = played(asks(call(0, "{}", "give")), asks(call(0, "{}", "give")), says("x"), tools=[give])
    assert ["failed", "succeeded"] == done.tool_calls.status.tolist()
    said = frame_text(done.tool_calls)
    assert said.startswith("2 calls, 1 failed")
    assert "run.attempts has the dollars of each turn." in said
    assert "" == failed_tools_note(done.record)
    assert "" == failed_tools_note(played(asks(call(0, "{}", "give")), says("x"), tools=[given(1)])[0].record)


def test_an_error_shows_the_lines_of_a_tool():
    """With its arguments, though the agent succeeded."""
    done, _ = played(
        asks(call(0, '{"x": 1}', "give"), call(1, "{}", "give")), says("x"), tools=[raising(KeyError("k"))]
    )
    text = error_page(done, "a").text()
    assert text.startswith("a: succeeded\n")
    assert "give, turn 1: {}\ntest_tool_turns.py, line " in text
    assert ", in give: raise error\nKeyError: 'k'" in text


def test_an_error_shows_the_lines_of_a_task():
    """And what it had printed; nothing of attempts, which it has none of."""

    def tidy() -> int:
        print("so far so good")
        return int("one")

    record, _ = drive(am.Plan([am.Task("tidy", tidy)]), {})
    text = error_page(am.Run(record), "tidy").text()
    assert text.startswith(
        "tidy: failed: ValueError: invalid literal for int() with base 10: 'one'\ntest_failed_calls.py"
    )
    assert 'in tidy: return int("one")\nValueError' in text
    assert text.endswith("printed\nso far so good\nFix it, then %agents run goes on.")
    assert "attempt" not in text
