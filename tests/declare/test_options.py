"""The table of options: one row each, and everything that reads or writes options goes by it."""

# pyright: reportArgumentType=false, reportCallIssue=false

from __future__ import annotations

import dataclasses
import enum
import inspect
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import agent_magic as am
from agent_magic import Agent, Task
from agent_magic.declare import options_text
from agent_magic.declare.declared import CHANGED, with_changes
from agent_magic.declare.options import AGENT, SENT, TASK, escaped, flag_of, options_of, unescaped
from agent_magic.errors import DeclarationError
from agent_magic.notebook import PARSERS, from_script, read_agent, to_script

JSONS = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | st.text("ab é", max_size=4),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text("xyz", min_size=1, max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)
SAMPLING = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.floats(0, 2) | st.integers(0, 2),
        "top_p": st.floats(0, 1),
        "top_k": st.integers(0, 500),
        "stop": st.lists(st.text("aE# \n\t\\,n", min_size=1, max_size=6), min_size=1, max_size=3, unique=True),
        "extra": st.dictionaries(st.from_regex(r"[a-z_]{3,9}_x", fullmatch=True), JSONS, min_size=1, max_size=2),
    },
)


def test_every_option_is_a_row_and_every_row_an_option():
    """Of an agent and a task, but for what they are made of; each is an argument that type checkers see."""
    made_of = {Agent: {"name", "prompt"}, Task: {"name", "function", "returns", "source_sha", "takes"}}
    for kind, table in ((Agent, AGENT), (Task, TASK)):
        assert {one.name for one in dataclasses.fields(kind) if one.init} == made_of[kind] | set(table)
        assert set(options_of(kind)) == set(table)
        assert set(inspect.signature(kind).parameters) == made_of[kind] | set(table)
        assert all(f"\n        {name}: " in (kind.__doc__ or "") for name in table)


def test_a_line_has_every_option_that_says_how_it_reads_there():
    """And Tab offers it, since it asks the same parser."""
    assert {flag_of(row) for row in AGENT.values() if row.help} <= set(PARSERS["agent"].flags)
    assert {"--temperature", "--top-p", "--timeout", "--uses"} <= set(PARSERS["agent"].flags)
    assert "--hedges" not in PARSERS["agent"].flags


def test_what_passes_through_can_be_changed():
    """A change of such an option is seen as one."""
    assert set(SENT) <= set(CHANGED)
    assert '{"temperature": 0.5}' == with_changes(Agent("a", "x"), {"temperature": 0.5}).sent


@pytest.mark.parametrize(
    ("wrong", "meant"), [("fallbak", "fallback"), ("temprature", "temperature"), ("max_token", "max_tokens")]
)
def test_a_wrong_keyword_is_answered_with_the_one_that_is_meant(wrong, meant):
    """As a wrong flag of a line is."""
    with pytest.raises(DeclarationError, match=f"Agent has no option {wrong!r}. Did you mean {meant!r}"):
        am.Agent("a", "x", **{wrong: "m"})


def test_so_it_is_with_tasks_and_policies():
    """Where no other is near, all are named."""
    with pytest.raises(DeclarationError, match=r"Policy has no option 'concurency'. Did you mean 'concurrency'"):
        am.Policy(concurency=3)
    with pytest.raises(DeclarationError, match=r"Task has no option 'retry'"):
        Task("t", len, retry=1)
    with pytest.raises(DeclarationError, match=r"It has .*budget_usd.*concurrency"):
        am.Policy(zzz=1)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"temperature": -0.1}, "temperature of agent 'a' must be a number >= 0, got -0.1"),
        ({"temperature": float("nan")}, "must be a number >= 0"),
        ({"temperature": True}, "must be a number >= 0"),
        ({"top_p": 1.5}, "top_p of agent 'a' must be a number from 0 to 1, got 1.5"),
        ({"top_k": 2.0}, "top_k of agent 'a' must be an integer >= 0"),
        ({"stop": ["a", ""]}, "stop of agent 'a' must be a text, or a list of texts that are not empty"),
        ({"stop": 3}, "stop of agent 'a' must be a text"),
        ({"extra": "x"}, "extra of agent 'a' must be a mapping of names to JSON"),
        ({"extra": {"x": {1, 2}}}, r"extra of agent 'a'\['x'\] must be plain JSON"),
        ({"extra": {"model": "m"}}, "extra of agent 'a' has 'model', which has an option of its own, model="),
        ({"extra": {"stream": True}}, "has 'stream', which agent_magic sets itself"),
    ],
)
def test_values_that_cannot_be(options, match):
    """Said when they are declared, with what they must be."""
    with pytest.raises(DeclarationError, match=match):
        Agent("a", "x", **options)


class Word(str, enum.Enum):  # noqa: UP042 - whose `str` is another text
    """A text of its own class, whose `str` is another one."""

    NAME = "alpha"
    MODEL = "claude-haiku-4-5"
    EFFORT = "low"


def test_texts_and_numbers_of_a_library_are_those_of_python():
    """An enum's text and numpy's number are what they are equal to: the same step, the same in every file."""
    plain = Agent("alpha", "x", model="claude-haiku-4-5", max_tokens=50, temperature=0.5, stop=["low"], after="alpha")
    other = Agent(
        Word.NAME,
        np.str_("x"),
        model=Word.MODEL,
        max_tokens=np.int64(50),
        temperature=np.float64(0.5),
        stop=[Word.EFFORT],
        after=[Word.NAME],
    )
    assert plain == other
    assert hash(plain) == hash(other)
    assert repr(plain) == repr(other)
    assert am.Policy(concurrency=2, budget_usd=0.5) == am.Policy(np.int64(2), budget_usd=np.float64(0.5))
    assert "budget_usd=0.5," in repr(am.Policy(budget_usd=np.float64(0.5)))
    assert am.Limits(5) == am.Limits(np.int64(5))
    assert "input=1.0" in repr(am.TokenPrice(np.float64(1), 2))


@given(SAMPLING)
def test_options_go_round_in_every_form(options):
    """In a heading, in a JSON plan, and in a script they are what they were; none is written that is not set."""
    agent = Agent("a", "x", **options)
    assert options == {**json.loads(agent.sent or "{}")}
    plan = am.Plan([agent])
    assert agent == am.Plan.from_json(plan.to_json()).agents[0]
    assert set(options) == set(plan.to_dict()["agents"][0]) & {*SENT}
    data, _ = from_script(to_script(plan.to_dict(), title="x", unknown={}))
    assert agent == am.Plan.from_dict(data).agents[0]
    line = f"a {options_text(agent)}"
    assert agent == read_agent(line, "x")[0], line


@given(st.text("ab\\nt\n\t", max_size=12))
def test_a_text_of_a_line_goes_round(text):
    """Line breaks and tabs are written with a backslash, and it with two."""
    assert text == escaped(unescaped(text))
    assert "\n" not in unescaped(text)


def test_what_a_line_says():
    """Texts and fields are given once each; a field's value is JSON."""
    line = r"""a --temperature 0.2 --stop END --stop "\n##" --extra service_tier="flex" --extra 'm={"a b": [1]}'"""
    found: Any = read_agent(line, "x")[0]
    assert (0.2, ("END", "\n##"), {"service_tier": "flex", "m": {"a b": [1]}}) == (
        found.temperature,
        found.stop,
        found.extra,
    )
    with pytest.raises(Exception, match="--extra"):
        read_agent("a --extra service_tier=flex", "x")


def test_a_step_shows_the_options_that_are_set():
    """And no prompt, which may be long or private."""
    assert "Agent('a', model='m', top_k=3)" == repr(Agent("a", "secret", model="m", top_k=3))
    assert "Task('t', retries=2)" == repr(Task("t", lambda: 1, retries=2))
