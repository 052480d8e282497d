"""Two runs beside each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from agent_magic.measure.metrics import summarize
from agent_magic.measure.recorded import check_runs
from agent_magic.measure.spread import ALL
from agent_magic.measure.table import make_frame

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from agent_magic.record.results import AgentResult, RunRecord

COMPARISON: Mapping[str, str] = {
    "agent": "string",
    "status_a": "string",
    "status_b": "string",
    "model_a": "string",
    "model_b": "string",
    "seconds_a": "float64",
    "seconds_b": "float64",
    "diff_s": "float64",
    "tokens_a": "Int64",
    "tokens_b": "Int64",
    "diff_tokens": "Int64",
    "cost_usd_a": "float64",
    "cost_usd_b": "float64",
    "diff_usd": "float64",
    "prompt_changed": "boolean",
    "text_changed": "boolean",
}


class Recorded(Protocol):
    """Whatever has a record: a run."""

    record: RunRecord


def compare(a: Recorded, b: Recorded) -> pd.DataFrame:
    """Put two runs beside each other. Differences are `b` minus `a`: below 0 is saved.

    One row per agent of either run, those of `a` first, then `(all)`. Columns are `COMPARISON`. `seconds` are `total_s`
    of an agent, `wall_s` of all; `tokens` are input, cached input too, and output. `prompt_changed` is of all that was
    asked: prompt, context, system prompt; `text_changed` of the answers; both are `NA` unless both runs have one. What
    one run lacks is `NA`.

    Raises:
        DeclarationError: One of them is no run.
    """
    check_runs((a, b), "compare")
    first, second = ({one.name: one for one in run.record.results} for run in (a, b))
    rows = [_row(name, first.get(name), second.get(name)) for name in dict.fromkeys([*first, *second])]
    one, other = summarize(a.record), summarize(b.record)
    total = {
        "agent": ALL,
        **_beside("seconds", "diff_s", one.wall_s, other.wall_s),
        **_beside("tokens", "diff_tokens", one.tokens, other.tokens),
        **_beside("cost_usd", "diff_usd", one.cost_usd, other.cost_usd),
        "prompt_changed": _any(row["prompt_changed"] for row in rows),
        "text_changed": _any(row["text_changed"] for row in rows),
    }
    return make_frame([*rows, total], COMPARISON)


def _row(name: str, a: AgentResult | None, b: AgentResult | None) -> dict[str, Any]:
    texts = [one.text if one is not None and one.status == "succeeded" else None for one in (a, b)]
    asked = [_asked(one) for one in (a, b)]
    return {
        "agent": name,
        "status_a": a and a.status,
        "status_b": b and b.status,
        "model_a": a and a.model,
        "model_b": b and b.model,
        **_beside("seconds", "diff_s", a and a.total_s, b and b.total_s),
        **_beside("tokens", "diff_tokens", _tokens(a), _tokens(b)),
        **_beside("cost_usd", "diff_usd", a and a.cost_usd, b and b.cost_usd),
        "prompt_changed": None if None in asked else asked[0] != asked[1],
        "text_changed": None if None in texts else texts[0] != texts[1],
    }


def _beside(name: str, difference: str, a: float | None, b: float | None) -> dict[str, float | None]:
    return {f"{name}_a": a, f"{name}_b": b, difference: None if a is None or b is None else b - a}


def _asked(result: AgentResult | None) -> tuple[str, str, str] | None:
    if result is None or not result.attempts:
        return None
    request = result.attempts[-1].request
    return (request.prompt, request.context or "", request.system or "")


def _tokens(result: AgentResult | None) -> int | None:
    if result is None or not result.attempts:
        return None
    given, made = result.usage.total_input_tokens, result.usage.output_tokens
    return None if given is None or made is None else given + made


def _any(changes: Any) -> bool | None:
    known = [one for one in changes if one is not None]
    return any(known) if known else None
