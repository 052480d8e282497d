"""What runs mean: their numbers and frames, their grades, and the model of their servers."""
