"""A finished run → what a picture of it shows: computed here, drawn by ``render`` and in the browser."""
