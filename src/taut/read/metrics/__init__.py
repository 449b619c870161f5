"""Samples of sensors and counters."""
