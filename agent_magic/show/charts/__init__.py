"""Charts of runs and what-ifs. A chart is a list of marks, rendered as SVG, Vega-Lite and text.

To add a chart, write a module that turns a run into panels, and a method of `Run` that calls it.
"""
