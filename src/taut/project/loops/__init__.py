"""Control loops over one shared system, simulated."""
