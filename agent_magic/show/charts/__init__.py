"""Charts of runs and of what-ifs. Each is one list of marks, read three ways: as SVG, as Vega-Lite, as text.

`marks` has what a chart is made of: bars, areas, lines, points and labels on panels with two scales. `chart` composes
panels to a `Chart`; `svg` and `vega` read panels and know no chart. `timeline`, `waterfall`, `limits` and `tradeoff`
each turn a run into panels. A new chart is a module like these, and a method of `Run` that calls it.
"""
