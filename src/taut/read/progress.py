"""Progress logs beside the traces: CSV or JSON lines with a step and its loss (or metric), one line per executed step.

They tell which steps were kept: one that is executed again was lost the first time. Rank, tokens, times and flags
(``kept``, ``discarded``, ``skipped``) are used where a log has them. Who keeps what is judged elsewhere.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from taut.errors import InputRefused
from taut.tables import NULL, Progress, Table, concat

SPELLINGS: dict[str, tuple[str, ...]] = {
    "step": ("step", "global_step", "iteration", "iter", "train_step"),
    "loss": ("loss", "train_loss", "training_loss", "lm_loss", "lm loss", "train/loss", "metric", "perplexity", "reward"),
    "rank": ("rank", "global_rank", "worker", "replica"),
    "tokens": ("tokens", "num_tokens", "step_tokens", "samples"),
    "kept": ("kept",),
    "discarded": ("discarded", "rolled_back"),
    "skipped": ("skipped", "skipped_step"),
    "start": ("start_ns", "start_ms", "start_s", "start"),
    "end": ("end_ns", "end_ms", "end_s", "end", "time_ns", "timestamp", "time_s", "wall_time", "time"),
}
UNITS_NS = {"ns": 1.0, "ms": 1e6, "s": 1e9}
"""Times without a unit in their name are seconds."""
LINES = 50
"""JSON lines looked at for a step and a loss: the first ones may hold the configuration."""
MOST = 2**53
"""Larger numbers are no steps, tokens or times."""
KEPT, DISCARDED, SKIPPED = 1, 0, 2
"""Values of ``Progress.kept``."""
TRUE, FALSE = ("1", "true", "yes", "t", "y", "1.0"), ("0", "false", "no", "f", "n", "0.0")
_RANK = re.compile(r"(?:rank|worker)\D?(\d{1,7})(?!\d)", re.IGNORECASE)


def sniff(head: bytes) -> bool:
    """A CSV header, or one of the first JSON lines, that names a step and a loss."""
    if b"\x00" in head[:1024]:
        return False
    lines = head.decode("utf-8", "replace").lstrip("\ufeff").splitlines()[:LINES]
    if lines and lines[0].lstrip().startswith("{"):
        return any(_has(_decoded(line)) for line in lines)
    return bool(lines) and _has(next(csv.reader(lines[:1]), []))


def _has(names: Any) -> bool:
    found = {str(name).strip().lower() for name in names or ()}
    return all(found.intersection(SPELLINGS[key]) for key in ("step", "loss"))


def _decoded(line: str) -> dict[str, Any] | None:
    """One JSON line as a mapping; None if it is none. Python's own reader, because logs hold NaN."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def load(data: bytes, label: str) -> Table:
    """The steps of one log, in the order they were written."""
    text = bytes(data).decode("utf-8", "replace").lstrip("\ufeff")
    rows = _json_rows(text, label) if text.lstrip().startswith("{") else _csv_rows(text, label)
    columns: dict[str, list[Any]] = {key: [] for key in ("rank", "step", "loss", "tokens", "kept", "start_ns", "end_ns")}
    for row in rows:
        step = _number(row.get("step"))
        if not abs(step) <= MOST or "loss" not in row:
            continue
        columns["step"].append(int(step))
        columns["loss"].append(_number(row["loss"]))
        columns["rank"].append(_whole(row.get("rank")) if _whole(row.get("rank")) < 1 << 31 else NULL)
        columns["tokens"].append(_whole(row.get("tokens")))
        columns["kept"].append(_fate(row))
        columns["start_ns"].append(_whole(row.get("start")))
        columns["end_ns"].append(_whole(row.get("end")))
    if not columns["step"]:
        raise InputRefused(label, "a progress log without a line that holds a step and a loss", "leave the file out")
    table = Table(Progress, {key: np.array(values) for key, values in columns.items()})
    named = _RANK.search(re.split(r"[/\\:]", label)[-1])
    return table if named is None or (table.rank >= 0).any() else table.replace(rank=np.full(len(table), int(named[1])))


def _json_rows(text: str, label: str) -> Iterator[dict[str, Any]]:
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        found = _decoded(line)
        if found is None:
            if number == len(lines):
                return  # the job was stopped while it wrote
            raise InputRefused(f"{label}:{number}", "not a JSON line", "cut the file before this line")
        yield _spelled({str(key).strip().lower(): value for key, value in found.items()})


def _csv_rows(text: str, label: str) -> Iterator[dict[str, Any]]:
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        header = [name.strip().lower() for name in next(reader)]
        for row in reader:
            if row:
                yield _spelled(dict(zip(header, row, strict=False)))
    except csv.Error as error:
        raise InputRefused(f"{label}:{reader.line_num}", f"not a readable CSV ({error})", "cut the file there") from None


def _spelled(row: Mapping[str, Any]) -> dict[str, Any]:
    """The fields by our own names, times in ns."""
    out: dict[str, Any] = {}
    for key, spellings in SPELLINGS.items():
        name = next((s for s in spellings if s in row), None)
        if name is None:
            continue
        out[key] = row[name]
        if key in ("start", "end"):
            out[key] = _time_ns(row[name], UNITS_NS.get(name.rpartition("_")[2], 1e9))
    return out


def _time_ns(value: Any, unit: float) -> Any:
    """Whole nanoseconds: an integer stays exact, which a float of an epoch time would not."""
    if unit == 1.0 and isinstance(value, str) and value.strip().isdigit():
        return int(value)
    return value if unit == 1.0 else _number(value) * unit


def _number(value: Any) -> float:
    """A number; NaN for anything else, infinities included."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return float("nan")
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return float("nan")
    return found if np.isfinite(found) else float("nan")


def _whole(value: Any) -> int:
    """A count or a time, NULL where there is none."""
    found = _number(value)
    if not 0 <= found < 2**63 - 1024:
        return NULL
    return int(value) if isinstance(value, int) else int(found)


def _fate(row: Mapping[str, Any]) -> int:
    """What the log's own flags say."""
    for key, yes, no in (("skipped", SKIPPED, NULL), ("discarded", DISCARDED, KEPT), ("kept", KEPT, DISCARDED)):
        flag = str(row.get(key, "")).strip().lower()
        if flag in TRUE:
            return yes
        if flag in FALSE and no != NULL:
            return no
    return NULL


def gather(logs: Sequence[Table]) -> Table:
    """One log out of several, in the order of time where all of them tell it, else in the order of the files."""
    table = concat(Progress, logs)
    if len(logs) > 1 and (table.end_ns >= 0).all():
        table = table.take(np.argsort(table.end_ns, kind="stable"))
    return table
