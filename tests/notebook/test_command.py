"""How a line of `%agents` is read."""

from __future__ import annotations

import pytest

from agent_magic.notebook.command import without_comment
from agent_magic.notebook.verbs import VERBS


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("connect simulator            # made up; don't pay", "connect simulator"),
        ("run # again", "run"),
        ("# nothing", ""),
        ("record file#1.jsonl", "record file#1.jsonl"),
        ("""check --system "# a heading" # said""", """check --system "# a heading\""""),
        ("""check --system 'it is # 1'""", """check --system 'it is # 1'"""),
        ("run", "run"),
    ],
)
def test_a_comment_is_no_option(line: str, left: str) -> None:
    """What stands behind a `#` is for people, but inside quotes and words it is text."""
    assert left == without_comment(line)


def test_a_command_with_a_comment() -> None:
    """It is the command, with its options, and waits as it does without."""
    assert ("run", "--fresh") == VERBS.split("run --fresh   # the live graph")
    assert ("list", "") == VERBS.split("# what is declared")
    assert VERBS.waits("agents", "run     # the live graph")


def test_quotes_around_a_value_are_no_part_of_it() -> None:
    """Of options and of names."""
    given = VERBS.parser("run").read(""" "one" 'two' --plan "p" --schedule 'layers' """)
    assert (["one", "two"], "p", "layers") == (given.names, given.plan, given.schedule)
