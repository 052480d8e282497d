"""A page that answers what-ifs by itself: the run and the engine are in it, and Python comes when it is asked for.

**What is in it.** The recording, an outline of its plan, prices (`packing.pack_run`), and the modules of this package
that forecast (`packing.pack_engine`): the page answers with the engine that wrote it, whatever is released later. Texts
are there by their length only, so what is left out of the page is not in what answers either.

**What is not.** Python itself: Pyodide, from a folder beside the page or by its address. Its core is enough: nothing is
installed, since the modules that are packed need neither pandas nor pydantic nor a list of prices, and Jinja2, which
conditions of a plan need, is packed with them where there are any.

**How it runs.** `widgets/src/ask.js` starts Pyodide in a worker, so that the page stays alive meanwhile, and hands the
answers of `answering` to the panel that a notebook shows. The page's policy lets nothing run but that script, by its
hash, and what it loads from that one place.
"""
