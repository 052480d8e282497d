"""What is known of models by their names."""

from __future__ import annotations

import json

import pytest

from agent_magic import ServerTool
from agent_magic.api import Claude, Request
from agent_magic.providers import limit_class
from agent_magic.providers.anthropic.client import DEFAULT_URL, body
from agent_magic.providers.anthropic.models import lacks, server_tool


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("claude-opus-4-5-20251101", "claude-opus-4"),
        ("claude-opus-4-8", "claude-opus-4"),
        ("claude-opus-4-1", "claude-opus-4-1"),
        ("claude-opus-5", "claude-opus-5"),
        ("claude-opus-5-5", "claude-opus-5-5"),
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4"),
        ("claude-sonnet-4-6", "claude-sonnet-4"),
        ("claude-sonnet-4-20250514", "claude-sonnet-4"),
        ("claude-sonnet-5", "claude-sonnet-5"),
        ("claude-sonnet-5-5", "claude-sonnet-5-5"),
        ("claude-fable-5", "claude-fable-5"),
        ("claude-fable-5-2", "claude-fable-5"),
        ("claude-haiku-4-5-20251001", "claude-haiku-4-5"),
        ("claude-haiku-4-5@20251001", "claude-haiku-4-5"),
        ("my-own-model", "my-own-model"),
        ("", ""),
    ],
)
def test_models_share_a_class_where_the_page_says_so(model, name):
    """Documented pools are one class; whatever else there is, is its own."""
    assert name == limit_class(model)


def test_the_provider_says_it():
    """Nobody else in the package knows models by their names, but forecasts that have no provider at hand."""
    claude = Claude(api_key="x")
    assert "claude-opus-4" == claude.limit_class("claude-opus-4-7")
    assert (4096, 512) == (claude.min_cacheable_tokens("claude-haiku-4-5"), claude.min_cacheable_tokens("other"))


@pytest.mark.parametrize(
    ("family", "model", "basic", "dated"),
    [
        ("web_search", "claude-haiku-5-5", False, "web_search_20260209"),
        ("web_search", "claude-sonnet-4-6", False, "web_search_20260209"),
        ("web_search", "claude-haiku-4-5-20251001", False, "web_search_20250305"),
        ("web_search", "claude-opus-5", True, "web_search_20250305"),
        ("web_fetch", "claude-opus-5", False, "web_fetch_20260209"),
        ("code_execution", "claude-haiku-4-5", False, "code_execution_20250825"),
        ("web_search", "a-model-of-my-own", False, "web_search_20250305"),
        ("tool_search_tool_bm25_20251119", "claude-opus-5", False, "tool_search_tool_bm25_20251119"),
    ],
)
def test_a_tool_that_the_api_runs_has_the_version_that_fits(family, model, basic, dated):
    """By model and seller; a name that is no plain one goes out as it is."""
    assert dated == server_tool(family, model, basic=basic)


def test_only_the_wire_has_the_version():
    """What is recorded, and what answers are found by, has the plain name: a later version changes no key."""
    own = {"name": "own", "description": "Do.", "input_schema": {"type": "object"}}
    tools = json.dumps([own, ServerTool("web_search", max_uses=2).definition()])
    request = Request("claude-haiku-4-5", "Hello", 100, tools=tools)
    assert [own, {"type": "web_search_20250305", "name": "web_search", "max_uses": 2}] == body(request)["tools"]
    assert "web_search" == request.canonical()["tools"][1]["type"]
    assert "(damaged)" == body(request._replace(tools="(damaged)"))["tools"]


@pytest.mark.parametrize(
    "model",
    ["haiku", "nosuch", "sonnet-5-5", "gpt-5", "claude-haiku", "claude-hiaku-5-5", "claude-sonet-5-5", "llama3"],
)
def test_a_name_that_no_model_can_have_is_known_to_be_wrong(model):
    """A bare family, a slip, the name of another maker."""
    assert lacks(model)


@pytest.mark.parametrize(
    "model",
    ["claude-haiku-5-5", "claude-haiku-5-5-20260901", "claude-3-5-haiku-latest", "claude-haiku-6", "claude-saga-1"],
)
def test_a_name_that_a_model_may_have_is_never_called_wrong(model):
    """Listed ones, dated ones, later versions, and families to come."""
    assert not lacks(model)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, True),
        ({"base_url": DEFAULT_URL}, True),
        ({"base_url": "http://127.0.0.1:11434"}, False),
        ({"base_url": "http://127.0.0.1:1", "own_models": False}, True),
        ({"own_models": True}, False),
    ],
)
def test_only_of_the_api_itself_the_models_are_known(given, told, monkeypatch):
    """A server of one's own, or a gateway, may have models of any name."""
    monkeypatch.delenv("ANTHROPIC_BASE_URL", raising=False)
    assert told == Claude(**given).lacks_model("haiku")
