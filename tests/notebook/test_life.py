"""The life of a notebook: what reloading, renaming, editing and running again leave behind."""

from __future__ import annotations

import logging
import random
import re
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from agent_magic.api import Session
from agent_magic.declare.cells import without_tool_lines
from agent_magic.notebook import load, unload


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    """No notebook of another test hears of runs."""
    monkeypatch.setattr(Session, "listeners", [])


@pytest.fixture
def shell(tmp_path, monkeypatch) -> Iterator[Any]:
    """A shell of its own with the extension, in an empty folder, with a ledger of its own and no key."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGENT_MAGIC_LEDGER", str(tmp_path / "ledger.sqlite"))
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    InteractiveShell.clear_instance()
    made: Any = InteractiveShell.instance()
    made.run_cell("%load_ext agent_magic")
    yield made
    unload(made)
    InteractiveShell.clear_instance()


@pytest.fixture
def said(shell, capsys):
    """Run a cell; return what it printed, with the message of its error."""

    def run(cell: str) -> str:
        capsys.readouterr()
        done = shell.run_cell(cell)
        error = done.error_in_exec or done.error_before_exec
        found = capsys.readouterr()
        return found.out + found.err + (f"\n{type(error).__name__}: {error}" if error else "")

    return run


def test_reloading_keeps_everything_and_says_so(shell, said):
    """`%reload_ext` keeps who answers, what is declared and what ran, and says so in one line."""
    said("%agents connect simulator --latency none")
    said("%%agent a\nSay hi.")
    said("run = %agents run")
    told = said("%reload_ext agent_magic")
    assert 1 == len(told.strip().splitlines())
    assert all(word in told for word in ("mock server", "1 agent", "1 run", "ledger"))
    said("run = %agents run --fresh")
    assert ["simulated"] == shell.user_ns["run"].agents["source"].tolist()


def test_leaving_the_simulator_is_never_silent(shell, said):
    """Unloading says that the API answers next, and so does a run behind whatever else left the mock server."""
    said("%agents connect simulator --latency none")
    assert "costs money" in said("%unload_ext agent_magic")
    load(shell)
    said("%agents connect simulator --latency none")
    session = next(one for one in shell.configurables if type(one).__name__ == "AgentMagics").session
    session.disconnect()
    assert "costs money" in session.leaving_note()
    assert "" == session.leaving_note()


@pytest.fixture
def again(shell):
    """Load the extension as a kernel does that is started again, with nothing but the ledger."""

    def start() -> None:
        unload(shell)
        shell.user_ns.pop("run", None)
        load(shell)

    return start


def test_a_kernel_that_is_started_again_says_what_it_leaves(said, again, monkeypatch):
    """The cells above were not run: nothing is declared, and the API answers where the mock server did."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-a-test")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
    assert "declared before is gone" not in said("%agents run") + said("%agents")
    said("%agents connect simulator --latency none")
    said("%%agent a\nSay hi.")
    said("run = %agents run")
    again()
    for line in ("%agents", "%agents run", "%agents plan"):
        assert "This kernel is new: run the cells again" in " ".join(said(line).split())
    said("%%agent a --timeout 1\nSay hi.")
    told = said("run = %agents run --max-attempts 1")
    assert "the last run was simulated: http://127.0.0.1:9 answers now, which costs" in told
    assert "costs money" not in said("run = %agents run --max-attempts 1")
    again()
    said("%agents connect simulator --latency none")
    said("%%agent a\nSay hi.")
    assert "costs money" not in said("run = %agents run")


def test_what_comes_between_does_not_hide_that_the_api_answers(said, again, monkeypatch):
    """A simulated run that is opened or loaded, a recording, and the question who answers."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-a-test")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
    said("%agents connect simulator --latency none")
    said("%%agent a --timeout 1\nSay hi.")
    said("run = %agents run\n%agents save s.session\n%agents record r.cassette.jsonl")
    for between in ("%agents open 1", "%agents load s.session"):
        again()
        said(between)
        said("%%agent a --timeout 1\nSay hi.")
        run = "run = %agents run --fresh --max-attempts 1"
        assert ["costs money" in said(run) for _ in range(2)] == [True, False], between
    said("%agents connect simulator --latency none")
    assert "costs money" not in said("%agents replay r.cassette.jsonl\n%agents connect")
    assert "costs money" in said("%agents connect api")


def test_another_notebooks_simulated_run_is_no_reason_for_a_word(said, again, tmp_path, monkeypatch):
    """One ledger, two folders."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-a-test")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
    said("%agents connect simulator --latency none")
    said("%%agent a\nSay hi.")
    said("run = %agents run")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    again()
    assert "declared before is gone" not in said("%agents run")
    said("%%agent a --timeout 1\nSay hi.")
    assert "simulated" not in said("run = %agents run --max-attempts 1")


def test_a_run_of_the_python_api_says_that_it_leaves_the_mock_server(said, monkeypatch):
    """`%agents connect simulator` does not reach it; with a client or a session somebody has said whom to ask."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-a-test")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
    said("import agent_magic as am\nplan = am.Plan([am.Agent('a', 'Hi', timeout_s=1)])")
    once = "am.Policy(max_attempts=1)"
    assert "costs money" not in said(f"r = await plan.run({once})")
    said("%agents connect simulator --latency none")
    assert "this run asks http://127.0.0.1:9, which costs money" in " ".join(
        said(f"r = await plan.run({once})").split()
    )
    assert "costs money" not in said(f"r = await plan.run({once})")
    said("%agents connect simulator --latency none")
    assert "costs money" in said(f"r = await plan.run({once}, session=am.Session())")
    said("%agents connect simulator --latency none")
    assert "costs money" not in said(f"r = await plan.run({once}, client=am.Claude())")
    told = said(
        "run = %agents run --plan plan\nr = await plan.run(session=run.session)\nprint(r.agents.source.tolist())"
    )
    assert "costs money" not in told
    assert "['simulated']" in told


def test_a_connection_that_is_told_is_told_once(said):
    """`%agents connect` says who answers and that it costs money, so the run need not say it again."""
    assert "costs money" not in said("%agents connect simulator --latency none")
    assert "costs money" in said("%agents connect http://127.0.0.1:9")
    assert "costs money" not in said("%agents connect http://127.0.0.1:9")
    said("%%agent a --timeout 1\nSay hi.")
    assert "costs money" not in said("run = %agents run --max-attempts 1")


def test_a_run_leaves_the_state_of_python_as_it_was(said):
    """Seeded random numbers, warnings filters and the handlers of the root logger are the user's."""
    said("%agents connect simulator --latency none")
    said("%%agent a\nSay hi.")
    random.seed(1)
    before = random.getstate(), list(warnings.filters), list(logging.root.handlers)
    said("run = %agents run")
    assert before == (random.getstate(), list(warnings.filters), list(logging.root.handlers))


def test_the_level_of_the_log_alone_shows_the_story(said, monkeypatch):
    """Without a handler of the user's, DEBUG is printed; with one, nothing is printed twice."""
    monkeypatch.setattr(logging.root, "handlers", [])
    said("%agents connect simulator --latency none")
    said("%%agent a\nSay hi.")
    said("import logging; logging.getLogger('agent_magic').setLevel('DEBUG')")
    try:
        assert "a sends attempt 1" in said("run = %agents run")
        handler = logging.NullHandler()
        logging.root.addHandler(handler)
        assert "a sends attempt 1" not in said("run = %agents run --fresh")
    finally:
        logging.getLogger("agent_magic").setLevel("NOTSET")


SIMULATED = "%agents connect simulator --latency none"


def declared(shell, name="a"):
    """Return a declared agent."""
    session = next(one for one in shell.configurables if type(one).__name__ == "AgentMagics").session
    return next(one for one in session.registry().agents if one.name == name)


FORMS = {
    "top": "%agents run a {options}",
    "assigned": "run = %agents run a {options}",
    "time": "%%time\nrun = %agents run a {options}",
    "function": "def go():\n    get_ipython().run_line_magic('agents', 'run a {options}')\ngo()",
    "local": "def go():\n    low = 0.25\n    get_ipython().run_line_magic('agents', 'run a {options}')\ngo()",
}


OPTIONS = ["--budget {b}", "--budget $b", "--budget {b * 2}", '--schedule "{how}"', "{more}"]


def test_variables_of_a_run_line_are_filled_in_everywhere(said):
    """At the top of a cell, under a cell magic, in a function."""
    said(SIMULATED)
    said("b, how, more = 0.5, 'layers', '--budget 0.5 --concurrency 2'")
    said("%%agent a\nHi")
    for options in OPTIONS:
        for form in FORMS.values():
            assert "· simulated" in said(form.replace("{options}", options)), (form, options)


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("{price:.2f}", "1.23"),
        ("{price:.{places}f}", "1.235"),
        ("{found['price']!r}", "1.23456"),
        ('{found["price"]:.0f}{places}', "13"),
        ("{found.get('other', {}) or places}", "3"),
        ("{[one * 2 for one in found]}".replace("found]", "'ab'][1]"), "bb"),
        ("$$places", "$places"),
        ("'{\"price\": 1}'", '{"price": 1}'),
        ('\'{"a": {"b": 2}}\'', '{"a": {"b": 2}}'),
        ('\'{"a": "{places}"}\'', '{"a": "3"}'),
        ("'{} of {places}'", "{} of 3"),
        ("'{{ places }}'", "{{ places }}"),
    ],
)
def test_a_place_reads_as_in_an_f_string(said, shell, written, text):
    """Conversions, formats and nested braces; in quotes, braces that name no variable are text, as in JSON."""
    said("price, places = 1.23456, 3\nfound = {'price': price}")
    said(f"%%agent a --system {written}\nHi")
    assert text == declared(shell).system


def test_an_expression_of_a_line_is_evaluated_once(said, shell):
    """It may count, or ask."""
    said("asked = []\ndef once():\n    asked.append(1)\n    return 5")
    said("%%agent a --max-tokens {once()}\nHi")
    assert [1] == shell.user_ns["asked"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("options", ["--budget {nothing}", "--budget $nothing", "--budget {some}", "--budget {}"])
def test_what_a_line_cannot_hold_is_refused_everywhere(said, form, options):
    """A name without a value, or with one that is neither text nor a number, is refused with the reason."""
    said("some = [1, 2]")
    said("%%agent a\nHi")
    told = said(FORMS[form].replace("{options}", options))
    assert "stands for a variable, and has no value here" in told
    assert "not defined" in told or "list" in told or "the braces are empty" in told
    assert "UsageError" in told
    assert "Traceback" not in told


def test_a_local_variable_comes_before_the_notebooks(said, shell):
    """A function's own name is meant where a function calls the magic."""
    said(SIMULATED)
    said("name, other = 'a', 'b'")
    said("%%agent b\nHi")
    said("def go(name):\n    return get_ipython().run_line_magic('agents', 'run {name}')\nrun = go(other)")
    assert ("b",) == shell.user_ns["run"].plan.names


@pytest.mark.parametrize(
    ("line", "field", "expected"),
    [
        ("a --model {m}", "model", "claude-sonnet-5-5"),
        ("a --model $m", "model", "claude-sonnet-5-5"),
        ('a --model "{m}"', "model", "claude-sonnet-5-5"),
        ("{n} --max-tokens {size}", "max_tokens", 60),
        ('a --system "You know {m}, and {json}, {{ m }} and {size} words."', "system", None),
        ('a --system "{said}"', "system", "You are kind."),
        ("a --system 'It costs $5 or $more.'", "system", "It costs $5 or $more."),
    ],
)
def test_variables_of_a_declaring_line(said, shell, line, field, expected):
    """They are filled in where they are text or numbers; other braces of a text in quotes stay as they are."""
    said("import json; m, n, size, said = 'claude-sonnet-5-5', 'a', 60, 'You are kind.'")
    said(f"%%agent {line}\nHi")
    known = "You know claude-sonnet-5-5, and {json}, {{ m }} and 60 words."
    assert (known if expected is None else expected) == getattr(declared(shell), field)


def test_all_options_of_a_cell_of_several_in_one_variable(said, shell):
    """Such a line is known only when the cell runs."""
    said("more = '--plan other'\n%agents list")
    assert "1 agent declared" in said("%%agents {more}\n## a\nHi")
    assert "no value here" in said("%%agents {other}\n## a\nHi")


def test_variables_of_a_heading(said, shell):
    """The headings of a cell of several are lines like any other."""
    said("m = 'claude-sonnet-5-5'")
    said("%%agents\n## a --model {m}\nHi")
    assert "claude-sonnet-5-5" == declared(shell).model
    assert "no value here" in said("%%agents\n## a --model {other}\nHi")
    said("%%agents\n## {m.split('-')[1]} (critic) --model $m\nHi")
    assert "claude-sonnet-5-5" == declared(shell, "sonnet").model


TOOL_LINES = [
    "#| echo: false",
    "#@title Ask",
    "# @param {type: 'string'}",
    "# NBVAL_IGNORE_OUTPUT",
    "# %%",
    "# %% [markdown]",
    "# noqa: E501",
    "# pragma: no cover",
    "#| label: fig\n#| echo: false\n",
    "\n# NBVAL_SKIP\n\n#@title Ask",
    "\ufeff#| echo: false",
    "# + tags=['x']\n\n",
    "#| echo: false\r\n# NBVAL_SKIP\r",
]
OF_TOOLS = """#| export; #|default_exp core; # @title; #!ignore; # ---; # +; # + [markdown]; #%%; # -; # nbdev: x
# ruff: noqa; # type: ignore; # type:ignore[misc]; # noqa; # NOQA; # nosec; # fmt: off; # mypy: disable-error-code="x"
# mytool: skip; # checker: ignore=E1; # some-tool: off; # thing: E501, W2; # x: [a, b]; # coding: utf-8; #export
# <codecell>; # In[3]:; # pyre-ignore[5]; # region x; # pylint: disable=all; # vim: set ft=python:; # jupyter: x; #hide
# cspell: words x; # hide_input; # + tags=["x"]; # + {"a": 1}"""
OF_PEOPLE = """# Title; # Role: editor; # tone: formal; # goal: a page on rivers; #!/bin/sh; # export the table; # a: b
# skip this; # Task: skip the intro; # on rivers; # NoQA in linters; # type of answer; # no security; # 1: one; # TODO
# hide and seek; # Next: on rivers; # - a point; # + a point; #tag; # note: skip the intro
# see: [the paper] first; # given: x = 5; # of: H2O is water"""


def test_a_comment_is_told_from_a_heading():
    """By its tool, or by what stands behind its colon."""
    told = {line: without_tool_lines(f"{line}\nHi") for line in re.split("; |\n", f"{OF_TOOLS}\n{OF_PEOPLE}")}
    assert re.split("; |\n", OF_TOOLS) == [line for line, (text, _) in told.items() if text == "Hi"]


@pytest.mark.parametrize("line", TOOL_LINES)
@pytest.mark.parametrize("magic", ["%%agent a", "%%context docs"])
@pytest.mark.parametrize("place", ["above", "below"])
def test_comments_for_other_tools_are_not_sent(said, shell, line, magic, place):
    """Above the magic and below it they are no part of the prompt, and the card says so."""
    told = said(f"{magic}\n{line}\nSay hi." if place == "below" else f"{line}\n{magic}\nSay hi.")
    session = next(one for one in shell.configurables if type(one).__name__ == "AgentMagics").session
    known = {**{one.name: one.prompt for one in session.registry().agents}}
    known |= {one.name: one.text for one in session.registry().contexts}
    assert "Say hi." == next(iter(known.values()))
    assert "for another tool, and not sent" in " ".join(told.split())


def test_comments_for_other_tools_at_a_goal_and_an_edit(said, shell):
    """They are no part of the goal, nor of the text in place of an answer, which may begin with such a line itself."""
    said(SIMULATED)
    told = " ".join(said("#| label: x\n%%plan\n# @title y\nCompare rivers").split())
    assert "'#| label: x', '# @title y' are lines for another tool" in told
    assert "Goal: Compare rivers" in told
    said("%%agent a\nHi")
    said("run = %agents run a")
    said("#| label: x\n%%agents edit a\n# %%\nx = 1")
    said("run = %agents run a")
    assert "# %%\nx = 1" == shell.user_ns["run"]["a"].text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{{ rows[7] }}", "has no element 7"),
        ("{{ n / 0 }}", "division by zero"),
        ("{% for one in once %}{{ one }}{% endfor %}", "'once', a generator, which can be read only once"),
        ("{{ nowhere | uper }}", "No filter named 'uper'"),
        ("{% if nowhere %}{{ nowhere | uper }}{% endif %}", "No filter named 'uper'"),
        ("See {{ docs }}", "its own name"),
    ],
)
def test_a_context_that_would_fail_in_the_run_is_not_declared(said, shell, text, words):
    """The cell says it, uses up no iterator, and what its cell declared before stays."""
    shell.run_cell("rows, n, once = [], 1, (one for one in 'ab')")
    told = said(f"%%context docs\n{text}")
    assert words in " ".join(told.split())
    assert "Still as declared before" not in told
    assert () == session_of(shell).registry().contexts
    assert ["a", "b"] == [*shell.user_ns["once"]]


def test_comments_for_other_tools_in_sections_are_told(said, shell):
    """Each section may have its own."""
    told = said("# NBVAL_SKIP\n%%agents\n## a\n#| echo: false\nHi\n## b\n\n#@title Ask\n\nHo")
    assert ["Hi", "Ho"] == [declared(shell, name).prompt for name in "ab"]
    assert all(line in told for line in ("# NBVAL_SKIP", "#| echo: false", "#@title Ask"))


@pytest.mark.parametrize(
    "cell",
    [
        "%%agent a --max-tokens 50\r\nSay hi.\r\nAnd ho.\r\n",
        "\ufeff%%agent a --max-tokens 50\nSay hi.\nAnd ho.",
        "%%agent\u00a0a --max-tokens\u00a050\nSay hi.\nAnd ho.",
        "\ufeff#| echo: false\r\n%%agent\u202fa\u00a0--max-tokens 50\r\nSay hi.\r\nAnd ho.",
        "%%agents\r\n\r\n## a --max-tokens 50\r\nSay hi.\r\nAnd ho.\r\n",
        "%%time\r\n%%agent a --max-tokens 50\r\nSay hi.\r\nAnd ho.",
    ],
)
def test_a_cell_from_a_file_is_the_cell_of_a_notebook(said, shell, cell):
    """Line ends of Windows, a byte order mark, blanks that do not break."""
    said(cell)
    assert ("Say hi.\nAnd ho.", 50) == (declared(shell).prompt, declared(shell).max_tokens)


def test_a_blank_that_does_not_break_behind_a_line_magic(said):
    """It parts the name from the command, as the other blank does."""
    said("%%agent a\nHi")
    assert all("a" in said(line).split() for line in ("%agents\u00a0list", "if True:\n    %agents\u2009list"))


def test_another_magic_in_a_prompt_is_told_of(said):
    """It is sent, and does nothing."""
    assert "%%time must be above %%agent" in said("%%agent a\n\n%%time\nHi")
    assert "must be above" not in said("%%agent a\nWhat does\n%%time do?")
    assert "in a cell of its own" in said("%%agent a\nHi\nrun = %agents run")
    assert "in a cell of its own" in said("%%context c\nLong\n%agents run")
    assert "in a cell of its own" not in said("%%agent a\nWhat does %agents run do?")


@pytest.mark.parametrize(
    "prompt", ["# A title\nText", "#5 is alive", "Say hi.\n#| echo: false", "## %% is modulo", "#tag"]
)
def test_what_is_no_comment_for_a_tool_is_sent(said, shell, prompt):
    """Markdown, and what stands below the first line of the prompt."""
    said(f"%%agent a\n{prompt}")
    assert prompt == declared(shell).prompt


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("%%agent a --system “You are kind.”\nHi", "straight"),
        ("%%agent a --system=„Kind“\nHi", "straight"),
        ("%agents run «a»", "straight"),
        ("%agents run —concurrency 2", "two hyphens: --concurrency"),
        ("%agents run a –fresh", "two hyphens: --fresh"),
        ("%%agent a −−model x\nHi", "two hyphens: --model"),
        ("%%agent a \\\n--max-tokens 50\nHi", "backslash"),
        ("%%agents\n%%context docs\nA long text.\n## one\nReview.", "%%context docs"),
        ("%%agents\n%%agent two\nHi\n## one\nReview.", "%%agent two"),
        ("%%agents\nrun = %agents run\n## one\nReview.", "'run = %agents run' stands above"),
        ("%%agents\n## one —max-tokens 5\nHi", "two hyphens: --max-tokens"),
        ("%%agents\n## one “a”\nHi", "straight"),
        ("%agents run --budget –5", "a hyphen: -5"),
    ],
)
def test_signs_that_only_look_right_are_told_plainly(said, cell, words):
    """Curly quotes, long dashes, a backslash, a magic where it would be a comment."""
    told = said(cell)
    assert "UsageError" in told
    assert words in told


def test_curly_quotes_and_dashes_within_straight_quotes_are_text(said, shell):
    """They are what the user wrote."""
    said('%%agent a --system "Say “hi” — kindly."\nHi')
    assert "Say “hi” — kindly." == declared(shell).system


def test_blanks_of_another_kind_separate_words(said, shell):
    """A line that was copied from a page works."""
    said("%%agent a\u00a0--max-tokens\u202f50\u200b\nHi")
    assert 50 == declared(shell).max_tokens


@pytest.mark.parametrize(
    "asked", ["%agents {}?", "%agents {}??", "?%agents {}", "run = %agents {}?", "%agents help {}?"]
)
@pytest.mark.parametrize("command", ["plan", "run", "trial", "share"])
def test_a_question_mark_shows_the_help_of_that_command(said, command, asked):
    """Not of a magic or a variable of the same name."""
    said("trial = 3")
    assert said(f"%agents help {command}") == said(asked.format(command))


@pytest.mark.parametrize("asked", ["plan?", "?plan", "plan??", "run?", "if True:\n    %agents run?"])
def test_a_word_alone_asks_for_the_command_of_that_name(said, asked):
    """A magic of the name is another command: it is named, and its help is not shown."""
    command = asked.strip("?").split()[-1]
    shown = said(asked)
    assert f"%agents {command}: " in shown
    assert f"%{command} is another command" in shown


def test_a_variable_and_a_text_are_not_taken_for_a_question(said, shell):
    """The user's own value is shown as ever, and a text stays what it is."""
    shell.user_ns["plan"] = 12345
    assert "pinfo" in shell.transform_cell("plan?")
    assert "x = '''\nrun?\n'''\n" == shell.transform_cell("x = '''\nrun?\n'''")
    assert "pinfo" in shell.transform_cell("open?")


def test_a_question_in_a_prompt_is_no_call_for_help(said, shell):
    """The text of a cell magic is sent as it is."""
    said("%%agent a\nWhat does\n%agents plan?")
    assert "What does\n%agents plan?" == declared(shell).prompt


def test_help_begins_with_a_first_week(said):
    """Plan, run, last, retry, advise, share, then the rest; each command once."""
    told = [line.split()[:2] for line in said("%agents help").splitlines()]
    first = ["plan", "run", "last", "retry", "advise", "share"]
    named = [name for words in told for name in words if name in {*first, "list", "drop", "start"}]
    assert [*first, "list"] == named[:7]
    assert 1 == named.count("retry")


def test_autoawait_that_goes_off_in_the_same_cell(said, shell):
    """The run of that cell goes the synchronous way."""
    said(SIMULATED)
    said("%%agent a\nHi")
    assert "SyntaxError" not in said("%autoawait off\nrun = %agents run")
    assert shell.user_ns["run"].ok
    said("%autoawait on")


def session_of(shell):
    """Return what the extension knows."""
    return next(one for one in shell.configurables if type(one).__name__ == "AgentMagics").session


@pytest.fixture
def cell(shell, said):
    """Run a cell that has an id, as JupyterLab does, and tells which cells were deleted before."""
    number = iter(range(1000))

    def run(text: str, name: str | None = None, deleted: tuple[str, ...] = ()) -> str:
        metadata = {"cellId": name, "deletedCells": list(deleted)}
        message = {"header": {"msg_id": f"m{next(number)}", "session": "s"}, "metadata": metadata}
        shell.get_parent = lambda: message
        return " ".join(said(text).split())

    return run


def test_what_deleted_cells_declared_is_marked(shell, cell):
    """Whatever cell the front end tells it with: in the list, at the next declaration, and before a run."""
    cell(SIMULATED, "0")
    cell("%%agent a\nHi", "1")
    cell("%%agent b\nHo", "2")
    cell("x = 1", "3", deleted=("1",))
    told = cell("%agents list", "4")
    assert "cell deleted" in told
    assert "%agents drop a" in told
    assert "%agents drop a" in cell("%%agent c\nHm", "5")
    assert "a of cells deleted or changed will run too: %agents drop a" in cell("run = %agents run", "6")
    assert "deleted" not in cell("run = %agents run b c", "6")
    cell("%%agent a\nHi", "1")  # the deletion was undone
    assert "deleted" not in cell("%agents list", "4")


def test_a_context_whose_deletion_was_undone_is_not_marked(cell):
    """As an agent."""
    cell("%%context docs\nLong", "1")
    cell("%%agent a\nHi {{ docs }}", "2")
    assert "the cell of docs is deleted" in cell("%%agent a\nHi {{ docs }}", "2", deleted=("1",))
    assert "deleted" not in cell("%%context docs\nLong", "1")
    assert "deleted" not in cell("%%agent a\nHi {{ docs }}", "2")


def test_a_cell_that_declares_something_else_leaves_nothing_unmarked(cell):
    """Other code in its place, or one of two steps; an error changes nothing."""
    cell("%%agent a\nHi", "1")
    two = "import agent_magic as am\n@am.task\ndef one(): return 1\n"
    cell(f"{two}@am.task\ndef two(): return 2", "2")
    cell("1 / 0", "1")
    assert "changed" not in cell("%agents list", "4")
    cell("x = 1", "1")
    cell(two, "2")
    assert "a, two; %agents drop a two removes" in cell("%agents list", "4")
    assert "the cell of two is deleted or changed: %agents drop two" in cell("%%agent a\nHi", "1")
    cell("%agents drop two", "4")
    assert "changed" not in cell("%agents list", "4")


@pytest.mark.parametrize("deleted", [True, False])
def test_a_leftover_that_blocks_a_run_is_named(cell, deleted):
    """With the command that drops it; the message of a cell's own mistake stays as it is."""
    cell("%%agent ghost\n{{ nowhere }}", "1")
    cell("%%agent a\nHi", "2")
    for line in ("%agents run", "%agents plan", "run = %agents run"):
        told = cell(line, "3", deleted=("1",) if deleted else ())
        assert "nowhere" in told
        assert "%agents drop ghost" in told
        assert deleted == ("its cell is deleted" in told)


def test_a_leftover_of_another_plan_is_dropped_there(cell):
    """The command says which plan."""
    cell("%%agent ghost --plan other\n{{ nowhere }}", "1")
    assert "%agents drop ghost --plan other" in cell("%agents run --plan other", "2")
    assert "%agents drop ghost --plan other removes" in cell("%agents list --plan other", "2", deleted=("1",))


def test_a_renamed_cell_is_told_of(cell, said):
    """Where the front end names cells the old agent goes; where it does not, the card says how to drop it."""
    cell("%%agent first\nHi", "1")
    assert "renamed from 'first'" in cell("%%agent second\nHi", "1")
    assert "%agents drop second" in cell("%%agent third\nHi")
    assert "drop" not in cell("%%agent fourth\nSomething else")


def test_an_edit_during_a_run_is_told(shell, cell):
    """The run under way keeps the text it began with."""
    cell("%%agent a\nHi", "1")
    cell("%%agent b\nHo {{ docs }}", "2")
    cell("%%context docs\nLong", "4")
    plan = session_of(shell).plan(shell.user_ns, defaults={})
    session_of(shell).running.append(type("Driver", (), {"plan": plan}))
    assert "the run under way keeps the old a" in cell("%%agent a\nHey", "1")
    assert "keeps the old" not in cell("%%agent b\nHo {{ docs }}", "2")
    assert "keeps the old" not in cell("%%context docs\nLong", "4")
    assert "the run under way keeps the old docs" in cell("%%context docs\nLonger", "4")
    assert "the run under way keeps the old b" in cell("%agents drop b", "5")
    assert "keeps the old" not in cell("%%agent c\nNew", "3")
    session_of(shell).running.clear()


def test_a_plan_after_a_run_counts_the_conversation_it_goes_on_with(said):
    """A call of a tool in the ledger is a turn, and no answer: without its result the count was refused."""
    said("import agent_magic as am\n@am.tool(pure=True)\ndef find(word: str) -> str:\n    'Find.'\n    return word * 9")
    said(SIMULATED)
    said("%config AgentMagics.reuse_simulated = True")
    said('%%agent a --tools find\nFind. [[tool@1:find {"word": "north"}]] [[tool@2:find {"word": "south"}]]')
    said("%%agent b --continues a\nAnd the second?")
    said("run = %agents run")
    told = " ".join(said("%agents plan").split())
    assert "2 agents" in told
    assert "tool_use" not in told
    assert "· $0 ·" in said("run = %agents run")


def test_a_log_says_how_to_learn_why_a_run_failed(said):
    """Where output is no terminal, what went well ends with a line, what failed also with the next step."""
    said("%agents connect simulator --latency none")
    said("%%agent a\nSay hi.")
    assert "%agents error" not in said("run = %agents run")
    said("%%agent a\nSay hi. [[status:400]]")
    assert "%agents error a shows why" in said("run = %agents run")
