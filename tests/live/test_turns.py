"""Answers that the API pauses (`pause_turn`): they go on from where they were, over real HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_magic.api import Agent, Claude, Ledger, Plan, Policy, Run
from agent_magic.simulator import Simulator, start
from tests.providers.wire import CLOSE, OPEN, STOP, delta, event, reply, serving


@pytest.fixture(scope="module")
def server() -> Iterator[Simulator]:
    """Serve at once."""
    with start(latency="none", unlimited=True) as running:
        yield running


def run(server: Simulator, prompt: str, policy: Policy | None = None, **more: Any) -> Run:
    """Run one agent, and one that takes its answer."""
    plan = Plan([Agent("a", prompt), Agent("b", "Echo {{ a }} [[tokens:5]]")])
    client = Claude(base_url=server.url, api_key="any")
    return asyncio.run(plan.run(policy or Policy(), client=client, **more))


def test_a_paused_answer_goes_on(server):
    """Each turn is a row with its own bill; the text of all is the answer, and goes into prompts."""
    done = run(server, "Search. [[tokens:200]] [[stop:pause_turn times=2]]")
    assert done.ok
    rows = done.attempts.query("agent == 'a'")
    assert ["pause_turn", "pause_turn", "end_turn"] == list(rows["stop_reason"])
    assert ["succeeded"] * 3 == list(rows["status"])
    assert [1, 2, 3] == list(rows["attempt"])
    assert rows["input_tokens"].is_monotonic_increasing
    assert rows["held_by"].isna().all()
    agent = done.agents.iloc[0]
    assert ("succeeded", 3, 600) == (agent["status"], agent["attempts"], agent["output_tokens"])
    assert agent["cost_usd"] == pytest.approx(rows["cost_usd"].sum())
    texts = [one.answer.text for one in done.record.results[0].attempts if one.answer]
    assert "".join(texts) == done["a"].text == done.texts["a"]
    assert texts[0] != texts[1]
    assert done["a"].text in done.record.results[1].attempts[0].request.prompt


def test_turns_do_not_use_up_attempts(server):
    """More turns than attempts are allowed, and a turn that fails is tried again from where it was."""
    marks = "[[tokens:5]] [[stop:pause_turn times=4]]"
    assert run(server, f"Many. {marks}", Policy(max_attempts=1)).ok
    done = run(server, f"Broken. [[status:529 times=1]] {marks}", Policy(max_attempts=2))
    assert done.ok
    assert 5 == len(done["a"].attempts)


def test_the_cap_keeps_what_came(server):
    """After so many turns the agent is capped; its text is passed on, or not, as answers that are cut."""
    prompt = "Endless. [[tokens:10]] [[stop:pause_turn]]"
    done = run(server, prompt, Policy(max_turns=3))
    assert ["capped", "succeeded"] == list(done.agents["status"])
    assert (3, 30) == (len(done["a"].attempts), done["a"].usage.output_tokens)
    assert "pause_turn" == done["a"].stop_reason
    assert "paused (pause_turn) 3 times; the text so far is kept. Raise --max-turns." in str(done["a"].error)
    assert done["a"].text in done.record.results[1].attempts[0].request.prompt
    assert (1, 0) == (done.totals.capped, done.totals.cancelled)
    assert not done.ok
    failed = run(server, prompt, Policy(max_turns=2, on_max_tokens="fail"))
    assert ["failed", "skipped"] == list(failed.agents["status"])
    assert failed["a"].text
    assert 2 == len(failed["a"].attempts)


def test_a_check_reads_the_answer_that_is_passed_on(server):
    """All turns of it, and so does the condition of a cascade."""
    seen: list[str] = []
    sure: Any = {"cascade": ["claude-haiku-5-5", "claude-opus-5-5"], "escalate": "(answer | length) < 100"}
    agent = Agent("a", "Paused. [[tokens:20]] [[stop:pause_turn times=3]]", check=seen.append, **sure)
    done = asyncio.run(Plan([agent]).run(client=Claude(base_url=server.url, api_key="any")))
    assert [done["a"].text] == seen
    assert ["succeeded"] * 4 == list(done.attempts["status"])


def test_every_turn_is_bought_once(server, tmp_path: Path):
    """A second run takes all turns from the ledger; one that was capped goes on and pays for the rest only."""
    with_ledger: Any = {"ledger": Ledger(tmp_path / "l.sqlite3", reuse_simulated=True)}
    prompt = "Twice. [[tokens:10]] [[stop:pause_turn times=3]]"
    first = run(server, prompt, Policy(max_turns=2), **with_ledger)
    assert "capped" == first["a"].status
    second = run(server, prompt, **with_ledger)
    assert second.ok
    assert ["ledger", "ledger", "simulated", "simulated"] == list(second.attempts.query("agent == 'a'")["source"])
    third = run(server, prompt, **with_ledger)
    assert {"ledger"} == set(third.attempts["source"])
    assert second["a"].text == third["a"].text
    assert 0 == third.totals.cost_usd
    opened = with_ledger["ledger"].open().record
    assert third["a"].text == opened["a"].text
    with_ledger["ledger"].close()


def test_a_recording_of_turns_replays(server, tmp_path: Path):
    """The same rows and the same text, without a server; without texts none of theirs is in the file."""
    done = run(server, "Kept. [[tokens:30]] [[stop:pause_turn times=1]]")
    done.save(tmp_path / "r.jsonl")
    again = Plan(done.plan.agents).replay(tmp_path / "r.jsonl")
    assert done["a"].text == again["a"].text
    assert list(done.attempts["stop_reason"]) == list(again.attempts["stop_reason"])
    done.save(tmp_path / "h.jsonl", texts=False)
    words = done["a"].text.split()
    assert " ".join(words[:4]) not in (tmp_path / "h.jsonl").read_text()


START = event(
    "message_start",
    message={
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "claude-haiku-5-5",
        "content": [],
        "usage": {"input_tokens": 5},
    },
)
PAUSE = event("message_delta", delta={"stop_reason": "pause_turn"}, usage={"output_tokens": 7})
END = event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 2})


async def asked(*replies: bytes) -> tuple[Run, list[Any]]:
    """Run one agent against these replies; return the run, and the bodies of its requests."""

    async def answer(writer: Any, number: int) -> None:
        writer.write(reply(replies[min(number, len(replies)) - 1]))
        await writer.drain()

    async with serving(answer) as found:
        done = await Plan([Agent("a", "Ask")]).run(client=Claude(base_url=found.url, api_key="any"))
    return done, found.bodies


def block(index: int, content: dict[str, Any], *deltas: dict[str, Any]) -> bytes:
    """One content block of a stream."""
    pieces = b"".join(event("content_block_delta", index=index, delta=one) for one in deltas)
    return (
        event("content_block_start", index=index, content_block=content)
        + pieces
        + event("content_block_stop", index=index)
    )


def test_what_goes_back_is_what_came():
    """Thinking with its signature, tools with their input, results and citations go back as they came."""
    citation = {"type": "web_search_result_location", "url": "u"}
    found = {
        "type": "web_search_tool_result",
        "tool_use_id": "t1",
        "content": [{"type": "web_search_result", "url": "u"}],
    }
    paused = (
        START
        + block(
            0,
            {"type": "thinking", "thinking": ""},
            {"type": "thinking_delta", "thinking": "hm"},
            {"type": "thinking_delta", "thinking": "m"},
            {"type": "signature_delta", "signature": "sig"},
        )
        + block(
            1,
            {"type": "text", "text": ""},
            {"type": "text_delta", "text": "One "},
            {"type": "text_delta", "text": "two"},
        )
        + block(
            2,
            {"type": "server_tool_use", "id": "t1", "name": "web_search", "input": {}},
            {"type": "input_json_delta", "partial_json": '{"query":'},
            {"type": "input_json_delta", "partial_json": ' "x"}'},
        )
        + block(3, found)
        + block(
            4,
            {"type": "text", "text": ""},
            {"type": "citations_delta", "citation": citation},
            {"type": "text_delta", "text": "three"},
        )
        + block(5, {"type": "text", "text": ""})
        + PAUSE
        + STOP
    )
    last = START + OPEN + delta(" four") + CLOSE + END + STOP
    done, sent = asyncio.run(asked(paused, last))
    assert "One twothree four" == done["a"].text
    assert 9 == done["a"].usage.output_tokens
    assert [{"role": "user", "content": "Ask"}] == sent[0]["messages"] == sent[1]["messages"][:1]
    assert {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hmm", "signature": "sig"},
            {"type": "text", "text": "One two"},
            {"type": "server_tool_use", "id": "t1", "name": "web_search", "input": {"query": "x"}},
            found,
            {"type": "text", "text": "three", "citations": [citation]},
        ],
    } == sent[1]["messages"][1]
    assert {**sent[0], "messages": 0} == {**sent[1], "messages": 0}


def test_a_pause_with_nothing_in_it_is_no_loop():
    """There is nothing to go on from: one call, capped."""
    done, sent = asyncio.run(asked(START + PAUSE + STOP))
    assert ("capped", 1) == (done["a"].status, len(sent))
    assert "nothing in it to go on from" in str(done["a"].error)


def test_a_forecast_makes_the_turns_again(server):
    """As recorded: the same rows, the same bill."""
    done = run(server, "Foreseen. [[tokens:30]] [[stop:pause_turn times=2]]")
    foreseen = done.forecast()
    assert done.totals.cost_usd == pytest.approx(foreseen.totals.cost_usd)
    assert len(done.attempts) == len(foreseen.attempts)
