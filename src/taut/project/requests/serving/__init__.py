"""Serving: replicas of a model answer requests."""
