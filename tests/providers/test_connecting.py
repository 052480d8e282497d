"""What a `Claude` is given: a key, an address, a client; what cannot work is said at once, and nothing is shown."""

# Tests hand over wrong types on purpose.
# pyright: reportArgumentType=false
# pyright: reportOperatorIssue=false
# pyright: reportOptionalMemberAccess=false
# pyright: reportOptionalOperand=false

# Tests take for granted what they have just checked, and the SDK hands its clients of other clouds out lazily.
# pyright: reportOptionalMemberAccess=false, reportOptionalOperand=false, reportOperatorIssue=false
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from anthropic import AsyncAnthropic, DefaultAioHttpClient

import agent_magic as am
from agent_magic.api import Run
from agent_magic.errors import DeclarationError, NotConnected
from tests.providers.wire import BEGIN, CLOSE, OPEN, STOP, TEXT, WHOLE, event, problem, reply, serving

PLAN = am.Plan([am.Agent("a", "x")])
ONCE = am.Policy(max_attempts=1)
SECRET = "team-token-4711-abcdef"

BAD = {
    "a user name": {"base_url": "http://user:pw-1@host"},
    "a password alone": {"base_url": "http://:pw-1@host"},
    "no scheme": {"base_url": "127.0.0.1:11434"},
    "another scheme": {"base_url": "ftp://host"},
    "no host": {"base_url": "http://"},
    "a port that is none": {"base_url": "http://host:99999"},
    "a line break": {"base_url": "http://host\n/x"},
    "the version": {"base_url": "http://127.0.0.1:11434/v1/"},
    "no text": {"base_url": 5},
    "a key with a line break": {"api_key": "sk-secret-pw-1\n"},
    "a key of two lines": {"api_key": "sk-secret\npw-1"},
    "a key with an escape": {"api_key": "sk-\x1bsecret-pw-1"},
    "a key that is no ASCII": {"api_key": "sk-pw-1-é"},
    "an empty key": {"api_key": ""},
    "a key that is no text": {"api_key": b"sk-pw-1"},
}


@pytest.mark.parametrize("given", BAD.values(), ids=BAD)
def test_what_can_never_work_is_refused_at_once(given: dict[str, Any]):
    """Before a run, with a hint, and without showing a password or a key."""
    with pytest.raises(DeclarationError) as told:
        am.Claude(**given)
    assert "pw-1" not in str(told.value)
    assert len(str(told.value)) < 300


def test_a_client_has_its_own_key_and_address():
    """Both at once is a mistake."""
    with pytest.raises(DeclarationError, match="either client="):
        am.Claude(client=AsyncAnthropic(api_key="x"), api_key="y")


@pytest.mark.parametrize("name", ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"])
def test_a_broken_key_of_the_environment_is_said_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch, name: str):
    """The name of the variable, never what is in it; a key that is given makes it irrelevant."""
    monkeypatch.setenv(name, "sk-secret-pw-1\n")
    with pytest.raises(DeclarationError, match=name) as told:
        asyncio.run(PLAN.run(client=am.Claude(base_url="http://127.0.0.1:9")))
    assert "pw-1" not in str(told.value)


def test_a_broken_address_of_the_environment_is_said_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch):
    """No attempts, no advice to check the network."""
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://user:pw-1@host")
    with pytest.raises(DeclarationError, match="ANTHROPIC_BASE_URL") as told:
        asyncio.run(PLAN.run(client=am.Claude(api_key="a-key")))
    assert "pw-1" not in str(told.value)


def test_an_address_of_one_s_own_needs_no_key(monkeypatch: pytest.MonkeyPatch):
    """Local servers take any; without an address there is nobody to send to."""
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "")

    async def work() -> Run:
        async with serving(reply(WHOLE)) as found:
            return await PLAN.run(client=am.Claude(base_url=found.url))

    assert asyncio.run(work()).ok
    with pytest.raises(NotConnected):
        asyncio.run(PLAN.run(client=am.Claude()))


def test_a_given_key_goes_out():
    """Whatever the environment says."""

    async def work() -> dict[str, str]:
        async with serving(reply(WHOLE)) as found:
            await PLAN.run(client=am.Claude(base_url=found.url, api_key="given-key"))
        return found.heads[0]

    assert "given-key" in str(asyncio.run(work()))


async def echoed(sdk_options: dict[str, Any]) -> Run:
    """Ask a server that sends all headers back in an error."""

    async def echo(writer: Any, number: int) -> None:
        told = [f"{name}={value}" for name, value in found.heads[number - 1].items() if name[:2] in {"x-", "co", "au"}]
        said = json.dumps({"type": "error", "error": {"type": "x", "message": f"got {' '.join(sorted(told))[-150:]}"}})
        writer.write(reply(said.encode(), 400, "application/json"))
        await writer.drain()

    async with serving(echo) as found:
        http = DefaultAioHttpClient(trust_env=False)
        async with AsyncAnthropic(api_key="k" * 20, base_url=found.url, http_client=http, **sdk_options) as sdk:
            return await PLAN.run(ONCE, client=sdk)


def test_the_user_s_own_headers_are_in_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Any):
    """Secrets in `default_headers` and `ANTHROPIC_CUSTOM_HEADERS`, echoed by a server: not shown, not saved."""
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", f"x-team: {SECRET}")
    first = asyncio.run(echoed({}))
    second = asyncio.run(echoed({"default_headers": {"x-proxy-auth": SECRET[::-1]}}))
    for run, secret in ((first, SECRET), (second, SECRET[::-1])):
        assert run["a"].error.startswith("Rejected: got ")
        run.save(tmp_path / "c.cassette.jsonl")
        assert secret not in run["a"].error + repr(run) + (tmp_path / "c.cassette.jsonl").read_text()
        assert "x-stainless-timeout=420.0" in run["a"].error  # what is no secret stays readable


ESCAPE = "\x1b[31mred\x07"


def ended(**delta: Any) -> bytes:
    """A whole answer whose end says this."""
    ending = event("message_delta", delta=delta, usage={"output_tokens": 5})
    return reply(BEGIN + OPEN + TEXT + CLOSE + ending + STOP)


HOSTILE = {
    "a stop reason": ended(stop_reason=ESCAPE),
    "a long stop reason": ended(stop_reason="x" * 10_000),
    "a category": ended(stop_reason="refusal", stop_details={"category": ESCAPE}),
    "a model": reply(WHOLE.replace(b"claude-haiku-5-5-20261001", b"\\u001b[31mred\\u0007")),
    "a model in pieces": reply(WHOLE.replace(b"claude-haiku-5-5-20261001", b"m\\u001b[2J")),
    "an error": problem(400, kind=ESCAPE, message=ESCAPE),
    "a status line": problem(429, code=ESCAPE, message="number of requests has exceeded \x1b[2J"),
}


@pytest.mark.parametrize("answer", HOSTILE.values(), ids=HOSTILE)
def test_no_word_of_a_server_reaches_a_terminal_raw(answer: bytes):
    """In `repr`, errors, frames and what is printed of them there is no escape, and no word is endless."""

    async def work() -> Run:
        async with serving(answer) as found:
            return await PLAN.run(ONCE, client=am.Claude(base_url=found.url))

    run = asyncio.run(work())
    shown = [repr(run), str(run), run["a"].error or "", repr(run["a"]), str(run["a"].answer and run["a"].answer.model)]
    shown += [str(value) for frame in (run.agents, run.attempts) for value in frame.to_numpy().ravel()]
    assert not [one for one in shown if "\x1b" in one or "\x07" in one]
    assert max(map(len, shown)) < 1_000
