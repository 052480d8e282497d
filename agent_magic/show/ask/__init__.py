"""A page that answers what-ifs by itself: it contains the run and the engine, and loads Python on demand.

The modules are packed, so later releases do not change the answers; texts are replaced by their lengths, so nothing
removed from the page is in them. `widgets/src/ask.js` starts Pyodide, which is not packed, in a worker.
"""
