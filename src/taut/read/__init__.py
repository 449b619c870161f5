"""Bytes → Trace. One folder per family of formats, sniffed from content; none imports another room."""
