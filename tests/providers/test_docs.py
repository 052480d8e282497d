"""The provider of `docs/providers.md`, run as it stands there: paced, kept, replayed and forecast like any other."""

# Tests take for granted what they have just checked, and the SDK hands its clients of other clouds out lazily.
# pyright: reportOptionalMemberAccess=false, reportOptionalOperand=false, reportOperatorIssue=false
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false

from __future__ import annotations

import ast
import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

import agent_magic as am
from agent_magic.errors import DeclarationError, RunFailed
from tests.providers.wire import Server, reply, serving

PAGE = Path(__file__).parents[2] / "docs" / "providers.md"
PROVIDER, USE = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
ANSWERS = {"Name a colour.": "blue", "Mix blue with red.": "purple"}


def chunk(**fields: Any) -> bytes:
    """One event of a chat completion."""
    return f"data: {json.dumps({'choices': [], **fields})}\n\n".encode()


def completion(text: str) -> bytes:
    """The events of an answer."""
    pieces = [(text[:2], None), (text[2:], "stop")]
    events = [chunk(choices=[{"delta": {"content": piece}, "finish_reason": reason}]) for piece, reason in pieces]
    return b"".join(events) + chunk(usage={"prompt_tokens": 7, "completion_tokens": 3}) + b"data: [DONE]\n\n"


class Chat:
    """A chat completions server that announces its limit of requests.

    Attributes:
        refusals: How many requests it refuses first.
    """

    def __init__(self, refusals: int = 0) -> None:
        self.refusals, self.server = refusals, Server(None)

    async def answer(self, writer: Any, number: int) -> None:
        """Answer one request."""
        if number <= self.refusals:
            writer.write(reply(b"{}", 429, "application/json", retry_after="0.01"))
        else:
            text = ANSWERS[self.server.bodies[number - 1]["messages"][-1]["content"]]
            head = {"x_ratelimit_limit_requests": 600, "x_ratelimit_remaining_requests": 600 - number}
            writer.write(reply(completion(text), **head))
        await writer.drain()


def use(chat: Chat, ledger: am.Ledger | None = None, times: int = 1) -> list[am.Run]:
    """Run the page's code: its provider, and the lines that use it as often as told."""
    found: dict[str, Any] = {"ledger": ledger}
    exec(PROVIDER, found)
    code = compile(USE, str(PAGE), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

    async def main() -> list[am.Run]:
        runs: list[am.Run] = []
        async with serving(chat.answer) as chat.server:
            found["url"] = chat.server.url
            for _ in range(times):
                await eval(code, found)
                runs.append(found["run"])
        return runs

    return asyncio.run(main())


def test_it_is_as_short_as_the_page_says():
    """About forty lines, and no more than a stranger reads in one go."""
    whole = next(one for one in ast.parse(PROVIDER).body if isinstance(one, ast.ClassDef))
    assert 30 < whole.end_lineno - whole.lineno + 1 <= 42  # pyright: ignore[reportOptionalOperand]


def test_a_run_has_its_frames():
    """Texts reach the next prompt; tokens, prices and times are in the frames."""
    chat = Chat()
    [run] = use(chat)
    assert run.ok
    assert {"a": "blue", "b": "purple"} == dict(run.texts)
    assert [7, 7] == list(run.agents["input_tokens"])
    assert run.totals.cost_usd == pytest.approx(2 * (7 * 0.2 + 3 * 0.8) / 1e6)
    assert run.attempts["ttft_s"].notna().all()
    assert "Bearer a-key".lower() == chat.server.heads[0]["authorization"]


def test_it_is_paced():
    """Its readings are the limits the pacer keeps, and a 429 closes the pacer for as long as it says."""
    [run] = use(Chat(refusals=2))
    assert run.ok
    assert ["RateLimited", "RateLimited", "", ""] == [one.kind or "" for one in run.record.attempts]
    assert 600.0 == run.record.terms.after["small"]["requests"].per_minute  # pyright: ignore[reportOptionalMemberAccess]


def test_its_answers_are_bought_once(tmp_path: Path):
    """A second run takes them from the ledger: nothing is sent, at $0."""
    chat = Chat()
    first, second = use(chat, am.Ledger(tmp_path / "l.sqlite3"), times=2)
    assert 2 == len(chat.server.bodies)
    assert dict(first.texts) == dict(second.texts)
    assert {"ledger"} == set(second.agents["source"])
    assert 0.0 == second.totals.cost_usd


def test_its_run_is_replayed(tmp_path: Path):
    """A cassette of it plays without the provider, with the recorded clock."""
    [run] = use(Chat())
    run.save(tmp_path / "c.cassette.jsonl")
    again = run.plan.replay(tmp_path / "c.cassette.jsonl")
    assert dict(run.texts) == dict(again.texts)
    assert list(run.attempts["started_s"]) == list(again.attempts["started_s"])


def test_its_run_is_forecast():
    """A forecast of the same run takes as long and costs as much; a what-if has rows."""
    [run] = use(Chat())
    assert run.totals.wall_s == pytest.approx(run.forecast().totals.wall_s, rel=0.05)
    assert 2 == len(run.whatif(concurrency=[1, 2], prices={"small": am.TokenPrice(0.2, 0.8)}))


def test_all_that_was_said_is_sent():
    """An answer that does not fit goes back with what is wrong with it, and the schema and the effort stand beside."""

    class Typed(Chat):
        async def answer(self, writer: Any, number: int) -> None:
            writer.write(reply(completion('{"value": "x"}' if number == 1 else '{"value": 7}')))
            await writer.drain()

    chat, found = Typed(), dict[str, Any]()
    exec(PROVIDER, found)
    plan = am.Plan([am.Agent("n", "A number.", model="small", returns=int, effort="low")])

    async def main() -> am.Run:
        async with serving(chat.answer) as chat.server:
            prices = {"small": am.TokenPrice(0.2, 0.8)}
            return await plan.run(client=found["Chat"](chat.server.url, "a-key"), prices=prices)

    run = asyncio.run(main())
    assert 7 == run["n"].value
    first, second = chat.server.bodies
    assert ["user"] == [one["role"] for one in first["messages"]]
    assert ["user", "assistant", "user"] == [one["role"] for one in second["messages"]]
    assert '{"value": "x"}' == second["messages"][1]["content"]
    assert "valid integer" in second["messages"][2]["content"]
    assert "low" == second["reasoning_effort"]
    assert "integer" == second["response_format"]["json_schema"]["schema"]["properties"]["value"]["type"]


def test_what_it_does_not_send_is_refused():
    """The page's provider has no tools: an agent with some is refused, and the server is asked nothing."""
    found: dict[str, Any] = {}
    exec(PROVIDER, found)
    plan = am.Plan([am.Agent("a", "Look.", model="small", tools=["web_search"])])
    with pytest.raises(DeclarationError, match=re.escape("tools=['web_search'], and Chat (http://127.0.0.1:9) runs")):
        asyncio.run(plan.run(client=found["Chat"]("http://127.0.0.1:9", "a-key")))


def test_its_failures_are_rows():
    """A server that refuses the key stops the run after one request; nothing is bought."""

    class Closed(Chat):
        async def answer(self, writer: Any, number: int) -> None:
            writer.write(reply(b"{}", 401, "application/json"))
            await writer.drain()

    chat = Closed()
    [run] = use(chat)
    assert (1, "failed") == (len(chat.server.bodies), run["a"].status)
    with pytest.raises(RunFailed, match=re.escape("The server answered 401.")):
        run.raise_for_failures()
