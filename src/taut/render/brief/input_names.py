"""Inputs by the last part of their paths; the section on evidence has the whole of each."""

from __future__ import annotations

from pathlib import PurePath

from taut.render.text import safe
from taut.result.types import BriefInput


def short_name(source: BriefInput) -> str:
    """A run folder, scenario or log as people call it."""
    if "/" not in source.name:
        return safe(source.name)
    return safe(", ".join(PurePath(word).name for word in source.name.split(" ") if word))
