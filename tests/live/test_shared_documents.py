"""A document that several agents share, with the real SDK over real HTTP: written once, read by the rest."""

from __future__ import annotations

import asyncio

import pytest

import agent_magic as am
from agent_magic.declare import one_agent
from agent_magic.engine.admission.prefix import prefix_of
from agent_magic.engine.requests import ask
from agent_magic.notebook.planning import _prompts_text
from agent_magic.providers.anthropic import client as sending
from agent_magic.record import to_json
from agent_magic.simulator import child
from tests.pdfs import pages
from tests.providers.wire import WHOLE, reply, serving

PAGES = 8
PDF = pages(PAGES, more=b"words of a page " * 90 * PAGES)
QUESTIONS = [f"Question {number}?" for number in range(6)]


def plan(*more, value=None, **options):
    """Make a plan of questions about one document, and of other agents."""
    report = am.pdf(PDF, title="report") if value is None else value
    ask = am.Agent("ask", "{{ item }}", each="questions", context="report", **options)
    return am.Plan([ask, *more], {"questions": QUESTIONS, "report": report})


@pytest.fixture
def client():
    """A client of a stand-in that caches as the API does, and has cached nothing."""
    with child.start(latency="none", unlimited=True) as simulator:
        yield am.Claude(base_url=simulator.url, api_key="k")


def run_of(made, client, **policy):
    """Run a plan."""
    return asyncio.run(made.run(am.Policy(10, **policy), client=client))


def test_one_writes_and_the_others_read(client):
    """One leads; five read what it wrote; the frame of contexts and the note say what that saved."""
    run = run_of(plan(), client)
    assert run.ok
    rows = run.attempts.set_index("agent")
    (shared,) = run.contexts.itertuples()
    assert ("report", 6, "ask_0", True) == (shared.context, shared.agents, shared.leader, shared.cached)
    assert [shared.prefix_tokens] == [one for one in rows.cache_write_tokens if one]
    assert [shared.prefix_tokens] * 5 == [one for one in rows.cache_read_tokens if one]
    assert {"leader"} == set(rows.held_by.dropna())
    assert run.contexts.saved_usd[0] / run.contexts.uncached_usd[0] == pytest.approx(1 - (1.25 + 5 * 0.1) / 6)


@pytest.mark.parametrize(("was", "then"), [("auto", "off"), ("off", "auto")])
def test_what_it_would_cost_is_what_it_costs(client, was, then):
    """With the cache and without it, from a run of the other."""
    made = plan(am.Agent("sum", "Sum up: {{ ask }}"))
    run = run_of(made, client, cache=was, seed=1)
    with child.start(latency="none", unlimited=True) as another:  # one with nothing in its cache
        other = run_of(made, am.Claude(base_url=another.url, api_key="k"), cache=then, seed=1)
    foreseen = run.whatif(cache=[was, then]).set_index("cache")
    assert run.totals.cost_usd == pytest.approx(foreseen.cost_usd[was], rel=1e-9)
    assert other.totals.cost_usd == pytest.approx(foreseen.cost_usd[then], rel=0.05)
    assert foreseen.cost_usd["auto"] < foreseen.cost_usd["off"]


def test_an_estimate_counts_it_once(client):
    """Pages are 2,000 tokens each until they are counted: written once, then read."""
    shared, apart = (plan().estimate(am.Policy(10, cache=word), client=client) for word in ("auto", "off"))
    assert [one.input_tokens for one in apart.expected] == [one.input_tokens for one in shared.expected]
    assert apart.cost is not None
    assert shared.cost is not None
    price = 1e-7  # of an input token of the default model
    assert apart.cost.likely - shared.cost.likely == pytest.approx(PAGES * 2000 * price * (6 - 1.25 - 5 * 0.1))


@pytest.mark.parametrize("what", ["pdf", "text", "picture"])
def test_the_mark_is_on_what_stands_first(what):
    """The document is the first block of the first message, and has the mark; what is the agent's own has none."""
    known = {
        "pdf": am.pdf(PDF, title="report"),
        "text": am.text_file(b"The grass is green. " * 2000, title="rules.md"),
        "picture": am.image(picture(), title="fig"),
    }
    made = am.Plan(
        [am.Agent(name, f"Ask {name}.", context="report", attach=["other"], system="Be brief.") for name in "ab"],
        {"report": known[what], "other": am.text_file(b"Own text.", title="own.md")},
    )

    async def work():
        async with serving(reply(WHOLE)) as server:
            await made.run(am.Policy(1, cache="on", cache_ttl="1h"), client=am.Claude(base_url=server.url, api_key="k"))
            return [one for one in server.bodies if "max_tokens" in one]

    for body in asyncio.run(work()):
        blocks = body["messages"][0]["content"]
        assert [{"type": "ephemeral", "ttl": "1h"}, None, None] == [one.get("cache_control") for one in blocks]
        assert ["document" if what != "picture" else "image", "document", "text"] == [one["type"] for one in blocks]
        assert "Be brief." == body["system"]


def picture():
    """A picture as PNG."""
    import io

    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (1000, 1000), "red").save(file, "PNG")
    return file.getvalue()


def test_agents_with_another_system_prompt_share_nothing():
    """It stands before the messages: each of the two groups has an entry of its own."""
    made = am.Plan(
        [am.Agent(f"a{n}", f"Question {n}.", context="report", system=f"You are {n % 2}.") for n in range(4)],
        {"report": am.pdf(PDF, title="report")},
    )
    names = [prefix_of(made, number) for number in range(4)]
    assert names[0] == names[2] != names[1] == names[3]


def test_a_plan_shows_it_by_its_label(client):
    """`%agents plan --prompts` says who begins with it."""
    text = _prompts_text(plan(), client)
    assert "--- context report, first for ask_0" in text
    assert "[document report]" in text
    text = _prompts_text(several("a list"), client)
    assert "--- context report, first for ask_0, ask_1, ask_2, ask_3, ask_4, ask_5\n[image fig]\nGrey bars are" in text


PARTS = {
    "a list": lambda: {"report": [am.image(picture(), title="fig"), "Grey bars are last year's. " * 900]},
    "a tuple with a document": lambda: {"report": (am.pdf(PDF, title="one"), am.pdf(PDF + b" ", title="two"))},
    "a dict": lambda: {"report": {"pages": am.pdf(PDF, title="report"), "rules": "Count the bars. " * 900}},
    "a cell": lambda: {"fig": am.pdf(PDF, title="fig"), "rules": "Count the bars. " * 900},
}


def several(case):
    """Make a plan of questions about a context of several parts."""
    ask = am.Agent("ask", "{{ item }}", each="questions", context="report")
    contexts = [am.Context("report", "{{ fig }} {{ rules }}")] if case == "a cell" else []
    return am.Plan([ask], {"questions": QUESTIONS, **PARTS[case]()}, contexts=contexts)


@pytest.mark.parametrize("case", PARTS)
def test_several_parts_are_one_context(client, case, tmp_path):
    """Pictures, documents and texts in their order: the last has the mark, and all are written and read once."""
    made = several(case)
    blocks = sending.body(next(_asked(made)))["messages"][0]["content"]
    assert [None, {"type": "ephemeral"}, None] == [one.get("cache_control") for one in blocks]
    kinds = ["image" if case == "a list" else "document", "document" if case.startswith("a tuple") else "text", "text"]
    assert kinds == [one["type"] for one in blocks]
    assert "Question 0?" == blocks[2]["text"]
    assert [] == made.hints()
    run = run_of(made, client)
    assert run.ok
    rows = run.attempts
    assert [0] * 5 == sorted(rows.cache_write_tokens)[:5]
    written = rows.cache_write_tokens.max()
    assert [written] * 5 == [one for one in rows.cache_read_tokens if one]
    assert {written} == set(run.contexts.prefix_tokens)
    assert all(rows.input_tokens < 40)  # the questions alone
    foreseen = made.estimate(am.Policy(10), client=client)
    assert foreseen.cost is not None
    path = tmp_path / "parts.cassette.jsonl"
    run.save(path)
    assert list(run.texts) == list(made.replay(path).texts)
    assert run.whatif(cache=["auto"]).cost_usd[0] == pytest.approx(run.totals.cost_usd)


def _asked(made):
    return (ask(made, number, {}, 60, ttl="5m") for number in range(len(made)))


def test_one_part_more_is_another_request():
    """A context of one is asked for as before there were several: no answer that was bought is lost."""
    one, listed = (next(_asked(plan(value=value))) for value in (None, [am.pdf(PDF, title="report")]))
    assert one == listed
    assert "shared" not in to_json(one)
    assert one.key("x") != next(_asked(several("a dict"))).key("x")


def test_one_agent_that_does_it_all_has_it_once():
    """The baseline attaches the document, and refers to it."""
    alone = one_agent(plan()).agents[0]
    assert (1, None) == (len(alone.attach), alone.context)


def test_it_replays(client, tmp_path):
    """A recording has the document by its digest, and what caching saved."""
    made = plan()
    first = run_of(made, client)
    path = tmp_path / "shared.cassette.jsonl"
    first.save(path)
    again = made.replay(path)
    assert list(first.texts) == list(again.texts)
    assert first.contexts.saved_usd[0] == again.contexts.saved_usd[0]


def test_advice_tells_what_it_would_save(client):
    """Attached by each, it is paid for by each: the forecast with a context is what a run with a context costs."""
    ask = am.Agent("ask", "{{ item }}", each="questions", attach=["report"])
    run = run_of(am.Plan([ask], {"questions": QUESTIONS, "report": am.pdf(PDF, title="report")}), client)
    found = run.advise().frame.set_index("rule").loc["a shared document is a context"]
    assert "change" == found.action
    assert "--context report in place of --attach report" == found.edit
    assert run_of(plan(), client).totals.cost_usd == pytest.approx(found.forecast_usd, rel=0.05)
    assert "a shared document is a context" not in set(run_of(plan(), client).advise().frame.rule)
