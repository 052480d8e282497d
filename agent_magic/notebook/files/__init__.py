"""Notebooks as files: read, written, shared and executed again.

Only `sharing.rerun` runs code of the files, in a kernel without a key and a network.
"""
