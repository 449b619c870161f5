"""Control experiments: real processes, the control logs they leave, the truth beside them, and the score."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
from rich.console import Console

from taut.lab import control_launch, control_pair, control_slurm
from taut.lab.control_truth import Truth
from taut.lab.score_table import Grid
from taut.result.types import ControlResult, RelationResult

RESULT = "result.json"
Run = Callable[[Path, int, bool], Sequence[tuple[Path, Truth]]]
EXPERIMENTS: dict[str, tuple[Run, Callable[[], str | None]]] = {
    control_pair.EXPERIMENT: (control_pair.run, control_pair.missing),
    control_launch.EXPERIMENT: (control_launch.run, control_launch.missing),
    control_slurm.EXPERIMENT: (control_slurm.run, control_slurm.missing),
}
"""What runs an experiment, and what says, in one line, why it cannot run here."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One case, scored."""

    experiment: str
    case: str
    truth: str
    as_predicted: bool
    found: tuple[str, ...]
    """Relations that ``taut control`` named."""
    regime: str | None
    verdict: str
    """right or wrong."""


def run(names: Sequence[str], folder: Path, seed: int, short: bool) -> Iterator[Row | str]:
    """Run experiments and score them; one that cannot run here gives a line instead."""
    for name in names:
        start, missing = EXPERIMENTS[name]
        why = missing()
        if why:
            yield f"{name}: left out, {why}"
            continue
        for log, truth in start(folder, seed, short):
            yield judge(log, truth)


def judge(log: Path, truth: Truth) -> Row:
    """What ``taut control`` says of the log (or folder of logs) alone, against the truth; also written beside it.

    Right is to name the relation where it was, and where it was not, nothing that was not there.
    """
    result = _controlled(log)
    (log.parent / RESULT).write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1))
    found = tuple(dict.fromkeys(relation.kind for relation in result.relations))
    named = any(_names(relation, truth) for relation in result.relations)
    right = named if truth.present else set(found) <= set(truth.also)
    return Row(
        experiment=truth.experiment,
        case=truth.case,
        truth=str(truth.measured["outcome"]),
        as_predicted=truth.as_predicted,
        found=found,
        regime=result.regime.kind,
        verdict="right" if right else "wrong",
    )


def _names(relation: RelationResult, truth: Truth) -> bool:
    """Whether a relation is the true one, with those whom the truth knows."""
    return (
        relation.kind == truth.relation
        and (not truth.controllers or set(relation.controllers) == set(truth.controllers))
        and (not truth.target or relation.target == truth.target)
    )


def _controlled(log: Path) -> ControlResult:
    from taut.control.relations import control
    from taut.read.trace import read

    return control(read([str(log)]))


def show(rows: Sequence[Row], console: Console) -> None:
    """Print the table."""
    header = ["experiment", "truth", "as predicted", "taut control", "verdict"]
    body = [
        [
            f"{row.experiment}, {row.case}",
            row.truth,
            "yes" if row.as_predicted else "no",
            f"{row.regime or 'not known'}: {', '.join(row.found) or 'no relation'}",
            row.verdict,
        ]
        for row in rows
    ]
    Grid(header, body).show(console)
