"""A run as OpenTelemetry spans and metrics, named by the GenAI conventions. Needs opentelemetry-api only.

Spans are written after the run, with its recorded times. Requests have none: a traced SDK emits its own, and two would
double the tokens.

Source: OpenTelemetry semantic conventions for generative AI, status Development, names as of 2026.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent_magic.errors import AgentMagicError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_magic.record.results import AgentResult, RunRecord

SCOPE = "agent_magic"
NS_PER_S = 1_000_000_000
TOKENS, AGENT_S, RUN_S = "gen_ai.client.token.usage", "gen_ai.invoke_agent.duration", "gen_ai.workflow.duration"
Attributes = dict[str, "str | int | float | bool | list[str]"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """Emits the runs of a session to OpenTelemetry: `am.Session(telemetry=am.Telemetry())`.

    Providers default to those of the process; without any nothing is emitted.

    Attributes:
        content: True if prompts and answers become attributes and so leave the machine.
        tracer_provider: Creates tracers; by default the configured one.
        meter_provider: Creates meters; by default the configured one.

    Raises:
        AgentMagicError: opentelemetry-api is not installed.
    """

    content: bool = False
    tracer_provider: Any = None
    meter_provider: Any = None

    def __post_init__(self) -> None:
        """Check at once, before anything is bought."""
        if importlib.util.find_spec("opentelemetry") is None:
            raise AgentMagicError("OpenTelemetry is not installed: pip install 'agent-magic[otel]'")

    def emit(self, record: RunRecord) -> None:
        """Write the spans and metrics of an ended run. Reused answers took no time and have none.

        Args:
            record: The run.
        """
        from opentelemetry import metrics, trace  # lazy: an extra

        tracer = trace.get_tracer(SCOPE, tracer_provider=self.tracer_provider)
        meter = metrics.get_meter(SCOPE, meter_provider=self.meter_provider)
        self._trace(record, trace, tracer)
        _measure(record, meter)

    def _trace(self, record: RunRecord, trace: Any, tracer: Any) -> None:
        began = int(record.began_at.timestamp() * NS_PER_S)
        end_s = record.ended_s if record.ended_s is not None else record.events[-1].at_s if record.events else 0.0
        whole = tracer.start_span(
            f"invoke_workflow {record.plan.name}", start_time=began, attributes=_of_run(record), kind=_internal(trace)
        )
        around = trace.set_span_in_context(whole)
        for result in record.rows:
            if result.ready_s is None:
                continue
            attributes = _of_step(result)
            if self.content:
                prompt = result.attempts[-1].request.prompt if result.attempts else ""
                attributes |= {"gen_ai.input.messages": prompt, "gen_ai.output.messages": result.text}
            name = f"{attributes['gen_ai.operation.name']} {result.name}"
            start = began + int(result.ready_s * NS_PER_S)
            span = tracer.start_span(name, around, start_time=start, attributes=attributes, kind=_internal(trace))
            if result.status == "failed":
                span.set_status(trace.Status(trace.StatusCode.ERROR, result.kind or "failed"))
            span.end(began + int((end_s if result.finished_s is None else result.finished_s) * NS_PER_S))
        if record.cut:
            whole.set_status(trace.Status(trace.StatusCode.ERROR, "stopped"))
        whole.end(began + int(end_s * NS_PER_S))


def _internal(trace: Any) -> Any:
    return trace.SpanKind.INTERNAL


def _of_run(record: RunRecord) -> Attributes:
    return {
        "gen_ai.operation.name": "invoke_workflow",
        "gen_ai.workflow.name": record.plan.name,
        "agent_magic.run": record.uid,
        "agent_magic.agents": len(record.rows),
        "agent_magic.simulated": record.simulated,
    }


def _of_step(result: AgentResult) -> Attributes:
    """Return a step's attributes; by the conventions `input_tokens` includes cached ones."""
    answer = result.answer
    known: Mapping[str, Any] = {
        "gen_ai.operation.name": "execute_tool" if result.is_task else "invoke_agent",
        "gen_ai.tool.name" if result.is_task else "gen_ai.agent.name": result.name,
        "gen_ai.request.model": None if result.is_task else result.model,
        "gen_ai.response.finish_reasons": None if answer is None else [answer.stop_reason],
        **_usage(result),
        "error.type": result.kind,
        "agent_magic.status": result.status,
        "agent_magic.attempts": len(result.attempts),
        "agent_magic.source": result.source,
        "agent_magic.cost_usd": result.cost_usd,
    }
    return {name: value for name, value in known.items() if value is not None}


def _usage(result: AgentResult) -> Mapping[str, int | None]:
    used = result.usage
    return {
        "gen_ai.usage.input_tokens": used.total_input_tokens,
        "gen_ai.usage.output_tokens": used.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": used.cache_read_tokens,
        "gen_ai.usage.cache_write.input_tokens": used.cache_write_tokens,
    }


def _measure(record: RunRecord, meter: Any) -> None:
    tokens = meter.create_histogram(TOKENS, unit="{token}", description="Tokens of a request.")
    agent_s = meter.create_histogram(AGENT_S, unit="s", description="Seconds of an agent, waiting included.")
    run_s = meter.create_histogram(RUN_S, unit="s", description="Seconds of a run.")
    for result in record.rows:
        if not result.is_task and not result.is_served and result.total_s is not None:
            failed: Attributes = {"error.type": result.kind or "failed"} if result.status == "failed" else {}
            agent_s.record(result.total_s, {"gen_ai.agent.name": result.name, **failed})
    for attempt in record.facts.sent:
        if attempt.usage is None:
            continue
        common: Attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": attempt.model}
        used = {"input": attempt.usage.total_input_tokens, "output": attempt.usage.output_tokens}
        for kind, count in used.items():
            if count is not None:
                tokens.record(count, {**common, "gen_ai.token.type": kind})
    if record.ended_s is not None:
        run_s.record(record.ended_s, {"gen_ai.workflow.name": record.plan.name})
