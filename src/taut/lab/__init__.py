"""Real jobs with real faults: ground truth, and the score of what ``taut analyze`` made of them."""
