"""Steps of a trace by the numbers that the job's own log gives them."""

from __future__ import annotations

from taut.result.types import AnalysisResult


def log_offset(result: AnalysisResult) -> int | None:
    """What is added to the number of a traced step to have that of the log; None where it is not told, or nothing.

    The log tells it where the traced attempt begins and ends as far from the trace: its first step may be the one that a
    profiler's start-up is in, which is not kept.
    """
    found, job = result.attempts, result.job
    row = None if found is None else next((row for row in found.rows if row.attempt == found.traced_attempt), None)
    if found is None or found.jobs != 1 or row is None or row.first_step is None or row.last_step is None:
        return None
    if job.first_step is None or job.last_step is None:
        return None
    offset = row.last_step - job.last_step
    return offset if offset and row.first_step - job.first_step - offset in (0, -1) else None


def steps_words(first: int, last: int, unit: str, offset: int | None) -> str:
    """Steps from … to …, by the log where it numbers them."""
    if offset is None:
        return f"{unit}s {first:,}–{last:,}"
    return f"{unit}s {first + offset:,}–{last + offset:,} of its log (traced {unit}s {first:,}–{last:,})"
