"""Agents as a plain Python script that uses the public API and needs no notebook."""

from __future__ import annotations

import itertools
import shlex
from typing import TYPE_CHECKING, Any

from agent_magic.declare.agent import OPTIONS
from agent_magic.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Mapping

POLICY = {
    "--concurrency": ("concurrency", int),
    "--schedule": ("schedule", str),
    "--max-attempts": ("max_attempts", int),
    "--max-turns": ("max_turns", int),
    "--timeout": ("timeout_s", float),
    "--deadline": ("deadline_s", float),
    "--budget": ("budget_usd", float),
    "--budget-tokens": ("budget_tokens", int),
    "--on-max-tokens": ("on_max_tokens", str),
    "--cache": ("cache", str),
    "--cache-ttl": ("cache_ttl", str),
    "--on-refusal": ("on_refusal", str),
    "--timeout-counts": ("timeout_counts", str),
    "--max-usd-per-min": ("max_usd_per_min", float),
}
"""Options of `%agents run`, and what they are called in a `Policy`."""

SCRIPT = '''"""{title}

Needs: pip install agent-magic, and ANTHROPIC_API_KEY in the environment. Every run buys its answers.
"""

import asyncio
import sys

import agent_magic as am

{values}
AGENTS = [
{agents}
]
{contexts}

async def main() -> int:
    plan = am.Plan(AGENTS, VALUES, name={name!r}{shared})
    run = await plan.run({policy})
    print(run, file=sys.stderr)
    for name, text in run.texts.items():
        print(f"--- {{name}}\\n{{text}}")
    return 0 if run.ok else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
'''


def to_script(plan: Mapping[str, Any], *, title: str, unknown: Mapping[str, int | None], run: str = "") -> str:
    """Write a JSON plan as a script.

    Args:
        plan: The plan; see `agent_magic.declare.plan_json`.
        title: The first line of the script.
        unknown: Names without a value, with the cell that computes each.
        run: The options of `%agents run`.
    """
    agents = "\n".join(_agent(row) for row in plan["agents"])
    return SCRIPT.format(
        title=_plain_line(title),
        values=_values(plan["values"], unknown),
        agents=agents,
        contexts=_contexts(plan.get("contexts") or {}),
        shared=", contexts=CONTEXTS" if plan.get("contexts") else "",
        name=plan["name"],
        policy=_policy(run),
    )


def _plain_line(text: str) -> str:
    """Write a text so that it cannot end the docstring it stands in."""
    return " ".join(text.replace("\\", "/").replace('"', "'").split())


def _values(values: Mapping[str, Any], unknown: Mapping[str, int | None]) -> str:
    rows = [f"    {name!r}: {_text(value)}," for name, value in values.items()]
    for name, cell in unknown.items():
        where = f"cell {cell} of the notebook computes it" if cell else "the notebook does not set it"
        rows.append(f"    # {name!r}: ...,  # {where}: give it here")
    return "\n".join(["VALUES = {", *rows, "}"]) if rows else "VALUES = {}"


def _contexts(texts: Mapping[str, str]) -> str:
    if not texts:
        return ""
    rows = [f"    am.Context({name!r}, {_text(text)})," for name, text in texts.items()]
    return "\n".join(["CONTEXTS = [", *rows, "]", ""])


def _agent(row: Mapping[str, Any]) -> str:
    rows = [f"        {row['name']!r},", f"        {_text(row['prompt'])},"]
    rows += [f"        {option}={_text(row[option])}," for option in (*OPTIONS, "each") if row.get(option) is not None]
    rows += [f"        after={row['after']!r},"] if row.get("after") else []
    return "\n".join(["    am.Agent(", *rows, "    ),"])


def _text(value: Any) -> str:
    """Write a value as Python, texts of several lines as people would."""
    if not isinstance(value, str) or "\n" not in value:
        return repr(value)
    plain = value.isprintable() or all(c.isprintable() or c == "\n" for c in value)
    if plain and '"""' not in value and "\\" not in value and not value.endswith('"'):
        return f'"""{value}"""'
    return repr(value)


def _policy(run: str) -> str:
    """Write the options of a run as a `Policy`; those it does not know are left out.

    Raises:
        PlanError: The value of one cannot be read.
    """
    try:
        words = [part for word in shlex.split(run) for part in (word.split("=", 1) if word[:2] == "--" else [word])]
    except ValueError:
        return ""
    given: list[str] = []
    for word, value in itertools.pairwise(words):
        if word in POLICY:
            name, kind = POLICY[word]
            try:
                given.append(f"{name}={kind(value)!r}")
            except ValueError:
                raise PlanError(f"{word} {value!r} of %agents run cannot be read. Give a number.") from None
    return f"am.Policy({', '.join(given)})" if given else ""
