"""Charts: their sums are the frames' sums, their texts are texts, and they draw what they are told."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ET
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magic import Agent, Policy, tradeoff
from agent_magic.api import Run
from agent_magic.api.reading import Comparison
from agent_magic.declare import Plan
from agent_magic.errors import DeclarationError, Overloaded
from agent_magic.measure import summarize
from agent_magic.record import RunRecord, spans_of
from agent_magic.record.phases import chain_of
from agent_magic.show import INKS
from agent_magic.show.charts.chart import MIME, compose
from agent_magic.show.charts.limits import CONCURRENT, REQUESTS, WINDOW_S, Curve, curves_of, peaks
from agent_magic.show.charts.marks import Panel, Rows, numbers, times
from agent_magic.show.charts.timeline import STACK, binned, look_of
from agent_magic.show.charts.tradeoff import looks_of, pareto, rows_of, scenarios_of
from agent_magic.show.charts.waterfall import dollar_steps, second_steps
from agent_magic.show.theme import INKS_ON_EITHER, PHASES
from tests.live.virtual import Reply, drive
from tests.show.story import business_run, finished_run, layered_plan, record_of
from tests.show.test_pictures import HOSTILE, contrast

PHASE_COLUMNS = {"queued": "queued_s", "backoff": "backoff_s", "local": "local_s"}
SIZES = st.tuples(st.integers(1, 60), st.integers(1, 12), st.integers(0, 10_000))


def frame(rows: list[dict[str, Any]] | None = None) -> Any:
    """Return a frame as `run.whatif` makes it."""
    import pandas as pd

    made = pd.DataFrame(
        rows
        or [
            {
                "model": "claude-haiku-5-5",
                "concurrency": at_once,
                "cache": cache,
                "wall_s": 20 / at_once,
                "cost_usd": cost,
            }
            for at_once in (1, 2, 4)
            for cache, cost in ((True, 0.01 + at_once / 1000), (False, 0.02))
        ]
    )
    made.attrs.update(source="forecast", simulated=True, plan="x")
    return made


def value_at(curve: Curve, at_s: float) -> float:
    """Return the value of a curve at a time."""
    return next((value for start, value in reversed(curve.steps) if start <= at_s), 0.0)


def all_charts(run: Run) -> dict[str, Any]:
    """Return every chart of a run."""
    return {
        "dashboard": run.dashboard(),
        "timeline": run.timeline(),
        "waterfall": run.waterfall(),
        "limits": run.limits_chart({"requests": 5, "requests under way": 3}),
        "tradeoff": run.tradeoff(frame()),
    }


@pytest.mark.parametrize("agents", [9, 100])
def test_an_interactive_chart_can_be_read_on_light_and_on_dark(agents: int) -> None:
    """It is drawn once and stays when the page changes its theme: no ground of its own, and colours for either."""
    run = Run(business_run() if agents == 9 else finished_run(layered_plan(agents, 20)))
    for name, chart in all_charts(run).items():
        assert "transparent" == chart.spec["background"], name
        used = {one[:7] for one in re.findall(r"#[0-9a-f]{6,8}", json.dumps(chart.spec))}
        assert used <= {colour[:7] for colour in INKS_ON_EITHER.values()}, name
    for role in ("ink", "soft", "run", "done", "wait", "fail", "kept", "tape"):
        assert min(contrast(INKS_ON_EITHER[role], ground) for ground in ("#ffffff", "#111111")) >= 4.3, role
    assert INKS["dark"]["ground"] == run.timeline(theme="dark").spec["background"]


@given(SIZES)
@settings(max_examples=30, deadline=None)
def test_spans_add_up_to_the_frame(size: tuple[int, int, int]):
    """Per agent the spans of a phase are the column of that phase, and all of them are `total_s`: to the last bit."""
    record = finished_run(layered_plan(size[0], size[1], size[2]), size[2])
    check_spans(record)


def check_spans(record: Any) -> None:
    """Compare the spans of a run with what its results say."""
    sums: dict[str, dict[str, float]] = {result.name: {} for result in record.results}
    for span in spans_of(record):
        sums[span.agent][span.phase] = sums[span.agent].get(span.phase, 0.0) + span.length_s
    for result in record.results:
        found = sums[result.name]
        for phase, column in PHASE_COLUMNS.items():
            assert math.isclose(getattr(result, column), found.get(phase, 0.0), abs_tol=1e-9)
        assert math.isclose(result.api_s, found.get("first", 0.0) + found.get("stream", 0.0), abs_tol=1e-9)
        assert math.isclose(result.total_s, sum(found.values()), abs_tol=1e-9)


def test_spans_of_retries_and_queues_add_up():
    """A run with a queue, a failure and a backoff adds up as well."""
    check_spans(business_run())


@given(SIZES, st.integers(1, 200))
@settings(max_examples=30, deadline=None)
def test_bins_lose_no_second(size: tuple[int, int, int], count: int):
    """Who did what at once, times how long, is the seconds of each phase."""
    spans = spans_of(finished_run(layered_plan(size[0], size[1], size[2]), size[2]))
    until_s = max(span.to_s for span in spans)
    counts = binned(spans, until_s, count)
    for phase in STACK:
        wanted = sum(span.length_s for span in spans if span.phase == phase)
        assert math.isclose(wanted, sum(counts[phase]) * until_s / count, abs_tol=1e-6)


@given(SIZES)
@settings(max_examples=30, deadline=None)
def test_the_steps_of_the_waterfall_are_the_wall_time_and_the_cost(size: tuple[int, int, int]):
    """The steps add up to `wall_s` and `cost_usd`, and no step is negative."""
    record = finished_run(layered_plan(size[0], size[1], size[2]), size[2])
    numbers = summarize(record)
    chain = {record.results[agent].name for agent in chain_of(record)}
    steps = second_steps([span for span in spans_of(record) if span.agent in chain], numbers.wall_s or 0.0)
    assert math.isclose(numbers.wall_s or 0.0, sum(step.amount for step in steps), abs_tol=1e-9)
    assert min(step.amount for step in steps) > -1e-9
    costs = {result.name: result.cost_usd for result in record.results}
    known = math.fsum(cost for cost in costs.values() if cost is not None)
    assert math.isclose(known, sum(step.amount for step in dollar_steps(costs)), abs_tol=1e-12)
    assert len(dollar_steps(costs)) <= 10


@given(SIZES, st.floats(0, 100))
@settings(max_examples=30, deadline=None)
def test_curves_count_what_was_sent(size: tuple[int, int, int], at_s: float):
    """At any moment: the requests under way, and those sent within the last minute, counted by hand."""
    record = finished_run(layered_plan(size[0], size[1], size[2]), size[2])
    curves = {curve.name: curve for curve in curves_of(record.attempts, {})}
    sent = [(one.started_s, one.ended_s or math.inf) for one in record.attempts]
    assert sum(start <= at_s < end for start, end in sent) == value_at(curves[CONCURRENT], at_s)
    assert sum(at_s - WINDOW_S < start <= at_s for start, _ in sent) == value_at(curves[REQUESTS], at_s)


@given(st.lists(st.tuples(st.floats(0, 99.9), st.floats(0, 50)), max_size=3000))
@settings(max_examples=20, deadline=None)
def test_a_long_curve_keeps_its_peak(steps: list[tuple[float, float]]):
    """However many steps there are, at most 240 are drawn, and the highest value is among them."""
    curve = Curve("requests", tuple(sorted(dict(steps).items())))
    kept = peaks(curve, 100.0)
    assert len(kept) <= 240
    assert max((value for _, value in curve.steps), default=0) == max(value for _, _, value in kept)


def test_a_dip_too_short_to_be_seen_is_no_spike():
    """A request that ends as the next one begins leaves the curve level."""
    curve = Curve("requests", ((0.0, 8.0), (5.0, 7.0), (5.001, 8.0)))
    assert [(0.0, 100.0, 8.0)] == peaks(curve, 100.0)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=60))
def test_the_front_is_what_nothing_beats(pairs: list[tuple[int, int]]):
    """A point is on the front if no other is at least as good in both and better in one; of equals the first."""
    wanted = {
        place
        for place, (x, y) in enumerate(pairs)
        if not any((a <= x and b <= y and (a, b) != (x, y)) or ((a, b) == (x, y) and other < place)
                   for other, (a, b) in enumerate(pairs))
    }  # fmt: skip
    assert wanted == pareto([(float(x), float(y)) for x, y in pairs])


@given(st.floats(1e-6, 1e7), st.integers(2, 8))
def test_axes_start_at_zero_and_hold_everything(most: float, count: int):
    """Ticks are evenly spaced from 0, the last is at least the most, and there are not many more than asked for."""
    found = numbers(most, count)
    assert 0 == found[0]
    assert found[-1] >= most * (1 - 1e-9)
    assert found[-2] < most
    assert len(found) <= 2 * count + 3


def test_a_chart_is_a_bundle():
    """A notebook gets the picture and the text, and on request Vega-Lite, all with the provenance in them."""
    for name, chart in all_charts(Run(business_run())).items():
        assert {"image/svg+xml", "text/plain"} == set(chart._repr_mimebundle_())
        bundle = chart.interactive()._repr_mimebundle_()
        assert {MIME, "image/svg+xml", "text/plain"} == set(bundle)
        assert bundle[MIME]["$schema"].endswith("/vega-lite/v5.json")
        for shown in (json.dumps(bundle[MIME], ensure_ascii=False), bundle["image/svg+xml"], bundle["text/plain"]):
            assert "simulated" in shown, name
    assert "forecast: nothing was sent" in all_charts(Run(business_run()))["tradeoff"].text


@pytest.mark.parametrize("payload", HOSTILE)
def test_names_in_charts_are_texts(payload: str):
    """No name becomes markup, a link or a script; the pictures stay well-formed."""
    record = business_run()
    for thing in (record.plan, record.plan.agents[0], record.results[0]):
        object.__setattr__(thing, "name", payload)
    given = frame()
    given["model"] = pd.Series([payload, *given["model"][1:]], index=given.index, dtype="object")
    run = Run(record)
    for chart in [*all_charts(run).values(), run.tradeoff(given), tradeoff(given)]:
        tags = {element.tag.rpartition("}")[2] for element in ET.fromstring(chart.svg).iter()}
        assert tags <= {"svg", "style", "g", "rect", "text", "path", "circle", "title"}
        assert "\x1b" not in chart.text
        json.dumps(chart.spec, allow_nan=False)


@pytest.mark.parametrize("agents", [100, 1000])
def test_large_runs_stay_small(agents: int):
    """A chart of 100 or 1,000 agents has at most 100 KB, and 1,000 agents are counted, not drawn one by one."""
    run = Run(finished_run(layered_plan(agents, 25)))
    for chart in all_charts(run).values():
        assert len(chart.svg) < 100_000
        assert len(json.dumps(chart.spec)) < 100_000
    assert f"{agents:,} agents counted by phase" in run.timeline().text


def test_the_timeline_marks_the_critical_path():
    """Its agents are bold, and said so; where every agent is on it that says nothing."""
    svg = Run(business_run()).timeline().svg
    bold = [element.text for element in ET.fromstring(svg).iter() if element.get("font-weight") == "600"]
    assert ["operations", "review_ops", "business_plan"] == [name for name in bold if name in business_run().plan.index]
    alone = Run(finished_run(layered_plan(3, 1)))
    assert "critical path" not in alone.timeline().svg


def test_phases_can_be_told_without_colour():
    """No two kinds of bar are alike in height and strength; local work is not drawn, a failed attempt has no token."""
    looks = [(look.height, look.opacity) for kind, look in PHASES.items() if kind != "local"]
    assert len(looks) == len(set(looks))
    assert "failed attempt" == look_of("first", "failed").word


def test_the_front_is_labelled_by_what_differs():
    """Labels name only what was varied, in few words."""
    found = {one.label for one in scenarios_of(rows_of(frame())) if one.is_front}
    assert {f"concurrency {most} · cache on" for most in (1, 2, 4)} | {"concurrency 4 · cache off"} >= found


def test_the_best_scenarios_are_said_in_words():
    """One that is cheapest and fastest by its name; of several how many; each other one is labelled by its setting."""
    rows = [{"concurrency": n, "wall_s": 8.0 / n, "cost_usd": 0.1} for n in (1, 2, 4)]
    chart = tradeoff(frame(rows))
    assert "the cheapest and fastest of 3 scenarios: concurrency 4" in chart.text
    assert {">concurrency 1<", ">concurrency 2<"} <= {one for n in (1, 2) if (one := f">concurrency {n}<") in chart.svg}
    rows[0]["cost_usd"] = 0.05
    assert "the best 2 of 3 scenarios, joined: each other one is dearer or slower" in tradeoff(frame(rows)).text


def test_words_of_charts_turn_no_line_around():
    """Names of models may come from a stranger's file: no control character is in a caption."""
    rows = [{"model": name, "wall_s": 1.0, "cost_usd": 0.1} for name in ("a\x1b[2J\u202e", "b")]
    chart = tradeoff(frame(rows))
    assert not {"\x1b", "\u202e"} & {*chart.text, *chart.svg}


def test_scenarios_without_a_price_are_counted():
    """What cannot be drawn is said, and a frame that is none is an error that says what to give."""
    rows = [{"model": "a", "wall_s": 1.0, "cost_usd": float("nan")}, {"model": "b", "wall_s": 2.0, "cost_usd": 0.1}]
    chart = tradeoff(frame(rows))
    assert "1 scenario without a known price or time not shown" in " ".join(chart.text.split())
    with pytest.raises(DeclarationError, match=r"no column 'wall_s'.*run\.whatif"):
        tradeoff(frame([{"a": 1}]))


def ran(agents: int, reply: Reply) -> RunRecord:
    """Return the run of a chain of agents that all get this reply."""
    return drive(layered_plan(agents, 1), lambda _, __: reply)[0]


RUNS = {
    "with retries": business_run,
    "healthy": lambda: ran(2, Reply(0.1)),
    "failed": lambda: ran(2, Reply(0.1, Overloaded("busy", status=529), status=529)),
    "one agent": lambda: ran(1, Reply(0.1)),
    "empty": lambda: record_of(layered_plan(2, 1)),
}


@pytest.mark.parametrize("name", RUNS)
def test_vega_draws_every_chart(name: str):
    """Vega-Lite accepts each specification and draws it."""
    vl_convert: Any = pytest.importorskip("vl_convert")
    run = Run(RUNS[name]())
    assert (name not in {"failed", "empty"}) == run.ok
    charts = all_charts(run) | {"comparison": Comparison(run, run).chart()}
    if name != "healthy":
        del charts["tradeoff"]  # it draws a frame, and no run
    for chart in charts.values():
        svg = vl_convert.vegalite_to_svg(chart.spec, vl_version="5.8")
        assert chart.title in svg


def test_what_takes_hours_leaves_the_others_room():
    """It stands at the top edge with its seconds, and is counted; where nothing does, all has its place."""
    quick = [{"batch": False, "wall_s": 10.0 + place, "cost_usd": 0.02 + place / 1000} for place in range(3)]
    late = {"batch": True, "wall_s": 7200.0, "cost_usd": 0.01}
    chart = tradeoff(frame([*quick, late]))
    assert "↑ 1 above the scale" in chart.text
    assert "↑ 2 h 00 min · batch on" in chart.svg
    rows = [row for layer in chart.spec["vconcat"][0]["layer"] for row in layer["data"]["values"]]
    assert {"12.0 s", "2 h 00 min"} <= {row["seconds"] for row in rows if "seconds" in row}
    assert max(row["y"] for row in rows) < 30
    assert "above the scale" not in tradeoff(frame(quick)).text


def test_a_chosen_row_is_marked():
    """By its label in the frame; another label is an error that shows one."""
    made, run = frame(), Run(business_run())
    chart = run.tradeoff(made, chosen=made["cost_usd"].idxmin())
    assert "chosen: 20.0 s, $0.011" in chart.svg
    totals = run.totals
    same = frame([{"model": "a", "wall_s": totals.wall_s, "cost_usd": totals.cost_usd}])
    assert "this run and chosen" in run.tradeoff(same, chosen=0).svg
    with pytest.raises(DeclarationError, match=r"no row of the frame.*6 rows"):
        run.tradeoff(made, chosen=99)


def test_what_was_measured_is_solid_and_forecasts_are_hollow():
    """The run is a full diamond; every scenario is a ring, that of the chosen one a hollow diamond around it."""
    made, run = frame(), Run(business_run())
    chart = run.tradeoff(made, chosen=made["cost_usd"].idxmin())
    layers = chart.spec["vconcat"][0]["layer"]
    points = [layer["mark"] for layer in layers if layer["mark"]["type"] == "point"]
    filled = [(mark["shape"], mark["filled"]) for mark in points]
    assert [("diamond", True)] == [one for one in filled if one[1]]
    assert {"diamond", "circle"} == {shape for shape, is_filled in filled if not is_filled}
    assert "solid: measured, hollow: forecast" in " ".join(chart.text.split())
    assert "solid:" not in tradeoff(made).text


def test_a_model_keeps_its_colour_in_every_picture():
    """By its family, whichever others are there; two of one family and strangers take what is free."""
    first, second = looks_of(["haiku-5-5", "opus-5-5"]), looks_of(["opus-5-5", "sonnet-5-5", "x"])
    assert first["opus-5-5"].ink == second["opus-5-5"].ink
    for models in (["opus-5-5", "opus-4-8", "x", "haiku-5-5"], ["x", "y", "z", "sonnet-5-5", "opus-5-5"]):
        looks = looks_of(models)
        assert models == list(looks)
        assert len(models) == len({look.ink for look in looks.values()})


def test_a_large_limit_is_written_in_full():
    """Not as a power of ten."""
    chart = Run(business_run()).limits_chart({"input tokens": 2_000_000})
    assert "limit 2,000,000, far above" in chart.svg
    assert "e+0" not in chart.text


def test_a_long_caption_goes_on_in_a_second_line():
    """Nothing of it is cut: it breaks between its phrases, and the picture is as much higher."""
    phrases = [f"{word}, which takes well over half of a line" + ", and more" * 4 for word in ("first", "second")]
    panel = Panel([], times(1.0), Rows(["a"]), height=20, left=40)
    one, two = (compose("t", "l", [panel], caption=each) for each in (phrases[:1], phrases))
    assert all(f">{phrase}</text>" in two.svg for phrase in phrases)
    assert 16 == height(two.svg) - height(one.svg)


def height(svg: str) -> float:
    """Return the height of a picture."""
    return float(ET.fromstring(svg).attrib["viewBox"].split()[3])


def test_a_trade_off_says_which_scenario_to_take() -> None:
    """By its place where the frame was given, else as the arguments it was asked with; the chosen one by its label."""
    run = Run(business_run())
    asked = frame([{"concurrency": n, "wall_s": 9.6 / n, "cost_usd": 0.0168} for n in (1, 4)])
    asked.attrs["recorded"] = {"wall_s": 9.6, "cost_usd": 0.0168}
    assert "run.apply(frame.iloc[1]) takes the fastest" in " ".join(run.tradeoff(asked).text.split())
    assert "run.apply(frame.loc[0]) takes the chosen one" in " ".join(run.tradeoff(asked, chosen=0).text.split())
    plan = Plan(tuple(Agent(name, name) for name in "abcd"))
    said = Run(drive(plan, lambda *_: Reply(1.0), Policy(1))[0]).tradeoff().text
    assert "run.apply({'model': 'claude-haiku-5-5', 'concurrency': 4}) takes the fastest" in " ".join(said.split())


def test_the_last_request_of_a_run_is_in_the_chart() -> None:
    """What is counted at the very end has no width, and is drawn all the same."""
    curve = Curve(REQUESTS, ((0.0, 1.0), (5.0, 2.0), (10.0, 3.0)))
    assert 3.0 == max(value for *_, value in peaks(curve, 10.0))
