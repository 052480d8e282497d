"""Kernels and terminals for the tests of this folder."""

from __future__ import annotations

import pytest

from tests.kernels import Kernel
from tests.terminal import Terminal


@pytest.fixture(scope="module")
def kernel():
    """A kernel that the tests of a module share, with the toy magic in it."""
    with Kernel() as started:
        assert "ok" == started.do("%load_ext toy_magic\nimport asyncio, signal, toy_magic").status
        yield started


@pytest.fixture
def fresh_kernel():
    """A kernel of one test's own."""
    with Kernel() as started:
        yield started


@pytest.fixture(scope="module")
def terminal():
    """A terminal IPython that the tests of a module share, with the toy magic in it."""
    with Terminal() as started:
        started.do("%load_ext toy_magic")
        started.do("import asyncio, signal, toy_magic")
        yield started
