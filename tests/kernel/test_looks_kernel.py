"""What a notebook is sent: results, errors, charts, Tab and `?`, and the lines of a log."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from agent_magic.notebook import VERBS
from tests.kernels import Kernel

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def kernel():
    """A kernel with a finished run of three agents, one of them failed."""
    with Kernel() as started:
        started.do("%load_ext agent_magic\n%agents connect simulator --latency none")
        started.do("%%agent first\nHello. [[tokens:30]]")
        started.do("%%agent second\n{{ first }} [[tokens:400]]")
        started.do("%%agent broken\n[[status:400 times=9]] x")
        assert "ok" == started.do("run = %agents run").status
        yield started


def shown(kernel: Kernel, code: str) -> list[dict[str, Any]]:
    """Return what a cell displays, by MIME type."""
    reply = kernel.do(code)
    assert "ok" == reply.status, reply.text
    return [content["data"] for kind, content in reply.outputs if kind in {"display_data", "execute_result"}]


def test_a_result_is_shown_with_its_text(kernel):
    """One agent's result is HTML with a text twin; the run's answers too; a plain series stays what it is."""
    (result,) = shown(kernel, "run['second']")
    assert "more characters" in result["text/html"]
    assert result["text/plain"].startswith("second · succeeded · ")
    (texts,) = shown(kernel, "run.texts")
    assert "<pre" in texts["text/html"]
    (other,) = shown(kernel, "import pandas as pd\npd.Series(['x'], name='text')")
    assert "text/html" not in other


@pytest.mark.parametrize("end", ["", ";"])
def test_a_run_is_shown_once(kernel, end):
    """The live picture becomes that of the run, with a line below: the value of the cell adds nothing. Out has it."""
    reply = kernel.do(f"%agents run{end}")
    assert "execute_result" not in {kind for kind, _ in reply.outputs}
    assert "Run(" not in reply.text
    assert "'Run'" in kernel.do("type(_).__name__").text
    (later,) = shown(kernel, "run")
    assert "image/svg+xml" in later


def test_markdown_only_when_asked_for(kernel):
    """`%agents show` writes text, with `--markdown` it is rendered."""
    reply = kernel.do("%agents show second")
    assert not [kind for kind, _ in reply.outputs if kind == "display_data"]
    (rendered,) = shown(kernel, "%agents show second --markdown")
    assert rendered["text/html"].startswith('<div class="am-markdown')
    (same,) = shown(kernel, "run.markdown('second')")
    assert rendered == same


@pytest.mark.parametrize("chart", ["timeline", "waterfall", "limits_chart"])
def test_a_chart_is_a_picture_and_a_text(kernel, chart):
    """The picture follows the theme of its page; Vega-Lite, which does not, is sent where it is asked for."""
    (bundle,) = shown(kernel, f"run.{chart}()")
    assert {"image/svg+xml", "text/plain"} == set(bundle)
    (bundle,) = shown(kernel, f"run.{chart}().interactive()")
    assert {"application/vnd.vegalite.v5+json", "image/svg+xml", "text/plain"} == set(bundle)


def test_what_ifs_are_drawn(kernel):
    """A frame of what-ifs is drawn by the run, and by the package without one."""
    kernel.do("import agent_magic as am\nframe = run.whatif(concurrency=[1, 2])")
    for bundle in shown(kernel, "display(run.tradeoff(frame))\nam.tradeoff(frame)"):
        assert "forecast: nothing was sent" in bundle["text/plain"]


def test_explore_without_a_front_end_leaves_a_picture(kernel):
    """For those who cannot show the panel there is the picture of the default scenario, and its text."""
    (panel,) = shown(kernel, "run.explore()")
    assert panel["application/vnd.jupyter.widget-view+json"]["model_id"]
    assert "this scenario" in panel["image/svg+xml"]
    assert panel["text/plain"].startswith("forecast, as recorded")


@pytest.mark.parametrize(
    "code",
    [
        "run['frist']",
        "run.raise_for_failures()",
        "def f():\n    def g():\n        return run['frist']\n    return g()\nf()",
        "am_plan = __import__('agent_magic').Plan([__import__('agent_magic').Agent('x', '{{ y }}')])",
        "await run.plan.run()",
        "%agents error frist",
        "%agents runn",
    ],
)
def test_errors_are_short(kernel, code):
    """No error is longer than 15 lines, frames of the package are not in it, and it ends with what to do."""
    reply = kernel.do(code)
    assert "error" == reply.status
    lines = reply.text.strip().splitlines()
    assert 1 <= len(lines) <= 15
    assert "agent_magic/" not in reply.text


def test_the_rest_of_an_error(kernel):
    """`%agents error NAME` tells every attempt."""
    text = kernel.do("%agents error broken").text
    assert re.search(r"^ +1 +400 ", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("code", "first"),
    [
        ("%agents sho", ["show"]),
        ("%agents run ", ["first", "second", "broken"]),
        ("x = %agents show sec", ["second"]),
        ("%%agent new --model claude-h", ["claude-haiku-5-5", "claude-haiku-4-5"]),
        ("%%agent new --after first,sec", ["second"]),
        ("%%agent new\nsay {{ fir", ["first"]),
        ("y = 1\n%agents run --sched", ["--schedule"]),
    ],
)
def test_tab(kernel, code, first):
    """A front end that asks for completions gets ours, with the part of the word that they replace."""
    reply = kernel._client.complete(code, reply=True, timeout=60)["content"]
    assert first == reply["matches"][: len(first)]
    assert code[reply["cursor_start"] :] == "" or first[0].startswith(code[reply["cursor_start"] :])


@pytest.mark.parametrize(("code", "words"), [("%%agent?", "--after"), ("%agents?", "%agents help")])
def test_question_mark(kernel, code, words):
    """`?` tells options and examples."""
    cell = kernel.start(code)
    kernel.wait(cell)
    page = kernel._cells[cell].content["payload"][0]["data"]["text/plain"]
    assert words in page
    assert "xample" in page


def test_a_log_has_a_line_at_each_end(kernel):
    """Where a program runs the cells, the run says in a line that it begins and in a line how it ended."""
    reply = kernel.do("again = %agents run --fresh first")
    first = next(content for kind, content in reply.outputs if kind == "display_data")
    assert "agents: 1 agent in 1 layer, running" == first["data"]["text/plain"]
    streams = "".join(content["text"] for kind, content in reply.outputs if kind == "stream")
    assert streams.startswith("1 agent in 1 layer · ")
    assert "simulated" in streams


@pytest.mark.parametrize("verb", VERBS)
def test_every_command_has_tab_help_and_a_short_error(kernel, verb):
    """Tab offers its options, `help` shows it with an example, and a wrong option ends in a few lines."""
    offered = kernel._client.complete(f"%agents {verb} --", reply=True, timeout=60)["content"]["matches"]
    assert offered
    assert all(word.startswith("--") for word in offered)
    helped = kernel.do(f"%agents help {verb}")
    assert "ok" == helped.status
    assert f"%agents {verb}" in helped.text
    wrong = kernel.do(f"%agents {verb} --nonsense 1")
    assert "error" == wrong.status
    assert 1 <= len(wrong.text.strip().splitlines()) <= 15
    assert "agent_magic/" not in wrong.text


def test_tab_is_fast(kernel, capsys):
    """The way of a completion from the client to the kernel and back. The time is printed, not held."""
    lines = [f"%agents {verb} " for verb in VERBS] + ["%agents wait --", "%%agent new --model ", "%%agent new\nsay {{ "]
    kernel.do("many = {f'name_{number}': number for number in range(3000)}; globals().update(many)")
    took: list[float] = []
    for line in lines:
        began = time.perf_counter()
        assert "ok" == kernel._client.complete(line, reply=True, timeout=60)["content"]["status"]
        took.append(1000 * (time.perf_counter() - began))
    with capsys.disabled():
        took.sort()
        middle = took[len(took) // 2]
        print(f"\n{len(took)} completions beside 3,000 variables: median {middle:.0f} ms, at most {took[-1]:.0f} ms")


def test_config_shows_every_default_with_its_help(kernel):
    """`%config AgentMagics` lists what can be set, each with a sentence and its value now."""
    text = kernel.do("%config AgentMagics").text
    for name in ("model", "max_tokens", "concurrency", "timeout", "ledger", "confirm_usd"):
        assert f"AgentMagics.{name}=" in text
