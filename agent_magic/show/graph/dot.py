# The package ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportOptionalContextManager=false

"""A plan as a `graphviz.Digraph`, to render, change or save."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.record.display import single_line

if TYPE_CHECKING:
    from graphviz import Digraph

    from agent_magic.declare.plan import Plan


def digraph(plan: Plan) -> Digraph:
    """Draw a rank per layer; order-only edges are dashed, tasks are octagons."""
    from graphviz import Digraph

    look = {"shape": "box", "style": "rounded", "fontname": "Helvetica"}
    graph = Digraph(_text(plan.name), graph_attr={"rankdir": "LR"}, node_attr=look)
    for layer in plan.dag.layers():
        with graph.subgraph() as rank:
            rank.attr(rank="same")
            for number in layer:
                shape = "octagon" if plan.agents[number].is_task else None
                rank.node(f"n{number}", label=_text(plan.agents[number].name), shape=shape)
    for child, before in enumerate(plan.dag.parents):
        for parent in before:
            is_order = plan.agents[parent].name not in plan.inputs[child]
            graph.edge(f"n{parent}", f"n{child}", style="dashed" if is_order else None)
    return graph


def _text(name: str) -> str:
    r"""Escape a name for Graphviz: no HTML, no escapes such as `\N`, no entities."""
    from graphviz import escape

    return escape(single_line(name).replace("&", "&amp;"))
