"""The conductor on a virtual clock: exact times, and what holds whatever happens."""

# Tests hand over wrong types on purpose, and take for granted what they have just checked.
# pyright: reportOptionalMemberAccess=false

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magic import Policy
from agent_magic.declare import build_dag
from agent_magic.engine import Backoff, Conductor, Done, Failure, Schedule, Send, WakeAt
from agent_magic.record import AgentEnded, AgentReady
from tests.declare.examples import E1, E2, E3, E5, E6
from tests.engine.clockwork import Clockwork, Step

UNLIMITED = 10_000


def dag_of(*parents):
    """A graph of these parents."""
    return build_dag(parents)


def clockwork(dag, takes_s, **more):
    """Run a graph whose agents take so long and succeed."""
    return Clockwork(dag, lambda agent, _: Step(takes_s[agent]), **more).run()


# example, schedule, slots, whether the work is known, makespan
MAKESPANS = [
    (E1, "ready", UNLIMITED, False, 5.0),
    (E1, "ready", 3, False, 5.0),
    (E1, "ready", 2, False, 7.0),
    (E1, "ready", 1, False, 9.0),
    (E1, "sequential", UNLIMITED, False, 9.0),
    (E1, "layers", UNLIMITED, False, 5.0),
    (E2, "ready", UNLIMITED, False, 8.0),
    (E2, "ready", 4, False, 8.0),
    (E2, "ready", 1, False, 18.0),
    (E2, "sequential", 4, False, 18.0),
    (E2, "layers", UNLIMITED, False, 8.0),
    (E3, "ready", UNLIMITED, False, 9.0),
    (E3, "ready", 6, False, 9.0),
    (E3, "ready", 3, False, 13.0),
    (E3, "sequential", UNLIMITED, False, 29.0),
    (E3, "layers", UNLIMITED, False, 9.0),
    (E5, "ready", UNLIMITED, True, 9.0),
    (E5, "sequential", UNLIMITED, True, 21.0),
    (E5, "layers", UNLIMITED, True, 9.0),
    (E6, "ready", UNLIMITED, True, 20.0),
    (E6, "ready", 2, True, 20.0),
    (E6, "ready", 1, True, 26.0),
    (E6, "layers", UNLIMITED, True, 20.0),
    (E6, "sequential", UNLIMITED, True, 26.0),
]


@pytest.mark.parametrize(("example", "schedule", "slots", "known", "makespan"), MAKESPANS)
def test_the_worked_examples_take_exactly_this_long(example, schedule, slots, known, makespan):
    """E1 to E6 of the sources, in every schedule: the bound where there is room, the sum one after another."""
    work = list(example.work_s) if known else None
    run = clockwork(example.plan.dag, example.work_s, policy=Policy(slots, schedule), work_s=work)
    assert makespan == run.makespan
    assert {"succeeded"} == set(run.status.values())


def test_the_longest_path_goes_first():
    """Among ready agents the one with most work before the end starts first: two slots, and the path is no longer."""
    dag = dag_of((), (), (), (2,), (3,))
    run = clockwork(dag, [1.0] * 5, policy=Policy(1))
    assert [2, 3, 0, 1, 4] == [one[1] for one in run.launches]
    run = clockwork(dag, [1.0] * 5, policy=Policy(1), work_s=[9.0, 1.0, 1.0, 1.0, 1.0])
    assert [0, 2, 3, 1, 4] == [one[1] for one in run.launches]


def test_sequential_goes_in_the_order_of_the_plan():
    """One after another, parents first, else as declared."""
    run = clockwork(dag_of((2,), (), ()), [1.0] * 3, policy=Policy(8, "sequential"))
    assert [(0.0, 1), (1.0, 2), (2.0, 0)] == [one[:2] for one in run.launches]


def test_agents_know_what_held_them():
    """Nothing at once, `slot` for want of one, `barrier` for an earlier layer, `backoff` for a failed attempt."""
    run = clockwork(dag_of((), (), (1,)), [1.0, 2.0, 1.0], policy=Policy(1))
    assert [(1, ""), (0, "slot"), (2, "slot")] == [(one[1], one[3]) for one in run.launches]
    run = clockwork(dag_of((), (), (0,)), [1.0, 2.0, 1.0], policy=Policy(8, "layers"))
    assert [(0.0, 0, 1, ""), (0.0, 1, 1, ""), (2.0, 2, 1, "barrier")] == run.launches
    run = clockwork(dag_of((), (), (0,), (0,)), [1.0, 5.0, 1.0, 1.0], policy=Policy(1, "layers"), work_s=[9.0, 1, 1, 1])
    assert [(0, ""), (1, "slot"), (2, "barrier"), (3, "barrier")] == [(one[1], one[3]) for one in run.launches]
    failing = [Step(1.0, Failure("x", 2, retry_after_s=4.0)), Step(1.0)]
    run = Clockwork(dag_of(()), lambda _, number: failing[number - 1]).run()
    assert ["", "backoff"] == [one[3] for one in run.launches]
    assert 5.0 <= run.launches[1][0] <= 5.25


def test_groups_wait_for_the_group_before_and_the_shortest_goes_first():
    """Five agents in groups of two; three on one slot, the least expected work first."""
    run = clockwork(dag_of(*[()] * 5), [1.0, 3.0, 1.0, 1.0, 2.0], policy=Policy(2, "groups"))
    assert [(0.0, 0), (0.0, 1), (3.0, 2), (3.0, 3), (4.0, 4)] == [one[:2] for one in run.launches]
    assert ["", "", "group", "group", "group"] == [one[3] for one in run.launches]
    work = [3.0, 1.0, 2.0]
    orders: dict[Schedule, list[int]] = {"ready": [0, 2, 1], "shortest": [1, 2, 0]}
    for schedule, order in orders.items():
        run = clockwork(dag_of((), (), ()), work, policy=Policy(1, schedule), work_s=work)
        assert order == [one[1] for one in run.launches]


def test_parents_and_children_in_one_group_do_not_lock_each_other():
    """A child waits for its parent inside of its group, and the next group for both."""
    run = clockwork(dag_of((), (0,), (0,)), [1.0] * 3, policy=Policy(2, "groups"))
    assert [(0.0, 0, 1, ""), (1.0, 1, 1, ""), (2.0, 2, 1, "group")] == run.launches


def test_one_step_by_hand():
    """Start, success and end of a chain of two, action by action."""
    conductor = Conductor(dag_of((), (0,)), Policy(), timeouts_s=[10.0, 10.0])
    assert [AgentReady(0.0, 0), Send(0, 1, ""), WakeAt(10.0)] == conductor.start(0.0)
    assert [AgentEnded(3.0, 0, "succeeded", None), AgentReady(3.0, 1), Send(1, 1, "")] == conductor.succeeded(0, 3.0)
    assert [AgentEnded(4.0, 1, "succeeded", None), Done(cut=False)] == conductor.succeeded(1, 4.0)


def test_an_empty_plan_is_finished_at_once():
    """Nothing to do is done."""
    assert [Done(cut=False)] == Conductor(dag_of(), Policy(), timeouts_s=[]).start(0.0)


def test_a_failure_costs_its_descendants_only():
    """F25: the descendants are skipped and name the cause; all others succeed."""
    dag = dag_of((), (), (0,), (1,), (2, 3), (3,))
    run = Clockwork(dag, lambda agent, _: Step(1.0, Failure("no") if agent == 2 else None)).run()
    assert {0: "succeeded", 1: "succeeded", 2: "failed", 3: "succeeded", 4: "skipped", 5: "succeeded"} == run.status
    assert 2 == run.cause[4]
    assert "no" == run.errors[2]


def test_attempts_are_counted():
    """A failure is repeated as often as its kind is worth, and no more than the policy allows."""
    for worth, allowed, tries in ((9, 3, 3), (2, 3, 2), (1, 3, 1), (9, 1, 1), (3, 9, 3)):
        run = Clockwork(
            dag_of(()), lambda _a, _n, w=worth: Step(1.0, Failure("x", w)), Policy(max_attempts=allowed)
        ).run()
        assert (tries, "failed") == (len(run.launches), run.status[0])


def test_an_answer_that_goes_on_uses_up_no_attempt():
    """Its slot is free at once, the agent waits its turn like any other, and its deadline stays."""
    conductor = Conductor(dag_of((), ()), Policy(1, max_attempts=1), timeouts_s=[10.0, 10.0])
    assert [AgentReady(0.0, 0), AgentReady(0.0, 1), Send(0, 1, ""), WakeAt(10.0)] == conductor.start(0.0)
    assert [Send(0, 2, "")] == conductor.continue_turn(0, 1.0)
    assert [Send(0, 3, "")] == conductor.continue_turn(0, 2.0)
    assert AgentEnded(3.0, 0, "failed", "x", "") == conductor.failed(0, Failure("x", 3), 3.0)[0]


def test_a_capped_agent_is_passed_on():
    """Its children begin, and it is none of those that did not succeed."""
    conductor = Conductor(dag_of((), (0,)), Policy(1), timeouts_s=[10.0, 10.0])
    conductor.start(0.0)
    expected = [AgentEnded(1.0, 0, "capped", "enough", "Capped"), AgentReady(1.0, 1), Send(1, 1, "")]
    assert expected == conductor.capped(0, "enough", 1.0)[:3]
    assert [] == conductor.retry(2.0, [0])


def test_a_stop_counts_before_the_next_turn():
    """An agent that is to be stopped does not go on."""
    conductor = Conductor(dag_of(()), Policy(1), timeouts_s=[10.0])
    conductor.start(0.0)
    conductor.cancel(1.0, [0])
    assert [AgentEnded(2.0, 0, "cancelled", "stopped", "Stopped"), Done(False)] == conductor.continue_turn(0, 2.0)


def test_a_wait_frees_its_slot():
    """While one agent waits to be repeated, another runs in its place."""
    dag = dag_of((), ())
    steps = {(0, 1): Step(1.0, Failure("x", 2, retry_after_s=10.0)), (0, 2): Step(1.0), (1, 1): Step(3.0)}
    run = Clockwork(dag, lambda agent, number: steps[agent, number], Policy(1)).run()
    assert [(0.0, 0), (1.0, 1)] == [one[:2] for one in run.launches[:2]]
    assert 12.0 <= run.makespan <= 12.25


def test_a_wait_beyond_the_deadline_is_not_begun():
    """F06: `retry-after: 300` under a deadline of 10 s fails at once, and says so."""
    run = Clockwork(dag_of(()), lambda *_: Step(1.0, Failure("busy", 9, retry_after_s=300.0)), timeouts_s=[10.0]).run()
    assert (1, "failed", 1.0) == (len(run.launches), run.status[0], run.makespan)
    assert "busy (the next try would come in 5 min 00 s, after the deadline)" == run.errors[0]


def test_a_deadline_cancels_what_runs():
    """F10: an agent that hangs is cancelled at its deadline, to the tick; others go on."""
    dag = dag_of((), (), (0,))
    run = Clockwork(dag, lambda agent, _: Step([1e6, 20.0, 1.0][agent]), timeouts_s=[7.0, 30.0, 5.0]).run()
    assert ["failed", "succeeded", "skipped"] == [run.status[one] for one in range(3)]
    assert 7.0 == next(at for at, action in run.log if isinstance(action, AgentEnded) and action.agent == 0)


def test_a_deadline_counts_from_the_first_attempt_and_over_all():
    """Waiting for a slot before the first attempt is free; waiting between attempts is not."""
    dag = dag_of((), ())
    steps = {(0, 1): Step(6.0), (1, 1): Step(3.0, Failure("x", 9, retry_after_s=1.0)), (1, 2): Step(100.0)}
    run = Clockwork(dag, lambda *one: steps[one], Policy(1), timeouts_s=[8.0, 8.0], work_s=[9.0, 1.0]).run()
    assert "succeeded" == run.status[0]
    assert (6.0, 1) == run.launches[1][:2]
    assert 14.0 == next(at for at, action in run.log if isinstance(action, AgentEnded) and action.agent == 1)


def test_a_deadline_passes_while_the_agent_waits_for_a_slot_again():
    """An agent that failed, and finds no slot before its deadline, fails then and there."""
    dag = dag_of((), ())
    steps = {(0, 1): Step(1.0, Failure("x", 9, retry_after_s=1.0)), (1, 1): Step(100.0)}
    run = Clockwork(dag, lambda *one: steps[one], Policy(1), timeouts_s=[10.0, 1000.0]).run()
    assert "failed" == run.status[0]
    assert run.errors[0].startswith("Late: ")
    assert 10.0 == next(at for at, action in run.log if isinstance(action, AgentEnded) and action.agent == 0)


def test_nobody_is_launched_after_the_deadline():
    """Where the alarm comes late, an agent whose time is over is given up and not sent once more."""
    conductor = Conductor(dag_of((), ()), Policy(1), timeouts_s=[10.0, 100.0])
    conductor.start(0.0)
    conductor.failed(0, Failure("x", 9, retry_after_s=2.0), 1.0)
    conductor.wake(4.0)
    actions = conductor.succeeded(1, 11.0)
    assert not [one for one in actions if isinstance(one, Send)]
    assert ["failed"] == [one.status for one in actions if isinstance(one, AgentEnded) and one.agent == 0]


def test_an_agent_that_is_late_in_its_line_opens_the_next_layer_to_all_of_it():
    """Where it is the last of its layer, those behind the barrier go, one that goes before it in line too."""
    dag = dag_of((), (), (1,), (2,))
    policy = Policy(1, "layers", timeout_counts="total")
    conductor = Conductor(dag, policy, timeouts_s=[10.0, 100.0, 100.0, 100.0])
    assert [1] == [one.step for one in conductor.start(0.0) if isinstance(one, Send)]
    actions = conductor.succeeded(1, 10.0)
    assert [0] == [one.agent for one in actions if isinstance(one, AgentEnded) and one.status == "failed"]
    assert [2] == [one.step for one in actions if isinstance(one, Send)]


def test_a_refused_key_stops_the_run():
    """401: what runs is cancelled, what waits is not begun, and each says why."""
    dag = dag_of((), (), (1,), ())
    run = Clockwork(
        dag, lambda agent, _: Step(1.0, Failure("bad key", stops_run=True)) if agent == 0 else Step(5.0), Policy(2)
    ).run()
    assert ["failed", "cancelled", "cancelled", "cancelled"] == [run.status[one] for one in range(4)]
    assert 2 == len(run.launches)
    assert "the run was stopped by bad key" == run.errors[3]


def test_stopping_all_ends_everything():
    """What runs is cancelled, what waits for anything is cancelled at once, and nothing starts again."""
    dag = dag_of((), (), (0,), ())

    def steps(agent, _):
        return Step(1.0, Failure("x", 2, retry_after_s=60.0)) if agent == 1 else Step(10.0)

    run = Clockwork(dag, steps, Policy(2), stops=((5.0, None),), cancel_s=0.25).run()
    assert {"cancelled"} == set(run.status.values())
    assert 5.25 == run.makespan
    assert run.finished == Done(cut=True)


def test_stopping_one_skips_what_waits_for_it():
    """The stopped agent is cancelled, its descendants are skipped, the others succeed."""
    dag = dag_of((), (), (0,), (1,))
    run = clockwork(dag, [5.0, 5.0, 1.0, 1.0], stops=((2.0, (0,)),))
    assert ["cancelled", "succeeded", "skipped", "succeeded"] == [run.status[one] for one in range(4)]
    assert 0 == run.cause[2]
    assert run.finished == Done(cut=False)


def test_stopping_what_has_ended_changes_nothing():
    """An agent that has its answer cannot be stopped; what waits for it goes on."""
    run = clockwork(dag_of((), (0,), (1,)), [1.0, 5.0, 1.0], stops=((3.0, (0,)),))
    assert {"succeeded"} == set(run.status.values())
    assert 7.0 == run.makespan


def test_an_answer_that_was_complete_when_stopped_is_passed_on():
    """Stopping one agent whose answer is there keeps it, and what waits for it is not skipped."""
    run = clockwork(dag_of((), (0,)), [5.0, 1.0], stops=((3.0, (0,)),), keeps=frozenset({0}))
    assert {"succeeded"} == set(run.status.values())


def test_stopping_twice_is_stopping_once():
    """A second stop, of all or of some, adds nothing."""
    dag = dag_of((), (0,), ())
    stops = ((1.0, (0,)), (1.5, (0, 1)), (2.0, None), (2.5, None))
    run = clockwork(dag, [9.0, 9.0, 9.0], stops=stops, cancel_s=3.0)
    assert ["cancelled", "skipped", "cancelled"] == [run.status[one] for one in range(3)] or [
        "cancelled",
        "cancelled",
        "cancelled",
    ] == [run.status[one] for one in range(3)]
    assert 5.0 == run.makespan


def test_stopped_while_late():
    """A stop that meets an agent whose deadline has passed already leaves one end."""
    run = clockwork(dag_of(()), [100.0], timeouts_s=[5.0], stops=((6.0, None),), cancel_s=3.0)
    assert {0: "cancelled"} == run.status


def test_late_while_stopping():
    """A deadline that passes while a stopped request is ending changes nothing."""
    run = clockwork(dag_of((), (0,)), [100.0, 1.0], timeouts_s=[5.0, 5.0], stops=((4.0, (0,)),), cancel_s=3.0)
    assert {0: "cancelled", 1: "skipped"} == run.status


def test_stopping_before_the_start_starts_nothing():
    """What was stopped before it began is over: `start` sends nothing."""
    conductor = Conductor(dag_of((), (0,)), Policy(), timeouts_s=[9.0, 9.0])
    stopped = conductor.cancel(0.0)
    assert Done(cut=True) in stopped
    assert not [one for one in conductor.start(1.0) if isinstance(one, Send)]


def test_layers_wait_for_every_agent_of_earlier_layers():
    """The barrier opens when the last agent of the layer has ended, failed ones and their waits too."""
    dag = dag_of((), (), (0,), (1,))
    steps = {
        (0, 1): Step(1.0),
        (1, 1): Step(1.0, Failure("x", 2, retry_after_s=4.0)),
        (1, 2): Step(1.0, Failure("x", 2)),
        (2, 1): Step(1.0),
    }
    run = Clockwork(dag, lambda *one: steps[one], Policy(8, "layers")).run()
    assert ["succeeded", "failed", "succeeded", "skipped"] == [run.status[one] for one in range(4)]
    start = next(at for at, agent, *_ in run.launches if agent == 2)
    assert start == next(at for at, action in run.log if isinstance(action, AgentEnded) and action.agent == 1) >= 6.0


def test_a_chain_of_ten_thousand_and_a_layer_of_ten_thousand_run():
    """Nothing recurses."""
    chain = dag_of((), *((one,) for one in range(9_999)))
    assert 10_000.0 == clockwork(chain, [1.0] * 10_000).makespan
    assert 1250.0 == clockwork(dag_of(*[()] * 10_000), [1.0] * 10_000).makespan
    failing = Clockwork(chain, lambda *_: Step(1.0, Failure("x"))).run()
    assert 9_999 == sum(status == "skipped" for status in failing.status.values())


def test_the_wrong_report_is_refused():
    """An answer of an agent that does not run is a fault of the driver, and is told at once."""
    conductor = Conductor(dag_of((), (0,)), Policy(), timeouts_s=[9.0, 9.0])
    conductor.start(0.0)
    for report in (conductor.succeeded, conductor.cancelled):
        with pytest.raises(RuntimeError):
            report(1, 1.0)


dags = (
    st.integers(1, 12)
    .flatmap(
        lambda count: st.tuples(
            *[st.sets(st.integers(0, max(0, one - 1)), max_size=3) if one else st.just(set()) for one in range(count)]
        )
    )
    .map(lambda rows: dag_of(*map(tuple, rows)))
)
# Multiples of 1/16 add up exactly, in any order.
times = st.integers(0, 160).map(lambda one: one / 16)
some_time = st.integers(1, 160).map(lambda one: one / 16)
failures = st.builds(
    Failure,
    st.just("x"),
    st.integers(1, 3),
    retry_after_s=st.none() | times,
    stops_run=st.sampled_from([False] * 9 + [True]),
)


@given(dags, st.lists(times, min_size=12, max_size=12), st.integers(1, 5))
def test_times_of_runs_without_failures(dag, work_s, slots):
    """Room for all: exactly the longest path. Layers: exactly the sum of each layer's longest. Sequential: the sum.

    With fewer slots the ready set is never later than total work shared by the slots plus the longest path.
    """
    count = len(dag.parents)
    work_s = work_s[:count]
    _, longest = dag.longest_path(work_s)
    assert longest == clockwork(dag, work_s, policy=Policy(UNLIMITED)).makespan
    barriers = sum(max(work_s[one] for one in layer) for layer in dag.layers())
    assert barriers == clockwork(dag, work_s, policy=Policy(UNLIMITED, "layers")).makespan
    assert sum(work_s) == clockwork(dag, work_s, policy=Policy(slots, "sequential")).makespan
    for known in (None, work_s):
        run = clockwork(dag, work_s, policy=Policy(slots), work_s=known)
        assert max(longest, sum(work_s) / slots) <= run.makespan
        assert run.makespan * slots <= sum(work_s) + (slots - 1) * longest
        assert count == len(run.launches)
        assert {"succeeded"} == set(run.status.values())


@given(dags, st.lists(some_time, min_size=12, max_size=12), st.integers(1, 4))
def test_no_slot_stays_empty_while_somebody_is_ready(dag, work_s, slots):
    """The ready set keeps every slot busy that it can."""
    run = clockwork(dag, work_s, policy=Policy(slots))
    for agent, ready in run.ready_s.items():
        start = next(at for at, one, *_ in run.launches if one == agent)
        if start > ready:
            spans = [(at, at + work_s[one]) for at, one, *_ in run.launches]
            for moment in {ready, *(at for span in spans for at in span if ready <= at < start)}:
                assert slots == sum(at <= moment < end for at, end in spans)


controls = st.sampled_from(["retry", "retry", "skip", "pause", "resume"])


def _ended_by_resume(wanted):
    """Let no pause last for ever, and skip nobody by no name."""
    return (*((at, what, who or (0,) if what == "skip" else who) for at, what, who in wanted), (50.0, "resume", None))


@st.composite
def troubles(draw):
    """A plan with everything that can happen to it."""
    dag = draw(dags)
    count = len(dag.parents)
    table = draw(
        st.dictionaries(
            st.tuples(st.integers(0, count - 1), st.integers(1, 3)),
            st.builds(Step, times, failures),
            max_size=count * 2,
        )
    )
    work_s = draw(st.lists(times, min_size=count, max_size=count))
    who = st.none() | st.lists(st.integers(0, count - 1), max_size=3).map(tuple)
    return Clockwork(
        dag,
        lambda agent, number: table.get((agent, number), Step(work_s[agent])),
        Policy(
            draw(st.integers(1, 4)),
            draw(st.sampled_from(get_args(Schedule))),
            max_attempts=draw(st.integers(1, 4)),
            seed=draw(st.integers(0, 9)),
        ),
        timeouts_s=draw(st.none() | st.lists(some_time, min_size=count, max_size=count)),
        stops=tuple(draw(st.lists(st.tuples(times, who), max_size=3))),
        controls=_ended_by_resume(draw(st.lists(st.tuples(times, controls, who), max_size=4))),
        keeps=frozenset(draw(st.sets(st.integers(0, count - 1), max_size=2))),
        cancel_s=draw(st.sampled_from([0.0, 0.5])),
    )


@settings(max_examples=400)
@given(troubles())
def test_whatever_happens_the_rules_hold(run):
    """`Clockwork` checks order, slots, waits, deadlines and single ends at every step; here the end is checked."""
    run.run()
    dag, failed = run.dag, {one for one, status in run.status.items() if status != "succeeded"}
    assert run.finished is not None
    assert run.finished.cut == run.cut
    below = dag.descendants(failed)
    for agent, status in run.status.items():
        if status == "skipped":
            cause = run.cause[agent]
            by_name = run.errors[agent] == "skipped by the user"
            assert by_name == (cause is None)
            assert by_name or cause in dag.ancestors([agent])
            assert by_name or run.errors[cause] or run.status[cause] in {"failed", "cancelled"}
        if status == "succeeded":
            assert agent not in below
        if status == "failed":
            assert run.errors[agent]
        if agent in below and agent not in run.ready_s:
            assert status in {"skipped", "cancelled"}
        if status == "cancelled":
            assert run.errors[agent]
    assert run.conductor.running == 0


@given(troubles())
def test_a_seed_makes_a_run_repeatable(run):
    """The same plan, policy and events give the same actions."""
    first = run.run().log
    run.__post_init__()
    assert first == run.run().log


@given(dags, st.lists(some_time, min_size=12, max_size=12))
def test_without_failures_the_schedule_changes_no_attempt(dag, work_s):
    """Every agent is asked exactly once in every schedule, so tokens do not depend on it."""
    for schedule in get_args(Schedule):
        for slots in (1, 3):
            run = clockwork(dag, work_s, policy=Policy(slots, schedule))
            assert [(one, 1) for one in range(len(dag.parents))] == sorted((one[1], one[2]) for one in run.launches)
            assert not [one for _, one in run.log if isinstance(one, Backoff)]
