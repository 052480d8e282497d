"""The shareable file of a run."""
