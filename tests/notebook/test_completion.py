"""What Tab offers, at every place of a line."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from IPython.core.completer import provisionalcompleter
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from agent_magic.api import Run
from agent_magic.measure import texts_series
from agent_magic.notebook import VERBS, AgentMagics, load, unload
from agent_magic.notebook.completion import Known, offer
from agent_magic.providers import MODELS
from agent_magic.record import Prices, Usage
from tests.show.story import business_run

KNOWN = Known(
    agents=("python", "rust", "compare"),
    awaited=("go",),
    plans=("agents", "second"),
    ran=("python", "rust"),
    models=("claude-own-1", *MODELS),
    variables=("topic", "table"),
    contexts=("handbook",),
    unwritten=("rules",),
)


def words(line: str, cell: str | None = None) -> tuple[str, ...]:
    """Return what is offered at the end of a line."""
    found = offer(line, KNOWN, cell=cell)
    return found.words if found else ()


@pytest.mark.parametrize(
    ("line", "first"),
    [
        ("%agents ru", ("run",)),
        ("run = %agents re", ("resume", "retry")),
        ("    x = %am_agents conn", ("connect",)),
        ("%agents run ", ("python", "rust", "compare")),
        ("%agents run python ", ("rust", "compare")),
        ("%agents run python --sched", ("--schedule",)),
        ("%agents run --schedule ", ("ready", "shortest", "layers")),
        ("%agents run --schedule=se", ("sequential",)),
        ("%agents run --cache o", ("on", "off")),
        ("%agents run --plan se", ("second",)),
        ("%agents ledger v", ("verify",)),
        ("%agents run --concurrency 2 ru", ("rust",)),
        ("%agents run --fresh ru", ("rust",)),
        ("%agents show ", ("python", "rust")),
        ("%agents show python --m", ("--markdown",)),
        ("%agents error py", ("python",)),
        ("%agents connect ", ("simulator", "api")),
        ("%agents connect simulator --lat", ("--latency",)),
        ("%agents help rep", ("replay",)),
        ("%%agent ", ("go",)),
        ("%%agent x --mo", ("--model",)),
        ("%%agent x --model claude-o", ("claude-own-1", "claude-opus-5-5", "claude-opus-5")),
        ("%%agent x --after ", ("python", "rust", "compare")),
        ("%%agent x --after python,ru", ("rust",)),
        ("%%agent x --after python,rust,", ("python", "rust", "compare")),
        ("%%agent x --context t", ("topic", "table")),
        ("%%agent x --context ", ("handbook", "topic", "table")),
        ("%%context ", ("rules",)),
        ("%%context x --pl", ("--plan",)),
        ("%agents drop hand", ("handbook",)),
        ("%%agent x --role cr", ("critic",)),
        ("%%agents --pl", ("--plan",)),
        ("%%plan --strategy fe", ("feature",)),
        ("%agents preset re", ("review", "research")),
        ("%agents export ce", ("cell", "cells")),
        ("%%agent x --after python --effort h", ("high",)),
        ("%agents ledger pr", ("prune",)),
    ],
)
def test_a_line(line: str, first: tuple[str, ...]):
    """Subcommands, then names and options, then the values of each option; what is there already is not offered."""
    assert first == words(line)[: len(first)]


def test_words_of_one_subcommand_are_not_offered_in_another():
    """`verify` is what the ledger does, no row of `%agents dead`."""
    assert "verify" in words("%agents ledger ver")
    assert "verify" not in words("%agents dead ver")


@pytest.mark.parametrize("line", ["Compare {{ py", "Compare {{py", "{{ rust }} and {{ py"])
def test_a_prompt(line: str):
    """Inside `{{` of an agent's cell come agents."""
    assert ("python",) == words(line, "%%agent x")


def test_an_agent_is_not_offered_its_own_answer():
    """A prompt names other agents and variables."""
    assert ("python", "rust", "topic", "table", "handbook") == words("{{ ", "%%agent compare --model m")


def test_a_context_is_offered_variables_only():
    """It takes no answer and no other context."""
    assert ("topic", "table") == words("{{ ", "%%context rules --plan second")


@pytest.mark.parametrize(
    ("line", "cell"),
    [
        ("f'{{ py", "x = 1"),
        ("agents ru", None),
        ("%agentsx ru", None),
        ("print(py", None),
        ("%agents nosuch ", None),
        ("{{ python }} py", "%%agent x"),
        ("%%agent x", "x = 1"),
        ("%time py", None),
    ],
)
def test_what_is_not_ours_is_left_alone(line: str, cell: str | None):
    """Elsewhere IPython offers what it always does."""
    assert () == words(line, cell)


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A cassette is offered by its path; other files and hidden ones are not."""
    (tmp_path / "tapes").mkdir()
    for name in ("a.cassette.jsonl", "notes.txt", ".secret.jsonl", "tapes/b.jsonl"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    assert ["a.cassette.jsonl", "tapes/"] == [word for word in words("%agents replay ") if word[0] != "-"]
    assert ("tapes/b.jsonl",) == words("%agents replay tapes/")
    assert () == words("%agents replay nowhere/")
    assert (f"{tmp_path}/tapes/",) == words(f"%agents replay {tmp_path}/ta")


@given(st.text(alphabet=st.sampled_from("%agents run-{}=,\"' \tmodel"), max_size=60), st.none() | st.just("%%agent x"))
def test_no_line_breaks_it(line: str, cell: str | None):
    """Whatever is typed, Tab answers with words that begin as it does."""
    for start in ("", "%agents ", "%agents run ", "%%agent x "):
        found = offer(start + line, KNOWN, cell=cell)
        assert found is None or all(word.startswith(found.fragment) for word in found.words)


def test_every_subcommand_can_be_completed():
    """No subcommand's options break the completion."""
    for command in VERBS:
        assert command in words(f"%agents {command}")
        words(f"%agents {command} ")
        words(f"%agents {command} --")


@pytest.mark.parametrize("model", MODELS)
def test_offered_models_have_prices(model: str):
    """What is offered can be paid for: each id is on the price list."""
    assert Prices().of(model, Usage(1, output_tokens=1)).cost_usd


@pytest.fixture
def shell() -> Iterator[Any]:
    """A shell of its own, without a history file."""
    InteractiveShell.clear_instance()
    made: Any = InteractiveShell.instance()
    made.init_completer()
    yield made
    unload(made)
    InteractiveShell.clear_instance()


def test_ipython_asks_us(shell: Any):
    """The shell gives our words and no others in our places, its own elsewhere, and after unloading only those."""
    load(shell)
    shell.user_ns.update({f"pyname_{number}": number for number in range(3000)}, pyx=1)
    shell.run_cell_magic("agent", "pyramid", "Which framework?")

    def tab(text: str) -> list[str]:
        with provisionalcompleter():
            return [one.text for one in shell.Completer.completions(text, len(text))]

    assert ["pyramid"] == tab("%agents run py")
    assert ["run", "runs"] == tab("x = %agents ru")
    assert ["pyramid"] == tab("%%agent other\nIt says {{ pyr")
    assert "pyx" in tab("print(py")
    assert ["--"] == tab("%agents wait --")  # it has no options, and Python's names are none
    assert ["zz"] == tab("%agents run zz")
    began = time.perf_counter()
    for _ in range(5):
        tab("%agents run py")
    print(f"one completion beside 3,000 variables: {200 * (time.perf_counter() - began):.1f} ms")
    unload(shell)
    assert "pyramid" not in tab("%agents run py")


def test_tab_knows_the_agents_of_a_run(shell: Any):
    """After `run["` it offers their names and nothing else, and every word of ours has a kind."""
    load(shell)
    shell.user_ns["run"] = Run(business_run())
    with provisionalcompleter():
        found = {one.text for one in shell.Completer.completions('run["', 5)}
        kinds = {one.type for one in shell.Completer.completions("%agents ru", 10)}
    assert {"summary", "operations"} <= {word.strip('"]') for word in found}
    assert not [word for word in found if word.startswith("%")]
    assert {"agents"} == kinds


def test_values_look_right_and_are_let_go(shell: Any):
    """Answers look like ours while we are loaded, other series as ever; a result shows itself."""
    import pandas as pd

    load(shell)
    record = business_run()
    texts, other = texts_series(record), pd.Series([1, 2], name="text")
    shown = shell.display_formatter.format(record["summary"])[0]
    assert {"text/html", "text/plain"} == set(shown)
    assert "<pre" in shell.display_formatter.format(texts)[0]["text/html"]
    assert "text/html" not in shell.display_formatter.format(other)[0]
    unload(shell)
    assert "text/html" not in shell.display_formatter.format(texts)[0]
    assert {"text/html", "text/plain"} == set(shell.display_formatter.format(record["summary"])[0])


@pytest.mark.parametrize("line", ["run --help", "help run", "run python -h", "--help run"])
def test_help_of_a_command(shell: Any, capsys, line: str):
    """The same help by every way to ask: what it does, every option, examples; nothing is run."""
    load(shell)
    shell.run_line_magic("agents", line)
    shown = capsys.readouterr().out
    for word in ("Run the agents", "%agents run:", "--concurrency N", "run = %agents run"):
        assert word in shown


def test_help_names_every_command(shell: Any, capsys):
    """`%agents help` lists all commands, one a line, and `%agents help NAME` can tell of each."""
    load(shell)
    shell.run_line_magic("agents", "help")
    listed = capsys.readouterr().out
    for command, verb in VERBS.items():
        assert re.search(rf"^.{{11}}{command} ", listed, re.MULTILINE)
        shell.run_line_magic("agents", f"help {command}")
        assert verb.help in " ".join(capsys.readouterr().out.split())
    with pytest.raises(UsageError, match="Did you mean 'run'"):
        shell.run_line_magic("agents", "help runn")


def test_help_of_an_option(shell: Any, capsys):
    """An option of `%%agent` that is no command is explained too."""
    load(shell)
    shell.run_line_magic("agents", "help timeout")
    assert "%%agent NAME --timeout: Deadline in seconds." in capsys.readouterr().out


def test_config_has_help_for_every_default(shell: Any, capsys):
    """`%config AgentMagics` explains each default in a sentence."""
    load(shell)
    shell.run_line_magic("config", "AgentMagics")
    shown = capsys.readouterr().out
    for name, trait in AgentMagics.class_traits(config=True).items():
        assert f"AgentMagics.{name}=" in shown
        assert trait.help.endswith(".")


@pytest.mark.parametrize(
    ("line", "first"),
    [
        ("## ", ("go",)),
        ("## go (cr", ("critic",)),
        ("## go (critic) --mod", ("--model",)),
        ("## go --after py", ("python",)),
        ("What of {{ ru", ("rust",)),
        ("%agents re", ("resume", "retry")),
    ],
)
def test_a_heading_is_completed_like_the_line_of_an_agent(line, first):
    """In a cell of several agents, a name, a role in brackets, options, and what a prompt can name."""
    assert first == words(line, "%%agents --plan mine")[: len(first)]
