"""Two runs beside each other, by their own frames."""

# Tests hand over wrong types on purpose, and take for granted what they have just checked.
# pyright: reportArgumentType=false
# pyright: reportOperatorIssue=false
# pyright: reportOptionalOperand=false

from __future__ import annotations

import pandas as pd
from hypothesis import given, settings

import agent_magic as am
from agent_magic.api import Ledger, Run
from agent_magic.measure.compare import COMPARISON
from agent_magic.measure.frames import ALL
from tests.live.virtual import Reply, drive
from tests.record.histories import histories


def run_of(prompts, texts):
    """A run of agents side by side, by prompt and answer."""
    plan = am.Plan([am.Agent(name, prompt) for name, prompt in prompts.items()])
    takes = {prompt: 1.0 + one for one, prompt in enumerate(prompts.values())}
    record, _ = drive(plan, lambda prompt, _: Reply(takes[prompt], text=texts[prompt], tokens=(10, 7, 5, 0)))
    return Run(record)


def test_what_changed_is_said_by_agent():
    """Same prompt and other text, other prompt and same text, only in one of them."""
    a = run_of({"same": "x", "text": "y", "prompt": "z", "gone": "g"}, {"x": "1", "y": "2", "z": "3", "g": "4"})
    b = run_of({"same": "x", "text": "y", "prompt": "Z", "new": "n"}, {"x": "1", "y": "two", "Z": "3", "n": "5"})
    frame = am.compare(a, b).frame
    assert ["same", "text", "prompt", "gone", "new", ALL] == list(frame["agent"])
    rows = frame.set_index("agent")
    assert [False, False, True] == list(rows["prompt_changed"][:3])
    assert [False, True, False] == list(rows["text_changed"][:3])
    assert rows.loc[["gone", "new"], ["prompt_changed", "text_changed", "diff_s", "diff_tokens"]].isna().all(axis=None)
    assert (22, 0) == (rows.loc["same", "tokens_a"], rows.loc["same", "diff_tokens"])
    assert (True, True) == (rows.loc[ALL, "prompt_changed"], rows.loc[ALL, "text_changed"])
    assert COMPARISON == {name: str(kind) for name, kind in frame.dtypes.items()}


def same(left, right):
    """Whether two numbers are equal, or both unknown."""
    return (pd.isna(left) and pd.isna(right)) or left == right


@settings(max_examples=20, deadline=None)
@given(histories(), histories())
def test_differences_are_those_of_the_frames(first, second):
    """`b` minus `a` of what each run's own frames say; a run beside itself differs in nothing."""
    a, b = Run(first[0]), Run(second[0])
    frame = am.compare(a, b).frame.set_index("agent")
    one, other = a.agents.set_index("agent"), b.agents.set_index("agent")
    for agent in frame.index[:-1]:
        for mine, theirs in (("diff_s", "total_s"), ("diff_usd", "cost_usd")):
            before, after = one[theirs].get(agent, pd.NA), other[theirs].get(agent, pd.NA)
            assert same(frame.loc[agent, mine], after - before)
    assert same(frame.loc[ALL, "diff_s"], b.summary["wall_s"][0] - a.summary["wall_s"][0])
    alone = am.compare(a, a).frame
    assert not alone[["diff_s", "diff_tokens", "diff_usd"]].fillna(0).any(axis=None)
    assert not alone[["prompt_changed", "text_changed"]].fillna(value=False).any(axis=None)


def test_both_runs_are_drawn_over_each_other():
    """What got slower is named with its seconds, what is in one run only is said, a changed answer too."""
    a = run_of({"same": "x", "text": "y", "gone": "g"}, {"x": "1", "y": "2", "g": "4"})
    b = run_of({"new": "n", "same": "x", "text": "y"}, {"x": "1", "y": "two", "n": "5"})
    chart = am.compare(a, b).chart()
    for words in ("+1.0 s", "only in a", "only in b", "answer changed", "b, slower"):
        assert f">{words}" in chart.svg or f"· {words}" in chart.svg
    assert "two runs: b over a" == chart.text.splitlines()[0]
    assert "2 slower · 1 answer changed" in chart.text.splitlines()[1]
    assert "b.judge('text', judge, against=a) tells whose answer is better" in chart.text
    assert "b.advise() says what would be faster or cheaper" in am.compare(a, a).chart().text


def test_a_run_that_reused_answers_is_no_measure_of_time():
    """It took none, and the next step says how to measure it."""
    plan, ledger = am.Plan([am.Agent("a", "x")]), Ledger(":memory:")
    first, again = (Run(drive(plan, lambda *_: Reply(1.0), ledger=ledger)[0]) for _ in range(2))
    said = " ".join(am.compare(first, again).chart().text.split())
    assert "b reused answers, which takes no time: %agents run --fresh measures it" in said
    assert "reused" not in am.compare(again, first).chart().text


def test_a_comparison_reads_as_text():
    """The picture's text, then the frame's, in at most a hundred columns."""
    run = run_of({"one": "x"}, {"x": "1"})
    text = repr(am.compare(run, run))
    assert "two runs: b over a" in text
    assert "(all)" in text
    assert max(map(len, text.splitlines())) <= 100


def test_names_in_a_comparison_are_text():
    """A hostile answer or name becomes no markup."""
    run = run_of({"a": "<b>"}, {"<b>": "<script>alert(1)</script>"})
    other = run_of({"a": "<b>"}, {"<b>": "</svg><img src=x onerror=alert(1)>"})
    assert "alert" not in am.compare(run, other).chart().svg
