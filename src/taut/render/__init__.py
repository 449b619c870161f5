"""Results → what people look at. Renders, never computes."""
