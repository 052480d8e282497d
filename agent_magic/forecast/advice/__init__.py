"""Advice by published rules."""
