"""The critical path and what seconds are worth, against brute force and against the real driver."""

# Tests hand over wrong types on purpose, and take for granted what they have just checked.
# pyright: reportArgumentType=false
# pyright: reportOperatorIssue=false
# pyright: reportOptionalOperand=false

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from agent_magic import Agent, Policy
from agent_magic.api import Run
from agent_magic.declare import Plan, build_dag
from agent_magic.errors import Rejected
from agent_magic.measure import slack_s, summarize
from agent_magic.measure.path import SAVINGS, STEPS, Chains
from tests.declare.examples import E2, E6
from tests.live.virtual import Reply, drive

eighths = st.integers(0, 80).map(lambda eighth: eighth / 8)


@st.composite
def graphs(draw, most=8):
    """Who waits for whom, and how long each works: on a grid, so that sums are exact. Declared in any order."""
    count = draw(st.integers(1, most))
    names = draw(st.permutations(range(count)))
    parents = [[] for _ in range(count)]
    for number in range(1, count):
        parents[names[number]] = [names[one] for one in draw(st.sets(st.integers(0, number - 1), max_size=3))]
    return parents, draw(st.lists(eighths, min_size=count, max_size=count))


def chains_of(parents):
    """Every chain of agents that wait for each other, by brute force."""
    children = [[child for child in range(len(parents)) if one in parents[child]] for one in range(len(parents))]

    def from_(agent):
        yield (agent,)
        for child in children[agent]:
            for rest in from_(child):
                yield (agent, *rest)

    return [chain for agent in range(len(parents)) for chain in from_(agent)]


def run_of(parents, work, policy=None):
    """Run a plan on a virtual clock."""
    agents = tuple(
        Agent(f"a{one}", f"p{one}", after=tuple(f"a{before}" for before in row)) for one, row in enumerate(parents)
    )
    record, _ = drive(Plan(agents), lambda prompt, _: Reply(work[int(prompt[1:])]), policy or Policy(100))
    return record


@given(graphs(), st.data())
def test_chains_against_brute_force(graph, data):
    """The longest chain through an agent, around it, and after its work changed: as if all chains were listed."""
    parents, work = graph
    chains = Chains.of(build_dag(parents), work)
    every = chains_of(parents)

    def length(chain, seconds):
        return sum(seconds[agent] for agent in chain)

    assert max(length(chain, work) for chain in every) == chains.longest_s
    for agent in range(len(parents)):
        around = [length(chain, work) for chain in every if agent not in chain]
        assert max(around, default=0.0) == chains.around_s[agent]
        assert max(length(chain, work) for chain in every if agent in chain) == chains.through_s[agent]
        instead = data.draw(eighths)
        changed = [instead if one == agent else seconds for one, seconds in enumerate(work)]
        after = max(length(chain, changed) for chain in every)
        assert chains.longest_s - after == chains.saved_s(agent, instead)


@given(graphs(most=6))
def test_halving_saves_what_a_run_with_half_the_work_saves(graph):
    """With slots for all, the driver itself takes that much less when one agent works half as long."""
    parents, work = graph
    record = run_of(parents, work)
    wall = summarize(record).wall_s
    frame = Run(record).savings
    for agent, saves in enumerate(frame["halving_saves_s"]):
        changed = [seconds / 2 if one == agent else seconds for one, seconds in enumerate(work)]
        assert wall - summarize(run_of(parents, changed)).wall_s == saves


@given(graphs(most=6))
def test_an_agent_may_be_late_by_its_slack_and_no_more(graph):
    """Later by its slack: the run ends as before. Later by an eighth of a second more: so does the run."""
    parents, work = graph
    record = run_of(parents, work)
    wall = summarize(record).wall_s
    for agent, slack in enumerate(slack_s(record)):
        assert slack >= 0
        for more in (0.0, 0.125):
            later = [seconds + slack + more if one == agent else seconds for one, seconds in enumerate(work)]
            assert wall + more == summarize(run_of(parents, later)).wall_s


@given(graphs(), st.integers(1, 4))
def test_the_path_is_a_chain_and_nothing_beats_it(graph, slots):
    """Its agents wait for each other in order, its length is their work, and no number of slots makes a run shorter."""
    parents, work = graph
    record = run_of(parents, work, Policy(slots))
    path = Run(record).critical_path()
    assert math.fsum(path.work_s) == path.length_s == summarize(record).critical_path_s <= path.wall_s
    dag, index = record.plan.dag, record.plan.index
    for before, after in zip(path.agents, path.agents[1:], strict=False):
        assert index[before] in dag.ancestors([index[after]])
    assert all(saved <= work / 2 for saved, work in zip(path.halving_saves_s, path.work_s, strict=True))
    assert all(work > 0 for work in path.work_s)


def example(which):
    """A run of a worked example."""
    return Run(run_of(which.parents, which.work_s))


def test_the_path_of_the_six_agent_example():
    """A 5 -> C 10 -> E 5 beside B 3 -> D 3: halving C saves five of twenty."""
    path = example(E6).critical_path()
    assert ("a0", "a1", "a2") == path.agents
    assert (2.5, 5.0, 2.5) == path.halving_saves_s
    assert "CriticalPath: 20.0 s of 20.0 s: a0 5.0 s -> a1 10.0 s -> a2 5.0 s. Halving a1 saves 5.0 s." == repr(path)
    assert 3 == len(path)
    assert [0.25, 0.5, 0.25] == list(path.frame["share"])
    assert STEPS == {name: str(kind) for name, kind in path.frame.dtypes.items()}


def test_halving_one_of_two_equal_chains_saves_nothing():
    """The business plan has two critical chains from its researchers: halving one of them buys no second."""
    saves = example(E2).savings.set_index("agent")["halving_saves_s"]
    assert [0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0] == list(saves)


def test_who_never_ran_has_no_savings():
    """`NA` where an agent never ran; the frame keeps its columns and dtypes, empty too."""
    plan = Plan((Agent("a", "x"), Agent("b", "y", after="a")))
    frame = Run(drive(plan, lambda *_: Reply(1.0, Rejected("no", status=400)))[0]).savings
    assert [False, True] == list(frame["halving_saves_s"].isna())
    assert [False, True] == list(frame["work_s"].isna())
    assert SAVINGS == {name: str(kind) for name, kind in frame.dtypes.items()}
    empty = Run(drive(Plan(()), None)[0])
    assert SAVINGS == {name: str(kind) for name, kind in empty.savings.dtypes.items()}
    assert "CriticalPath: no agent ran" == repr(empty.critical_path())
    assert 0 == len(empty.critical_path().frame)


def test_a_long_path_is_shortened_in_its_repr():
    """Eight steps at most; a chain of a thousand is measured in one go."""
    parents = [[], *[[one] for one in range(999)]]
    path = Run(run_of(parents, [1.0] * 1000)).critical_path()
    assert "a5 1.0 s -> (993 more) -> a999 1.0 s" in repr(path)
    assert {0.5} == set(path.halving_saves_s)
