"""Conversations in which tools are called, over real HTTP: what goes out in each turn, and what comes back."""

from __future__ import annotations

import asyncio
import itertools
import json
import sqlite3
import threading
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest

import agent_magic as am
from agent_magic import tool
from agent_magic.api import Agent, Claude, Plan, Policy, Run
from agent_magic.declare import DEFAULT_MAX_TOKENS, DEFAULT_MODEL
from agent_magic.record import Prices, Usage
from agent_magic.show import capped_note
from agent_magic.show.notes import called_again_note, closed_note
from agent_magic.simulator import Simulator, start
from tests.providers.wire import CLOSE, OPEN, STOP, delta, event, problem, reply, serving, until

SPARE: dict[str, Any] = {"input_tokens": 5}


@pytest.fixture(scope="module")
def server() -> Iterator[Simulator]:
    """Serve at once."""
    with start(latency="none", unlimited=True) as running:
        yield running


def look(word: str = "") -> str:
    """Look a word up."""
    return f"found {word}"


def run(server: Simulator, prompt: str, tools: Any = (look,), **more: Any) -> Run:
    """Run an agent with tools."""
    client = Claude(base_url=server.url, api_key="any")
    return asyncio.run(Plan([Agent("a", prompt, tools=list(tools), **more)]).run(client=client))


def begin(**usage: int) -> bytes:
    """The beginning of a reply."""
    message = {"id": "m", "type": "message", "role": "assistant", "model": "claude-haiku-5-5", "content": []}
    return event("message_start", message={**message, "usage": usage or SPARE})


def end(reason: str) -> bytes:
    """The end of a reply."""
    return event("message_delta", delta={"stop_reason": reason}, usage={"output_tokens": 7}) + STOP


def block(index: int, content: dict[str, Any], *deltas: dict[str, Any]) -> bytes:
    """One content block of a stream."""
    pieces = b"".join(event("content_block_delta", index=index, delta=one) for one in deltas)
    opened = event("content_block_start", index=index, content_block=content)
    return opened + pieces + event("content_block_stop", index=index)


def call(index: int, text: str, name: str = "look", id_: str = "") -> bytes:
    """A call whose arguments are this text."""
    deltas = [{"type": "input_json_delta", "partial_json": text}] if text else []
    return block(index, {"type": "tool_use", "id": id_ or f"t{index}", "name": name, "input": {}}, *deltas)


def asks(*calls: bytes) -> bytes:
    """A reply that asks for calls."""
    return begin() + b"".join(calls) + end("tool_use")


def says(text: str, reason: str = "end_turn") -> bytes:
    """A reply that is a text."""
    return begin() + OPEN + (delta(text) if text else b"") + CLOSE + end(reason)


def played(*replies: bytes, tools: Any = (look,), policy: Policy | None = None, **more: Any) -> tuple[Run, list[Any]]:
    """Run an agent with tools against these replies, the last one for ever; return the run, and what was asked."""
    child = [Agent("b", "Go on: {{ a }}")] if more.pop("child", False) else []
    agents = [Agent("a", more.pop("prompt", "Go"), tools=list(tools), **more), *child]

    async def go() -> tuple[Run, list[Any]]:
        async def answer(writer: Any, number: int) -> None:
            writer.write(replies[min(number, len(replies)) - 1])
            await writer.drain()

        async with serving(answer) as found:
            client = Claude(base_url=found.url, api_key="any")
            done = await Plan(agents).run(policy or Policy(), client=client)
        return done, found.bodies

    replies = tuple(one if one.startswith(b"HTTP") else reply(one) for one in replies)
    return asyncio.run(go())


def results_of(body: Any) -> list[dict[str, Any]]:
    """The results in the last message of a request."""
    return body["messages"][-1]["content"]


# the moving mark of the cache


def test_each_turn_reads_what_the_turn_before_it_wrote_to_the_cache(server):
    """A mark moves along with the end of the conversation; the longer the loop, the more that saves."""
    calls = " ".join(f'[[tool@{turn}:look {{"word": "{turn}"}}]]' for turn in range(1, 6))
    done = run(server, f"{'Long. ' * 5000}{calls}", tools=[look])
    rows = done.attempts
    assert done.ok
    assert 6 == len(rows)
    assert (rows["cache_read_tokens"].iloc[1:] > 5000).all()
    assert rows["cache_read_tokens"].iloc[1:].is_monotonic_increasing


def test_the_mark_is_no_part_of_what_is_asked():
    """Answers are found again with the cache off. Without tools nothing is marked: one turn would only pay for it."""
    marked, sent = played(says("x"))
    off, unmarked = played(says("x"), policy=Policy(cache="off"))
    assert {"type": "ephemeral"} == sent[0].pop("cache_control")
    assert sent == unmarked
    assert 1 == len({one.record.results[0].attempts[0].request.key("here") for one in (marked, off)})
    _, plain = played(says("x"), tools=())
    assert "cache_control" not in plain[0]


def test_the_last_turn_writes_nothing_to_the_cache():
    """Nobody reads it; and what was written for a request with another choice of tools is not found."""
    _, sent = played(asks(call(0, "{}")), says("x"), policy=Policy(max_turns=2))
    assert [("auto", True), ("none", False)] == [
        (one.get("tool_choice", {"type": "auto"})["type"], "cache_control" in one) for one in sent
    ]


def test_the_budget_reserves_the_price_of_writing_for_the_whole_input():
    """It is 1.25 times that of plain input: a cap that fits only without the mark lets nothing go."""
    usage = Usage(int(1.1 * 5 * 20_000), output_tokens=DEFAULT_MAX_TOKENS)
    cap = Prices().of(DEFAULT_MODEL, usage).cost_usd
    for policy, sends in ((Policy(budget_usd=cap, cache="off"), 1), (Policy(budget_usd=cap), 0)):
        done, sent = played(says("x"), policy=policy, prompt="long " * 20_000)
        asked = [one for one in sent if "max_tokens" in one]  # the others have tokens counted
        assert (sends, bool(sends)) == (len(asked), done.ok)


# arguments


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"word": "orders", "where": "id = 1', "Unterminated string"),
        ('{"word": "orders" "where"}', "Expecting ',' delimiter"),
        ('{"word": "a", "word": "b"}', "stands twice"),
        ('{"word": NaN}', "NaN is no number"),
        ('{"word": 1e999}', "is no number"),
        ('["orders"]', "must be a JSON object"),
        ("null", "must be a JSON object"),
        ("[" * 100_000, "nested too deeply"),
        ('{"word": ' + "9" * 5000 + "}", "no valid JSON"),
    ],
)
def test_arguments_that_are_no_json_are_told_to_the_model_and_nothing_runs(text, why):
    """They go back in a field of an object, as they came, with a result that says what is wrong."""
    ran = list[str]()

    def look(word: str, where: str = "") -> str:
        """Look."""
        ran.append(word + where)
        return "x"

    done, sent = played(asks(call(0, text)), says("I see."), tools=[look])
    assert done.ok
    assert [] == ran
    (asked,) = sent[1]["messages"][1]["content"]
    assert {"INVALID_JSON": text} == asked["input"]
    (result,) = results_of(sent[1])
    assert (True, "t0") == (result["is_error"], result["tool_use_id"])
    assert why in result["content"]


def test_no_arguments_are_an_empty_object():
    """No piece of JSON at all means that there are none."""
    _, sent = played(asks(call(0, "")), says("x"))
    assert {} == sent[1]["messages"][1]["content"][0]["input"]
    assert "found " == results_of(sent[1])[0]["content"]


def test_arguments_with_lone_surrogates_come_through():
    """Such text is no UTF-8; what goes back can be sent all the same."""
    done, sent = played(asks(call(0, '{"word": "a\\ud800b"}')), says("x"))
    assert done.ok
    assert "found a\ufffdb" == results_of(sent[1])[0]["content"]
    assert {"word": "a\ufffdb"} == sent[1]["messages"][1]["content"][0]["input"]


def test_a_call_that_was_cut_never_runs():
    """Its arguments may be half: a DELETE without its WHERE."""
    ran = list[str]()

    def delete(table: str, where: str = "") -> str:
        """Delete."""
        ran.append(table + where)
        return "x"

    cut = begin() + call(0, '{"table": "orders"', "delete") + end("max_tokens")
    done, sent = played(cut, tools=[delete])
    assert ([], 1, "max_tokens") == (ran, len(sent), done["a"].stop_reason)


def test_unknown_tools_and_unreadable_calls_have_results():
    """Every call of a response has exactly one, in order, whatever its name and id."""
    wrong = block(2, {"type": "tool_use", "id": "t2", "input": {}})
    _, sent = played(asks(call(0, "{}", "nope"), call(1, "{}"), wrong), says("x"))
    assert ["t0", "t1", "t2"] == [one["tool_use_id"] for one in results_of(sent[1])]
    assert [True, None, True] == [one.get("is_error") for one in results_of(sent[1])]
    assert "There is no tool 'nope'. Tools: look." == results_of(sent[1])[0]["content"]


def test_calls_of_one_id_have_a_result_each():
    """A server may repeat an id: nothing waits for ever, and the server says what it thinks of that."""
    _, sent = played(asks(call(0, '{"word": "a"}', id_="t"), call(1, '{"word": "b"}', id_="t")), says("x"))
    assert ["found a", "found b"] == [one["content"] for one in results_of(sent[1])]


@pytest.mark.parametrize("id_", ["", None, 7, "same"])
def test_calls_without_an_id_of_their_own_get_one(id_):
    """Servers that translate for other models leave it out, or give the same one twice: results go back by it."""
    calls = [{"type": "tool_use", "id": id_, "name": "look", "input": {"word": word}} for word in "xy"]
    twice = b"".join(block(n, one) for n, one in enumerate(calls))
    run, bodies = played(begin() + twice + end("tool_use"), says("done"))
    assert ("succeeded", "done") == (run["a"].status, run["a"].text)
    asked = [one["id"] for one in bodies[1]["messages"][1]["content"]]
    assert asked == [one["tool_use_id"] for one in results_of(bodies[1])]
    assert len(set(asked)) == 2 == len(run.tool_calls)
    assert all(isinstance(one, str) and one for one in asked)


@pytest.mark.parametrize(("reason", "runs"), [("end_turn", 1), ("tool_calls", 1), ("max_tokens", 0), ("refusal", 0)])
def test_a_call_runs_whatever_the_end_of_its_response_is_called(reason, runs):
    """Only what was cut or declined does not run."""
    run, _ = played(begin() + call(0, "{}") + end(reason), says("done"))
    assert runs == len(run.tool_calls)


def test_thirty_calls_of_which_one_fails():
    """The others go on; results stand in the order of the calls, in one message."""

    def work(number: int) -> int:
        """Work."""
        if number == 7:
            raise ValueError("seven")
        return number

    done, sent = played(asks(*(call(n, f'{{"number": {n}}}', "work") for n in range(30))), says("x"), tools=[work])
    assert done.ok
    found = results_of(sent[1])
    assert [f"t{n}" for n in range(30)] == [one["tool_use_id"] for one in found]
    assert [7] == [n for n, one in enumerate(found) if one.get("is_error")]
    assert "ValueError: seven" in found[7]["content"]


# what functions do


def test_a_function_that_is_redefined_or_deleted_is_as_it_was_declared():
    """A plan is frozen: a later edit counts in the next run."""
    names: dict[str, Any] = {}
    exec("def look(word: str = '') -> str:\n    'Look.'\n    return 'old'", names)
    agent = Agent("a", "Go", tools=[names["look"]])
    exec("def look(word: str = '') -> str:\n    'Look.'\n    return 'new'", names)
    del names["look"]
    _, sent = played(asks(call(0, "{}")), says("x"), tools=agent.tools)
    assert "old" == results_of(sent[1])[0]["content"]


FRAME = pd.DataFrame({"a": [1, 2]})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "(done; there is no result)"),
        (7, "7"),
        ({"a": 1}, '{"a": 1}'),
        (FRAME, "a\n1\n2\n"),
        (b"abc", "abc"),
        ("a\ud800b", "a\ufffdb"),
        ("", None),
    ],
    ids=lambda one: type(one).__name__,
)
def test_results_of_every_kind_go_out(value, text):
    """As text, a frame as CSV, what has no text with a remark."""
    _, sent = played(asks(call(0, "{}", "give")), says("x"), tools=[given(value)])
    assert text == results_of(sent[1])[0].get("content")


def given(value: Any) -> Any:
    """A tool that returns a value."""

    def give() -> Any:
        """Give."""
        return value

    return give


def raising(error: BaseException) -> Any:
    """A tool that raises."""

    def give() -> Any:
        """Give."""
        raise error

    return give


def test_a_result_of_fifty_megabytes_is_cut_and_says_so():
    """The model pays for it again in each later turn."""
    _, sent = played(asks(call(0, "{}", "give")), says("x"), tools=[given("x" * 50_000_000)])
    found = results_of(sent[1])[0]["content"]
    assert 101_000 > len(found)
    assert "left out" in found


@pytest.mark.parametrize("error", [StopIteration(), SystemExit(3), KeyboardInterrupt(), ValueError("why")], ids=repr)
def test_whatever_a_function_raises_is_a_result(error):
    """`StopIteration` would hang for ever, `SystemExit` end the kernel."""
    done, sent = played(asks(call(0, "{}", "give")), says("x"), tools=[raising(error)])
    assert done.ok
    assert results_of(sent[1])[0]["is_error"]
    assert type(error).__name__ in results_of(sent[1])[0]["content"]


def test_no_secret_goes_out_in_an_error(monkeypatch):
    """What a message quotes may be a key of the environment."""
    monkeypatch.setenv("DB_PASSWORD", "hunter2hunter2")
    _, sent = played(asks(call(0, "{}", "give")), says("x"), tools=[raising(ValueError("no: hunter2hunter2"))])
    assert "hunter2" not in json.dumps(sent)


def test_a_call_that_hangs_is_given_up():
    """The thread may go on, and the model is told so."""
    never = threading.Event()

    @tool(timeout=0.01)
    def give() -> None:
        """Give."""
        never.wait()

    done, sent = played(asks(call(0, "{}", "give")), says("x"), tools=[give])
    never.set()
    assert done.ok
    assert "it may have finished" in results_of(sent[1])[0]["content"]


def test_a_flood_of_prints_is_kept_short(capsys):
    """It is kept with the call, and shown in no cell."""

    def give() -> str:
        """Give."""
        for _ in range(1000):
            print("x" * 10_000)
        return "done"

    done, _ = played(asks(call(0, "{}", "give")), says("x"), tools=[give])
    assert 1_100_000 > len(done.record.results[0].calls[0].prints) > 1000
    assert "xxx" not in capsys.readouterr().out


# turns


def test_the_same_call_again_and_again_ends_at_the_last_turn():
    """It is told to ask for no more tools; where it asks all the same the agent is capped, with what it said."""
    text = block(1, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Still looking."})
    done, sent = played(begin() + call(0, "{}") + text + end("tool_use"), policy=Policy(max_turns=3))
    assert ("capped", "Still looking.", 3, 2) == (done["a"].status, done["a"].text, len(sent), len(done["a"].calls))
    assert [None, None, {"type": "none"}] == [one.get("tool_choice") for one in sent]
    assert "asks for more tools in its last turn (3)" in str(done["a"].error)
    failed, _ = played(asks(call(0, "{}")), policy=Policy(max_turns=2, on_max_tokens="fail"))
    assert ("failed", "Capped") == (failed["a"].status, failed["a"].kind)


@pytest.mark.parametrize("tools", [[look], [look, am.ServerTool("web_search")]], ids=["a function", "both"])
def test_one_turn_is_one_request_in_which_no_call_can_be_asked_for(tools):
    """The last turn may ask for none, and the only one is the last: nobody pays for a request more than was said."""
    done, sent = played(says("without"), tools=tools, max_turns=1)
    assert (1, {"type": "none"}, "without") == (len(sent), sent[0].get("tool_choice"), done["a"].text)
    deaf, sent = played(asks(call(0, "{}")), tools=tools, max_turns=1)
    assert (1, "capped", 0) == (len(sent), deaf["a"].status, len(deaf["a"].calls))


def test_an_answer_that_is_taken_over_keeps_the_tokens_of_all_its_turns(server):
    """They are what it had cost, so they are what is saved."""
    client = Claude(base_url=server.url, api_key="any")
    plan = Plan([Agent("a", 'Go [[tool@1:look {"word": "1"}]] [[tool@2:look {"word": "2"}]]', tools=[look])])
    first = asyncio.run(plan.run(client=client))
    second = asyncio.run(plan.run(client=client, resume=first))
    assert (3, 1, 0.0) == (len(first["a"].attempts), len(second["a"].attempts), second["a"].cost_usd)
    assert first["a"].usage == second["a"].usage


def test_an_answer_for_want_of_budget_serves_nobody_who_has_more(tmp_path):
    """It was told to ask for no more tools, which is another request; the note says so, and a larger budget buys."""
    agent = Agent("a", "Go" * 2000, tools=[look], max_tokens=100)
    prices = {DEFAULT_MODEL: am.TokenPrice(10.0, 1.0)}

    async def answer(writer: Any, number: int) -> None:
        closed = "tool_choice" in found.bodies[number - 1]
        turn = len(found.bodies[number - 1]["messages"]) // 2
        text = (
            says("cannot look")
            if closed
            else says("looked twice")
            if turn == 2
            else asks(call(0, "{}", id_=f"t{turn}"))
        )
        writer.write(reply(text))
        await writer.drain()

    async def go() -> None:
        nonlocal found
        async with serving(answer) as found:
            client, ledger = Claude(base_url=found.url, api_key="any"), am.Ledger(tmp_path / "kept.sqlite3")
            more = {"client": client, "ledger": ledger, "prices": prices}
            poor = await Plan([agent]).run(
                Policy(budget_usd=0.0548), **more
            )  # a last turn writes no cache: it is cheaper
            policy = Policy()
            rich = await Plan([agent]).run(policy, **more)
            ledger.close()
        assert ("succeeded", "cannot look") == (poor["a"].status, poor["a"].text)
        assert "since the budget had no room for more turns: a." in closed_note(poor.record, policy)
        assert ("succeeded", "looked twice") == (rich["a"].status, rich["a"].text)
        assert not closed_note(rich.record, policy)

    found: Any = None
    asyncio.run(go())


def test_one_turn_lets_the_provider_run_its_own_tools():
    """They need no second request."""
    _, sent = played(says("found"), tools=[am.ServerTool("web_search")], max_turns=1)
    assert (1, None) == (len(sent), sent[0].get("tool_choice"))


def test_a_run_of_one_turn_is_replayed(tmp_path):
    """What a run's cap or budget decides is no part of what its plan asks."""
    done, _ = played(says("without"), policy=Policy(max_turns=1))
    done.save(tmp_path / "run.cassette.jsonl")
    assert "without" == Plan([Agent("a", "Go", tools=[look])]).replay(tmp_path / "run.cassette.jsonl")["a"].text


def test_a_typed_answer_is_never_parsed_from_a_turn_that_asks_for_tools():
    """Nor is the model asked again in a conversation whose call has no result."""
    done, sent = played(asks(call(0, "{}")), policy=Policy(max_turns=2), returns=int)
    assert ("failed", "Capped", 2) == (done["a"].status, done["a"].kind, len(sent))


def test_every_request_appends_to_the_one_before():
    """Byte for byte: a thinking block is signed over what stands before it."""
    turns = [asks(call(0, f'{{"word": "{n}"}}', id_=f"t{n}")) for n in range(5)]
    _, sent = played(*turns, says("x"))
    for before, after in itertools.pairwise(sent):
        size = len(before["messages"])
        assert json.dumps(before["messages"]) == json.dumps(after["messages"][:size])
        assert size + 2 == len(after["messages"])
        assert (before["tools"], before.get("system")) == (after["tools"], after.get("system"))


def test_thinking_goes_back_as_it_came(server):
    """The mock checks signatures over all that stands before them."""
    calls = " ".join(f"[[tool@{turn}:look]] [[think@{turn}:hm]]" for turn in range(1, 4))
    done = run(server, f"Think. {calls}", tools=[look], model="claude-fable-5-2")
    assert done.ok
    assert 4 == len(done["a"].attempts)


def test_a_stream_lost_in_turn_five_buys_that_turn_again_and_no_tool_runs_twice(server):
    """Finished turns and calls stay."""
    ran = list[str]()

    def look(word: str = "") -> str:
        """Look."""
        ran.append(word)
        return word

    calls = " ".join(f'[[tool@{turn}:look {{"word": "{turn}"}}]]' for turn in range(1, 6))
    done = run(server, f"Lost. {calls} [[fault@5:cut times=1]]", tools=[look])
    assert done.ok
    assert ["1", "2", "3", "4", "5"] == ran
    assert ["succeeded"] * 4 + ["failed"] + ["succeeded"] * 2 == list(done.attempts["status"])


def test_a_429_in_turn_three_is_waited_for(server):
    """It is that turn that is asked again."""
    done = run(server, "Busy. [[tool@1-3:look]] [[status@3:429 times=1]]", tools=[look])
    assert done.ok
    assert [1, 2, 3, 4, 5] == list(done.attempts["attempt"])
    assert 3 == len(done["a"].calls)


def test_an_empty_end_after_results_is_asked_once_more(server):
    """In a new message of the user's: no text stands behind results."""
    done = run(server, "Silent. [[tool:look]] [[text@2:]]", tools=[look])
    assert done["a"].text
    assert 3 == len(done["a"].attempts)


def test_a_refusal_in_turn_three_fails_the_agent(server):
    """What was bought before stays in its rows."""
    done = run(server, "No. [[tool@1-3:look]] [[stop@3:refusal]]", tools=[look])
    assert ("failed", "Refused", 3) == (done["a"].status, done["a"].kind, len(done["a"].attempts))


def test_a_pause_beside_a_call_of_ours_goes_on_with_its_result():
    """Only results may follow; what the server tool has begun opens the next reply."""
    search = block(1, {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}})
    for reason in ("tool_use", "pause_turn"):
        text = block(2, {"type": "text", "text": ""}, {"type": "text_delta", "text": "One. "})
        done, sent = played(begin() + call(0, "{}") + search + text + end(reason), says("Two."))
        assert done.ok
        assert ["tool_result"] == [one["type"] for one in results_of(sent[1])]
        assert ("One. Two." if reason == "pause_turn" else "Two.") == done["a"].text == done.texts["a"]


def test_a_broken_prefix_is_named_and_not_tried_again():
    """Another try cannot help: the conversation is what it is."""
    said = "messages.1.content.0: thinking block is bound to a different conversation"
    done, sent = played(asks(call(0, "{}")), problem(400, "invalid_request_error", said))
    assert ("failed", "Rejected", 2) == (done["a"].status, done["a"].kind, len(sent))
    assert "bound to a different conversation" in str(done["a"].error)


def test_a_model_without_tools_is_told_apart():
    """A refusal by the server; and a call that an agent without tools gets is a failure, not an answer."""
    done, _ = played(problem(400, "invalid_request_error", "this model does not support tools"))
    assert ("failed", "Rejected") == (done["a"].status, done["a"].kind)
    done, _ = played(asks(call(0, "{}")), tools=())
    assert ("failed", "UnexpectedToolUse") == (done["a"].status, done["a"].kind)


def test_blank_text_beside_a_call_does_not_go_back():
    """The API refuses text blocks that are white space alone, its own too."""
    blank = block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "\n\n"})
    _, sent = played(begin() + blank + call(1, "{}") + end("tool_use"), says("x"))
    assert ["tool_use"] == [one["type"] for one in sent[1]["messages"][1]["content"]]


# stops and budgets


def test_a_stop_in_the_middle_of_a_tool_ends_the_run_and_says_that_it_may_have_finished():
    """Nothing is asked after it; the thread goes on."""
    began, never = threading.Event(), threading.Event()

    def give() -> None:
        """Give."""
        began.set()
        never.wait()

    async def go() -> tuple[Run, list[Any]]:
        async with serving(reply(asks(call(0, "{}", "give")))) as found:
            client = Claude(base_url=found.url, api_key="any")
            driver = am.start(Plan([Agent("a", "Go", tools=[give])]), client=client)
            task = asyncio.create_task(driver.drive())
            await until(began.is_set)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return Run(driver.record), found.bodies

    done, sent = asyncio.run(go())
    never.set()
    (one,) = done["a"].calls
    assert ("cancelled", "cancelled", "stopped; it may have finished", 1) == (
        done["a"].status,
        one.status,
        one.error,
        len(sent),
    )


def test_the_budget_is_reserved_turn_by_turn_and_keeps_what_there_is():
    """Where the next turn does not fit the agent is capped, and its children go on with what it has said."""
    text = block(1, {"type": "text", "text": ""}, {"type": "text_delta", "text": "So far."})
    turn = begin(input_tokens=3000) + call(0, "{}") + text + end("tool_use")
    done, sent = played(turn, says("child"), policy=Policy(budget_tokens=7000), child=True)
    assert ["capped", "cancelled"] == [one.status for one in done.record.results]
    assert ("So far.", "BudgetExceeded") == (done["a"].text, done["a"].kind)
    assert 0 < len(sent) < 9
    assert done.totals.cost_usd is not None


SPENT = 1000


def grows(turn: int) -> bytes:
    """A turn that asks for a call and says how far it has come."""
    text = block(1, {"type": "text", "text": ""}, {"type": "text_delta", "text": f"Turn {turn}."})
    return begin(input_tokens=SPENT * turn) + call(0, "{}", id_=f"t{turn}") + text + end("tool_use")


def test_a_budget_that_is_reached_in_turn_seven_keeps_what_six_have_said():
    """Nothing is sent that may not fit; each call has run once, and its text is what there is of the answer."""
    called: list[int] = []

    def look() -> str:
        """Look."""
        called.append(1)
        return "seen"

    six = sum(SPENT * turn + 7 for turn in range(1, 7))
    policy = Policy(budget_tokens=six + 3 * SPENT, max_turns=20)
    done, sent = played(*map(grows, range(1, 20)), policy=policy, tools=[look], max_tokens=40)
    asked = [one for one in sent if "max_tokens" in one]  # the rest only has its input counted
    assert (6, 6) == (len(asked), len(called))
    assert ("capped", "BudgetExceeded", "Turn 6.") == (done["a"].status, done["a"].kind, done["a"].text)
    assert six == done.totals.tokens
    assert "21,042 of 24,042 tokens are used" in str(done["a"].error)
    note = capped_note(done.record, policy)
    assert note.startswith("Incomplete, since the budget had no room for the next turn: a.")
    assert "max-turns" not in note


def test_a_429_in_turn_seven_buys_no_turn_again():
    """It is waited for, and the conversation goes on where it was; no call is made twice."""
    called: list[int] = []

    def look() -> str:
        """Look."""
        called.append(1)
        return "seen"

    before = [grows(turn) for turn in range(1, 7)]
    done, sent = played(*before, problem(429, "rate_limit_error", retry_after="0"), says("done"), tools=[look])
    assert ("done", 6, 8) == (done["a"].text, len(called), len(sent))
    assert sent[6] == sent[7]
    assert 1 == sum(one.kind == "RateLimited" for one in done["a"].attempts)


def test_calls_that_are_made_again_are_said(tmp_path, caplog):
    """An answer that is reused costs nothing, but its calls are made again: a letter is sent twice."""
    sent: list[str] = []

    def send_free(word: str = "") -> str:
        """Send a word."""
        sent.append(word)
        return "sent"

    def keep(word: str = "") -> str:
        """Keep a word."""
        return "kept"

    async def go() -> list[Any]:
        async def answer(writer: Any, number: int) -> None:
            both = asks(call(0, "{}", "send_free"), call(1, "{}", "keep"))
            writer.write(reply(both if number == 1 else says("done")))
            await writer.drain()

        async with serving(answer) as found:
            client, ledger = Claude(base_url=found.url, api_key="any"), am.Ledger(tmp_path / "ledger.sqlite3")
            plan = Plan([Agent("a", "Go", tools=[am.tool(send_free), am.tool(pure=True)(keep)])])
            records = [(await plan.run(client=client, ledger=ledger)).record for _ in range(2)]
            said = plan.estimate(client=client, ledger=ledger).notes
            ledger.close()
        return [*records, said]

    first, again, said = asyncio.run(go())
    assert (2, "") == (len(sent), called_again_note(first))
    told = "Tools called again, though the answers were reused: send_free 1. @am.tool(pure=True) keeps results."
    assert told == called_again_note(again)
    assert "a is reused, but its calls of send_free are made again, once its run is complete" in said
    before = "send_free is called again: run 1, which is complete, called it for the same answers."
    assert [before] == [one.message.split(" @")[0] for one in caplog.records if "is called again: run" in one.message]


def test_a_call_that_ends_after_the_stop_serves_the_next_run(tmp_path):
    """Its thread goes on while the kernel lives: what came of it is written down, and nothing is in doubt."""
    began, go_on, calls = threading.Event(), threading.Event(), []

    def give() -> str:
        """Give."""
        calls.append(1)
        began.set()
        go_on.wait()
        return "given"

    async def go() -> Run:
        async def answer(writer: Any, number: int) -> None:
            writer.write(reply(asks(call(0, "{}", "give")) if number == 1 else says("done")))
            await writer.drain()

        async with serving(answer) as found:
            client, ledger = Claude(base_url=found.url, api_key="any"), am.Ledger(tmp_path / "ledger.sqlite3")
            plan = Plan([Agent("a", "Go", tools=[give])])
            task = asyncio.create_task(am.start(plan, client=client, ledger=ledger).drive())
            await until(began.is_set)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            go_on.set()
            file = sqlite3.connect(tmp_path / "ledger.sqlite3")
            await until(lambda: file.execute("SELECT 1 FROM tool_calls WHERE state = 'done'").fetchall())
            file.close()
            done = await plan.run(client=client, ledger=ledger)
            ledger.close()
        return done

    done = asyncio.run(go())
    (one,) = done["a"].calls
    assert ("succeeded", "done", 1) == (done["a"].status, done["a"].text, len(calls))
    assert ("succeeded", "given", "ledger") == (one.status, one.result, one.source)


def test_tokens_below_none_are_no_count():
    """They would lower the bill; what the response began to count is not its last word, so an estimate is shown."""
    last = event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": -5}) + STOP
    done, _ = played(begin(input_tokens=5, output_tokens=1) + OPEN + delta("x" * 40) + CLOSE + last)
    (one,) = done["a"].attempts
    assert one.usage
    assert one.price
    assert ("succeeded", 10, True) == (done["a"].status, one.usage.output_tokens, one.usage.estimated)
    assert one.price.cost_usd == am.TokenPrice(0.1, 0.5).cost_usd(one.usage)
