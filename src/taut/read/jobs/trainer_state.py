"""``trainer_state.json`` of the Trainer of Hugging Face: how far a training had come when it was saved.

It lies in every checkpoint and in the output folder. It has no dates; its length is known once the training ended.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from taut.core.errors import InputRefused
from taut.core.tables import NULL
from taut.read.contents import JobLog
from taut.read.jobs.job_words import COMPLETED, SECOND, count_or_null, table
from taut.read.json_values import without_nan

_FIRST = re.compile(rb'\s*\{\s*"')
_NAME = re.compile(r"([^/\\:]{1,64})[/\\](?:checkpoint-\d{1,12}[/\\])?trainer_state\.json$")
MOST_STEPS, MOST_S = 2**53, 1e9


class _State(msgspec.Struct):
    global_step: Any = None
    max_steps: Any = None
    log_history: list[dict[str, Any]] = []


def sniff(head: bytes) -> bool:
    """An object with a step and a history of what was logged."""
    return _FIRST.match(head) is not None and b'"log_history"' in head and b'"global_step"' in head


def load(data: bytes, label: str) -> JobLog:
    """One attempt: the steps that the state has seen."""
    state = _decoded(bytes(data), label)
    steps = [step for row in state.log_history if (step := count_or_null(row.get("step"), MOST_STEPS)) >= 0]
    last = max([count_or_null(state.global_step, MOST_STEPS), *steps])
    planned = count_or_null(state.max_steps, MOST_STEPS)
    runtimes = [row["train_runtime"] for row in state.log_history if _is_length(row.get("train_runtime"))]
    ran = round(min(sum(runtimes), MOST_S) * SECOND) if runtimes else NULL
    done = bool(runtimes) or 0 < planned <= last
    named = _NAME.search(label)
    columns = {
        "job": named[1] if named else "trainer_state",
        "start_ns": 0 if ran >= 0 else NULL,
        "end_ns": ran,
        "dated": 0,
        "outcome": COMPLETED if done else "",
        "first_step": min(steps, default=last),
        "last_step": last,
        "saved_step": last,
    }
    notes = [f"{label} has no dates" + ("" if ran >= 0 else ": how long the training took is not known")]
    if not done:
        of = f" of {planned:,}" if planned > 0 else ""
        notes.append(f"{label} was saved at step {last:,}{of}: what came after is not in it")
    found = table({key: [value] for key, value in columns.items()}, label)
    return JobLog(label, found, inside=True, partial=notes)


def _is_length(value: object) -> bool:
    return isinstance(value, (int, float)) and 0 <= value <= MOST_S


def _decoded(data: bytes, label: str) -> _State:
    for text in (data, without_nan(data) or b""):
        try:
            return msgspec.json.decode(text, type=_State)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
    raise InputRefused(label, "a trainer_state.json that is damaged or breaks off", "copy it again, or use an older one")
