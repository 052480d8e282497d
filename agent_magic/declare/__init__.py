"""What the user says: agents, their prompts, and the plan they make."""
