"""Graph + changes → Timeline: replay, what-if, blame."""
