"""Doing, on the event loop."""
