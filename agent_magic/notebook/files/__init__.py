"""Notebooks as files: read, written, shared and executed again.

| module | what it does |
|---|---|
| `cells` | reads the agents that the cells of a notebook declare, and writes a plan as a notebook |
| `scripts` | writes a plan as a Python script that needs no notebook, and reads such a script back |
| `sharing` | finds the notebook that runs, chooses the runs its readers need, shows the provenance stamp |
| `rerun` | executes a shared notebook in a clean process and compares its outputs with the saved ones |

Nothing here runs code of the file it reads, except `rerun`, which does so in a kernel without a key and without a
network. The command line (`agent-magic export`, `import`, `replay`) and `%agents share` are thin callers.
"""
