"""Recordings on the public API: played at once, in time, with their gaps bought; shared with and without texts."""

# Tests take for granted what they have just checked.
# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportIncompatibleMethodOverride=false

from __future__ import annotations

import asyncio
import json
import time

import pytest

import agent_magic as am
from agent_magic.errors import CassetteError, DeclarationError, Overloaded, ReplayMiss, SecretFound
from agent_magic.record import History, read_cassette
from agent_magic.simulator import child
from tests.live.virtual import Reply, drive

NUMBERS = ["queued_s", "api_s", "backoff_s", "local_s", "total_s", "started_s", "cost_usd", "output_tokens", "slack_s"]


@pytest.fixture(scope="module")
def stand_in():
    """A stand-in API without delays or limits."""
    with child.start(latency="none", unlimited=True) as simulator:
        yield am.Claude(base_url=simulator.url, api_key="any")


def plan_of(last="Weigh {{ a }}"):
    """Two agents that take some tenths of a second."""
    return am.Plan([am.Agent("a", "[[ttft:0.2]] [[tokens:9]] one"), am.Agent("b", last)])


@pytest.fixture
def taped(stand_in, tmp_path):
    """A run, and its cassette."""
    run = asyncio.run(plan_of().run(am.Policy(2, seed=7), client=stand_in))
    run.save(tmp_path / "x.cassette.jsonl")
    return run, tmp_path / "x.cassette.jsonl"


def same_numbers(run, other):
    """Tell whether the frames say the same."""
    return run.agents[NUMBERS].equals(other.agents[NUMBERS])


def test_played_it_is_what_replay_returns(taped):
    """`await plan.play(FILE)` is `plan.replay(FILE)`, for who is on a loop already."""
    run, path = taped
    played, replayed = asyncio.run(plan_of().play(path)), plan_of().replay(path)
    assert played.record.events == replayed.record.events
    assert same_numbers(run, played)
    assert {"replay"} == set(played.agents["source"])


def test_a_pace_takes_its_time(taped):
    """At pace 1 the recorded seconds pass, and the frames are the recorded ones; a pace of 0 is refused."""
    run, path = taped
    began = time.monotonic()
    played = asyncio.run(plan_of().play(path, pace=1.0))
    assert time.monotonic() - began >= run.totals.wall_s
    assert same_numbers(run, played)
    for wrong in (0, -1, float("inf"), "real"):
        with pytest.raises(DeclarationError, match="pace"):
            asyncio.run(plan_of().play(path, pace=wrong))


def test_gaps_are_bought_where_that_is_wanted(taped, stand_in, tmp_path):
    """Strict, a changed prompt is a miss before anything is sent; filled, only that agent is asked, and kept."""
    run, path = taped
    changed = plan_of("Judge {{ a }}")
    with pytest.raises(ReplayMiss, match="'b'"):
        asyncio.run(changed.play(path, client=stand_in))
    ledger = am.Ledger(tmp_path / "l.sqlite3", reuse_simulated=True)
    filled = asyncio.run(changed.play(path, fill=True, client=stand_in, ledger=ledger))
    assert ["replay", "simulated"] == list(filled.agents["source"])
    assert run["a"].text == filled["a"].text
    assert "Judge " + run["a"].text == filled["b"].attempts[0].request.prompt
    assert 1 == len(ledger)
    again = asyncio.run(changed.play(path, fill=True, client=stand_in, ledger=ledger))
    assert ["replay", "ledger"] == list(again.agents["source"])
    ledger.close()


def test_what_it_ran_under_comes_along(taped):
    """A replayed run can be asked what-ifs as the run itself: policy, seed and baselines are in the file."""
    run, path = taped
    replayed = plan_of().replay(path)
    assert run.record.terms is not None
    assert run.record.terms == replayed.record.terms
    assert (2, 7) == (replayed.record.terms.policy["concurrency"], replayed.record.terms.policy["seed"])
    assert run.forecast(concurrency=1).totals.wall_s == replayed.forecast(concurrency=1).totals.wall_s


def test_baselines_come_along(stand_in, tmp_path):
    """What a run was measured against is in its cassette: speedup and cost multiple are there for readers."""
    run = asyncio.run(plan_of().run(client=stand_in))
    run.against(asyncio.run(plan_of().baseline().run(client=stand_in)))
    run.save(tmp_path / "x.cassette.jsonl")
    replayed = plan_of().replay(tmp_path / "x.cassette.jsonl")
    assert run.summary["cost_multiple"][0] > 0
    assert list(run.summary["cost_multiple"]) == list(replayed.summary["cost_multiple"])
    assert list(run.summary["speedup"]) == list(replayed.summary["speedup"])


def test_expected_seconds_follow_their_agents(taped):
    """Of a plan whose agents stand in another order each keeps its own."""
    _, path = taped
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[1]["terms"]["work_s"] = [1.0, 2.0]
    path.write_text("\n".join(json.dumps(_signed(line)) for line in lines))
    turned = am.Plan(plan_of().agents[::-1])
    assert (2.0, 1.0) == turned.replay(path).record.terms.work_s
    lines[1]["terms"]["policy"]["of_a_later_version"] = 1
    lines[1]["terms"]["policy"]["concurrency"] = 3
    path.write_text("\n".join(json.dumps(_signed(line)) for line in lines))
    assert 3 == plan_of().replay(path).forecast().record.terms.policy["concurrency"]
    lines[1]["terms"] = {"nonsense": []}
    path.write_text("\n".join(json.dumps(_signed(line)) for line in lines))
    assert plan_of().replay(path).record.terms is None


def _signed(line):
    from agent_magic.record import checked

    line.pop("check", None)
    return checked(line) if "run" in line else line


SECRET = "the merger of Acme and Bolt"


@pytest.fixture
def private(stand_in):
    """A run whose prompts, context, answers and errors nobody else may read."""
    plan = am.Plan(
        [
            am.Agent("a", f"Write about {SECRET}", system=f"You know {SECRET}."),
            am.Agent("b", "More on {{ a }}", context="paper"),
            am.Agent("c", f"[[status:400 times=9]] {SECRET}"),
        ],
        {"paper": SECRET},
    )
    run = asyncio.run(plan.run(client=stand_in))
    assert SECRET in run["b"].attempts[0].request.prompt + run["a"].attempts[0].request.prompt
    return plan, run


def test_a_recording_without_texts(private, tmp_path):
    """S04: no prompt, answer, context or error is in the file; times, tokens and dollars replay as they were."""
    plan, run = private
    path = tmp_path / "numbers.cassette.jsonl"
    assert 3 == run.save(path, texts=False)
    for word in (SECRET, "Acme", "about", "More on", run["a"].text[:20], run["b"].text[:20]):
        assert word not in path.read_text()
    replayed = plan.replay(path)
    assert same_numbers(run, replayed)
    assert list(run.agents["status"]) == list(replayed.agents["status"])
    assert f"[{len(run['a'].text):,} characters left out" in replayed["a"].text
    assert read_cassette(path).redacted


def test_without_texts_nothing_is_bought_on_top(private, stand_in, tmp_path):
    """S04: what was left out is no input for a new agent, and a copy of a copy would not replay."""
    plan, run = private
    path = tmp_path / "numbers.cassette.jsonl"
    run.save(path, texts=False)
    with pytest.raises(CassetteError, match="without its texts"):
        asyncio.run(plan.play(path, fill=True, client=stand_in))
    with pytest.raises(CassetteError, match="as it is"):
        plan.replay(path).save(tmp_path / "again.cassette.jsonl")
    other = am.Plan([am.Agent(one.name, one.prompt, model="claude-opus-5-5") for one in plan.agents], plan.values)
    with pytest.raises(ReplayMiss, match="model"):
        other.replay(path)


def test_a_redacted_recording(private, tmp_path):
    """S04: a function says what is written in place of each text, and the file replays all the same."""
    plan, run = private
    path = tmp_path / "redacted.cassette.jsonl"
    run.save(path, redact=lambda text: text.replace("Acme", "X").replace("Bolt", "Y"))
    assert "Acme" not in path.read_text()
    assert "the merger of X and Y" in path.read_text()
    assert same_numbers(run, plan.replay(path))


def test_what_an_error_said_is_a_text_too(tmp_path):
    """S04: the reason for which an agent waited to be asked again holds its words, and is as private."""
    plan = am.Plan([am.Agent("a", "x")])
    record, _ = drive(plan, lambda _, n: Reply(1.0, Overloaded(f"no room for {SECRET}", status=529) if n < 2 else None))
    run = am.Run(record)
    assert SECRET in run.attempts["error"][0]
    for more in ({"texts": False}, {"redact": lambda text: text.replace(SECRET, "X")}):
        path = tmp_path / "private.cassette.jsonl"
        run.save(path, **more)
        assert SECRET not in path.read_text()
        assert 2 == len(plan.replay(path).attempts)


def test_sharing_from_a_script(private, tmp_path):
    """`am.share` writes, looks for keys and replays in a clean process; without texts it compares the numbers."""
    plan, run = private
    stamp = am.share(run, tmp_path / "x.cassette.jsonl")
    assert ("x.cassette.jsonl", 1, 3, False) == tuple(stamp[one] for one in ("cassette", "runs", "calls", "redacted"))
    stamp = am.share([run, run], tmp_path / "y.cassette.jsonl", texts=False)
    assert (2, True) == (stamp["runs"], stamp["redacted"])
    assert SECRET not in (tmp_path / "y.cassette.jsonl").read_text()
    leak = am.Plan([am.Agent("leak", "is " + "sk-ant-" + "api03-abcdefghijkl a key?")])
    del plan
    with pytest.raises(SecretFound, match="leak"):
        am.share(asyncio.run(leak.run(client=Echo())), tmp_path / "z.cassette.jsonl")
    assert not (tmp_path / "z.cassette.jsonl").exists()


def test_a_run_whose_seconds_were_expected_can_be_shared(tmp_path):
    """A replay measures nothing, so it cannot say how far off an expectation was: that is no difference."""
    plan = am.Plan([am.Agent("a", "x", expect=4.0)])
    run = am.Run(drive(plan, lambda *_: Reply(6.0), history=History())[0])
    assert [0.5] == run.agents["bias"].tolist()
    assert 1 == am.share(run, tmp_path / "x.cassette.jsonl")["runs"]


class Echo(am.Claude):
    """A client that answers by itself."""

    async def send(self, request, stream):
        """Say the prompt."""
        from agent_magic.record import Answer, Usage

        stream.add(request.prompt)
        return Answer(request.prompt, "end_turn", usage=Usage(1, output_tokens=1), model=request.model)

    def open(self):
        """Need nothing."""
        from contextlib import AsyncExitStack

        return AsyncExitStack()
