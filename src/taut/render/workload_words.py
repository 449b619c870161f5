"""What a workload is made of, and what its delivered work is counted in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from taut.render.text import safe
from taut.result.types import Estimate, Forecast


@dataclass(frozen=True)
class Words:
    """The words that a screen uses for a workload."""

    piece: str
    unit: str
    """A unit of delivered work."""
    where: str
    """Title of the table that says where its time goes."""
    ranks: str = "rank"
    kept: str = "kept"
    """Title of the column that says what of the accelerators' work is of use."""
    rate: str = "tokens/s"
    """What is delivered a second."""

    def cost(self, rows: Sequence[Forecast]) -> str:
        """The name of a column of unit costs, with its currency."""
        found = {row.currency for row in rows if row.currency}
        return f"cost of {self.unit}" + (f", {safe(str(found.pop()))}" if len(found) == 1 else "")

    def index(self, name: str) -> str:
        """What an index is called: that of a useful step is of a request or a task where there are no steps."""
        return name.replace("_", " ").replace("step", self.piece)

    def kept_of(self, row: Forecast) -> float | None:
        """What of the accelerators' work is of use: of loops what they are paid for, else what they could do at best."""
        paid = self is WORDS["loops"]
        return middle_of(row.indices.get("effective_capacity") if paid else row.effective_throughput_ratio)


def middle_of(number: Estimate | float | None) -> float | None:
    """A number, or the middle of an estimate."""
    return number.value if isinstance(number, Estimate) else number


TRAINING = Words("step", "1M tokens", "share of a step")
WORDS = {
    "serving": Words("request", "1M tokens", "share of a request", "accelerator", rate="requests/s as promised"),
    "agents": Words("task", "a task", "share of a task", "accelerator", rate="tasks/s as promised"),
    "loops": Words("request", "1,000 requests", "share of accelerators", "accelerator", "of use", "requests/s"),
}
"""Workload → its words; a training job and a measured run have steps."""


def words_of(workload: str) -> Words:
    """The words of a workload by its name in the result."""
    return WORDS.get(workload, TRAINING)
