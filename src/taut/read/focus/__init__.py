"""Bills in the FinOps Open Cost and Usage Specification (FOCUS), versions 1.0 to 1.4."""
