"""Lines of MLPerf's logger among those of a training (``:::MLLOG {…}``, and ``:::MLL``, ``:::MLPv0.5.0`` of old).

Runs, their result and their accelerators are told there, to the millisecond, and epochs, blocks or steps.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from taut.core.array_types import Json
from taut.core.tables import NULL
from taut.read.jobs.job_words import COMPLETED, FAILED, SECOND, count_or_null, cut
from taut.read.jobs.log_lines import Progress

MARK = re.compile(rb":::ML(?:LOG \{|L \d{9,10}\.|Pv\d\.\d\.\d )")
_NOW = re.compile(r":::MLLOG (\{.{1,2000})")
_SINCE_06 = re.compile(r":::MLL (\d{9,10}\.\d{1,9}) (\w{1,80}): (\{.{1,2000})")
_FIRST = re.compile(r":::MLPv\S{1,12} \S{1,80} (\d{9,10}\.\d{1,9}) \(\S{0,300}\) (\w{1,80})(?:: (.{0,2000}))?")
BEGINS = ("cache_clear", "submission_benchmark", "init_start", "run_start", "run_set_random_seed", "run_clear_caches")
STEPS = ("step", "step_num", "iteration", "iter_num", "global_step")
SUCCESS = ("success", "SUCCESS", True)


class Event(msgspec.Struct):
    """One line."""

    key: str
    time_ns: int
    value: Json = None
    metadata: dict[str, Any] = {}


class _Line(msgspec.Struct):
    key: str = ""
    time_ms: float = -1.0
    value: Any = None
    metadata: dict[str, Any] | None = None
    status: Any = None


def event_of(line: str) -> Event | None:
    """What a line says; None if it breaks off."""
    try:
        if found := _NOW.search(line):
            # What follows the object is another process's line.
            text = found[1][: found[1].rindex("}") + 1] if "}" in found[1] else found[1]
            now = msgspec.json.decode(text, type=_Line)
            at = round(now.time_ms * 1000) * 1000 if 0 < now.time_ms < 9e12 else NULL
            return Event(now.key, at, now.value, {"status": now.status} | (now.metadata or {}))
        if found := _SINCE_06.search(line):
            old = msgspec.json.decode(found[3], type=_Line)
            return Event(found[2], _ns(found[1]), old.value, old.metadata or {})
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
        return None
    first = _FIRST.search(line)
    if not first:
        return None
    try:
        value: Json = msgspec.json.decode(first[3] or "null")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = first[3]
    return Event(first[2], _ns(first[1]), value, value if isinstance(value, dict) else {})


def _ns(seconds: str) -> int:
    whole, _, fraction = seconds.partition(".")
    return int(whole) * SECOND + int(fraction.ljust(9, "0"))


class Benchmark:
    """The runs of a benchmark: a run that stopped, and one that begins after it, are two."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.counts = ""
        """What is counted as a step: the steps themselves, or epochs where the log has none."""
        self.sizes: dict[str, int] = {}
        self.stop: Event | None = None
        """The end of the run, if it is past."""

    def read(self, line: str) -> None:
        """One line."""
        event, progress = event_of(line), self.progress
        if event is None:
            return
        progress.pass_time(event.time_ns)
        if event.key in BEGINS:
            self.finish()
            progress.sign_of_life()
        elif event.key == "run_stop":
            progress.sign_of_life()
            self.stop = event
        elif event.key in ("number_of_ranks", "number_of_nodes", "accelerators_per_node"):
            self._size(event)
        else:
            self._advance(event)
        if event.key == "submission_benchmark":
            progress.name = cut(event.value)

    def finish(self) -> None:
        """A run that stopped is over, when another begins or the log ends; what is logged in between belongs to it."""
        event, self.stop = self.stop, None
        if event is None or self.progress.current.over:
            return
        status = event.metadata.get("status", event.metadata.get("success", event.value))
        well = status in SUCCESS
        reason = "" if well else f"run_stop with status {cut(status) or 'unknown'}"
        self.progress.close(COMPLETED if well else FAILED if status else "", reason, event.time_ns)

    def _size(self, event: Event) -> None:
        self.sizes[event.key] = count_or_null(event.value)
        nodes, each = self.sizes.get("number_of_nodes", NULL), self.sizes.get("accelerators_per_node", NULL)
        if nodes > 0 and each > 0:
            self.progress.tasks, self.progress.unit = min(nodes * each, 1 << 24), "accelerator"
        elif self.sizes.get("number_of_ranks", NULL) > 0:
            self.progress.tasks = self.sizes["number_of_ranks"]

    def _advance(self, event: Event) -> None:
        """A step, or the end of an epoch or block where no steps are logged."""
        if self.stop is not None or self.progress.current.over:
            return  # evaluation after the run
        found = event.metadata
        number, counts = next((_last(found[key]) for key in STEPS if key in found), NULL), "steps"
        if number < 0 and event.key in ("epoch_stop", "block_stop"):
            number, counts = _last(found.get("epoch_num", found.get("first_epoch_num", event.value))), "epochs"
        if number < 0 and event.key in (
            "block_stop",
            "eval_stop",
            "eval_accuracy",
            "eval_error",
            "tracked_stats",
            "train_loss",
        ):
            number, counts = _last(found.get("samples_count")), "samples"
        if number >= 0 and self.counts in ("", counts):
            self.counts = counts
            # What is logged late, or of another process, does not go back.
            self.progress.step(max(number, self.progress.current.last_step))

    def notes(self, label: str) -> list[str]:
        """What a reader of the figures must know."""
        return [f"{label} logs {self.counts}: they are counted as its steps"] if self.counts in ("epochs", "samples") else []


def _last(value: Json) -> int:
    """A count, or the last of several: epoch and step."""
    return count_or_null(value[-1] if isinstance(value, list) and value else value, 2**53)
