"""Several items in one request, run: what is asked, what is asked again, what each row gets, and what it costs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pydantic import BaseModel, Field

import agent_magic as am
from agent_magic import Policy
from agent_magic.api import Ledger
from agent_magic.declare import asked_apart, plan_to_dict
from tests.live.virtual import Reply, drive

ROWS = pd.DataFrame({"text": ["one", "two", "three", "four", "five"]}, index=list("abcde"))
SEED = Policy(seed=1)


def plan_of(**more: Any) -> am.Plan:
    """Three rows in a request, two in the next."""
    label = am.Agent("label", "Count {{ item.text }}", each="rows", group=3, returns=int, **more)
    return am.Plan([label, am.Agent("next", "after {{ label }}", each="rows")], {"rows": ROWS})


def script(*leaves_out: set[int]):
    """Answer each row by the length of its text, rows out of order; the numbers left out by turn."""

    def reply(prompt: str, turn: int) -> Reply:
        found = re.findall(r'number="(\d)">\nCount (\w+)', prompt)
        if not found:
            return Reply(text="done")
        left = leaves_out[turn - 1] if turn <= len(leaves_out) else set()
        rows = [{"item": int(one), "answer": len(text)} for one, text in found if int(one) not in left]
        return Reply(text=json.dumps({"answers": rows[::-1]}))

    return reply


def test_each_row_has_its_own_answer():
    """A row per item with its own value; each has an equal share of the dollars of its request, whose rows add up."""
    record, client = drive(plan_of(), script(), SEED)
    run = am.Run(record)
    assert run.each("label")["label"].to_dict() == {"a": 3, "b": 3, "c": 5, "d": 4, "e": 4}
    assert run.each("label")["label"].dtype == "Int64"
    asked = [record[f"next_{row}"].attempts[0].request.prompt for row in range(5)]
    assert asked == [f"after {value}" for value in (3, 3, 5, 4, 4)]
    assert run.agents["cost_usd"].notna().sum() == 7
    assert len(client.asked) == 2 + 3  # equal requests are bought once
    dollars = run.each("label")["cost_usd"]
    first, second = (record[f"label_request_{one}"].cost_usd or 0.0 for one in range(2))
    assert [first / 3, second / 2] == pytest.approx([dollars["a"], dollars["e"]])
    assert first + second == pytest.approx(dollars.sum())
    assert first + second == pytest.approx(
        run.each("label", "next")["cost_usd"].sum() - run.each("next")["cost_usd"].sum()
    )


class Note(BaseModel):
    title: str
    tags: list[str] = Field(default_factory=list)
    page: int = Field(default=0, ge=1)


def test_a_row_has_the_class_that_was_declared(tmp_path: Path):
    """As an answer of its own has: what the model left out is left out. Prompts take it by its schema."""
    label = am.Agent("label", "Count {{ item }}", each="rows", group=2, returns=Note)
    after = am.Agent("next", "{{ label.title }} {{ label.tags | length }} {{ label }}", each="rows")
    rows = [{"item": 2, "answer": {"title": "B"}}, {"item": 1, "answer": {"title": "A", "tags": ["x"]}}]
    record, client = drive(
        am.Plan([label, after], {"rows": ["a", "b"]}), lambda *_: Reply(text=json.dumps({"answers": rows})), SEED
    )
    assert [Note(title="A", tags=["x"]), Note(title="B")] == [record[f"label_{row}"].value for row in range(2)]
    assert {"title"} == record["label_1"].value.model_fields_set
    assert 'B 0 {"title": "B", "tags": [], "page": 0}' in [one.prompt for one in client.asked]
    assert [["x"], []] == am.Run(record).each("label")["tags"].tolist()
    am.Run(record).save(tmp_path / "run.jsonl")
    again = am.Plan([label, after], {"rows": ["a", "b"]}).replay(tmp_path / "run.jsonl")
    assert [record[f"label_{row}"].value for row in range(2)] == [again[f"label_{row}"].value for row in range(2)]


def test_every_view_counts_the_same_agents():
    """The summary, the layers and the line count the requests of a group as agents, and its items as tasks."""
    record, _ = drive(plan_of(), script(), SEED)
    run = am.Run(record)
    numbers, layers = run.summary.iloc[0], run.layers
    assert (7, 5) == (numbers["agents"], numbers["tasks"]) == (layers["agents"].sum(), layers["tasks"].sum())
    assert "7 agents and 5 tasks in 3 layers" in str(run)


def test_only_what_is_missing_is_asked_for_again():
    """What a reply lacks is asked for in the same conversation, and the first answers stay."""
    record, client = drive(plan_of(), script({2}, {1, 3}), SEED)
    assert am.Run(record).each("label")["label"].to_dict() == {"a": 3, "b": 3, "c": 5, "d": 4, "e": 4}
    asked = [one for one in client.asked if one.messages]
    assert len(asked) == 2
    assert "item 2" in asked[0].messages[-1].content
    assert "item 1:" not in asked[0].messages[-1].content


def test_what_stays_missing_fails_alone():
    """After the second reply the rows without an answer have failed, with what needs them; the others have not."""
    record, client = drive(plan_of(), script({2}, {2}, {2}), SEED)
    status = {one.name: one.status for one in record.results}
    assert [status[f"label_{n}"] for n in range(5)] == ["succeeded", "failed", "succeeded", "succeeded", "failed"]
    assert [status[f"next_{n}"] for n in range(5)] == ["succeeded", "skipped", "succeeded", "succeeded", "skipped"]
    assert "asked for again" in am.Run(record).each("label")["error"]["b"]
    assert sum("Count" in one.prompt for one in client.asked) == 4


def numbering(*turns: list[Any]):
    """Answer three rows with these numbers by turn: each with its own answer, 0 for a number that is no row's."""

    def reply(prompt: str, turn: int) -> Reply:
        if "Count one" not in prompt:
            return script()(prompt, 1)
        given = turns[turn - 1] if turn <= len(turns) else []
        own = {1: 3, 2: 3, 3: 5}
        rows = [
            {"item": one, "answer": own.get(int(float(one)), 0) + given[:at].count(one)} for at, one in enumerate(given)
        ]
        return Reply(text=json.dumps({"answers": rows}))

    return reply


@pytest.mark.parametrize(
    ("turns", "asked", "answered"),
    [
        ([[1, 2, 2, 3], [2]], ["item 2"], "123"),  # only what is muddled
        ([[1, 2, 2], [1, 2, 3]], ["items 1, 2, 3"], "123"),  # one twice and one not at all: it has lost count
        ([[0, 1, 2], [1, 2, 3]], ["items 1, 2, 3"], "123"),
        ([[1.0, "2", "3.0"]], [], "123"),
        ([[1], [0, 1], [2], [3]], ["items 2, 3", "item 2", "item 3"], "123"),  # at last alone
        (
            [[1], [2, 3, 4], [3], [3]],
            ["items 2, 3", "item 2", "item 3"],
            "13",
        ),  # asked for 2, numbered 3: of which row?
        ([[0, 1, 2], [0, 1, 2], [1], [2, 3]], ["items 1, 2, 3", "item 1", "items 2, 3"], "123"),
        ([[0, 1, 2], [0, 1, 2], [0], [0]], ["items 1, 2, 3", "item 1"], ""),  # hopeless
        ([[2], [1, 1, 3], [1]], ["items 1, 3", "item 1"], "123"),
    ],
)
def test_only_what_a_reply_lacks_or_muddles_is_asked_for_again(turns: list[Any], asked: list[str], answered: str):
    """Settled rows stay, and are not asked for again; the others are, at last alone. No row shows another's answer."""
    record, client = drive(plan_of(), numbering(*turns), SEED)
    said = [one.messages[-1].content for one in client.asked if one.messages]
    assert asked == [re.search(r"What is wrong: (items? [\d, ]+):", one)[1] for one in said]  # pyright: ignore[reportOptionalSubscript]
    own = {"1": 3, "2": 3, "3": 5}
    assert [own[row] if row in answered else None for row in "123"] == [
        one.value if one.status == "succeeded" else None for one in (record[f"label_{row}"] for row in range(3))
    ]


def test_rows_that_are_there_stay_when_there_are_no_turns_left():
    """With one request for all, what it lacks has failed, and the rest has not."""
    record, client = drive(plan_of(max_turns=1), script({2}, {1, 3}), SEED)
    status = [record[f"label_{row}"].status for row in range(5)]
    assert ["succeeded", "failed", "succeeded", "succeeded", "failed"] == status
    assert not [one for one in client.asked if one.messages]


@pytest.mark.parametrize("second", [Reply(text='{"answers": [', stop_reason="max_tokens"), Reply(text="Sorry")])
def test_a_second_reply_that_is_none_takes_nothing_away(second):
    """Cut, or not of the type: the rows of the first reply stay, those it was for have failed."""
    answer = script({2})
    record, _ = drive(plan_of(), lambda prompt, turn: second if turn == 2 else answer(prompt, turn), SEED)
    status = {one.name: one.status for one in record.results}
    assert [status[f"label_{n}"] for n in range(5)] == ["succeeded", "failed", "succeeded", "succeeded", "failed"]
    assert am.Run(record).each("label")["label"].to_dict()["c"] == 5


def test_a_first_reply_that_is_none_is_asked_for_again_whole():
    """What was no JSON does not spoil what comes after it."""
    answer = script()
    record, _ = drive(plan_of(), lambda prompt, turn: Reply(text="Sorry") if turn == 1 else answer(prompt, turn), SEED)
    assert am.Run(record).each("label")["label"].to_dict() == {"a": 3, "b": 3, "c": 5, "d": 4, "e": 4}


def test_a_check_is_asked_of_each_row():
    """What a check refuses is asked for again, and the row takes the answer that it accepts."""

    def reply(prompt: str, turn: int) -> Reply:
        if "Count" not in prompt:
            return Reply(text="done")
        values = {2: 3} if turn == 2 else {1: 3, 2: 99, 3: 5} if "Count one" in prompt else {1: 4, 2: 4}
        rows = [{"item": number, "answer": value} for number, value in values.items()]
        return Reply(text=json.dumps({"answers": rows}))

    plan = plan_of(check=lambda value: "too many" if value > 9 else None)
    record, _ = drive(plan, reply, SEED)
    assert am.Run(record).each("label")["label"].tolist() == [3, 3, 5, 4, 4]


def test_a_rerun_asks_nothing_for_rows_that_are_answered():
    """The ledger has both turns of a request: the same rows cost nothing again."""
    ledger = Ledger()
    drive(plan_of(), script({2}), SEED, ledger=ledger)
    record, client = drive(plan_of(), script({2}), SEED, ledger=ledger)
    assert client.asked == []
    assert am.Run(record).agents["cost_usd"].sum() == 0
    assert am.Run(record).each("label")["label"].to_dict() == {"a": 3, "b": 3, "c": 5, "d": 4, "e": 4}
    assert {"ledger"} == set(am.Run(record).each("label")["source"])


EQUAL = pd.DataFrame({"text": ["one", "two", "one", "four", "two", "three"], "id": range(6)})


def equal_rows(values: pd.DataFrame = EQUAL, **more: Any) -> am.Plan:
    """Rows of which four differ in what the prompt shows."""
    options: dict[str, Any] = {"each": "rows", "group": 2, "returns": int, **more}
    return am.Plan([am.Agent("label", "Count {{ item.text }}", **options)], {"rows": values})


def test_equal_rows_are_asked_once():
    """In one request and across them: the first asks, the others have its answer for $0, and the frame adds up."""
    record, client = drive(equal_rows(), script(), SEED)
    frame = am.Run(record).each("label")
    assert [["one", "two"], ["four", "three"]] == [re.findall(r"Count (\w+)", one.prompt) for one in client.asked]
    assert [3, 3, 3, 4, 3, 5] == frame["label"].tolist()
    assert ["live", "live", "shared", "live", "shared", "live"] == frame["source"].tolist()
    assert [0.0, 0.0] == frame["cost_usd"][[2, 4]].tolist()
    assert frame["cost_usd"].sum() == pytest.approx(am.Run(record).totals.cost_usd)


def test_the_failure_of_a_row_is_that_of_its_equals():
    """They are asked for again once, and fail together."""
    record, client = drive(equal_rows(), script({2}, {2}, {2}), SEED)
    failed = ["label_1", "label_4", "label_5"]  # `two`, twice, and `three` of the other request
    assert failed == [one.name for one in record.results if one.is_task and one.status == "failed"]
    assert 4 == len(client.asked)
    frame = am.Run(record).each("label")
    assert ["live", "shared", "live"] == frame["source"][[1, 4, 5]].tolist()
    assert frame["cost_usd"].sum() == pytest.approx(am.Run(record).totals.cost_usd)


def test_equal_rows_are_asked_each_where_that_was_said():
    """With `identical="each"` every row is in a request, of the run, of the estimate, and of the run resumed."""
    each, seen = Policy(seed=1, identical="each"), list[str]()

    def reply(prompt: str, turn: int) -> Reply:
        seen.extend(re.findall(r"Count (\w+)", prompt))
        return script()(prompt, turn)

    plan = am.Plan(asked_apart(am.Plan, equal_rows()).agents)
    record, _ = drive(plan, reply, each)
    assert EQUAL["text"].tolist() == seen
    assert {"live"} == set(am.Run(record).each("label")["source"])
    assert [3, 3, 3, 4, 3, 5] == am.Run(record).each("label")["label"].tolist()
    ahead = equal_rows().estimate(each)
    assert (3 + 6, []) == (len(ahead.expected), ahead.identical)


def test_an_estimate_tells_how_many_rows_differ():
    """By the plan alone, and its dollars are those of the requests that are made."""
    ahead = equal_rows().estimate()
    assert ["label: 6 rows, 4 different"] == ahead.identical
    assert 2 + 6 == len(ahead.expected)


@pytest.mark.parametrize(
    ("prompt", "values", "different"),
    [
        ("Count {{ item.text }}", {}, 4),
        ("{{ task }} {{ item.text }}", {"task": "Count"}, 4),
        ("{% if words %}{{ item.text | upper }}{% endif %}", {"words": ["a"]}, 4),
        ("Count {{ item }}", {}, 6),  # its id too
        ("{{ key }}: {{ item.text }}", {}, 6),
        ("Count", {}, 1),
    ],
)
def test_rows_are_equal_where_the_prompt_shows_the_same(prompt: str, values: dict[str, Any], different: int):
    """Columns that the prompt does not show make no difference."""
    label = am.Agent("label", prompt, each="rows", group=2, returns=int)
    plan = am.Plan([label], {"rows": EQUAL, **values})
    assert different == sum(not one.part.shares for one in plan.agents if one.part and one.part.asked)


def test_a_prompt_with_an_answer_compares_whole_rows():
    """What another step will say is unknown when the plan is made; rows that are equal whole ask the same anyway."""
    other = am.Agent("other", "Say yes.", returns=bool)
    label = am.Agent("label", "{% if other %}{{ item.text }}{% else %}{{ item.id }}{% endif %}", each="rows", group=2,
                     returns=int)  # fmt: skip
    rows = [{"text": "a", "id": 1}, {"text": "a", "id": 2}, {"text": "a", "id": 1}]
    plan = am.Plan([other, label], {"rows": rows})
    assert [False, False, True] == [one.part.shares for one in plan.agents if one.part and one.part.asked]


@pytest.mark.parametrize("identical", ["once", "each"])
def test_a_replay_has_the_rows_that_share(tmp_path: Path, identical: Any):
    """As the run asked equal rows, once or each: by the plan, and by the plan as it was recorded."""
    plan = equal_rows() if identical == "once" else asked_apart(am.Plan, equal_rows())
    record, _ = drive(plan, script(), Policy(seed=1, identical=identical))
    am.Run(record).save(tmp_path / "run.jsonl")
    recorded = am.Plan.from_dict(plan_to_dict(record.plan))
    for again in (plan.replay(tmp_path / "run.jsonl") for plan in (equal_rows(), recorded)):
        assert [one.name for one in record.results] == [one.name for one in again.record.results]
        assert am.Run(record).each("label")["label"].tolist() == again.each("label")["label"].tolist()
        assert {"replay"} == set(again.each("label")["source"])
