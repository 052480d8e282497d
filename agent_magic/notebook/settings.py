"""The defaults that `%config AgentMagics.NAME = VALUE` sets.

One table, three readers: `%config` reads the traits, `%agents run` gets an option for each trait that names a field of
`Policy`, and `agent-magic export` writes those options as a `Policy`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any

from traitlets import Bool, Dict, Enum, Float, Int, Unicode
from traitlets.config import Configurable

from agent_magic.declare.agent import DEFAULT_MAX_TOKENS, DEFAULT_MODEL, DEFAULT_TIMEOUT_S
from agent_magic.declare.plan import PLAN_WORDS
from agent_magic.declare.units import duration
from agent_magic.engine.policy import POLICY_WORDS, Policy
from agent_magic.notebook.command import argument

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Container, Mapping, Sequence

    from agent_magic.notebook.command import Argument


def _setting(trait: Any, **tags: Any) -> Any:
    return trait.tag(config=True, **tags)


def _number(kind: Any, default: float, help_: str, field: str, unit: str = "N") -> Any:
    return _setting(kind(default, min=1 if kind is Int else 0.001, help=help_), field=field, unit=unit)


def _cap(kind: Any, help_: str, field: str, unit: str = "N") -> Any:
    return _setting(kind(0, min=0, help=f"{help_} 0 is none."), field=field, unit=unit)


def _choice(default: str, help_: str, field: str) -> Any:
    return _setting(Enum(POLICY_WORDS[field], default, help=help_), field=field, unit="WORD")


class Settings(Configurable):
    """Defaults of agents, plans and runs, and where answers are kept."""

    model = _setting(Unicode(DEFAULT_MODEL, help="The model of agents that name none."))
    max_tokens = _setting(Int(DEFAULT_MAX_TOKENS, min=1, help="The most output tokens of agents that set none."))
    effort = _setting(
        Unicode("", help="The effort of agents that set none: low, medium, high, xhigh or max. Empty: not sent.")
    )
    roles = _setting(Dict(help="Roles of your own: {'lawyer': 'You are a lawyer. ...'}, for --role lawyer."))
    on_cycle = _setting(
        Enum(PLAN_WORDS["on_cycle"], "error", help="Agents that wait for each other: error, or run in declared order.")
    )
    on_missing = _setting(
        Enum(
            PLAN_WORDS["on_missing"], "error", help="Agents that wait for an undeclared name: error, or drop the edge."
        )
    )

    concurrency = _number(Int, 8, "The most requests under way at once.", "concurrency")
    schedule = _choice(
        "ready",
        "ready: an agent starts when its parents are done. shortest: the shortest ready one first. "
        "layers: when earlier layers are done. groups: in groups of --concurrency. sequential: one by one.",
        "schedule",
    )
    max_attempts = _number(Int, 3, "The most requests for one agent, retries included.", "max_attempts")
    max_turns = _number(Int, 10, "The most requests for one answer that the API pauses.", "max_turns")
    timeout = _number(Float, DEFAULT_TIMEOUT_S, "Seconds that an agent without a deadline may take.", "timeout_s", "S")
    timeout_counts = _choice("work", "Timeouts count work, or the total with waiting for slots.", "timeout_counts")
    deadline = _cap(Float, "Seconds after which the run ends.", "deadline_s", "S")
    budget = _cap(Float, "The most dollars of a run; the cap cannot be crossed.", "budget_usd", "USD")
    budget_tokens = _cap(Int, "The most tokens of a run, input and output together.", "budget_tokens")
    degrade = _setting(
        Unicode("", help="What a request gives up when the budget or --deadline is short: effort,model."),
        field="degrade",
        unit="WORDS",
    )
    max_usd_per_min = _cap(Float, "The most dollars within any minute.", "max_usd_per_min", "USD")
    breaker_share = _number(
        Float, 1.0, "The share of the last 20 requests that fail before requests go one at a time.", "breaker_share"
    )
    shared = _choice("on", "Divide rate limits with other kernels on this ledger and key: on or off.", "shared")
    batch = _choice("off", "Send batches: half the price, within hours. auto: as far as --deadline allows.", "batch")
    batch_fallback = _choice(
        "batch", "Where to send what a batch left unanswered: the next batch, or live.", "batch_fallback"
    )
    identical = _choice("once", "Identical requests of a run: once shares one answer, each buys each.", "identical")
    seed = _cap(Int, "Makes the jitter of backoff repeatable.", "seed")
    cache = _choice("auto", "Cache contexts that agents share: auto (where it pays), on or off.", "cache")
    cache_ttl = _choice("auto", "How long a cached context lives: auto, 5m or 1h.", "cache_ttl")
    on_max_tokens = _choice("warn", "Answers cut at max_tokens: fail, warn or allow.", "on_max_tokens")
    on_refusal = _choice("fail", "Answers in which the model declined: fail, warn or allow.", "on_refusal")

    on_doubt = _choice(
        "ask", "A tool call that may have happened before a kernel was killed: ask, again, or error.", "on_doubt"
    )
    answer_within = _number(Float, 600.0, "Seconds that a person has to answer a question.", "ask_s", "S")

    confirm_agents = _setting(Int(100, min=0, help="Ask before a run of more agents than this. 0: never."))
    confirm_usd = _setting(Float(5.0, min=0.0, help="Ask before a run expected to cost more dollars. 0: never."))
    ledger = _setting(
        Unicode(
            "", help="The file that keeps every answer. :memory: keeps them for this session, off does not keep them."
        )
    )
    reuse_simulated = _setting(
        Bool(
            default_value=False,
            help="Reuse simulated answers of earlier sessions too, labelled simulated: to try out how a run resumes.",
        )
    )

    def policy(self, given: Namespace) -> Policy:
        options: dict[str, Any] = {}
        for option in run_options():
            said = getattr(given, option.name, None)
            options[option.field] = said if said is not None else getattr(self, option.name) or None
        return Policy(**options)


@dataclass(frozen=True, slots=True)
class RunOption:
    """An option of `%agents run` that sets a field of `Policy`."""

    name: str
    field: str
    kind: Callable[[str], Any]
    unit: str
    help: str

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")


@cache
def run_options() -> Sequence[RunOption]:
    found: list[RunOption] = []
    for name, trait in Settings.class_traits(field=bool).items():
        kind = int if isinstance(trait, Int) else float if isinstance(trait, Float) else str
        kind = duration if trait.metadata["unit"] == "S" else kind
        tags, said = trait.metadata, str(trait.help).removesuffix(" 0 is none.")
        found.append(RunOption(name, tags["field"], kind, tags["unit"], said))
    order = [one.name for one in fields(Policy)]
    return sorted(found, key=lambda option: order.index(option.field))


def policy_options(*, without: Container[str] = ()) -> list[Argument]:
    # `--batch` alone switches it on
    alone: Mapping[str, Any] = {"batch": {"nargs": "?", "const": "on"}}
    return [
        argument(one.flag, type=one.kind, metavar=one.unit, help=one.help, **alone.get(one.name, {}))
        for one in run_options()
        if one.name not in without
    ]
