"""Rate limits that were learned are remembered in the ledger, per key and model class; never a key."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from typing import Any

import pytest

import agent_magic as am
from agent_magic.engine import Reading
from agent_magic.record.ledger.store import LIMITS_AGE_S
from tests.live.virtual import Reply, Scripted

KEY = "sk-" + "ant-api03-a-key-that-is-kept-nowhere"
LEARNED = ["requests", "input", "output"]
TRIAL = {"key", "limits"}
"""What an agent waits for that may not leave before the first reply."""
MANY = am.Plan([am.Agent(f"n{number}", f"[[ttft:0.3]] say {number}") for number in range(8)])


def script(url: str, ledger: object, key: str = KEY) -> dict[str, Any]:
    """Run eight agents in a process of its own; say how it began, and who waited for what."""
    code = f"""
import asyncio, json, agent_magic as am
plan = am.Plan([am.Agent(f"n{{number}}", f"[[ttft:0.3]] say {{number}}") for number in range(8)])
ledger = am.Ledger({str(ledger)!r})
run = asyncio.run(plan.run(client=am.Claude(base_url={url!r}, api_key={key!r}), ledger=ledger, fresh=True))
terms = run.record.terms
limits = sorted({{limit for known in terms.before.values() for limit in known}})
print(json.dumps([limits, terms.key_untried, sorted({{one.held_by for one in run.record.attempts if one.held_by}})]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    limits, untried, held = json.loads(done.stdout)
    return {"limits": limits, "untried": untried, "held": held}


def test_a_returning_user_has_no_trial(tmp_path):
    """In a fresh process with the same ledger all leave at once; another key has to learn anew; no key is in a file."""
    with am.Simulator(latency="none", rpm=6000, itpm=600_000, otpm=600_000) as server:
        first = script(server.url, tmp_path / "l.sqlite3")
        second = script(server.url, tmp_path / "l.sqlite3")
        other = script(server.url, tmp_path / "l.sqlite3", "another-key")
    assert ([], True) == (first["limits"], first["untried"])
    assert TRIAL & {*first["held"]}, "somebody waited for the first reply"
    assert (sorted(LEARNED), False) == (second["limits"], second["untried"])
    assert set() == TRIAL & {*second["held"]}, second["held"]
    assert ([], True) == (other["limits"], other["untried"])
    for file in tmp_path.iterdir():
        assert KEY.encode() not in file.read_bytes()
        assert b"another-key" not in file.read_bytes()


class Limited(Scripted):
    """Announces a limit on requests with every reply."""

    def __init__(self, limit: float, account: str | None = "somebody") -> None:
        super().__init__(lambda *_: Reply(0.0, status=None), is_limited=True)
        self.limit, self.account = limit, account

    async def send(self, request, stream):
        """Answer, with the limit."""
        stream.replied(200, {"requests": Reading(self.limit, self.limit - 1.0)})
        return await super().send(request, stream)


def known(client: Limited, ledger: am.Ledger) -> float | None:
    """Run in a session of its own; the limit on requests that was known before."""
    run = asyncio.run(MANY.run(client=client, ledger=ledger, fresh=True))
    assert run.ok
    assert run.record.terms is not None
    limits = [one["requests"].per_minute for one in run.record.terms.before.values() if "requests" in one]
    return limits[0] if limits else None


@pytest.fixture
def ledger():
    """A ledger in memory."""
    made = am.Ledger(":memory:")
    yield made
    made.close()


def test_a_limit_that_went_down_is_learned_again(ledger):
    """What is remembered is believed until a reply says otherwise."""
    assert [None, 6000.0, 6000.0, 600.0] == [known(Limited(limit), ledger) for limit in (6000.0, 6000.0, 600.0, 600.0)]


def test_another_account_learns_anew(ledger):
    """And a provider that names none is not remembered."""
    assert None is known(Limited(6000.0), ledger)
    assert None is known(Limited(6000.0, "somebody else"), ledger)
    assert [None, None] == [known(Limited(6000.0, None), ledger) for _ in range(2)]
    assert 6000.0 == known(Limited(600.0), ledger)


def test_what_is_old_is_forgotten(ledger, monkeypatch):
    """After a month an account may be on another tier."""
    assert None is known(Limited(6000.0), ledger)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + LIMITS_AGE_S - 60)
    assert 6000.0 == known(Limited(600.0), ledger)
    monkeypatch.setattr(time, "time", lambda: now + 3 * LIMITS_AGE_S)
    assert None is known(Limited(600.0), ledger)


def test_a_session_goes_on_too(ledger):
    """In its runs after the first there is nothing to recall; a key that changes has other limits."""
    session = am.Session(client=Limited(6000.0), ledger=ledger)
    asyncio.run(MANY.run(session=session))
    pacer = session.pacer
    asyncio.run(MANY.run(session=session, fresh=True))
    assert pacer is session.pacer
    assert isinstance(session.client, Limited)
    session.client.account = "somebody else"
    asyncio.run(MANY.run(session=session, fresh=True))
    assert pacer is not session.pacer


def test_a_key_is_hashed_before_it_leaves_the_provider(monkeypatch):
    """Two keys, and one key at two addresses, are two accounts; without a key there is none."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    made = [am.Claude(), am.Claude(api_key="other"), am.Claude(api_key=KEY, base_url="http://127.0.0.1:1")]
    assert 3 == len({one.account for one in made})
    assert am.Claude().account == am.Claude(api_key=KEY).account
    assert not any(KEY in (one.account or "") for one in made)
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    assert None is am.Claude().account
