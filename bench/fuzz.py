"""Fuzzes every reader, option and run folder of taut with mutated small inputs; docs/fuzzing.md says how, and what was found.

python bench/fuzz.py                                   # every target, 20,000 cases
python bench/fuzz.py --cases 200000 --jobs 2           # the long form
python bench/fuzz.py --target kineto --minutes 5 --seed 7
python bench/fuzz.py --plain                           # kernels as Python that refuses indices out of bounds
python bench/fuzz.py --target kineto --seed 7 --case 4711   # one case again, with its traceback
python bench/fuzz.py --kept                            # the kept seeds of crashes
python bench/fuzz.py --atheris flight.pickles --minutes 5      # guided by coverage; needs atheris
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]
warnings.simplefilter("ignore")
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")


def main() -> int:
    """Run, report; 1 if anything was found."""
    asked = _arguments()
    if asked.atheris:
        from fuzzing.guided import guided

        return guided(asked.atheris, asked.minutes, asked.seed)
    if asked.plain:
        from fuzzing.plain import install

        install()
    elif not asked.small:
        from taut.core.jit import expect

        expect(math.inf)  # from here on every kernel is compiled, however few rows it is given
    from fuzzing import kept, report, workers
    from fuzzing.targets import TARGETS

    if asked.list:
        print("\n".join(TARGETS))
        return 0
    names = asked.target or list(TARGETS)
    if asked.case is not None:
        return report.one(names[0], asked.seed, asked.case, asked.show)
    if asked.kept:
        return kept.run()
    if asked.seeds:
        lines = workers.warm([name for name in names if name != "otf2"])  # its library may be absent
        print("\n".join(lines))
        return 1 if lines else 0
    begin = time.monotonic()
    warming = 0 if asked.plain or asked.small else workers.WARM
    print("\n".join(workers.warm(names, warming)), file=sys.stderr)
    print(f"warm after {time.monotonic() - begin:.1f} s", file=sys.stderr)
    cases = asked.cases or (10**7 if asked.minutes else 20_000)
    until = time.monotonic() + 60 * asked.minutes if asked.minutes else float("inf")
    outcomes = workers.run(workers.plan(names, cases), asked.seed, asked.jobs, until)
    return report.summed(outcomes, asked, len(names))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", action="append", help="only this target; may be given again")
    parser.add_argument("--cases", type=int, help="number of cases in all  [default: 20000]")
    parser.add_argument("--minutes", type=float, default=0.0, help="stop after so long")
    parser.add_argument("--seed", type=int, default=0, help="decides every case")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="worker processes")
    parser.add_argument("--plain", action="store_true", help="kernels as Python over arrays that check every index")
    parser.add_argument("--small", action="store_true", help="kernels as for a user with small inputs: not compiled")
    parser.add_argument("--case", type=int, help="run one case of the target here, and show what happens")
    parser.add_argument("--show", type=Path, help="with --case: write the files of the case into this folder")
    parser.add_argument("--out", type=Path, default=Path("fuzz-found"), help="folder for what is found")
    parser.add_argument("--kept", action="store_true", help="run the kept seeds of crashes")
    parser.add_argument("--keep", action="store_true", help="add what is found to the kept seeds")
    parser.add_argument(
        "--atheris", metavar="PARSER", help="fuzz one parser guided by coverage: pickle, wire, dates, lines, json …"
    )
    parser.add_argument("--seeds", action="store_true", help="only run the seeds as they are: all must be accepted")
    parser.add_argument("--list", action="store_true", help="name the targets")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
