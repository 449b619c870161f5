"""Names of metrics: what a component, a metric and a unit are called here, whatever they are called in a file."""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np

from taut.core.array_types import Floats, Mask

FLAG = "flag"
"""Unit of a bit mask that becomes flags."""
UNITS: dict[str, tuple[str, float]] = {
    "w": ("w", 1.0), "watt": ("w", 1.0), "watts": ("w", 1.0), "mw": ("w", 1e-3), "kw": ("w", 1e3),
    "mhz": ("mhz", 1.0), "hz": ("mhz", 1e-6), "khz": ("mhz", 1e-3), "ghz": ("mhz", 1e3),
    "c": ("c", 1.0), "°c": ("c", 1.0), "celsius": ("c", 1.0), "%": ("share", 0.01), "percent": ("share", 0.01),
    "share": ("share", 1.0), "ratio": ("share", 1.0), "j": ("j", 1.0), "joules": ("j", 1.0), "mj": ("j", 1e-3),
    "uj": ("j", 1e-6), "wh": ("j", 3.6e3), "kwh": ("j", 3.6e6),
    "b": ("bytes", 1.0), "bytes": ("bytes", 1.0), "kib": ("bytes", 2.0**10), "mib": ("bytes", 2.0**20),
    "gib": ("bytes", 2.0**30), "kb": ("bytes", 1e3), "mb": ("bytes", 1e6), "gb": ("bytes", 1e9), "ms": ("s", 1e-3),
    "us": ("s", 1e-6), "ns": ("s", 1e-9), "s": ("s", 1.0), "seconds": ("s", 1.0),
}  # fmt: skip
"""A unit as files write it → the unit that the metric's name carries here, and the factor."""
SPELT = ("watts", "hz", "celsius", "percent", "ratio", "joules", "bytes", "seconds")
"""Units that exporters spell out at the end of a name."""
KNOWN: dict[str, tuple[str, str]] = {
    "power": ("power_w", "w"), "power_w": ("power_w", "w"), "power_draw": ("power_w", "w"),
    "power_draw_average": ("power_average_w", "w"), "power_draw_instant": ("power_w", "w"),
    "power_usage": ("power_w", "w"), "gpu_power": ("power_w", "w"), "dcgm_fi_dev_power_usage": ("power_w", "w"),
    "power_limit": ("power_limit_w", "w"), "enforced_power_limit": ("power_limit_w", "w"),
    "dcgm_fi_dev_power_mgmt_limit": ("power_limit_w", "w"), "dcgm_fi_dev_enforced_power_limit": ("power_limit_w", "w"),
    "clock": ("clock_mhz", "mhz"), "sm_clock": ("clock_mhz", "mhz"), "clocks_sm": ("clock_mhz", "mhz"),
    "clocks_current_sm": ("clock_mhz", "mhz"), "clock_mhz": ("clock_mhz", "mhz"),
    "clocks_current_sm_clock": ("clock_mhz", "mhz"), "dcgm_fi_dev_sm_clock": ("clock_mhz", "mhz"),
    "clocks_mem": ("memory_clock_mhz", "mhz"), "clocks_current_memory": ("memory_clock_mhz", "mhz"),
    "clocks_current_memory_clock": ("memory_clock_mhz", "mhz"), "dcgm_fi_dev_mem_clock": ("memory_clock_mhz", "mhz"),
    "temperature": ("temperature_c", "c"), "temperature_gpu": ("temperature_c", "c"), "gpu_temp": ("temperature_c", "c"),
    "temperature_c": ("temperature_c", "c"), "dcgm_fi_dev_gpu_temp": ("temperature_c", "c"),
    "dcgm_fi_dev_slowdown_temp": ("temperature_limit_c", "c"),
    "temperature_memory": ("memory_temperature_c", "c"), "dcgm_fi_dev_memory_temp": ("memory_temperature_c", "c"),
    "utilization_gpu": ("utilisation_share", "%"), "gpu_util": ("utilisation_share", "%"),
    "utilization": ("utilisation_share", "%"), "utilisation": ("utilisation_share", "%"),
    "utilisation_share": ("utilisation_share", "share"), "dcgm_fi_dev_gpu_util": ("utilisation_share", "%"),
    "dcgm_fi_prof_gr_engine_active": ("engine_active_share", "share"), "dcgm_fi_prof_sm_active": ("sm_active_share", "share"),
    "dcgm_fi_prof_pipe_tensor_active": ("tensor_active_share", "share"),
    "dcgm_fi_prof_dram_active": ("memory_active_share", "share"),
    "dcgm_fi_prof_pcie_tx_bytes": ("pcie_sent_bytes_per_s", ""),
    "dcgm_fi_prof_pcie_rx_bytes": ("pcie_received_bytes_per_s", ""),
    "dcgm_fi_prof_nvlink_tx_bytes": ("nvlink_sent_bytes_per_s", ""),
    "dcgm_fi_prof_nvlink_rx_bytes": ("nvlink_received_bytes_per_s", ""),
    "utilization_memory": ("memory_utilisation_share", "%"), "dcgm_fi_dev_mem_copy_util": ("memory_utilisation_share", "%"),
    "memory_used": ("memory_used_bytes", "mib"), "memory_total": ("memory_limit_bytes", "mib"),
    "dcgm_fi_dev_fb_used": ("memory_used_bytes", "mib"), "dcgm_fi_dev_fb_total": ("memory_limit_bytes", "mib"),
    "clocks_throttle_reasons_active": ("clock_reasons", FLAG), "clocks_event_reasons_active": ("clock_reasons", FLAG),
    "dcgm_fi_dev_clock_throttle_reasons": ("clock_reasons", FLAG), "dcgm_fi_dev_clocks_event_reasons": ("clock_reasons", FLAG),
    "dcgm_fi_dev_xid_errors": ("xid", ""), "ecc_errors_uncorrected_volatile_total": ("ecc_uncorrected", ""),
    "dcgm_fi_dev_ecc_dbe_vol_total": ("ecc_uncorrected", ""),
    "rss_bytes": ("memory_used_bytes", "bytes"), "container_memory_working_set_bytes": ("memory_used_bytes", "bytes"),
    "node_load1": ("load", ""), "powerconsumedwatts": ("node_power_w", "w"),
    "redfish_power_consumed_watts": ("node_power_w", "w"),
    "node_memory_memavailable_bytes": ("memory_available_bytes", "bytes"),
}  # fmt: skip
"""A metric as files call it → its name here, and the unit it has where the file names none."""
COUNTERS = {
    "cpu_ns": ("cpu_cores", 1e-9),
    "container_cpu_usage_seconds_total": ("cpu_cores", 1.0),
    "container_cpu_cfs_throttled_seconds_total": ("cpu_throttled_cores", 1.0),
    "received_bytes": ("received_bytes_per_s", 1.0),
    "sent_bytes": ("sent_bytes_per_s", 1.0),
    "node_network_receive_bytes_total": ("received_bytes_per_s", 1.0),
    "node_network_transmit_bytes_total": ("sent_bytes_per_s", 1.0),
    "node_infiniband_port_data_received_bytes_total": ("received_bytes_per_s", 1.0),
    "node_infiniband_port_data_transmitted_bytes_total": ("sent_bytes_per_s", 1.0),
    "node_pressure_cpu_waiting_seconds_total": ("cpu_pressure_share", 1.0),
    "dcgm_fi_dev_total_energy_consumption": ("power_average_w", 1e-3),
    "dcgm_fi_dev_pcie_replay_counter": ("pcie_replays_per_s", 1.0),
}
"""Counters whose rate per second has a name of its own: that name, and the factor. Any other ``…_total`` is one, too."""
ENERGY = {
    "dcgm_fi_dev_total_energy_consumption": ("energy_j", 1e-3), "total_energy_consumption": ("energy_j", 1e-3),
    "nvml_total_energy_consumption": ("energy_j", 1e-3), "gpu_energy_mj": ("energy_j", 1e-3), "energy_j": ("energy_j", 1.0),
    "node_rapl_package_joules_total": ("package_energy_j", 1.0), "package_energy_j": ("package_energy_j", 1.0),
    "node_rapl_dram_joules_total": ("dram_energy_j", 1.0), "dram_energy_j": ("dram_energy_j", 1.0),
    "energy_uj": ("package_energy_j", 1e-6), "energykwh": ("node_energy_j", 3.6e6), "energy_kwh": ("node_energy_j", 3.6e6),
    "redfish_energy_kwh": ("node_energy_j", 3.6e6), "node_energy_j": ("node_energy_j", 1.0),
}  # fmt: skip
"""Counters of energy: of an accelerator (NVML, DCGM), of processors and memory (RAPL), of a whole node (Redfish) → their name
here, and the factor to joules. What they count is kept as it is, beside the rate: only a difference over time is exact."""
INDEX = "nvidia_smi_index"
"""The metric that holds the index of an accelerator which an exporter labels by its UUID only."""
LIMIT_OF = {"power_limit_w": "power_w", "temperature_limit_c": "temperature_c", "memory_limit_bytes": "memory_used_bytes"}
"""Metrics that are the limit of another."""
REASONS = {"slowdown": 0x8 | 0x20 | 0x40 | 0x80, "power_capped": 0x4}
"""Flags in NVML's mask of clock reasons: hardware or heat lowers the clock; the power cap does."""
# First and last of the numbers by which DCGM says that there is none: of 32 bits, of floats, of 64 bits (as a float).
BLANKS = ((0x7FFFFFF0, 0x7FFFFFFF), (2.0**47, 2.0**47 + 15), (2.0**63, 2.0**63))
_RANK = re.compile(r"(?:(?:global[ _-]?)?rank|worker)\W?(\d{1,7})|(\d{1,7})", re.IGNORECASE)
_GPU = re.compile(r"gpu\W?(\d{1,4})\Z", re.IGNORECASE)


def split_unit(header: str) -> tuple[str, str]:
    """``power.draw [W]`` → name and unit; no unit is empty."""
    text = header.strip()[:200].rstrip()
    at = text.find("[", text.rfind("]", 0, -1) + 1) if text.endswith("]") else -1
    return (text[:at].rstrip(), text[at + 1 : -1]) if at >= 0 else (text, "")


def plain(name: str) -> str:
    """A metric's name as it is looked up."""
    return _plain(name) if len(name) <= 200 else _plain.__wrapped__(name)


@lru_cache(4096)
def _plain(name: str) -> str:
    return re.sub(r"[.\s/-]+", "_", name.strip().lower())[:100]


class Plain(dict[str, str]):
    """Names as they are looked up, by themselves; for where the same few come very often."""

    def __missing__(self, name: str) -> str:
        word = self[name] = plain(name)
        return word


def _spelt(word: str) -> tuple[str, str]:
    """``nvidia_smi_power_draw_watts`` → ``power_draw`` and its unit; a name that spells out none stays."""
    stem, _, unit = word.rpartition("_")
    short = stem.removeprefix("nvidia_smi_")
    return (short, unit) if unit in SPELT and word not in KNOWN and stem else (word.removeprefix("nvidia_smi_"), "")


def known(name: str) -> bool:
    """Whether taut has a name of its own for a metric."""
    word = plain(name)
    return word in KNOWN or word in COUNTERS or word in ENERGY or word == INDEX or _spelt(word)[0] in KNOWN


def is_mask(name: str) -> bool:
    """Whether the values are NVML's mask of clock reasons."""
    return KNOWN.get(_spelt(plain(name))[0], ("", ""))[1] == FLAG


def named(name: str, unit: str) -> tuple[str, float]:
    """The name of a metric here, carrying its unit, and the factor for its values."""
    word, spelt = _spelt(plain(name))
    found, default = KNOWN.get(word, ("", ""))
    suffix, factor = UNITS.get((unit or spelt or default).strip().lower(), ("", 1.0))
    if found:
        return found, factor
    if not unit and not spelt:
        return plain(name), 1.0
    if not suffix:
        return f"{word} [{unit.strip()[:20]}]", 1.0
    return (word if word.endswith(f"_{suffix}") else f"{word}_{suffix}"), factor


def rate_of(name: str, unit: str, counter: bool = False) -> tuple[str, float] | None:
    """The rate a counter becomes, and the factor; None for what is no counter. A file may say that it is one."""
    word = plain(name)
    if word in KNOWN or unit:
        return None
    other = (word.removesuffix("_total") + "_per_s", 1.0) if counter or word.endswith("_total") else None
    return COUNTERS.get(word, other)


def energy_of(name: str, unit: str) -> tuple[str, float] | None:
    """What a counter of energy is called here, and the factor to joules; None for what is none."""
    found, (kind, factor) = ENERGY.get(plain(name)), UNITS.get(unit.strip().lower(), ("", 1.0))
    return found if found is None or kind != "j" else (found[0], factor)


def uncounted(value: Floats) -> Mask:
    """Which readings of a counter of energy are none: boards that cannot count say 0, DCGM the largest number it has."""
    return np.asarray((value <= 0) | (value >= 2.0**62))


def blank(name: str, value: Floats) -> Mask | None:
    """Which values are DCGM's way to say that there is none, None if no value is; bytes and counts may well be such numbers."""
    word = plain(name)
    if word in ENERGY:
        return uncounted(value)
    if not word.startswith("dcgm_") and KNOWN.get(word, ("", "bytes"))[1] in ("", "bytes", "mib"):
        return None
    if len(value) and value.max() < BLANKS[0][0]:
        return None
    found = np.zeros(len(value), dtype=np.bool_)
    for low, high in BLANKS:
        found |= (value >= low) & (value <= high)
    return found


def place(component: str) -> tuple[int | None, str, int | None]:
    """Rank, host and index of the accelerator in a component's name; None or empty for what it does not hold."""
    if rank := _RANK.fullmatch(component.strip()):
        return int(rank[1] or rank[2]), "", None
    if gpu := _GPU.search(component.strip()):
        before = component.strip()[: gpu.start()]
        host = before.rstrip()
        if host != before or not host:
            return None, host, int(gpu[1])
        if host[-1] in ":/," and host[-2:-1].strip():
            return None, host[:-1], int(gpu[1])
    return None, "", None
