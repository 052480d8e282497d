"""A page that answers what-ifs by itself: it contains the run and the engine, and loads Python on demand.

**Contents.** The recording, an outline of its plan, prices (`packing.pack_run`), and the forecasting modules of this
package (`packing.pack_engine`): the page answers with the engine that wrote it, even after later releases. Texts are
replaced by their lengths, so texts removed from the page are not in the what-ifs either.

**Not included.** Python itself: Pyodide, from a folder beside the page or an address. The packed modules need neither
pandas nor pydantic nor a price list; Jinja2, for conditions of a plan, is packed if needed.

**Operation.** `widgets/src/ask.js` starts Pyodide in a worker, so that the page stays responsive, and passes the
answers of `answering` to the same panel as in a notebook. The page's policy permits only that script, by its hash, and
loading from that one place.
"""
