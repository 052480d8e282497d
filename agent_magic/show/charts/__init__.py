"""Charts of runs and of what-ifs: each a picture, an interactive twin and a text of the same numbers."""
