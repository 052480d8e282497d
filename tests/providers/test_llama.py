"""A server of llama.cpp, with a tiny model of random weights, as a person with a model of their own has one.

Its package brings llama.cpp's HTTP server as a wheel. It is installed into an environment of its own, and the tests are
skipped with the reason where that fails.
"""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel

import agent_magic as am
from tests.foreign import free_port, python_with, serving

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::UserWarning")]

SLOTS, CONTEXT = 4, 2048
SERVER = """
import sys
import time

import gguf
import numpy
import xllamacpp

port, slots, context, width, layers = map(int, sys.argv[1:])
random = numpy.random.default_rng(1)
words = [f"\\u2581{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in ("", "n", "r", "s", "ld", "st")]
pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *map(chr, range(32, 127)), *words]
model = gguf.GGUFWriter("tiny.gguf", "llama")
model.add_context_length(context)
model.add_embedding_length(width)
model.add_block_count(layers)
model.add_feed_forward_length(2 * width)
model.add_head_count(4)
model.add_layer_norm_rms_eps(1e-5)
model.add_rope_dimension_count(width // 4)
model.add_vocab_size(len(pieces))
model.add_tokenizer_model("llama")
model.add_token_list([one.encode() for one in pieces])
model.add_token_scores([-float(number) for number in range(len(pieces))])
model.add_token_types([2, 3, 3, *[6] * 256, *[1] * (len(pieces) - 259)])
model.add_bos_token_id(1)
model.add_eos_token_id(2)
model.add_unk_token_id(0)
model.add_add_space_prefix(False)


def add(name, *shape, scale=0.08):
    model.add_tensor(f"{name}.weight", (random.standard_normal(shape) * scale).astype(numpy.float32))


def add_norm(name):
    model.add_tensor(f"{name}.weight", numpy.ones(width, numpy.float32))


add("token_embd", len(pieces), width, scale=1)
output = random.standard_normal((len(pieces), width)).astype(numpy.float32) * 0.2
output[:259] = 0  # whole words are likely, single bytes are not
model.add_tensor("output.weight", output)
add_norm("output_norm")
for layer in range(layers):
    for norm in ("attn_norm", "ffn_norm"):
        add_norm(f"blk.{layer}.{norm}")
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        add(f"blk.{layer}.{name}", width, width)
    add(f"blk.{layer}.ffn_gate", 2 * width, width)
    add(f"blk.{layer}.ffn_up", 2 * width, width)
    add(f"blk.{layer}.ffn_down", width, 2 * width)
model.write_header_to_file()
model.write_kv_data_to_file()
model.write_tensors_to_file()
model.close()

params = xllamacpp.CommonParams()
params.model.path = "tiny.gguf"
params.model_alias = {"tiny"}
params.n_ctx = context * slots
params.n_parallel = slots
params.cpuparams.n_threads = 1
params.endpoint_slots = True
params.port = port
params.hostnames = ["127.0.0.1"]
server = xllamacpp.Server(params)
while True:
    time.sleep(60)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Python that has llama.cpp's server."""
    return python_with(tmp_path_factory.mktemp("llama"), "xllamacpp", "gguf")


def started(python: Path, folder: Path, *, width: int, layers: int):
    """Start the server: the wider the model, the slower."""
    port = free_port()
    (folder / "server.py").write_text(SERVER)
    command = [str(python), "server.py", *map(str, (port, SLOTS, CONTEXT, width, layers))]
    return serving(command, folder, port, "/health")


@pytest.fixture(scope="module")
def quick(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with a model that writes thousands of tokens a second."""
    with started(python, tmp_path_factory.mktemp("quick"), width=64, layers=2) as url:
        yield url


@pytest.fixture(scope="module")
def slow(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with a model whose speed is felt."""
    with started(python, tmp_path_factory.mktemp("slow"), width=512, layers=6) as url:
        yield url


def agent(name: str, prompt: str, max_tokens: int = 40, **options: Any) -> am.Agent:
    """Declare an agent with short answers."""
    return am.Agent(name, prompt, model="tiny", max_tokens=max_tokens, **options)


def asked(client: am.Chat | am.Claude, *agents: am.Agent, **values: object) -> am.Run:
    """Run agents."""
    return asyncio.run(am.Plan(agents, values=values).run(client=client))


def weather(city: str) -> str:
    """Look the weather up."""
    return f"sunny in {city}"


class Label(BaseModel):
    """A class whose answers the server's grammar allows."""

    mood: Literal["good", "bad"]
    score: int


@pytest.fixture(params=["chat", "messages"])
def client(quick: str, request: pytest.FixtureRequest) -> am.Chat | am.Claude:
    """The two APIs that it speaks."""
    return am.Chat(quick, free=True) if request.param == "chat" else am.Claude(base_url=quick, api_key="any")


def test_texts_rows_and_conversations(client: am.Chat | am.Claude) -> None:
    """All is answered and counted; who answered is the model's own name."""
    run = asked(client, agent("a", "Say hi."), agent("b", "More: {{ a }}"), agent("c", "And now?", continues="a"))
    assert ["succeeded"] * 3 == run.agents["status"].tolist()
    assert ["tiny"] * 3 == run.agents["model_used"].tolist()
    assert [40] * 3 == run.agents["output_tokens"].tolist()
    more = run["c"].usage.total_input_tokens
    assert more is not None
    assert more > 40 + (run["a"].usage.total_input_tokens or 0)
    assert (0.0 if isinstance(client, am.Chat) else None) == run.totals.cost_usd
    rows = asked(client, agent("a", "Label {{ item }}", each="xs"), xs=list(range(12)))
    assert 12 == rows.totals.succeeded == len({one.text for one in rows.record.results})


def test_types_tools_and_sampling(quick: str) -> None:
    """Its grammar holds random weights to a type, and it takes tools and ways of sampling."""
    client = am.Chat(quick, free=True)
    typed = asked(client, agent("a", "Label: great.", returns=Label, max_tokens=100), agent("b", "?", returns=bool))
    assert typed["a"].value.mood in {"good", "bad"}
    assert typed["b"].value in {True, False}
    sampled = asked(client, agent("a", "Say hi.", temperature=0.0, top_k=1), agent("b", "Say hi.", top_p=0.5))
    assert 2 == sampled.totals.succeeded
    assert 1 == asked(client, agent("a", "How is the weather in Bonn?", tools=[weather])).totals.succeeded


def test_a_type_that_it_does_not_hold_answers_to(quick: str) -> None:
    """By the Messages API it ignores schemas: no random words become a value."""
    run = asked(am.Claude(base_url=quick, api_key="any"), agent("a", "Label: great.", returns=Label, max_tokens=100))
    assert "failed" == run["a"].status
    with pytest.raises(am.AgentMagicError, match="has no value"):
        print(run["a"].value)


def test_a_prompt_beyond_its_context(client: am.Chat | am.Claude) -> None:
    """The message has both lengths, and nothing is asked again."""
    run = asked(client, agent("a", "word " * 4000))
    assert 1 == len(run.attempts)
    error = (run["a"].error or "").replace(",", "")
    assert str(CONTEXT) in error
    assert any(int(word.strip("(")) > CONTEXT for word in error.split() if word.strip("(").isdigit())


def test_a_budget_needs_a_price(quick: str) -> None:
    """A model without a price is not asked under a budget in dollars."""
    run = asyncio.run(am.Plan([agent("a", "Say hi.")]).run(am.Policy(budget_usd=1), client=am.Chat(quick)))
    assert 0 == len(run.attempts)
    assert "tiny has no known price" in (run["a"].error or "")


def wait_until_busy(url: str, wanted: int) -> None:
    """Wait until so many of its slots are in use."""
    until, count = time.monotonic() + 10, -1
    while count != wanted:
        assert time.monotonic() < until, f"{count} slots are in use, not {wanted}"
        with urllib.request.urlopen(f"{url}/slots", timeout=10) as reply:
            count = sum(one["is_processing"] for one in json.load(reply))


def test_stop_frees_its_slots(slow: str) -> None:
    """It stops writing when a run is stopped."""

    async def stopped() -> None:
        plan = am.Plan([agent(f"a{one}", f"Write on. {one}", max_tokens=1500) for one in range(SLOTS)])
        run = asyncio.create_task(plan.run(am.Policy(SLOTS), client=am.Chat(slow, free=True)))
        await asyncio.to_thread(wait_until_busy, slow, SLOTS)
        run.cancel()
        await asyncio.wait([run])

    asyncio.run(stopped())
    wait_until_busy(slow, 0)


def test_a_forecast_knows_its_slots(slow: str) -> None:
    """More at once than it has slots gains nothing: the what-if says so, and the advice does not ask for it."""
    sizes = [(7 * one % 40, 20 + 37 * one % 81) for one in range(24)]
    plan = am.Plan(
        [agent(f"a{one}", f"Say {one}." + " word" * words, max_tokens=most) for one, (words, most) in enumerate(sizes)]
    )
    run = asyncio.run(plan.run(am.Policy(2 * SLOTS), client=am.Chat(slow, free=True)))
    forecast = run.whatif(concurrency=4 * SLOTS).iloc[0]
    assert f"the server ({SLOTS} slots)" == forecast["limited_by"]
    assert run.totals.wall_s == pytest.approx(forecast["wall_s"], rel=0.15)
    assert not [one for one in run.advise().changes if "concurrency" in one.edit]
