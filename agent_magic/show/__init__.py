"""What people see. Every view is a function of a plan or a run record: neither knows how to draw itself.

* `graph`: the picture of a plan or a run, as SVG.
* `live`: the same picture while the run goes on, as a widget.
* `charts`: timeline, waterfall, limits, trade-off; each as SVG, Vega-Lite and text. `explore` puts controls on them.
* `terminal`: the same run as a table in a terminal.
* `text`, `cards`, `values`, `estimates`, `notes`: words and small HTML.
* `units`, `markup`, `states`, `theme`: how a number, a text, a state and a colour look. Everything above uses these.
"""
