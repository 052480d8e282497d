"""What a provider says it can send: what it cannot is refused when a plan meets it, never dropped."""

# pyright: reportArgumentType=false

from __future__ import annotations

import asyncio
import base64
import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import agent_magic as am
from agent_magic.errors import DeclarationError, PlanError, Rejected
from agent_magic.providers import EVERYTHING, Answer, Capabilities, Provider, Usage, check_request
from agent_magic.providers.capabilities import REFUSALS, needed_by
from agent_magic.record import Request

PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==")
DOT = am.image(PNG, title="dot")


def look(word: str) -> str:
    """Look a word up."""
    return word


class Own(Provider):
    """A provider of the user's own: `capabilities` where it says some, else none."""

    endpoint = "https://own.example"
    is_limited = False

    def __init__(self, **can: bool) -> None:
        if can:
            self.capabilities = Capabilities(**can)
        self.asked: list[Request] = []

    async def send(self, request: Any, stream: Any) -> Answer:
        """Answer."""
        self.asked.append(request)
        stream.replied(200)
        stream.opened()
        stream.add("fine")
        return Answer("fine", "end_turn", usage=Usage(3, output_tokens=1), model=request.model)


def agent(prompt: str = "Go.", **options: Any) -> am.Agent:
    """One agent."""
    return am.Agent("a", prompt, model="small", **options)


PRICES = {"small": am.TokenPrice(1, 1)}
NOTE, PICTURE = {"note": "Read me."}, {"dot": DOT}
# by capability: an agent that needs it, the values of its plan, what else it needs
CASES: dict[str, tuple[am.Agent, dict[str, Any], dict[str, bool]]] = {
    "tools": (agent(tools=[look]), {}, {}),
    "server_tools": (agent(tools=["web_search"]), {}, {}),
    "images": (agent(attach=["dot"]), PICTURE, {}),
    "documents": (agent(attach=["note"]), NOTE, {}),
    "citations": (agent(attach=["note"], cite=True), NOTE, {"documents": True}),
    "effort": (agent(effort="low"), {}, {}),
    "sampling": (agent(temperature=0.5), {}, {}),
    "stop": (agent(stop="END"), {}, {}),
    "extra": (agent(extra={"service_tier": "auto"}), {}, {}),
}


def run(plan: am.Plan, client: Any, **more: Any) -> am.Run:
    """Run a plan."""
    return asyncio.run(plan.run(client=client, prices=PRICES, **more))


def test_every_refusal_has_a_case():
    """A new capability is refused somewhere, or said not to be; and each case below is one."""
    assert {one.name for one in dataclasses.fields(Capabilities)} == {*REFUSALS, "schemas"}
    assert set(CASES) == set(REFUSALS)


@pytest.mark.parametrize("capability", CASES)
@pytest.mark.parametrize("how", ["run", "estimate"])
def test_what_a_provider_lacks_is_refused(capability: str, how: str):
    """All but one capability is no help: the agent, its option and the provider are named, and nothing is sent."""
    one, values, _ = CASES[capability]
    plan = am.Plan([one], values=values)
    client = Own(**{name: name != capability for name in REFUSALS})
    option, words = REFUSALS[capability]
    with pytest.raises(DeclarationError) as caught:
        run(plan, client) if how == "run" else plan.estimate(client=client)
    assert "a" == caught.value.agent
    said = str(caught.value)
    assert said.startswith(f"Agent 'a' has {option}=")
    assert f"and Own (https://own.example) {words}. Nothing was sent." in said
    assert f"capabilities = Capabilities({capability}=True)" in said
    assert [] == client.asked


def test_the_whole_message():
    """What happened, the value, and both ways out."""
    with pytest.raises(DeclarationError) as caught:
        run(am.Plan([agent(tools=[look])]), Own())
    assert (
        "Agent 'a' has tools=['look'], and Own (https://own.example) takes no tools. Nothing was sent. Take the option "
        "out, or connect to a provider that can. If this one can, its class says so: capabilities = "
        "Capabilities(tools=True)."
    ) == str(caught.value)


@pytest.mark.parametrize("capability", CASES)
def test_one_line_says_what_a_provider_can(capability: str):
    """With the capability the request is sent, and holds what the agent asks for."""
    one, values, more = CASES[capability]
    client = Own(**{capability: True, **more})
    assert run(am.Plan([one], values=values), client).ok
    [asked] = client.asked
    assert getattr(needed_by(asked), capability)


def test_text_needs_nothing_said():
    """Context, system prompt and answers of others reach a provider that says nothing of itself."""
    client = Own()
    steps = [agent(system="Be short.", context="rules"), am.Agent("b", "After {{ a }}.", model="small")]
    assert run(am.Plan(steps, values={"rules": "No rules."}), client).ok
    assert ["No rules.", "Be short.", "Go."] == [
        client.asked[0].context,
        client.asked[0].system,
        client.asked[0].prompt,
    ]
    assert "After fine." == client.asked[1].prompt


def test_where_a_picture_stands_is_named():
    """A picture in a prompt or a context is refused as one that is attached."""
    with pytest.raises(DeclarationError, match=r"^Agent 'a' has images in its prompt, and Own \("):
        run(am.Plan([agent("See {{ dot }}.")], values=PICTURE), Own(documents=True))
    with pytest.raises(DeclarationError, match=r"^Agent 'a' has context='dot', and Own \("):
        run(am.Plan([agent(context="dot")], values=PICTURE), Own(documents=True))


def test_an_answer_that_is_attached_is_a_document():
    """Before the run nobody has it, and it is refused all the same: what comes before is not paid for in vain."""
    client = Own(images=True)
    plan = am.Plan([am.Agent("first", "Write.", model="small"), agent(attach=["first"])])
    with pytest.raises(DeclarationError, match=r"attach=\['first'\], and Own .* takes no documents"):
        run(plan, client)
    assert [] == client.asked


@am.task
def draw() -> Any:
    """Return a picture."""
    return DOT


def test_what_nobody_knew_of_fails_its_agent():
    """A picture that a task returns is not sent without its bytes: the agent fails, at no cost."""
    client = Own(documents=True)
    done = run(am.Plan([draw, agent("See {{ draw }}.")]), client)
    assert "failed" == done["a"].status
    said = "The request has images, and Own (https://own.example) takes no pictures. It was not sent."
    assert said in str(done["a"].error)
    assert [] == client.asked
    assert 0.0 == done.totals.cost_usd
    assert run(am.Plan([draw, agent("See {{ draw }}.")]), Own(images=True)).ok


def test_batches_are_refused_by_name():
    """An agent that asks for them is named, in an estimate as well; a policy has no agent to name."""
    with pytest.raises(DeclarationError, match=r"Agent 'a' has batch='on', and Own \(https://own.example\) has no"):
        am.Plan([agent(batch=True)]).estimate(client=Own())
    with pytest.raises(PlanError, match=r"https://own.example has no batches"):
        am.Plan([agent()]).estimate(am.Policy(batch=True), client=Own())


def test_a_type_is_read_and_its_schema_missed_once(caplog: pytest.LogCaptureFixture):
    """A typed answer loses no guarantee, so it is not refused; that the model is not told the type is said once."""
    session = am.Session(client=Own(), prices=PRICES)
    plan = am.Plan([agent(returns=str)])
    for _ in range(2):
        plan.estimate(session=session)
    said = (
        "Own (https://own.example) sends no schemas: the answers of 'a' are read by its type, but the model is not "
        "told it. If this one can, its class says so: capabilities = Capabilities(schemas=True)."
    )
    assert [said] == [one.message for one in caplog.records]
    caplog.clear()
    plan.estimate(client=Own(schemas=True), prices=PRICES)
    assert [] == caplog.records


def test_a_pool_can_what_all_its_members_can():
    """A request goes to any of them."""
    pool = am.Pool({"one": Own(tools=True, effort=True), "other": Own(tools=True)})
    assert Capabilities(tools=True) == pool.capabilities
    with pytest.raises(DeclarationError, match=r"effort='low', and Pool \("):
        run(am.Plan([agent(effort="low")]), pool)


def test_the_api_can_all():
    """The Messages API, and workers that ask it."""
    client = am.Claude(api_key="x")
    assert EVERYTHING == client.capabilities
    assert EVERYTHING == am.Dask(client=client).capabilities


def test_a_trial_is_refused_before_its_first_setting_is_paid_for():
    """Of the settings all are looked at first."""
    client = Own()
    rows = [{"text": one, "want": "fine"} for one in "abc"]
    done = run(am.Plan([agent("{{ item.text }}", each="rows")], values={"rows": rows}), client)
    before = len(client.asked)
    trial: Any = done.trial("a", effort=[None, "low"], truth="want", n=2)
    with pytest.raises(DeclarationError, match="effort='low'"):
        asyncio.run(trial)
    assert before == len(client.asked)


@given(st.builds(Capabilities, **{name: st.booleans() for name in REFUSALS}), st.sampled_from(sorted(CASES)))
def test_sent_whole_or_not_at_all(can: Capabilities, capability: str):
    """A request passes only where its provider can do each thing that it needs."""
    one, values, _ = CASES[capability]
    maker = Own(**dict.fromkeys(REFUSALS, True))
    run(am.Plan([one], values=values), maker)
    needed, client = needed_by(maker.asked[0]), Own()
    client.capabilities = can
    if all(getattr(can, name) for name in REFUSALS if getattr(needed, name)):
        check_request(maker.asked[0], client)
    else:
        with pytest.raises(Rejected, match="It was not sent"):
            check_request(maker.asked[0], client)
