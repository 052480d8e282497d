"""Anthropic's API: requests, streams, errors, limits."""
