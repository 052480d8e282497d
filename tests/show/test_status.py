"""The health strip: what it says of limits, latency and refusals."""

from __future__ import annotations

import pytest

from agent_magic import Policy
from agent_magic.api import Agent, Plan
from agent_magic.engine import Health
from agent_magic.engine.health import Thresholds, Watch, health_of, record_health
from agent_magic.engine.pacing.class_pacer import LimitUse
from agent_magic.errors import Rejected
from agent_magic.show.live.feed import strip_of
from tests.live.virtual import Reply, drive


def limit(kind: str, share: float | None, model: str = "haiku") -> LimitUse:
    """A limit of a thousand a minute, of which a share is used."""
    known = None if share is None else 1000.0
    return LimitUse(kind, model, known, 1000.0 * (share or 0.0), share, "announced")  # pyright: ignore[reportArgumentType]


def meters(health: Health) -> dict[str, list[object]]:
    """Return value, percent and level of each meter by its name."""
    strip = strip_of(health)
    assert strip is not None
    return {kind: rest[:3] for kind, *rest in strip["meters"]}


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (None, ["–", None, "none"]),
        (0.41, ["41 %", 41, "ok"]),
        (0.60, ["60 %", 60, "ok"]),
        (0.66, ["66 %", 66, "warn"]),
        (0.71, ["71 %", 71, "bad"]),
    ],
)
def test_a_meter_turns_at_60_and_at_70_percent(share: float | None, said: list[object]) -> None:
    """The thresholds are those of the run's health; an unknown limit has no share."""
    assert said == meters(Health("ok", "", limits=(limit("input", share),)))["input"]


def test_a_meter_shows_the_fullest_limit_and_tells_of_all() -> None:
    """Two model classes have limits of their own; the strip has room for one, its hint for both."""
    health = Health("ok", "", limits=(limit("requests", 0.2), limit("requests", 0.5, "opus")))
    strip = strip_of(health)
    assert strip is not None
    assert ["requests", "50 %", 50, "ok"] == strip["meters"][0][:4]
    assert (
        "rate limit used, requests: haiku 20 % of 1,000 a minute; opus 50 % of 1,000 a minute" == strip["meters"][0][4]
    )


@pytest.mark.parametrize(
    ("late", "trend", "said"),
    [
        (None, None, ["–", None, "none"]),
        (0.8, None, ["0.8 s", 40, "ok"]),
        (0.8, 0.05, ["0.8 s", 40, "ok"]),
        (1.2, 0.3, ["1.2 s ↗", 60, "ok"]),
        (1.2, -0.3, ["1.2 s ↘", 60, "ok"]),
        (2.5, 1.0, ["2.5 s ↗", 125, "warn"]),
    ],
)
def test_latency_has_a_meter_and_a_trend(late: float | None, trend: float | None, said: list[object]) -> None:
    """First tokens after two seconds are slow; an arrow says whether they come later than before."""
    assert said == meters(Health("ok", "", latency_s=late, latency_trend_s=trend))["first token"]


def test_the_word_is_the_reason() -> None:
    """Where something is not good the strip says what; where all is well, that."""
    bad = strip_of(Health("bad", "requests at 95 % of the limit", refusals=2, retries=1))
    good = strip_of(Health("ok", ""))
    assert bad is not None
    assert good is not None
    assert ("bad", "requests at 95 % of the limit", "2 × 429 · 1 retry") == (bad["level"], bad["word"], bad["notes"])
    assert ("ok", "API healthy", "") == (good["level"], good["word"], good["notes"])
    assert strip_of(None) is None


def test_limits_of_several_models_have_their_names():
    """`run.health` names the model class of each limit, and of the one that is nearly used up, where there are two."""
    both = (limit("requests", 0.2), limit("requests", 0.65, "opus"))
    one = health_of(Watch(), 0.0, limits=both[:1], breakers=(), thresholds=Thresholds())
    two = health_of(Watch(), 0.0, limits=both, breakers=(), thresholds=Thresholds())
    assert "ok · requests 20 % of 1,000/min" in str(one)
    assert "warn: opus requests at 65 % of the limit" in str(two)
    assert f"{both[0].model_class} requests 20 % of 1,000/min · opus requests 65 % of" in str(two)


@pytest.mark.parametrize(
    ("bad", "of", "level"), [(0, 3, "ok"), (1, 9, "ok"), (1, 3, "warn"), (1, 1, "warn"), (2, 3, "bad"), (3, 3, "bad")]
)
def test_requests_that_fail_are_not_good_health(bad, of, level):
    """Whatever the reason: two of three that failed within a minute are bad, and the words say how many."""
    plan = Plan([Agent(f"a{number}", f"{number}") for number in range(of)])
    error = Rejected("no", status=400)
    record, _ = drive(plan, lambda prompt, _: Reply(1.0, error if int(prompt) < bad else None), Policy(9, seed=1))
    found = record_health(record)
    said = "" if level == "ok" else f"{bad} of {of} requests failed within a minute"
    assert (level, said) == (found.level, found.reason)


def test_a_paused_run_does_not_say_that_all_is_well():
    """Nothing is sent, so good health says nothing; a fault is still said."""
    paused = strip_of(Health("ok", ""), paused=True)
    assert paused is not None
    assert ("none", "nothing new is sent") == (paused["level"], paused["word"])
    bad = strip_of(Health("bad", "requests at 95 % of the limit"), paused=True)
    assert bad is not None
    assert ("bad", "requests at 95 % of the limit") == (bad["level"], bad["word"])
