"""What it means that no waiting is on record: nobody waited, or nobody could know."""

from __future__ import annotations

from taut.result.types import Job


def no_waiting(job: Job) -> str:
    """In a sentence."""
    if job.ranks < 2:
        alone = job.world_size == 1
        return "One rank waits for nobody." if alone else "One rank was traced: whom it waits for is not known."
    if not job.gates:
        return "No meeting of ranks was matched: who waits for whom is not known."
    return "No rank waited for another."
