"""Options that pass through: on the wire as given, in the ledger's key, in frames, refused where not taken."""

# pyright: reportArgumentType=false

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import agent_magic as am
from agent_magic.errors import DeclarationError, Rejected
from agent_magic.providers import EVERYTHING, body_text, check_request
from agent_magic.providers.anthropic.client import body
from agent_magic.record import Request, from_json, to_json
from tests.providers.test_capabilities import PRICES, Own
from tests.providers.wire import WHOLE, reply, serving

OLDER = "claude-haiku-4-5"
"""A model that takes all of them."""
ALL: dict[str, Any] = {
    "temperature": 0.2,
    "top_p": 0.9,
    "top_k": 40,
    "stop": ["END", "\n##"],
    "extra": {"service_tier": "auto", "metadata": {"user_id": "u 1"}},
}


def over_http(plan: am.Plan, **more: Any) -> tuple[Any, list[dict[str, Any]]]:
    """Run a plan with the SDK against a server that records bodies."""

    async def work() -> tuple[Any, list[dict[str, Any]]]:
        async with serving(reply(WHOLE)) as server:
            run = await plan.run(client=am.Claude(base_url=server.url, api_key="k" * 20), **more)
            return run, [one for one in server.bodies if one and one.get("stream")]

    return asyncio.run(work())


@pytest.mark.parametrize("own", [True, False])
def test_they_reach_the_server_as_they_were_given(own: bool, monkeypatch):
    """By the bytes of ours and by the SDK's method; nothing else differs from a request without them."""
    if not own:
        monkeypatch.setattr("agent_magic.providers.anthropic.client._is_unwatched", lambda *_: False)
    _, (plain,) = over_http(am.Plan([am.Agent("a", "Hi.", model=OLDER)]))
    run, (asked,) = over_http(am.Plan([am.Agent("a", "Hi.", model=OLDER, **ALL)]))
    assert run.ok
    assert {
        "temperature": 0.2,
        "top_p": 0.9,
        "top_k": 40,
        "stop_sequences": ["END", "\n##"],
        "service_tier": "auto",
        "metadata": {"user_id": "u 1"},
    } == {name: value for name, value in asked.items() if name not in plain}
    assert plain == {name: value for name, value in asked.items() if name in plain}


def test_the_key_of_what_sets_none_is_what_it_was():
    """Answers that were bought before there were such options are found; each of these makes another key."""
    plain = Request(OLDER, "Hi.", 100, "Be brief.", effort="low", schema="{}")
    assert "ce0fb544152486880bf916eaf76fdd3ceb2e57dc6c643ba249c6d19b730846da" == plain.key("https://api.example")
    keys = {plain._replace(options=json.dumps({name: value})).key("") for name, value in ALL.items()}
    assert len(ALL) == len(keys - {plain.key("")})
    assert "options" not in to_json(plain)
    assert plain._replace(options="{}") == from_json(Request, to_json(plain._replace(options="{}")))


def test_the_ledger_serves_the_same_and_buys_another(tmp_path):
    """With another temperature an answer is another one."""

    async def work() -> list[int]:
        async with serving(reply(WHOLE)) as server:
            ledger = am.Ledger(tmp_path / "answers.db")
            client, bought = am.Claude(base_url=server.url, api_key="k" * 20), list[int]()
            for one in (None, 0.2, 0.2, None, 0.3):
                plan = am.Plan([am.Agent("a", "Hi.", model=OLDER, temperature=one)])
                await plan.run(client=client, ledger=ledger)
                bought.append(sum("stream" in body for body in server.bodies if body))
            ledger.close()
            return bought

    assert [1, 2, 2, 2, 3] == asyncio.run(work())


def test_frames_have_them_where_they_are_set():
    """A column for each that an agent has, `NA` for the others."""
    plan = am.Plan([am.Agent("a", "Hi.", model=OLDER, temperature=0.2, stop="END"), am.Agent("b", "Ho.", model=OLDER)])
    run, _ = over_http(plan)
    for frame in (run.agents, run.attempts):
        kept = frame.set_index("agent")
        assert 0.2 == kept.loc["a", "temperature"]
        assert '["END"]' == kept.loc["a", "stop"]
        assert kept.loc["b", ["temperature", "stop"]].isna().all()
        assert "top_p" not in frame
    run, _ = over_http(am.Plan([am.Agent("b", "Ho.")]))
    assert not {"temperature", "stop", "extra"} & {*run.agents, *run.attempts}


@pytest.mark.parametrize("option", ["temperature", "top_p", "top_k"])
@pytest.mark.parametrize("where", ["model", "fallback", "cascade"])
def test_a_model_that_takes_none_refuses_before_anything_is_sent(option: str, where: str):
    """By name of agent, option and model: also where it would be asked only later."""
    models: dict[str, Any] = {
        "model": {"model": "claude-opus-5-5"},
        "fallback": {"model": OLDER, "fallback": "claude-opus-5-5"},
        "cascade": {"cascade": [OLDER, "claude-opus-5-5"], "escalate": "answer == 'no'"},
    }[where]
    value = ALL[option]
    with pytest.raises(DeclarationError, match=f"Agent 'a' has {option}={value}, and claude-opus-5-5 takes no temp"):
        over_http(am.Plan([am.Agent("a", "Hi.", **models, **{option: value})]))


def test_texts_to_stop_at_and_other_fields_go_to_every_model():
    """Only how words are drawn is for older ones."""
    _, (asked,) = over_http(am.Plan([am.Agent("a", "Hi.", model="claude-opus-5-5", stop="END", extra={"x_y": 1})]))
    assert (["END"], 1) == (asked["stop_sequences"], asked["x_y"])


def test_a_field_that_is_there_already_is_not_overwritten():
    """Its agent fails, and nothing was sent."""
    run, asked = over_http(am.Plan([am.Agent("a", "Hi.", model=OLDER, effort="low", extra={"output_config": {}})]))
    assert [] == asked
    assert "extra has 'output_config'" in str(run["a"].error)


def test_a_request_that_gets_there_by_another_way_is_refused_too():
    """Such as one that a task writes while the plan runs."""
    claude = am.Claude(base_url="http://127.0.0.1:1", api_key="k" * 20)
    asked = Request("claude-opus-5-5", "x", 1, options='{"temperature": 1}')
    with pytest.raises(Rejected, match="The request has sampling, and claude-opus-5-5 takes no temperature"):
        check_request(asked, claude)
    check_request(asked._replace(model=OLDER), claude)
    check_request(asked._replace(model="a-model-of-a-gateway"), claude)


@pytest.mark.parametrize("many", [{"each": "rows"}, {"each": "rows", "group": 2, "returns": int}, {"repeat": 2}])
def test_a_refusal_names_what_is_declared(many: dict[str, Any]):
    """Not a row, a request or a copy of it."""
    plan = am.Plan([am.Agent("a", "Hi {{ item }}.", temperature=0.2, **many)], {"rows": [1, 2, 3], "item": "x"})
    with pytest.raises(DeclarationError, match=r"Agent .a. has temperature=0\.2, and claude-haiku-5-5") as caught:
        asyncio.run(plan.run(client=am.Claude(base_url="http://127.0.0.1:1", api_key="k" * 20)))
    assert "a" == caught.value.agent


def test_a_pool_takes_what_all_its_members_take_of_a_model():
    """And workers what their client does."""
    claude = am.Claude(base_url="http://127.0.0.1:1", api_key="k" * 20)
    pool = am.Pool({"a": claude, "b": Own(sampling=True, stop=True)})
    assert not pool.capabilities_of("claude-opus-5-5").sampling
    assert pool.capabilities_of(OLDER).sampling
    assert not pool.capabilities_of(OLDER).extra
    assert EVERYTHING == am.Dask(client=claude).capabilities_of(OLDER)


def test_a_provider_of_ones_own_reads_them_by_name():
    """As `am.Agent` has them; only what it says it can is let through."""
    client = Own(sampling=True, stop=True)
    plan = am.Plan([am.Agent("a", "Hi.", model="small", temperature=0.5, stop=["a", "b"])])
    asyncio.run(plan.run(client=client, prices=PRICES))
    assert {"temperature": 0.5, "stop": ["a", "b"]} == client.asked[0].sent
    other = am.Plan([am.Agent("a", "Hi.", model="small", extra={"x": 1})])
    with pytest.raises(DeclarationError, match=r"has extra=\{'x': 1\}, and Own .* takes no fields that"):
        asyncio.run(other.run(client=client))


@given(st.fixed_dictionaries({}, optional={name: st.just(value) for name, value in ALL.items()}))
def test_a_body_as_text_is_the_body(options: dict[str, Any]):
    """Member for member, with any of them."""
    request = Request(OLDER, "Hi.", 100, options=json.dumps(options) if options else "")
    assert {**body(request), "stream": True} == json.loads(body_text(request))
