"""Plans to begin with, as `%%agents` cells: `%agents preset review` puts one below, to be changed and run."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

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
