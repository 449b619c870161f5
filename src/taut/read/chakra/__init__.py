"""Chakra and PyTorch execution traces."""
