"""Plans to begin with: presets, and plans for a goal, by an agent that is asked for one.

`%agents preset review` puts a preset below as a `%%agents` cell, to be changed and run.

The coordinator is an agent in a separate plan. An invalid plan is an invalid typed answer, so it is asked once more.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from agent_magic.declare.agent import ROLES, Agent
from agent_magic.declare.answers.reading import plain
from agent_magic.declare.answers.returns import look_up
from agent_magic.declare.plan import Plan
from agent_magic.declare.plan_json import plan_from_dict
from agent_magic.declare.template import Template
from agent_magic.declare.validation import check_integer, check_text, check_word
from agent_magic.errors import DeclarationError, PlanError

if TYPE_CHECKING:
    from collections.abc import Mapping

P = TypeVar("P", bound="Plan")
COORDINATOR: Final = "coordinator"
MAX_TOKENS: Final = 8192
"""A plan of twenty agents with full prompts takes about five thousand."""
TEXT: Final = frozenset({"", "text", "str", "string"})
STRATEGIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "free": "",
        "file": "Split the work by file: one agent for each file, none waiting for another, and one that joins them.",
        "feature": "Split the work by feature: one agent for each feature, and one check that waits for all.",
        "layer": "Split the work by layer, such as api, ui, tests and docs, and let one agent integrate them.",
        "phase": "Split the work by part and phase (analyse, implement, validate): a part waits for itself only.",
        "module": "Split the work by module: an agent waits for the agents of the modules that its module imports.",
    }
)
SYSTEM: Final = """You are a coordinator. You turn a goal into a plan of agents that work concurrently.

Maximize concurrency: an agent that can start at once has an empty depends_on.
Keep dependencies minimal: an agent depends on another only if its prompt needs that agent's answer. Order alone is no \
reason. Do not add an agent that only passes answers on.
Give every agent a task that one request can do, neither a whole project nor a single line. Where answers have to \
become one, let the last agent join them.

An agent's name is one word of letters, digits and underscores. Its prompt says everything it has to know, for it sees \
nothing else. The answer of an agent in depends_on stands in the prompt as {{ name }}; use no other template language.
returns is "text", or a type where the next step needs a value: int, float, bool, list[str], Literal["yes", "no"]."""
_AGENT: Final = {
    "name": {"type": "string", "description": "One word of letters, digits and underscores."},
    "role": {"type": "string"},
    "prompt": {"type": "string", "description": "What the agent is asked, with {{ name }} for each answer it needs."},
    "depends_on": {
        "type": "array",
        "items": {"type": "string"},
        "description": "The names of the agents whose answers it needs.",
    },
    "returns": {"type": "string", "description": '"text", or a type such as list[str].'},
}


def schema() -> dict[str, Any]:
    fields = {**_AGENT, "role": {"type": "string", "enum": [*ROLES]}}
    agents = {"type": "array", "items": _object(fields)}
    return {"title": "Plan", **_object({"description": {"type": "string"}, "agents": agents})}


def _object(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {**fields}, "required": [*fields], "additionalProperties": False}


def coordinator(
    goal: str,
    values: Mapping[str, Any],
    kind: type[P],
    *,
    agents: int | None = None,
    strategy: str = "free",
    model: str | None = None,
    max_tokens: int | None = None,
) -> P:
    """Return the plan of one agent that is asked for a plan."""
    check_text("goal", goal)
    if not goal.strip():
        raise DeclarationError("The goal is empty.", hint="Say below the %%plan line what is to be done.")
    if agents is not None:
        check_integer("agents", agents)
    check_word("strategy", strategy, STRATEGIES)
    names = [name for name in Template.parse(goal, agent=COORDINATOR).names if name in values]
    told = [
        f"Use at most {agents} agents." if agents else "",
        STRATEGIES[strategy],
        f"Prompts may take these names too, whose values are the user's: {', '.join(names)}." if names else "",
    ]
    held = {name: values[name] for name in names}
    asked = Agent(
        COORDINATOR,
        f"Goal: {goal.strip()}",
        system="\n\n".join([SYSTEM, *filter(None, told)]),
        model=model,
        max_tokens=max_tokens or MAX_TOKENS,
        returns=schema(),
        check=partial(_wrong_with, values=held, most=agents),
    )
    return kind((asked,), held, name="plan", description="A coordinator that is asked for a plan.")


def _wrong_with(answer: object, values: Mapping[str, Any], most: int | None) -> str | None:
    try:
        read_plan(answer, Plan, values, most=most)
    except (PlanError, DeclarationError) as error:
        return str(error)
    return None


def read_plan(
    answer: object, kind: type[P], values: Mapping[str, Any], *, name: str = "agents", most: int | None = None
) -> P:
    """Return the plan in an answer; a `PlanError` names the position of the error."""
    data = plain(answer)
    rows: list[dict[str, Any]] = data["agents"]
    if most is not None and len(rows) > most:
        raise PlanError(f"The plan has {len(rows)} agents, and at most {most} are wanted.")
    untyped = [{**{key: row[key] for key in _AGENT if key != "returns"}} for row in rows]
    found = plan_from_dict({**data, "agents": untyped, "values": dict(values), "name": name}, kind)
    agents = [_typed(agent, row["returns"]) for agent, row in zip(found.agents, rows, strict=True)]
    return kind(agents, values, name=name, description=found.description)


def _typed(agent: Any, returns: str) -> Any:
    """Give an agent its answer type; its prompt may use no expressions."""
    if not agent.template.simple:
        raise PlanError(f"The prompt of {agent.name!r} may use {{{{ name }}}} only, and no other template language.")
    written = returns.strip()
    return agent if written.lower() in TEXT else replace(agent, **look_up(agent.name, written, None))


REVIEW = """%%agents
Four reviewers look at one text at once, and a fifth joins what they say. Set `code`.

## correctness (critic) --context code
Review the code above for errors. Name for each the line, what happens and the fix.

## design (analyzer) --context code
Review the structure of the code above: what is hard to change, and the smallest fix.

## security (critic) --context code
Review the code above for weaknesses that somebody could use. Say how, and how bad.

## readers (writer) --context code
Read the code above as a new colleague, as the one on call at night, as a user. What does each miss?

## review (synthesizer)
Join these reviews into one list, the most important first, each point once:

{{ correctness }}

{{ design }}

{{ security }}

{{ readers }}
"""
RESEARCH = """%%agents
Three candidates are looked at at once, compared, and summed up. Set `question`.

## python (researcher)
{{ question }} What speaks for Python, and what against it?

## rust (researcher)
{{ question }} What speaks for Rust, and what against it?

## go (researcher)
{{ question }} What speaks for Go, and what against it?

## comparison (analyzer)
Compare the three point by point, in a table:

{{ python }}

{{ rust }}

{{ go }}

## answer (synthesizer)
Answer in one paragraph: {{ question }}

{{ comparison }}
"""
BUSINESS_PLAN = """%%agents
A business plan: four begin at once, two use the research, two criticize, one joins. Set `idea`.

## market (researcher)
Who would pay for this, how many are they, and what do they use today? {{ idea }}

## rivals (researcher)
Who else offers this, at what price, and where are they weak? {{ idea }}

## product (planner)
Plan the product in three steps, each of use by itself: {{ idea }}

## money (planner)
Plan costs and income of the first two years, with what you assume: {{ idea }}

## opportunity (analyzer)
Where is the opening between this market and these rivals?

{{ market }}

{{ rivals }}

## pitch (writer)
Write one page for somebody who might invest in this: {{ idea }}

{{ market }}

{{ rivals }}

## doubts_on_product (critic)
What would make this product fail?

{{ product }}

{{ opportunity }}

## doubts_on_money (critic)
Which of these numbers is the least sure?

{{ money }}

{{ opportunity }}

## business_plan (synthesizer)
Write the business plan, the doubts answered:

{{ pitch }}

{{ doubts_on_product }}

{{ doubts_on_money }}
"""
_AREAS = ("frontend", "backend", "database", "security", "operations", "cost")
ARCHITECTURE = "\n".join(
    [
        "%%agents\nAn architecture: six areas are researched and planned at once, then brought in line.",
        "Set `system_to_build`.\n",
        *(
            f"## {area} (researcher)\nWhat must be decided about {area} for this? {{{{ system_to_build }}}}\n\n"
            f"## {area}_plan ({'analyzer' if place % 2 else 'planner'})\nDecide, with a reason for each:\n\n"
            f"{{{{ {area} }}}}\n"
            for place, area in enumerate(_AREAS)
        ),
        "## outline (coordinator)\nBring these into one architecture, contradictions solved:\n",
        *(f"{{{{ {area}_plan }}}}\n" for area in _AREAS),
        "## objections (critic)\nWhat breaks first as this grows?\n\n{{ outline }}\n",
        "## architecture (synthesizer)\nWrite the architecture, the objections answered:\n",
        "{{ outline }}\n\n{{ objections }}\n",
    ]
)
PRP = """%%agents
A product requirements prompt: what a coding agent must know of a feature. Set `feature`.

## background (researcher)
What is known about building this well, with the documentation to read? {{ feature }}

## patterns (researcher)
Which patterns and pitfalls of similar features should be known? {{ feature }}

## sources (planner)
List what a developer must have at hand to build this, the most useful first: {{ feature }}

## links (critic)
Which of these references may be wrong, old or invented? Say how to check each.

{{ background }}

{{ sources }}

## examples (writer)
Write the shortest examples that show these patterns:

{{ patterns }}

## prp (synthesizer)
Write the requirements: goal, context, steps, and how each is checked. {{ feature }}

{{ links }}

{{ examples }}
"""
PRESETS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "review": REVIEW,
        "research": RESEARCH,
        "business_plan": BUSINESS_PLAN,
        "architecture": ARCHITECTURE,
        "prp": PRP,
    }
)
