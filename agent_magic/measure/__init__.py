"""Metrics and frames derived from the record of a run.

`metrics` defines the numbers, `frames` the frames; `spans` cuts a run into phases for charts.
"""
