"""A run as pandas frames: unknown is `NA`, never 0.

Seconds, dollars and shares are `Float64`, counts `Int64`, words `string`, flags `bool`, or `boolean` if unknown is
possible. Only frames made here are a `RunFrame`, which a notebook shows short.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from agent_magic.declare.options import AGENT, AUTO, SENT
from agent_magic.declare.units import plural
from agent_magic.errors import AgentMagicError
from agent_magic.measure.metrics import (
    cost_mark,
    critical_path,
    slack_s,
    source_of,
    summarize,
    total_cost,
    wall_time_s,
)
from agent_magic.record.answer import PAID_BEFORE, total_tokens
from agent_magic.record.display import ShownFrame, clean, single_line
from agent_magic.record.events import (
    AgentEnded,
    AttemptEnded,
    AttemptStarted,
    BackoffStarted,
    CallEnded,
    CallStarted,
    FirstToken,
    RunEnded,
)
from agent_magic.record.history import MEASURED
from agent_magic.record.reasons import held
from agent_magic.record.results import capped_steps

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd

    from agent_magic.engine.alerts import Episode
    from agent_magic.measure.metrics import Summary
    from agent_magic.record.events import Event
    from agent_magic.record.facts import Attempt, ToolCall
    from agent_magic.record.ledger.runs import PastRun
    from agent_magic.record.results import AgentResult, RunRecord


def _columns(words: str, numbers: str, counts: str, flags: str, maybe: str, times: str) -> dict[str, str]:
    kinds = {"string": words, "Float64": numbers, "Int64": counts, "bool": flags, "boolean": maybe}
    kinds["datetime64[s, UTC]"] = times
    return {name: dtype for dtype, names in kinds.items() for name in names.split()}


DTYPES: Mapping[str, str] = _columns(
    words="agent plan notebook model model_used model_asked model_reason status source held_by stop_reason request_id "
    "price error event what verdict limited_by slowest speedup_over state context ttl leader number of target unit why "
    "status_a status_b model_a model_b kind tool arguments result grader metric reads worker endpoint error_class "
    "request rule batch prints speedup_basis",
    numbers="total_s queued_s api_s tool_s backoff_s local_s ttft_s started_s finished_s slack_s cost_usd at_s "
    "wall_s agent_s mean_concurrency critical_path_s bound efficiency speedup cost_multiple saved_usd uncached_usd "
    "cost_multiple_low cost_multiple_high "
    "waited_s work_s share halving_saves_s removing_saves_s started_early_s mean p50 p95 p99 max busy_s utilization "
    "slot_utilization requests_per_min expected_s bias mean_s wanted measured seconds_a seconds_b diff_s "
    "cost_usd_a cost_usd_b diff_usd duration_s score low high worst cpu_share rss_mb lag_s "
    "sequential_s saved_s time_saved_pct success_rate",
    counts="run attempt attempts layer layers agents succeeded failed skipped not_needed cancelled rate_limited "
    "http_status "
    "input_tokens output_tokens cache_read_tokens cache_write_tokens tokens calls served unknown requests "
    "prefix_tokens uncounted n peak tokens_a tokens_b diff_tokens turn round context_tokens result_chars tasks errors "
    "no_label searches",
    flags="on_critical_path usage_estimated simulated cached transient capped",
    maybe="met prompt_changed text_changed",
    times="began_at",
)
"""A name has one meaning and one dtype in all frames."""


def table(names: str) -> Mapping[str, str]:
    """Return the columns of a frame, in this order, with their dtypes."""
    return {name: DTYPES[name] for name in names.split()}


AGENTS = table(
    "agent status kind total_s input_tokens output_tokens cost_usd model model_used source attempts queued_s api_s "
    "tool_s backoff_s local_s ttft_s started_s finished_s cache_read_tokens cache_write_tokens layer on_critical_path "
    "slack_s context_tokens round speedup saved_s stop_reason error"
)
"""`run.agents`. pandas shows the first ten and the last ten columns."""
ATTEMPTS = table(
    "agent attempt status api_s input_tokens output_tokens cost_usd model source http_status held_by queued_s "
    "backoff_s started_s ttft_s finished_s cache_read_tokens cache_write_tokens searches usage_estimated price turn "
    "stop_reason request_id batch error_class error"
)
TOOL_CALLS = table("agent turn tool arguments status result started_s duration_s result_chars error source held_by")
LAYERS = table(
    "layer agents succeeded wall_s input_tokens output_tokens cost_usd agent_s mean_concurrency slowest started_s "
    "finished_s tasks"
)
SUMMARY = table(
    "plan agents succeeded wall_s input_tokens output_tokens cost_usd verdict limited_by mean_concurrency bound "
    "efficiency agent_s queued_s critical_path_s layers tasks failed skipped not_needed cancelled rate_limited source "
    "speedup speedup_over cost_multiple sequential_s time_saved_pct speedup_basis success_rate cost_multiple_low "
    "cost_multiple_high"
)
EVENTS = table("at_s event agent attempt what")
"""`what` has no prompt, answer or key."""
KERNEL = table("at_s cpu_share rss_mb lag_s")
ALERTS = table("rule at_s finished_s measured worst wanted")
RUNS = table(
    "run began_at plan state agents succeeded wall_s tokens cost_usd saved_usd calls served unknown simulated notebook"
)
ALL = "(all)"
"""The row for all: a name that no agent or model can have."""
TOKENS = "input_tokens cache_read_tokens cache_write_tokens output_tokens"


class Speedups(Protocol):
    """What concurrency saved each step, in plan order."""

    @property
    def speedups(self) -> Sequence[float | None]:
        """Time to a step's end one step at a time, divided by the time it took."""
        ...

    @property
    def saved_s(self) -> Sequence[float | None]:
        """The difference of the two."""
        ...


class _Table(NamedTuple):
    """The rows of a frame before pandas."""

    rows: list[dict[str, Any]]
    columns: Mapping[str, str]

    def text(self, left_out: Sequence[str]) -> str:
        """Return the values as text; equal texts mean equal frames."""
        kinds = {name: float if dtype == "Float64" else str for name, dtype in self.columns.items()}
        shown = {name: kind for name, kind in kinds.items() if name not in left_out}
        return repr(
            [[None if row.get(name) is None else kind(row[name]) for name, kind in shown.items()] for row in self.rows]
        )


def agents_frame(record: RunRecord, speedups: Speedups | None = None) -> pd.DataFrame:
    table = _agents(record)
    if speedups is not None:
        used = [number for number, result in enumerate(record.results) if result.status != "unused"]
        for row, number in zip(table.rows, used, strict=True):
            row["speedup"], row["saved_s"] = speedups.speedups[number], speedups.saved_s[number]
    frame = frame_of(*table, record)
    frame.attrs |= on_the_run(record, "run.texts has the answers, run.advise() advice")
    return frame


def on_the_run(record: RunRecord, step: str) -> dict[str, Any]:
    totals = {
        "wall_s": wall_time_s(record.results),
        "cost_usd": total_cost(record.results),
        "cost_mark": cost_mark(record.results),
    }
    return {"totals": totals, "next": next_step(record, step)}


def next_step(record: RunRecord, step: str) -> str:
    left = 0 if record.forecast else sum(one.status == "cancelled" for one in record.results)
    step = f"%agents run goes on with the {left:,} left" if left else step
    failed = next((one.name for one in record.results if one.status == "failed"), "")
    why = f"%agents error {single_line(failed)} shows why it failed"
    return "" if record.ended_s is None else why if failed else step


def _agents(record: RunRecord) -> _Table:
    path, slack, capped = set(critical_path(record)), slack_s(record), capped_steps(record)
    rows = [
        {
            **_fields(result, "layer status model_used stop_reason context_tokens error"),
            "source": record.source_at(number),
            **(_fields(result.usage, TOKENS) if result.attempts else {}),
            **_times(result),
            "agent": result.name,
            "kind": "task" if result.is_task else "agent",
            "model": None if result.is_task else result.model,
            "attempts": len(result.attempts),
            "cost_usd": result.cost_usd,
            "on_critical_path": number in path,
            "slack_s": slack[number],
            "round": _round(record, number),
            "artifacts": result.artifacts,
            "worker": next((one.worker for one in (*result.attempts[-1:], *result.calls[-1:]) if one.worker), None),
            **_expectation(record, number),
            "capped": number in capped,
            "model_asked": AUTO if record.plan.agents[number].chosen else None,
            "model_reason": record.plan.agents[number].chosen or None,
            **_sent(record.plan.agents[number].sent),
        }
        for number, result in enumerate(record.results)
        if result.status != "unused"
    ]
    wrote = {"artifacts": "object"} if any(row["artifacts"] for row in rows) else {}
    more = "model_asked model_reason" if any(row["model_asked"] for row in rows) else ""
    more += " expected_s bias" if any(row["expected_s"] for row in rows) else ""
    more += " capped" if capped else ""
    return _Table(rows, _with_place({**AGENTS, **wrote, **table(more)}, rows))


def _expectation(record: RunRecord, number: int) -> dict[str, float | None]:
    result, step, terms = record.results[number], record.plan.agents[number], record.terms
    expected_s = terms.work_s[number] if terms is not None and terms.work_s else None
    if not expected_s or (step.is_task and step.expect is None):
        return {"expected_s": None, "bias": None}
    took_s = result.tool_s if step.is_task else result.api_s
    replayed = result.source == "replay" and bool(result.attempts) and result.attempts[-1].price != PAID_BEFORE
    was_asked = step.is_task or result.source in MEASURED or replayed  # served answers took no time
    is_measured = result.status == "succeeded" and bool(took_s) and was_asked
    return {"expected_s": expected_s, "bias": took_s / expected_s - 1 if is_measured and took_s else None}


def _round(record: RunRecord, number: int) -> int | None:
    part = record.plan.agents[number].part
    return part.number if part is not None and part.rounds else None


def attempts_frame(record: RunRecord) -> pd.DataFrame:
    return frame_of(*_attempts(record), record)


def _attempts(record: RunRecord) -> _Table:
    rows = [*map(_attempt_row, record.attempts)]
    return _Table(rows, _with_place(ATTEMPTS, rows))


def _with_place(columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> Mapping[str, str]:
    found = [one for one in ("worker", "endpoint", "prints") if any(row.get(one) for row in rows)]
    sent = {name: dtype_of_option(name) for name in SENT if any(row.get(name) is not None for row in rows)}
    return {**columns, **table(" ".join(found)), **sent}


def dtype_of_option(name: str) -> str:
    return {float: "Float64", int: "Int64"}.get(cast("type", AGENT[name].read), "string")


def _sent(options: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(options) if options else {}
    return {name: json.dumps(one) if isinstance(one, list | dict) else one for name, one in found.items()}


def tool_calls_frame(record: RunRecord) -> pd.DataFrame:
    found = [(one, result) for result in record.results for one in result.calls]
    rows = [_call_row(one, result) for one, result in sorted(found, key=lambda each: each[0].started_s)]
    frame = frame_of(rows, _with_place(TOOL_CALLS, rows), record)
    if rows:
        failed = sum(one["status"] == "failed" for one in rows)
        frame.attrs["verdict"] = plural(len(rows), "call") + (f", {failed:,} failed" if failed else "")
        frame.attrs |= on_the_run(record, "run.attempts has the dollars of each turn")
    return frame


def layers_frame(record: RunRecord) -> pd.DataFrame:
    return frame_of(*_layers(record), record)


def _layers(record: RunRecord) -> _Table:
    rows = [
        _layer_row(layer, [one for agent in agents if (one := record.results[agent]).status != "unused"])
        for layer, agents in enumerate(record.plan.dag.layers())
    ]
    return _Table(rows, LAYERS)


def summary_frame(record: RunRecord, summary: Summary | None = None) -> pd.DataFrame:
    return frame_of(*_summary(summary or summarize(record)), record)


def _summary(summary: Summary) -> _Table:
    other = {"limited_by": summary.limited_by or None, "not_needed": summary.left_out}
    return _Table([{name: other[name] if name in other else getattr(summary, name) for name in SUMMARY}], SUMMARY)


def kernel_frame(record: RunRecord, samples: Sequence[Mapping[str, float | None]]) -> pd.DataFrame:
    """Return the kernel's samples; none for a run read from a file."""
    return frame_of(samples, KERNEL, record)


def alerts_frame(record: RunRecord, episodes: Iterable[Episode]) -> pd.DataFrame:
    rows = [
        {
            "rule": str(one.rule),
            "at_s": one.at_s,
            "finished_s": one.ended_s,
            "measured": one.measured,
            "worst": one.worst,
            "wanted": one.rule.most,
        }
        for one in episodes
    ]
    return frame_of(rows, ALERTS, record)


def events_frame(record: RunRecord) -> pd.DataFrame:
    names = record.plan.names

    def row(event: Event) -> dict[str, Any]:
        return {
            "at_s": event.at_s,
            "event": type(event).__name__,
            "agent": None if isinstance(event, RunEnded) else names[event.agent],
            "attempt": event.number if isinstance(event, AttemptStarted | FirstToken | AttemptEnded) else None,
            "what": _of_call(event, record) if isinstance(event, CallStarted | CallEnded) else _what(event),
        }

    return frame_of([row(event) for event in record.events], EVENTS, record)


def texts_series(record: RunRecord) -> pd.Series[str]:
    """Return the answers, complete or partial, by agent name."""
    check_pandas()
    import pandas as pd

    names = series_of([result.name for result in record.rows])
    texts = series_of([result.text for result in record.rows])
    texts.index, texts.name = pd.Index(names, name="agent"), "text"
    texts.attrs.update(_attrs(record))
    return texts


def runs_frame(runs: Iterable[PastRun]) -> pd.DataFrame:
    found = list(runs)
    last = f"%agents open {found[0].run} brings the newest back" if found else ""
    return make_frame(
        [{**run._asdict(), "notebook": run.notebook} for run in found],
        RUNS,
        verdict=last and f"{plural(len(found), 'run')} · {last}",
    )


def fingerprint(record: RunRecord, *, texts: bool = True) -> dict[str, str]:
    """Return a SHA-256 per frame, equal for equal numbers of any source."""
    tables = {
        "agents": _agents(record),
        "attempts": _attempts(record),
        "layers": _layers(record),
        "summary": _summary(summarize(record)),
    }
    # A replay differs from its run in `source`; an older version's had no `bias`.
    left_out = ["source", "bias"] if texts else ["source", "bias", "error"]
    found = {name: one.text(left_out) for name, one in tables.items()}
    if texts:
        found["texts"] = repr([(result.name, result.text) for result in record.rows])
    return {name: hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() for name, text in found.items()}


def make_frame(rows: Iterable[Mapping[str, Any]], dtypes: Mapping[str, str], **attrs: Any) -> pd.DataFrame:
    check_pandas()
    import pandas as pd

    rows = list(rows)
    frame = pd.DataFrame({name: series_of(_cells(rows, name, dtype), dtype) for name, dtype in dtypes.items()})
    frame.attrs.update(attrs)
    return as_made(frame)


def series_of(cells: Any, dtype: Any = None) -> pd.Series[Any]:
    """Return a column; of objects if pyarrow cannot hold its text, such as half a surrogate pair."""
    import pandas as pd

    try:
        return pd.Series(cells, dtype=dtype)
    except UnicodeEncodeError:
        return pd.Series(cells, dtype="object")


@functools.cache
def check_pandas() -> None:
    """Raise `AgentMagicError` without pandas: a browser may fail to load it."""
    try:
        importlib.import_module("pandas")
    except ImportError as error:
        raise AgentMagicError(
            f"This is a pandas frame, and pandas cannot be loaded here ({str(error).splitlines()[0]}). The graph, "
            "run.totals, run['NAME'], run.timeline() and run.explore() work without it."
        ) from None


def as_made(frame: pd.DataFrame) -> pd.DataFrame:
    made = _frame_class()(frame)
    made.attrs.update(frame.attrs)
    return made


@functools.cache
def _frame_class() -> type[pd.DataFrame]:
    """Build `RunFrame` late, since pandas takes half a second to load."""
    import pandas as pd

    class RunFrame(ShownFrame, pd.DataFrame):
        """A frame made by a run; derived ones are plain, by pandas' rule for subclasses."""

        @property
        def _constructor(self) -> type[pd.DataFrame]:
            return pd.DataFrame

        def __reduce_ex__(self, protocol: Any) -> Any:
            del protocol
            return _as_is, (self.copy(deep=False),)

        def to_markdown(self, buf: Any = None, *, index: bool = True, **options: Any) -> Any:
            """Write the frame as a Markdown table, even without pandas' optional `tabulate`."""
            if buf is None and not options and importlib.util.find_spec("tabulate") is None:
                return _pipe_table(self, index=index)
            return super().to_markdown(buf, index=index, **options)

    RunFrame.__qualname__ = "RunFrame"
    return RunFrame


def _pipe_table(frame: pd.DataFrame, *, index: bool) -> str:
    table = frame.reset_index(names=frame.index.name or "") if index else frame
    numbers = [one.dtype.kind in "iuf" for _, one in table.items()]
    rows = [[*table.columns], ["---:" if one else ":---" for one in numbers], *table.itertuples(index=False)]
    words = [[f"{cell:g}" if isinstance(cell, float) else single_line(str(cell)) for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(word.replace('|', chr(92) + '|') for word in row)} |" for row in words)


def _as_is(frame: pd.DataFrame) -> pd.DataFrame:
    return frame


def _cells(rows: Sequence[Mapping[str, Any]], name: str, dtype: str) -> list[Any]:
    """Return a column, words cleaned for terminals: some come from a server or a file."""
    values = [row.get(name) for row in rows]
    return [clean(one) if isinstance(one, str) else one for one in values] if dtype == "string" else values


def frame_of(rows: Iterable[Mapping[str, Any]], dtypes: Mapping[str, str], record: RunRecord) -> pd.DataFrame:
    return make_frame(rows, dtypes, **_attrs(record))


def _attrs(record: RunRecord) -> dict[str, Any]:
    known: dict[str, Any] = {
        "run": record.uid,
        "plan": record.plan.name,
        "source": source_of(record),
        "simulated": record.simulated,
    }
    if record.forecast is not None:
        known |= {"basis": record.forecast.basis, "assumed": record.forecast.assumed}
    return {**known, "provenance": dict(record.provenance)} if record.provenance else known


def _fields(held: object, names: str) -> dict[str, Any]:
    return {name: getattr(held, name) for name in names.split()}


def _times(result: AgentResult) -> dict[str, float | None]:
    if result.total_s is None:
        return {"started_s": result.started_s, "finished_s": None if result.ready_s is None else result.finished_s}
    return _fields(result, "queued_s api_s tool_s backoff_s local_s total_s started_s finished_s ttft_s")


def _attempt_row(attempt: Attempt) -> dict[str, Any]:
    answer = attempt.answer
    return {
        **_fields(attempt, "agent model status source turn started_s queued_s backoff_s ttft_s error"),
        **(_fields(attempt.usage, f"{TOKENS} searches") if attempt.usage else {}),
        "attempt": attempt.number,
        "api_s": attempt.duration_s,
        "held_by": attempt.held_by or None,
        "finished_s": attempt.ended_s,
        "usage_estimated": bool(attempt.usage and attempt.usage.estimated),
        "cost_usd": attempt.cost_usd,
        "price": attempt.price.basis if attempt.price else None,
        "stop_reason": answer.stop_reason if answer else None,
        "http_status": attempt.status_code,
        "request_id": answer.request_id if answer else None,
        "batch": (answer.batch or None) if answer else None,
        "worker": attempt.worker or None,
        "endpoint": attempt.endpoint or None,
        "error_class": attempt.kind,
        **_sent(attempt.request.options),
    }


def _call_row(call: ToolCall, result: AgentResult) -> dict[str, Any]:
    return {
        **_fields(call, "agent tool status started_s duration_s error source"),
        "turn": result.attempts[call.turn - 1].turn if call.turn else None,
        "round": result.attempts[call.turn - 1].turn if call.turn else None,
        "arguments": call.arguments or None,
        "result": call.result or None,
        "result_chars": None if call.ended is None else len(call.result),
        "held_by": call.held_by or None,
        "worker": call.worker or None,
        "prints": call.prints or None,
    }


def _layer_row(layer: int, results: Sequence[AgentResult]) -> dict[str, Any]:
    starts = [result.ready_s for result in results if result.ready_s is not None]
    ended = [result for result in results if result.ready_s is not None and result.finished_s is not None]
    last = max(ended, key=lambda result: result.finished_s or 0.0, default=None)
    end = last.finished_s if last else None
    wall = end - min(starts) if end is not None and starts else None
    agent_s = math.fsum(result.work_s for result in results)
    tasks = sum(result.is_task for result in results)
    return {
        "layer": layer,
        "agents": len(results) - tasks,
        "tasks": tasks,
        "wall_s": wall,
        "agent_s": agent_s,
        "mean_concurrency": agent_s / wall if wall else None,
        "started_s": min(starts, default=None),
        "finished_s": end,
        "slowest": last.name if last else None,
        "input_tokens": total_tokens(result.usage.input_tokens for result in results),
        "output_tokens": total_tokens(result.usage.output_tokens for result in results),
        "cost_usd": total_cost(results),
        "succeeded": sum(result.status == "succeeded" for result in results),
    }


def _of_call(event: CallStarted | CallEnded, record: RunRecord) -> str:
    """Describe a call without arguments and results, which may be secret."""
    if isinstance(event, CallStarted):
        return event.tool + held(event.held_by)
    tool = record.results[event.agent].call(event.number).tool
    return f"{tool} {event.status}" + (f": {event.error}" if event.error else "")


def _what(event: Event) -> str | None:
    match event:
        case AttemptStarted():
            return event.request.model + held(event.held_by)
        case AttemptEnded() if event.error is None:
            usage = event.usage
            known = [] if usage is None else [(usage.total_input_tokens, "input"), (usage.output_tokens, "output")]
            return ", ".join(f"{count:,} {word} tokens" for count, word in known if count is not None)
        case AttemptEnded():
            return event.error
        case BackoffStarted():
            return f"until {event.until_s:.3f} s: {event.why}"
        case AgentEnded():
            return event.status + (f": {event.error}" if event.error else "")
        case RunEnded():
            return "stopped" if event.cut else "finished"
        case _:
            return None
