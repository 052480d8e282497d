"""Frames of a run: short where they are shown, whole and plain pandas wherever somebody works with them."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pandas as pd
import pytest

from agent_magic import Agent, Policy
from agent_magic.api import Plan as ApiPlan
from agent_magic.api import Run
from agent_magic.declare import Plan
from agent_magic.errors import Unreachable
from agent_magic.measure.compare import compared
from agent_magic.measure.frames import make_frame
from agent_magic.show import columns_of, frame_bundle, frame_text
from agent_magic.show.markup import TEXT_WIDTH
from tests.live.virtual import Reply, drive
from tests.show.story import business_run
from tests.show.test_pictures import HOSTILE
from tests.show.test_values import Seen

NO_TARGETS = dict.fromkeys(("concurrent", "jobs_per_s", "p95_s", "succeeded", "errors"))
OURS = {"style", "div", "table", "thead", "tbody", "tr", "th", "td", "details", "summary"}


def fails_at_x(prompt: str, _: object) -> Reply:
    """Refuse one prompt."""
    return Reply(error=Unreachable("gone") if prompt == "x" else None)


@pytest.fixture
def run() -> Run:
    """The business plan, one answer of it from the ledger and one asked twice."""
    return Run(business_run())


def frames_of(run: Run) -> dict[str, pd.DataFrame]:
    """Every frame of a run."""
    names = ("agents", "attempts", "layers", "summary", "events", "contexts", "savings")
    more = {
        "slo": run.slo(),
        "percentiles": run.percentiles(),
        "utilization": run.utilization(3),
        "compare": compared(run.record, run.record),
        "whatif": run.whatif(model=["claude-haiku-5-5", "claude-opus-5-5"], concurrency=[1, 2, 4]),
    }
    return {**{name: getattr(run, name) for name in names}, **more}


def test_what_is_made_of_a_frame_is_plain_pandas(run: Run):
    """Slices, copies, joins, groups and pickles are `DataFrame`s with every column, which show themselves as ever."""
    frame = run.agents
    made: list[Any] = [frame[["agent", "model"]], frame.loc[:2], frame.head(), frame.copy(), copy.deepcopy(frame)]
    made += [pd.concat([frame, frame]), frame.merge(frame, on="agent"), frame.sort_values("total_s"), frame.T]
    made += [pickle.loads(pickle.dumps(frame)), frame.groupby("status").sum(numeric_only=True)]
    assert [pd.DataFrame] * len(made) == [type(one) for one in made]
    assert isinstance(frame, pd.DataFrame)
    pd.testing.assert_frame_equal(pd.DataFrame(frame), pickle.loads(pickle.dumps(frame)))
    assert frame.attrs == pickle.loads(pickle.dumps(frame)).attrs
    assert list(frame.columns) == frame.to_csv(index=False).splitlines()[0].split(",")


def test_a_short_frame_has_what_varies_and_says_once_what_does_not(run: Run):
    """Seconds and dollars are in sight, words that all rows share stand above, all columns are a click away."""
    shown = frame_text(run.agents).splitlines()
    assert shown[0] == "9 rows · status succeeded · model claude-haiku-5-5"
    assert shown[1] == "the run 9.6 s · ≥$0.0168. run.texts has the answers, run.advise() advice."
    assert shown[2].split()[:6] == ["agent", "total_s", "cost_usd", "source", "attempts", "queued_s"]
    assert shown[5].split()[:7] == "financials 0.0 $0 ledger 1 0.0 0.0".split()
    assert shown[-1] == "all 30 columns: list(frame)"
    html = frame_bundle(run.agents)["text/html"]
    assert "<summary" in html
    assert "on_critical_path" in html


def test_a_frame_says_what_its_run_cost_and_what_to_do_next(run: Run):
    """Above the rows; where a step failed, the next step is to see why, and while a run goes on there is none."""
    said = frame_text(run.slo()).splitlines()[1]
    assert "the run 9.6 s · ≥$0.0168. run.advise() says what would be faster or cheaper." == said
    assert "the run 9.6 s · ≥$0.0168" == frame_text(run.slo(**NO_TARGETS, usd_per_job=9)).splitlines()[1]
    failing = drive(Plan((Agent("a", "x"), Agent("b", "y"))), fails_at_x, Policy(max_attempts=1))[0]
    assert "%agents error a shows why it failed." in frame_text(Run(failing).agents)
    under_way = frame_text(Run(business_run(4.6)).agents)
    assert "the run 4.5 s · $0.0063\n" in under_way
    assert "run.advise()" not in under_way


def test_text_of_every_frame_fits(run: Run):
    """No line of text is wider than a screen, and each row is one line, but for reasons."""
    for name, frame in frames_of(run).items():
        lines = frame_text(frame).splitlines()
        assert max(map(columns_of, lines)) <= TEXT_WIDTH, name
        assert len(lines) <= len(frame) * (3 if name == "slo" else 1) + 5, name


def test_reasons_are_written_out(run: Run):
    """Why a target is not met, or cannot be told, is broken between words on a page of 80 columns."""
    text = frame_text(run.slo())
    assert max(map(columns_of, text.splitlines())) <= TEXT_WIDTH
    assert "…" not in text


def test_whatif_shows_the_change_against_the_run(run: Run):
    """Of a run that reused answers, against the same run as if all were bought; the table says which row is which."""
    whatif = frames_of(run)["whatif"]
    said = frame_text(whatif)
    assert said.startswith("as if all were bought 9.3 s · $0.0170. ")
    assert "6 forecasts, nothing sent · schedule ready" in said
    assert ["as if all were bought"] * 7 + ["1 of 9 reused"] == whatif["answers"].tolist()
    assert "measured" == whatif["basis"].iloc[-1]
    assert whatif.attrs["recorded"]["wall_s"] == whatif["wall_s"].iloc[-2]
    assert {"basis", "answers", "wall_s", "cost_usd"} <= {*said.replace("\n", " ").split()}


def test_before_a_run_the_range_stands_in_place_of_the_change() -> None:
    """With what the numbers are based on in each row. The first line decides: the plan's numbers, and how sure."""
    plan = ApiPlan([Agent("a", "Write"), Agent("b", "Say {{ a }}")])
    lines = frame_text(plan.whatif(concurrency=[1, 4])).splitlines()
    assert lines[0] == "the plan 11.3 s · $0.0006 (2.1 s–1 min 20 s, $0.0001–$0.0022; partly assumed)."
    assert lines[1] == "No forecast is 10 % faster or cheaper: keep the plan's settings."
    assert lines[2].startswith("2 forecasts, nothing sent · model claude-haiku-5-5 · schedule ready")
    heads = next(line for line in lines if line.startswith("concurrency"))
    assert ["concurrency", "wall_s", "low–high", "s", "cost_usd", "low–high", "$", "basis"] == heads.split()
    assert all("assumed" in line for line in lines if line.strip().startswith(("1 ", "4 ")))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([(9.5, 0.01), (20.0, 0.02)], "No forecast is 10 % faster or cheaper: keep the run's settings."),
        ([(20.0, 0.01), (5.0, 0.005)], "run.apply(frame.iloc[1]) takes the fastest and cheapest."),
        ([(5.0, 0.02), (10.0, 0.01), (5.0, 0.03)], "run.apply(frame.iloc[0]) takes the fastest."),
        ([(5.0, 0.02), (20.0, 0.005)], "$0.0100. frame.iloc[0] is the fastest, frame.iloc[1] is the cheapest."),
        ([(None, 0.01), (5.0, None)], "run.apply(frame.iloc[1]) takes the fastest."),
    ],
)
def test_whatif_says_which_row_to_take(rows: list[tuple[float | None, float | None]], said: str):
    """The fastest and the cheapest, of equal ones the better in the other number; none where the run was as good."""
    cells = [{"wall_s": wall_s, "cost_usd": cost} for wall_s, cost in rows]
    dtypes = {"wall_s": "Float64", "cost_usd": "Float64"}
    frame = make_frame(cells, dtypes, recorded={"wall_s": 10.0, "cost_usd": 0.01})
    assert said in " ".join(frame_text(frame).split())


def test_hours_and_multiples_read_as_such():
    """Beyond two minutes a duration has minutes and hours, and a change of more than 1,000 % is a multiple."""
    rows = [{"wall_s": one, "cost_usd": 0.01} for one in (3605.3, 7.5)]
    frame = make_frame(rows, {"wall_s": "Float64", "cost_usd": "Float64"}, recorded={"wall_s": 0.635, "cost_usd": 0.01})
    first, second = frame_text(frame).splitlines()[-2:]
    assert "1 h 00 min 5,678x" == " ".join(first.split()[:5])
    assert "7.5 12x" == " ".join(second.split()[:2])


def test_a_comparison_shows_both_differences(run: Run):
    """Where not all columns fit, seconds and dollars that changed come before what they were; what agrees is said."""
    said, head, *_ = frame_text(compared(run.record, run.record)).splitlines()
    assert {"diff_s", "diff_usd", "seconds_a", "seconds_b"} <= set(head.split())
    for name in ("cost_usd", "tokens", "model"):
        assert (f"{name}_a" in head) == (f"{name}_b" in head), "one side alone says nothing"
    assert "status succeeded in both" in said, "the row of all has no status, and that is no difference"


def test_a_score_is_said_once():
    """In numbers where there are many answers, in words where there are few."""
    row = {"metric": "accuracy", "score": 0.8, "low": 0.75, "high": 0.84, "reads": "0.80, 0.75 to 0.84"}
    columns = {name: "string" if name in ("metric", "reads") else "Float64" for name in (*row, "n")}
    for n, wanted in ((300, {"score", "low", "high"}), (12, {"reads"})):
        other = {**row, "n": n + 1, "low": 0.7, "high": 0.9}
        head = {*frame_text(make_frame([{**row, "n": n}, other], columns)).split()}
        assert wanted == head & {"score", "low", "high", "reads"}


def test_numbers_of_a_column_have_the_same_decimals():
    """Tiny dollars do not stand beside rounded ones; nothing is `$0`, unknown is a dash."""
    frame = make_frame([{"cost_usd": one} for one in (0.000097, 0.0002, 0.0, None)], {"cost_usd": "Float64"})
    assert ["$0.000097", "$0.000200", "$0", "–"] == [line.strip() for line in frame_text(frame).splitlines()[2:]]


def test_a_difference_that_shows_as_nothing_has_no_sign():
    """Neither `+0.0` nor `−0.0`: what differs by less than is written does not differ."""
    frame = make_frame([{"diff_s": one} for one in (-0.004, 0.004, 0.0, 2.0, -2.0)], {"diff_s": "Float64"})
    assert ["0.0", "0.0", "0.0", "+2.0", "−2.0"] == [line.strip() for line in frame_text(frame).splitlines()[2:]]


def test_the_middle_of_a_long_frame_is_left_out():
    """A frame of 10,000 rows shows its beginning and its end."""
    frame = make_frame([{"agent": f"a{one}", "total_s": float(one)} for one in range(10_000)], {"agent": "string"})
    shown = frame_text(frame).splitlines()
    assert "10,000 rows" == shown[0]
    assert [*(f"a{one}" for one in range(10)), "…", *(f"a{one}" for one in range(9990, 10_000))] == shown[2:]


def test_what_the_user_adds_is_shown():
    """A column that was set on the frame itself is shown like the others."""
    frame = make_frame([{"agent": "a"}, {"agent": "b"}], {"agent": "string"})
    frame["mark"] = [1, 2]
    assert "agent  mark" == frame_text(frame).splitlines()[1]


@pytest.mark.parametrize("text", HOSTILE)
def test_text_of_others_stays_text(text: str):
    """What a model, a server or a file wrote never becomes markup, in cells, headings, index or the line above."""
    frame = make_frame([{"agent": text, "error": text}, {"agent": text, "error": None}], {"agent": "string"})
    frame.index = pd.Index([text, text], name=text, dtype="object")
    frame.columns = frame.columns.astype("object")  # with pyarrow, pandas refuses half a surrogate pair as text
    frame[text] = pd.Series([text, text], index=frame.index, dtype="object")
    seen = Seen(frame_bundle(frame)["text/html"])
    assert seen.tags <= OURS
    assert not [name for name in seen.attributes if name.startswith("on") or name in {"src", "href"}]


def test_dollars_have_a_place_before_what_a_row_is_about():
    """The runs of a ledger have six columns before their dollars, and are on a line of 80."""
    row = {"run": 1, "began_at": "2026-11-25 19:50:18", "plan": "agents", "state": "finished", "agents": 2}
    row |= {"succeeded": 2, "wall_s": 10.9, "tokens": 951, "cost_usd": 0.000312}
    dtypes = {name: "string" if isinstance(one, str) else "Float64" for name, one in row.items()}
    head = frame_text(make_frame([row], dtypes)).splitlines()[0].split()
    assert {"run", "began_at", "wall_s", "cost_usd"} <= {*head}


def test_what_held_an_agent_reads_as_everywhere(run: Run):
    """The words of a column of reasons are kept in the frame, and written out where it is shown."""
    frame = make_frame([{"held_by": one} for one in ("slot", "requests", None)], {"held_by": "string"})
    assert ["slot", "requests"] == list(frame["held_by"].dropna())
    assert ["held_by", "a slot", "the request limit", "–"] == frame_text(frame).splitlines()[1:]
    frame = make_frame([{"limited_by": one} for one in ("slot", "input")], {"limited_by": "string"})
    assert ["slots (concurrency)", "the input limit"] == frame_text(frame).splitlines()[2:]
    assert "limited_by dependencies" in " ".join(frame_text(run.whatif(concurrency=[8, 9])).split())


def test_a_run_that_lacks_answers_is_compared_with_nothing():
    """A forecast has all answers, so it is neither slower nor dearer than a run that failed: it is first made whole."""
    plan = Plan((Agent("a", "x"), Agent("b", "y"), Agent("c", "{{ a }}")))
    record, _ = drive(plan, fails_at_x, policy=Policy(max_attempts=1))
    frame = Run(record).whatif(concurrency=[1, 2])
    assert 2 == frame.attrs["lacking"]
    said = " ".join(frame_text(frame).split())
    assert "It lacks 2 answers that a forecast has: compare after %agents retry." in said
    assert "%agents error a shows why it failed" in Run(record).tradeoff(frame).text


def test_what_is_said_once_above_is_short():
    """A sentence that is the same in all rows ends with an ellipsis, and is whole behind the fold."""
    frame = make_frame(
        [{"agent": one, "assumed": "word " * 60} for one in "ab"], dict.fromkeys(("agent", "assumed"), "string")
    )
    first = " ".join(frame_text(frame).split("\nagent")[0].split())
    assert first.endswith("…")
    assert len(first) < 120
