"""Who goes next, and when: ready steps, slots, deadlines, retries, barriers."""
