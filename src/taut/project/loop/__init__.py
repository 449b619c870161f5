"""Control loops over one shared system, simulated: what each does alone is sensible, what they do together is the question."""
