"""Metrics and frames derived from the record of a run.

`metrics` defines the numbers, `frames` the frames. `path` has the critical path and savings, `spread` percentiles and
utilization, `contexts` the cost of shared contexts, `slo` service-level targets, `compare` two runs. `spans` cuts a run
into phases for charts.
"""
