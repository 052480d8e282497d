"""Random runs of random plans, by the real driver on a virtual clock."""

from __future__ import annotations

from hypothesis import strategies as st

from agent_magic import Agent, Policy
from agent_magic.declare import Plan, prompt_of
from agent_magic.errors import Late, Overloaded, RateLimited, Refused, Rejected, Truncated, Unreachable
from agent_magic.record import History
from tests.live.virtual import Reply, drive


def answered(steps, rows):
    """Return rows as answers of these declared steps, by their names."""
    prompts = {one.name: prompt_of(one) for one in steps}
    return History(row._replace(prompt=prompts.get(row.agent, "")) for row in rows)


seconds = st.floats(0, 30, allow_subnormal=False)
tokens = st.integers(0, 200_000)
errors = st.sampled_from(
    [
        None,
        None,
        None,
        Unreachable("gone"),
        Truncated("cut"),
        RateLimited("busy", retry_after_s=1.7),
        RateLimited("busy", retry_after_s=250.0),
        Overloaded("full", status=529),
        Rejected("wrong", status=400),
        Rejected("key", status=401),
        Refused("no"),
        ZeroDivisionError("bug"),
    ]
)
known_tokens = st.tuples(tokens, tokens, st.none() | tokens, st.none() | tokens)
replies = st.builds(
    Reply,
    seconds,
    errors,
    st.none() | seconds,
    st.sampled_from(["", "short", "a longer answer of some words"]),
    st.none() | known_tokens,
    st.sampled_from(["end_turn", "end_turn", "max_tokens", "refusal"]),
    st.sampled_from(["live", "live", "simulated"]),
    st.sampled_from([0.0, 0.0, 3.3]),
)


@st.composite
def random_plans(draw, most=8):
    """A plan whose agents use some answers of earlier ones."""
    count = draw(st.integers(1, most))
    agents = []
    for number in range(count):
        parents = draw(st.sets(st.integers(0, number - 1), max_size=3)) if number else set()
        uses = draw(st.sets(st.sampled_from(sorted(parents)))) if parents else set()
        prompt = f"p{number} " + " ".join(f"{{{{ a{one} }}}}" for one in sorted(uses))
        after = tuple(f"a{one}" for one in sorted(parents - uses))
        timeout = draw(st.sampled_from([None, None, None, 20.0]))
        agents.append(Agent(f"a{number}", prompt, after=after, timeout_s=timeout))
    return Plan(tuple(agents))


@st.composite
def histories(draw):
    """A run: its record and its client."""
    plan = draw(random_plans())
    count = len(plan)
    table = draw(st.lists(st.lists(replies, min_size=1, max_size=3), min_size=count, max_size=count))
    policy = Policy(
        draw(st.integers(1, 4)),
        draw(st.sampled_from(["ready", "layers", "sequential"])),
        max_attempts=draw(st.integers(1, 3)),
        seed=draw(st.integers(0, 5)),
    )

    def script(prompt, number):
        rows = table[int(prompt.split()[0][1:])]
        return rows[min(number, len(rows)) - 1]

    some = st.none() | st.lists(st.sampled_from(plan.names), min_size=1, max_size=2)
    stops = draw(st.lists(st.tuples(seconds, some), max_size=2))
    cancel_at = draw(st.none() | st.none() | seconds)
    wishes = st.tuples(seconds, st.sampled_from(["retry", "skip"]), st.lists(st.sampled_from(plan.names), max_size=2))
    controls = draw(st.lists(wishes, max_size=2))
    return drive(plan, script, policy, stops=stops, controls=controls, cancel_at=cancel_at)


__all__ = ["Late", "histories", "random_plans"]
