"""The meaning of a run: numbers and frames derived from its record.

`metrics` defines the numbers, `frames` the frames. `path` has the critical path and savings, `spread` percentiles and
utilization, `contexts` the cost of shared contexts, `slo` service-level targets, `compare` two runs. `spans` cuts a run
into phases for charts.
"""
