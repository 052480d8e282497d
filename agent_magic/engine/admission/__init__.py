"""Admission of requests: budget, breakers, leaders of the prompt cache, the key, shared slots, rate limits.

All are asked before anything is taken (`gate.py`), the pacer last, since its grants count.
"""
