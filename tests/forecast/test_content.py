"""Pictures and PDFs in estimates, budgets and what-ifs: counted by the provider's rule before anything is sent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent_magic import pdf
from agent_magic.api import Agent, Claude, Plan, Policy, Run
from agent_magic.declare import Attachment
from agent_magic.forecast.work import Evidence
from agent_magic.record.answer import CHARS_PER_TOKEN
from tests.pdfs import pages
from tests.providers.wire import WHOLE, reply, serving

PDF = pages(3)


def picture(width: int, height: int) -> Attachment:
    """A picture of a size; its bytes do not matter here."""
    return Attachment("image", "image/png", f"{width:032}{height:032}", "fig", 100, width, height, data=b"x" * 100)


def plan(value: object, model: str = "claude-sonnet-5-5", text: str = "What is {{ fig }}?") -> Plan:
    """A plan of one agent with an attachment."""
    return Plan((Agent("reader", text, model=model, max_tokens=100),), {"fig": value})


def run(made: Plan, policy: Policy | None = None) -> tuple[Run, list[Any]]:
    """Run it against a server that counts nothing."""

    async def work() -> tuple[Run, list[Any]]:
        async with serving(reply(WHOLE)) as server:
            done = await made.run(policy, client=Claude(base_url=server.url, api_key="any"))
            return done, server.paths

    return asyncio.run(work())


@pytest.mark.parametrize(
    ("model", "tokens"), [("claude-sonnet-5-5", 3588), ("claude-haiku-4-5", 1564), ("claude-opus-4-7", 3588)]
)
def test_an_estimate_counts_pictures_by_the_model(model: str, tokens: int):
    """What the text has, and the tiles of the picture."""
    (one,) = plan(picture(1920, 1440), model).estimate(client=Claude(base_url="http://127.0.0.1:1")).expected
    text = len("What is [image fig]?") // CHARS_PER_TOKEN + 1
    assert text + tokens == one.input_tokens


def test_pages_are_an_estimate_that_says_so():
    """2,000 tokens a page until somebody counts, and a word on it."""
    found = plan(pdf(PDF, title="r.pdf")).estimate(client=Claude(base_url="http://127.0.0.1:1"))
    assert 6000 <= found.expected[0].input_tokens <= 6010
    assert "3 PDF pages taken as 2,000 tokens each, until counted" in found.expected[0].stands_on
    counted = plan(pdf(PDF, title="r.pdf")).estimate(client=Claude(base_url="http://127.0.0.1:1"), counted=[4321])
    assert 4321 == counted.expected[0].input_tokens
    assert "PDF" not in counted.expected[0].stands_on


@pytest.mark.parametrize(("budget", "status"), [(3000, "cancelled"), (5000, "succeeded")])
def test_a_budget_reserves_the_tokens_of_a_picture(budget: int, status: str):
    """A picture of 3,588 tokens does not fit 3,000, although its file has 100 bytes; nothing is sent then."""
    done, paths = run(plan(picture(1920, 1440)), Policy(budget_tokens=budget))
    assert status == done["reader"].status
    assert (status == "succeeded") == any(path.endswith("/messages") for path in paths)


def test_a_what_if_counts_pictures_anew():
    """Another model scales a picture down; the text grows or shrinks by the vendor's factor, the picture does not."""
    done, _ = run(plan(picture(1920, 1440)))
    evidence = Evidence(done.record)
    assert (3588, 3588) == evidence.seen[0].attached_tokens
    evidence.seen[0] = evidence.seen[0]._replace(input_tokens=3588 + 20)  # the server counts nothing
    works = evidence.works({0: "claude-haiku-4-5"}, {}, frozenset(), frozenset()).agents
    assert works[0] is not None
    assert 1564 <= (works[0].tries[-1].input_tokens or 0) <= 1564 + 40


def test_a_document_of_fewer_tokens_than_are_usual_stays_so():
    """A page was measured: another model's are as many fewer, and the same model's are those."""
    done, _ = run(plan(pdf(PDF, title="r.pdf"), text="Sum up {{ fig }}"))
    evidence = Evidence(done.record)
    assert 6000 == evidence.seen[0].attached_tokens[0]
    evidence.seen[0] = evidence.seen[0]._replace(input_tokens=1500)
    for models in ({}, {0: "claude-haiku-4-5"}):
        works = evidence.works(models, {}, frozenset(), frozenset()).agents
        assert works[0] is not None
        assert 1500 == works[0].tries[-1].input_tokens
