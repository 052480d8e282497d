"""Tools, typed answers, turns of conversations and tasks in drawn plans: what a run says of them, again and ahead."""

from __future__ import annotations

import asyncio
import json
import warnings
from collections import Counter
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import agent_magic as am
from agent_magic.api import Ledger
from agent_magic.declare import asked_apart
from agent_magic.engine import retry
from agent_magic.live import Earlier
from agent_magic.measure import answers_frame
from agent_magic.providers.transport import SERVED
from agent_magic.record import PriceWarning, Usage
from agent_magic.simulator import inside
from tests.conftest import NIGHTLY
from tests.live.turn_draws import CANDIDATES, ERRORS, HURRIED, MADE, POLICIES, TOOLS, Talker, agreed, hands, plans
from tests.live.virtual import drive

if TYPE_CHECKING:
    import pandas as pd

    from agent_magic.record import RunRecord
    from agent_magic.record.facts import ToolCall

FAILURES = {"Rejected", "Overloaded", "Late", "BudgetExceeded", "NoAnswer", "Refused", "Capped", "InvalidAnswer"}
FAILURES |= {"UnexpectedToolUse", "Denied", "RenderError", "DeclarationError", *(one.__name__ for one in ERRORS)}
KINDS = {None, "Unused", "Skipped", "Beaten", "Condition", "Stopped", *FAILURES}
"""How steps may end here; anything else is a fault of the engine."""
NEVER_MADE = {"UnknownTool", "InvalidArguments", "Denied"}
OVER_S = 900.0
"""When a run is stopped that does not end by itself."""
seeds = st.integers(0, 9999)
drawn: Any = {"deadline": None, "suppress_health_check": list(HealthCheck)}


def run_of(plan: am.Plan, client: Talker, policy: am.Policy, **more: Any) -> tuple[RunRecord, list[str]]:
    """Run a plan on a virtual clock; return the record, and the names of the functions that were called."""
    plan = asked_apart(type(plan), plan) if policy.identical == "each" else plan
    token = MADE.set([])
    try:
        more = {"controls": [(OVER_S, "stop", None)], **more}
        record, _ = drive(plan, client, policy, frame_of=answers_frame, asker=agreed, **more)
        return record, MADE.get()
    finally:
        MADE.reset(token)


def rows_of(frame: pd.DataFrame) -> list[Any]:
    """The rows of a frame, `None` for what is unknown."""
    plain = frame.drop(columns="source").astype(object)
    return plain.where(plain.notna(), None).to_numpy().tolist()


def ends(record: RunRecord) -> list[Any]:
    """How each step ended, and each attempt went."""
    steps = [(one.name, one.status, one.kind, one.finished_s) for one in record.rows]
    attempts = [(one.agent, one.turn, one.status, one.started_s, one.ended_s) for one in record.attempts]
    return [*steps, *attempts, *(one.usage or Usage() for one in record.attempts)]


def function_of(record: RunRecord, call: ToolCall) -> str:
    """The name of the function of a call."""
    step = record.plan[call.agent]
    return step.part.group if step.is_task and step.part is not None else call.tool


def is_item(step: Any) -> bool:
    """Whether a step takes its answer out of a request for several items: by a function of ours."""
    return step.part is not None and bool(step.part.asked)


def calls_of(record: RunRecord, **having: Any) -> Counter[str]:
    """How often each of our functions was called, by the record."""
    own = [one for one in record.results if not (record.plan[one.name].race or is_item(record.plan[one.name]))]
    calls = [call for one in own for call in one.calls]
    calls = [one for one in calls if one.begun.id or one.turn == 0]  # no review of an answer
    calls = [one for one in calls if one.kind not in NEVER_MADE and one.source != "ledger"]
    return Counter(
        function_of(record, one) for one in calls if all(getattr(one, name) == of for name, of in having.items())
    )


def check_ends(record: RunRecord) -> None:
    """Each step has an end of a known kind, and says why where it failed; so does each call."""
    assert {one.kind for one in record.results} <= KINDS
    assert {one.status for one in record.results} <= {
        "succeeded", "failed", "skipped", "unused", "cancelled", "capped"
    }  # fmt: skip
    assert all(one.error for one in record.results if one.status in {"failed", "skipped", "capped"})
    assert all(one.ended is not None for one in record.attempts)
    for one in (call for result in record.results for call in result.calls):
        assert one.ended is not None
        assert one.status in {"succeeded", "cancelled"} or (one.error and one.kind)


def check_conversation(request: Any) -> None:
    """Each call has one result in the message after it, and no block is empty."""
    calls: list[str] = []
    for role, content in request.messages:
        blocks = json.loads(content)
        blocks = [{"type": "text", "text": blocks}] if isinstance(blocks, str) else blocks
        assert all(one["text"].strip() for one in blocks if one["type"] == "text" and role == "user")
        if role == "user":
            assert calls == [one["tool_use_id"] for one in blocks if one["type"] == "tool_result"]
            calls = []
        else:
            assert blocks
            calls = [one["id"] for one in blocks if one["type"] == "tool_use"]
    assert not calls


@settings(max_examples=3_000 if NIGHTLY else 30, **drawn)
@given(plans(), HURRIED, seeds, st.data())
def test_a_record_says_what_was_called_and_billed(plan: am.Plan, policy: am.Policy, seed: int, data: Any) -> None:
    """Each call and each answer once, within the budget; a replay, of the plan as JSON, says the same."""
    client = Talker(None, seed=seed, together=True)
    record, made = run_of(plan, client, policy, controls=data.draw(hands([one.name for one in plan.agents])))
    run = am.Run(record)
    check_ends(record)
    for request in client.asked:
        check_conversation(request)

    told = [one for one in record.attempts if one.answer is not None and not one.is_served]
    assert client.billed == {one.answer.request_id: one.usage for one in told if one.answer is not None}
    assert len(client.billed) == len(told)
    spent = sum((one.total_input_tokens or 0) + (one.output_tokens or 0) for one in client.billed.values())
    assert policy.budget_tokens is None or spent <= policy.budget_tokens
    for name in ("input_tokens", "output_tokens", "cache_read_tokens"):
        assert run.attempts[name].sum() == run.agents[name].sum()

    at_most, called = calls_of(record), Counter(made)
    at_least = at_most - calls_of(record, status="cancelled")
    assert at_least <= called <= at_most

    read = am.Plan.from_json(plan.to_json())
    assert plan.to_json() == read.to_json()
    with TemporaryDirectory() as folder:
        run.save(f"{folder}/run.jsonl")
        other = read.replay(f"{folder}/run.jsonl", policy)
    for frame in ("agents", "attempts", "tool_calls"):
        assert rows_of(getattr(run, frame)) == rows_of(getattr(other, frame))
    assert [one.text for one in record.results] == [one.text for one in other.record.results]


@settings(max_examples=3_000 if NIGHTLY else 100, **drawn)
@given(plans(calm=True, without=frozenset({"ask", "early"})), POLICIES, seeds)
def test_a_forecast_of_what_was_is_what_was(plan: am.Plan, policy: am.Policy, seed: int) -> None:
    """Steps, turns, tokens and times, where what takes no time decides no order."""
    record, _ = run_of(plan, Talker(None, seed=seed), policy)
    assert ends(record) == ends(am.Run(record).forecast().record)


@settings(max_examples=3_000 if NIGHTLY else 40, **drawn)
@given(plans(calm=True, without=CANDIDATES | {"ask"}), POLICIES, seeds, st.sampled_from([1, 2, 3, 20]))
def test_a_whatif_is_what_a_run_then_takes(plan: am.Plan, policy: am.Policy, seed: int, concurrency: int) -> None:
    """With another concurrency, where what is held does not decide the order."""
    assume(not any(one.name == "writing" for step in plan.agents for one in step.tools))
    then, now = (
        run_of(plan, Talker(None, seed=seed, again=False), am.Policy(**{**policy.to_dict(), **more}))[0]
        for more in ({"breaker_share": None}, {"breaker_share": None, "concurrency": concurrency})
    )
    forecaster = am.Run(then).forecaster()
    assume(not forecaster.evidence.is_shared)  # a few answers may look like those of a server that is shared
    found = am.Run(then).forecast(concurrency=concurrency).record
    for one, other in zip(now.results, found.results, strict=True):
        assert (one.name, one.status, one.kind) == (other.name, other.status, other.kind)
        assert one.finished_s == pytest.approx(other.finished_s, abs=1e-4)


@settings(max_examples=3_000 if NIGHTLY else 80, **drawn)
@given(plans(calm=True, without=CANDIDATES), POLICIES, seeds, st.floats(0.05, 0.95), st.booleans())
def test_a_run_again_ends_as_if_it_had_not_been_stopped(
    plan: am.Plan, policy: am.Policy, seed: int, share: float, keeps: bool
) -> None:
    """With the ledger it buys no answer again and makes no call again, but those that were cut."""

    def talker() -> Talker:
        return Talker(None, seed=seed, faults=False, again=False)

    whole, _ = run_of(plan, talker(), policy)
    more: Any = {"ledger": Ledger(":memory:")} if keeps else {}
    first, before = talker(), talker()
    stopped, made = run_of(plan, before, policy, controls=[(share * (whole.ended_s or 0.0), "stop", None)], **more)
    record, again = run_of(plan, first, policy, earlier=Earlier(stopped, first.endpoint, plan=stopped.plan), **more)
    assert [(one.name, one.status, one.kind) for one in whole.results] == [
        (one.name, one.status, one.kind) for one in record.results
    ]
    assert [one.text for one in whole.results if one.status == "succeeded"] == [
        one.text for one in record.results if one.status == "succeeded"
    ]
    if keeps:
        called = Counter(one for one in [*made, *again] if one in TOOLS)
        assert called <= calls_of(whole) + calls_of(stopped, status="cancelled")


# over HTTP, with the real SDK

MARKS = ["stop:pause_turn times=1", "stop:pause_turn times=3", "stop:max_tokens", "stop:refusal", "stop:tool_use"]
MARKS += ["status:529 times=1", "fault:cut times=1", "fault:reset times=1", "fault:empty times=1", "tokens:5"]
MARKS += ["fault:null_content times=1", "fault:no_usage times=1", "text:", "text: ", "think:Hm"]
MARKS += ["stop@2:pause_turn times=1", "stop@2:max_tokens", "status@2:529 times=1", "fault@2:cut times=1", "text@2:"]


@st.composite
def marks(draw: st.DrawFn, tools: Any) -> str:
    """What a mock server is to do at a prompt."""
    found = [f"[[{one}]]" for one in draw(st.lists(st.sampled_from(MARKS), max_size=2))]
    for turn in range(1, 4) if tools else ():
        calls = st.tuples(st.sampled_from([one.__name__ for one in tools]), st.sampled_from([1, 4, "x"]))
        for name, n in draw(st.lists(calls, max_size=3)):
            found.append(f"[[tool@{turn}:{name} {json.dumps({'n': n})}]]")
    return " ".join([f" Case {draw(seeds)}.", *found])


@settings(max_examples=500 if NIGHTLY else 10, **drawn)
@given(plans(calm=True, mark=marks), POLICIES)
def test_a_server_takes_each_turn_and_bills_what_is_shown(plan: am.Plan, policy: am.Policy) -> None:
    """The mock server refuses a conversation that is not as the API wants it; its journal has the tokens."""
    server = inside.start(latency="none", unlimited=True)
    SERVED[server.url] = server.transport
    token = MADE.set([])
    try:
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
            warnings.simplefilter("ignore", PriceWarning)
            patch.setattr(retry, "FIRST_BACKOFF_S", 0.001)
            patch.setattr("tests.live.turn_draws.asyncio", _Hasty())
            run = asyncio.run(plan.run(policy, client=am.Claude(base_url=server.url, api_key="any"), ask=agreed))
    finally:
        MADE.reset(token)
        del SERVED[server.url]
    journal = server.transport._service.journal.report()["requests"]
    billed = {one["request_id"]: one for one in journal}
    assert not [one.error for one in run.record.attempts if one.status_code == 400]
    assert len(journal) == sum(not one.is_shared for one in run.record.attempts)
    for one in run.record.attempts:
        if one.answer is not None and one.usage is not None and not (one.is_shared or one.usage.estimated):
            told = billed[one.answer.request_id or ""]
            used = (one.usage.input_tokens, one.usage.cache_write_tokens, one.usage.cache_read_tokens)
            assert (told["input_tokens"], told["cache_write_tokens"], told["cache_read_tokens"]) == used
            assert told["output_tokens"] == one.usage.output_tokens
    with TemporaryDirectory() as folder:
        run.save(f"{folder}/run.jsonl")
        other = plan.replay(f"{folder}/run.jsonl", policy)
    assert [(one.status, one.kind, one.text) for one in run.record.results] == [
        (one.status, one.kind, one.text) for one in other.record.results
    ]
    assert (run.totals.cost_usd, run.totals.tokens) == (other.totals.cost_usd, other.totals.tokens)


class _Hasty:
    """`asyncio` for functions that take no time."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    @staticmethod
    async def sleep(_: float) -> None:
        """Let others go first."""
        await asyncio.sleep(0)
