"""Training: replicas of a model, synchronised once a step."""
