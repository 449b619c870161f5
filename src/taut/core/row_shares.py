"""What threads of this machine do side by side: rows of long columns, cut into shares, and what nobody waits for yet.

Kernels run without Python's lock, and columns lie in one place that all threads see, so nothing is copied or sent. What is
asked of rows here is asked of each by itself, or of each group of rows: a share writes rows of its own, or tells whole numbers
that are put together, and wherever columns are cut, the numbers are the same. Without a team all rows are one share, done here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from msgspec import Struct

from taut.core.array_types import Ints
from taut.core.scratch import is_on_disk

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

T = TypeVar("T")

LEAST_ROWS = 1 << 17
"""Rows that are worth a thread: a kernel takes about as long for them as to have a thread begin with them."""


class _Team(Struct, frozen=True):
    """Threads that wait for shares, and how many rows a share has; 0 for as many shares as there are threads.

    ``others`` do what is asked for later, and hand on shares themselves.
    """

    pool: ThreadPoolExecutor
    others: ThreadPoolExecutor
    threads: int
    rows: int


_teams: list[_Team] = []
"""The last is at work."""
_inside = threading.local()
"""What a thread does now: of a share no further shares are made, and nothing is done meanwhile to what is done meanwhile."""


@contextmanager
def side_by_side(threads: int, rows: int = 0) -> Iterator[None]:
    """Have so many threads work on long columns, in shares of so many rows or of as many as there are threads."""
    if threads < 2 and not rows:
        yield
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max(threads - 1, 1)) as pool, ThreadPoolExecutor(threads) as others:
        team = _Team(pool, others, threads, rows)
        _teams.append(team)
        try:
            yield
        finally:
            _teams.remove(team)


def over_rows(work: Callable[[slice], T], count: int) -> list[T]:
    """What ``work`` gives for each share of so many rows, in their order."""
    team = _team()
    size = count if team is None else team.rows or max(LEAST_ROWS, -(-count // team.threads))
    return _done(team, work, [slice(first, min(first + size, count)) for first in range(0, count, max(size, 1))])


def over_groups(work: Callable[[slice], T], begin: Ints) -> list[T]:
    """The same for shares of whole groups of rows, by where the rows of each group begin; one more than there are groups."""
    groups, team = len(begin) - 1, _team()
    if team is None:
        return [work(slice(0, groups))]
    rows = int(begin[-1])
    size = team.rows or max(LEAST_ROWS, -(-rows // team.threads))
    edges = np.searchsorted(begin, np.arange(size, rows, size)).tolist()
    cuts = sorted({0, *edges, groups})
    return _done(team, work, [slice(*pair) for pair in pairwise(cuts)])


def meanwhile(work: Callable[[], T]) -> Callable[[], T]:
    """What tells the result of some work, which another thread does meanwhile.

    It is done here and now without a team, and where columns lie on disk because memory is short.
    """
    if not _teams or is_on_disk() or getattr(_inside, "is_meanwhile", False):
        done = work()
        return lambda: done

    def alone() -> T:
        _inside.is_meanwhile = True
        return work()

    asked: Future[T] = _teams[-1].others.submit(alone)
    return asked.result


def threads_at_work() -> int:
    """Threads that work on rows now; 1 without a team."""
    team = _team()
    return 1 if team is None else team.threads


def is_shared() -> bool:
    """Whether long columns are cut into shares now."""
    return _team() is not None


def _team() -> _Team | None:
    return None if not _teams or getattr(_inside, "is_share", False) else _teams[-1]


def _done(team: _Team | None, work: Callable[[slice], T], shares: list[slice]) -> list[T]:
    if team is None or len(shares) < 2:
        return [work(share) for share in shares or [slice(0, 0)]]

    def alone(share: slice) -> T:
        _inside.is_share = True
        try:
            return work(share)
        finally:
            _inside.is_share = False

    rest = [(share, team.pool.submit(alone, share)) for share in shares[1:]]
    try:
        # Who asks does the first share, and whatever nobody has begun with: so it never waits for what waits for it.
        first = alone(shares[0])
        return [first, *(alone(share) if one.cancel() else one.result() for share, one in rest)]
    finally:
        for _, one in rest:
            one.cancel()
