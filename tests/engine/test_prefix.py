"""Shared prefixes: who leads, who waits, and for how long."""

from __future__ import annotations

from typing import Any

from agent_magic.engine import Gate, Hold, Need, Pacer, Prefixes, Worst
from agent_magic.engine.admission.prefix import PATIENCE_S, paying_groups
from agent_magic.record import NOTHING_USED, ModelFacts, Usage

LIFE_S = 300.0
GROUP = ["a", "a", "a", None]
FACTS = {name: ModelFacts(name, least) for name, least in (("keen", 512), ("picky", 4096), ("never", None))}


def led() -> Prefixes:
    """Let the first agent of a group lead."""
    prefixes = Prefixes(GROUP)
    assert prefixes.hold(0, 0.0) is None
    prefixes.left(0, 0.0)
    return prefixes


def test_followers_wait_for_the_beginning_of_the_leaders_answer():
    """While the leader has not begun to answer, its group waits, and nobody else does."""
    prefixes = led()
    assert Hold("leader", PATIENCE_S) == prefixes.hold(1, 1.0)
    assert prefixes.hold(3, 1.0) is None
    prefixes.began(0)
    assert prefixes.hold(1, 1.0) is None
    assert prefixes.is_warm(1, 1.0)


def test_a_leader_that_fails_before_it_answers_is_followed_by_another():
    """The next agent of the group leads then, and the others wait for that one."""
    prefixes = led()
    prefixes.ended(0, None, followed=False)
    assert prefixes.hold(1, 1.0) is None
    prefixes.left(1, 1.0)
    assert Hold("leader", 1.0 + PATIENCE_S) == prefixes.hold(2, 1.0)


def test_a_slow_leader_is_not_waited_for_for_ever():
    """After the patience is over everybody goes."""
    assert led().hold(1, PATIENCE_S) is None


def test_an_entry_lives_from_the_start_of_its_request():
    """An entry is warm for its life after the leader left, and each read renews it."""
    prefixes = led()
    prefixes.began(0)
    assert prefixes.is_warm(1, LIFE_S - 1)
    prefixes.left(1, LIFE_S - 1)
    assert prefixes.is_warm(2, 2 * LIFE_S - 2)
    assert not prefixes.is_warm(2, 2 * LIFE_S)


def test_nobody_waits_for_a_cache_that_gives_nothing():
    """A follower that read nothing ends the waiting of its group."""
    prefixes = led()
    prefixes.began(0)
    prefixes.ended(1, 0, followed=True)
    prefixes.left(2, 2 * LIFE_S)
    assert prefixes.hold(1, 2 * LIFE_S) is None


def test_only_groups_that_pay_are_marked():
    """Two agents of one model over one long context pay; a single one, a short one or two models do not."""
    tokens = {"long": 4000, "short": 100}
    models = ["keen"] * 5 + ["picky"]
    contexts = ["long", "long", "short", "short", None, "long"]
    name = "keen/long"
    assert [name, name, None, None, None, None] == paying_groups(models, contexts, tokens, FACTS)
    assert 5 == sum(one is not None for one in paying_groups(models, contexts, tokens, FACTS, always=True))


def test_each_model_has_its_own_least_length():
    """A context of 2,000 tokens is cached by some; a model without a cache keeps none unless somebody insists."""
    both, tokens = ["c", "c"], {"c": 2000}
    for model, pays in (("keen", True), ("picky", False), ("never", False)):
        assert pays is (None not in paying_groups([model] * 2, both, tokens, FACTS))
    assert None not in paying_groups(["never"] * 2, both, tokens, FACTS, always=True)


def test_what_comes_from_the_cache_needs_no_room():
    """The pacer is asked for a leader's whole input, and for a follower's own words: cache reads are not limited."""

    class Asked(Pacer):
        def ask(self, model: str, input_tokens: int, *rest: Any, **more: Any) -> Any:
            asked.append(input_tokens)
            return super().ask(model, input_tokens, *rest, **more)

    asked: list[int] = []
    need = Need("m", 1000, 10, Worst(0.0, 0), shared_tokens=900)
    gate = Gate(["m"] * 3, lambda _: need, pacer=Asked(), prefixes=Prefixes(["g"] * 3))
    assert gate.enter(0, 0.0) is None
    assert isinstance(gate.enter(1, 0.0), Hold)
    gate.began(0)
    gate.replied(0, 200, None, 0.5)
    gate.enter(1, 1.0)
    gate.settle(1, Usage(100, cache_read_tokens=0, output_tokens=1), None, None, 2.0, is_final=True)
    gate.enter(2, 2.0)
    assert [1000, 100, 1000] == asked


def test_a_follower_that_was_turned_away_ends_no_cache():
    """A 429 reads nothing, which says nothing of the cache: the group stays warm, and its agents need little room."""
    need = Need("m", 1000, 10, Worst(0.0, 0), shared_tokens=900)
    prefixes = Prefixes(["g"] * 2)
    gate = Gate(["m"] * 2, lambda _: need, pacer=Pacer(), prefixes=prefixes)
    assert gate.enter(0, 0.0) is None
    gate.began(0)
    gate.replied(0, 200, None, 0.5)
    assert gate.enter(1, 1.0) is None
    gate.refused(1, 1.0, "input", None, 1.1)
    gate.settle(1, NOTHING_USED, 0.0, False, 1.1, is_final=True)
    assert prefixes.is_warm(1, 2.0)
