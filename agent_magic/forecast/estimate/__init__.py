"""The cost and time of a plan before it runs."""
