"""Whether there is room for a request: the budget, breakers, the prompt cache's leaders, the key, shared slots.

Everybody is asked before anything is taken (`gate.py`), the pacer last, since what it grants is counted.
"""
