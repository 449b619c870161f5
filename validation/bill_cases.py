"""Bills that are small enough to be right by hand, and awkward enough to go wrong, held against `taut bill`.

    python validation/bill_cases.py [--only WORD …] [--keep FOLDER] [--taut COMMAND]

Nothing of taut is imported. Each case prints right or wrong with one line; of a wrong one, each check that failed says what
is true and what was said. Of every answer it is checked as well that all drill-downs add up to its lines.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bill_focus_cases import FOCUS_CASES
from bill_more_cases import MORE_CASES
from bill_price_cases import PRICE_CASES
from bill_trial import Refused, Trial

CASES = (*FOCUS_CASES, *MORE_CASES, *PRICE_CASES)


def tried(case: Callable[[Trial], None], taut: list[str], folder: Path) -> bool:
    """Run one case, print its line."""
    folder.mkdir(parents=True, exist_ok=True)
    trial = Trial(taut, folder)
    try:
        case(trial)
    except Refused as why:
        trial.checks.append(("answer", False, str(why)))
    except (KeyError, TypeError, ValueError, ArithmeticError) as why:
        trial.checks.append(("answer", False, f"not as the contract says: {type(why).__name__} {why}"))
    wrong = [f"{what}: {why}" for what, fine, why in trial.checks if not fine]
    print(f"{'wrong' if wrong else 'right'}  {case.__name__}: {(case.__doc__ or '').splitlines()[0]}", flush=True)
    for one in wrong:
        print(f"         {one}")
    return not wrong


def main() -> None:
    """Run them."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", nargs="*", default=[])
    options.add_argument("--keep", type=Path)
    options.add_argument("--taut", default=f"{sys.executable} -m taut")
    given = options.parse_args()
    chosen = [case for case in CASES if not given.only or any(word in case.__name__ for word in given.only)]
    with tempfile.TemporaryDirectory() as temporary:
        root = (given.keep or Path(temporary)).absolute()
        fine = [tried(case, given.taut.split(), root / case.__name__) for case in chosen]
    print(f"\n{sum(fine)} of {len(fine)} right")
    sys.exit(0 if all(fine) else 1)


if __name__ == "__main__":
    main()
