"""What a user holds: plans, runs, and the script of the front page."""

# Tests hand over wrong types on purpose, and take for granted what they have just checked.
# pyright: reportArgumentType=false
# pyright: reportAttributeAccessIssue=false
# pyright: reportOptionalOperand=false

from __future__ import annotations

import asyncio
import copy
import json
import pickle
from types import SimpleNamespace
from typing import Any

import pytest
from anthropic import Anthropic, AsyncAnthropic, DefaultAioHttpClient
from jinja2 import Environment

import agent_magic as am
from agent_magic.declare.sandbox import Sandbox
from agent_magic.errors import DeclarationError, RunFailed, UnknownAgent, Unreachable
from agent_magic.providers import Provider, as_provider
from agent_magic.simulator import child
from tests.declare.examples import E2
from tests.live.virtual import Reply, Scripted, drive


@pytest.fixture(scope="module")
def stand_in():
    """A stand-in API without delays or limits."""
    with child.start(latency="none", unlimited=True) as simulator:
        yield simulator


def run_of(plan, script=lambda *_: Reply(2.0), policy=None):
    """Run a plan on a virtual clock."""
    return am.Run(drive(plan, script, policy)[0])


def business_plan():
    """E2."""
    return am.Plan(E2.plan.agents)


ROLES = "RESEARCHER RESEARCHER PLANNER PLANNER ANALYZER WRITER CRITIC CRITIC SYNTHESIZER".split()
COORDINATED = json.dumps(
    {
        "description": "A business plan",
        "depth": 4,
        "agents": [
            {"role": role, "task": f"Do part {place} of the business plan.", "depends_on": list(parents)}
            for place, (role, parents) in enumerate(zip(ROLES, E2.parents, strict=True))
        ],
    }
)


def test_a_plan_as_coordinators_write_it(stand_in):
    """Roles in capitals and parents by place: the plan runs, and every agent is sent the answers of its parents."""
    plan = am.Plan.from_json(COORDINATED)
    assert E2.plan.dag == plan.dag
    run = asyncio.run(plan.run(client=am.Claude(base_url=stand_in.url, api_key="any")))
    run.raise_for_failures()
    for agent in plan.agents:
        request = run[agent.name].attempts[-1].request
        assert agent.system_text == request.system != ""
        assert all(run[parent].text in request.prompt for parent in plan.parents(agent.name))
    assert "note: depends_on adds the answers" in plan._repr_mimebundle_()["text/plain"]


def test_the_script_of_the_front_page(stand_in):
    """Declare, run with a client and a policy, read frames and results: no magic needed."""
    plan = am.Plan(
        [
            am.Agent("python", "Frameworks for {{ topic }}?"),
            am.Agent("compare", "Compare {{ python }}", max_tokens=4000),
        ],
        values={"topic": "a web API"},
    )
    client = am.Claude(base_url=stand_in.url, api_key="any")
    run = asyncio.run(plan.run(client=client, policy=am.Policy(concurrency=8)))
    assert run.ok
    run.raise_for_failures()
    assert ["python", "compare"] == list(run.agents["agent"])
    assert {"simulated"} == set(run.attempts["source"])
    assert run["compare"].text
    assert run["python"].cost_usd > 0
    assert run["python"].usage.output_tokens > 0
    assert "end_turn" == run["python"].stop_reason
    assert 1 == len(run.summary)
    assert 2 == len(run.layers)
    assert run.summary["wall_s"][0] >= run.summary["critical_path_s"][0] > 0


def test_a_cut_answer_is_passed_on_and_that_is_said(caplog):
    """`on_max_tokens`: the default names the agents in a log line, `allow` is silent, `fail` fails them."""
    plan = am.Plan([am.Agent("a", "x"), am.Agent("b", "y")])
    client = Scripted(lambda prompt, _: Reply(0.0, stop_reason="max_tokens" if prompt == "x" else "end_turn"))
    assert asyncio.run(plan.run(client=client)).ok
    (line,) = caplog.messages
    assert "max_tokens" in line
    assert ": a." in line
    caplog.clear()
    assert asyncio.run(plan.run(am.Policy(on_max_tokens="allow"), client=client)).ok
    assert [] == caplog.messages
    assert "failed" == asyncio.run(plan.run(am.Policy(on_max_tokens="fail"), client=client))["a"].status


def test_a_part_of_an_answer_can_be_used(stand_in):
    """Its second line, say: estimated, run, forecast and done by one agent, and a failure where there is none."""
    plan = am.Plan([am.Agent("a", "[[echo]] one\ntwo"), am.Agent("b", "[[echo]] <{{ a.splitlines()[1] }}>")])
    assert 2 == len(plan.estimate().agents)
    run = asyncio.run(plan.run(client=am.Claude(base_url=stand_in.url, api_key="any")))
    assert "<two>" in run["b"].text
    assert "splitlines" in plan.baseline().prompt("baseline", {})
    short = am.Plan([am.Agent("a", "[[echo]] one"), *plan.agents[1:]])
    run = asyncio.run(short.run(client=am.Claude(base_url=stand_in.url, api_key="any")))
    assert ["succeeded", "failed"] == list(run.agents["status"])
    assert "list object has no element 1" in str(run["b"].error)
    assert 2 == len(run.whatif(concurrency=[1, 2]))


def test_the_stand_in_is_asked_as_the_plan_says(stand_in):
    """`[[echo]]` sends a prompt back: each child's prompt holds its parents' answers, in the real SDK too."""
    plan = am.Plan([am.Agent("a", "[[echo]] one 😀 {x}"), am.Agent("b", "[[echo]] <{{ a }}>")])
    run = asyncio.run(plan.run(client=am.Claude(base_url=stand_in.url, api_key="any")))
    assert "one 😀 {x}" in run["a"].text
    assert run["a"].text.strip() in run["b"].text


STAND_IN_FAULTS = {
    "[[status:529]]": ("Overloaded", 3),
    "[[status:400]]": ("Rejected", 1),
    "[[fault:reset]]": ("Unreachable", 3),
    "[[fault:cut]]": ("Unreachable", 3),
    "[[fault:clean_end]]": ("Truncated", 2),
    "[[fault:empty]]": ("Truncated", 2),
    "[[fault:error_event]]": ("Overloaded", 3),
    "[[fault:broken_json]]": ("Unreadable", 2),
    "[[fault:wrong_bytes]]": ("Truncated", 2),
    "[[fault:html status=200]]": ("Unreadable", 2),
    "[[stop:refusal]]": ("Refused", 1),
}


def test_the_faults_of_the_stand_in(stand_in, monkeypatch):
    """Every fault it can make is named and repeated as its kind is worth; nobody else is touched."""
    from agent_magic.engine import retry

    monkeypatch.setattr(retry, "FIRST_BACKOFF_S", 0.001)
    agents = [am.Agent(f"f{number}", f"{marker} please") for number, marker in enumerate(STAND_IN_FAULTS)]
    plan = am.Plan(
        [*agents, am.Agent("good", "x"), *(am.Agent(f"after_{one.name}", "x", after=one.name) for one in agents)]
    )
    run = asyncio.run(plan.run(client=am.Claude(base_url=stand_in.url, api_key="any")))
    found = {
        marker: (run[f"f{number}"].attempts[-1].kind, len(run[f"f{number}"].attempts))
        for number, marker in enumerate(STAND_IN_FAULTS)
    }
    assert STAND_IN_FAULTS == found
    assert "succeeded" == run["good"].status
    assert {"skipped"} == {run[f"after_{one.name}"].status for one in agents}
    assert (1, len(agents), len(agents)) == tuple(run.summary.loc[0, ["succeeded", "failed", "skipped"]])


def test_a_hundred_agents_at_once(stand_in):
    """All finish, each exactly once, with one client."""
    plan = am.Plan([am.Agent(f"a{one}", f"[[tokens:20]] {one}") for one in range(100)])
    run = asyncio.run(plan.run(am.Policy(50), client=am.Claude(base_url=stand_in.url, api_key="any")))
    assert (100, 100, 2000) == (run.summary["succeeded"][0], len(run.attempts), run.summary["output_tokens"][0])


def test_a_client_of_the_sdk_is_taken(stand_in):
    """`client=AsyncAnthropic(...)` works as it is."""

    async def work():
        async with AsyncAnthropic(
            api_key="any", base_url=stand_in.url, http_client=DefaultAioHttpClient(trust_env=False)
        ) as sdk:
            return await am.Plan([am.Agent("a", "x")]).run(client=sdk)

    assert asyncio.run(work()).ok


def test_who_answers():
    """Nothing means `Claude()`; anything with the methods of a client is one."""
    assert isinstance(as_provider(None), am.Claude)
    client = Scripted(None)
    assert client is as_provider(client)


def test_what_cannot_answer_is_refused():
    """A client that is none is an error of ours at once, not a failure of every agent."""
    for wrong in ("claude", 5, object()):
        with pytest.raises(am.AgentMagicError):
            as_provider(wrong)
    for wrong in ("sk-" + "ant-api03-secret", 5, Anthropic(api_key="x")):
        with pytest.raises(am.AgentMagicError, match="cannot answer") as told:
            am.Claude(client=wrong)
        assert "secret" not in str(told.value)


def test_a_provider_without_an_address_is_told_what_to_write():
    """The ledger finds answers by it, so there is none to be made up."""

    class Mute(Provider):
        async def send(self, request, stream):
            """Never asked."""

    made: Any = Mute
    with pytest.raises(am.AgentMagicError, match=r"'Mute' has no endpoint\. Write one into its class"):
        as_provider(made())


def test_a_source_that_a_provider_makes_up_is_an_answer_bought_now():
    """It is shown, recorded and found in the ledger like any other: nothing is paid for twice."""
    session = am.Session(client=Scripted(lambda *_: Reply(0.0, source="cached")), ledger=am.Ledger())
    runs = [asyncio.run(am.Plan([am.Agent("a", "x")]).run(session=session)) for _ in range(2)]
    assert [["live"], ["ledger"]] == [run.agents["source"].tolist() for run in runs]
    assert "live" in repr(runs[0])
    assert 1 == len(session.client.asked)


def test_clients_of_another_kind_are_told_what_to_give():
    """A class, an address, a client that blocks, and one of the chat completions API: each has its own way in."""
    chat = SimpleNamespace(chat=SimpleNamespace(completions=object()))
    ways = [(am.Claude, r"Call it: client=Claude\("), (chat, r"am\.Chat\("), (Anthropic(api_key="x"), "AsyncAnthropic")]
    for wrong, way in (*ways, ("http://127.0.0.1:9/v1", r"am\.Claude\(base_url")):
        with pytest.raises(am.AgentMagicError, match=way):
            as_provider(wrong)


def test_failures_are_raised_when_asked_for():
    """`RunFailed` names the agents that did not succeed, and why; at most ten lines of them, one for each reason."""
    plan = am.Plan([*(am.Agent(f"a{one}", f"x{one}") for one in range(18)), am.Agent("good", "y")])

    def why(prompt):
        return "gone" if int(prompt[1:]) < 6 else f"lost {prompt}"

    run = run_of(
        plan,
        lambda prompt, _: Reply(error=None if prompt == "y" else Unreachable(why(prompt))),
        am.Policy(max_attempts=1),
    )
    assert not run.ok
    with pytest.raises(RunFailed) as caught:
        run.raise_for_failures()
    assert {f"a{one}": f"Unreachable: {why(f'x{one}')}" for one in range(18)} == caught.value.failures
    assert "  a0, a1, a2, a3 and 2 more: Unreachable: gone" in str(caught.value).splitlines()
    assert len(str(caught.value).splitlines()) <= 15
    assert "  and 3 more" in str(caught.value).splitlines()


def test_a_good_run_raises_nothing():
    """All succeeded: `raise_for_failures` returns."""
    run = run_of(business_plan())
    assert run.ok
    assert run.raise_for_failures() is None


def test_results_by_name():
    """`run["name"]` is what became of an agent; a wrong name brings the nearest."""
    run = run_of(am.Plan([am.Agent("writer", "x")]))
    assert ("answer", "succeeded", 5) == (run["writer"].text, run["writer"].status, run["writer"].usage.output_tokens)
    with pytest.raises(UnknownAgent, match="Did you mean 'writer'"):
        run["wirter"]


def test_reprs_are_one_line():
    """Plan and run say in a line what they are; no prompt, no answer in it."""
    plan = am.Plan([am.Agent("a", "the secret prompt"), am.Agent("b", "{{ a }}")], name="n")
    run = run_of(plan, lambda *_: Reply(2.0, text="the secret answer"))
    assert "Plan('n': 2 agents in 2 layers)" == repr(plan)
    assert repr(run).startswith("Run('n': 2 agents in 2 layers · ")
    for text in (repr(plan), repr(run)):
        assert "\n" not in text
        assert "secret" not in text


@pytest.mark.parametrize("make", [business_plan, lambda: run_of(business_plan())], ids=["plan", "run"])
def test_the_bundle_for_notebooks(make):
    """A picture and its text; no HTML, so that every viewer shows the picture."""
    bundle = make()._repr_mimebundle_(include=None, exclude=None)
    assert {"image/svg+xml", "text/plain"} == set(bundle)
    assert bundle["image/svg+xml"].startswith("<svg")
    for agent in E2.plan.names:
        assert agent in bundle["text/plain"]


def test_totals_are_the_summary_as_a_value():
    """`run.totals` and `run.summary` say the same."""
    run = run_of(business_plan())
    row = run.summary.iloc[0]
    assert (run.totals.wall_s, run.totals.bound, run.totals.verdict) == (row.wall_s, row.bound, row.verdict)
    assert run.plan is run.record.plan


def test_a_plan_goes_to_json_and_back():
    """`to_json`, `from_json`, `to_dict`, `from_dict` give plans that run."""
    plan = business_plan()
    again = am.Plan.from_json(plan.to_json())
    assert plan == again == am.Plan.from_dict(plan.to_dict())
    assert isinstance(again, am.Plan)
    assert plan.to_dict() == json.loads(plan.to_json(indent=None))
    assert run_of(again).ok


@pytest.mark.parametrize("copied", [lambda one: pickle.loads(pickle.dumps(one)), copy.deepcopy], ids=["pickle", "copy"])
def test_plans_and_runs_pass_between_processes(copied):
    """A copy runs, tells the same numbers, answers what-ifs, and is as frozen as the plan it was made from."""
    rows = am.Agent("each_row", "{{ item }} {{ title }}", each="rows")
    plan = am.Plan(
        [rows, am.Agent("all", "{{ each_row }}", context="doc")], {"rows": ["x", "y"], "title": "t", "doc": "d"}
    )
    run = run_of(plan)
    again = copied(run)
    assert plan == copied(plan) == again.plan
    assert plan.to_dict() == copied(plan).to_dict()
    assert run.agents.equals(again.agents)
    assert run.whatif(concurrency=[1, 2]).equals(again.whatif(concurrency=[1, 2]))
    assert run_of(again.plan).ok
    forecast = run.forecast(concurrency=2)
    assert forecast.agents.equals(copied(forecast).agents)
    with pytest.raises(TypeError):
        copied(plan).values["title"] = "u"


def test_the_input_of_a_plan_is_counted(stand_in):
    """Per agent what the API says of its prompt; an estimate that is handed the counts says that they were counted."""
    plan = am.Plan([am.Agent("a", "One, two, three, four."), am.Agent("b", "And {{ a }}")])
    client = am.Claude(base_url=stand_in.url, api_key="any")
    counted = asyncio.run(plan.count_tokens(client=client))
    assert counted[0] == asyncio.run(plan.run(client=client))["a"].usage.input_tokens
    assert "1 counted" in str(plan.estimate(counted=counted))


def test_without_a_counter_nothing_is_counted():
    """Where the API does not say, or nobody has a key, there are no counts."""
    plan = am.Plan([am.Agent("a", "x")])
    nowhere = am.Claude(base_url="http://127.0.0.1:9", api_key="any")
    assert [None] == asyncio.run(plan.count_tokens(client=nowhere))


def test_a_selection_runs_too():
    """`select` gives a plan of the same kind."""
    part = business_plan().select(["a6"])
    assert isinstance(part, am.Plan)
    assert 5 == len(run_of(part).agents)


def test_a_plan_that_cannot_work_sends_nothing(stand_in):
    """A prompt whose expression fails is refused before any spend."""
    client = Scripted(lambda *_: Reply())

    class Mute:
        def __str__(self):
            raise RuntimeError("no text")

    for prompt in ("{{ v.no.no }}", "{{ mute }}", "{{ mute }} {{ 1 + 1 }}"):
        plan = am.Plan([am.Agent("a", "x"), am.Agent("b", prompt)], {"v": {}, "mute": Mute()})
        with pytest.raises(DeclarationError, match="The prompt of agent 'b' cannot be rendered"):
            asyncio.run(plan.run(client=client))
    assert not client.asked


def test_a_prompt_is_parsed_once_and_rendered_twice(monkeypatch):
    """From the declaration to the answer Jinja2 reads a prompt once; it is rendered to be checked, and to be sent."""
    parsed, rendered = [], []
    monkeypatch.setattr(Sandbox, "parse", lambda *given: parsed.append(given[1]) or Environment.parse(*given))
    agents = [am.Agent("a", "{% if count() %}once{% endif %} {{ item }}", each="items")]
    agents = [agent.with_defaults(max_tokens=5) for agent in agents]
    plan = am.Plan(agents, {"items": [1], "count": lambda: rendered.append(1) or True}).select("a")
    assert run_of(plan).ok
    assert (1, 0) == (len(parsed), len(rendered) - 1)
    asyncio.run(plan.run(client=Scripted(lambda *_: Reply())))
    assert (1, 2) == (len(parsed), len(rendered) - 1)


def test_tokens_do_not_depend_on_the_schedule():
    """The same run under any schedule and concurrency has the same tokens, attempts and dollars."""
    plan = business_plan()

    def script(prompt, _):
        return Reply(2.0, tokens=(len(prompt), 3, 0, 0))

    found = set()
    for schedule in ("ready", "layers", "sequential"):
        for concurrency in (1, 3, 9):
            run = run_of(plan, script, am.Policy(concurrency, schedule))
            found.add((run.totals.input_tokens, run.totals.output_tokens, run.totals.cost_usd, len(run.attempts)))
    assert 1 == len(found)
