"""Energy of one GPU three ways on the same minutes: NVML's counter, integrated samples of power, and a model of states.

    python bench/gpu_power.py [--out FILE] [--seconds 15] [--rounds 2]
    python bench/gpu_power.py compare FILE

The first runs known states one after the other (idle, memory-bound, matrix products, stalled in a spinning kernel, a duty
cycle of 0.5 Hz), twice, and writes JSON to FILE (default: gpu_power.json in $OUT, or here). Meanwhile it reads the counter
and the power (instant, average, and the plain query) ten times a second, and nvidia-smi's power once a second. Needs torch
with CUDA, the driver's libnvidia-ml and nvidia-smi; changes no setting of the board.
The second needs taut and no GPU: it puts the three side by side, state by state, through taut's own energy code; the model's
watts are those that the counter showed in the first round, tried on the second.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SAMPLE_S, SMI_MS = 0.1, 1000
WARM_S = 10.0
SETTLE_S = 1.5
"""That a state goes on before it counts, so that averages of the last second are its own."""
FIELDS = {"instant_w": 186, "average_w": 185}
"""NVML's fields of power, in mW."""
DUTY_S = 1.0
"""Half a period of the duty cycle: on, then off."""
SPIN_CYCLES = 20_000_000
SIZE, COPIED = 8192, 1 << 30
"""Rows of the matrices; bytes of the array that is copied."""


class FieldValue(ctypes.Structure):
    """NVML's answer for one field."""

    _fields_ = (
        ("field", ctypes.c_uint), ("scope", ctypes.c_uint), ("timestamp", ctypes.c_longlong), ("latency_us", ctypes.c_longlong),
        ("kind", ctypes.c_int), ("status", ctypes.c_int), ("value", ctypes.c_ulonglong),
    )  # fmt: skip


class Nvml:
    """The first GPU through the driver's own library, so that nothing needs to be installed."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libnvidia-ml.so.1")
        self.gpu = ctypes.c_void_p()
        if self.library.nvmlInit_v2() or self.library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.gpu)):
            raise OSError("NVML does not start")

    def counter_mj(self) -> int | None:
        """Energy since the driver was loaded."""
        found = ctypes.c_ulonglong()
        failed = self.library.nvmlDeviceGetTotalEnergyConsumption(self.gpu, ctypes.byref(found))
        return None if failed else int(found.value)

    def power_w(self) -> float | None:
        """The plain query: on recent boards the mean of about a second."""
        found = ctypes.c_uint()
        return None if self.library.nvmlDeviceGetPowerUsage(self.gpu, ctypes.byref(found)) else found.value / 1e3

    def field_w(self, field: int) -> float | None:
        """One of NVML's fields of power."""
        asked = FieldValue(field=field)
        failed = self.library.nvmlDeviceGetFieldValues(self.gpu, 1, ctypes.byref(asked)) or asked.status
        milliwatts = asked.value & 0xFFFFFFFF  # an unsigned int in a union
        return None if failed or not milliwatts else milliwatts / 1e3

    def read(self) -> dict[str, float | int | None]:
        """Everything at once, with the time in the middle of it."""
        began = time.time_ns()
        row: dict[str, float | int | None] = {"counter_mj": self.counter_mj(), "power_w": self.power_w()}
        row |= {name: self.field_w(field) for name, field in FIELDS.items()}
        return {"time_ns": (began + time.time_ns()) // 2, **row}


class Sampler(threading.Thread):
    """Reads NVML ten times a second."""

    def __init__(self, gpu: Nvml) -> None:
        super().__init__(daemon=True)
        self.gpu, self.rows, self.ended = gpu, list[dict[str, float | int | None]](), threading.Event()

    def run(self) -> None:
        due = time.monotonic()
        while not self.ended.wait(max(0.0, due - time.monotonic())):
            self.rows.append(self.gpu.read())
            due += SAMPLE_S


class Smi(threading.Thread):
    """Follows nvidia-smi, which prints the power once a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.rows: list[dict[str, float | int]] = []
        command = ["nvidia-smi", "-i", "0", "--query-gpu=power.draw", "--format=csv,noheader,nounits", "-lms", str(SMI_MS)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def run(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                self.rows.append({"time_ns": time.time_ns(), "power_w": float(line)})
            except ValueError:
                continue  # [N/A]


def loads(torch: Any) -> dict[str, Callable[[], None]]:
    """A short piece of each state; all return when the device is done."""
    a, b = (torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    product, source = torch.empty_like(a), torch.randn(COPIED // 4, device="cuda")
    target = torch.empty_like(source)

    def many(times: int, one: Callable[[], object]) -> None:
        for _ in range(times):
            one()
        torch.cuda.synchronize()

    def duty() -> None:
        ends = time.monotonic() + DUTY_S
        while time.monotonic() < ends:
            many(20, lambda: torch.matmul(a, b, out=product))
        time.sleep(DUTY_S)

    return {
        "idle": lambda: time.sleep(0.05),
        "memory": lambda: many(50, lambda: target.copy_(source)),
        "products": lambda: many(20, lambda: torch.matmul(a, b, out=product)),
        "spinning": lambda: many(5, lambda: torch.cuda._sleep(SPIN_CYCLES)),
        "duty": duty,
    }


def hold(load: Callable[[], None], seconds: float) -> int:
    """Repeat a load for a while; how often."""
    ends, count = time.monotonic() + seconds, 0
    while time.monotonic() < ends:
        load()
        count += 1
    return count


def record(torch: Any, seconds: float, rounds: int) -> dict[str, Any]:
    """All states, round after round, with everything that was read meanwhile."""
    gpu, states, work = Nvml(), [], loads(torch)
    hold(work["products"], WARM_S)
    sampler, smi = Sampler(gpu), Smi() if shutil.which("nvidia-smi") else None
    for thread in (sampler, smi):
        if thread is not None:
            thread.start()
    for number in range(rounds):
        for name, load in work.items():
            hold(load, SETTLE_S)
            begin, first = time.time_ns(), gpu.counter_mj()
            count = hold(load, seconds)
            end, last = time.time_ns(), gpu.counter_mj()
            states.append({"round": number, "state": name, "start_ns": begin, "end_ns": end, "repeats": count,
                           "counter_mj": [first, last]})  # fmt: skip
            print(f"round {number} {name}: {(end - begin) / 1e9:.1f} s", file=sys.stderr)
    sampler.ended.set()
    sampler.join()
    if smi is not None:
        smi.process.terminate()
        smi.join()
    return {
        "device": torch.cuda.get_device_name(0), "torch": torch.__version__, "states": states, "samples": sampler.rows,
        "nvidia_smi": [] if smi is None else smi.rows,
    }  # fmt: skip


def recorded(args: argparse.Namespace) -> int:
    """Record and write."""
    try:
        import torch
    except ImportError:
        print("no torch here: install it with CUDA to record a GPU", file=sys.stderr)
        return 1
    if not torch.cuda.is_available():
        print("no GPU here: nothing recorded", file=sys.stderr)
        return 1
    found = record(torch, args.seconds, args.rounds)
    out = args.out or Path(os.environ.get("OUT", ".")) / "gpu_power.json"
    out.write_text(json.dumps(found))
    told = [row for row in found["samples"] if row["counter_mj"] is not None]
    print(
        f"{found['device']}: {len(found['states'])} states, {len(found['samples'])} samples ({len(told)} with the counter), "
        f"{len(found['nvidia_smi'])} of nvidia-smi; written: {out}"
    )
    return 0


FATES = {
    "idle": [("idle", 1.0)], "memory": [("productive", 1.0)], "products": [("productive", 1.0)],
    "spinning": [("fault wait", 1.0)], "duty": [("productive", 0.5), ("idle", 0.5)],
}  # fmt: skip
"""What the ledger would call each state, and the share of its time: the model knows load, stall and idle only."""
READINGS = ("instant_w", "average_w", "power_w", "nvidia_smi")


POWER = {"productive": "load", "fault wait": "stall", "idle": "idle"}


def meters_of(found: dict[str, Any]) -> dict[str, Any]:
    """The counter, and each way of sampling, as taut's meters; those that the board does not have are left out."""
    import numpy as np

    from taut.ledger.bill.meters import counter_meter, sample_meter

    def column(rows: list[dict[str, Any]], key: str) -> tuple[Any, Any]:
        told = [(row["time_ns"], row[key]) for row in rows if row[key] is not None]
        return np.array([at for at, _ in told], np.int64), np.array([value for _, value in told], np.float64)

    at, millijoules = column(found["samples"], "counter_mj")
    meters = {"counter": counter_meter(at, millijoules * 1e-3)}
    for name in READINGS:
        smi = name == "nvidia_smi"
        meters[name] = sample_meter(*column(found["nvidia_smi" if smi else "samples"], "power_w" if smi else name))
    return {name: meter for name, meter in meters.items() if meter is not None}


def compare(path: Path) -> int:
    """Counter, samples and states on the same minutes, and the interval that taut gives."""
    import numpy as np

    from taut.core.prices import Prices

    found = json.loads(path.read_text())
    meters, states = meters_of(found), found["states"]
    if "counter" not in meters:
        print("this board has no counter of energy: nothing to compare with", file=sys.stderr)
        return 1
    start, end = (np.array([one[key] for one in states], np.int64) for key in ("start_ns", "end_ns"))
    mean_w = {name: np.divide(*meter.between(start, end)) for name, meter in meters.items()}
    seen = {one["state"]: float(mean_w["counter"][i]) for i, one in enumerate(states) if one["round"] == 0}
    prices = Prices(load_w=seen["products"], stall_w=seen["spinning"], idle_w=seen["idle"])
    print(f"{found['device']}, W by the counter in the first round: " + ", ".join(f"{k} {v:.1f}" for k, v in seen.items()))
    print("states: load as products, stall as spinning, idle as idle drew in the first round")
    watts = prices.watts or {}
    mean_w["states"] = np.array([sum(share * watts[POWER[fate]] for fate, share in FATES[one["state"]]) for one in states])
    _table(states, mean_w, (end - start) / 1e9)
    for number in sorted({one["round"] for one in states}):
        _intervals([one for one in states if one["round"] == number], meters, prices, number)
    return 0


def _table(states: list[dict[str, Any]], mean_w: dict[str, Any], seconds: Any) -> None:
    """State by state, what the others say against the counter."""
    others = [name for name in mean_w if name != "counter"]
    print("round state       s  counter J " + "".join(f"{name:>12}" for name in others) + "   (against the counter)")
    for i, one in enumerate(states):
        counted = mean_w["counter"][i]
        against = "".join(f"{100 * (mean_w[name][i] / counted - 1):+11.1f}%" for name in others)
        print(f"{one['round']:5} {one['state']:9} {seconds[i]:4.0f} {counted * seconds[i]:10.0f} {against}")


def _intervals(states: list[dict[str, Any]], meters: dict[str, Any], prices: Any, number: int) -> None:
    """All states of a round together, as the bill would have them."""
    from taut.ledger.bill.held_energy import held_energy
    from taut.ledger.bill.meters import Metered

    for name in (one for one in READINGS if one in meters):
        gpu = Metered("gpu 0", -1, "here", {"counter": meters["counter"], "samples": meters[name]})
        told = held_energy(_held(states), prices, [gpu])
        side = ", ".join(f"{one.name} {one.joules:.0f} J ({100 * one.coverage:.1f} %)" for one in told.sources)
        total = told.total
        ends = "" if total is None or total.lo is None else f", interval {total.lo:.0f} to {total.hi:.0f} J"
        print(f"round {number}, samples of {name}: {side}{ends}")


def _held(states: list[dict[str, Any]]) -> Any:
    """States as rows of what was held: one accelerator, with the fates that the ledger would see."""
    import numpy as np

    from taut.core.tables import Table
    from taut.ledger.bill.rows import Held

    parts = [(one["start_ns"], one["end_ns"], fate, share) for one in states for fate, share in FATES[one["state"]]]
    texts = {"host": ["here"] * len(parts), "fate": [fate for _, _, fate, _ in parts]}
    columns: dict[str, Any] = {name: np.array(words, np.object_) for name, words in texts.items()}
    columns["start_ns"], columns["end_ns"] = (np.array([part[i] for part in parts], np.int64) for i in (0, 1))
    columns["rank_ns"] = np.array([round((end - start) * share) for start, end, _, share in parts], np.int64)
    return Table(Held, {**columns, "accelerators": np.ones(len(parts), np.int64)})


def main() -> int:
    """Record, or compare what was recorded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", nargs="?", choices=("record", "compare"), default="record")
    parser.add_argument("file", nargs="?", type=Path, help="what was recorded, for compare")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each state")
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    if args.verb == "record":
        return recorded(args)
    if args.file is None:
        parser.error("compare needs the file that was recorded")
    return compare(args.file)


if __name__ == "__main__":
    sys.exit(main())
