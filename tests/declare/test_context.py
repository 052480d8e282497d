"""Contexts: one text, written once, the same for all who share it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from agent_magic import Agent, Context
from agent_magic.declare import Plan, plan_from_dict
from agent_magic.errors import DeclarationError, PlanError, UndefinedVariable

TWO = (Agent("a", "x", context="rules"), Agent("b", "y {{ a }} {{ rules }}", context="rules"))


def test_a_context_is_written_once_with_the_plans_values():
    """Its text stands among the values: as the context of who shares it, and where a prompt names it."""
    plan = Plan(TWO, {"firm": "ACME", "spare": 1}, contexts=[Context("rules", "{% if firm %}Of {{ firm }}{% endif %}")])
    assert ("Of ACME", "Of ACME") == (plan.context_of(0), plan.context_of(1))
    assert "y 1 Of ACME" == plan.prompt("b", {"a": "1"})
    assert {"rules": "Of ACME"} == dict(plan.values)
    assert plan == plan.select(["b"]) == dataclasses.replace(plan)


def test_a_context_counts_before_a_value_of_its_name():
    """What was declared as a context is the context."""
    assert "new" == Plan(TWO, {"rules": "old"}, contexts=[Context("rules", "new")]).context_of(0)


def test_a_context_nobody_uses_costs_nothing():
    """It may name what has no value."""
    assert {} == dict(Plan([Agent("a", "x")], contexts=[Context("rules", "{{ nothing }}")]).values)


@pytest.mark.parametrize(
    ("contexts", "error", "words"),
    [
        ([("rules", "see {{ a }}")], PlanError, "'rules' uses the answer of agent 'a'.*put {{ a }} into a prompt"),
        ([("rules", "{{ more }}"), ("more", "x")], PlanError, "Contexts do not nest"),
        ([("rules", "{{ frm }}")], UndefinedVariable, "Context 'rules' uses {{ frm }}.*Did you mean 'firm'"),
        ([("rules", "x"), ("rules", "y")], PlanError, "Two contexts are named 'rules'"),
        ([("rules", "x"), ("a", "y")], PlanError, "'a' is both an agent and a context"),
        (
            [("rules", "{{ 1 / 0 }}")],
            DeclarationError,
            "Context 'rules' cannot be rendered: line 1, {{ 1 / 0 }}: division by zero",
        ),
    ],
)
def test_a_context_that_cannot_be_the_same_for_all_is_refused(contexts: Any, error: Any, words: str):
    """Answers, other contexts and unknown names are wrong plans, before any spend."""
    with pytest.raises(error, match=words):
        Plan(TWO, {"firm": "ACME"}, contexts=[Context(*one) for one in contexts])


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("my rules", "x", "name of a context must be one word.*got 'my rules'.*Try 'my_rules'"),
        ("with", "x", "Try 'with_context'"),
        ("rules", " \n", "Context 'rules' is empty"),
        ("rules", "a\n{% if %}", "Context 'rules' cannot be read in line 2"),
        ("rules", "a\n{% if n %}{{ n | uper }}{% endif %}", "in line 2.*No filter named 'uper'"),
        ("rules", "{% if n is bigger %}a{% endif %}", "No test named 'bigger'"),
        ("rules", "See {{ rules }}", "Context 'rules' uses its own name.*another name"),
    ],
)
def test_a_context_that_cannot_be(name: str, text: str, words: str):
    """The same rules as an agent's, in its own words."""
    with pytest.raises(DeclarationError, match=words):
        Context(name, text)


def test_contexts_of_a_json_plan():
    """They are read as templates, and a wrong shape is said."""
    row = {"name": "a", "prompt": "x", "context": "rules"}
    plan = plan_from_dict({"agents": [row], "values": {"n": 2}, "contexts": {"rules": "{{ n }} rules"}}, Plan)
    assert "2 rules" == plan.context_of(0)
    with pytest.raises(PlanError, match="'contexts' must be"):
        plan_from_dict({"agents": [row], "contexts": ["rules"]}, Plan)
