"""One JupyterLab and one Chromium for the tests of a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.lab import Lab, lab

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def shared(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A server on an empty folder, and a page. It ends with the module: while it is there, no other loop can run."""
    with lab(tmp_path_factory.mktemp("lab"), chromium, size=(1300, 1000)) as made:
        yield made


@pytest.fixture
def jupyter(shared: Lab) -> Iterator[Lab]:
    """The shared JupyterLab with nothing open, in its light theme."""
    shared.errors.clear()
    shared.outside.clear()
    yield shared
    if shared.page.evaluate("'jupyterapp' in window"):
        shared.theme("JupyterLab Light")
        shared.save()  # else the page asks whether to leave
    shared.page.goto("about:blank")
    shared.end_kernels()


@pytest.fixture
def book(request: pytest.FixtureRequest) -> str:
    """A file name of the test's own."""
    return f"{Path(request.node.name).name.split('[')[0]}.ipynb"
