"""Clients of other projects against the mock server, and this package against servers of other projects.

Each project is installed into an environment of its own, as its users install it, and the test is skipped with the
reason where that fails.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Literal

import pytest

import agent_magic as am
from agent_magic.simulator import start
from tests.foreign import free_port, install, python_with, quiet, serving

pytestmark = pytest.mark.slow

MODEL = "claude-haiku-5-5"
WEATHER = 'What is the weather? [[tool:weather {"city": "Bonn"}]]'

PYDANTIC_AI_MESSAGES = """
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider

model = AnthropicModel(MODEL, provider=AnthropicProvider(api_key="test", base_url=URL))
"""
PYDANTIC_AI_CHAT = """
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

model = OpenAIChatModel(MODEL, provider=OpenAIProvider(api_key="test", base_url=f"{URL}/v1"))
"""
PYDANTIC_AI = """
from pydantic import BaseModel
from pydantic_ai import Agent

class Label(BaseModel):
    mood: str
    score: float

plain = Agent(model).run_sync("Say hi.")
assert plain.output
assert isinstance(Agent(model, output_type=Label).run_sync("Label: great.").output, Label)
agent, called = Agent(model), []

@agent.tool_plain
def weather(city: str) -> str:
    called.append(city)
    return "sunny"

assert agent.run_sync(WEATHER).output and called == ["Bonn"], called

async def stream():
    async with Agent(model).run_stream("Say three words.") as run:
        return [text async for text in run.stream_text(delta=True, debounce_by=None)]

assert len(asyncio.run(stream())) > 1
assert Agent(model).run_sync("And now?", message_history=plain.all_messages()).output
"""

LANGCHAIN_MESSAGES = """
from langchain_anthropic import ChatAnthropic

model = ChatAnthropic(model=MODEL, api_key="test", base_url=URL, max_tokens=300)
"""
LANGCHAIN_CHAT = """
from langchain_openai import ChatOpenAI

model = ChatOpenAI(model=MODEL, api_key="test", base_url=f"{URL}/v1", max_tokens=300, stream_usage=True)
"""
LANGCHAIN = """
from langchain_core.tools import tool
from pydantic import BaseModel

class Label(BaseModel):
    "A label."
    mood: str
    score: float

@tool
def weather(city: str) -> str:
    "Look the weather up."
    return "sunny"

plain = model.invoke("Say hi.")
assert plain.content and plain.usage_metadata["output_tokens"], plain
for method in ("function_calling", "json_schema"):
    assert isinstance(model.with_structured_output(Label, method=method).invoke("Label: great."), Label), method
asked = model.bind_tools([weather]).invoke(WEATHER)
assert asked.tool_calls[0]["args"] == {"city": "Bonn"}, asked
after = [("user", WEATHER), asked, weather.invoke(asked.tool_calls[0])]
assert model.bind_tools([weather]).invoke(after).content
parts = list(model.stream("Say three words."))
assert len(parts) > 1 and sum(part.usage_metadata["output_tokens"] for part in parts if part.usage_metadata), parts
assert len(model.batch(["One.", "Two."])) == 2
"""

LITELLM_MESSAGES = 'WHERE = {"model": f"anthropic/{MODEL}", "api_base": URL}\n'
LITELLM_CHAT = 'WHERE = {"model": f"openai/{MODEL}", "api_base": f"{URL}/v1"}\n'
LITELLM = """
import litellm
from pydantic import BaseModel

class Label(BaseModel):
    mood: str
    score: float

def ask(text, **more):
    messages = more.pop("messages", [{"role": "user", "content": text}])
    return litellm.completion(messages=messages, api_key="test", max_tokens=300, **WHERE, **more)

plain = ask("Say hi.")
assert plain.choices[0].message.content and plain.usage.completion_tokens
assert len(list(ask("Say three words.", stream=True))) > 1
city = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
tools = [{"type": "function", "function": {"name": "weather", "description": "Look it up.", "parameters": city}}]
asked = ask(WEATHER, tools=tools).choices[0].message
call = asked.tool_calls[0]
assert json.loads(call.function.arguments) == {"city": "Bonn"}
result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
assert ask("", messages=[{"role": "user", "content": "Weather?"}, asked.model_dump(), result], tools=tools).choices
Label.model_validate_json(ask("Label: great.", response_format=Label).choices[0].message.content)
try:
    ask("x [[status:400]]")
    raise AssertionError("no error")
except litellm.BadRequestError:
    pass
"""

OPENAI = """
import openai
from pydantic import BaseModel

class Label(BaseModel):
    mood: str
    score: float

client = openai.OpenAI(api_key="test", base_url=f"{URL}/v1", max_retries=0)
chat = client.chat.completions

def said(text):
    return [{"role": "user", "content": text}]

plain = chat.create(model=MODEL, messages=said("Say hi."))
assert plain.choices[0].message.content and plain.choices[0].finish_reason == "stop", plain
assert plain.usage.total_tokens == plain.usage.prompt_tokens + plain.usage.completion_tokens > 1, plain
counted = {"stream": True, "stream_options": {"include_usage": True}}
parts = list(chat.create(model=MODEL, messages=said("Say three words."), **counted))
assert len(parts) > 3 and parts[-1].usage.completion_tokens and not parts[-1].choices, parts
assert all(part.usage is None for part in parts[:-1])
city = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
tools = [{"type": "function", "function": {"name": "weather", "description": "w", "parameters": city}}]
asked = chat.create(model=MODEL, messages=said(WEATHER), tools=tools, tool_choice="auto", parallel_tool_calls=True)
assert asked.choices[0].finish_reason == "tool_calls", asked
call = asked.choices[0].message.tool_calls[0]
assert json.loads(call.function.arguments) == {"city": "Bonn"}, call
result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
after = [*said(WEATHER), asked.choices[0].message, result]
assert chat.create(model=MODEL, messages=after, tools=tools).choices[0].message.content
with chat.stream(model=MODEL, messages=said(WEATHER), tools=tools) as stream:
    kinds = {event.type for event in stream}
    assert stream.get_final_completion().choices[0].message.tool_calls[0].function.name == "weather", kinds
typed = chat.parse(model=MODEL, messages=said("Label: great."), response_format=Label)
assert isinstance(typed.choices[0].message.parsed, Label), typed
free = chat.create(model=MODEL, messages=said("Answer in JSON."), response_format={"type": "json_object"})
assert json.loads(free.choices[0].message.content), free
cut = chat.create(model=MODEL, messages=said("Write. [[tokens:90]]"), max_completion_tokens=20)
assert cut.choices[0].finish_reason == "length", cut
declined = chat.create(model=MODEL, messages=said("x [[stop:refusal]]"))
assert declined.choices[0].finish_reason == "content_filter", declined
assert MODEL in [one.id for one in client.models.list()]
assert client.models.retrieve(MODEL).id == MODEL

def refused(kind, act, code=None):
    try:
        act()
    except kind as error:
        assert {"message", "type", "param", "code"} == set(error.body), error.body
        assert error.body["message"] and error.code == code, error.body
        return
    raise AssertionError(f"no {kind.__name__}")

refused(openai.BadRequestError, lambda: chat.create(model=MODEL, messages=said("x"), extra_body={"temprature": 1}))
refused(openai.BadRequestError, lambda: chat.create(model=MODEL, messages=said("x"), temperature=3))
refused(openai.AuthenticationError, lambda: chat.create(model=MODEL, messages=said("x [[status:401]]")))
refused(openai.RateLimitError, lambda: chat.create(model=MODEL, messages=said("x [[status:429]]")))
refused(openai.InternalServerError, lambda: chat.create(model=MODEL, messages=said("x [[status:500]]")))
refused(openai.APIStatusError, lambda: chat.create(model=MODEL, messages=said("x" * 34_000_000)))
elsewhere = openai.OpenAI(api_key="test", base_url=f"{URL}/v2", max_retries=0)
refused(openai.NotFoundError, lambda: elsewhere.chat.completions.create(model=MODEL, messages=said("x")))
"""

CLAUDETTE = """
import os

os.environ |= {"ANTHROPIC_BASE_URL": URL, "ANTHROPIC_API_KEY": "test"}
from claudette import Chat, Client, contents

OLDER = "claude-haiku-4-5"
chat = Chat(OLDER, sp="Be short.")
first = chat("Say hi.")
assert contents(first) and chat.use.output_tokens, first
assert contents(chat("And now?")) and len(chat.h) == 4, chat.h
assert len(list(chat("Say three words.", stream=True))) > 1 and contents(chat.h[-1]), chat.h
called = []

def weather(
    city: str,  # where
) -> str:
    "Look the weather up."
    called.append(city)
    return "sunny"

steps = list(Chat(OLDER, tools=[weather]).toolloop(WEATHER))
assert called == ["Bonn"] and contents(steps[-1]), (called, steps)

class Label:
    "A label."
    def __init__(
        self,
        mood: str,  # good or bad
        score: float,  # from 0 to 1
    ):
        self.mood, self.score = mood, score

client = Client(OLDER)
assert isinstance(client.structured("Label: great.", tools=[Label])[0], Label)
assert contents(client("Count.", prefill="One")).startswith("One")
"""

TYPESCRIPT = """
import Anthropic from "@anthropic-ai/sdk";

const [MODEL, WEATHER, baseURL] = process.argv.slice(2);
const client = new Anthropic({ apiKey: "test", baseURL });
const ask = (content, more = {}) => ({ model: MODEL, max_tokens: 300, messages: [{ role: "user", content }], ...more });
const hold = (one, what) => { if (!one) throw new Error(JSON.stringify(what)); };
const plain = await client.messages.create(ask("Say hi."));
hold(plain.content[0].text && plain.usage.output_tokens, plain);
let parts = 0;
const whole = await client.messages.stream(ask("Say three words.")).on("text", () => parts++).finalMessage();
hold(parts > 1 && whole.content[0].text, whole);
const schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tools = [{ name: "weather", description: "w", input_schema: schema }];
const asked = await client.messages.create(ask(WEATHER, { tools }));
hold(asked.content.find((one) => one.type === "tool_use")?.input.city === "Bonn", asked);
const counted = await client.messages.countTokens({ model: MODEL, messages: [{ role: "user", content: "Hello" }] });
hold(counted.input_tokens, counted);
const models = [];
for await (const one of client.models.list({ limit: 3 })) models.push(one.id);
hold(models.length > 3, models);
let refused;
try { await client.messages.create(ask("x", { temprature: 1 })); } catch (error) { refused = error; }
hold(refused?.status === 400, refused);
const batch = await client.messages.batches.create({ requests: [{ custom_id: "a", params: ask("Say hi.") }] });
let now = batch;
while (now.processing_status !== "ended") {
  await new Promise((go) => setTimeout(go, 100));
  now = await client.messages.batches.retrieve(batch.id);
}
const rows = [];
for await (const one of await client.messages.batches.results(batch.id)) rows.push(one.result.type);
hold(rows.join() === "succeeded", rows);
await client.messages.batches.delete(batch.id);
"""

CLIENTS = {
    "openai": [OPENAI],
    "pydantic-ai-slim[anthropic,openai]": [PYDANTIC_AI_MESSAGES + PYDANTIC_AI, PYDANTIC_AI_CHAT + PYDANTIC_AI],
    "langchain-anthropic": [LANGCHAIN_MESSAGES + LANGCHAIN],
    "langchain-openai": [LANGCHAIN_CHAT + LANGCHAIN],
    "litellm[proxy]": [LITELLM_MESSAGES + LITELLM, LITELLM_CHAT + LITELLM],
    "claudette anthropic<1": [CLAUDETTE],  # later SDKs have no argument for the temperature that it sends
}
"""What packages do: at the Messages API, at chat completions, or one after the other at both."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory):
    """Return a Python that has a package, in an environment of its own."""
    made: dict[str, Path] = {}

    def python_of(package: str) -> Path:
        if package not in made:
            made[package] = python_with(tmp_path_factory.mktemp("other"), *package.split())
        return made[package]

    return python_of


@pytest.fixture(scope="module")
def node_with(tmp_path_factory: pytest.TempPathFactory):
    """Return a folder where Node finds a package."""

    def folder_with(package: str) -> Path:
        if shutil.which("npm") is None:
            pytest.skip("npm is not installed")
        folder = tmp_path_factory.mktemp("node")
        install(["npm", "install", "--silent", package], folder)
        return folder

    return folder_with


@pytest.mark.parametrize("package", CLIENTS)
def test_a_client_of_another_project_finds_the_api(installed, tmp_path: Path, package: str) -> None:
    """Texts, streams, typed answers, tools and their results: what it calls is answered as the API would."""
    python = installed(package)
    with start(latency="x0.02", seed=1) as server:
        names = f"import asyncio, json\nMODEL, WEATHER, URL = {MODEL!r}, {WEATHER!r}, {server.url!r}\n"
        for program in CLIENTS[package]:
            (tmp_path / "client.py").write_text(f"{names}{program}")
            done = quiet([str(python), "client.py"], tmp_path, LITELLM_LOG="ERROR", LITELLM_LOCAL_MODEL_COST_MAP="true")
            assert 0 == done.returncode, done.stderr[-3000:]


def test_the_typescript_sdk_finds_the_api(node_with) -> None:
    """Also counts, the list of models, batches, and the refusal of a field that is misspelt."""
    folder = node_with("@anthropic-ai/sdk")
    (folder / "client.mjs").write_text(TYPESCRIPT)
    with start(latency="x0.02", seed=1) as server:
        done = quiet(["node", "client.mjs", MODEL, WEATHER, server.url], folder)
    assert 0 == done.returncode, done.stderr[-3000:]


def asked(url: str, *agents: am.Agent, values: dict[str, object] | None = None) -> am.Run:
    """Run agents against a server."""
    return asyncio.run(am.Plan(agents, values=values or {}).run(client=am.Claude(base_url=url, api_key="test")))


def agent(name: str, prompt: str, **options) -> am.Agent:
    """Declare an agent with short answers."""
    return am.Agent(name, prompt, model=MODEL, max_tokens=300, **options)


def ended(run: am.Run) -> tuple[str, int]:
    """Return the kind of error of the run's first agent, and how often it was asked."""
    result = run.record.results[0]
    return (result.error or "").partition(":")[0], len(result.attempts)


def weather(city: str) -> str:
    """Look the weather up."""
    return f"sunny in {city}"


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_tasks_by_way_of_litellm(installed, tmp_path: Path) -> None:
    """A gateway that passes on to the API: texts, rows, types, tools, conversations, errors, and what they cost."""
    program, port = installed("litellm[proxy]").parent / "litellm", free_port()
    with start(latency="x0.02", seed=1) as server:
        behind = {"model": f"anthropic/{MODEL}", "api_base": server.url, "api_key": "test"}
        config = {"model_list": [{"model_name": MODEL, "litellm_params": behind}]}
        (tmp_path / "config.yaml").write_text(json.dumps(config))
        command = [str(program), "--config", "config.yaml", "--host", "127.0.0.1", "--port", str(port)]
        env = {"LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true", "LITELLM_LOG": "ERROR"}
        with serving(command, tmp_path, port, "/health/liveliness", **env) as url:
            run = asked(url, agent("a", "Say hi."), agent("b", "More: {{ a }}"), agent("c", "And now?", continues="a"))
            assert ["succeeded"] * 3 == run.agents["status"].tolist()
            assert (run.agents["cost_usd"] > 0).all()
            assert "" == run.totals.cost_mark
            rows = asked(url, agent("a", "Label {{ item }}", each="xs"), values={"xs": list(range(8))})
            assert 8 == rows.totals.succeeded
            typed = asked(url, agent("a", "Label: great.", returns=Literal["good", "bad"]))
            assert typed["a"].value in {"good", "bad"}
            tools = asked(url, agent("a", WEATHER, tools=[weather]))
            assert ["sunny in Bonn"] == [
                json.loads(one) if one[:1] == '"' else one for one in tools.tool_calls["result"]
            ]
            assert 1 == asked(url, agent("a", "x [[status:529 times=1]]")).totals.succeeded
            wrong = asked(url, agent("a", "x [[status:400]]"))
            assert ("Rejected", 1) == ended(wrong)
            unknown = asked(url, am.Agent("a", "Say hi.", model="nobody-1", max_tokens=50))
            assert "Invalid model name" in (unknown["a"].error or "")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_tasks_at_aimock(node_with, tmp_path: Path) -> None:
    """A server that counts no tokens: what is shown is marked as an estimate, and a form is asked for in words."""
    folder, port = node_with("@copilotkit/aimock"), free_port()
    answers = {"hi": "Hi there!", "Label": "good"}
    fixtures = [{"match": {"userMessage": said}, "response": {"content": text}} for said, text in answers.items()]
    (tmp_path / "fixtures.json").write_text(json.dumps({"fixtures": fixtures}))
    program = folder / "node_modules" / ".bin" / "llmock"
    command = [str(program), "--port", str(port), "--fixtures", str(tmp_path)]
    with serving(command, tmp_path, port, "/health") as url:
        run = asked(url, agent("a", "Say hi."))
        assert ("succeeded", "Hi there!") == (run.agents["status"][0], run["a"].text)
        assert ("≈", True) == (run.totals.cost_mark.strip(), (run.totals.cost_usd or 0) > 0)
        rows = asked(url, agent("a", "Label {{ item }}", each="xs"), values={"xs": list(range(8))})
        assert ["good"] * 8 == [one.text for one in rows.record.results]
        typed = asked(url, agent("a", "Label it: Say something.", returns=dict[str, int]))
        assert "InvalidAnswer" == ended(typed)[0]
        missing = asked(url, agent("a", "Who are you?"))
        assert ("Rejected", 1) == ended(missing)


ON_LOOPBACK = """
const { Server } = require("node:net");
const listen = Server.prototype.listen;
Server.prototype.listen = function (port, ...rest) {
  const heard = rest.find((one) => typeof one === "function");
  return listen.call(this, { port: Number(port), host: "127.0.0.1" }, heard);
};
"""
"""The server of the protocol's authors listens on every address of the machine."""


def test_tools_of_the_protocols_own_server(node_with, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls at once, pictures, forms, refusals, resources and prompts; restarted, it is reached again."""
    pytest.importorskip("mcp", reason="the package mcp is optional")
    folder, port = node_with("@modelcontextprotocol/server-everything"), free_port()
    (folder / "loopback.cjs").write_text(ON_LOOPBACK)
    program = folder / "node_modules" / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js"
    command = ["node", "--require", "./loopback.cjs", str(program), "streamableHttp"]
    asks = """[[tool@1:every_echo {"message": "hi"}]] [[tool@1:every_get-sum {"a": 1, "b": 2}]]
        [[tool@2:every_get-tiny-image {}]] [[tool@2:every_get-structured-content {"location": "Chicago"}]]
        [[tool@3:every_get-sum {"a": "one", "b": 2}]]"""
    names = ["echo", "get-sum", "get-tiny-image", "get-structured-content"]

    def run(every: am.McpServer) -> list[tuple[str, str]]:
        tools = [every.tools[name] for name in names]
        calls = asked(server.url, agent("a", asks, tools=tools)).tool_calls
        return list(zip(calls["status"], calls["result"], strict=True))

    with start(latency="x0.02", seed=1) as server:
        with serving(command, folder, port, "/mcp", PORT=str(port)) as url:
            every = am.McpServer("every", url=f"{url}/mcp")
            first = run(every)
            assert "What's weather in Bonn?" == every.prompt("args-prompt", city="Bonn")
            assert str(every.resource("demo://resource/dynamic/text/1")).startswith("Resource 1: ")
            with pytest.raises(am.AgentMagicError, match="has no prompt 'nothing'"):
                every.prompt("nothing")
        with every, serving(command, folder, port, "/mcp", PORT=str(port)):
            again = run(every)
    for calls in (first, again):
        assert ["succeeded"] * 4 + ["failed"] == [status for status, _ in calls]
        results = [result for _, result in calls]
        assert ["Echo: hi", "The sum of 1 and 2 is 3."] == results[:2]
        assert "image/png" in results[2]
        assert "temperature" in results[3]
        assert "Invalid arguments for tool get-sum" in results[4]
