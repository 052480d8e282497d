"""Votes over several answers."""

from __future__ import annotations

import pandas as pd
import pytest

import agent_magic as am
from agent_magic.api import Run
from agent_magic.errors import DeclarationError
from tests.live.virtual import Reply, drive


def test_what_most_say():
    """Case and space do not count; missing answers neither."""
    found = am.vote(["Yes", "no", " yes ", None])
    assert ("Yes", 2 / 3, 3, False) == found[:4]
    assert {"yes": 2, "no": 1} == found.counts


def test_a_tie_is_said():
    """The first of the equal ones wins."""
    assert ("b", True) == (am.vote(["b", "a", "a", "b"]).value, am.vote(["b", "a", "a", "b"]).tie)


def test_the_best_is_the_first_of_the_highest():
    """By a function of the answer."""
    assert "bb" == am.best(["a", "bb", "cc"], len)


def test_columns_and_values_without_a_hash():
    """Lists are compared by what they are as text."""
    assert [1] == am.vote(pd.Series([[1], [2], [1]])).value
    with pytest.raises(DeclarationError, match="2 columns"):
        am.vote(pd.DataFrame({"a": [1], "b": [2]}))


@pytest.mark.parametrize("wrong", [[], [None], "text", 3])
def test_nothing_to_vote_on(wrong):
    """Is said, and what to give."""
    with pytest.raises(DeclarationError):
        am.vote(wrong)


def test_grades_that_are_none():
    """A grader that raises or says NaN decides nothing."""
    with pytest.raises(DeclarationError, match="NaN"):
        am.best(["a"], lambda _: float("nan"))
    with pytest.raises(DeclarationError, match="ZeroDivisionError"):
        am.best(["a"], lambda _: 1 / 0)


def test_an_agent_that_is_asked_several_times():
    """Each is a request of its own; a task takes all answers, and a prompt too."""
    answers = iter(["red", "blue", "red"])

    def winner(colour):
        return am.vote(colour).value

    steps = [am.Agent("colour", "Which?", repeat=3), am.Task("winner", winner)]
    plan = am.Plan([*steps, am.Agent("end", "{{ winner }} of {{ colour }}")])
    record, client = drive(plan, lambda prompt, _: Reply(text=next(answers) if prompt == "Which?" else "done"))
    assert ["Which?"] * 3 == [one.prompt for one in client.asked[:3]]
    assert "red of red\n\nblue\n\nred" == client.asked[-1].prompt
    assert ["red", "blue", "red"] == list(Run(record).each("colour")["answer"])
