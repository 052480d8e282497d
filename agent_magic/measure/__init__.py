"""The numbers and frames of a run: `metrics` has the numbers, `frames` the frames, `spans` the phases for charts."""
