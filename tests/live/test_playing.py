"""Recordings in time, and recordings whose gaps are bought: the frames of both, on a virtual clock."""

# Tests take for granted what they have just checked.
# pyright: reportOptionalOperand=false, reportOptionalMemberAccess=false

from __future__ import annotations

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_magic import Agent, Policy
from agent_magic.declare import Plan
from agent_magic.errors import Overloaded, ReplayMiss
from agent_magic.live import Driver, Player
from agent_magic.measure import agents_frame, attempts_frame
from agent_magic.providers import Deck
from agent_magic.record import read_cassette, write_cassette
from tests.live.virtual import Reply, Scripted, drive, run_virtually
from tests.record.histories import histories

TIMEOUT_S = 300.0
THREE = [Agent("a", "say a"), Agent("b", "after {{ a }}"), Agent("c", "then {{ b }}")]


def script(prompt, _):
    """Answer with the prompt, in two seconds."""
    return Reply(2.0, None, 0.5, f"<{prompt}>")


def deck_of(record, folder, **more):
    """A deck with a run in it."""
    path = folder / "x.cassette.jsonl"
    write_cassette(record, path)
    return Deck(read_cassette(path), **more)


def play(record, pace, stop_at=None):
    """Play a run on a virtual clock; return what was played and how long it took."""

    async def work(loop):
        player = Player(record, Policy(), pace=pace, clock=loop.time)
        began = loop.time()
        if stop_at is not None:
            loop.call_later(stop_at, player.stop)
        await player.drive()
        return player, loop.time() - began

    return run_virtually(work)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=40)
@given(history=histories(), pace=st.sampled_from([1.0, 4.0, 0.5]))
def test_played_in_time_it_is_the_same_run(tmp_path, history, pace):
    """Whatever the pace: the events of the recording, after so many seconds."""
    recorded = deck_of(history[0], tmp_path).play(history[0].plan, timeout_s=TIMEOUT_S)
    player, seconds = play(recorded, pace)
    assert recorded.events == player.record.events
    last = max((event.at_s for event in recorded.events[:-1]), default=0.0)
    assert seconds >= (last - 2**-19) / pace
    assert agents_frame(recorded).to_csv() == agents_frame(player.record).to_csv()
    assert not player.streams


def test_answers_arrive_while_it_plays(tmp_path):
    """Between its first token and its end a share of an answer is there, as the live view shows it."""
    record, _ = drive(Plan(THREE), script)
    recorded = deck_of(record, tmp_path).play(Plan(THREE), timeout_s=TIMEOUT_S)

    async def work(loop):
        player = Player(recorded, Policy(), pace=1.0, clock=loop.time)
        task = loop.create_task(player.drive())
        await asyncio.sleep(0.25)
        before = dict(player.streams)
        await asyncio.sleep(1.0)
        text = player.streams[0].text
        await task
        return before, text

    before, text = run_virtually(work)
    assert {} == before
    assert text == "<say a>"[: len(text)]
    assert 0 < len(text) < len("<say a>")


def test_a_stopped_replay_ends_there(tmp_path):
    """What was under way and what waited is cancelled, as in a live run; what was played is kept."""
    record, _ = drive(Plan(THREE), script)
    recorded = deck_of(record, tmp_path).play(Plan(THREE), timeout_s=TIMEOUT_S)
    player, seconds = play(recorded, 1.0, stop_at=3.0)
    assert 3.0 == pytest.approx(seconds)
    assert ["succeeded", "cancelled", "cancelled"] == [result.status for result in player.record.results]
    assert player.record.cut
    assert 0 < len(player.record["b"].text) < len(record["b"].text)


def test_time_stands_still_while_it_is_paused(tmp_path):
    """Paused for ten seconds it takes ten more; the recorded times are the same."""
    record, _ = drive(Plan(THREE), script)
    recorded = deck_of(record, tmp_path).play(Plan(THREE), timeout_s=TIMEOUT_S)

    async def work(loop):
        player = Player(recorded, Policy(), pace=1.0, clock=loop.time)
        began = loop.time()
        loop.call_later(1.0, player.pause)
        loop.call_later(11.0, player.resume)
        await player.drive()
        return player.record, loop.time() - began

    played, seconds = run_virtually(work)
    assert recorded.events == played.events
    assert 16.0 == pytest.approx(seconds)


def fill(plan, deck, client, **more):
    """Fill the gaps of a recording on a virtual clock."""
    match = deck.find(plan, timeout_s=TIMEOUT_S)

    async def work(loop):
        driver = Driver(plan, Policy(seed=1), client, recorded=match, clock=loop.time, **more)
        if driver.buys():
            await driver.drive()
        return driver.record

    return run_virtually(work)


def test_only_what_is_missing_is_bought(tmp_path):
    """One prompt was changed: it and what uses its answer is bought, the rest is as recorded."""
    record, _ = drive(Plan(THREE), script)
    plan = Plan([THREE[0], Agent("b", "differently after {{ a }}"), THREE[2]])
    client = Scripted(script)
    filled = fill(plan, deck_of(record, tmp_path), client)
    assert ["differently after <say a>", "then <differently after <say a>>"] == [one.prompt for one in client.asked]
    frame = agents_frame(filled)
    assert ["replay", "live", "live"] == list(frame["source"])
    assert list(agents_frame(record)["api_s"]) == list(frame["api_s"])
    assert [0.0, 2.0, 4.0] == list(frame["started_s"])
    assert filled.ended_s == 6.0
    assert ["replay", "live", "live"] == list(attempts_frame(filled)["source"])


def test_what_was_bought_is_there_when_it_is_recorded_again(tmp_path):
    """The new cassette answers alone, and says who had answered."""
    record, _ = drive(Plan(THREE), lambda prompt, number: Reply(1.0, text=f"<{prompt}>", source="simulated"))
    plan = Plan([*THREE[:2], Agent("c", "finally {{ b }}")])
    filled = fill(plan, deck_of(record, tmp_path), Scripted(script))
    again = deck_of(filled, tmp_path)
    replayed = again.play(plan, timeout_s=TIMEOUT_S)
    assert (
        agents_frame(filled).drop(columns="source").to_csv() == agents_frame(replayed).drop(columns="source").to_csv()
    )
    assert ["simulated", "simulated", "live"] == [call.source for call in again.cassette.calls]
    assert replayed.simulated


def test_a_step_that_only_waits_is_not_bought_again(tmp_path):
    """An agent that comes after a changed one, without its text, asks what it always asked."""
    plan = Plan([Agent("a", "say a"), Agent("b", "say b", after="a")])
    record, _ = drive(plan, script)
    client = Scripted(script)
    filled = fill(Plan([Agent("a", "say it"), plan.agents[1]]), deck_of(record, tmp_path), client)
    assert ["say it"] == [one.prompt for one in client.asked]
    assert ["live", "replay"] == [result.source for result in filled.results]


def test_what_was_filled_keeps_its_terms(tmp_path):
    """A what-if of a filled run knows the concurrency that it ran under."""
    record, _ = drive(Plan(THREE), script)
    plan = Plan([*THREE[:2], Agent("c", "finally {{ b }}")])
    filled = fill(plan, deck_of(record, tmp_path), Scripted(script))
    assert 1 == filled.terms.policy["seed"]


def test_below_a_failure_nothing_is_bought(tmp_path):
    """A recorded failure stays one; what newly waits for it is skipped."""
    plan = Plan([Agent("a", "say a"), Agent("b", "after {{ a }}")])
    record, _ = drive(plan, lambda *_: Reply(0.5, Overloaded("full", status=529), status=529))
    client = Scripted(script)
    more = Plan([*plan.agents, Agent("new", "and {{ a }}"), Agent("newer", "{{ new }}")])
    filled = fill(more, deck_of(record, tmp_path), client)
    assert [] == client.asked
    assert ["failed", "skipped", "skipped", "skipped"] == [result.status for result in filled.results]


ROWS = {"rows": ["x", "y"]}
LABEL, REPORT = Agent("label", "L {{ item }}", each="rows"), Agent("report", "R {{ label }}")
CHECK = Agent("check", "C {{ label }} {{ item }}", each="rows")
LAST = Agent("last", "{% for one in label %}[{{ one }}]{% endfor %}", after="check")


@pytest.mark.parametrize(
    ("agents", "values", "asked"),
    [
        ([LABEL, REPORT], ROWS, ["R <L x>\n\n<L y>"]),
        ([LABEL, CHECK], ROWS, ["C <L x> x", "C <L y> y"]),
        ([LABEL, LAST, CHECK], ROWS, ["C <L x> x", "C <L y> y", "[<L x>][<L y>]"]),
        ([LABEL, REPORT], {"rows": ["x", "z"]}, ["L z", "R <L x>\n\n<L z>"]),
        ([LABEL, CHECK], {"rows": ["x", "y", "z"]}, ["C <L x> x", "C <L y> y", "L z", "C <L z> z"]),
    ],
    ids=["all of them", "the same item", "order and a loop", "a changed item", "a new item"],
)
def test_groups_that_are_recorded_in_part(tmp_path, agents, values, asked):
    """An agent for each of something: recorded answers and bought ones stand beside each other in the prompts."""
    record, _ = drive(Plan([LABEL], ROWS), script)
    client = Scripted(script)
    filled = fill(Plan(agents, values), deck_of(record, tmp_path), client)
    assert all(result.status == "succeeded" for result in filled.results)
    assert sorted(asked) == sorted(one.prompt for one in client.asked)
    assert asked[-1] == client.asked[-1].prompt


def test_a_changed_item_is_a_miss(tmp_path):
    """Without leave to buy, an item that was not recorded is named, and nothing is sent."""
    record, _ = drive(Plan([LABEL, REPORT], ROWS), script)
    with pytest.raises(ReplayMiss, match="'label_1'"):
        deck_of(record, tmp_path).play(Plan([LABEL, REPORT], {"rows": ["x", "z"]}), timeout_s=TIMEOUT_S)


def test_a_group_that_is_bought_is_stopped_by_its_name(tmp_path):
    """Those of it that are recorded are over."""
    record, _ = drive(Plan([LABEL], ROWS), script)
    match = deck_of(record, tmp_path).find(Plan([LABEL, CHECK], {"rows": ["x", "z"]}), timeout_s=TIMEOUT_S)

    async def work(loop):
        driver = Driver(match.plan, Policy(), Scripted(script), recorded=match, clock=loop.time)
        loop.call_later(1.0, driver.stop, ["label"])
        await driver.drive()
        return driver.record

    results = run_virtually(work)
    assert ["succeeded", "cancelled", "succeeded", "skipped"] == [result.status for result in results.results]


def test_stopping_reaches_what_is_bought(tmp_path):
    """By name too; recorded agents are over."""
    record, _ = drive(Plan(THREE[:2]), script)
    deck = deck_of(record, tmp_path)
    match = deck.find(Plan(THREE), timeout_s=TIMEOUT_S)

    async def work(loop):
        driver = Driver(match.plan, Policy(), Scripted(script), recorded=match, clock=loop.time)
        loop.call_later(1.0, driver.stop, ["a", "c"])
        await driver.drive()
        return driver.record

    filled = run_virtually(work)
    assert ["succeeded", "succeeded", "cancelled"] == [result.status for result in filled.results]
    assert "" != filled["c"].text
