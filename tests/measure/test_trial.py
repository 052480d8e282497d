"""Trials of settings: verdicts from paired differences, an error rate that is kept, and real runs of samples."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any, Literal

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

import agent_magic as am
from agent_magic import TokenPrice
from agent_magic.api import Agent, Plan
from agent_magic.errors import DeclarationError, PlanError
from agent_magic.measure import Setting, Trial
from agent_magic.measure.scores import Grade
from agent_magic.measure.trial import PAIRS, TRIAL, Tried, settings_of
from agent_magic.record import Answer, Request, Usage
from agent_magic.show import trial_page

GOOD, CHEAP, OTHER = (Setting(name, None) for name in ("good", "cheap", "other"))
COST = {"good": 0.10, "cheap": 0.01, "other": 0.05}


def trial(*scores: Sequence[float | None], settings: tuple[Setting, ...] = (GOOD, CHEAP, OTHER), **more: Any) -> Trial:
    """A trial with these scores by setting, row by row."""
    tried = tuple(
        tuple(
            Tried(
                f"r{row}",
                Grade("t", "g", "share", one, error=None if one is not None else "?"),
                COST[s.model or ""],
                2.0,
            )
            for row, one in enumerate(each)
        )
        for s, each in zip(settings, scores, strict=False)
    )
    given = {"rows": 1000, "margin": 0.1, "error_rate": 0.05, "sequential": True, **more}
    return Trial("t", settings[: len(scores)], tried, **given)


def test_worse_as_good_and_noise():
    """Certainly below another, certainly within the margin of the best, or neither."""
    right, wrong = [1.0] * 200, [1.0, 0.0] * 100
    assert ["as good", "worse", "best"] == trial(right, wrong, right).verdicts()  # of equal scores the cheapest
    assert ["undecided", "undecided", "best"] == trial(right[:9], wrong[:9], right[:9]).verdicts()
    assert trial(right, wrong, right).decided
    assert [0, 2] == trial(right, wrong, right).racing()


def test_the_first_line_of_a_trial_decides():
    """Which is best, how sure that is, and what a run with the chosen one costs; unknown dollars are left out."""
    scores = [1.0] * 200, [1.0, 0.0] * 100
    found = trial(*scores)
    low, high = found.score_of(GOOD)[1:3]
    said = f"good is best, 1.00 ({low:.2f} to {high:.2f}); cheap worse (400 answers graded). Apply: good"
    assert f"{said}, $100.00 a run" == found.headline()
    assert said == trial(*scores, others_usd=None).headline()


def test_the_chosen_one_is_the_cheapest_that_is_good_enough():
    """Of the best and those as good; what is within noise is not chosen."""
    right = [1.0] * 200
    assert CHEAP == trial(right, right).chosen
    assert GOOD == trial(right, [1.0, 0.0] * 100).chosen
    assert GOOD == trial(right[:9], [1.0] * 8 + [0.0]).chosen
    assert trial([None] * 5, [None] * 5).chosen is None


def test_the_frame_says_dollars_score_and_how_many_more():
    """The whole run is the rows at the mean of an answer, beside what the other agents cost."""
    found = trial([1.0] * 20, [1.0] * 18 + [0.0] * 2, others_usd=3.0)
    frame = found.frame.set_index("model")
    assert {name: kind for name, kind in TRIAL.items() if name != "model"} == {
        n: str(k) for n, k in frame.dtypes.items()
    }
    assert ["cheap", "good"] == list(frame.index)
    assert [13.0, 103.0] == [round(one, 6) for one in frame["run_usd"]]
    assert ("undecided", True) == (frame.loc["cheap", "verdict"], frame["more"].max() > 20)
    assert PAIRS == {name: str(kind) for name, kind in found.pairs.dtypes.items()}
    assert 0.1 == round(found.pairs["difference"].max(), 6)
    assert "within noise" in repr(found)


def test_no_more_answers_are_suggested_than_rows_are_left():
    """Where these do not suffice it is said; with none left there is nothing to suggest."""
    scores = [1.0] * 20, [1.0] * 18 + [0.0] * 2
    needed = int(trial(*scores).frame["more"].max())
    assert [f"about {needed} more answers would decide"] == [*filter(None, map(trial(*scores).more_words, range(2)))]
    for rows, left, words in (
        (100, 80, "the 80 rows left are too few to decide"),
        (20, 0, "no rows are left to decide"),
    ):
        assert needed > left
        found = trial(*scores, rows=rows)
        assert left == found.frame["more"].max()
        assert [left or None] == found.pairs["more"].astype(object).where(found.pairs["more"].notna(), None).to_list()
        assert words in " ".join(trial_page(found).text(200).split())


def test_the_headline_says_how_many_more_labelled_rows_would_decide():
    """As many as the difference from the best needs, beside the rows with a truth that are left; decided, nothing."""
    scores = [1.0] * 20, [1.0] * 18 + [0.0] * 2
    needed = int(trial(*scores).frame["more"].max())
    said = f"About {needed} more {{}} would decide, {{}} are left. To decide now: good, ${{}}.00 a run"
    assert trial(*scores, by_truth=True, gradable=30).headline().endswith(said.format("labelled rows", "10", 100))
    assert trial(*scores, gradable=20).headline().endswith(said.format("rows", "0", 100))
    assert trial(*scores, rows=1400, by_truth=True).headline().endswith(said.format("labelled rows", "1,380", 140))
    assert "would decide" not in trial([1.0] * 200, [1.0, 0.0] * 100).headline()


def test_no_more_labelled_rows_are_suggested_than_there_are():
    """Rows without a truth are no help: those left are counted of the rows with one."""
    found = trial([1.0] * 20, [1.0] * 18 + [0.0] * 2, gradable=27, by_truth=True)
    assert (7, ["the 7 rows left are too few to decide"]) == (
        found.frame["more"].max(),
        [*filter(None, map(found.more_words, range(2)))],
    )


def test_best_under_a_budget_and_cheapest_at_a_score():
    """As measured; none where none is."""
    found = trial([1.0] * 20, [0.0] * 20)
    assert (CHEAP, GOOD, None) == (found.best(20), found.best(200), found.best(1))
    assert (GOOD, CHEAP, None) == (found.cheapest(0.9), found.cheapest(0), found.cheapest(1.1))


def test_an_unknown_price_is_not_zero():
    """Neither of the answer nor of the run."""
    tried = Tried("r0", Grade("t", "g", "share", 1.0), None, None)
    found = Trial("t", (GOOD, CHEAP), ((tried,), (tried,)), rows=5, margin=0.1, error_rate=0.05)
    assert found.frame[["cost_usd", "run_usd", "total_s"]].isna().all(axis=None)
    assert found.best(100) is None


def errs(seed: int) -> bool:
    """Tell whether a trial of three equal settings, stopped when it likes, calls one of them worse."""
    rng = random.Random(seed)
    scores = [[float(rng.random() < 0.7) for _ in range(60)] for _ in range(3)]
    return "worse" in trial(*scores).verdicts()


def test_the_rule_keeps_its_error_rate():
    """Of 1,000 simulated trials without a difference at most 5 % find one; bands only narrow, so the end tells all."""
    assert sum(map(errs, range(1000))) / 1000 <= 0.05


def test_numbers_without_bounds_are_compared_once_at_the_end():
    """Less error is better; there is no sequence for them."""

    def errors(values: list[float]) -> tuple[Tried, ...]:
        return tuple(Tried(f"r{row}", Grade("t", "g", "error", one), 1.0, 1.0) for row, one in enumerate(values))

    found = Trial(
        "t", (GOOD, CHEAP), (errors([1, 2, 1, 2] * 5), errors([7, 9, 8, 7] * 5)), rows=9, margin=0.1, error_rate=0.05
    )
    assert not found.bounded
    assert ["best", "worse"] == found.verdicts()


class Label(BaseModel):
    mood: Literal["good", "bad"]


ROWS = [{"text": f"row {number}", "mood": "good" if number % 3 else "bad"} for number in range(90)]
LABEL = Agent("label", "{{ item.text }}", each="rows", returns=Label, model="cheap")
PRICES = {name: TokenPrice(usd * 1e4, 0) for name, usd in COST.items()}


def moods(model: str, prompt: str) -> str:
    """The good model is always right, the cheap one says good to all."""
    right = "good" if int(prompt.rsplit(maxsplit=1)[-1]) % 3 else "bad"
    return f'{{"mood": "{"good" if model == "cheap" else right}"}}'


def client() -> Any:
    """A provider whose answers depend on the model."""
    from agent_magic.providers import Provider

    class Known(Provider):
        endpoint = "known"
        is_limited = False

        def __init__(self) -> None:
            self.asked: list[str] = []

        async def send(self, request: Request, stream: Any) -> Answer:
            stream.replied(200)
            self.asked.append(request.model)
            return Answer(
                moods(request.model, request.prompt), "end_turn", usage=Usage(100, output_tokens=0), model=request.model
            )

    return Known()


async def tried(target: str = "label.mood", rows: Any = ROWS, **given: Any) -> tuple[Any, Trial]:
    """Run all rows with the cheap model, then try."""
    known = client()
    given = {"truth": "mood", "model": ["cheap", "good"], **given}
    async with am.Session(client=known, prices=PRICES) as session:
        run = await Plan([LABEL, Agent("one", "Row 1")], {"rows": rows}).run(session=session)
        known.asked.clear()
        found = await run.trial(target, **given)
        assert [found] == run.trials
        return known, found


def test_a_sample_is_really_run_under_each_setting():
    """Stratified by the truth; what the run has is not bought again, and its dollars are those it cost then."""
    known, found = asyncio.run(tried(n=12))
    assert {"good": 12} == {name: known.asked.count(name) for name in set(known.asked)}
    frame = found.frame.set_index("model")
    assert [8 / 12, 1.0] == list(frame.loc[["cheap", "good"], "score"])
    assert [0.01, 0.10] == [round(one, 9) for one in frame.loc[["cheap", "good"], "cost_usd"]]
    assert 1.2 == pytest.approx(found.spent_usd)
    assert "sample" == found.stopped


@pytest.mark.parametrize("until", [None, "decided"])
def test_only_rows_with_a_truth_are_asked(until):
    """Two in three rows have none: they cost nothing, and the rest is all there is to ask."""
    rows = [row if number % 3 == 1 else {**row, "mood": None} for number, row in enumerate(ROWS)]
    known, found = asyncio.run(tried(rows=rows, n=50, until=until))
    assert (90, 30) == (found.rows, found.gradable)
    assert ["good"] * 30 == known.asked
    assert [[f"label_{number}" for number in range(1, 90, 3)]] * 2 == [
        sorted((one.agent for one in each), key=lambda name: int(name[6:])) for each in found.tried
    ]
    assert not any(one.grade.error for each in found.tried for one in each)


@given(truths=st.lists(st.sampled_from(["good", "bad", None]), min_size=1, max_size=12), n=st.integers(1, 14))
@settings(max_examples=12, deadline=None)
def test_a_trial_takes_as_many_rows_as_have_a_truth(truths, n):
    """`n` of them, or all where there are fewer; the others are neither asked nor graded."""
    assume(any(truths))
    labelled = {f"label_{number}" for number, one in enumerate(truths) if one}
    rows = [{"text": f"row {number}", "mood": one} for number, one in enumerate(truths)]
    known, found = asyncio.run(tried(rows=rows, n=n))
    assert (len(labelled), min(n, len(labelled))) == (found.gradable, len(known.asked))
    for each in found.tried:
        assert labelled >= {one.agent for one in each}
        assert min(n, len(labelled)) == sum(one.grade.score is not None for one in each)


@pytest.mark.parametrize("as_list", [False, True])
def test_equal_rows_are_asked_once_and_each_keeps_its_truth(as_list):
    """Four rows are one request per setting, three grades, and the dollars of one in the whole run."""
    moods_of = ["good", "good", "bad", None]
    rows = [{"text": "row 1", "mood": one} for one in moods_of]
    known, found = asyncio.run(tried(rows=rows, truth=moods_of if as_list else "mood"))
    assert ["good"] == known.asked
    for each in found.tried:
        assert [("label_0", 1.0), ("label_1", 1.0), ("label_2", 0.0)] == sorted(
            (one.agent, one.grade.score) for one in each
        )
    frame = found.frame.set_index("model")
    assert [2 / 3, 2 / 3] == list(frame["score"])
    assert [3, 3] == list(frame["n"])
    assert [0.01, 0.10] == pytest.approx(list(frame.loc[["cheap", "good"], "cost_usd"]))
    others = found.others_usd or 0.0
    assert [0.01 + others, 0.10 + others] == pytest.approx(list(frame.loc[["cheap", "good"], "run_usd"]))


def test_equal_rows_of_a_sample_have_a_price_though_another_row_was_asked():
    """Of sixty rows three are asked; whichever the sample takes, a request costs what one does."""
    rows = [{"text": f"row {number % 3}", "mood": "good" if number % 3 else "bad"} for number in range(60)]
    for seed in range(4):
        known, found = asyncio.run(tried(rows=rows, n=3, seed=seed))
        assert len(known.asked) <= 3
        frame = found.frame.set_index("model")
        assert [0.01, 0.10] == pytest.approx(list(frame.loc[["cheap", "good"], "cost_usd"]))
        others = found.others_usd or 0.0
        assert [0.03 + others, 0.30 + others] == pytest.approx(list(frame.loc[["cheap", "good"], "run_usd"]))


def test_a_trial_that_is_made_again_finds_the_same_at_no_cost(tmp_path):
    """Answers of the ledger have the price of their tokens, in the run's own rows and in later kernels, too."""

    async def scene() -> list[Trial]:
        found: list[Trial] = []
        for kernel in range(2):
            ledger = am.Ledger(tmp_path / "ledger.db")
            async with am.Session(client=client(), prices=PRICES, ledger=ledger) as session:
                run = await Plan([LABEL, Agent("one", "Row 1", model="other")], {"rows": ROWS}).run(session=session)
                assert kernel == int(run.totals.cost_usd == 0)
                for _ in range(2):
                    given: Any = {"model": ["good", "cheap", "other"], "truth": "mood", "n": 60}
                    found.append(await run.trial("label.mood", **given))
        return found

    found = asyncio.run(scene())
    assert [pytest.approx(60 * 0.15), 0.0, 0.0, 0.0] == [one.spent_usd for one in found]
    for one in found:
        frame = one.frame
        assert ["cheap", "other", "good"] == list(frame["model"])
        assert [0.01, 0.05, 0.10] == [round(each, 9) for each in frame["cost_usd"]]
        assert [90 * usd + 0.05 for usd in (0.01, 0.05, 0.10)] == pytest.approx(list(frame["run_usd"]))
        assert (Setting("other", None), CHEAP) == (one.best(5), one.cheapest(0.5))
        assert Setting("other", None) == one.chosen
    assert [0, 120, 180, 180] == [sum(one.by_tokens for each in again.tried for one in each) for again in found]
    assert "It cost $0. 120 answers were there before, priced by their tokens." in " ".join(
        trial_page(found[1]).text(200).split()
    )


def test_it_stops_when_it_is_decided():
    """The cheap model is worse after a part of the rows: the rest is not asked."""
    known, found = asyncio.run(tried(until="decided", n=10))
    assert ["worse", "best"] == found.verdicts()
    assert "decided" == found.stopped
    assert len(known.asked) < 90
    assert Setting("good", None) == found.chosen


def test_a_budget_ends_it():
    """What was spent stays under it, and rows that were not answered are errors, not zeros."""
    _, found = asyncio.run(tried(until="decided", n=5, policy=am.Policy(budget_usd=0.3)))
    assert "budget" == found.stopped
    assert found.spent_usd is not None
    assert found.spent_usd <= 0.3


def test_a_budget_too_small_for_one_answer_says_so():
    """Only the setting that was there is graded: nothing is compared, nothing chosen, and the reason stands below."""
    _, found = asyncio.run(tried(n=12, policy=am.Policy(budget_usd=0.01)))
    assert ("budget", None, 0.0) == (found.stopped, found.chosen, found.spent_usd)
    assert ["best", "unknown"] == found.verdicts()
    text = " ".join(trial_page(found).text(100).split())
    assert "only cheap was graded, so nothing is compared (the budget is used up, 12 answers graded)" in text
    assert "12 answers not graded" in text
    assert "larger budget" in text
    assert "Nothing to apply" in text


def test_a_grader_is_tried_before_anything_is_sent():
    """On the answers that are there: a wrong signature, one that always fails, and truths that no answer can be."""

    async def scene() -> None:
        known = client()
        async with am.Session(client=known, prices=PRICES) as session:
            rows = [{**row, "upper": row["mood"].upper(), "none": None} for row in ROWS]
            run = await Plan([LABEL], {"rows": rows}).run(session=session)
            known.asked.clear()
            cases: tuple[tuple[dict[str, Any], str], ...] = (
                ({"grader": lambda answer: True}, r"cannot be called with \(answer, row\): too many"),
                ({"grader": lambda answer, row: answer["mood"]}, "The grader fails.*90|30 answers not graded"),
                ({"truth": "upper"}, "No truth fits.*'BAD' is spelled otherwise than 'bad'"),
                ({"truth": "none"}, "Every truth of label.mood is unknown"),
            )
            for how, message in cases:
                with pytest.raises(DeclarationError, match=message):
                    await run.trial("label.mood", model=["good", "cheap"], **how)
            assert [] == known.asked

    asyncio.run(scene())


def test_what_is_asked_several_rows_at_once_or_in_rounds_has_no_trial():
    """Said before anything is sent, with what to do."""

    async def scene() -> None:
        agents = [
            Agent("label", "{{ item.text }}", each="rows", returns=Label, model="cheap", group=3),
            Agent("draft", "Row 1 {% if critic %}{{ critic }}{% endif %}", until="critic == 'ok'", rounds=2),
            Agent("critic", "Row 2"),
            Agent("late", "{{ draft }} {{ critic }}"),
        ]
        agents[2] = Agent("critic", "{{ draft }} Row 2")
        async with am.Session(client=client(), prices=PRICES) as session:
            run = await Plan(agents, {"rows": ROWS[:6]}).run(session=session)
            with pytest.raises(PlanError, match="'label' asks for several rows at once"):
                await run.trial("label.mood", model=["good", "cheap"], truth="mood")
            with pytest.raises(PlanError, match="'draft' runs in rounds"):
                await run.trial("draft", model=["good", "cheap"], grader=lambda a, r: True)

    asyncio.run(scene())


def test_a_trial_that_is_stopped_leaves_what_was_graded():
    """The run keeps it as a trial; what was cut is not in it."""

    async def scene() -> Trial:
        known = client()
        async with am.Session(client=known, prices=PRICES) as session:
            run = await Plan([LABEL], {"rows": ROWS}).run(session=session)
            under_way = asyncio.Event()
            plain = known.send

            async def send(request: Request, stream: Any) -> Answer:
                if known.asked.count("good") < 20:
                    return await plain(request, stream)
                under_way.set()
                await asyncio.Event().wait()
                raise AssertionError

            known.send = send
            asking = asyncio.create_task(
                run.trial("label.mood", model=["cheap", "good"], truth="mood", n=10, until="decided", margin=0.01)
            )
            await under_way.wait()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            return run.trials[-1]

    found = asyncio.run(scene())
    assert ("stopped", [30, 20]) == (found.stopped, [len(one) for one in found.tried])
    assert "(stopped, 50 answers graded)" in found.headline()


def test_a_trial_counts_for_a_later_run_that_asks_the_same():
    """Of a session: a first run may have a small budget, and what its trial chose is advised and applied after it."""

    async def scene() -> None:
        async with am.Session(client=client(), prices=PRICES) as session:
            plan = Plan([LABEL], {"rows": ROWS})
            first = await plan.run(am.Policy(budget_usd=0.05), session=session)
            assert first.totals.succeeded < 20
            found = await first.trial("label.mood", model=["cheap", "good"], truth="mood", n=30)
            again = await plan.run(session=session)
            assert [90, 90] == [one.rows for one in (found, *again.trials)]
            assert again.apply(again.trials[0]).policy == again.apply({"concurrency": 8}).policy
            other = Plan(
                [Agent("label", "Else: {{ item.text }}", each="rows", returns=Label, model="cheap")], {"rows": ROWS}
            )
            assert [] == (await other.run(session=session)).trials

    asyncio.run(scene())


def test_a_judge_can_grade_a_trial():
    """It is paid by the same budget."""
    judge = am.judge("Right?", model="other")

    async def scene() -> Trial:
        known = client()
        plain = known.send

        async def send(request: Request, stream: Any) -> Answer:
            if not request.prompt.startswith("Right?"):
                return await plain(request, stream)
            stream.replied(200)
            return Answer(
                '{"why": "w", "ok": true}', "end_turn", usage=Usage(100, output_tokens=0), model=request.model
            )

        known.send = send
        async with am.Session(client=known, prices=PRICES) as session:
            run = await Plan([LABEL], {"rows": ROWS}).run(session=session)
            return await run.trial("label", model=["cheap", "good"], grader=judge, n=4)

    found = asyncio.run(scene())
    assert [1.0, 1.0] == list(found.frame["score"])
    assert 4 * 0.10 + 8 * 0.05 == pytest.approx(found.spent_usd)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"model": ["good"]}, DeclarationError, "compares settings"),
        ({"truth": None}, DeclarationError, "one of truth= and grader="),
        ({"n": 0}, DeclarationError, "n must be an integer >= 1, got 0"),
        ({"until": "later"}, DeclarationError, "until must be 'decided' or None"),
        ({"margin": 2}, DeclarationError, "margin must be"),
        ({"target": "one"}, PlanError, "needs rows: 'one'"),
        ({"truth": ["good"]}, DeclarationError, "1 values for 90 rows"),
        ({"truth": None, "grader": lambda answer, row: 7.5, "until": "decided"}, DeclarationError, "between 0 and 1"),
    ],
)
def test_what_cannot_be_tried_is_said(given, error, message):
    """Before anything is sent, but for scores that only the grader knows."""
    with pytest.raises(error, match=message):
        asyncio.run(tried(**given))


def test_settings_are_multiplied_out():
    """Models by efforts, each once; left out is as recorded."""
    assert (Setting("a", "low"), Setting("a", "high")) == settings_of("a", ["low", "high", "low"])
    assert ("haiku-5-5 · low", "as it was") == (Setting("claude-haiku-5-5", "low").label, Setting(None, None).label)
