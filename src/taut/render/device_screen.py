"""What accelerators did, and the table of ranks, on the screen of ``taut analyze``."""

from __future__ import annotations

import re

from rich.console import ConsoleRenderable, Group
from rich.padding import Padding
from rich.text import Text

from taut.core.rank_words import short_host
from taut.render.terminal import LEAST_FATE, clipped, heading, new_table
from taut.render.text import UNKNOWN, duration, percent, safe, size, three
from taut.result.types import AnalysisResult, Device, DeviceCollective, DeviceRank, Mfu, RankRow

CLASSES, CLASSES_OF_SEVERAL, COLLECTIVES, COLLECTIVES_OF_SEVERAL = 6, 4, 4, 3
"""Classes of kernels and collectives shown for one rank, and where there are several."""
IDLE, LEAST_IDLE, WORTH_IDLE = 4, 0.001, 0.01
"""Causes of idle time named at most, the share of time from which one is, and the share of all from which any are."""
RANKS = 5
"""Ranks shown unless all are asked for."""
NO_KIND = "    "
"""Where a class needs no word for what it is: as wide as one."""
_NOISE = re.compile(r"^void |\(anonymous namespace\)::|at::native::|c10::|\(int\)|\(bool\)")


def device_part(result: AnalysisResult) -> ConsoleRenderable | None:
    """Shares, idle time, MFU, the longest classes of kernels, and how fast collectives were."""
    device = result.device
    if device is None or device.mean is None:
        return None
    several = result.job.ranks > 1
    lines: list[ConsoleRenderable] = [_shares(device.mean, result)]
    lines += [line for line in (_idle(device), _mfu(device.mfu)) if line is not None]
    lines += _classes(device, CLASSES_OF_SEVERAL if several else CLASSES)
    lines += _collectives(device, COLLECTIVES_OF_SEVERAL if several else COLLECTIVES)
    return Group(*lines)


def _shares(mean: DeviceRank, result: AnalysisResult) -> Text:
    """One line: how busy, with what, and how much of it hides."""
    of = f" a {result.job.unit}" if result.job.steps > 1 else ""
    of += f", mean of {result.job.ranks:,} ranks" if result.job.ranks > 1 else ""
    line = Text(f"Device: busy {percent(mean.busy_share)}", style="bold")
    words = [f" of {duration(mean.step_ns)}{of}", f"compute {percent(mean.compute_share)}"]
    if mean.communication_share > 0:
        hidden = mean.hidden_share / mean.communication_share
        words.append(
            f"communication {percent(mean.communication_share)}, {percent(hidden)} of it hidden, "
            f"{percent(mean.exposed_share)} exposed"
        )
    if mean.copy_share > 0:
        words.append(f"copies {percent(mean.copy_share)}, {percent(mean.exposed_copy_share)} exposed")
    words.append(f"idle {percent(mean.idle_share)}")
    return line.append(" · ".join(words), style="not bold")


def _idle(device: Device) -> Text | None:
    rows = [row for row in device.idle if row.share >= LEAST_IDLE]
    if not rows or sum(row.share for row in device.idle) < WORTH_IDLE:
        return None
    words = [f"{safe(row.cause)} {percent(row.share)}" for row in rows[:IDLE]]
    rest = sum(row.share for row in device.idle[IDLE:])
    words += [f"other {percent(rest)}"] if rest >= LEAST_IDLE else []
    return Text(f"Idle, its host meanwhile: {' · '.join(words)}")


def _mfu(found: Mfu | None) -> Text | None:
    if found is None or found.value is None or found.tflops_per_s is None or found.peak_tflops is None:
        return None
    least = "at least " if found.lower_bound else ""
    of = f"{found.tflops_per_s:.3g} of {found.peak_tflops:.4g} TFLOP/s"
    return Text(f"MFU {least}{percent(found.value)}: {of} ({safe(found.dtype)}, {safe(found.device)})")


def _classes(device: Device, most: int) -> list[ConsoleRenderable]:
    rows = device.classes[:most]
    if not rows:
        return []
    rates = any(row.gb_per_s is not None for row in rows)
    table = new_table("", "kernels and copies", "calls", "time", "share", "median", *(["GB/s"] if rates else []))
    for row in rows:
        rate = [three(row.gb_per_s) if row.gb_per_s is not None else ""] if rates else []
        kind = {"compute": NO_KIND, "communication": "comm", "copy": "copy"}[row.kind]
        table.add_row(
            clipped(kind, "dim"),
            clipped(kernel(row.name)),
            f"{row.count:,}",
            duration(row.rank_ns),
            percent(row.share),
            duration(row.median_ns),
            *rate,
        )
    return [Padding(table, (0, 0, 0, 1))]


def kernel(name: str) -> str:
    """A kernel's name without the words that all have."""
    return _NOISE.sub("", safe(name))


def _collectives(device: Device, most: int) -> list[ConsoleRenderable]:
    whole = sum(row.rank_ns for row in device.classes)
    rows = [row for row in device.collectives if row.rank_ns >= LEAST_FATE * whole][:most]
    if not rows:
        return []
    bound = any(row.waiting_included for row in rows)
    table = new_table("", "collectives", "size", "ranks", "calls", "time", "GB/s", "bus GB/s")
    for row in rows:
        table.add_row(
            clipped(NO_KIND),
            clipped(safe(row.op_class)),
            size(row.size_bytes),
            _known(row.members),
            f"{row.count:,}",
            duration(row.rank_ns),
            _rate(row, row.gb_per_s),
            _rate(row, row.bus_gb_per_s),
        )
    note = Text(" ≥: waiting for ranks that were not traced is part of the time", style="dim")
    return [Padding(table, (0, 0, 0, 1)), *([note] if bound else [])]


def _rate(row: DeviceCollective, rate: float | None) -> str:
    if rate is None:
        return UNKNOWN
    return f"{'≥ ' if row.waiting_included else ''}{three(rate)}"


def _known(number: int | None) -> str:
    return UNKNOWN if number is None else f"{number:,}"


def rank_table(result: AnalysisResult, all_ranks: bool) -> ConsoleRenderable | None:
    """Where the ranks are and what their time went to, the interesting ones first."""
    rows = result.ranks or []
    if len(rows) < 2:
        return None
    shown = rows if all_ranks or len(rows) <= RANKS + 1 else rows[:RANKS]
    hosts, gpus = any(row.host for row in shown), any(row.gpu is not None for row in shown)
    copies, late = any(row.copy_share > 0 for row in shown), any(row.late_ns is not None for row in shown)
    optional = (
        ("GPU", gpus),
        ("compute", True),
        ("comm", True),
        ("copies", copies),
        ("wait", True),
        ("gap", True),
        ("late", late),
    )
    table = new_table("rank", "host" if hosts else "", *(name for name, is_there in optional if is_there))
    for row in shown:
        figures = [
            ("" if row.gpu is None else str(row.gpu), gpus), (percent(row.compute_share), True),
            (percent(row.communication_share), True), (percent(row.copy_share), copies), (percent(row.wait_share), True),
            (percent(row.gap_share), True), (duration(row.late_ns), late),
        ]  # fmt: skip
        table.add_row(
            clipped(_who(row, result), "bold"), clipped(_host(row)), *(text for text, is_there in figures if is_there)
        )
    lines: list[ConsoleRenderable] = [heading("Ranks, those that others waited for first"), Padding(table, (0, 0, 0, 1))]
    if len(shown) < len(rows):
        lines.append(Text(f" {len(rows) - len(shown):,} more: --all-ranks", style="dim"))
    return Group(*lines)


def _who(row: RankRow, result: AnalysisResult) -> str:
    name = result.job.names.get(str(row.rank))
    return f"{row.rank} {safe(name)}" if name else str(row.rank)


def _host(row: RankRow) -> str:
    return safe(short_host(row.host)) if row.host else ""
