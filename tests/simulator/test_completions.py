"""The mock server speaks chat completions: what `am.Chat` asks, it answers as a server of that API does."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from typing import Any, Literal

import pytest
from PIL import Image

import agent_magic as am

OWN = "own-7b"


@pytest.fixture(scope="module")
def server():
    """The address of a mock server."""
    with am.Simulator(latency="none") as found:
        yield found.url


def run(server: str, plan: am.Plan, **options: Any) -> am.Run:
    """Run a plan by way of `am.Chat`."""
    return asyncio.run(plan.run(client=am.Chat(f"{server}/v1", free=True), **options))


def post(server: str, path: str = "/v1/chat/completions", **body: Any) -> tuple[int, dict[str, Any]]:
    """Send a body; return status and reply."""
    data = json.dumps({"model": OWN, "messages": [{"role": "user", "content": "Hello"}], **body}).encode()
    request = urllib.request.Request(f"{server}{path}", data, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request) as reply:
            return reply.status, json.loads(reply.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def test_an_answer_is_streamed_counted_and_simulated(server):
    """Under the name of the model that was asked for, whatever it is."""
    done = run(server, am.Plan([am.Agent("a", "Say this. [[tokens:30]]", model=OWN)]))
    row = done.agents.iloc[0]
    assert ("succeeded", OWN, 30, 0.0) == (row["status"], row["model_used"], row["output_tokens"], row["cost_usd"])
    assert row["input_tokens"] > 0
    assert "simulated" == done["a"].source
    assert done["a"].text


def test_a_typed_answer_and_an_image(server):
    """A schema is held to, and a picture is taken."""
    plan = am.Plan(
        [am.Agent("a", "Which? {{ dot }}", returns=Literal["yes", "no"], model=OWN)], {"dot": Image.new("RGB", (8, 8))}
    )
    assert run(server, plan)["a"].value in {"yes", "no"}


def test_tools_are_called_and_their_results_are_read(server):
    """Also several turns of them."""

    def area(width: int, height: int) -> int:
        """Return an area."""
        return width * height

    done = run(
        server, am.Plan([am.Agent("a", 'Of 3 by 4? [[tool:area {"width": 3, "height": 4}]]', tools=[area], model=OWN)])
    )
    assert "succeeded" == done["a"].status
    assert [("area", "12")] == [(one.tool, one.result) for one in done.tool_calls.itertuples()]
    assert 2 == len(done.attempts)


@pytest.mark.parametrize("fault", ["[[status:500 times=1]]", "[[fault:cut times=1]]", "[[status:429 times=1]]"])
def test_faults_are_those_of_the_other_api(server, fault):
    """Refusals, errors, and streams that break; the next attempt succeeds."""
    done = run(server, am.Plan([am.Agent("a", f"{fault} Hello {fault!r}", model=OWN)]))
    assert ("succeeded", 2) == (done["a"].status, len(done.attempts))


def test_a_long_answer_says_that_it_was_cut(server):
    """`finish_reason` is `length`."""
    done = run(server, am.Plan([am.Agent("a", "[[tokens:90]] Write.", max_tokens=20, model=OWN)]))
    assert "max_tokens" == done["a"].stop_reason


def test_an_answer_in_one_piece(server):
    """As clients ask that do not stream; a text that looks like an event is one still."""
    status, reply = post(server, messages=[{"role": "user", "content": "Repeat: \n\ndata: {}"}])
    assert 200 == status
    assert ("assistant", "stop") == (reply["choices"][0]["message"]["role"], reply["choices"][0]["finish_reason"])
    assert OWN == reply["model"]
    assert reply["usage"]["total_tokens"] == sum(reply["usage"][f"{one}_tokens"] for one in ("prompt", "completion"))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"colour": 1}, "Unrecognized request argument supplied: colour"),
        ({"model": ""}, "you must provide a model parameter"),
        ({"messages": [5]}, "expected an object"),
        ({"messages": []}, "messages"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"temperature": 2.5}, "temperature"),
        ({"top_p": "much"}, "top_p"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": "["}}]}]}, "tool_calls"),
    ],
)
def test_what_is_wrong_is_refused_in_the_words_of_the_api(server, body, said):
    """A 400 with `error.message`."""
    status, reply = post(server, **body)
    assert 400 == status
    assert said in reply["error"]["message"]
    assert "invalid_request_error" == reply["error"]["type"]


def test_errors_before_its_route_have_its_form(server):
    """An address that is not there, one of another version, a body that is too long, and a method it has not."""
    for path in ("/v2/chat/completions", "/chat/completions"):
        status, reply = post(server, path)
        error = {"message": "Not found.", "type": "not_found_error", "param": None, "code": None}
        assert (404, {"error": error}) == (status, reply)
    status, reply = post(server, user="x" * 34_000_000)
    assert (413, "request_too_large", None) == (status, reply["error"]["type"], reply["error"]["code"])
    with pytest.raises(urllib.error.HTTPError) as found:
        urllib.request.urlopen(f"{server}/v1/chat/completions")
    with found.value as error:
        assert {"message", "type", "param", "code"} == json.loads(error.read())["error"].keys()
    assert "error" == post(server, "/v1/nowhere")[1]["type"]


def test_what_clients_send_beside_a_question(server):
    """At most one call, an object of any form, and the list of models, asked for without a version."""
    tool = {"type": "function", "function": {"name": "look"}}
    assert 200 == post(server, tools=[tool], parallel_tool_calls=False)[0]
    _, reply = post(server, response_format={"type": "json_object"})
    assert isinstance(json.loads(reply["choices"][0]["message"]["content"]), dict)
    request = urllib.request.Request(f"{server}/v1/models", headers={"authorization": "Bearer none"})
    with urllib.request.urlopen(request) as listed:
        assert "claude-haiku-5-5" in [one["id"] for one in json.loads(listed.read())["data"]]
