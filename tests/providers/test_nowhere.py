"""No network, no such host, nobody at the port, a proxy that is down: given up soon, and in words that help."""

# Tests hand over wrong types on purpose, and take for granted what they have just checked.
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportOptionalMemberAccess=false, reportOptionalOperand=false

from __future__ import annotations

import asyncio
import socket

import pytest

from agent_magic import Agent, Claude, Policy
from agent_magic.api import Run
from agent_magic.declare import Plan
from agent_magic.engine import Pacer
from agent_magic.engine.admission.breaker import UNREACHED_S
from agent_magic.errors import RunFailed, Unreachable
from agent_magic.live import Driver
from tests.live.virtual import Reply, drive
from tests.providers.wire import reply, serving

MANY = Plan([Agent(f"a{number}", f"x{number}") for number in range(20)])
POLICY = Policy(8, seed=1)
GONE = Unreachable("No connection to x: Connection refused. Check the network.", sent=False)
CHECK = "Check the network, the proxy if there is one, and base_url (ANTHROPIC_BASE_URL)."


def run_of(script, **more):
    """Run twenty agents on a virtual clock."""
    record, client = drive(MANY, script, POLICY, pacer=Pacer(seed=1), **more)
    return Run(record), client


def nowhere(*_):
    """There is no network."""
    return Reply(takes_s=0.01, error=GONE, status=None)


def test_a_run_without_a_network_ends_in_seconds():
    """Twenty agents make about twenty tries, and not sixty; each row, the line and the exception say why."""
    run, client = run_of(nowhere)
    assert UNREACHED_S < run.record.ended_s < UNREACHED_S + 3
    assert len(client.asked) <= 28
    rest = run.agents[run.agents["status"] == "cancelled"]
    assert len(rest) >= 10
    [why] = set(rest["error"])
    assert why.startswith("Breaker: no connection in ")
    assert why.endswith(f" tries. Last: Unreachable: {GONE}")
    assert str(run).endswith(f" · {why})")
    with pytest.raises(RunFailed) as caught:
        run.raise_for_failures()
    assert why in str(caught.value)
    assert 20 == len(caught.value.failures)


def test_a_forecast_of_it_gives_up_as_it_did():
    """The breaker of a forecast is told what found no connection, by a run that is read back from a file too."""
    run, _ = run_of(nowhere)
    found = run.forecast()
    assert run.totals.wall_s == pytest.approx(found.totals.wall_s, abs=0.05)
    assert dict(zip(run.agents["agent"], run.agents["status"], strict=True)) == {
        one.name: one.status for one in found.record.results
    }


def test_a_network_that_drops_in_mid_run_is_waited_for():
    """Whoever was reached once keeps a minute's patience: half of it without a network gives nobody up."""
    down = [True]
    run, _ = run_of(
        lambda prompt, _: nowhere() if down and prompt != "x0" else Reply(0.2),
        controls=[(30.0, "look", lambda _: down.clear())],
    )
    assert run.record.ended_s > 30
    assert "cancelled" not in set(run.agents["status"])
    assert run.totals.succeeded >= 8


def ask(url, plan=None, policy=None):
    """Ask with the real SDK, for seconds at most."""

    async def work():
        driver = Driver(
            plan or MANY.select(["a0"]), policy or Policy(max_attempts=1), Claude(base_url=url, api_key="a-key")
        )
        async with asyncio.timeout(30):
            await driver.drive()
        return driver.record

    return asyncio.run(work())


@pytest.fixture
def nobody():
    """A port of this machine at which nobody listens."""
    with socket.socket() as held:  # bound, so that nobody else takes it, and deaf
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


def test_the_real_sdk_at_a_port_where_nobody_listens(nobody):
    """Who could not be reached, why, and what to look at. Nothing was sent, so it cost nothing."""
    record = ask(f"http://{nobody}")
    assert f"Unreachable: No connection to {nobody}: Connection refused. {CHECK}" == record["a0"].error
    assert 0.0 == record["a0"].cost_usd


def test_an_address_that_does_not_answer_at_all(nobody, monkeypatch):
    """A firewall that drops what is sent: nobody refuses, and nobody answers."""
    monkeypatch.setattr("agent_magic.providers.transport.CONNECT_S", 0.05)
    address = nobody.partition(":")[0]
    full = [socket.socket() for _ in range(4)]
    with socket.socket() as deaf:
        deaf.bind((address, 0))
        deaf.listen(0)
        where = f"{address}:{deaf.getsockname()[1]}"
        for one in full:  # as many as wait to be accepted; further ones hang
            one.setblocking(False)
            one.connect_ex(deaf.getsockname())
        record = ask(f"http://{where}", policy=Policy(max_attempts=1, timeout_s=17.125))  # nobody else's: it is cached
    for one in full:
        one.close()
    assert f"Unreachable: No connection to {where}: nobody answered. {CHECK}" == record["a0"].error
    assert 0.0 == record["a0"].cost_usd


def test_the_real_sdk_gives_many_agents_up(nobody):
    """Twenty agents, and fewer tries than two each."""
    record = ask(f"http://{nobody}", MANY, POLICY)
    assert len(record.attempts) < 40
    assert all(f"No connection to {nobody}" in result.error for result in record.results)


def test_a_name_that_nobody_knows(monkeypatch):
    """The words of the look-up, and the name, which they leave out."""

    def unknown(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    error = ask("http://nowhere.invalid")["a0"].error
    assert f"Unreachable: No connection to nowhere.invalid: Name or service not known. {CHECK}" == error


@pytest.fixture
def proxied(monkeypatch):
    """Name a proxy in the environment."""

    def named(address):
        for name in ("HTTPS_PROXY", "https_proxy"):
            monkeypatch.setenv(name, f"http://{address}")
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)

    return named


def test_a_proxy_that_is_down_is_named(nobody, proxied):
    """The address is right, and so is the network behind the proxy."""
    proxied(nobody)
    error = ask("https://nowhere.invalid")["a0"].error
    assert (
        f"Unreachable: No connection to nowhere.invalid: the proxy cannot be reached: Connection refused. {CHECK}"
        == error
    )


def test_a_proxy_that_lets_nothing_through_says_so(proxied):
    """It answered, the API was never asked: nothing was sent there, and nothing is billed."""

    async def work():
        async with serving(reply(status=503, kind=None, length=0)) as server:
            proxied(server.url.removeprefix("http://"))
            return await asyncio.to_thread(ask, "https://nowhere.invalid")

    result = asyncio.run(work())["a0"]
    assert "No connection to nowhere.invalid: the proxy says 503 X. " in result.error
    assert 0.0 == result.cost_usd
