"""What really happened in a control experiment: ``truth.json`` beside its log, which no reader ever opens."""

from __future__ import annotations

from pathlib import Path

import msgspec

from taut.lab.truth import TRUTH


class Truth(msgspec.Struct, frozen=True, kw_only=True):
    """One case of one experiment. The prediction is on disk before the case runs; the rest is filled in when it ended."""

    experiment: str
    case: str
    seed: int
    done: dict[str, float]
    """What was set up and done to it, in named units."""
    predicted: dict[str, float | str]
    measured: dict[str, float | str] = {}
    """The same from the processes themselves, never from the analysis."""
    relation: str
    """The relation between controllers that this experiment is about."""
    controllers: tuple[str, ...] = ()
    """Who must be named with it, in any order; anybody, if empty."""
    target: str = ""
    """What must be named with it; anything, if empty."""
    also: tuple[str, ...] = ()
    """Other relations that really were there, by what was measured: to name them is right."""
    present: bool | None = None
    """Whether it really was there, by what was measured; None before."""

    @property
    def as_predicted(self) -> bool:
        """Whether it ended as predicted."""
        return self.predicted["outcome"] == self.measured.get("outcome")


def save(truth: Truth, folder: Path) -> None:
    """Write it, in the place of an earlier one."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / TRUTH).write_bytes(msgspec.json.format(msgspec.json.encode(truth), indent=1))
