"""All-reduce on one DGX H100 (8 devices, NVSwitch) by size: measured with nccl-tests, and what the shipped fabric says.

    python validation/allreduce.py [--shared ../shared/validation] [--fit]

The measurement is a log of nccl-tests in dgxc-benchmarking (MIT), times in place; those out of place have two outliers of
the first use of a buffer. Every other size was fitted (`--fit` fits again), the ones between were not; which protocols
there are was decided with the whole table in view.
"""

from __future__ import annotations

import argparse
import csv
import tomllib
from importlib import resources
from pathlib import Path

import msgspec
import numpy as np

from taut.project.fabric.groups import Net
from taut.project.training.scenario import Fabric, Job, Protocol

FILE = "nccl_allreduce_dgxh100_8gpu.csv"
FITTED = {"LL, tree": (10.0, 0.02), "LL, ring": (8.0, 0.3), "LL128, ring": (5.0, 0.6), "NVLS": (60.0, 0.6)}
"""Protocols that are fitted, and where the fit begins: start in µs, share of the bandwidth."""


def shipped() -> Fabric:
    text = (resources.files("taut") / "scenarios" / "fabrics" / "h100-ndr.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), Fabric)


def times_us(fabric: Fabric, sizes: list[int]) -> list[float]:
    """What the eight devices of a node take."""
    net = Net(Job(global_batch=1, tp=8), fabric)
    return [net.ns("all-reduce", "tp", size) / 1e3 for size in sizes]


def measured(folder: Path) -> tuple[list[int], list[float]]:
    with (folder / FILE).open(encoding="utf-8") as stream:
        rows = [(int(row["size_B"]), float(row["t_us_ip"])) for row in csv.DictReader(stream)]
    return [size for size, _ in rows], [took for _, took in rows]


def rows(folder: Path, fabric: Fabric | None = None) -> list[tuple[int, float, float, float, bool]]:
    """(bytes, measured µs, ours, relative difference, whether it was fitted)."""
    sizes, theirs = measured(folder)
    ours = times_us(fabric or shipped(), sizes)
    both = enumerate(zip(sizes, theirs, ours, strict=True))
    return [(size, t, o, o / t - 1, k % 2 == 0) for k, (size, t, o) in both]


def changed(fabric: Fabric, values: np.ndarray) -> Fabric:
    """The fabric with other starts and shares of the fitted protocols."""
    given = dict(zip(FITTED, values.reshape(-1, 2).tolist(), strict=True))

    def one(p: Protocol) -> Protocol:
        start, share = given.get(p.name, (p.start_us, p.bandwidth_share))
        return msgspec.structs.replace(p, start_us=start, bandwidth_share=share)

    inner = msgspec.structs.replace(fabric.tiers[0], protocols=tuple(map(one, fabric.tiers[0].protocols)))
    return msgspec.structs.replace(fabric, tiers=(inner, *fabric.tiers[1:]))


def fit(folder: Path) -> Fabric:
    """Least squares of relative errors over every other size."""
    from scipy.optimize import least_squares

    sizes, theirs = measured(folder)
    fabric, begin = shipped(), np.array(list(FITTED.values())).ravel()

    def errors(values: np.ndarray) -> np.ndarray:
        return np.log(np.array(times_us(changed(fabric, values), sizes[::2])) / theirs[::2])

    found = least_squares(errors, begin, x_scale=begin, bounds=(np.tile([0, 0.01], 4), np.tile([200, 1.0], 4)))
    return changed(fabric, found.x)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shared", type=Path, default=Path("../shared/validation"))
    parser.add_argument("--fit", action="store_true")
    options = parser.parse_args()
    if not (options.shared / FILE).exists():
        print(f"needs {options.shared / FILE} (not part of a user's clone)")
        return
    fabric = fit(options.shared) if options.fit else shipped()
    if options.fit:
        for p in fabric.tiers[0].protocols:
            print(f"{p.name}: start_us = {p.start_us:.3g}, bandwidth_share = {p.bandwidth_share:.3g}")
        print()
    table = rows(options.shared, fabric)
    print("| bytes | measured µs | ours µs | difference | |\n|---|---|---|---|---|")
    for size, theirs, ours, difference, fitted in table:
        print(f"| {size:,} | {theirs:,.1f} | {ours:,.1f} | {100 * difference:+.1f} % | {'fitted' if fitted else ''} |")
    for name, wanted in (("fitted", True), ("not fitted", False)):
        off = [abs(difference) for *_, difference, fitted in table if fitted == wanted]
        print(f"\n{name}: mean {100 * np.mean(off):.1f} %, largest {100 * max(off):.1f} %")


if __name__ == "__main__":
    main()
