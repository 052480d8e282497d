"""Agents that go on in the conversation of another: what they send, what they cost, and what is bought once."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import agent_magic as am
from agent_magic.errors import DeclarationError, PlanError, UndefinedVariable
from agent_magic.simulator import Simulator, start
from tests.live.test_tool_turns import begin, block, end
from tests.providers.wire import reply, serving

PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==")
DOT = am.image(PNG, title="dot")
SONNET, OPUS = "claude-sonnet-5-5", "claude-opus-5-5"


@pytest.fixture(scope="module")
def server() -> Iterator[Simulator]:
    """Serve at once. It refuses thinking that stands in another conversation than the one it was signed for."""
    with start(latency="none", unlimited=True) as running:
        yield running


def look(word: str = "") -> Any:
    """Look a word up."""
    return f"found {word}"


def session_of(server: Simulator, ledger: Any = ":memory:") -> am.Session:
    """A session that reuses what was simulated."""
    kept = am.Ledger(ledger, reuse_simulated=True)
    return am.Session(client=am.Claude(base_url=server.url, api_key="any"), ledger=kept)


def run(plan: am.Plan, session: am.Session, **more: Any) -> am.Run:
    """Run a plan to its end."""
    return asyncio.run(plan.run(session=session, **more))


def analyst(**more: Any) -> am.Agent:
    """An agent that thinks and calls a tool, with enough text for the cache."""
    asks = '[[think]] [[tool@1:look {"word": "north"}]] [[tool@2:look {"word": "south"}]]'
    return am.Agent("analyst", f"{'Long. ' * 3000}{asks}", tools=[look], model=SONNET, effort="high", **more)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
WORDS = TEXTS.filter(str.strip)
THINKING = st.builds(lambda text, sign: {"type": "thinking", "thinking": text, "signature": sign}, TEXTS, WORDS)
REDACTED = st.builds(lambda data: {"type": "redacted_thinking", "data": data}, WORDS)
SAID = st.builds(lambda text: {"type": "text", "text": text}, WORDS)
BEFORE = st.lists(st.one_of(THINKING, REDACTED, SAID), max_size=3)


def calling(number: int) -> Any:
    """A block that asks for a call, with arguments in odd forms."""
    words = st.dictionaries(st.just("word"), TEXTS, max_size=1)
    return words.map(lambda given: {"type": "tool_use", "id": f"call_{number}", "name": "look", "input": given})


@st.composite
def answers(draw: Any) -> list[list[dict[str, Any]]]:
    """The blocks of each response of one agent: some that ask for calls, and the last."""
    turns = [[*draw(BEFORE), draw(calling(number))] for number in range(draw(st.integers(0, 2)))]
    return [*turns, [*draw(BEFORE), draw(SAID)]]


def streamed(blocks: list[dict[str, Any]]) -> bytes:
    """A response with these blocks, as a stream."""
    parts = b"".join(_streamed(place, one) for place, one in enumerate(blocks))
    return reply(begin() + parts + end("tool_use" if blocks[-1]["type"] == "tool_use" else "end_turn"))


def _streamed(place: int, one: dict[str, Any]) -> bytes:
    match one["type"]:
        case "text":
            return block(place, {**one, "text": ""}, {"type": "text_delta", "text": one["text"]})
        case "thinking":
            signed = {"type": "signature_delta", "signature": one["signature"]}
            opened = {**one, "thinking": "", "signature": ""}
            return block(place, opened, {"type": "thinking_delta", "thinking": one["thinking"]}, signed)
        case "tool_use":
            return block(
                place, {**one, "input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(one["input"])}
            )
        case _:
            return block(place, one)


@settings(max_examples=12, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(answers(), answers(), st.booleans(), st.booleans(), st.booleans())
def test_a_continued_conversation_is_sent_byte_for_byte(first, second, pictured, drawing, own_picture):
    """Whatever was thought, said, called and shown in it: only the new message stands behind it."""

    def look(word: str = "") -> Any:
        """Look a word up."""
        return [f"found {word}", DOT] if drawing else f"found {word}"

    agents = [
        am.Agent("first", "begin", tools=[look], system="be kind", attach="dot" if pictured else ()),
        am.Agent("second", "go on", continues="first", attach="dot" if own_picture else ()),
        am.Agent("third", "and on", continues="second"),
    ]
    replies = [*first, *second, [{"type": "text", "text": "done"}]]

    async def go() -> list[Any]:
        async def answer(writer: Any, number: int) -> None:
            writer.write(streamed(replies[number - 1]))
            await writer.drain()

        async with serving(answer) as found:
            client = am.Claude(base_url=found.url, api_key="any")
            done = await am.Plan(agents, {"dot": DOT}).run(am.Policy(max_attempts=1), client=client)
            assert done.ok, [one.error for one in done.record.results]
        return found.bodies

    sent = asyncio.run(go())
    assert len(replies) == len(sent)
    of_first, of_second, of_third = sent[len(first) - 1], sent[len(first) + len(second) - 1], sent[-1]
    for before, after, blocks in ((of_first, sent[len(first)], first[-1]), (of_second, of_third, second[-1])):
        told = len(before["messages"])
        assert before["messages"] == after["messages"][:told]
        assert {"role": "assistant", "content": blocks} == after["messages"][told]
        assert [told + 2, "user"] == [len(after["messages"]), after["messages"][-1]["role"]]
        asks = "go on" if before is of_first else "and on"
        assert asks == after["messages"][-1]["content"][-1]["text"].strip()
        assert [before[one] for one in ("system", "tools", "model")] == [
            after[one] for one in ("system", "tools", "model")
        ]
        assert {"type": "ephemeral"} == before["cache_control"] == after["cache_control"]
    pictures = json.dumps(of_third).count(base64.b64encode(PNG).decode())
    called = sum(len(one) - 1 for one in (first, second))
    assert pictured + own_picture + drawing * called == pictures


def test_a_conversation_branches_and_is_read_from_the_cache(server):
    """Two agents continue one; each reads what it has cached, and the thinking in it is valid there."""
    branches = [am.Agent(name, "And then? [[think]]", continues="analyst", effort="high") for name in ("one", "two")]
    plan = am.Plan([analyst(), *branches, am.Agent("more", "Really?", continues="one")])
    done = run(plan, session_of(server))
    assert done.ok
    assert {"analyst": ("one", "two"), "one": ("more",)} == {one: plan.children(one) for one in ("analyst", "one")}
    assert {"continues"} == {one.kind for one in plan.edges}
    assert {SONNET} == {*done.agents["model"]}
    assert (done.attempts["cache_read_tokens"].iloc[1:] > 2000).all()
    kinds = [*done["more"].conversation["kind"]]
    assert ["thinking", "tool_use"] == sorted({*kinds} - {"text", "tool_result"})
    assert done["one"].messages == done["more"].messages[:-2]
    assert "Really?" == done["more"].conversation["text"].iloc[-2]


def test_a_rerun_serves_what_did_not_change(server):
    """An edited cell makes what follows new; the branch beside it is in the ledger; so is all with resume."""
    session = session_of(server)

    def plan(question: str) -> am.Plan:
        middle = [am.Agent("one", question, continues="analyst"), am.Agent("two", "Two?", continues="analyst")]
        return am.Plan([analyst(), *middle, am.Agent("more", "Really?", continues="one")])

    first = run(plan("One?"), session)
    again = run(plan("One?"), session)
    assert {"ledger"} == {*again.agents["source"]}
    other = run(plan("Another?"), session)
    assert ["ledger", "simulated", "ledger", "simulated"] == [*other.agents["source"]]
    resumed = run(plan("One?"), session, resume=first)
    assert 0.0 == resumed.totals.cost_usd
    assert first["more"].messages == resumed["more"].messages
    bare = am.Session(client=session.client)
    assert 0.0 == run(plan("One?"), bare, resume=first).totals.cost_usd


def test_an_edited_answer_is_what_the_conversation_goes_on_from(server):
    """The text of the user stands in it as the model's message."""
    session = session_of(server)
    plan = am.Plan([am.Agent("a", "Hello"), am.Agent("b", "And?", continues="a")])
    assert ["b"] == run(plan, session).edit("a", "my words")
    done = run(plan, session)
    assert [{"type": "text", "text": "my words"}] == done["b"].messages[1]["content"]
    assert ["edited", "simulated"] == [*done.agents["source"]]


def test_rows_go_on_in_the_conversation_of_their_row(server):
    """Of agents for the same items each continues its own; one for no item has to name one."""
    first, second = (
        am.Agent("ask", "About {{ item }}", each="rows"),
        am.Agent("more", "And?", continues="ask", each="rows"),
    )
    done = run(am.Plan([first, second], {"rows": ["x", "y"]}), session_of(server))
    assert ["About x", "About y"] == [done[f"more_{one}"].messages[0]["content"] for one in range(2)]
    with pytest.raises(PlanError, match=r"which is 2 conversations. Name one, such as ask_0"):
        am.Plan([first, am.Agent("more", "And?", continues="ask")], {"rows": ["x", "y"]})
    one = run(am.Plan([first, am.Agent("more", "And?", continues="ask_1")], {"rows": ["x", "y"]}), session_of(server))
    assert "About y" == one["more"].messages[0]["content"]


def test_another_model_is_not_shown_what_the_first_has_thought(server):
    """It could not read it, which the plan says before anything is sent. All else of the conversation is there."""
    plan = am.Plan([analyst(), am.Agent("more", "And?", continues="analyst", model=OPUS)])
    assert any("which is left out" in note for note in plan.hints())
    done = run(plan, session_of(server))
    assert done.ok
    kinds = [
        block["type"] for one in done["more"].messages[:-1] if one["role"] == "assistant" for block in one["content"]
    ]
    assert "tool_use" in kinds
    assert "thinking" not in kinds
    assert [] == [
        note for note in am.Plan([analyst(), am.Agent("more", "?", continues="analyst")]).hints() if "left" in note
    ]


@pytest.mark.parametrize("option", [{"system": "x"}, {"role": "writer"}, {"context": "c"}, {"continues": "more"}])
def test_what_began_a_conversation_belongs_to_its_first_agent(option):
    """System prompt, role and context are said there; nobody continues itself."""
    with pytest.raises(DeclarationError, match="continues"):
        am.Agent("more", "And?", **{"continues": "analyst", **option})


def test_who_is_continued_is_an_agent_with_these_tools():
    """A function has no conversation, other tools would be another one, and a missing name is told as for any edge."""

    def shout() -> str:
        return "x"

    with pytest.raises(PlanError, match="is a function and has no conversation"):
        am.Plan([am.Task("shout", shout), am.Agent("more", "And?", continues="shout")])
    with pytest.raises(PlanError, match="has other tools"):
        am.Plan([am.Agent("a", "x"), am.Agent("more", "And?", continues="a", tools=[look])])
    with pytest.raises(UndefinedVariable, match="analyst"):
        am.Plan([am.Agent("more", "And?", continues="analyst")])
    with pytest.raises(PlanError, match="is a value"):
        am.Plan([am.Agent("more", "And?", continues="text")], {"text": "x"})


def test_a_recording_and_a_plan_as_json_have_the_conversation(server, tmp_path):
    """A replay sends nothing and has all of it; a what-if asks another model from here on."""
    plan = am.Plan([analyst(), am.Agent("more", "And?", continues="analyst")])
    done = run(plan, session_of(server))
    done.save(tmp_path / "talk.cassette.jsonl")
    again = asyncio.run(plan.play(tmp_path / "talk.cassette.jsonl"))
    assert {"replay"} == {*again.agents["source"]}
    assert done["more"].messages == again["more"].messages
    assert "analyst" == am.Plan.from_json(plan.to_json())["more"].continues
    row = done.whatif(model={"more": OPUS}).iloc[0]
    assert row["cost_usd"] > done.totals.cost_usd


SCRIPT = """
import asyncio, os, signal, sys
import agent_magic as am

@am.tool(pure=True)
def look(word: str = "") -> str:
    "Look a word up."
    if word == "deadly" and sys.argv[3] == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    return "found " + word

ledger = am.Ledger(sys.argv[2], reuse_simulated=True)
session = am.Session(client=am.Claude(base_url=sys.argv[1], api_key="any"), ledger=ledger)
plan = am.Plan([
    am.Agent("first", '[[think]] [[tool@1:look {"word": "x"}]]', tools=[look], model="claude-sonnet-5-5"),
    am.Agent("branch", "Aside?", continues="first"),
    am.Agent("second", '[[tool@1:look {"word": "deadly"}]]', continues="first", after="branch"),
    am.Agent("third", "And?", continues="second"),
])
run = asyncio.run(plan.run(session=session))
print(run.ok, " ".join(f"{one.agent}:{one.source}" for one in run.record.attempts))
"""


def test_a_killed_kernel_buys_no_part_of_a_conversation_twice(server, tmp_path):
    """What it had bought of each branch comes from the ledger, turn by turn, and the rest goes on from it."""

    def began(how: str) -> subprocess.CompletedProcess[str]:
        place = str(tmp_path / "ledger.sqlite3")
        command = [sys.executable, "-c", SCRIPT, server.url, place, how]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert -9 == began("dies").returncode
    said = began("lives").stdout.split()
    bought = ["first:ledger", "first:ledger", "branch:ledger", "second:ledger"]
    assert ["True", *bought, "second:simulated", "third:simulated"] == said
