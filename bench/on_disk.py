"""The laws of large jobs on real and random ones: columns in files, and rows in shares, give the same bytes.

    python bench/on_disk.py DATA [--random 200] [--seed 1]

Every input of DATA (as ``same.py`` lists them) is analyzed by one thread with all columns in memory, with every column in a
file, however short it is, and by three threads in shares of a random number of rows; then modelled jobs of all kinds, sizes
and faults are. Exits 1 if a byte of a result differs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import same

import taut
from taut.core import scratch
from taut.core.errors import TautError
from taut.core.jit import expect
from taut.core.row_shares import side_by_side
from taut.lab.modelled import FAULTS, JOBS, modelled
from taut.run import analyze_trace


def told(make: object) -> str:
    """A result as text, or why there is none."""
    try:
        return make().to_json()
    except TautError as error:
        return f"{type(error).__name__}: {error}"


def cases(asked: argparse.Namespace) -> Iterator[tuple[str, object]]:
    """Name of every job, and what analyzes it."""
    for name, inputs in same.cases(asked.data.resolve()):
        yield name, lambda inputs=inputs: taut.analyze(list(inputs))
    rng = np.random.default_rng(asked.seed)
    for k in range(asked.random):
        shape, fault = str(rng.choice(list(JOBS))), str(rng.choice(FAULTS))
        ranks, steps = int(rng.choice([16, 24, 32])), int(rng.integers(12, 40))
        try:
            trace, _ = modelled(shape, fault, ranks, asked.seed + k, steps=steps)
        except TautError:  # no such fault in such a job
            trace, _ = modelled(shape, "none", ranks, asked.seed + k, steps=steps)
        yield f"{shape} {fault} {ranks} ranks {steps} steps", lambda trace=trace: analyze_trace(trace)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--random", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    expect(1 << 20)
    scratch.LEAST_BYTES = 1
    count, refused, wrong, cut = 0, 0, [], np.random.default_rng(asked.seed)
    with tempfile.TemporaryDirectory() as folder:
        for name, make in cases(asked):
            in_memory = told(make)
            with scratch.columns_on_disk(folder):
                on_disk = told(make)
            rows = int(np.exp(cut.uniform(np.log(300), np.log(1 << 18))))
            with side_by_side(3, rows):
                shared = told(make)
            count, refused = count + 1, refused + (not in_memory.startswith("{"))
            different = [how for how, one in (("in files", on_disk), (f"in shares of {rows}", shared)) if one != in_memory]
            if different:
                wrong.append(name)
                print(f"differs: {name} {' and '.join(different)}", flush=True)
    print(f"{count} jobs ({refused} refused, in the same words), {len(wrong)} differ")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
