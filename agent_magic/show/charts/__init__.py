"""Charts of runs and what-ifs: panels of marks, rendered as SVG, Vega-Lite and text."""
