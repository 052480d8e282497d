"""Declarations: agents, prompts, and plans."""
