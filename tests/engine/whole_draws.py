"""Random scenes: plans, latencies, limits, faults, hands, and runs beside others."""

# Tests take for granted what they have just checked.
# pyright: reportArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from agent_magic import Policy
from tests.engine.whole_scene import FAULTS, Asked, Scene

MOST = 9
OPUS = "claude-opus-5"
seconds = st.integers(1, 400).map(lambda one: one / 16)
tokens = st.integers(0, 400).map(lambda one: one * 25)
good = st.just(("ok",))
passing = st.sampled_from(["turn", "429", "429 after 3", "529", "500 after 2", "reset", "cut"])
final = st.sampled_from(["ok", "ok", "ok", "ok", "capped", "hang", *FAULTS])
fates = st.builds(lambda before, last: (*before, last), st.lists(passing, max_size=3), final)
asked = st.builds(
    Asked,
    seconds,
    tokens,
    tokens,
    good | fates,
    st.sampled_from(["claude-haiku-5-5", "claude-haiku-5-5", OPUS]),
    st.sampled_from([None, None, "context"]),
    st.sampled_from([5.0, 60.0, 1000.0, 1000.0]),
    st.sampled_from([0.25, 1.0, 8.0]),
)
policies = st.builds(
    Policy,
    st.sampled_from([1, 2, 2, 3, 3, 4, 5]),
    st.sampled_from(["ready", "ready", "layers", "layers", "sequential"]),
    max_attempts=st.integers(1, 4),
    deadline_s=st.sampled_from([None, None, None, 30.0]),
    timeout_counts=st.sampled_from(["work", "work", "total"]),
    breaker_share=st.sampled_from([1.0, 0.1, 0.1, None]),
    seed=st.just(1),
)
limits = st.none() | st.tuples(
    st.sampled_from([6.0, 60.0, 1_000.0]),
    st.sampled_from([20_000.0, 200_000.0, 5e6]),
    st.sampled_from([20_000.0, 200_000.0, 5e6]),
)
agents = st.none() | st.lists(st.integers(0, MOST - 1), min_size=1, max_size=3).map(tuple)
hands = st.lists(st.tuples(seconds, st.sampled_from(["cancel", "skip", "retry", "retry", "pause"]), agents), max_size=3)


@st.composite
def parents(draw):
    """Who waits for whom: each of some agents before it."""
    count = draw(st.integers(1, MOST))
    rows = (draw(st.sets(st.integers(0, number - 1), max_size=3)) if number else () for number in range(count))
    return tuple(tuple(sorted(row)) for row in rows)


@st.composite
def budgets(draw, worst):
    """No budget, or one that is just enough for most of the agents, or a token too small for them."""
    if not sum(worst) or draw(st.booleans()):
        return None
    left_out = draw(st.sets(st.integers(0, len(worst) - 1), max_size=2))
    enough = sum(one for agent, one in enumerate(worst) if agent not in left_out)
    return max(1, enough + draw(st.integers(-1, 0)))


@st.composite
def scenes(draw, asked=asked, limits=limits, policies=policies, hands=hands, capped=True):
    """A scene; whoever pauses resumes, and nobody is named that the plan does not have."""
    rows = draw(parents())
    agents = tuple(draw(asked) for _ in rows)
    policy, controls = draw(policies), []
    for at_s, what, who in draw(hands) if draw(st.booleans()) else ():
        known = None if who is None else tuple(one for one in who if one < len(rows))
        controls.append((at_s, what, () if what == "skip" and known is None else known))
        if what == "pause":
            controls.append((at_s + draw(st.sampled_from([0.0625, 7.0, 70.0])), "resume", None))
    if capped:
        worst = [one.worst_tokens for one in agents]
        rate = draw(st.sampled_from([None, None, None, 20.0, 50.0]))
        policy = replace(policy, budget_tokens=draw(budgets(worst)), max_usd_per_min=rate)
    return Scene(
        rows,
        agents,
        policy,
        draw(limits),
        draw(st.sampled_from([1.0, 10.0, 60.0])),
        draw(st.booleans()),
        tuple(controls),
        key=draw(st.booleans()),
        began_s=draw(st.sampled_from([0.0, 1234.567, 1e6 / 7])),
    )


ENDLESS = {"hang", "429", "429 after 3"}
"""What only a deadline ends."""
struck = st.sampled_from([("ok",), ("ok",), ("ok",), ("529", "ok"), ("reset", "ok"), ("529", "529", "ok"), ("529",)])
storms = scenes(
    asked=st.builds(Asked, seconds, tokens, tokens, struck),
    limits=st.none(),
    policies=st.builds(Policy, st.integers(2, 5), max_attempts=st.just(4), breaker_share=st.just(0.1), seed=st.just(1)),
    hands=st.just([]),
    capped=False,
)
"""The service fails for a while."""
halts = st.tuples(seconds, st.sampled_from(["retry", "retry", "cancel"]), st.none())
waves = scenes(
    asked=st.builds(Asked, seconds, fates=st.sampled_from([("ok",), ("ok",), ("400", "ok")])),
    limits=st.none(),
    policies=st.builds(Policy, st.integers(1, 3), st.just("layers"), seed=st.just(1)),
    hands=st.lists(halts, min_size=1, max_size=3),
    capped=False,
)
"""Layers, and hands that have the failed run again, or stop everything."""
stops = st.builds(
    lambda rows, at_s, slots: Scene(
        ((),) * len(rows), tuple(rows), Policy(slots, seed=1), controls=((at_s, "cancel", None),)
    ),
    st.lists(asked, min_size=3, max_size=6),
    st.integers(1, 30).map(lambda one: one / 16),
    st.integers(1, 3),
)
"""Somebody stops everything, soon."""
lulls = st.builds(
    lambda rows, share: Scene(((),) * len(rows), tuple(rows), Policy(4, breaker_share=share, seed=1)),
    st.lists(st.builds(Asked, seconds), min_size=5, max_size=9).map(
        lambda rows: [replace(one, fates=("529", "ok")) for one in rows[:2]] + rows[2:]
    ),
    st.just(0.1),
)
"""The service fails twice, and is well again."""
purses = st.builds(
    lambda rows, slots, less: Scene(
        ((),) * len(rows),
        tuple(rows),
        Policy(slots, budget_tokens=max(1, sum(one.worst_tokens for one in rows) - less), seed=1),
    ),
    st.lists(st.builds(Asked, seconds, tokens, tokens, good | fates), min_size=2, max_size=5),
    st.integers(1, 5),
    st.integers(0, 1),
)
"""A budget for all of them, or for all but one token."""
crowds = st.builds(
    lambda rows, limits, began_s: Scene(((),) * 12, tuple(rows), Policy(12, seed=1), limits, began_s=began_s),
    st.lists(st.builds(Asked, seconds, group=st.sampled_from([None, "context", "other"])), min_size=12, max_size=12),
    limits,
    st.floats(0, 1e5),
)
"""More at once than may go before the first answer, at any time of the pacer's clock."""


@st.composite
def beside(draw, first, others, most=2):
    """A session: a run, and others that begin while it goes on, or when it is over."""
    rest = draw(st.lists(st.tuples(st.integers(0, 200).map(lambda one: one / 16), others), min_size=1, max_size=most))
    return replace(draw(first), others=tuple(rest))


sessions = beside(scenes(), scenes())
"""Anything beside anything."""
short = st.builds(Asked, seconds, fates=st.sampled_from([("ok",), ("ok",), ("reset", "ok"), ("400",)]))
rivals = st.builds(
    lambda rows, slots, hands: Scene(((),) * len(rows), tuple(rows), Policy(slots, seed=1), controls=tuple(hands)),
    st.lists(short, min_size=3, max_size=8),
    st.integers(1, 4),
    st.lists(st.tuples(seconds, st.sampled_from(["cancel", "pause", "resume", "retry"]), st.none()), max_size=1),
)
"""Nothing but slots to share."""
rivals = rivals.map(
    lambda scene: replace(
        scene,
        controls=(
            *scene.controls,
            *((at_s + 9.0, "resume", None) for at_s, what, _ in scene.controls if what == "pause"),
        ),
    )
)
contests = beside(rivals, rivals, most=3)
colleagues = st.builds(
    lambda scene, limits, told, burst_s, began_s: replace(
        scene, limits=limits, told=told, burst_s=burst_s, began_s=began_s
    ),
    contests,
    limits,
    st.booleans(),
    st.sampled_from([1.0, 10.0]),
    st.floats(0, 1e5),
)
"""Runs that share slots, and the server's limits."""
brief = st.lists(st.builds(Asked, st.integers(1, 12).map(lambda one: one / 16)), min_size=5, max_size=8)
pauses = st.none() | st.integers(8, 128).map(lambda one: one / 16).map(
    lambda at_s: ((at_s, "pause", None), (at_s + 20.0, "resume", None))
)
queues = beside(
    st.builds(
        lambda rows, slots, told, burst_s, hands: Scene(
            *(((),) * len(rows), tuple(rows), Policy(slots, seed=1), (60.0, 5e6, 5e6), burst_s, told), hands or ()
        ),
        brief,
        st.sampled_from([1, 2, 4]),
        st.booleans(),
        st.sampled_from([1.0, 4.0]),
        pauses,
    ),
    st.builds(
        lambda rows, hands: Scene(((),) * len(rows), tuple(rows), Policy(4, seed=1), controls=hands or ()),
        brief,
        pauses,
    ),
)
"""Runs with slots enough that share a limit."""
crushes = st.builds(
    lambda rows, slots, tries, hands: Scene(
        ((),) * len(rows),
        tuple(rows),
        Policy(slots, max_attempts=tries, breaker_share=None, seed=1),
        controls=tuple(hands),
    ),
    st.lists(
        st.builds(
            Asked,
            seconds,
            fates=st.lists(st.sampled_from(["529", "529", "reset", "ok"]), min_size=1, max_size=4).map(tuple),
        ),
        min_size=3,
        max_size=8,
    ),
    st.integers(2, 5),
    st.integers(2, 4),
    st.lists(st.tuples(seconds, st.sampled_from(["cancel", "skip", "retry"]), st.just((0, 1))), max_size=1),
)
"""A service that bears no crowd: last tries go one at a time."""
deserts = scenes(
    asked=st.builds(Asked, seconds, fates=st.sampled_from([("nowhere",), ("nowhere",), ("nowhere", "nowhere", "ok")])),
    limits=st.none(),
    policies=st.builds(
        Policy,
        st.integers(2, 5),
        max_attempts=st.just(4),
        breaker_share=st.sampled_from([0.1, 0.2, 1.0]),
        seed=st.just(1),
    ),
    hands=st.just([]),
    capped=False,
)
"""No network: hardly anything finds a connection."""
anything = st.one_of(
    *(scenes() for _ in range(5)),
    *(storms, waves, stops, lulls, purses, crowds, crushes, deserts),
    *(sessions, sessions, contests, colleagues, queues, queues),
)
