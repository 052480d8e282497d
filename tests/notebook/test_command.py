"""How a line of `%agents` is read."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from IPython.core.error import UsageError

from agent_magic.notebook import PARSERS, VERBS, Parser, read_agent, verbs
from agent_magic.notebook.command import TRIED, TRIED_OF_RUNS, without_comment
from agent_magic.notebook.declaring import INSTEAD


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
    assert ["one", "two", "three"] == VERBS.parser("run").read("one,two, three").names


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("a --function run_sql", "--function is not available.*--tools FUNCTION"),
        ("a --image x.png", "--image is not available.*am.image"),
        ("a --json", "--json is not available.*--returns TYPE"),
        ("a --schema=Label", "--schema is not available.*--returns TYPE"),
        ("a --if critic.ok", "--if is not available.*{% if name %}"),
        ("a --while critic.ok", "--while is not available.*--until"),
        ("a --loop 3", "--loop is not available.*--until"),
        ("a --parallel 3", "--parallel is not available.*--concurrency N"),
        ("a --retries 3", "--retries is not available.*--max-attempts N"),
        ("a --modle x", "unknown option.*Did you mean '--model'"),
    ],
)
def test_options_that_people_try(line: str, told: str) -> None:
    """What does not exist is said to be not available, with what to do in its place."""
    with pytest.raises(UsageError, match=told):
        read_agent(line, "prompt")


def test_the_help_of_an_option_is_shown_as_it_is_written() -> None:
    """Percent signs too, which argparse takes for a format, and which Python 3.14 refuses when an option is added."""
    parser = Parser("%agents x")
    parser.add_argument("--of", help="50 % of %agents runs, or of a %%agents cell: %d.")
    assert [("--of VALUE", "50 % of %agents runs, or of a %%agents cell: %d.")] == parser.told()
    assert "50 % of %agents runs, or of a %%agents cell: %d." in " ".join(parser.format_help().split())


def test_no_hint_hides_an_option() -> None:
    """An option that exists is never said to be not available."""
    assert set() == set(INSTEAD) & set(PARSERS["agent"].flags)


@pytest.mark.parametrize("command", ["run", "start", "plan", "retry"])
def test_no_hint_hides_an_option_of_a_run(command: str) -> None:
    """An option of a run that exists is never said to be not available, and no command is said to be unknown."""
    own = set(VERBS.parser(command).flags)
    assert set() == set(TRIED_OF_RUNS) & own
    assert set(PARSERS["agent"].flags) <= set(TRIED_OF_RUNS) | own, "an option of agents is told from one of runs"
    with pytest.raises(UsageError, match=r"--hedge is not available.*%%agent NAME --hedge"):
        VERBS.parser(command).read("--hedge p95")
    assert set() == set(TRIED) & set(VERBS)


def test_commands_and_options_of_a_run_that_people_try() -> None:
    """They are told what to do instead, not the nearest letters."""
    for command, told in (
        ("graph", "%agents plan shows"),
        ("cancel", "%agents stop"),
        ("results", "%agents show NAME"),
    ):
        with pytest.raises(UsageError, match=told):
            VERBS.find(command)
    for option, told in (
        ("--dry-run", "%agents plan"),
        ("--workers 4", "--concurrency N"),
        ("--max-cost 1", "--budget"),
    ):
        with pytest.raises(UsageError, match=told):
            VERBS.parser("run").read(option)


def test_the_help_says_where_the_story_of_a_run_is() -> None:
    """In the log, for whoever asks for it."""
    assert 'logging.getLogger("agent_magic")' in VERBS.help().text()


@pytest.mark.parametrize("command", VERBS)
def test_every_command_has_help_that_fits(command: str) -> None:
    """What it does, an example, and every option; prose breaks between words, and no line is over 80 columns."""
    page = VERBS.help(command)
    shown = page.text()
    assert VERBS[command].examples
    assert VERBS[command].help.split()[0] in shown
    assert set(VERBS.parser(command).flags) <= set(shown.replace(",", " ").split())
    wide = [line for line in shown.splitlines() if len(line) > 80 and line not in VERBS[command].examples]
    assert [] == wide
    assert "<script" not in page.bundle()["text/html"]


def test_the_table_of_commands_is_what_its_groups_have():
    """A command stands in the table under the group that has it; no command of a group is left out."""
    groups = [path.stem for path in Path(verbs.__file__).parent.glob("*.py") if path.stem != "__init__"]
    held = {name: group for group in groups for name in import_module(f"{verbs.__name__}.{group}").VERBS}
    assert sorted(held) == sorted(VERBS)
    assert [] == [name for name, group in held.items() if VERBS[name].do.__module__ != f"{verbs.__name__}.{group}"]
