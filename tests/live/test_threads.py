"""Threads for functions that block."""

from __future__ import annotations

import threading

import pytest

from agent_magic.live import functions as threads


def call_in_thread(number: int) -> tuple[int, threading.Thread]:
    """Make one call and wait for it; return what it was given and the thread that made it."""
    done = threading.Event()
    found: list[tuple[int, threading.Thread]] = []

    def work() -> None:
        found.append((number, threading.current_thread()))
        done.set()

    threads.in_thread(work, f"call {number}")
    assert done.wait(30)
    return found[0]


def test_a_thread_that_waits_makes_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls one after the other take one thread, if it waits again when the next one comes."""
    monkeypatch.setattr(threads, "_IDLE", [])
    _, first = call_in_thread(1)
    while not threads._IDLE:
        pass
    assert call_in_thread(2) == (2, first)


def test_calls_side_by_side_have_a_thread_each() -> None:
    """A call never waits for another one."""
    together = threading.Barrier(20)
    over = [threading.Event() for _ in range(20)]

    def meet(one: threading.Event) -> None:
        together.wait(30)
        one.set()

    for one in over:
        threads.in_thread(lambda one=one: meet(one), "meet")
    assert all(one.wait(30) for one in over)


def test_a_call_that_meets_the_end_of_a_thread_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that give up at once lose no call."""
    monkeypatch.setattr(threads, "IDLE_S", 0.0002)
    assert [call_in_thread(number)[0] for number in range(1_000)] == list(range(1_000))


def test_a_thread_without_calls_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left after a while."""
    monkeypatch.setattr(threads, "IDLE_S", 0.001)
    _, thread = call_in_thread(1)
    thread.join(30)
    assert not thread.is_alive()
