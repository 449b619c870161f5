"""Job logs: attempts, their ends, and their progress."""
