"""Plans as answers, as a coordinator would write them, from words of the goal."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent_magic.simulator.json_types import Json, as_list, as_object

if TYPE_CHECKING:
    from random import Random

    from agent_magic.simulator.topic import Subject

FEW, USUAL = 3, 7
"""Minimum number of agents of a plan with a join, and the default maximum."""
_GOAL = re.compile(r"(?:.*?\bgoal:)?(.*?)(?:\bThis answer cannot be used\b|\Z)", re.IGNORECASE | re.DOTALL)
_MOST = re.compile(r"\bat most (\d+) agents\b", re.IGNORECASE)
_ITEM = r"[\w'./+#-]+(?: [\w'./+#-]+){0,3}"
_LISTED = re.compile(rf"((?:{_ITEM}, )+(?:and |or )?{_ITEM})")
_REST = re.compile(r" (?:for|in|to|by|with|from)\b.*")
"""The text after the last part of a list, as in `Rust and Go for a server`."""
_PAIR = re.compile(r"\b([A-Z][\w+#]*) (?:and|or|versus|vs\.?|with) ([A-Z][\w+#]*)")
_ENDINGS = (
    (
        r"\b(?:business|marketing|launch|project|go-to-market)\b",
        "planner",
        "plan",
        "Plan the steps, with a check for each.",
    ),
    (r"\b(?:write|draft|report|article|post|letter|guide|docs?)\b", "writer", "draft", "Write what was asked."),
    (r"\b(?:compare|which|choose|versus|vs)\b", "analyzer", "comparison", "Compare them point by point."),
)
_TAKEN = frozenset("result risks and or not in is if for set filter call block context include import with".split())
"""Names of the joins, and words of the template language."""
_LEADS = re.compile(
    r"^(?:compare|write|review|report|analy[sz]e|research|and|or|of|on|for|about|the|a|an|with|between|by) ",
    re.IGNORECASE,
)


def is_plan(schema: Json) -> bool:
    """Return True if a schema asks for a plan: agents with prompts and dependencies."""
    agents = as_object((as_object(schema.get("properties")) or {}).get("agents")) or {}
    fields = as_object((as_object(agents.get("items")) or {}).get("properties")) or {}
    return {"name", "prompt", "depends_on"} <= fields.keys()


def write_plan(schema: Json, subject: Subject, system: str, rng: Random) -> Json:
    """Return a plan: concurrent agents for the parts of the goal, then their join, and a critic if there is room.

    Args:
        schema: The schema of the answer; roles missing from it are omitted.
        subject: The subject of the prompt; its instruction is the goal.
        system: The coordinator's system prompt, with the maximum number of agents.
        rng: Seeded with the request.
    """
    said = _GOAL.match(subject.instruction)
    goal = " ".join(said[1].split() if said else ()) or subject.topic
    told = _MOST.search(system)
    most = int(told[1]) if told else USUAL
    parts = _parts(goal, subject, rng)[: max(1, most - 1)]
    if most == 1:
        parts = []
    names = _names(parts)
    short = goal if len(goal) <= 160 else f"{goal[:160].rsplit(' ', 1)[0]} …"
    rows = [
        _row(name, "researcher", f"Goal: {short}\n\nGather what matters on {part}. Five points, how sure of each.")
        for name, part in zip(names, parts, strict=True)
    ]
    answers = "\n\n".join(f"{part}:\n{{{{ {name} }}}}" for name, part in zip(names, parts, strict=True))
    role, name, what = next((row[1:] for row in _ENDINGS if re.search(row[0], goal, re.IGNORECASE)), _ENDINGS[-1][1:])
    room = most - len(rows)
    if room >= FEW - 1:
        rows.append(_row(name, role, f"Goal: {short}\n\n{what}\n\n{answers}", names))
        if room >= FEW:
            rows.append(
                _row("risks", "critic", f"Name the three weakest points for this goal: {short}\n\n{answers}", names)
            )
        joined = [row for row in rows if row["name"] in (name, "risks")]
        names = [str(row["name"]) for row in joined]
        answers = "\n\n".join(f"{{{{ {one} }}}}" for one in names)
    ask = f"Goal: {short}\n\nBring this together into one answer."
    rows.append(_row("result", "synthesizer", f"{ask}\n\n{answers}" if answers else ask, names))
    known = _roles(schema)
    return {
        "description": short,
        "agents": [{**row, "role": row["role"] if not known or row["role"] in known else known[0]} for row in rows],
    }


def _row(name: str, role: str, prompt: str, parents: list[str] | None = None) -> dict[str, object]:
    return {"name": name, "role": role, "prompt": prompt, "depends_on": list(parents or ()), "returns": "text"}


def _parts(goal: str, subject: Subject, rng: Random) -> list[str]:
    """Return the parts that the goal lists, else its key phrases."""
    if found := _LISTED.search(goal):
        words = re.split(r",\s*(?:and |or )?|\s+(?:and|or)\s+", found[1])
        words = [_REST.sub("", _bare(word)) for word in words]
        return list(dict.fromkeys(word for word in words if word))
    if pair := _PAIR.search(goal):
        return [pair[1], pair[2]]
    terms = [one for one in (*subject.terms, subject.topic) if one.lower() != "goal"]
    few = terms[: rng.randint(3, 4)]
    return few if len(few) > 1 else [f"{subject.topic}: {side}" for side in ("benefits", "risks", "cost")]


def _bare(words: str) -> str:
    """Strip a leading article or the verb of the goal."""
    words = words.strip(" .")
    while _LEADS.match(words):
        words = _LEADS.sub("", words)
    return words


def _names(parts: list[str]) -> list[str]:
    """Return a unique one-word name for each part."""
    found: list[str] = []
    for part in parts:
        name = re.sub(r"\W+", "_", part.lower()).strip("_")[:24] or "part"
        name = name if name.isidentifier() else f"part_{name}"
        taken = {*found, *_TAKEN, *(row[2] for row in _ENDINGS)}
        found.append(name if name not in taken else f"on_{name}_{len(found)}")
    return found


def _roles(schema: Json) -> list[object]:
    agents = as_object((as_object(schema.get("properties")) or {}).get("agents")) or {}
    fields = as_object((as_object(agents.get("items")) or {}).get("properties")) or {}
    return [*(as_list((as_object(fields.get("role")) or {}).get("enum")) or [])]
