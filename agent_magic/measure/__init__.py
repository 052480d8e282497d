"""What a run means."""
