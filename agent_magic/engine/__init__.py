"""Deciding, without I/O: the life of a run."""
