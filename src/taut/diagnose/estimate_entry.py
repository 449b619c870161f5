"""Estimates of ``core/interval.py`` as the result has them."""

from __future__ import annotations

from msgspec import convert

from taut.core.interval import Estimate
from taut.result import types


def entry(found: Estimate | None) -> types.Estimate | None:
    """An estimate of the result; None where there is none."""
    return convert(found, types.Estimate | None)
