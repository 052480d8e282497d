"""Answers of chat completions servers, each with habits of its own."""

# Tests take for granted what they have just checked.
# pyright: reportOptionalMemberAccess=false, reportArgumentType=false

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magic.errors import CallError, Overloaded, RateLimited, Rejected, Truncated, Unreadable
from agent_magic.providers.events import Event, events_of
from agent_magic.providers.responses import ABANDONED
from agent_magic.record import Usage
from tests.providers.chat.speaking import (
    DONE,
    MODEL,
    TEXT,
    WHOLE,
    ask,
    called,
    chunk,
    completion,
    counts,
    delta,
    said,
)
from tests.providers.wire import reply

FINAL = Usage(7, cache_read_tokens=0, output_tokens=3)
COMMENTS = b": OPENROUTER PROCESSING\n\n" + WHOLE.replace(b"\n\ndata", b"\n\n: keep-alive\n\ndata")
ONE_A_LINE = WHOLE.replace(b"\n\n", b"\n") + b"\n"
HABITS = {
    "as documented": WHOLE,
    "CRLF": WHOLE.replace(b"\n", b"\r\n"),
    "CR": WHOLE.replace(b"\n", b"\r"),
    "comments that keep it alive": COMMENTS,
    "no blank lines": ONE_A_LINE,
    "no blank behind data:": WHOLE.replace(b"data: ", b"data:"),
    "a byte order mark": b"\xef\xbb\xbf" + WHOLE,
    "no [DONE]": WHOLE.removesuffix(DONE),
    "a last event without its line end": WHOLE.removesuffix(DONE).rstrip(),
    "counts with the finish_reason": TEXT
    + chunk(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}], **counts())
    + DONE,
    "counts in every chunk": b"".join(
        chunk(choices=[{"index": 0, "delta": {"content": text}, "finish_reason": reason}], **counts(7, made))
        for text, reason, made in (("hello ", None, 1), ("world", None, 2), ("", "stop", 3))
    )
    + chunk(**counts())
    + DONE,
    "thoughts left out of the count": TEXT + delta("stop") + chunk(**counts(7, 1, total_tokens=10)) + DONE,
    "null fields": WHOLE.replace(b'"choices": []', b'"choices": null, "error": null'),
    "parts of a text": delta(content=[{"type": "text", "text": "hello world"}]) + delta("stop") + chunk(**counts()),
    "signs of life": WHOLE.replace(
        b"\n\ndata",
        b"\n\ndata:\n\ndata: null\n\ndata: {}\n\ndata: keep-alive\n\nevent: ping\ndata: x\n\ndata",
    ),
    "the whole message at the end": TEXT
    + chunk(choices=[{"index": 0, "delta": {}, "message": {"content": "hello world"}, "finish_reason": "stop"}])
    + chunk(**counts()),
    "the answer numbered otherwise": WHOLE.replace(b'"index": 0', b'"index": "0"'),
    "another answer beside it": WHOLE.replace(b'"finish_reason": null}', b'"finish_reason": null}, {"index": 1}'),
    "parts without a type": delta(content=["hello ", {"text": "world"}]) + delta("stop") + chunk(**counts()),
    "one part": delta(content={"type": "output_text", "text": "hello world"}) + delta("stop") + chunk(**counts()),
    "counts with a point": WHOLE.replace(b"7", b"7.0").replace(b"3", b"3.0").replace(b"qwen3.0", b"qwen3"),
    "counts in the choice": TEXT + chunk(choices=[{"index": 0, "delta": {}, "finish_reason": "stop", **counts()}]),
    "counts of Groq": TEXT + chunk(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}], x_groq=counts()),
    "a role in each chunk, and one without an id": delta(role="assistant", content="hello ")
    + chunk(id="", choices=[{"index": 0, "finish_reason": None, "content_filter_results": {}}])
    + delta(role="assistant", content="world")
    + delta("stop", role="assistant")
    + chunk(**counts()),
    "counts behind [DONE]": TEXT + delta("stop") + DONE + chunk(**counts()),
    "a completion in one event": b"data: " + completion({"content": "hello world"}, **counts()) + b"\n\n" + DONE,
    "an end in capitals": TEXT + delta("STOP") + chunk(**counts()),
    "an error behind the end": TEXT + delta("stop") + chunk(**counts()) + b'data: {"error": {"message": "late"}}\n\n',
}


@pytest.mark.parametrize("body", HABITS.values(), ids=HABITS)
def test_an_answer_is_read_whatever_its_form(body: bytes):
    """The same text, counts and model come out of each."""
    answer, stream, _ = ask(reply(body))
    assert ("hello world", "end_turn", FINAL) == (answer.text, answer.stop_reason, answer.usage)
    assert 200 == stream.status_code
    assert MODEL == answer.model


KINDS = [
    None,
    "application/json; charset=utf-8",
    "text/event-stream",
    "text/plain",
    "text/html",
    "application/x-ndjson",
]
BODIES = {
    "one piece": completion({"content": "hello world"}, **counts()),
    "a stream": WHOLE,
    "a line for each chunk": WHOLE.removesuffix(DONE).replace(b"data: ", b"").replace(b"\n\n", b"\n"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_an_answer_is_read_whatever_its_content_type(kind: str | None, body: bytes):
    """A server may ignore that a stream was asked for, or name it otherwise: its body tells."""
    answer, _, _ = ask(reply(body, kind=kind))
    assert ("hello world", "end_turn", FINAL) == (answer.text, answer.stop_reason, answer.usage)


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_in_one_piece_needs_no_end(kind: str | None):
    """Some servers do not end such a response."""
    assert "hello world" == ask(reply(BODIES["one piece"], kind=kind, length=9_999))[0].text


@pytest.mark.parametrize("form", ["%s", "data: %s\n\n"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_error_behind_a_200_has_its_words_whatever_its_content_type(kind: str | None, form: str):
    """What can never work is refused at once, as behind its own status."""
    body = form % json.dumps({"error": {"message": "no such key", "code": 401}})
    with pytest.raises(Rejected, match=r"no such key \(401\)"):
        ask(reply(body.encode(), kind=kind))


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        *(({"type": one}, Rejected) for one in ("billing_error", "permission_error", "not_found_error")),
        *(({"type": one}, Overloaded) for one in ("overloaded_error", "timeout_error", "a new one", None)),
        *(({name: "rate_limit_error"}, RateLimited) for name in ("type", "code")),
    ],
)
def test_an_error_in_a_stream_is_classified_by_its_words(words: dict[str, Any], kind: type[CallError]):
    """Gateways pass on the types of the vendor behind them, behind a 200 and without a number."""
    with pytest.raises(kind):
        ask(reply(TEXT + chunk(error={"message": "the words", **words})))


def test_a_typed_answer_that_a_server_has_parsed_is_its_text():
    """It is an object in the place of a text."""
    assert {"value": "é"} == json.loads(ask(reply(delta(content={"value": "é"}) + delta("stop")))[0].text)


@pytest.mark.parametrize("place", ["the chunk", "the choice"])
@pytest.mark.parametrize(("code", "kind"), [(402, Rejected), (400, Rejected), (429, RateLimited), (502, Overloaded)])
def test_an_error_beside_a_choice_has_its_words(place: str, code: int, kind: type[CallError]):
    """Routers end a stream so: the reason is the error's, and its status says whether another try may help."""
    error = {"error": {"code": code, "message": "the router's words"}}
    ended: dict[str, Any] = {"index": 0, "delta": {"content": ""}, "finish_reason": "error"}
    last = chunk(choices=[ended], **error) if place == "the chunk" else chunk(choices=[ended | error])
    with pytest.raises(kind, match=f"the router's words .{code}") as caught:
        ask(reply(TEXT + last))
    assert "hello world" == caught.value.partial


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_what_a_model_thinks_is_no_part_of_its_answer(name: str):
    """It is counted among what has arrived, and shown nowhere."""
    answer, stream, _ = ask(reply(delta(**{name: "hmm, what now"}) + WHOLE))
    assert "hello world" == answer.text
    assert len("hmm, what now") == stream.unseen


def begun(id_: str, text: str, **fields: Any) -> bytes:
    """The first two chunks of an answer."""
    return chunk(id=id_, choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}}]) + chunk(
        id=id_, choices=[{"index": 0, "delta": {"content": text, **fields}}]
    )


def test_an_answer_that_starts_again_is_read_from_there():
    """A proxy that reconnects sends it once more. No text or call is there twice, and no count covers both."""
    answer, stream, _ = ask(reply(begun("c_0", "hello ", tool_calls=[called(0, "f", "{", "t")]) + WHOLE))
    assert ("hello world", "hello world", "end_turn") == (answer.text, stream.text, answer.stop_reason)
    assert Usage(7, cache_read_tokens=0, output_tokens=5, estimated=True) == answer.usage
    assert len("hello {") == stream.unseen


def first(id_: str, text: str) -> bytes:
    """The first chunk of an answer, with a text."""
    return chunk(id=id_, choices=[{"index": 0, "delta": {"role": "assistant", "content": text}}])


@pytest.mark.parametrize(
    "before", [first("c_8", "hello "), first("c_8", "he") + first("c_9", "hello "), first("c_8", "")]
)
def test_an_answer_that_starts_again_after_its_first_chunk_is_read_from_there(before: bytes):
    """The second beginning is known by the chunk that goes on with its id."""
    again = first("c_1", "hello ") + chunk(id="c_1", choices=[{"index": 0, "delta": {"content": "world"}}])
    answer, stream, _ = ask(reply(before + again + delta("stop") + chunk(**counts()) + DONE))
    assert ("hello world", "hello world", True) == (answer.text, stream.text, answer.usage.estimated)


def test_another_answer_behind_a_complete_one_is_none_of_it():
    """The complete one is paid for, and stays as it is."""
    answer, _, _ = ask(reply(TEXT + delta("stop") + begun("c_2", "again") + DONE))
    assert ("hello world", "end_turn") == (answer.text, answer.stop_reason)


@pytest.mark.parametrize("role", [{}, {"role": "assistant"}])
def test_an_id_or_a_role_in_every_chunk_starts_nothing(role: dict[str, str]):
    """Servers have both habits."""
    pieces = [{"role": "assistant", "content": "hello "}, {"content": "world", **role}]
    body = b"".join(chunk(id=f"c_{at}", choices=[{"index": 0, "delta": one}]) for at, one in enumerate(pieces))
    assert "hello world" == ask(reply(body + delta("stop") + chunk(**counts())))[0].text


def test_an_end_starts_nothing():
    """A gateway may write the last chunk itself, with a role and an id of its own: no text is lost by it."""
    last = chunk(id="c_9", choices=[{"index": 0, "delta": {"role": "assistant"}, "finish_reason": "stop"}])
    assert "hello world" == ask(reply(TEXT + last + chunk(**counts()) + DONE))[0].text


UNCOUNTED = {
    "none": TEXT + delta("stop") + DONE,
    "null": TEXT + delta("stop") + chunk(usage=None) + DONE,
    "texts": TEXT + delta("stop") + chunk(usage={"prompt_tokens": "7", "completion_tokens": "3"}) + DONE,
    "below 0": TEXT + delta("stop") + chunk(**counts(-7, 3)) + DONE,
    "more than was asked for": TEXT + delta("stop") + chunk(**counts(7, 101)) + DONE,
}


@pytest.mark.parametrize("body", UNCOUNTED.values(), ids=UNCOUNTED)
def test_what_is_not_counted_is_unknown(body: bytes):
    """Never 0, and never final."""
    answer, _, _ = ask(reply(body))
    assert answer.usage.is_unknown
    assert not answer.usage.is_final


def test_counts_before_the_end_are_running():
    """They become an estimate that is at least what has arrived; so do counts that fall."""
    running = chunk(choices=[{"index": 0, "delta": {"content": "hello"}, "finish_reason": None}], **counts(7, 9))
    assert (
        Usage(7, cache_read_tokens=0, output_tokens=9, estimated=True) == ask(reply(running + delta("stop")))[0].usage
    )
    fallen = running + delta("stop") + chunk(**counts(7, 2)) + DONE
    assert Usage(7, cache_read_tokens=0, output_tokens=9, estimated=True) == ask(reply(fallen))[0].usage


@pytest.mark.parametrize(
    "more", [{"prompt_tokens_details": {"cached_tokens": 5}}, {"prompt_cache_hit_tokens": 5}], ids=["details", "field"]
)
def test_what_came_from_the_cache_is_told_apart(more: dict[str, Any]):
    """The count of the prompt holds it."""
    answer, _, _ = ask(reply(TEXT + delta("stop") + chunk(**counts(7, 3, **more))))
    assert (2, 5, 7) == (answer.usage.input_tokens, answer.usage.cache_read_tokens, answer.usage.total_input_tokens)


@pytest.mark.parametrize("count", [8, 10**9, -1, 2.5, "3", True, None, []], ids=repr)
def test_what_is_no_count_of_the_cache_makes_nothing_cheaper(count: Any):
    """Of a prompt of 7 tokens no 8 come from the cache: all 7 are paid in full."""
    for more in ({"prompt_tokens_details": {"cached_tokens": count}}, {"prompt_cache_hit_tokens": count}):
        answer, _, _ = ask(reply(TEXT + delta("stop") + chunk(**counts(7, 3, **more))))
        assert (7, 0) == (answer.usage.input_tokens, answer.usage.cache_read_tokens)


CALLS = {
    "in one piece": delta(tool_calls=[called(0, "look", '{"n": 1}', "a"), called(1, "look", '{"n": 2}', "b")]),
    "in fragments": delta(tool_calls=[called(0, "look", "", "a")])
    + b"".join(delta(tool_calls=[called(0, "", one)]) for one in '{"n": 1}')
    + delta(tool_calls=[called(1, "look", "", "b")])
    + b"".join(delta(tool_calls=[called(1, "", one)]) for one in '{"n": 2}'),
    "side by side": delta(tool_calls=[called(0, "look", '{"n"', "a"), called(1, "look", '{"n"', "b")])
    + delta(tool_calls=[called(1, "", ": 2}"), called(0, "", ": 1}")]),
    "each with the number 0": delta(tool_calls=[called(0, "look", '{"n": 1}', "a")])
    + delta(tool_calls=[called(0, "look", '{"n": 2}', "b")]),
    "without numbers": delta(tool_calls=[called(None, "look", '{"n": 1}', "a")])
    + delta(tool_calls=[called(None, "look", '{"n": 2}', "b")]),
    "with the name in each piece": delta(tool_calls=[called(0, "look", '{"n"', "a")])
    + delta(tool_calls=[called(0, "look", ": 1}", "a")])
    + delta(tool_calls=[called(1, "look", '{"n": 2}', "b")]),
    "each again under another number": delta(
        tool_calls=[called(0, "look", "", "a"), called(1, "look", '{"n": 1}', "a")]
    )
    + delta(tool_calls=[called(2, "look", '{"n": 2}', "b"), called(3, "look", '{"n": 2}', "b")]),
    "as objects": delta(tool_calls=[called(0, "look", {"n": 1}, "a"), called(1, "look", {"n": 2}, "b")]),
}


@pytest.mark.parametrize("reason", ["tool_calls", "stop"])
@pytest.mark.parametrize("calls", CALLS.values(), ids=CALLS)
def test_calls_are_put_together(calls: bytes, reason: str):
    """Whatever the pieces are, and whatever the server says in the end."""
    answer, _, _ = ask(reply(delta(content="Let me see.") + calls + delta(reason) + chunk(**counts()) + DONE))
    assert "tool_use" == answer.stop_reason
    text, *uses = json.loads(answer.content)
    assert {"type": "text", "text": "Let me see."} == text
    assert [("a", "look", {"n": 1}), ("b", "look", {"n": 2})] == [
        (one["id"], one["name"], one["input"]) for one in uses
    ]


def test_calls_without_ids_get_some():
    """Results go back by them, so they differ; a call without arguments has an empty object."""
    calls = delta(tool_calls=[called(0, "look"), called(1, "look", "{}", "a"), called(2, "see", "", "a")])
    answer, _, _ = ask(reply(calls + delta("tool_calls")))
    uses = json.loads(answer.content)
    assert 3 == len({one["id"] for one in uses})
    assert [{}, {}, {}] == [one["input"] for one in uses]


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        *(("length", "max_tokens"), ("MAX_TOKENS", "max_tokens"), ("model_length", "max_tokens")),
        *(("content_filter", "refusal"), ("SAFETY", "refusal"), ("sensitive", "refusal")),
        *(("COMPLETE", "end_turn"), ("stop_sequence", "stop_sequence"), ("something new", "something new")),
    ],
)
def test_the_end_has_the_words_of_the_project(reason: str, expected: str):
    """A new word is passed on as it is."""
    assert expected == ask(reply(TEXT + delta(reason)))[0].stop_reason


@pytest.mark.parametrize("reason", sorted({*ABANDONED, "MALFORMED_FUNCTION_CALL"}))
@pytest.mark.parametrize("place", ["finish_reason", "native_finish_reason"])
def test_what_a_server_gives_up_is_no_answer(reason: str, place: str):
    """It says so in the place of a reason, after a text or none; a router says it beside a reason that sounds well."""
    last = {"index": 0, "delta": {}, "finish_reason": "stop", place: reason}
    for before in (TEXT, delta(role="assistant", content="")):
        with pytest.raises(Overloaded, match=f"abandoned the answer .{reason}"):
            ask(reply(before + chunk(choices=[last]) + chunk(**counts()) + DONE))


def test_a_refusal_is_one():
    """A model may decline in a field of its own."""
    answer, _, _ = ask(reply(delta(refusal="I cannot.") + delta("stop") + chunk(**counts())))
    assert ("refusal", "unnamed", "I cannot.") == (answer.stop_reason, answer.refusal, answer.text)


BROKEN: dict[str, tuple[bytes, type[CallError], str]] = {
    "cut": (reply(TEXT), Truncated, "no finish_reason"),
    "cut in the middle of an event": (reply((TEXT + delta("stop"))[:-40]), Truncated, "no finish_reason"),
    "done without an end": (reply(TEXT + DONE), Truncated, "no finish_reason"),
    "given up": (reply(TEXT + delta("error")), Overloaded, "abandoned the answer"),
    "an error in the stream": (
        reply(TEXT + b'data: {"error": {"message": "engine is dead", "code": 500}}\n\n'),
        Overloaded,
        r"engine is dead \(500\)",
    ),
    "an error event": (reply(TEXT + b"event: error\ndata: upstream went away\n\n"), Overloaded, "upstream went away"),
    "an error in a 200": (
        reply(b'{"error": {"message": "no such model", "code": 404}}', kind="application/json"),
        Rejected,
        r"no such model \(404\). Check the model's name",
    ),
    "a page": (reply(b"<html>login</html>", kind="text/html"), Unreadable, "web page"),
    "words": (reply(b"data: hello\n\n"), Unreadable, "not the API.s: .hello."),
    "a number": (reply(b"data: 7\n\n"), Unreadable, "not the API's"),
    "nothing": (reply(b""), Truncated, "no finish_reason"),
    "another API": (reply(b'{"hello": 1}', kind="application/json"), Unreadable, "Expected an event stream"),
}


@pytest.mark.parametrize(("body", "kind", "words"), BROKEN.values(), ids=BROKEN)
def test_what_is_no_answer_is_an_error(body: bytes, kind: type[CallError], words: str):
    """With the text that had arrived; a cut answer is never one."""
    with pytest.raises(kind, match=words) as caught:
        ask(body)
    assert kind is type(caught.value)
    assert ("hello world" if b"hello " in body and b"world" in body else "") == caught.value.partial


async def _read(pieces: list[bytes]) -> list[Event]:
    async def body() -> Any:
        for piece in pieces:
            yield piece

    return [one async for one in events_of(body())]


VALUES = st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3), max_leaves=5)


@given(
    values=st.lists(VALUES, max_size=5),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    cuts=st.lists(st.integers(0, 400), max_size=8),
    comment=st.booleans(),
)
def test_events_are_the_same_wherever_they_are_cut(values: list[Any], end: str, cuts: list[int], comment: bool):
    """At any byte, with any line end, whatever characters the JSON holds as they are."""
    note = f": still here{end}{end}" if comment else ""
    text = "".join(f"{note}data: {json.dumps(one, ensure_ascii=False)}{end}{end}" for one in values)
    body = text.encode("utf-8", "replace")
    places = sorted({0, len(body), *(one for one in cuts if one < len(body))})
    pieces = [body[begin:stop] for begin, stop in itertools.pairwise(places)]
    assert [json.loads(json.dumps(one, ensure_ascii=False).encode("utf-8", "replace")) for one in values] == [
        json.loads(one.data) for one in asyncio.run(_read(pieces))
    ]


def test_an_answer_is_there_though_the_connection_stays_open():
    """Nobody waits for a server that says nothing more behind its last event."""

    async def stays(writer: Any, number: int) -> None:
        writer.write(reply(said("hello world")))
        await writer.drain()
        await asyncio.Event().wait()

    answer, _, server = ask(stays)
    assert ("hello world", FINAL) == (answer.text, answer.usage)
    assert 1 == server.gone
