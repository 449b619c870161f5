"""``taut brief``: inputs that are named → everything that a briefing shows."""

from __future__ import annotations
