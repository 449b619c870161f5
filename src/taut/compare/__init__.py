"""Runs → what changed between them: trends, two runs side by side, non-determinism of repeats, restarts."""
