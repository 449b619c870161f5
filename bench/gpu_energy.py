"""Record power, clock, temperature and step times of a step-periodic load on a real GPU, without and with a governor.

    python bench/gpu_energy.py --out FOLDER [--seconds 60] [--lever duty|clock]

Each step is a burst of matrix products, of random length, and a pause. Twice: *uncoupled*, and *governed* by a loop in
this script: when the mean power of the last steps is above a set point (a share of what the uncoupled load drew) it
inserts idle time, and takes it out below; with ``--lever clock`` it lowers and raises the locked SM clock instead, which
needs the rights to set it and a board that nobody else uses.
Writes FOLDER/uncoupled and FOLDER/governed, each with steps.csv (worker, step, step_time_ms, start_ns) and metrics.csv,
which ``taut analyze FOLDER/governed`` reads. Needs torch with CUDA; NVML through pynvml, else nvidia-smi.
"""

from __future__ import annotations

import argparse
import csv
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SIZE = 8192
"""Rows and columns of the matrices."""
BURST_S, PAUSE_S = 0.20, 0.08
SAMPLE_S = 0.02
SET_POINT = 0.85
"""Share of the uncoupled load's mean power that the governor holds."""
AVERAGE = 2
"""Steps over which it averages power."""
GAIN = {"clock": 0.9, "duty": 1.6}
"""Share by which the clock falls, or the step grows, per share of power above the set point: near the edge of swinging."""
INSTANT_POWER = 186
"""NVML's field of the power now, in mW; the plain query averages over a second on recent boards."""


class Nvml:
    """The first GPU through pynvml."""

    def __init__(self) -> None:
        import pynvml

        self.nvml = pynvml
        pynvml.nvmlInit()
        self.gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
        self.instant = self._instant() is not None
        self.clocks = sorted(self._supported())

    def _instant(self) -> float | None:
        try:
            field = self.nvml.nvmlDeviceGetFieldValues(self.gpu, [INSTANT_POWER])[0]
            return field.value.uiVal / 1e3 if field.nvmlReturn == 0 and field.value.uiVal else None
        except (self.nvml.NVMLError, AttributeError):
            return None

    def _supported(self) -> list[int]:
        n = self.nvml
        try:
            return list(n.nvmlDeviceGetSupportedGraphicsClocks(self.gpu, n.nvmlDeviceGetSupportedMemoryClocks(self.gpu)[0]))
        except n.NVMLError:
            return []

    def read(self) -> tuple[float, float, float]:
        """Power in W, SM clock in MHz, temperature in °C."""
        n = self.nvml
        power = (self._instant() if self.instant else None) or n.nvmlDeviceGetPowerUsage(self.gpu) / 1e3
        clock = n.nvmlDeviceGetClockInfo(self.gpu, n.NVML_CLOCK_SM)
        return power, clock, n.nvmlDeviceGetTemperature(self.gpu, n.NVML_TEMPERATURE_GPU)

    def limits(self) -> dict[str, tuple[float, str]]:
        n, out = self.nvml, {}
        try:
            out["power_w"] = (n.nvmlDeviceGetEnforcedPowerLimit(self.gpu) / 1e3, "NVML: enforced power limit")
            heat = n.nvmlDeviceGetTemperatureThreshold(self.gpu, n.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)
            out["temperature_c"] = (heat, "NVML: slowdown threshold")
        except n.NVMLError:
            pass
        return out

    def lock(self, share: float | None) -> bool:
        """Lock the clock at a share of the highest, or (None) unlock it; False if that is not allowed."""
        n = self.nvml
        try:
            if share is None:
                n.nvmlDeviceResetGpuLockedClocks(self.gpu)
            elif self.clocks:
                wanted = min(self.clocks, key=lambda mhz: abs(mhz - share * self.clocks[-1]))
                n.nvmlDeviceSetGpuLockedClocks(self.gpu, self.clocks[0], wanted)
            return bool(self.clocks)
        except n.NVMLError:
            return False


class Smi:
    """The first GPU through a running nvidia-smi."""

    def __init__(self) -> None:
        query = "--query-gpu=power.draw,clocks.sm,temperature.gpu,enforced.power.limit"
        command = ["nvidia-smi", query, "--format=csv,noheader,nounits", "-i", "0", "-lms", "50"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.last: list[float] = self._line()
        threading.Thread(target=self._follow, daemon=True).start()

    def _line(self) -> list[float]:
        assert self.process.stdout is not None
        return [float(x) for x in self.process.stdout.readline().split(",")]

    def _follow(self) -> None:
        try:
            while True:
                self.last = self._line()
        except ValueError:
            return  # nvidia-smi has ended

    def read(self) -> tuple[float, float, float]:
        return self.last[0], self.last[1], self.last[2]

    def limits(self) -> dict[str, tuple[float, str]]:
        return {"power_w": (self.last[3], "nvidia-smi: enforced power limit")}

    def lock(self, share: float | None) -> bool:
        return False


class Sampler(threading.Thread):
    """Reads the sensors all the time."""

    def __init__(self, gpu: Any) -> None:
        super().__init__(daemon=True)
        self.gpu, self.rows, self.ended = gpu, list[tuple[int, float, float, float]](), threading.Event()

    def run(self) -> None:
        while not self.ended.wait(SAMPLE_S):
            self.rows.append((time.time_ns(), *self.gpu.read()))

    def power_since(self, begin_ns: int) -> float:
        values = [row[1] for row in self.rows[-400:] if row[0] >= begin_ns]
        return float(np.mean(values)) if values else float("nan")


def burst(torch: Any) -> Callable[[float], None]:
    """A load that computes for about a share of BURST_S."""
    a, b = (torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(a)

    def run(times: int) -> None:
        for _ in range(times):
            torch.matmul(a, b, out=out)
        torch.cuda.synchronize()

    run(20)
    began = time.perf_counter()
    run(50)
    per_burst = max(1, round(BURST_S * 50 / (time.perf_counter() - began)))
    return lambda share: run(max(1, round(share * per_burst)))


def record(
    gpu: Any, load: Callable[[float], None], seconds: float, seed: int, set_point_w: float | None = None, lever: str = ""
) -> tuple[Any, ...]:
    """Steps and samples of one run, governed by a lever if a set point is given."""
    rng = np.random.default_rng(seed)
    sampler, steps, share, idle = Sampler(gpu), list[tuple[int, float]](), 1.0, 0.0
    sampler.start()
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        begin_ns, began = time.time_ns(), time.perf_counter()
        load(float(np.clip(rng.normal(1, 0.08), 0.6, 1.4)))
        time.sleep(PAUSE_S + idle)
        steps.append((begin_ns, (time.perf_counter() - began) * 1e3))
        power = sampler.power_since(steps[-AVERAGE:][0][0])
        if set_point_w is None or not np.isfinite(power):
            continue
        above = GAIN[lever] * (power / set_point_w - 1)
        if lever == "clock":
            share = float(np.clip(share - above, 0.4, 1.0))
            gpu.lock(share)
        else:
            idle = float(np.clip(idle + above * (BURST_S + PAUSE_S), 0.0, 1.0))
    sampler.ended.set()
    sampler.join()
    return steps, sampler.rows


def write(folder: Path, steps: Any, rows: Any, limits: dict[str, tuple[float, str]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "steps.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(("worker", "step", "step_time_ms", "start_ns"))
        out.writerows((0, step, f"{ms:.4f}", begin) for step, (begin, ms) in enumerate(steps))
    with (folder / "metrics.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(("time_ns", "component", "metric", "value", "limit", "limit_source"))
        for at, *values in rows:
            for metric, value in zip(("power_w", "clock_mhz", "temperature_c"), values, strict=True):
                out.writerow((at, "rank 0", metric, f"{value:.3f}", *limits.get(metric, ("", ""))))


def described(name: str, steps: Any, rows: Any) -> str:
    took, power = np.array([ms for _, ms in steps]), np.array([row[1] for row in rows])
    rate = len(rows) / ((rows[-1][0] - rows[0][0]) / 1e9)
    return (
        f"{name}: {len(steps)} steps of {np.median(took):.0f} ms (p95 {np.quantile(took, 0.95):.0f}), "
        f"{power.mean():.0f} W mean, {np.quantile(power, 0.95):.0f} W p95, {rate:.0f} samples/s"
    )


def main() -> int:
    """Record both runs and print one line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lever", choices=("duty", "clock"), default="duty", help="what the governor moves")
    args = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("no torch here: install it with CUDA to record a GPU", file=sys.stderr)
        return 1
    if not torch.cuda.is_available():
        print("no GPU here: nothing recorded", file=sys.stderr)
        return 1
    try:
        gpu: Any = Nvml()
    except Exception:  # pynvml is missing, or too old, or its library is
        if shutil.which("nvidia-smi") is None:
            print("neither pynvml nor nvidia-smi here: power cannot be read", file=sys.stderr)
            return 1
        gpu = Smi()
    load = burst(torch)
    if args.lever == "clock" and not gpu.lock(1.0):
        print("clocks cannot be locked here: use --lever duty", file=sys.stderr)
        return 1
    record(gpu, load, 10.0, args.seed)  # warms the board up
    steps, rows = record(gpu, load, args.seconds, args.seed)
    write(args.out / "uncoupled", steps, rows, gpu.limits())
    lines = [described("uncoupled", steps, rows)]
    set_point_w = SET_POINT * float(np.mean([row[1] for row in rows]))
    try:
        steps, rows = record(gpu, load, args.seconds, args.seed + 1, set_point_w, args.lever)
    finally:
        if args.lever == "clock":
            gpu.lock(None)
    write(args.out / "governed", steps, rows, gpu.limits())
    lines.append(described(f"governed by {args.lever} at {set_point_w:.0f} W", steps, rows))
    print(f"{torch.cuda.get_device_name(0)}: {'; '.join(lines)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
