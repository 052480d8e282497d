"""What a server bills stays within the budget, and what is shown within what can have been billed, whatever it says.

`AGENT_MAGIC_HYPOTHESIS=nightly` draws 2,000 scenes, others each time, in place of the same few;
`AGENT_MAGIC_SHARD=0/2` draws every second part of them.
"""

# Tests hand over wrong types on purpose, and take for granted what they have just checked.
# pyright: reportArgumentType=false
# pyright: reportOptionalMemberAccess=false, reportOperatorIssue=false

from __future__ import annotations

import asyncio
import os
import tempfile
import warnings
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings

import agent_magic as am
from agent_magic.engine import retry
from agent_magic.record import NOTHING_USED, PriceWarning
from agent_magic.record.answer import estimated_tokens, utf8_length
from tests.live.bill_scenes import CHEAP, DEAR, OVERHEAD, USD_PER_MTOK, Fate, Scene, plan_of, scenes, serving, worst_usd

if TYPE_CHECKING:
    from agent_magic.record import Attempt
    from tests.live.bill_scenes import Books

NIGHTLY = os.environ.get("AGENT_MAGIC_HYPOTHESIS") == "nightly"
EACH, PARTS = (50, 40) if NIGHTLY else (40, 1)
SHARD, SHARDS = (int(one) for one in os.environ.get("AGENT_MAGIC_SHARD", "0/1").split("/"))
PATIENCE_S = 120
DUST_USD = 1e-12
"""What sums of dollars may be off by."""


@pytest.fixture(autouse=True, scope="module")
def quick():
    """Shorten the waits between attempts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retry, "FIRST_BACKOFF_S", 0.001)
        yield


@pytest.mark.parametrize("part", range(SHARD, PARTS, SHARDS))
def test_no_server_makes_a_run_cross_its_budget(part):
    """Servers that count wrongly or break off, times what a plan can have: books, budget and frames agree."""
    del part

    @settings(max_examples=EACH, suppress_health_check=list(HealthCheck))
    @given(scenes)
    def draw(scene):
        play(scene)

    draw()


def play(scene: Scene) -> None:
    """Run a scene, and check what came of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PriceWarning)
        asyncio.run(asyncio.wait_for(_play(scene), PATIENCE_S))


async def _play(scene: Scene) -> None:
    budget_usd = scene.requests * worst_usd(CHEAP, 100, scene.max_tokens)
    is_batch = scene.feature == "batch" and not scene.is_chat
    more: dict[str, Any] = {"batch": is_batch, "degrade": "model" * (scene.feature == "degrade")}
    policy = am.Policy(budget_usd=budget_usd, breaker_share=None, seed=1, **more, **scene.policy)
    async with serving(scene) as books:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))

            async def run(payer: str) -> am.Run:
                ledger = am.Ledger(folder / "ledger.sqlite3")
                try:
                    kind = partial(am.Chat, prices=USD_PER_MTOK) if scene.is_chat else am.Claude
                    client = kind(base_url=books.url, api_key=payer)
                    return await plan_of(scene).run(policy, client=client, ledger=ledger)
                finally:
                    ledger.close()

            payers = ["key-of-a", "key-of-b"][: 1 + (scene.sessions != "one")]
            if scene.sessions == "beside":
                runs = await asyncio.gather(*map(run, payers))
            else:
                runs = [await run(one) for one in payers]
        assert {one.payer for one in books.sent.values()} <= {*payers}, "somebody else's bill is not looked at"
        for payer, found in zip(payers, runs, strict=True):
            assert books.billed_usd(payer) <= budget_usd + DUST_USD, (payer, books.sent)
            for attempt in found.record.attempts:
                check(attempt, books)


def check(attempt: Attempt, books: Books) -> None:
    """Check what is shown of an attempt: never more than can have been billed, exact where the server told it."""
    request, usage, cost_usd = attempt.request, attempt.usage, attempt.price.cost_usd
    if attempt.is_served:
        assert cost_usd == 0
        return
    size = len("".join(request.texts()).encode())
    if usage is not None and usage.output_tokens is not None:
        assert estimated_tokens(utf8_length(attempt.partial)) <= usage.output_tokens <= request.max_tokens or (
            usage.output_tokens == request.max_tokens
        )
    if usage is not None and usage.total_input_tokens is not None:
        assert usage.total_input_tokens <= size + OVERHEAD
    most_usd = worst_usd(request.model, size, request.max_tokens, written=request.cached_turns)
    assert cost_usd is None or cost_usd <= most_usd + DUST_USD
    if attempt.answer is None:
        assert usage is None or usage.estimated or usage == NOTHING_USED
        assert usage != NOTHING_USED or attempt.status_code in {None, 400, 529}
        return
    sent = books.sent.get(attempt.answer.request_id or "")
    if sent is not None and usage.estimated:  # no less than what streamed, no more than was asked for
        arrived = estimated_tokens(utf8_length(attempt.answer.text))
        assert min(arrived, request.max_tokens) <= usage.output_tokens
    if sent is not None and sent.is_honest:
        assert (False, sent.made, sent.taken) == (usage.estimated, usage.output_tokens, usage.total_input_tokens)
        assert (sent.fate.name == "unknown" and not sent.is_chat) or cost_usd == pytest.approx(sent.usd)
    elif sent is not None:
        assert usage.estimated or usage.is_unknown
    if sent is not None and sent.fate.name == "unknown":
        assert attempt.model_used == "tiny.gguf"
        assert sent.is_chat or cost_usd is None  # a price that is given for what was asked stays


FATES = {
    "no final count": Fate(1.0, 1, final="missing"),
    "a count that falls": Fate(1.0, 1, final="falling"),
    "0 beside a text": Fate(1.0, 1, start="zeros", final="zero"),
    "cut while it goes on": Fate(0.1, 1, cut="reset", after=0.6),
    "another model": Fate(0.1, 1, name="unknown"),
}


@pytest.mark.parametrize("fate", FATES.values(), ids=FATES)
@pytest.mark.parametrize("feature", ["rows", "thinking", "tools"])
def test_what_a_server_does_not_tell_keeps_its_reserve(fate, feature):
    """A budget for five requests of the worst kind pays for five and no sixth, whatever they made."""
    policy = {"concurrency": 1, "max_attempts": 1}
    play(Scene(feature, 7, 100, 5.2, (fate,), bills_all=True, sessions="one", policy=policy))


@pytest.mark.parametrize(
    "fate", [Fate(1.0, 4, cut="reset", after=0.5), Fate(1.0, 4, final="missing")], ids=["cut", "untold"]
)
@pytest.mark.parametrize("sequential", [False, True])
def test_a_trial_keeps_its_budget_over_all_its_settings(fate, sequential):
    """What one setting may have been billed untold is not there for the next."""
    honest = Scene("rows", 8, 100, 99.0, (Fate(0.2),), bills_all=True, sessions="one", policy={})
    budget_usd = 4.2 * worst_usd(DEAR, 100, 100)

    async def work() -> float:
        async with serving(honest) as good, serving(replace(honest, fates=(fate,))) as books:
            run = await plan_of(honest).run(client=am.Claude(base_url=good.url, api_key="key"))
            session = am.Session(client=am.Claude(base_url=books.url, api_key="key"))
            policy = am.Policy(budget_usd=budget_usd, max_attempts=1, breaker_share=None)
            until: Any = {"until": "decided", "n": 2} if sequential else {"n": 8}
            models = [CHEAP, DEAR]
            trial = await run.trial("a", model=models, truth=["word"] * 8, policy=policy, session=session, **until)
            assert trial.spent_usd is None or trial.spent_usd <= budget_usd
            return books.billed_usd("key")

    assert 0 < asyncio.run(work()) <= budget_usd
