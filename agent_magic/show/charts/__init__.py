"""Charts of runs and what-ifs. A chart is one list of marks, which becomes SVG, Vega-Lite and text.

`marks` defines marks (bars, areas, lines, points, labels) on panels with two scales. `chart` makes a `Chart` of panels;
`svg` and `vega` draw panels. `timeline`, `waterfall`, `limits` and `tradeoff` turn a run into panels. To add a chart,
write a module like these and a method of `Run` that calls it.
"""
