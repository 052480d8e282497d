"""What to change, by published rules."""
