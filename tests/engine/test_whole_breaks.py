"""What the simulated runs are worth: each way to break the engine is found by them, soon."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.engine.whole_breaks import BREAKS, broken
from tests.engine.whole_cases import CASES
from tests.engine.whole_draws import anything
from tests.engine.whole_scene import Scene
from tests.engine.whole_world import play

ALL: Any = tuple(HealthCheck)
MOST = 1_000
"""Scenes until it is found; the usual check draws twice as many."""


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_engine_is_found_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each break of the engine breaks a rule in one of the first scenes."""
    broken(monkeypatch, name)

    @seed(1)
    @settings(max_examples=MOST, phases=[Phase.generate], database=None, suppress_health_check=ALL)
    @given(anything)
    def search(scene: Scene) -> None:
        play(scene)

    with pytest.raises(AssertionError):
        try_all(search)


def try_all(search: Callable[[], None]) -> None:
    """Run what once broke, then what is drawn."""
    for case in CASES.values():
        play(case)
    search()
