"""What a plan will cost and take, before it runs."""
