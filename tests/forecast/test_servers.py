"""What is known of servers: runs of a session and of the ledger at one endpoint are evidence together."""

from __future__ import annotations

import asyncio
import pickle
from random import Random
from typing import TYPE_CHECKING

import pytest

from agent_magic.api import Agent, Claude, Ledger, Plan, Policy, Run, Session
from agent_magic.measure import Needs, Observed, Server, fit
from agent_magic.record import History
from agent_magic.record.history import SeenRun, seen_run
from agent_magic.simulator import start
from benchmarks.drawn_servers import Drawn, batched, draw, guesses, long_prompts, run_drawn
from tests.measure.test_server import drawn, served

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.drawn_servers import Kind

OF_ITS_OWN = {"latency": "ttft=0.02,spread=0", "unlimited": True, "slots": 2, "shared_rate": 300, "cap": 200}


def rows(count: int = 14) -> Plan:
    """Write a plan of rows whose answers have different lengths."""
    lot = Random(1)
    return Plan([Agent(f"a{n}", f"Item {n}. [[tokens:{lot.randrange(20, 90)}]]") for n in range(count)])


def run_at(url: str, ledger: Path, concurrency: int) -> Run:
    """Run it in a session of its own."""

    async def run() -> Run:
        client = Claude(base_url=url, api_key="simulator")
        async with Session(client=client, ledger=Ledger(str(ledger))) as session:
            return await rows().run(Policy(concurrency), session=session, fresh=True)

    return asyncio.run(run())


def test_a_run_of_another_session_is_evidence_by_the_ledger(tmp_path: Path) -> None:
    """A run one at a time and a full one in two sessions tell together what neither tells alone."""
    ledger = tmp_path / "runs.sqlite3"
    with start(**OF_ITS_OWN) as server:
        alone = run_at(server.url, ledger, 1)
        full = run_at(server.url, ledger, 6)
    (known,) = full.forecaster().evidence.servers.values()
    assert (2.0, 6) == (known.likely.slots, known.most)
    assert 1.5 == pytest.approx(known.likely.full, rel=0.05)
    assert alone.totals.wall_s == pytest.approx(full.whatif(concurrency=1).wall_s[0], rel=0.05)


def test_the_ledger_keeps_what_a_run_saw_of_its_server(tmp_path: Path) -> None:
    """The requests of a run are the same in the ledger as in its record, and each run counts once."""
    ledger = tmp_path / "runs.sqlite3"
    with start(**OF_ITS_OWN) as server:
        run = run_at(server.url, ledger, 3)
    kept = Ledger(str(ledger))
    assert [] == kept.seen_runs("http://elsewhere")
    (found,) = kept.seen_runs(run.record.origin)
    seen = seen_run(run.record)
    assert seen._replace(exchanges={}) == found._replace(exchanges={})
    assert [*seen.exchanges] == [*found.exchanges]
    for one, other in zip(seen.exchanges.values(), found.exchanges.values(), strict=True):
        assert [pytest.approx(each) for each in sorted(one)] == sorted(other)
    history = History(origin=run.record.origin, earlier=kept.seen_runs)
    history.learn(run.record)
    assert [run.record.uid] == [one.uid for one in history.runs_at(run.record.origin)]
    kept.close()
    assert [] == kept.seen_runs(run.record.origin)
    assert [run.record.uid] == [one.uid for one in pickle.loads(pickle.dumps(history)).runs_at(run.record.origin)]


def test_runs_at_other_endpoints_are_no_evidence() -> None:
    """What another server did says nothing; a mock server that has no address may be another one each time."""
    seen = [
        SeenRun(str(n), *each, {}) for n, each in enumerate([("http://a", False), ("mock", True), ("http://a", True)])
    ]
    history = History()
    history.runs = seen
    assert ["0", "2"] == [one.uid for one in history.runs_at("http://a")]
    assert [["0", "2"], [], ["1"]] == [
        [one.uid for one in found]
        for found in (history.moved().runs_at("http://a"), history.moved().runs_at("mock"), history.runs_at("mock"))
    ]


def test_a_server_that_was_changed_is_known_by_its_own_run() -> None:
    """An earlier run at the same address that the run contradicts is left out: the server was started anew."""
    needs, tokens = drawn(3)
    now, before = Server(2.0), Server(8.0)
    slow = [Needs(one.before_s * 3, one.after_s * 3) for one in needs]
    own, earlier = Observed(served(needs, tokens, now, 6)), Observed(served(slow, tokens, before, 6))
    assert 2.0 == fit([own, earlier]).likely.slots
    assert 2.0 == fit([own, Observed(served(needs, tokens, now, 12))]).likely.slots


def test_an_estimate_follows_the_load_of_a_server_that_a_run_has_shown(tmp_path: Path) -> None:
    """After one full run the seconds of others are near, or in the range, in a later session too; so are what-ifs."""
    ledger = tmp_path / "runs.sqlite3"
    with start(**OF_ITS_OWN) as server:
        full = run_at(server.url, ledger, 6)
        alone = run_at(server.url, tmp_path / "other.sqlite3", 1)
    client = Claude(base_url=server.url, api_key="simulator")
    session = Session(client=client, ledger=Ledger(str(ledger)))
    found = {each: rows().estimate(Policy(each), session=session, fresh=True) for each in (1, 6, 12)}
    full_s, alone_s = (each.totals.wall_s or 0.0 for each in (full, alone))
    assert full_s == pytest.approx(found[6].wall_s.likely, rel=0.05)
    assert alone_s == pytest.approx(found[1].wall_s.likely, rel=0.25)
    assert found[1].wall_s.low <= alone_s <= found[1].wall_s.high
    assert ["the server (2 slots)"] * 2 == [found[each].limited_by for each in (6, 12)]
    assert ["ledger", "assumed"] == [found[each].basis for each in (6, 12)]
    assert any("more than 6 at once was never seen" in one for one in found[12].notes)
    assert full_s == pytest.approx(found[12].whatif(concurrency=6).wall_s[0], rel=0.1)


def test_an_estimate_for_more_at_once_than_was_seen_is_a_range(tmp_path: Path) -> None:
    """From a run one at a time nobody knows what more at once gain: the high end is as if they gained nothing."""
    ledger = tmp_path / "runs.sqlite3"
    with start(**OF_ITS_OWN) as server:
        alone = run_at(server.url, ledger, 1)
        full = run_at(server.url, tmp_path / "other.sqlite3", 6)
    session = Session(client=Claude(base_url=server.url, api_key="simulator"), ledger=Ledger(str(ledger)))
    found = rows().estimate(Policy(6), session=session, fresh=True)
    full_s, alone_s = (each.totals.wall_s or 0.0 for each in (full, alone))
    assert found.wall_s.low <= full_s <= found.wall_s.high
    assert alone_s <= found.wall_s.high
    assert "assumed" == found.basis


def test_a_server_of_ones_own_has_an_honest_range_before_its_first_answer() -> None:
    """Nobody knows how fast a model of one's own is: the range is a 25th to four times, and its words say so.

    At the vendor's address it is half to twice, and so it is once the server has answered.
    """
    with start(latency="x0.2", unlimited=True) as server:
        session = Session(client=Claude(base_url=server.url, api_key="simulator"))
        first = rows().estimate(Policy(6), session=session)
        run = asyncio.run(rows().run(Policy(6), session=session))
        later = rows().estimate(Policy(6), session=session, fresh=True)
    usual = rows().estimate(Policy(6), session=Session(client=Claude(api_key="none")))
    taken_s = run.totals.wall_s or 0.0
    assert first.wall_s.low <= taken_s <= first.wall_s.high
    assert usual.wall_s.likely == pytest.approx(first.wall_s.likely)
    assert first.wall_s.low < 0.2 * usual.wall_s.low
    assert first.wall_s.high > 1.5 * usual.wall_s.high
    assert later.wall_s.high / later.wall_s.low < first.wall_s.high / first.wall_s.low
    told = [one for one in first.agents.stands_on if "has not answered yet" in str(one)]
    assert len(told) == len(rows())


def test_what_a_client_missed_that_stood_still_is_no_speed_of_its_server() -> None:
    """A run whose client stood still for two seconds forecasts others as if it had not, and says so."""
    server = Drawn("", "", float("inf"), lambda one, beside: 1.0, 0.1, 0.0, 100.0, 0.0, 0, stalls=((1.5, 3.5),))
    lot = Random(2)
    plan = Plan([Agent(f"r{number}", f"n{number} {lot.randrange(20, 90)}") for number in range(24)])
    other_s = {each: Run(run_drawn(server, plan, each)).totals.wall_s or 0.0 for each in (1, 4, 8)}
    run = Run(run_drawn(server, plan, 4, stalled=True))
    frame = run.whatif(concurrency=[1, 4, 8])
    recorded_s = run.totals.wall_s or 0.0
    assert recorded_s > other_s[4] + 1.0
    assert recorded_s == pytest.approx(frame.wall_s[1])
    assert [other_s[1], other_s[8]] == [pytest.approx(frame.wall_s[place], rel=0.05) for place in (0, 2)]
    assert "the kernel stood still: 4 answers under way then forecast by length" in frame.assumed[0]


@pytest.mark.parametrize(("kind", "seed"), [(batched, 9), (long_prompts, 2), (long_prompts, 10)])
def test_a_range_holds_what_a_server_takes_that_is_not_quite_of_the_model(kind: Kind, seed: int) -> None:
    """Batches that gain with each request, and prompts that slow all others down, are in the range at any load."""
    assert all(one.inside for one in guesses(draw(seed, kind)))
