"""Agents: names, options, values."""

# Tests hand over wrong types on purpose, and take for granted what they have just checked.
# pyright: reportArgumentType=false
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import dataclasses

import pytest

from agent_magic import Agent, roles
from agent_magic.declare import DEFAULT_MODEL
from agent_magic.declare.options import EFFORTS
from agent_magic.declare.validation import RESERVED
from agent_magic.errors import DeclarationError

GOOD_NAMES = ["a", "class", "def", "await", "_x", "größe", "日本", "नमस्ते", "x1", "A" * 1000, "print", "match"]


@pytest.mark.parametrize("name", GOOD_NAMES, ids=ascii)
def test_an_identifier_is_a_name(name):
    """Any Python identifier names an agent, keywords and other scripts too, and other prompts can use it."""
    assert name == Agent(name, "x").name
    assert (name,) == Agent("other_one", f"{{{{ {name} }}}}").uses


BAD_NAMES = {
    "a:b": "'a_b'",
    "a b": "'a_b'",
    "a-b": "'a_b'",
    "1a": "'agent_1a'",
    "": "'my_agent'",
    "::": "'my_agent'",
    "a\n": "'a'",
    "<a>": "'a'",
    "😀": "'my_agent'",
    "a\0b": "'a_b'",
    "a\ud800": "'a'",
}


@pytest.mark.parametrize(("name", "better"), BAD_NAMES.items(), ids=map(ascii, BAD_NAMES))
def test_what_is_no_identifier_is_refused_with_a_better_name(name, better):
    """The message shows the name, says the rule and hands over a name that works."""
    with pytest.raises(DeclarationError) as caught:
        Agent(name, "x")
    assert repr(name) in str(caught.value)
    assert better in caught.value.hint
    assert name == caught.value.agent


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_words_of_the_template_language_are_refused(name):
    """A word that prompts read in another way is no name, and the message offers one that is."""
    with pytest.raises(DeclarationError, match=f"{name}_agent"):
        Agent(name, "x")
    assert Agent(f"{name}_agent", "x")


def test_functions_of_the_template_language_are_no_names():
    """`range` and `dict` mean functions in some prompts, so no agent is called so."""
    for name in ("range", "dict"):
        with pytest.raises(DeclarationError, match=f"{name}_agent"):
            Agent(name, "x")


@pytest.mark.parametrize("name", [None, 5, b"a", ("a",)], ids=repr)
def test_a_name_is_a_string(name):
    """A name of another type is a declaration error, not a crash."""
    with pytest.raises(DeclarationError):
        Agent(name, "x")


BAD_OPTIONS = {
    "no output": ({"max_tokens": 0}, "max_tokens of agent 'writer' must be an integer >= 1, got 0"),
    "no model": ({"model": " "}, "must be the id of a model, got ' '"),
    "negative output": ({"max_tokens": -5}, "got -5"),
    "no time": ({"timeout_s": 0.0}, "timeout_s of agent 'writer' must be a number > 0, got 0.0"),
    "negative time": ({"timeout_s": -1.0}, "got -1.0"),
    "not a time": ({"timeout_s": float("nan")}, "got nan"),
    "effort": ({"effort": "hihg"}, "Did you mean 'high'"),
    "role": ({"role": "critik"}, "Did you mean 'critic'"),
    "role and system": ({"role": "critic", "system": "x"}, "Give one of them"),
}


@pytest.mark.parametrize(("options", "said"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_an_option_that_cannot_work_is_refused(options, said):
    """The message names option, value, agent and the next step."""
    with pytest.raises(DeclarationError, match=said) as caught:
        Agent("writer", "x", **options)
    assert "'writer'" in str(caught.value)
    assert "writer" == caught.value.agent


WRONG_TYPES = {
    "max_tokens": {"max_tokens": "5"},
    "half a token": {"max_tokens": 5.5},
    "timeout_s": {"timeout_s": "5"},
    "endless": {"timeout_s": float("inf")},
}


@pytest.mark.parametrize("options", WRONG_TYPES.values(), ids=WRONG_TYPES)
def test_an_option_of_the_wrong_type_is_a_declaration_error(options):
    """What a JSON file or a script gets wrong is said in our words, before anything is sent."""
    with pytest.raises(DeclarationError):
        Agent("a", "x", **options)


def test_a_prompt_is_a_string():
    """A prompt that is no string is a declaration error."""
    with pytest.raises(DeclarationError):
        Agent("a", 5)


@pytest.mark.parametrize("prompt", ["", " ", "\n\t\n"], ids=repr)
def test_an_empty_prompt_is_refused(prompt):
    """An agent without a prompt has nothing to send."""
    with pytest.raises(DeclarationError, match="prompt of agent 'a' is empty"):
        Agent("a", prompt)


@pytest.mark.parametrize(
    ("after", "names"),
    [((), ()), ("", ()), ("a,b", ("a", "b")), (" a , b ,a,", ("a", "b")), (["b", "a", "b"], ("b", "a"))],
    ids=repr,
)
def test_after_is_read_from_text_and_lists(after, names):
    """Each name counts once, in order, blanks around it left out."""
    assert names == Agent("x", "x", after=after).after


def test_an_agent_is_a_value():
    """Equal declarations are equal and hash alike; nothing of them can be changed."""
    first, second = (Agent("a", "{{ b }}", model="m", after="c") for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)
    assert first != dataclasses.replace(second, prompt="{{ c }}")
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.model = "n"


def test_neither_prompt_nor_template_is_in_the_repr():
    """Prompts never enter a repr."""
    assert "secret words" not in repr(Agent("a", "secret words"))


@pytest.mark.parametrize("role", roles)
def test_a_role_is_a_system_prompt(role):
    """`role` sends the role's system prompt, `system` the given one, neither sends none."""
    assert roles[role] == Agent("a", "x", role=role).system_text
    assert "mine" == Agent("a", "x", system="mine").system_text
    assert Agent("a", "x").system_text is None


def test_defaults_fill_only_what_is_open():
    """Options given stay; options left open take the defaults; a default of `None` changes nothing."""
    agent = Agent("a", "x", model="own").with_defaults(model="m", max_tokens=7, timeout_s=None)
    assert ("own", 7, None) == (agent.model, agent.max_tokens, agent.timeout_s)
    assert agent is agent.with_defaults(model="m", effort=None)


@pytest.mark.parametrize("effort", EFFORTS)
def test_every_effort_of_the_api_is_taken(effort):
    """The five words of the Messages API work."""
    assert effort == Agent("a", "x", effort=effort).effort


def test_the_default_model_is_known_to_the_sdk_and_not_deprecated():
    """The model that costs a user nothing to choose exists, and will for a while."""
    from typing import get_args

    from anthropic.resources.messages import messages as of_the_sdk
    from anthropic.types import Model

    deprecated = vars(of_the_sdk)["DEPRECATED_MODELS"]  # no release exports it
    known = {word for part in get_args(Model) for word in get_args(part)}
    assert DEFAULT_MODEL in known
    assert DEFAULT_MODEL not in deprecated
