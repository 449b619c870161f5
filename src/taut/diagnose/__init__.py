"""Graph + Timeline → findings: one file per failure mode."""
