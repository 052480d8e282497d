"""What-ifs: the dollars and seconds of the plan, or of its last run, under other settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from IPython.core.error import UsageError

from agent_magic.api import Run
from agent_magic.api.choosing import with_models
from agent_magic.declare.plan_json import plan_to_dict
from agent_magic.forecast.whatif import ARGUMENTS, PASSING, whatif_frame
from agent_magic.notebook.command import CommandContext, Verb, argument
from agent_magic.notebook.front_end import note
from agent_magic.notebook.planning import estimated
from agent_magic.notebook.verbs.runs import PLAN_OPTIONS
from agent_magic.show.displays import Progress
from agent_magic.show.explore import Explorer, explore

if TYPE_CHECKING:
    from argparse import Namespace

    import pandas as pd

    from agent_magic.forecast.estimate.value import Estimate

IN_PYTHON: Final = frozenset({"prices", "outage", *PASSING})
"""Structured values, which a line cannot express; `whatif` takes them in Python."""
HELP: Final = {
    "model": "Models, such as A,B; NAME=A changes one agent.",
    "concurrency": "The most requests under way at once, such as 1,4,16.",
    "schedule": "ready, shortest, layers, groups, sequential.",
    "limits": "Requests a minute, such as 50,200, or off.",
    "cache": "auto, on, off.",
    "batch": "on, off, auto.",
    "effort": "Efforts, such as low,high; NAME=low changes one agent.",
    "drop": "Agents left out, one for each row; a+b leaves out both.",
    "cache_ttl": "auto, 5m, 1h.",
    "rounds": "The most rounds of each loop.",
    "most": "The most items of each map over an answer.",
    "route": "How requests are given to several endpoints.",
}


_WHICH: Final = (
    *PLAN_OPTIONS,
    argument("--next", action="store_true", help="Forecast the next run, even after a first one."),
)


async def _whatif(ctx: CommandContext, given: Namespace) -> pd.DataFrame:
    asked = {name: _values(name, text) for name in HELP if (text := getattr(given, f"asked_{name}")) is not None}
    found, words = await _asked(ctx, given)
    if isinstance(found, Run):
        note(words)
        return found.whatif(**asked)
    note(words)
    ctx.session.planned = Run(found.likely)
    with Progress("scenarios") as progress:
        return whatif_frame(found.ahead(), asked, tell=progress.tell)


async def _explore(ctx: CommandContext, given: Namespace) -> None:
    found, words = await _asked(ctx, given)
    note(words)
    if isinstance(found, Run):
        found.explore()
    else:
        ctx.session.planned = Run(found.likely)
        explore(Explorer(found.ahead()))


async def _asked(ctx: CommandContext, given: Namespace) -> tuple[Run | Estimate, str]:
    # A run counts as long as the declared plan is unchanged.
    plan = ctx.freeze(given)
    run = next((one for one in reversed(ctx.session.runs) if one.plan.name == plan.name), None)
    if (
        run is not None
        and not given.next
        and plan_to_dict(with_models(plan, ctx.session.shared)) == plan_to_dict(run.plan)
    ):
        return run, "forecast from the last run. --next forecasts the next run, from all earlier answers."
    why = (
        "it has not run yet" if run is None
        else "--next" if given.next
        else "it has changed since its last run; run.whatif(...) asks that run"
    )  # fmt: skip
    return await estimated(plan, ctx.session, ctx.policy(given)), f"forecast for the plan as declared: {why}."


def _values(name: str, text: str) -> list[Any]:
    words = [one.strip() for one in text.split(",")]
    if not all(words):
        raise UsageError(f"%agents whatif --{name} {text}: empty value. Write 1,4,16 without spaces.")
    return [_value(name, one) for one in words]


def _value(name: str, word: str) -> Any:
    if name in {"concurrency", "rounds", "most"} or (name == "limits" and word not in {"off", "none"}):
        try:
            return int(word) if name != "limits" else float(word)
        except ValueError:
            form = "numbers such as 50,200, or off" if name == "limits" else "numbers such as 1,4,16"
            raise UsageError(f"%agents whatif --{name} {word}: it takes {form}.") from None
    if name == "drop":
        return tuple(word.split("+"))
    agent, is_of_one, value = word.partition("=")
    if is_of_one and name in {"model", "effort"}:
        return {agent: value}
    return word


VERBS = {
    "whatif": Verb(
        "Forecast cost and time with other models, concurrency, limits, ...: a row for each combination. It asks "
        "the last run, or a plan that has not run. Nothing is sent.",
        (
            *_WHICH,
            *(  # the policy has fields of such names
                argument(f"--{name.replace('_', '-')}", dest=f"asked_{name}", metavar="VALUES", help=HELP[name])
                for name in ARGUMENTS
                if name not in IN_PYTHON
            ),
        ),
        _whatif,
        waits=True,
        examples=(
            "%agents whatif --concurrency 1,4,16",
            "frame = %agents whatif --model claude-haiku-5-5,claude-opus-5-5 --schedule ready,sequential",
            "%agents whatif --model writer=claude-opus-5-5 --batch off,on    # one agent, live and by batch",
            "%agents whatif --limits 50,200 --next    # the next run, by all earlier answers",
        ),
    ),
    "explore": Verb(
        "Open a panel with controls, the forecast and its timeline, of the last run or of a plan that has not run.",
        _WHICH,
        _explore,
        waits=True,
        examples=("%agents explore", "%agents explore --next    # of the plan, though a run is there"),
    ),
}
