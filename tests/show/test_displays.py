"""How widgets are displayed, by the published behaviour of front ends that are not run here."""

from __future__ import annotations

import asyncio
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from agent_magic.api import Run
from agent_magic.show import Explorer, Panel, make_live_view
from agent_magic.show.displays import in_output, view_of
from tests.show.story import business_run

VIEW = "application/vnd.jupyter.widget-view+json"
MANAGER = {VIEW: {"colab": {"custom_widget_manager": {"url": "https://example.invalid/manager.js"}}}}


@pytest.fixture
def colab(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stand in for `google.colab.output`, as colabtools and `anywidget` publish it: who turned its manager on."""
    asked: list[str] = []
    output: Any = ModuleType("google.colab.output")
    output.enable_custom_widget_manager = lambda: asked.append("on")
    output._widgets = SimpleNamespace(_installed_url="https://example.invalid/manager.js")
    monkeypatch.setitem(sys.modules, "google.colab.output", output)
    util: Any = pytest.importorskip("anywidget._util")
    util.enable_custom_widget_manager_once.cache_clear()
    monkeypatch.setattr(util, "enable_custom_widget_manager_once", output.enable_custom_widget_manager)
    return asked


@pytest.fixture
def displayed(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Keep what is displayed, with its metadata."""
    found: list[dict[str, Any]] = []

    def display(*shown: Any, **more: Any) -> None:
        found.append({"data": shown[0], **more})

    monkeypatch.setattr("IPython.display.display", display)
    monkeypatch.setattr("IPython.core.display_functions.display", display)
    return found


def test_colab_is_told_of_the_manager_that_draws_the_live_view(
    colab: list[str], displayed: list[dict[str, Any]]
) -> None:
    """Without that in the metadata Colab draws no widget but its own."""

    async def show() -> None:
        view = make_live_view(business_run(4.0), lambda *_: None)
        view.show()
        view.close()

    asyncio.run(show())
    assert colab
    assert VIEW in displayed[0]["data"]
    assert MANAGER == displayed[0]["metadata"]


def test_colab_is_told_of_the_manager_that_draws_the_controls(
    colab: list[str], displayed: list[dict[str, Any]]
) -> None:
    """The same of `run.explore()`, whose saved picture stands beside the widget."""
    Panel(Explorer(Run(business_run()).forecaster())).show()
    assert colab
    assert {VIEW, "image/svg+xml", "text/plain"} == set(displayed[0]["data"])
    assert MANAGER == displayed[0]["metadata"]


def test_a_widget_without_data_shows_itself() -> None:
    """As in ipywidgets 7, which hosted notebooks may have."""
    assert (None, {}) == view_of(object())
    assert ({"a": "b"}, {}) == view_of(SimpleNamespace(_repr_mimebundle_=lambda: {"a": "b"}))


@pytest.fixture
def in_a_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell is run."""
    shell = SimpleNamespace(get_parent=lambda: {"header": {"msg_type": "execute_request", "msg_id": "1"}})
    monkeypatch.setattr("IPython.core.getipython.get_ipython", lambda: shell)


@pytest.mark.usefixtures("in_a_cell")
def test_no_widget_is_open_while_they_are_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread imports ipywidgets early: a cell that asks meanwhile finds a module without its classes."""
    monkeypatch.setitem(sys.modules, "ipywidgets.widgets.widget", ModuleType("ipywidgets.widgets.widget"))
    assert not in_output()


@pytest.mark.usefixtures("in_a_cell")
def test_the_first_widget_of_a_kernel_brings_no_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing deprecated is asked while there is none, which would be an error under the user's filter."""
    models = pytest.importorskip("ipywidgets.widgets.widget")
    monkeypatch.setattr(models, "_instances", {}, raising=False)
    assert not in_output()
