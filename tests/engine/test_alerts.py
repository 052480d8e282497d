"""Alerts: events in, episodes out; rules that say what to write; and what a run under way does about them."""

# Tests hand over wrong types on purpose.
# pyright: reportArgumentType=false

from __future__ import annotations

import pickle

import pytest

import agent_magic as am
from agent_magic import TokenPrice
from agent_magic.engine import episodes_of, rules_of
from agent_magic.engine.alerts import DEFAULT_RULES, RECENT, AlertWatch, Episode, Rule
from agent_magic.errors import DeclarationError, Overloaded
from agent_magic.measure.frames import ALERTS
from agent_magic.record import Prices
from tests.live.virtual import Reply, Scripted, drive


def record_of(count, reply=lambda _: Reply(1.0), slots=1000, prices=None):
    """Run so many agents side by side."""
    agents = [am.Agent(f"a{one}", f"p{one}", model="mine" if prices else "claude-haiku-5-5") for one in range(count)]
    policy = am.Policy(slots, max_attempts=1, breaker_share=1.0)
    return drive(am.Plan(agents), lambda prompt, _: reply(int(prompt[1:])), policy, prices=prices)[0]


def found(record, *rules):
    """The episodes as (rule, begun, measured)."""
    return [(str(one.rule), one.at_s, one.measured) for one in episodes_of(record, rules_of(rules))]


@pytest.mark.parametrize(
    ("text", "rule", "written"),
    [
        ("p95 > 30", Rule("p95", 30.0), "p95 > 30 s"),
        (" p50>.5s ", Rule("p50", 0.5), "p50 > 0.5 s"),
        ("errors > 2%", Rule("errors", 0.02), "errors > 2%"),
        ("queue > 500", Rule("queue", 500.0), "queue > 500"),
        ("usd_per_min > $1", Rule("usd_per_min", 1.0), "usd_per_min > $1"),
    ],
)
def test_a_rule_reads_as_it_is_written(text, rule, written):
    """Spaces, a unit and a currency do not matter; it is written back so that it can be read again."""
    assert (rule, written) == (Rule.read(text), str(rule))
    assert rule == Rule.read(written)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("p95 < 30", "Write a number that must not be exceeded"),
        ("erors > 2%", "Did you mean 'errors'"),
        ("errors > 2", "Write 'errors > 2%'"),
        ("queue > 5%", "Write 'queue > 5'"),
        (30, "is no rule of an alert"),
    ],
)
def test_a_wrong_rule_says_what_to_write(text, says):
    """Nothing is guessed: 2 errors, or 2 percent."""
    with pytest.raises(DeclarationError, match=says):
        rules_of([text])


def test_the_four_defaults_are_those_of_the_source():
    """Without a rule those four; each rule counts once."""
    assert DEFAULT_RULES == ("p95 > 30", "errors > 2%", "queue > 500", "utilization > 90%")
    assert 4 == len(am.Alerts().rules)
    assert 1 == len(am.Alerts("p95 > 30", "p95>30s").rules)


def test_each_number_is_measured_where_it_breaks_the_rule():
    """Percentiles with enough values, errors of requests, waiting agents, slots in use, dollars within a minute."""
    slow = record_of(30, lambda one: Reply(40.0 if one > 20 else 1.0))
    assert [("p95 > 30 s", 40.0, 40.0)] == found(slow, "p95 > 30")
    bad = record_of(30, lambda one: Reply(1.0 + one, Overloaded("busy", status=529) if one < 3 else None))
    assert [("errors > 2%", 20.0, 0.15)] == found(bad, "errors > 2%")  # at the 20th request, not at the first
    full = record_of(60, lambda _: Reply(5.0), slots=2)
    assert [("queue > 50", 0.0, 58.0)] == found(full, "queue > 50")
    assert [("utilization > 90%", 10.0, 1.0)] == found(full, "utilization > 90%")
    dear = record_of(30, lambda one: Reply(float(1 + one)), prices=Prices({"mine": TokenPrice(0.0, 100_000.0)}))
    assert [("usd_per_min > $1", 3.0, 1.5)] == found(dear, "usd_per_min > 1")
    assert [] == found(record_of(19, lambda _: Reply(40.0)), "p95 > 30")


def test_an_alert_is_raised_once_an_episode():
    """A number that comes back within ten seconds is the same episode; later it is another one."""
    record = record_of(3, lambda one: Reply((5.0, 8.0, 40.0)[one]))
    watch = AlertWatch(rules_of(["p50 > 6"]), None)
    assert [] == watch.read([one for one in record.events if one.at_s < 8])
    # p50 of 5, 8 is 5; of 5, 8, 40 it is 8
    assert 1 == len(watch.read(record.events))
    assert [] == watch.read(record.events)
    waves = record_of(240, lambda one: Reply(1.0 if one % 120 else 30.0), slots=4)
    many = episodes_of(waves, rules_of(["queue > 0"]))
    assert 1 == len(many)


def test_events_in_pieces_and_at_once_give_the_same_episodes():
    """So a run under way, its record and its forecast are judged alike."""
    record = record_of(
        2 * RECENT, lambda one: Reply(1.0 + one % 7, Overloaded("x", status=529) if not one % 9 else None)
    )
    rules = rules_of(["p95 > 3", "errors > 5%", "queue > 20", "utilization > 50%"])
    watch = AlertWatch(rules, 1000)
    for count in range(0, len(record.events), 50):
        if record.events[count].at_s > record.events[max(0, count - 1)].at_s:
            watch.read(record.events[:count])
    watch.read(record.events)
    assert episodes_of(record, rules) == watch.episodes


def watched(on_alert, told=None):
    """Run twelve agents in two slots, watched for a queue."""
    agents = [am.Agent(f"a{one}", f"p{one}") for one in range(12)]
    alerts = am.Alerts("queue > 5", on_alert=on_alert, tell=told)
    return drive(am.Plan(agents), lambda *_: Reply(1.0), am.Policy(2), alerts=alerts)


def test_a_run_tells_of_its_alerts_and_goes_on():
    """The callback gets each episode once; `run.alerts` has a row, that survives a pickle."""
    told: list[Episode] = []
    record, _ = watched("tell", told.append)
    assert ["queue > 5"] == [str(one.rule) for one in told]
    assert {"succeeded"} == {one.status for one in record.results}
    run = am.Run(record)
    assert 0 == len(run.alerts)
    assert ALERTS == {name: str(kind) for name, kind in run.would_alert("queue > 5").dtypes.items()}
    run.rules = rules_of(["queue > 5"])
    assert [10.0] == list(pickle.loads(pickle.dumps(run)).alerts["measured"])


def test_an_alert_can_stop_a_run():
    """What was under way is cut, and the rest never begins."""
    record, _ = watched("stop")
    assert record.cut
    assert "succeeded" not in {one.status for one in record.results}


def test_a_session_watches_its_runs():
    """Every run of the session is watched, and its forecast can be judged by the same rules."""

    async def run():
        session = am.Session(client=Scripted(lambda *_: Reply(0.0)), alerts=am.Alerts("queue > 2"))
        plan = am.Plan([am.Agent(f"a{one}", f"p{one}") for one in range(6)])
        return await plan.run(am.Policy(2), session=session)

    import asyncio

    done = asyncio.run(run())
    assert ["queue > 2"] == list(done.alerts["rule"])
    assert 1 == len(done.forecast(concurrency=1).would_alert("queue > 2"))
    with pytest.raises(DeclarationError, match=r"alerts must be am\.Alerts"):
        am.Session(alerts="p95 > 30")
    with pytest.raises(DeclarationError, match="on_alert"):
        am.Alerts("p95 > 30", on_alert="explode")
