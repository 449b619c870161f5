"""The words of metrics: what a component, a metric and a unit are called here, whatever they are called in a file."""

from __future__ import annotations

import re

FLAG = "flag"
"""Unit of a bit mask that becomes flags."""
UNITS: dict[str, tuple[str, float]] = {
    "w": ("w", 1.0), "watt": ("w", 1.0), "watts": ("w", 1.0), "mw": ("w", 1e-3), "kw": ("w", 1e3),
    "mhz": ("mhz", 1.0), "hz": ("mhz", 1e-6), "khz": ("mhz", 1e-3), "ghz": ("mhz", 1e3),
    "c": ("c", 1.0), "°c": ("c", 1.0), "celsius": ("c", 1.0), "%": ("share", 0.01), "percent": ("share", 0.01),
    "share": ("share", 1.0), "ratio": ("share", 1.0), "j": ("j", 1.0), "mj": ("j", 1e-3), "b": ("bytes", 1.0),
    "bytes": ("bytes", 1.0), "kib": ("bytes", 2.0**10), "mib": ("bytes", 2.0**20), "gib": ("bytes", 2.0**30),
    "kb": ("bytes", 1e3), "mb": ("bytes", 1e6), "gb": ("bytes", 1e9), "ms": ("s", 1e-3), "us": ("s", 1e-6),
    "ns": ("s", 1e-9), "s": ("s", 1.0),
}  # fmt: skip
"""A unit as files write it → the unit that the metric's name carries here, and the factor."""
KNOWN: dict[str, tuple[str, str]] = {
    "power": ("power_w", "w"), "power_w": ("power_w", "w"), "power_draw": ("power_w", "w"),
    "power_draw_average": ("power_average_w", "w"), "power_draw_instant": ("power_w", "w"),
    "power_usage": ("power_w", "w"), "gpu_power": ("power_w", "w"), "dcgm_fi_dev_power_usage": ("power_w", "w"),
    "power_limit": ("power_limit_w", "w"), "enforced_power_limit": ("power_limit_w", "w"),
    "dcgm_fi_dev_power_mgmt_limit": ("power_limit_w", "w"), "dcgm_fi_dev_enforced_power_limit": ("power_limit_w", "w"),
    "clock": ("clock_mhz", "mhz"), "sm_clock": ("clock_mhz", "mhz"), "clocks_sm": ("clock_mhz", "mhz"),
    "clocks_current_sm": ("clock_mhz", "mhz"), "clock_mhz": ("clock_mhz", "mhz"),
    "dcgm_fi_dev_sm_clock": ("clock_mhz", "mhz"),
    "clocks_mem": ("memory_clock_mhz", "mhz"), "clocks_current_memory": ("memory_clock_mhz", "mhz"),
    "dcgm_fi_dev_mem_clock": ("memory_clock_mhz", "mhz"),
    "temperature": ("temperature_c", "c"), "temperature_gpu": ("temperature_c", "c"), "gpu_temp": ("temperature_c", "c"),
    "temperature_c": ("temperature_c", "c"), "dcgm_fi_dev_gpu_temp": ("temperature_c", "c"),
    "dcgm_fi_dev_slowdown_temp": ("temperature_limit_c", "c"),
    "temperature_memory": ("memory_temperature_c", "c"), "dcgm_fi_dev_memory_temp": ("memory_temperature_c", "c"),
    "utilization_gpu": ("utilisation_share", "%"), "gpu_util": ("utilisation_share", "%"),
    "utilization": ("utilisation_share", "%"), "utilisation": ("utilisation_share", "%"),
    "utilisation_share": ("utilisation_share", "share"), "dcgm_fi_dev_gpu_util": ("utilisation_share", "%"),
    "dcgm_fi_prof_gr_engine_active": ("utilisation_share", "share"),
    "utilization_memory": ("memory_utilisation_share", "%"), "dcgm_fi_dev_mem_copy_util": ("memory_utilisation_share", "%"),
    "memory_used": ("memory_used_bytes", "mib"), "memory_total": ("memory_limit_bytes", "mib"),
    "dcgm_fi_dev_fb_used": ("memory_used_bytes", "mib"), "dcgm_fi_dev_fb_total": ("memory_limit_bytes", "mib"),
    "clocks_throttle_reasons_active": ("clock_reasons", FLAG), "clocks_event_reasons_active": ("clock_reasons", FLAG),
    "dcgm_fi_dev_clock_throttle_reasons": ("clock_reasons", FLAG), "dcgm_fi_dev_clocks_event_reasons": ("clock_reasons", FLAG),
    "dcgm_fi_dev_xid_errors": ("xid", ""), "ecc_errors_uncorrected_volatile_total": ("ecc_uncorrected", ""),
    "dcgm_fi_dev_ecc_dbe_vol_total": ("ecc_uncorrected", ""),
    "rss_bytes": ("memory_used_bytes", "bytes"),
}  # fmt: skip
"""A metric as files call it → its name here, and the unit it has where the file names none."""
COUNTERS = {
    "cpu_ns": ("cpu_cores", 1e-9),
    "received_bytes": ("received_bytes_per_s", 1.0),
    "sent_bytes": ("sent_bytes_per_s", 1.0),
}
"""Counters that do not call themselves ``…_total``: the name of their rate per second, and the factor."""
LIMIT_OF = {"power_limit_w": "power_w", "temperature_limit_c": "temperature_c", "memory_limit_bytes": "memory_used_bytes"}
"""Metrics that are the limit of another."""
REASONS = {"slowdown": 0x8 | 0x20 | 0x40 | 0x80, "power_capped": 0x4}
"""Flags in NVML's mask of clock reasons: hardware or heat lowers the clock; the power cap does."""
_UNIT_IN_NAME = re.compile(r"^(.*?)\s*\[([^\]]*)\]\s*$")
_RANK = re.compile(r"(?:(?:global[ _-]?)?rank|worker)\W?(\d{1,7})|(\d{1,7})", re.IGNORECASE)
_GPU = re.compile(r"(?:(.*\S)[\s:/,])?\s*gpu\W?(\d{1,4})", re.IGNORECASE)


def split_unit(header: str) -> tuple[str, str]:
    """``power.draw [W]`` → name and unit; no unit is empty."""
    found = _UNIT_IN_NAME.match(header.strip())
    return (found[1], found[2]) if found else (header.strip(), "")


def plain(name: str) -> str:
    """A metric's name as it is looked up."""
    return re.sub(r"[.\s/-]+", "_", name.strip().lower())[:100]


def named(name: str, unit: str) -> tuple[str, float]:
    """The name of a metric here, carrying its unit, and the factor for its values."""
    word = plain(name)
    known, default = KNOWN.get(word, ("", ""))
    suffix, factor = UNITS.get((unit or default).strip().lower(), ("", 1.0))
    if known:
        return known, factor
    if not unit:
        return word, 1.0
    if not suffix:
        return f"{word} [{unit.strip()[:20]}]", 1.0
    return (word if word.endswith(f"_{suffix}") else f"{word}_{suffix}"), factor


def rate_of(name: str, unit: str) -> tuple[str, float] | None:
    """The rate a counter becomes, and the factor; None for what is no counter."""
    word = plain(name)
    if word in KNOWN or unit:
        return None
    return (word.removesuffix("_total") + "_per_s", 1.0) if word.endswith("_total") else COUNTERS.get(word)


def place(component: str) -> tuple[int | None, str, int | None]:
    """Rank, host and index of the accelerator that a component's name tells; None or empty for what it does not."""
    if rank := _RANK.fullmatch(component.strip()):
        return int(rank[1] or rank[2]), "", None
    if gpu := _GPU.fullmatch(component.strip()):
        return None, gpu[1] or "", int(gpu[2])
    return None, "", None
