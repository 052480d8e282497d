"""Rounds, ratios and Markdown tables: what the benchmarks share.

Machines are noisy, so no time stands alone. Every comparison runs in rounds, and each round measures all its cases one
right after the other; what is printed are the least time per case and the median of the rounds' ratios. Times are CPU
seconds of this process (`time.process_time`): what other programs do meanwhile costs them, not us.
"""

from __future__ import annotations

import gc
import platform
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from statistics import median
from typing import TypeVar

T = TypeVar("T")
Case = Callable[[], Awaitable[object]]


async def cpu_s(case: Case, repeat: int = 1) -> float:
    """Return the CPU seconds of awaiting a case, as the mean of `repeat` in a row. Calling it is not measured."""
    prepared = [case() for _ in range(repeat)]
    gc.collect()
    began = time.process_time()
    for work in prepared:
        await work
    return (time.process_time() - began) / repeat


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """Return the CPU seconds of a call, and what it returned."""
    gc.collect()
    began = time.process_time()
    result = work()
    return time.process_time() - began, result


async def in_rounds(cases: Mapping[str, Case], rounds: int, *, repeat: int = 1) -> dict[str, list[float]]:
    """Measure cases in turn, so that a slow minute of the machine slows all of them.

    Args:
        cases: What to await, by name.
        rounds: How often each; every second round goes backwards.
        repeat: How often in a row within a round, for what is too short to be measured once.

    Returns:
        CPU seconds by name, one per round.
    """
    found: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(rounds):
        for name in list(cases) if number % 2 == 0 else reversed(list(cases)):
            found[name].append(await cpu_s(cases[name], repeat))
    return found


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the median of the ratios of each round."""
    return median(mine / its for mine, its in zip(ours, theirs, strict=True))


def print_heading(title: str, note: str) -> None:
    """Print what is measured, where and when."""
    print(f"## {title}\n\n{note}\n")
    print(f"{datetime.now(UTC):%Y-%m-%d}, CPython {platform.python_version()}, anthropic {version('anthropic')}.\n")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a Markdown table; every column but the first is of numbers."""
    print("| " + " | ".join(columns) + " |")
    print("| --- |" + " ---: |" * (len(columns) - 1))
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |", flush=True)
    print()
