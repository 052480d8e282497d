"""OpenTelemetry: spans and metrics of a run in the conventions' names, with the record's times and without texts."""

# Tests hand over wrong types on purpose.
# pyright: reportArgumentType=false, reportOptionalMemberAccess=false, reportOperatorIssue=false
# pyright: reportOptionalSubscript=false, reportAttributeAccessIssue=false, reportOptionalOperand=false, reportCallIssue=false

from __future__ import annotations

import asyncio
import sys

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import agent_magic as am
from agent_magic.errors import AgentMagicError, DeclarationError, Rejected
from agent_magic.record import RunRecord
from tests.live.virtual import Reply, Scripted, drive

SECRET = "the secret of the prompt"


@am.task
def count_words(draft: str) -> int:
    """Count."""
    return len(draft.split())


PLAN = am.Plan([am.Agent("draft", SECRET), am.Agent("bad", "Fails."), count_words], name="story")


def a_run() -> RunRecord:
    """Run an agent that answers, one that fails, and a task."""
    wrong = Rejected("no", status=400)
    return drive(PLAN, lambda prompt, _: Reply(2.0, wrong if prompt == "Fails." else None, text="It was."))[0]


def emitted(record: RunRecord, **options):
    """Emit a run; return its spans and its metrics by name."""
    spans, reader, tracers = InMemorySpanExporter(), InMemoryMetricReader(), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    am.Telemetry(tracer_provider=tracers, meter_provider=MeterProvider([reader]), **options).emit(record)
    data = reader.get_metrics_data()
    found = [one for each in data.resource_metrics for scope in each.scope_metrics for one in scope.metrics]
    tracers.shutdown()
    return {one.name: one for one in spans.get_finished_spans()}, {one.name: one.data.data_points for one in found}


def test_a_run_is_a_span_around_those_of_its_steps() -> None:
    """Names, parents and times are those of the conventions and of the record."""
    record = a_run()
    spans, _ = emitted(record)
    assert {"invoke_workflow story", "invoke_agent draft", "invoke_agent bad", "execute_tool count_words"} == set(spans)
    whole, draft, bad = spans["invoke_workflow story"], spans["invoke_agent draft"], spans["invoke_agent bad"]
    assert whole.context.span_id == draft.parent.span_id
    assert 2_000_000_000 == pytest.approx(draft.end_time - draft.start_time, abs=10)
    assert record.began_at.timestamp() == pytest.approx(whole.start_time / 1e9)
    assert (10, 5) == tuple(draft.attributes[f"gen_ai.usage.{one}_tokens"] for one in ("input", "output"))
    assert ("end_turn",) == draft.attributes["gen_ai.response.finish_reasons"]
    assert ("Rejected", False) == (bad.attributes["error.type"], bad.status.is_ok)
    assert draft.status.is_ok or draft.status.is_unset


def test_no_text_leaves_unless_it_is_asked_for() -> None:
    """Neither prompt nor answer, nor an error's text, is in any attribute; with `content` both are."""
    spans, _ = emitted(a_run())
    said = repr([dict(one.attributes) for one in spans.values()])
    assert SECRET not in said
    assert "It was." not in said
    loud, _ = emitted(a_run(), content=True)
    attributes = loud["invoke_agent draft"].attributes
    assert (SECRET, "It was.") == (attributes["gen_ai.input.messages"], attributes["gen_ai.output.messages"])


def test_metrics_have_tokens_and_durations() -> None:
    """Tokens by type and model, seconds by agent and of the run."""
    _, metrics = emitted(a_run())
    tokens = {point.attributes["gen_ai.token.type"]: point.sum for point in metrics["gen_ai.client.token.usage"]}
    assert (10, 5) == (tokens["input"] % 100, tokens["output"] % 100)
    agents = {one.attributes["gen_ai.agent.name"]: one for one in metrics["gen_ai.invoke_agent.duration"]}
    assert 2.0 == pytest.approx(agents["draft"].sum)
    assert "Rejected" == agents["bad"].attributes["error.type"]
    assert 1 == metrics["gen_ai.workflow.duration"][0].count


def test_it_is_off_unless_a_session_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session emits each run that is over; without the extra the error says what to install."""
    exporter, tracers = InMemorySpanExporter(), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    plan, client = am.Plan([am.Agent("one", "x")]), Scripted(lambda *_: Reply(0.0))
    asyncio.run(plan.run(session=am.Session(client=client)))
    assert () == exporter.get_finished_spans()
    asyncio.run(plan.run(session=am.Session(client=client, telemetry=am.Telemetry(tracer_provider=tracers))))
    assert ["invoke_agent one", "invoke_workflow agents"] == [one.name for one in exporter.get_finished_spans()]
    with pytest.raises(DeclarationError, match=r"telemetry must be am\.Telemetry"):
        am.Session(telemetry=True)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(AgentMagicError, match=r"agent-magic\[otel\]"):
        am.Telemetry()
