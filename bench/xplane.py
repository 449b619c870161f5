"""How fast XLA profiles are read, on one core: ``python bench/xplane.py [--mb 200]``.

The file is a profile of eight GPUs like those that JAX writes: kernels with their HLO ops, launch parameters and
correlation numbers, the calls that launched them, events of the Python tracer. MB are 10⁶ bytes of the file, seconds
those of the processor; the first reading, which compiles the kernels or loads what an earlier run kept, is given apart.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tests"), str(HERE.parent / "src")]

from taut.read.xplane import reader  # noqa: E402
from taut.read.xplane.line_roles import wanted  # noqa: E402
from taut.read.xplane.space import decode  # noqa: E402
from xla_profiles import put, space, varint  # noqa: E402

DEVICES, KERNELS, PITCH_NS = 8, 64, 20_000
NAMES = [f"loop_add_multiply_fusion_{k}" for k in range(KERNELS - 4)] + ["ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)"] * 4
STATS = ["correlation_id", "kernel_details", "hlo_module", "hlo_op", "program_id", "jit_train_step"]
DETAILS = "regs:38 static_shared:0 dynamic_shared:4096 grid:160,1,1 block:1024,1,1 occ_pct:100"


def main() -> None:
    """Print what was read, and how fast."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=float, default=200.0)
    parser.add_argument("--repeat", type=int, default=5)
    asked = parser.parse_args()
    data = profile(asked.mb)
    first = _seconds(lambda: reader.load(data, "bench.xplane.pb"))
    print(f"{len(data) / 1e6:.0f} MB, {decode(data, '', wanted).counts['events']:,} events; first reading {first:.1f} s")
    for what, read in (
        ("decoded", lambda: decode(data, "bench.xplane.pb", wanted)),
        ("ops of all ranks", lambda: reader.load(data, "bench.xplane.pb")),
    ):
        rates = sorted(len(data) / 1e6 / _seconds(read) for _ in range(asked.repeat))
        print(f"{what}: {statistics.median(rates):.0f} MB/s a core ({rates[0]:.0f}–{rates[-1]:.0f})")


def _seconds(call: Callable[[], object]) -> float:
    begin = time.process_time()
    call()
    return time.process_time() - begin


def profile(mb: float) -> bytes:
    """A profile of about so many megabytes."""
    ops = [NAMES[k] if "nccl" not in NAMES[k] else f"all-reduce-start.{k}" for k in range(KERNELS)]
    stats = [*STATS, *ops]
    number = {text: k for k, text in enumerate(stats, 1)}
    tails = [
        put(4, put(1, number["kernel_details"]) + put(5, DETAILS))
        + put(4, put(1, number["hlo_module"]) + put(7, number["jit_train_step"]))
        + put(4, put(1, number["hlo_op"]) + put(7, number[op]))
        + put(4, put(1, number["program_id"]) + put(4, 7))
        for op in ops
    ]
    each = len(_kernel(0, 10**6, 1, tails[0])) + len(_call(0, 1)) + 2 * len(_tick(0))
    count = int(mb * 1e6 / each / DEVICES)
    planes = []
    calls, ticks = [], []
    for device in range(DEVICES):
        first = device * count + 1
        events = b"".join(_kernel(k, k * PITCH_NS, first + k, tails[k % KERNELS]) for k in range(count))
        planes.append(_plane(f"/device:GPU:{device}", [("Stream #20(Compute,NCCL)", events)], NAMES, stats))
        calls.append((f"Host Threads/{device}", b"".join(_call(k * PITCH_NS, first + k) for k in range(count))))
        ticks.append((f"python {device}", b"".join(_tick(k * PITCH_NS // 2) for k in range(2 * count))))
    host = _plane("/host:CPU", [*calls, *ticks], ["cuLaunchKernelEx", "$train.py:10 step"], STATS)
    return space(host, *planes)


def _kernel(k: int, at_ns: int, correlation: int, tail: bytes) -> bytes:
    name = min(k % KERNELS, KERNELS - 4) + 1
    held = put(1, name) + varint(16) + varint(at_ns * 1000) + put(3, 15_000_000 + 1000 * (k % 97))
    return put(4, held + put(4, put(1, 1) + put(4, correlation)) + tail)


def _call(at_ns: int, correlation: int) -> bytes:
    return put(4, put(1, 1) + varint(16) + varint(at_ns * 1000) + put(3, 3_000_000) + put(4, put(1, 1) + put(4, correlation)))


def _tick(at_ns: int) -> bytes:
    return put(4, put(1, 2) + varint(16) + varint(at_ns * 1000) + put(3, 5_000_000))


def _plane(name: str, lines: list[tuple[str, bytes]], names: list[str], stats: list[str]) -> bytes:
    held = b"".join(put(3, put(1, k) + put(2, title) + events) for k, (title, events) in enumerate(lines, 1))
    known = [(4, k, text) for k, text in enumerate(dict.fromkeys(names), 1)] + [(5, k, text) for k, text in enumerate(stats, 1)]
    tables = b"".join(put(field, put(1, k) + put(2, put(1, k) + put(2, text))) for field, k, text in known)
    return put(2, name) + held + tables


if __name__ == "__main__":
    main()
