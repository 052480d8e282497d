"""Deciding, without input or output."""
