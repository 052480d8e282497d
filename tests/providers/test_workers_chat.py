"""Workers that ask a server of chat completions."""

from __future__ import annotations

import asyncio
import json

import pytest

import agent_magic as am
from agent_magic.errors import DeclarationError
from agent_magic.providers import serve
from agent_magic.providers.dask import client as clients
from agent_magic.providers.dask import fleet as fleets
from agent_magic.providers.dask.serving import provider_of, settings_of
from tests.providers.chat.speaking import MODEL, WHOLE
from tests.providers.memory import Hub, pair
from tests.providers.wire import reply, serving

KEY, HEADER = "gsk-abcdefghijklmnop0123456789", {"x-team": "blue-0123456789"}


class Workers(Hub):
    """Workers in memory that make the provider themselves, from what a kernel sends."""

    async def connect(self, address):
        """Start a worker that serves this connection."""
        kernel, worker = pair()
        self.ends.append((kernel, worker))
        self.served.append(asyncio.ensure_future(serve(worker)))
        return kernel


def chat(url: str) -> am.Chat:
    """A provider with all it can be given."""
    return am.Chat(url, api_key=KEY, prices={MODEL: (1.0, 2.0)}, headers=HEADER, models=[MODEL], endpoint="mine")


def test_workers_ask_a_server_of_chat_completions(monkeypatch):
    """With its key and headers; prices, models and the name of the endpoint are as without workers."""
    monkeypatch.setattr(fleets, "TICK_S", 0.01)
    monkeypatch.setattr(clients, "Cluster", lambda *_: Workers(None, 1))

    async def main():
        async with serving(reply(WHOLE)) as server:
            plan = am.Plan([am.Agent("a", "One", model=MODEL), am.Agent("b", "Two {{ a }}", model=MODEL)])
            there = await plan.run(client=am.Dask(client=chat(server.url)))
            here = await plan.run(client=chat(server.url))
        return there, here, server

    there, here, server = asyncio.run(main())
    assert {"worker-0"} == set(there.attempts.worker)
    assert [(f"Bearer {KEY.lower()}", "blue-0123456789")] * 4 == [
        (one["authorization"].replace("bearer", "Bearer"), one["x-team"]) for one in server.heads
    ]
    assert list(here.agents.cost_usd) == list(there.agents.cost_usd)
    assert ("mine", [1.3e-05] * 2) == (there.record.origin, list(there.agents.cost_usd))


def test_what_a_worker_is_sent_makes_the_same_provider():
    """It is plain data, and names no class to load."""
    settings = json.loads(json.dumps(settings_of(chat("http://127.0.0.1:8000/v1"))))
    made = provider_of(**settings)
    assert isinstance(made, am.Chat)
    assert ("mine", [MODEL], settings) == (made.endpoint, list(made.models), settings_of(made))


def test_a_provider_of_ones_own_is_refused_with_a_word():
    """A worker could not make it; that is said before anything starts."""

    class Mine(am.Chat):
        pass

    for client in (Mine("http://127.0.0.1:1"), am.Pool({"a": chat("http://127.0.0.1:1")})):
        with pytest.raises(
            DeclarationError, match=r"cannot be made on a worker\. Workers ask by am\.Claude or am\.Chat"
        ):
            am.Dask(client=client)
