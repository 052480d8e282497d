"""Notebooks as files: read, written, shared and executed again.

| module | purpose |
|---|---|
| `cells` | reads the agents declared in a notebook's cells, and writes a plan as a notebook |
| `scripts` | writes a plan as a Python script that needs no notebook, and reads such a script back |
| `sharing` | finds the running notebook, chooses the runs its readers need, shows the provenance stamp |
| `rerun` | executes a shared notebook in a clean process and compares its outputs with the saved ones |

Only `rerun` runs code of the files, in a kernel without a key and a network.
"""
