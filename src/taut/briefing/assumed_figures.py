"""What a training scenario assumes of the parts that its elasticities are about, as a vendor would be asked for it."""

from __future__ import annotations

from collections.abc import Iterator

from taut.core.array_types import Json
from taut.project.training.scenario import Scenario
from taut.project.training.workload import WORKLOAD


def assumed_figures(table: dict[str, Json], name: str, text: str) -> dict[str, str]:
    """Knob → figure with its unit."""
    return dict(_figures(WORKLOAD.parse(table, name, text)[0]))


def _figures(s: Scenario) -> Iterator[tuple[str, str]]:
    for i, tier in enumerate(s.fabric.tiers):
        place = f"{tier.name} ({i + 1} of {len(s.fabric.tiers)})"
        yield f"bandwidth of {place}", f"{tier.gb_per_s:g} GB/s for each accelerator"
        if tier.latency_us:
            yield f"latency of {place}", f"{tier.latency_us:g} µs"
    yield "memory bandwidth", f"{s.device.memory_gb_per_s:g} GB/s on every accelerator"
    yield "peak", f"{s.device.peak_tflops:g} TFLOP/s on every accelerator"
    yield "checkpoint time", f"{s.failure.checkpoint_s:g} s"
