"""One JupyterLab for all tests of a process, and one Chromium for the tests of a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.lab import Lab, page_of, serving

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a JupyterLab, and its folder."""
    root = tmp_path_factory.mktemp("lab")
    with serving(root) as url:
        yield url, root


@pytest.fixture(scope="module")
def shared(chromium: str, served: tuple[str, Path]) -> Iterator[Lab]:
    """A page. It ends with the module: while it is there, no other loop can run."""
    with page_of(*served, chromium, size=(1300, 1000)) as made:
        yield made


@pytest.fixture
def jupyter(shared: Lab) -> Iterator[Lab]:
    """The shared JupyterLab with nothing open, in its light theme."""
    shared.errors.clear()
    shared.outside.clear()
    yield shared
    if shared.page.evaluate("'jupyterapp' in window"):
        shared.theme("JupyterLab Light")
    shared.close_all()


@pytest.fixture
def book(request: pytest.FixtureRequest) -> str:
    """A file name of the test's own."""
    return f"{Path(request.node.name).name.split('[')[0]}.ipynb"
