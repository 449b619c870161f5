"""What an accelerator draws by what it does: the watts that prices give, else ratios by which a measured sum is divided."""

from __future__ import annotations

from taut.core.prices import Prices

SPLIT_W = {"load": 690.0, "stall": 134.0, "idle": 132.0}
"""Default, for dividing what was measured among fates only: its ratios count. By the counter of an H200 (bench/gpu_power.py):
matrix products, one block that spins, nothing between two kernels; collectives that spin on many multiprocessors draw more.
Joules of a time that nobody measured are never made of it."""


def split_watts(prices: Prices) -> tuple[dict[str, float], bool]:
    """Watts by class of power, and whether they were given."""
    given = prices.watts
    return (SPLIT_W, False) if given is None or max(given.values()) <= 0 else (given, True)
