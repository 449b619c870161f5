"""``taut brief``: inputs that are named → everything that a briefing shows."""
