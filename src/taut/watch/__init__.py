"""The live monitor: ``start()`` in a job tells a collector when ranks come to their gates.

This file and what it imports need the standard library and torch only: it runs inside other people's jobs.
"""

from __future__ import annotations

from taut.watch.in_job import start, step, stop

__all__ = ["start", "step", "stop"]
