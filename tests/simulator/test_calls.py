"""Which tools the mock calls, with which arguments, and how calls stream."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from random import Random
from typing import Any

import anthropic
import jsonschema
import pytest
from anthropic import AsyncAnthropic
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magic.simulator.answer import CATALOGUE, sql_for, tables_of
from agent_magic.simulator.api import ApiError
from tests.simulator.playing import (
    MAIL,
    QUESTION,
    SEARCH,
    SQL,
    TOOLS,
    WEATHER,
    asking,
    calls_of,
    continued,
    play,
    reply,
    result,
)


def names(message: dict[str, Any]) -> list[str]:
    """The tools that a reply calls."""
    return [call["name"] for call in calls_of(message)]


def played(prompt: str, **more: Any) -> list[list[str]]:
    """The tools called in each turn."""
    return [names(message) for message in play(asking(prompt, **more))[1]]


@pytest.mark.parametrize(
    ("prompt", "tool"),
    [
        (QUESTION, "run_sql"),
        ("What is the weather in Oslo?", "get_weather"),
        ("Send a mail to Ada about trains.", "send_mail"),
        ("How many orders came in May?", "run_sql"),
    ],
)
def test_the_tool_that_fits_the_prompt_is_called(prompt, tool) -> None:
    """By the words of its name and description, or because it looks things up and something is asked."""
    assert tool == played(prompt)[0][0]


@pytest.mark.parametrize("prompt", ["Explain trees.", "Write an article about night trains.", "Tell a joke."])
def test_no_tool_is_called_that_does_not_fit(prompt) -> None:
    """A prompt without any word of a tool gets a text."""
    assert [[]] == played(prompt)


def test_one_to_three_calls_then_an_answer_with_the_results() -> None:
    """Whatever the prompt; the answer quotes a part of what came back."""
    sizes = set[int]()
    for number in range(30):
        requests, replies = play(asking(f"Which region lost most in week {number}? Check with SQL."))
        sizes.add(sum(len(calls_of(message)) for message in replies))
        assert "end_turn" == replies[-1]["stop_reason"]
        assert "`run_sql` returned: “north, -12.4”." in replies[-1]["content"][0]["text"]
        assert requests[-1]["messages"][-1]["role"] == "user"
    assert {1, 2, 3} == sizes


def test_a_tool_that_is_named_is_called_and_one_that_changes_something_only_once() -> None:
    """A look first, then the mail; a second mail never."""
    for number in range(20):
        turns = played(f"How did sales develop in week {number}? Use run_sql, then send_mail the result.")
        flat = [name for turn in turns for name in turn]
        assert "send_mail" not in turns[0]
        assert ("run_sql" in flat, 1) == (True, flat.count("send_mail"))


def test_a_failed_call_is_tried_again_and_a_denied_one_is_not() -> None:
    """Other arguments may cure an error, at most three times; a person's no stands."""

    def failing(text: str) -> list[int]:
        found = play(asking(QUESTION), lambda call: {**result(call, text), "is_error": True})[1]
        assert "failed: “" in found[-1]["content"][0]["text"]
        return [len(calls_of(message)) for message in found]

    assert [1, 1, 1, 0] == failing("no such column: regin")
    assert [1, 0] == failing("Denied by the user.")


def test_a_look_at_the_catalogue_is_followed_by_a_query() -> None:
    """Where no table is known the catalogue is asked, and what it tells is used."""
    catalogue = "CREATE TABLE visits(id INTEGER, city TEXT, amount REAL)"
    replies = play(asking("Which city lost most? Check with SQL."), lambda call: result(call, catalogue))[1]
    queries = [call["input"]["query"] for message in replies for call in calls_of(message)]
    assert CATALOGUE == queries[0]
    assert "FROM visits GROUP BY city" in queries[1]


def test_choices() -> None:
    """`none` gives a text, `any` and `tool` a call in any turn, and one call where parallel use is off."""
    assert [] == names(reply(asking(QUESTION, tool_choice={"type": "none"})))
    trees = "Explain trees."
    assert ["run_sql"] == names(reply(asking(trees, tool_choice={"type": "any"})))
    forced = asking(trees, tool_choice={"type": "tool", "name": "send_mail"})
    message = reply(forced)
    assert ["send_mail"] == names(message)
    assert ["send_mail"] == names(reply(continued(forced, message, *map(result, calls_of(message)))))
    single = {"type": "auto", "disable_parallel_tool_use": True}
    for number in range(20):
        prompt = f"Week {number}: which weather in which city, by get_weather and run_sql?"
        assert 1 >= len(names(reply(asking(prompt, tool_choice=single))))


@pytest.mark.parametrize("model", ["claude-opus-5-5", "claude-sonnet-5-5", "claude-fable-5-1", "claude-fable-5-2"])
@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "run_sql"}])
def test_models_that_refuse_forced_tools(talk, model, choice) -> None:
    """A 400, also when tokens are counted."""
    body = asking(QUESTION, model=model, tool_choice=choice)
    del body["max_tokens"]
    with pytest.raises(anthropic.BadRequestError, match="is not supported by"):
        talk.sdk(lambda client: client.messages.count_tokens(**body))


def test_a_schema_is_answered_after_the_results() -> None:
    """A typed answer is the document, without a quote in front."""
    schema = {"type": "object", "properties": {"region": {"type": "string"}}, "additionalProperties": False}
    config = {"format": {"type": "json_schema", "schema": {**schema, "required": ["region"]}}}
    replies = play(asking(QUESTION, output_config=config))[1]
    assert ["tool_use", "end_turn"] == [replies[0]["stop_reason"], replies[-1]["stop_reason"]]
    assert ["region"] == list(json.loads(replies[-1]["content"][-1]["text"]))


def test_json_asked_for_in_words_comes_after_the_results_too() -> None:
    """Keys that the prompt names, and nothing around the document."""
    replies = play(asking("Check the sales with SQL. Answer as JSON with fields region and amount."))[1]
    assert replies[0]["stop_reason"] == "tool_use"
    assert ["region", "amount"] == list(json.loads(replies[-1]["content"][-1]["text"]))


# Arguments.

SCALARS = st.one_of(
    st.builds(
        lambda low, size: {"type": "integer", "minimum": low, "maximum": low + size},
        st.integers(-9, 9),
        st.integers(0, 9),
    ),
    st.builds(lambda low: {"type": "integer", "exclusiveMinimum": low}, st.integers(-9, 50)),
    st.just({"type": "number", "minimum": 0, "exclusiveMaximum": 1}),
    st.builds(
        lambda low, size: {"type": "string", "minLength": low, "maxLength": low + size},
        st.integers(0, 60),
        st.integers(0, 9),
    ),
    st.just({"type": "boolean"}),
    st.just({"enum": ["a", "b", 3]}),
    st.just({"anyOf": [{"type": "integer"}, {"type": "null"}]}),
    st.just({"type": "string", "format": "date"}),
)
SCHEMAS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.builds(lambda items: {"type": "array", "items": items, "maxItems": 3}, inner),
        st.builds(
            lambda one: {"type": "object", "properties": {"x": one}, "required": ["x"], "additionalProperties": False},
            inner,
        ),
    ),
    max_leaves=5,
)
FIELDS = st.dictionaries(st.sampled_from("query city to path url days limit tags note".split()), SCHEMAS, max_size=5)


@settings(deadline=None, max_examples=150)
@given(fields=FIELDS, data=st.data())
def test_arguments_fit_the_schema(fields, data) -> None:
    """Whatever the schema asks for; all that is required is there."""
    required = data.draw(st.lists(st.sampled_from(sorted(fields)), unique=True)) if fields else []
    schema = {"type": "object", "properties": fields, "required": required, "additionalProperties": False}
    name = data.draw(st.sampled_from(["look_up", "find_city"]))
    body = asking("Look up the city.", tools=[{"name": name, "input_schema": schema}], tool_choice={"type": "any"})
    (call,) = calls_of(reply(body))
    jsonschema.validate(call["input"], schema)


def test_arguments_vary_and_read_like_a_models() -> None:
    """What the prompt names, else cities for a city and addresses for a recipient; another prompt, other arguments."""
    forced = {"type": "tool", "name": "send_mail"}
    found = [calls_of(reply(asking(f"Mail {n}", tool_choice=forced)))[0]["input"] for n in range(20)]
    assert all(each["to"].endswith("@example.com") and each["text"] for each in found)
    assert len({each["to"] for each in found}) > 2
    (call,) = calls_of(reply(asking("What is the weather in Lisbon?")))
    assert "Lisbon" == call["input"]["city"]
    price = {"name": "price", "input_schema": {"type": "object", "properties": {"sku": {"type": "string"}}}}
    (call,) = calls_of(reply(asking("What is the price of SKU-12?", tools=[price])))
    assert {"sku": "SKU-12"} == call["input"]
    cities = [calls_of(reply(asking(f"Weather in town {n}?")))[0]["input"]["city"] for n in range(20)]
    assert len(set(cities)) > 2


def test_examples_of_the_definition_are_used() -> None:
    """Now and then a call is one of them."""
    tool = {**WEATHER, "input_examples": [{"city": "Ulm", "days": 3}]}
    found = [calls_of(reply(asking(f"Weather {n}?", tools=[tool])))[0]["input"] for n in range(20)]
    assert 0 < found.count({"city": "Ulm", "days": 3}) < 20


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        (
            "CREATE TABLE IF NOT EXISTS sales (id INTEGER, region TEXT, total DECIMAL(10, 2), PRIMARY KEY (id))",
            {"sales": ["id", "region", "total"]},
        ),
        ("Tables: orders(id, region, amount).", {"orders": ["id", "region", "amount"]}),
        ("Look at the table visits.", {"visits": []}),
        ("Use the `reviews` table.", {"reviews": []}),
        ("Query the database for what was lost.", {}),
    ],
)
def test_tables_are_found_in_a_text(text, tables) -> None:
    """In what results, descriptions and prompts say of them."""
    assert tables == tables_of(text)


def test_queries_run_on_the_tables_that_are_named() -> None:
    """Real SQLite takes what is written, and there are several forms."""
    with closing(sqlite3.connect(":memory:")) as link, link:
        link.execute("CREATE TABLE orders(id INTEGER, region TEXT, day TEXT, amount REAL)")
        queries = {
            sql_for(text, Random(seed))
            for seed in range(40)
            for text in ("orders(id, region, day, amount)", "the orders table", "nothing is known", "orders(id, day)")
        }
        for query in queries:
            link.execute(query)
    link.close()
    assert len(queries) > 8


# Directives.


def test_directives_hold_in_their_turn() -> None:
    """Calls in turn 1 and 3, text before one, an empty end in turn 4: nothing else is called."""
    prompt = (
        'Go. [[tool:run_sql {"query": "SELECT 1"}]] [[tool:get_weather {"city": "Oslo"}]] [[text@2-3:I send it.]] '
        '[[tool@2:send_mail {"to": "a", "text": "b"}]] [[tool@3:no_such_tool]] [[text@4:]]'
    )
    replies = play(asking(prompt))[1]
    assert [["run_sql", "get_weather"], ["send_mail"], ["no_such_tool"], []] == list(map(names, replies))
    assert ["tool_use"] * 2 == [block["type"] for block in replies[0]["content"]]
    assert ["I send it.", "I send it."] == [message["content"][0]["text"] for message in replies[1:3]]
    assert ([], "end_turn", 2) == (
        replies[3]["content"],
        replies[3]["stop_reason"],
        replies[3]["usage"]["output_tokens"],
    )


def test_errors_and_stop_reasons_hold_in_their_turn() -> None:
    """A refusal in turn 2, an error in turn 3."""
    body = asking("Go. [[tool@1-2:run_sql]] [[stop@2:refusal]]")
    message = reply(body)
    assert "refusal" == reply(continued(body, message, *map(result, calls_of(message))))["stop_reason"]
    with pytest.raises(ApiError) as caught:
        play(asking("Go. [[tool@1-9:run_sql]] [[status@3:429]]"))
    assert 429 == caught.value.status


@pytest.mark.parametrize("directive", ["[[tool@0:look]]", "[[fault@0:cut]]", "[[status@2]]"])
def test_wrong_turns_are_refused(directive) -> None:
    """Turns count from 1, and a directive has a value."""
    with pytest.raises(ApiError, match="simulator"):
        reply(asking(f"Go. {directive}"))


def test_a_script_has_turns(started, tmp_path) -> None:
    """A line with a turn holds in that turn only, and what the script calls is all that is called."""
    lines = [
        {"match": "sales", "turn": 1, "tool_use": [{"name": "run_sql", "input": {"query": "SELECT 1"}}]},
        {"match": "sales", "turn": "2-3", "text": "Done."},
    ]
    path = tmp_path / "script.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    talk = started(latency="none", script=path)
    body = asking("Check the sales with SQL.")
    first = talk.post(body).body
    assert [{"query": "SELECT 1"}] == [call["input"] for call in calls_of(first)]
    second = talk.post(continued(body, first, *map(result, calls_of(first)))).body
    assert "Done." == second["content"][0]["text"]


# Streams.


def streamed(talk: Any, body: dict[str, Any]) -> tuple[list[dict[str, Any]], str]:
    """The raw events of a stream, as the SDK reads them, and the JSON of the last call."""

    async def read(client: AsyncAnthropic) -> list[dict[str, Any]]:
        events = await client.messages.create(stream=True, **body)
        return [event.model_dump() async for event in events]

    events = talk.sdk(read)
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    return events, "".join(delta["partial_json"] for delta in deltas if delta["type"] == "input_json_delta")


LONG = {"a": "word " * 40, "b": [1, 2], "c": "x"}


@pytest.mark.parametrize(("eager", "pieces"), [(False, 3), (True, 6)])
def test_arguments_stream_in_pieces(talk, eager, pieces) -> None:
    """A call opens with an empty input. Its pieces are whole arguments, or what was written where it is eager."""
    tool = {**SQL, "eager_input_streaming": eager}
    events, text = streamed(talk, asking(f"Go. [[tool:run_sql {json.dumps(LONG)}]]", tools=[tool]))
    start = next(event for event in events if event["type"] == "content_block_start")
    assert {} == start["content_block"]["input"]
    deltas = [event for event in events if event["type"] == "content_block_delta"]
    assert pieces == len(deltas) if not eager else pieces <= len(deltas)
    assert json.loads(text) == LONG


def test_no_arguments_bring_no_pieces(talk) -> None:
    """Nothing at all means an empty object."""
    events, text = streamed(talk, asking("Go. [[tool:run_sql]]"))
    assert "" == text
    assert "tool_use" == next(event for event in events if event["type"] == "message_delta")["delta"]["stop_reason"]


@pytest.mark.parametrize("stream", [True, False])
def test_a_call_is_cut_by_directive(talk, stream) -> None:
    """`[[stop:max_tokens]]` ends the last call in the middle of its arguments."""
    body = asking('Go. [[tool:run_sql {"query": "DELETE FROM orders WHERE id = 1"}]] [[stop:max_tokens]]')
    if not stream:
        message = talk.post(body).body
        assert ("max_tokens", {}) == (message["stop_reason"], message["content"][-1]["input"])
        return
    events, text = streamed(talk, body)
    assert "max_tokens" == next(event for event in events if event["type"] == "message_delta")["delta"]["stop_reason"]
    assert '{"query": "DELETE FROM orders WHERE id = 1"}'.startswith(text)
    with pytest.raises(ValueError, match="Unterminated"):
        json.loads(text)


def test_broken_arguments_come_where_they_are_streamed_eagerly(talk) -> None:
    """They are no JSON; without eager streaming the API would have checked them, so the directive is refused."""
    prompt = 'Go. [[tool:run_sql {"query": "x"}]] [[broken]]'
    _, text = streamed(talk, asking(prompt, tools=[{**SQL, "eager_input_streaming": True}]))
    with pytest.raises(ValueError, match="Expecting"):
        json.loads(text)
    assert "eager_input_streaming" in talk.post(asking(prompt)).body["error"]["message"]


def test_ids_of_calls_differ_between_servers(started) -> None:
    """A conversation that goes on with a new server has no id twice."""
    body, seen = asking("Go. [[tool@1-2:run_sql]]"), list[str]()
    for _ in range(2):
        message = started(latency="none").post(body).body
        seen += [call["id"] for call in calls_of(message)]
        body = continued(body, message, *map(result, calls_of(message)))
    assert 2 == len(set(seen))
    assert 200 == started(latency="none").post(body).status


# Tools of the server.

CODE = {"type": "code_execution_20260521", "name": "code_execution"}
OLD_CODE = {"type": "code_execution_20250522", "name": "code_execution"}
FETCH = {"type": "web_fetch_20260318", "name": "web_fetch"}


def test_a_search_is_answered_in_the_same_response(talk) -> None:
    """Call, results and a text that cites them, counted in the usage; the SDK reads it from a stream."""
    message = talk.stream("Search the web for news on night trains.", tools=[SEARCH])
    kinds = [block.type for block in message.content]
    assert ["server_tool_use", "web_search_tool_result", "text"] == kinds[:3]
    call, found = message.content[:2]
    assert ("end_turn", call.id, 1) == (
        message.stop_reason,
        found.tool_use_id,
        message.usage.server_tool_use.web_search_requests,
    )
    assert 3 <= len(found.content) <= 4
    cited = [block.citations[0] for block in message.content if block.type == "text" and block.citations]
    assert {page.url for page in found.content} >= {each.url for each in cited} > set()


@pytest.mark.parametrize(
    ("tool", "kind"),
    [
        (CODE, "bash_code_execution_tool_result"),
        (OLD_CODE, "code_execution_tool_result"),
        (FETCH, "web_fetch_tool_result"),
        ({"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}, "tool_search_tool_result"),
    ],
)
def test_results_of_other_server_tools(talk, tool, kind) -> None:
    """Each in the form of its version, which the SDK knows; sent back it is accepted."""
    body = asking(f"Go. [[tool:{tool['name']}]]", tools=[tool])
    message = talk.sdk(lambda client: client.messages.create(**body))
    assert kind == message.content[1].type
    back = [block.model_dump(exclude_none=True) for block in message.content]
    body["messages"] += [{"role": "assistant", "content": back}, {"role": "user", "content": "Thanks."}]
    assert "end_turn" == talk.post(body).body["stop_reason"]


def test_too_many_searches_are_an_error_inside_a_good_response() -> None:
    """`max_uses` counts in one request; what was refused is not counted."""
    prompt = 'Go. [[tool:web_search {"query": "a"}]] [[tool:web_search {"query": "b"}]]'
    message = reply(asking(prompt, tools=[{**SEARCH, "max_uses": 1}]))
    results = [block["content"] for block in message["content"] if block["type"] == "web_search_tool_result"]
    assert [list, "max_uses_exceeded"] == [type(results[0]), results[1]["error_code"]]
    assert 1 == message["usage"]["server_tool_use"]["web_search_requests"]


def test_a_paused_search_goes_on_in_the_next_response() -> None:
    """Its content goes back as it is, and the result opens what follows."""
    requests, replies = play(asking("Briefly. [[stop:pause_turn times=1]]", tools=[SEARCH, MAIL]))
    assert ["pause_turn", "end_turn"] == [message["stop_reason"] for message in replies]
    assert "assistant" == requests[-1]["messages"][-1]["role"]
    paused, first = replies[0]["content"][-1], replies[1]["content"][0]
    assert ("web_search_tool_result", paused["id"]) == (first["type"], first["tool_use_id"])


def test_the_hidden_prompt_is_counted(talk) -> None:
    """Tools cost their definitions and an instruction, longer where a choice is forced."""

    def count(**more: Any) -> int:
        body = {"model": "claude-opus-5", "messages": [{"role": "user", "content": "x"}], **more}
        return talk.sdk(lambda client: client.messages.count_tokens(**body)).input_tokens

    own = sum(-(-len(json.dumps(tool, separators=(",", ":"))) // 4) for tool in TOOLS)
    assert own + 286 == count(tools=TOOLS) - count()
    assert own + 406 == count(tools=TOOLS, tool_choice={"type": "any"}) - count()
