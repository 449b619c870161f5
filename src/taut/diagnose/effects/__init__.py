"""Effects: places that are slower than their reference, and when; one score for every place and shape of time."""
