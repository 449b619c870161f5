"""The sections of a briefing, in their order: each file has one function from the briefing to a section, or none."""
