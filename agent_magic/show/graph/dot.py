"""A plan as DOT text, to keep or to open in another program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.show.markup import single_line

if TYPE_CHECKING:
    from agent_magic.declare.plan import Plan


def dot_source(plan: Plan) -> str:
    """Write a plan as a DOT digraph: left to right, a rank per layer, `after` edges dashed.

    Agents are `n0`, `n1`, ... in declared order and have their names as labels. A label is always a quoted string:
    it can be neither HTML nor a port nor an escape, whatever the name.
    """
    lines = [
        f"digraph {_quoted(plan.name)} {{",
        "  rankdir=LR;",
        '  node [shape=box, style=rounded, fontname="Helvetica"];',
    ]
    lines += [f"  n{number} [label={_quoted(agent.name)}];" for number, agent in enumerate(plan.agents)]
    for layer in plan.dag.layers():
        lines.append("  { rank=same; " + " ".join(f"n{number};" for number in layer) + " }")
    for child, before in enumerate(plan.dag.parents):
        for parent in before:
            after = plan.agents[parent].name not in plan.inputs[child]
            lines.append(f"  n{parent} -> n{child}" + (" [style=dashed];" if after else ";"))
    return "\n".join([*lines, "}", ""])


def _quoted(text: str) -> str:
    r"""Quote a string for DOT.

    Inside quotes only `"` ends a string, and a backslash begins an escape such as `\N`, so both get a backslash.
    An ampersand would begin an entity. Source: https://graphviz.org/doc/info/lang.html.
    """
    safe = single_line(text).replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")
    return f'"{safe}"'
