"""Typed answers, bought with the real SDK over real HTTP: asked once more, kept, replayed and forecast."""

from __future__ import annotations

import asyncio
import enum
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import pytest
from pydantic import BaseModel, Field

from agent_magic.api import Agent, Claude, Ledger, Plan, Policy, Run
from agent_magic.engine.requests import ask
from agent_magic.errors import NoValue, PlanError, ReplayMiss
from agent_magic.providers.capabilities import WORDS, SchemaWatch
from agent_magic.show import capped_note
from agent_magic.simulator import Simulator, start
from tests.live.virtual import Reply, drive
from tests.providers.wire import CLOSE, OPEN, STOP, delta, event, reply, serving


class Topic(enum.Enum):
    PRICE = "price"
    QUALITY = "quality"


class Label(BaseModel):
    mood: Literal["good", "bad"]
    topic: Topic
    stars: int = Field(ge=1, le=5)


GOOD = '{"mood": "good", "topic": "price", "stars": 4}'
WRONG = '{"mood": "great", "topic": "price", "stars": 4}'
TOO_MANY = '{"mood": "good", "topic": "price", "stars": 9}'


@pytest.fixture(scope="module")
def server() -> Iterator[Simulator]:
    """Serve at once."""
    with start(latency="none", unlimited=True) as running:
        yield running


def run(server: Simulator, plan: Plan, policy: Policy | None = None, **more: Any) -> Run:
    """Run a plan on the mock server."""
    return asyncio.run(plan.run(policy, client=Claude(base_url=server.url, api_key="any"), **more))


def message(text: str, reason: str = "end_turn", blocks: bytes = b"") -> bytes:
    """A streamed answer."""
    head = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "claude-haiku-5-5",
        "content": [],
        "usage": {"input_tokens": 5},
    }
    body = b"" if not text else OPEN + delta(text) + CLOSE
    end = event("message_delta", delta={"stop_reason": reason}, usage={"output_tokens": 7})
    return reply(event("message_start", message=head) + blocks + body + end + STOP)


def asked(agents: Any, *replies: bytes, policy: Policy | None = None, **more: Any) -> tuple[Run, list[Any]]:
    """Run agents against these replies; return the run, and the bodies of its requests."""

    async def go() -> tuple[Run, list[Any]]:
        async def answer(writer: Any, number: int) -> None:
            writer.write(replies[min(number, len(replies)) - 1])
            await writer.drain()

        async with serving(answer) as found:
            plan = Plan(agents if isinstance(agents, list) else [agents])
            done = await plan.run(policy, client=Claude(base_url=found.url, api_key="any"), **more)
        return done, found.bodies

    return asyncio.run(go())


def label(**more: Any) -> Agent:
    """An agent that returns a label."""
    return Agent("label", "Label it", returns=Label, **more)


def test_the_schema_goes_out_beside_the_effort():
    """As `output_config.format`, fields in declared order; an agent of text has none."""
    done, sent = asked([label(effort="low"), Agent("b", "{{ label }}")], message(GOOD))
    config = sent[0]["output_config"]
    assert "low" == config["effort"]
    assert "json_schema" == config["format"]["type"]
    assert ["mood", "topic", "stars"] == list(config["format"]["schema"]["properties"])
    assert "output_config" not in sent[1]
    assert Label(mood="good", topic=Topic.PRICE, stars=4) == done["label"].value
    assert json.loads(GOOD) == json.loads(sent[1]["messages"][0]["content"])


def test_words_come_in_any_case():
    """As the vendor says of enums: what is passed on is the declared word."""
    done, sent = asked([label(), Agent("b", "{{ label.mood }}")], message(GOOD.replace("good", "Good")))
    assert "good" == done["label"].value.mood
    assert "good" == sent[1]["messages"][0]["content"]
    assert 2 == len(sent)


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (WRONG, "mood: Input should be 'good' or 'bad', got 'great'"),
        (TOO_MANY, "stars: Input should be less than or equal to 5"),
        ("Sorry, here it is: {}", "mood: Field required"),
        ("", "it is empty"),
    ],
)
def test_what_does_not_fit_is_asked_for_once_more(first, said):
    """In the same conversation, which only grows; a row and a bill for each, and no attempt is used up."""
    done, sent = asked(label(), message(first), message(GOOD), policy=Policy(max_attempts=1))
    assert done.ok
    assert 4 == done["label"].value.stars
    assert ["failed", "succeeded"] == list(done.attempts["status"])
    assert done.attempts["error"][0].startswith("InvalidAnswer: ")
    assert said in done.attempts["error"][0]
    assert 14 == done["label"].usage.output_tokens
    in_words = sent[1].pop("system", "")  # of a server that does not hold to the schema
    assert ("JSON schema" in in_words) == first.startswith("Sorry")
    assert {**sent[0], "messages": 0} == {**sent[1], "messages": 0}
    assert sent[0]["messages"] == sent[1]["messages"][:1]
    *before, last = sent[1]["messages"][1:]
    assert [{"role": "assistant", "content": [{"type": "text", "text": first}]}] * bool(first) == before
    assert "user" == last["role"]
    assert said in last["content"][0]["text"]


def test_the_second_time_is_the_last():
    """Then the step has failed, says why, and keeps its text; what waits for it is skipped."""
    done, sent = asked([label(), Agent("b", "{{ label.mood }}")], message(WRONG), message(TOO_MANY))
    assert ["failed", "skipped"] == list(done.agents["status"])
    assert 2 == len(sent)
    assert "InvalidAnswer" == done["label"].kind
    assert "less than or equal to 5" in str(done["label"].error)
    assert TOO_MANY == done["label"].text
    with pytest.raises(NoValue, match="Agent 'label' has no value: InvalidAnswer: stars"):
        _ = done["label"].value
    with pytest.raises(NoValue, match="'label' did not succeed"):
        _ = done["b"].value


def test_thinking_goes_back_as_it_came():
    """A signed block in front of an answer that does not fit is part of the conversation."""
    thought = event("content_block_start", index=0, content_block={"type": "thinking", "thinking": ""})
    for piece in ({"type": "thinking_delta", "thinking": "hm"}, {"type": "signature_delta", "signature": "sig"}):
        thought += event("content_block_delta", index=0, delta=piece)
    thought += event("content_block_stop", index=0)
    text = event("content_block_start", index=1, content_block={"type": "text", "text": ""})
    text += event("content_block_delta", index=1, delta={"type": "text_delta", "text": WRONG})
    text += event("content_block_stop", index=1)
    done, sent = asked(label(), message("", blocks=thought + text), message(GOOD))
    assert done.ok
    assert [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "text", "text": WRONG},
    ] == sent[1]["messages"][1]["content"]


@pytest.mark.parametrize(
    ("reason", "kind", "said"),
    [
        ("max_tokens", "Capped", "--max-tokens"),
        ("refusal", "Refused", "declined"),
        ("pause_turn", "Capped", "--max-turns"),
    ],
)
def test_half_an_answer_is_no_value(reason, kind, said):
    """Cut or refused it is not asked for again, whatever the policy passes on: the same would come."""
    policy = Policy(on_max_tokens="allow", on_refusal="allow", max_turns=1)
    done, sent = asked(label(), message(GOOD, reason), policy=policy)
    assert ("failed", kind, 1) == (done["label"].status, done["label"].kind, len(sent))
    assert said in str(done["label"].error)
    assert GOOD == done["label"].text
    assert "" == capped_note(done.record, Policy())


def test_a_stop_sequence_ends_a_value():
    """What ends at one is complete."""
    assert asked(label(), message(GOOD, "stop_sequence"))[0].ok


def test_a_check_is_told_to_the_model():
    """Of a value, or of a text; the same once more."""
    wrong = [{"first": "ask for more"}]

    def check(value: Label) -> str | None:
        return wrong.pop()["first"] if wrong else None

    done, sent = asked(label(check=check), message(GOOD), message(GOOD))
    assert done.ok
    assert "ask for more" in sent[1]["messages"][-1]["content"][0]["text"]
    text = Agent("a", "x", check=lambda text: None if text == "right" else "not right")
    done, sent = asked(text, message("wrong"), message("right"))
    assert ("right", "right", 2) == (done["a"].text, done["a"].value, len(sent))


def test_a_check_that_breaks_asks_nobody():
    """It would break again: one request, and the error names the function."""

    def broken(value: Any) -> str:
        return value.missing

    done, sent = asked(label(check=broken), message(GOOD))
    assert 1 == len(sent)
    assert "broken raised AttributeError" in str(done["label"].error)


def test_a_check_may_use_this_package():
    """An error of ours in it is a failed answer, not the end of the run."""

    def check(_: Any) -> None:
        raise PlanError("from inside")

    done, sent = asked([label(check=check), Agent("b", "x")], message(GOOD), message("t"))
    assert ["failed", "succeeded"] == list(done.agents["status"])
    assert "its check raised PlanError: from inside" in str(done["label"].error)
    assert 2 == len(sent)


def test_a_turn_is_reserved_like_any_other():
    """A budget without room for the second request keeps the first one's answer, and says why."""
    done, sent = asked(label(max_tokens=100), message(WRONG), policy=Policy(budget_tokens=600))
    assert ["InvalidAnswer"] == [one.kind for one in done["label"].attempts]
    assert len(sent) <= 2  # the second is a count of tokens
    assert "BudgetExceeded" == done["label"].kind
    assert WRONG == done["label"].text


def test_no_more_turns_than_allowed():
    """Asking again is a turn."""
    done, sent = asked(label(), message(WRONG), policy=Policy(max_turns=1))
    assert ("InvalidAnswer", 1) == (done["label"].kind, len(sent))


# kept


ROWS = pd.DataFrame({"text": ["Great, love it", "Broken, awful", "A lamp"]}, index=list("xyz"))


def plan(**more: Any) -> Plan:
    """Two questions about rows, one of which is answered wrongly at first, and what takes their fields."""
    agents = [
        Agent("label", "Label {{ item.text }}", each="rows", returns=Label, max_tokens=200, **more),
        Agent("sure", "How sure about {{ item.text }}? [[echo]]", each="rows", returns=float),
        Agent("reply", "Reply to {{ label.mood }} {{ sure }} [[tokens:5]]", each="rows"),
        Agent("report", "Sum up {% for one in label %}{{ one.topic }},{% endfor %} {{ sure[0] }} [[tokens:9]]"),
    ]
    return Plan(agents, {"rows": ROWS})


def outcomes(done: Run) -> dict[str, list[str]]:
    """What came of each attempt, by agent."""
    return {one.name: [attempt.status for attempt in one.attempts] for one in done.record.results}


def test_a_second_run_buys_nothing(server, tmp_path: Path):
    """Both turns come from the ledger, and the record in it has values without the class."""
    keeping: Any = {"ledger": Ledger(tmp_path / "l.sqlite3", reuse_simulated=True)}
    first = run(server, plan(), **keeping)
    second = run(server, plan(), **keeping)
    assert first.ok
    assert {"ledger"} == set(second.attempts["source"])
    assert 0 == second.totals.cost_usd
    assert outcomes(first) == outcomes(second)
    opened = keeping["ledger"].open()
    assert first["label_1"].value.mood == opened["label_1"].value.mood
    assert first["label_1"].value.topic.value == opened["label_1"].value.topic
    pd.testing.assert_frame_equal(first.each("label").iloc[:, :3], opened.each("label").iloc[:, :3])
    keeping["ledger"].close()


def test_another_order_of_fields_is_another_question(server, tmp_path: Path):
    """What is written first can change what follows; descriptions count too, the check does not."""

    class Other(BaseModel):
        stars: int = Field(ge=1, le=5)
        mood: Literal["good", "bad"]

    class Same(BaseModel):
        mood: Literal["good", "bad"]
        stars: int = Field(ge=1, le=5)

    Same.__name__ = Other.__name__
    keeping: Any = {"ledger": Ledger(tmp_path / "l.sqlite3", reuse_simulated=True)}
    for kind, source in ((Other, "simulated"), (Same, "simulated"), (Other, "ledger")):
        done = run(server, Plan([Agent("a", "x", returns=kind, check=lambda _: None)]), **keeping)
        assert source == done["a"].source
    keeping["ledger"].close()


def test_trying_again_buys_anew(server, tmp_path: Path):
    """An answer that did not fit is in the ledger, and would not fit again."""
    keeping: Any = {"ledger": Ledger(tmp_path / "l.sqlite3", reuse_simulated=True)}
    client, tries = Claude(base_url=server.url, api_key="any"), []

    async def go() -> Run:
        from agent_magic.api import start as ready

        driver: Any = None

        def check(_: float) -> str | None:
            tries.append(1)
            if len(tries) == 2:  # the second is the last
                asyncio.get_running_loop().call_soon(driver.retry)
            return "no" if len(tries) < 3 else None

        agents = [Agent("a", "x", returns=float, check=check), Agent("slow", "y [[ttft:0.3]]")]
        driver = ready(Plan(agents), client=client, **keeping)
        await driver.drive()
        return Run(driver.record)

    done = asyncio.run(go())
    assert done.ok
    assert ["simulated"] * 3 == [one.source for one in done["a"].attempts]
    keeping["ledger"].close()


def test_a_replay_needs_no_class(server, tmp_path: Path):
    """The same rows, prompts and frames; with a changed class it says so, and which field."""
    done = run(server, plan())
    done.save(tmp_path / "r.jsonl")
    again = plan().replay(tmp_path / "r.jsonl")
    assert done["label_2"].value == again["label_2"].value
    without = Plan.from_json(plan().to_json()).replay(tmp_path / "r.jsonl")
    assert done["label_2"].value.mood == without["label_2"].value.mood
    for one in (again, without):
        pd.testing.assert_frame_equal(
            done.each("label", "sure").drop(columns="cost_usd"),
            one.each("label", "sure").drop(columns="cost_usd").set_axis(done.each("label").index),
        )
        assert list(done.attempts["error"].fillna("")) == list(one.attempts["error"].fillna(""))

    class Label2(BaseModel):
        mood: Literal["good", "bad", "new"]
        topic: Topic

    changed = Agent("label", "Label {{ item.text }}", each="rows", returns=Label2, max_tokens=200)
    with pytest.raises(ReplayMiss, match=r"differs in .*schema \(from character"):
        Plan([changed], {"rows": ROWS}).replay(tmp_path / "r.jsonl")


def test_a_recording_without_texts_tells_no_field(server, tmp_path: Path):
    """Neither words nor descriptions; it replays, and its values are gone."""

    class Secret(BaseModel):
        """Hush about it."""

        confidential_field: str

    agents = [Agent("a", "x", returns=Secret), Agent("b", "{{ a.confidential_field }} [[tokens:3]]")]
    done = run(server, Plan(agents))
    done.save(tmp_path / "h.jsonl", texts=False)
    file = (tmp_path / "h.jsonl").read_text()
    assert "confidential" not in file
    assert "Hush" not in file
    again = Plan(agents).replay(tmp_path / "h.jsonl")
    assert again.ok
    assert done.totals.output_tokens == again.totals.output_tokens


def test_a_forecast_keeps_what_was_asked_twice(server):
    """The same attempts, the same bill, in the time they took; nobody backs off between turns."""
    done = run(server, plan())
    foreseen = done.forecast()
    assert list(done.attempts.sort_values(["agent", "attempt"])["output_tokens"]) == list(
        foreseen.attempts.sort_values(["agent", "attempt"])["output_tokens"]
    )
    assert done.totals.cost_usd == pytest.approx(foreseen.totals.cost_usd)
    assert 0 == foreseen.agents["backoff_s"].sum()
    assert done.whatif(concurrency=[1, 4])["cost_usd"].notna().all()


def test_a_failed_answer_fails_in_the_forecast_too(server):
    """As recorded."""
    done, _ = asked([label(), Agent("b", "{{ label.mood }}")], message(WRONG), message(TOO_MANY))
    assert ["failed", "skipped"] == list(done.forecast().agents["status"])


def test_an_estimate_counts_the_schema(server):
    """And takes the length of answers from their type, not from nowhere."""
    typed, plain = Plan([label()]).estimate(), Plan([Agent("label", "Label it")]).estimate()
    assert typed.expected[0].input.likely > plain.expected[0].input.likely + 50
    assert typed.expected[0].output.likely < 50
    counted = asyncio.run(Plan([label()]).count_tokens(client=Claude(base_url=server.url, api_key="any")))
    done = run(server, Plan([label()]))
    assert counted == [done["label"].usage.input_tokens]


def test_resuming_takes_values_over(server):
    """What succeeded is not asked again, and its fields are there for those that are."""
    done = run(server, plan())
    again = run(server, plan(), resume=done, again=["reply_1"])
    assert again.ok
    assert done["label_1"].value == again["label_1"].value
    assert done["reply_1"].attempts[0].request.prompt == again["reply_1"].attempts[-1].request.prompt


def test_types_do_not_share_a_cached_context():
    """Another format empties the cache, so each type warms its own; the same type shares it."""
    agents = [Agent(f"a{n}", "x", context="c", returns=kind) for n, kind in enumerate((int, int, float, None))]
    names = [one.prefix for one in agents]
    assert names[0] == names[1]
    assert 3 == len(set(names))
    assert "c" == names[3]


class Bill(BaseModel):
    total: Decimal
    tip: Decimal | None = None


@pytest.mark.parametrize(
    ("answer", "written"),
    [
        ('{"total": 3.10}', '3.10 {"total": 3.10, "tip": null} {"total": 3.10, "tip": null} 4.1'),
        ('{"total": 2, "tip": 1e3}', '2 {"total": 2, "tip": 1e3} {"total": 2, "tip": 1e3} 3.0'),
        ('{"total": "3.10"}', '3.10 {"total": "3.10", "tip": null} {"total": "3.10", "tip": null}'),
        ('{"total": 10000000000000000.01}', '{0} {{"total": "{0}", "tip": null}} {{"total": "{0}", "tip": null}}'),
    ],
)
def test_a_decimal_keeps_its_digits_in_a_prompt(answer: str, written: str):
    """As text and as JSON it is written as the model wrote it; where it is a number, it can be calculated with."""
    prompt = (
        "{{ bill.total }} {{ bill }} {{ bill | tojson }}{% if bill.total is number %} {{ bill.total + 1 }}{% endif %}"
    )
    plan = Plan([Agent("bill", "?", returns=Bill), Agent("next", prompt)])
    _, client = drive(plan, lambda asked, _: Reply(text=answer if asked == "?" else "done"), Policy(seed=1))
    expected = written.format("10000000000000000.01") if written.startswith("{0}") else written
    assert expected == client.asked[-1].prompt


class Folder(BaseModel):
    name: str
    folders: list[Folder] = []


@pytest.mark.parametrize("group", [None, 2])
def test_a_type_that_no_schema_holds_is_asked_for_in_words(server: Simulator, group: int | None):
    """The system prompt tells its JSON schema, and no grammar is sent; values are of the class, as elsewhere."""
    folder = Agent("folder", "Describe {{ item }}.", each="rows", returns=Folder, group=group)
    counts = Agent("counts", "Count words.", returns=dict[str, int])
    after = Agent("after", "{{ folder.name }}{% for one in folder.folders %}{{ one.name }}{% endfor %}", each="rows")
    plan = Plan([folder, counts] + ([] if group else [after]), {"rows": ["one", "two", "three"]})

    done = run(server, plan, Policy(seed=1))
    folders = [done[f"folder_{row}"].value for row in range(3)]
    assert all(isinstance(one, Folder) for one in folders)
    assert all(isinstance(one, int) for one in done["counts"].value.values())
    assert {"succeeded"} == set(done.agents["status"])
    assert [one.name for one in folders] == done.each("folder")["name"].tolist()


def test_a_schema_that_is_told_is_not_sent():
    """A model is told the type's own schema after the user's system prompt, whatever the server holds to."""
    agent = Agent("counts", "Count.", returns=dict[str, int], system="Be kind.")
    asked = SchemaWatch().in_words(ask(Plan([agent]), 0, {}, 10.0))
    told = json.dumps({"additionalProperties": {"type": "integer"}, "type": "object"})
    assert ("", f"Be kind.\n\n{WORDS.format(schema=told)}") == (asked.schema, asked.system)
