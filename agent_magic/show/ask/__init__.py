"""A page that answers what-ifs by itself: it contains the run and the engine, and loads Python on demand.

**Contents.** The recording, an outline of its plan, prices (`packing.pack_run`), and this package's forecasting modules
(`packing.pack_engine`), so that later releases do not change its answers. Texts are replaced by their lengths, so texts
removed from the page are not in the what-ifs either.

**Not included.** Python itself: Pyodide, from a folder beside the page or an address. The modules need neither pandas
nor pydantic nor a price list. Jinja2 is packed only if the plan has conditions.

**Operation.** `widgets/src/ask.js` starts Pyodide in a worker, so the page stays responsive, and passes the answers of
`answering` to the panel that notebooks use. The page's policy permits only that script, by its hash, and only that one
address.
"""
