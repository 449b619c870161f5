"""Scenarios, devices and fabrics that ship with taut: TOML files only."""
