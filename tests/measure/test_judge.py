"""A model as judge: an agent for each answer, in the ledger and on the budget; in pairs with the order swapped."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

import agent_magic as am
from agent_magic import TokenPrice
from agent_magic.api import Agent, Plan, Run
from agent_magic.errors import DeclarationError, PlanError
from agent_magic.record import Answer, Request, Usage
from agent_magic.show import frame_text

REPORT = Agent("report", "Report on {{ item.topic }}", each="rows")
ROWS = [{"topic": one} for one in ("tea", "salt", "iron", "none")]
JUDGE = am.judge("Is every claim supported?")
PRICES = {"claude-haiku-5-5": TokenPrice(1, 5)}


def provider(answer: Callable[[str], Any]) -> Any:
    """A provider that answers by a function of the prompt; what raises is an answer that fits nothing."""
    from agent_magic.providers import Provider

    class Known(Provider):
        endpoint = "known"
        is_limited = False

        def __init__(self) -> None:
            self.asked: list[str] = []

        async def send(self, request: Request, stream: Any) -> Answer:
            stream.replied(200)
            self.asked.append(request.prompt)
            said = answer(request.prompt)
            text = said if isinstance(said, str) else json.dumps(said)
            return Answer(text, "end_turn", usage=Usage(100, output_tokens=10), model=request.model)

    return Known()


def reports(prompt: str) -> Any:
    """Write reports; judge that those on salt are not supported, and stumble over iron."""
    if prompt.startswith("Report"):
        return f"All on {prompt.rsplit(maxsplit=1)[-1]}."
    if "iron" in prompt:
        return "no verdict at all"
    return {"why": "I looked.", "ok": "salt" not in prompt}


def between(first: Callable[[str, str], str]) -> Callable[[str], Any]:
    """Compare answers by a function of both texts."""

    def answer(prompt: str) -> Any:
        if prompt.startswith("Report"):
            return f"{'long ' if 'long' in prompt else ''}{prompt.rsplit(maxsplit=1)[-1]}"
        texts = re.findall(r"<(?:first|second)>\n(.*)\n", prompt)
        return {"why": "By length.", "better": first(*texts)}

    return answer


async def scene(answer: Callable[[str], Any], judge: Any = JUDGE, **given: Any) -> tuple[Run, Any, Any]:
    """Run reports and judge them."""
    client = provider(answer)
    async with am.Session(client=client, ledger=am.Ledger(":memory:"), prices=PRICES) as session:
        run = await Plan([REPORT], {"rows": ROWS}).run(session=session)
        return run, await run.judge("report", judge, **given), client


def test_each_answer_is_judged_by_an_agent():
    """It sees what was asked and what came; the verdict is a row, and what cannot be read is that row's error."""
    run, frame, client = asyncio.run(scene(reports))
    assert ("report", "judge", "share", 3, 1) == tuple(frame.loc[0, ["target", "grader", "metric", "n", "errors"]])
    assert 0.6667 == round(frame.loc[0, "score"], 4)
    assert [1.0, 0.0, 1.0] == list(run.scores["score"].dropna())
    assert "the judge failed: InvalidAnswer" in str(run.scores.loc[2, "error"])
    assert "I looked." == run.scores.loc[0, "why"]
    asked = next(one for one in client.asked if "<answer>\nAll on tea.\n</answer>" in one)
    assert asked.startswith("Is every claim supported?")
    assert "<asked>\nReport on tea\n</asked>" in asked


def test_a_judge_is_a_grader_of_score_too():
    """`await run.score(..., grader=judge)` is `run.judge`; before the await nothing is sent, and it says so."""

    async def both() -> tuple[Any, Any, list[str]]:
        client = provider(reports)
        async with am.Session(client=client, ledger=am.Ledger(":memory:"), prices=PRICES) as session:
            run = await Plan([REPORT], {"rows": ROWS}).run(session=session)
            client.asked.clear()
            asking = run.score("report", grader=JUDGE, policy=am.Policy(budget_usd=1.0))
            assert "Nothing was asked yet: await run.score('report'" in repr(asking)
            assert [] == client.asked
            return await asking, await run.judge("report", JUDGE), client.asked

    scored, judged, asked = asyncio.run(both())
    assert judged.drop(columns="errors").equals(scored.drop(columns="errors"))
    assert asked


def test_a_judge_is_priced_and_in_the_ledger():
    """Its plan says what it costs; a second time it costs nothing; it keeps to the budget."""

    async def twice():
        client = provider(reports)
        async with am.Session(client=client, ledger=am.Ledger(":memory:"), prices=PRICES) as session:
            run = await Plan([REPORT], {"rows": ROWS[:2]}).run(session=session)
            price = run.judge_plan("report", JUDGE).estimate(session=session)
            first = await run.judge("report", JUDGE)
            again = await run.judge("report", JUDGE)
            poor = await run.judge("report", am.judge("Short?"), policy=am.Policy(budget_usd=1e-9))
            return price, first, again, poor

    price, first, again, poor = asyncio.run(twice())
    assert price.most_usd is not None
    assert price.most_usd > 0
    assert 2 * (100 + 5 * 10) / 1e6 == pytest.approx(first.attrs["cost_usd"])
    assert 0 == again.attrs["cost_usd"]
    assert " · judging it $0.0003. run.scores has each grade, " in " ".join(frame_text(first).split())
    assert list(first["score"]) == list(again["score"])
    assert (0, 2) == tuple(poor.loc[0, ["n", "errors"]])


def compared(first: Callable[[str, str], str]) -> tuple[Run, Any]:
    """Compare long reports with short ones."""

    async def both():
        client = provider(between(first))
        async with am.Session(client=client) as session:
            long = Agent("report", "Report at long on {{ item.topic }}", each="rows")
            a = await Plan([long], {"rows": ROWS}).run(session=session)
            b = await Plan([REPORT], {"rows": ROWS}).run(session=session)
            return a, await a.judge("report", am.judge("Which is better?"), against=b)

    return asyncio.run(both())


def test_a_verdict_that_holds_when_swapped_wins():
    """The longer report is better wherever it stands; ties and losses count too."""
    run, frame = compared(lambda one, other: "first" if len(one) > len(other) else "second")
    assert [1.0, 1.0] == list(frame["score"])
    assert ["win rate", "same when swapped"] == list(frame["metric"])
    assert [2] * 4 == list(run.scores["n"])
    assert [0.0, 1.0] == list(compared(lambda one, other: "first" if len(one) < len(other) else "second")[1]["score"])


def test_a_judge_that_prefers_the_first_says_nothing():
    """All are ties, the frame says that no verdict held, and the interval is not certain."""
    run, frame = compared(lambda one, other: "first")
    assert [0.5, 0.0] == list(frame["score"])
    assert frame.loc[0, "low"] < 0.2
    assert frame.loc[0, "high"] > 0.8
    assert all("order swapped" in one for one in run.scores["why"])


def test_ties_count_as_halves():
    """Said in both orders."""
    _, frame = compared(lambda one, other: "tie")
    assert [0.5, 1.0] == list(frame["score"])


class Marks(BaseModel):
    reason: str
    score: int
    doubt: float


def test_a_verdict_may_be_a_number_or_a_class_with_a_score():
    """The field score where there are several."""
    run, frame, _ = asyncio.run(
        scene(lambda prompt: {"reason": "r", "score": 4, "doubt": 0.1}, am.judge("How good?", returns=Marks))
    )
    assert ("mean", 4.0) == tuple(frame.loc[0, ["metric", "score"]])
    assert {"r"} == set(run.scores["why"])
    _, frame, _ = asyncio.run(
        scene(lambda prompt: {"value": 2} if "<answer>" in prompt else "x", am.judge("?", returns=int))
    )
    assert 2.0 == frame.loc[0, "score"]


def test_what_cannot_judge_is_refused_when_it_is_declared():
    """Before anything is sent."""

    class Two(BaseModel):
        a: int
        b: int

    with pytest.raises(DeclarationError, match="has a, b"):
        am.judge("?", returns=Two)
    with pytest.raises(DeclarationError, match="neither a number nor a bool"):
        am.judge("?", returns=str)
    with pytest.raises(DeclarationError):
        am.judge("{{ broken")


def test_a_run_that_nobody_answers_for_names_what_is_missing():
    """One read from a file has no session; one without answers has nothing to judge."""
    run, _, _ = asyncio.run(scene(reports))
    lonely = Run(run.record)
    with pytest.raises(PlanError, match=r"session=am\.Session"):
        asyncio.run(lonely.judge("report", JUDGE))
    with pytest.raises(DeclarationError, match=r"run\.score"):
        asyncio.run(run.judge("report", len))  # pyright: ignore[reportArgumentType]
