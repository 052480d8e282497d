"""Plans in plans, run on the virtual loop: they ask what they ask alone, in one run."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agent_magic as am
from agent_magic import Policy
from agent_magic.api import Run
from agent_magic.errors import RateLimited, UnknownAgent
from tests.live.test_flow_runs import Straight, drawn, plan_of, script_of
from tests.live.virtual import Reply, drive


def boxed(steps):
    """A plan that an agent uses, in a plan that another one uses."""
    inside = am.Plan([am.Agent("middle", "middle")], {})
    inner = am.Plan(
        [*inside.agents, am.Agent("use", "use {{ box | default('-') }}", after="middle")], {"box": plan_of(steps)}
    )
    return am.Plan([am.Agent("first", "first"), am.Agent("outer", "outer", after="deep")], {"deep": inner})


def reply_to(steps):
    """Answer as the steps say; what is around them gets a text."""
    inside = script_of(steps)

    def reply(prompt, number):
        return inside(prompt, number) if prompt.startswith(("s", "rate")) else Reply(1.0, text="text")

    return reply


@settings(max_examples=60, deadline=None)
@given(drawn(), st.integers(1, 4))
def test_boxes_ask_what_their_plans_ask(tmp_path_factory, steps, concurrency):
    """As the straight-line interpreter does; a forecast is the run to the last bit, a replay decides the same."""
    straight = Straight(steps)
    plan = boxed(steps)
    record, client = drive(plan, reply_to(steps), Policy(concurrency, seed=1, max_attempts=1))
    sent = [one.prompt for one in client.asked if one.prompt.startswith(("s", "rate"))]
    assert sorted(straight.asked) == sorted(one for one in sent if not one.startswith("st"))
    ends = [(one.name, one.status, one.kind) for one in record.results]
    forecast = Run(record).forecast().record
    assert ends == [(one.name, one.status, one.kind) for one in forecast.results]
    assert [one.finished_s for one in record.results] == [one.finished_s for one in forecast.results]
    path = tmp_path_factory.mktemp("boxes") / "run.jsonl"
    Run(record).save(path)
    assert ends == [(one.name, one.status, one.kind) for one in boxed(steps).replay(path).record.results]


def test_a_plan_s_name_is_its_last_step_in_a_run_too():
    """As in a prompt: of a hedged step what answered, of a loop its last round; of many there is no one answer."""
    hedged = am.Plan([am.Agent("s", "s"), am.Agent("notes", "n {{ s }}", hedge=0.5)])
    loop = am.Plan([am.Agent("d", "d", until="'x' in d", rounds=3)])
    many = am.Plan([am.Agent("m", "m", repeat=2)])
    plan = am.Plan(
        [am.Agent("end", "e {{ hedged }} {{ loop }} {{ many }}")], {"hedged": hedged, "loop": loop, "many": many}
    )
    run = Run(drive(plan, lambda prompt, _: Reply(1.0, text="x" if prompt == "d" else f"<{prompt}>"))[0])
    assert ("hedged__notes", "loop__d_1") == (run["hedged"].name, run["loop"].name)
    assert run["end"].text.startswith("<e <n <s>> x <m>")
    with pytest.raises(UnknownAgent):
        run["many"]


LEAVES = 20


def flat():
    """Sixty leaves and three that collect them, declared side by side."""
    agents = []
    for level in ("three", "two", "one"):
        agents += [am.Agent(f"{level}_{one}", f"{level} {one}") for one in range(LEAVES)]
        uses = " ".join(f"{{{{ {level}_{one} }}}}" for one in range(LEAVES))
        before = {"three": "", "two": "{{ end_three }}", "one": "{{ end_two }}"}[level]
        agents.append(am.Agent(f"end_{level}", f"end {uses} {before}"))
    return am.Plan(agents)


def nested():
    """The same, a plan in a plan in a plan."""
    plan = None
    for level, before in (("three", ""), ("two", "three"), ("one", "two")):
        agents = [am.Agent(f"{level}_{one}", f"{level} {one}") for one in range(LEAVES)]
        uses = " ".join(f"{{{{ {level}_{one} }}}}" for one in range(LEAVES))
        end = am.Agent("end", f"end {uses} " + (f"{{{{ {before} }}}}" if before else ""))
        plan = am.Plan([*agents, end], {} if plan is None else {before: plan})
    return plan


@pytest.mark.parametrize("concurrency", [4, 16])
def test_nesting_multiplies_no_refusals(concurrency):
    """Sixty leaves in three levels are refused as often as side by side, at the same moments: there is one pacer."""

    def refusing():
        sent = count()

        def reply(*_):
            refused = next(sent) % 9 == 4
            return Reply(0.2, RateLimited("busy", retry_after_s=2.0), status=429) if refused else Reply(1.0, text="t")

        return reply

    ran = [drive(plan, refusing(), Policy(concurrency, seed=1))[0] for plan in (flat(), nested())]
    attempts = [[(one.started_s, one.ended_s, one.status_code) for one in record.attempts] for record in ran]
    assert attempts[0] == attempts[1]
    assert 429 in {status for _, _, status in attempts[0]}
