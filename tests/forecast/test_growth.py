"""What is asked of a run of many agents is looked up once, not once for each agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_magic.api import Agent, Plan, Run
from agent_magic.engine import expected_work_s
from agent_magic.errors import DeclarationError
from agent_magic.forecast import pilot_agents, rows_of
from agent_magic.forecast.estimate.agents import guess_all
from agent_magic.live import foresee
from agent_magic.record import History, RunRecord
from agent_magic.record.cassette.reading import RecordedAgent
from tests.live.virtual import Reply, drive


def run_of(count: int) -> Run:
    """A run of so many agents side by side, answered by nobody's stand-in."""
    plan = Plan([Agent(f"a{number}", f"question {number}") for number in range(count)])
    return Run(drive(plan, lambda *_: Reply(2.0))[0])


def looks(count: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Count how often it is asked whether a run's answers are made up, which looks at every result."""
    run, seen = run_of(count), list[RunRecord]()
    with monkeypatch.context() as patch:
        patch.setattr(RunRecord, "simulated", property(lambda record: bool(seen.append(record))))
        assert count == len(list(rows_of(run.record)))
        run.whatif(concurrency=[1, 2])
    return len(seen)


def test_a_forecast_asks_once_who_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many agents there are: of ten thousand, each looking at all, the answer would take minutes."""
    assert looks(10, monkeypatch) == looks(100, monkeypatch)


def test_a_replay_compares_no_agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are found by their names; to compare each with all others, calls and answers included, takes minutes."""
    plan = Plan([Agent(f"a{number}", f"question {number}") for number in range(10)])
    run = Run(drive(plan, lambda *_: Reply(2.0))[0])
    run.save(tmp_path / "run.cassette.jsonl")
    monkeypatch.setattr(RecordedAgent, "__eq__", lambda *_: pytest.fail("compared"))
    assert plan.replay(tmp_path / "run.cassette.jsonl").ok


@pytest.mark.parametrize("count", [0, -1, 2.5, "3", None])
def test_a_pilot_is_a_number_of_agents(count: object) -> None:
    """Anything else is refused with a word on what to give."""
    with pytest.raises(DeclarationError, match="must be an integer >= 1"):
        pilot_agents(run_of(2).plan, [False, False], count)  # pyright: ignore[reportArgumentType]


def looks_at_kin(count: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Count how often the answers of a group are looked through for those of it that have none."""

    def grouped(many: int) -> Plan:
        return Plan([Agent("label", "{{ item }}", each="rows", max_tokens=100)], {"rows": list(range(many))})

    history, seen, real = History(), list[str](), History.of_kin
    history.learn(drive(grouped(3), lambda *_: Reply(2.0))[0])
    plan = grouped(count)
    with monkeypatch.context() as patch:
        patch.setattr(History, "of_kin", lambda self, *given: seen.append(given[0]) or real(self, *given))
        found = expected_work_s(plan.agents, ["claude-haiku-5-5"] * count, history)
        guess_all(plan, foresee(plan)[0], [None] * count, [None] * count, history)
    assert [2.0] * count == found
    return len(seen)


def test_a_group_is_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run begins, and is estimated, by the answers of a group that grew: each of its new agents stands on all."""
    assert 2 == looks_at_kin(5, monkeypatch) == looks_at_kin(50, monkeypatch)
