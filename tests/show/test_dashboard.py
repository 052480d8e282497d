"""The dashboard: what each panel adds up to, of a run that is over, under way, or has nothing to show."""

from __future__ import annotations

import asyncio
import xml.etree.ElementTree as ET

import agent_magic as am
from agent_magic import Limits
from agent_magic.engine import Pacer, episodes_of, rules_of
from agent_magic.errors import Overloaded, RateLimited
from agent_magic.live import Sample
from agent_magic.measure.frames import KERNEL
from agent_magic.record import AttemptEnded, RunRecord
from agent_magic.show import run_dashboard
from agent_magic.show.charts.dashboard import BINS, moments_of
from tests.live.virtual import Reply, Scripted, drive

AGENTS = am.Plan([am.Agent(f"a{one}", f"p{one}") for one in range(40)], name="forty <agents>")
PANELS = ("answers a second", "errors a second", "agents", "seconds an agent took", "dollars in the last minute")


def replies(prompt: str, number: int) -> Reply:
    """Refuse every fifth once, and let every tenth meet a busy service once."""
    agent = int(prompt[1:])
    if number == 1 and agent % 10 == 0:
        return Reply(0.5, Overloaded("busy", status=529), status=529)
    return Reply(0.5, RateLimited("slow", retry_after_s=1), status=429) if number == 1 and not agent % 5 else Reply(2.0)


def a_run() -> RunRecord:
    """Run forty agents in eight slots."""
    return drive(AGENTS, replies, am.Policy(8, max_attempts=3))[0]


def test_each_panel_says_what_the_frames_say() -> None:
    """Answers and errors by category are those of `run.attempts`; never more under way than there are slots."""
    record = a_run()
    chart, attempts = am.Run(record).dashboard(), am.Run(record).attempts
    assert f"({int((attempts['status'] == 'succeeded').sum())} in all" in chart.text
    assert f"({int(attempts['error_class'].notna().sum())} in all" in chart.text
    assert {"Overloaded", "RateLimited"} == {word for word in attempts["error_class"].dropna() if word in chart.text}
    moments = moments_of(record, record.ended_s or 0.0)
    assert BINS == len(moments)
    assert 8 >= max(one.values["running"] or 0 for one in moments)
    assert (0, 0) == (moments[-1].values["running"], moments[-1].values["queue"])
    most = int(max(one.values["peak"] or 0 for one in moments))
    assert f"concurrent requests: at most {most} " in am.Run(record).limits_chart().text, "as the other chart has it"
    assert f"at most {most} under way in" in chart.text


def test_rates_of_a_short_run_are_of_seconds() -> None:
    """Three answers within two seconds are never thirty a second."""
    chart = am.Run(drive(am.Plan([am.Agent(one, one) for one in "abc"]), lambda *_: Reply(1.9))[0]).dashboard()
    assert "answers a second: at most 3 " in chart.text or "answers a second: at most 1.58 " in chart.text


def test_it_is_one_picture_with_two_columns() -> None:
    """Valid SVG, names escaped, every panel there, in the colours of the page or of a theme."""
    record = a_run()
    samples = [Sample(float(one), 0.5, 100.0 + one, 0.01) for one in range(10)]
    alerts = episodes_of(record, rules_of(["queue > 5"]))
    chart = run_dashboard(record, samples, alerts)
    ET.fromstring(chart.svg)
    for title in (*PANELS, "CPU of the kernel, of a core", "memory of the kernel, MB"):
        assert title in chart.svg, title
    assert "queue 32, above 5" in chart.text
    assert "forty &lt;agents&gt;" in chart.svg
    assert chart.svg != run_dashboard(record, theme="dark").svg


def test_requests_are_drawn_by_worker() -> None:
    """A stack of those under way at each; what is too much for colours stands together."""
    record = a_run()
    assert "requests at workers" not in run_dashboard(record).svg
    for workers, last in ((3, "worker-2"), (9, "other workers")):
        made = RunRecord(record.plan, record.began_at, [one.model for one in record.results])
        for event in record.events:
            ended = isinstance(event, AttemptEnded)
            made.add(event._replace(worker=f"worker-{event.agent % workers}") if ended else event)
        chart = run_dashboard(made)
        assert "requests at workers" in chart.svg
        assert last in chart.svg
        rows = am.Run(made).attempts.worker.value_counts()
        assert f"{rows.sum()} in all, at most {rows.max()} at one" in chart.svg


def test_of_several_models_the_limit_that_is_used_the_most_is_drawn() -> None:
    """Limits are per model: each kind shows the model nearest to its limit, by name; so does the chart of limits."""
    names = ("claude-haiku-5-5", "claude-opus-5-5")
    plan = am.Plan([am.Agent(f"a{one}", "x", model=names[one > 0]) for one in range(4)])
    record, _ = drive(plan, lambda *_: Reply(), pacer=Pacer({name: Limits(requests=60) for name in names}))
    run = am.Run(record)
    assert "at most 5.0 % of requests (claude-opus-5-5)" in run.dashboard().svg
    assert "at most 5.0 % of a limit: requests (claude-opus-5-5)" in run.limits_chart().svg


def test_what_held_a_run_is_said_in_its_first_line() -> None:
    """A pacer spreads requests over the minute, so no curve looks full; each limit's line has a colour of its own."""
    plan = am.Plan([am.Agent(f"a{one}", "x") for one in range(8)])
    limits = Limits(requests=60, input_tokens=1e6)
    record, _ = drive(plan, lambda *_: Reply(), pacer=Pacer({"haiku": limits, "claude-haiku-5-5": limits}))
    run = am.Run(record)
    assert "requests" == run.totals.limited_by
    for chart in (run.dashboard(), run.limits_chart()):
        said = " ".join(chart.text.split())
        assert " · limited by the request limit" in said
        assert "60 requests a minute are let in evenly, 1 a second · run.whatif(limits={'requests': 120})" in said
    assert 1 == len(run.whatif(limits={"requests": 120}))
    assert "run.advise() says what would be faster or cheaper" in " ".join(run.timeline().text.split())
    assert ">input tokens" in run.dashboard().svg, "in the legend"
    free = am.Run(drive(plan, lambda *_: Reply())[0])
    assert "limited by" not in free.dashboard().text


def test_a_run_that_has_not_begun_has_an_empty_one() -> None:
    """Nothing is invented: no answers, no errors, unknown limits."""
    text = run_dashboard(drive(am.Plan(()), None)[0]).text
    assert "dashboard" in text
    assert "under way: at most" not in text


def test_the_kernel_is_sampled_while_a_run_goes_on() -> None:
    """CPU, memory and loop lag, with times inside the run; a run from a file has none."""

    async def run() -> am.Run:
        plan = am.Plan([am.Agent("one", "x")])
        waits = Scripted(lambda *_: Reply(0.6))
        return await plan.run(client=waits)

    kernel = asyncio.run(run()).kernel
    assert KERNEL == {name: str(kind) for name, kind in kernel.dtypes.items()}
    assert 1 <= len(kernel)
    assert (kernel["rss_mb"] > 1).all()
    assert 0 == len(am.Run(a_run()).kernel)
