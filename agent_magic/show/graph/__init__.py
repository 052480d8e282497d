"""The static picture of a plan or a run: `layout` places, `scene` holds the content, `svg` draws.

`digraph` makes a `graphviz.Digraph` of a plan, to render, change or save.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from agent_magic.record.display import single_line
from agent_magic.show.graph.layout import fold, lay_out
from agent_magic.show.graph.scene import is_large, scene_of
from agent_magic.show.graph.svg import draw
from agent_magic.show.text import plan_text, run_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphviz import Digraph  # pyright: ignore[reportMissingTypeStubs]

    from agent_magic.declare.plan import Plan
    from agent_magic.record.results import RunRecord
    from agent_magic.show.graph.layout import Layout
    from agent_magic.show.graph.scene import Estimates
    from agent_magic.show.theme import Theme


def static_bundle(
    plan: Plan,
    record: RunRecord | None = None,
    *,
    theme: Theme = "auto",
    timings: bool = True,
    layout: Layout | None = None,
) -> dict[str, str]:
    # No `text/html`: JupyterLab, VS Code, nbconvert and GitHub all show the SVG. They would prefer HTML, and some
    # of them would drop a picture inside it.
    text = plan_text(plan) if record is None else run_text(record, timings=timings)
    return {"image/svg+xml": picture(plan, record, theme=theme, layout=layout), "text/plain": text}


def picture(
    plan: Plan,
    record: RunRecord | None = None,
    *,
    now_s: float | None = None,
    estimates: Estimates | None = None,
    path: Sequence[str] = (),
    theme: Theme = "auto",
    layout: Layout | None = None,
) -> str:
    """Return the picture of a plan or run; `path` is a plan's expected critical path."""
    scene = scene_of(plan, record, now_s=now_s, estimates=estimates, path=path)
    return draw(scene, plan, cards_layout(plan) if layout is None else layout, theme=theme)


def cards_layout(plan: Plan) -> Layout | None:
    """Return `None` if the agents are drawn as groups."""
    if is_large(plan):
        return None
    return fold(plan.dag) or lay_out(plan)


def digraph(plan: Plan) -> Digraph:
    """Draw a rank per layer; order-only edges are dashed, tasks are octagons."""
    graphviz: Any = importlib.import_module("graphviz")  # it ships no types
    # No HTML, no escapes such as `\N`, no entities.
    title, *labels = (
        graphviz.escape(single_line(name).replace("&", "&amp;"))
        for name in (plan.name, *(one.name for one in plan.agents))
    )
    look = {"shape": "box", "style": "rounded", "fontname": "Helvetica"}
    graph = graphviz.Digraph(title, graph_attr={"rankdir": "LR"}, node_attr=look)
    for layer in plan.dag.layers():
        with graph.subgraph() as rank:
            rank.attr(rank="same")
            for number in layer:
                rank.node(f"n{number}", label=labels[number], shape="octagon" if plan.agents[number].is_task else None)
    for child, before in enumerate(plan.dag.parents):
        for parent in before:
            is_order = plan.agents[parent].name not in plan.inputs[child]
            graph.edge(f"n{parent}", f"n{child}", style="dashed" if is_order else None)
    return graph
