"""What people see. Every view is a function of a plan or a run record, which do not draw themselves.

* `graph`: the picture of a plan or a run, as SVG.
* `live`: the same picture while the run goes on, as a widget; its docstring is the theory of operation.
* `charts`: timeline, waterfall, limits, trade-off; each as SVG, Vega-Lite and text. `explore` adds controls.
* `terminal`: the same run as a table in a terminal.
* `text`, `cards`, `values`, `estimates`, `notes`: text and small HTML.
* `units`, `markup`, `states`, `theme`: numbers, escaping, states and colours, used by everything above.
"""
