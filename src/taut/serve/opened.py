"""Runs that are open, and what was made of them: the last used, as far as memory allows.

The event loop only waits. What is heavy runs in a small pool of threads, one at a time for each run and kind of question:
twenty clients that ask for a run open it once, and neither a second run nor a timeline is held up by a long question.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from taut.core import memory
from taut.core.errors import UsageError
from taut.core.tables import Table
from taut.result.types import Part
from taut.serve.catalogue import Catalogue, Place
from taut.serve.refusals import Refused, encoded
from taut.stored import Run, open_run, refusing_runs

if TYPE_CHECKING:
    from taut.views.frames import Frames
    from taut.views.op_detail import OpDetails
    from taut.views.replays import Replays

T = TypeVar("T")
WORKERS = min(4, max(2, os.cpu_count() or 2))
BINDINGS, CUTS = 17, 64
"""Bytes an op of who bound whom, and of the ways to cut the ops for what-ifs."""
LEAST_BUDGET, SHARE = 256 << 20, 0.5
"""Bytes for runs that are open: this share of the machine's memory."""


@dataclass
class OpenRun:
    """A run that is open, with the answers that are always the same. It is opened by one thread, then read by several."""

    place: Place
    answers: dict[str, bytes] = field(default_factory=dict)

    @cached_property
    def run(self) -> Run:
        """The run."""
        return open_run(self.place.folder)

    @cached_property
    def frames(self) -> Frames:
        """What its timeline is drawn from."""
        from taut.views.frames import Frames

        return Frames(self.run)

    @cached_property
    def ops(self) -> OpDetails:
        """What its ops are told from."""
        from taut.views.op_detail import OpDetails

        return OpDetails(self.frames)

    @cached_property
    def replays(self) -> Replays:
        """What is asked what would have been."""
        from taut.views.replays import Replays

        return Replays(self.run)

    def kept(self, name: str, make: Callable[[], Part]) -> bytes:
        """An answer that is made once."""
        if name not in self.answers:
            self.answers[name] = encoded(make())
        return self.answers[name]

    @property
    def weight(self) -> int:
        """About how many bytes it holds."""
        run, frames = self.__dict__.get("run"), self.__dict__.get("frames")
        graph = 0 if run is None else held_bytes(run.graph) + run.reference_ns.nbytes
        prepared = 0 if frames is None else frames.nbytes
        beside = BINDINGS * ("ops" in self.__dict__) + CUTS * ("replays" in self.__dict__)
        made = 0 if run is None else beside * len(run.graph)
        return int(graph + prepared + made) + sum(map(len, self.answers.values()))


def held_bytes(thing: object) -> int:
    """Bytes of the arrays that an object holds."""
    if isinstance(thing, np.ndarray):
        return int(thing.nbytes)
    if isinstance(thing, Table):
        return sum(map(held_bytes, thing.columns.values()))
    if is_dataclass(thing) and not isinstance(thing, type):
        return sum(held_bytes(getattr(thing, one.name)) for one in fields(thing))
    return 0


def budget() -> int:
    """Bytes that open runs may hold together."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = memory.limit_bytes()
    return max(LEAST_BUDGET, int(SHARE * min(whole, limit or whole)))


class OpenRuns:
    """Runs that are open, the last used at the end."""

    def __init__(self, catalogue: Catalogue, most_bytes: int | None = None, workers: int = WORKERS) -> None:
        self.catalogue, self._most = catalogue, budget() if most_bytes is None else most_bytes
        self._open: OrderedDict[str, OpenRun] = OrderedDict()
        self._locks: dict[str, asyncio.Lock] = {}
        self._busy: Counter[str] = Counter()
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="taut-view")
        self._clerk = ThreadPoolExecutor(2, thread_name_prefix="taut-list")
        self._turns, self._scanning = asyncio.Semaphore(workers), asyncio.Lock()
        self._long = asyncio.Semaphore(max(workers - 1, 1))

    @property
    def ids(self) -> list[str]:
        """Of the runs that are open."""
        return list(self._open)

    async def list_sent(self) -> bytes:
        """The list of runs as it is sent; one scan for all who ask at once."""
        async with self._scanning:
            fresh = self.catalogue.fresh
            return fresh if fresh is not None else await self.listed(self.catalogue.sent)

    async def listed(self, work: Callable[[], T]) -> T:
        """What is asked of the list of runs: never behind a heavy question."""
        return await asyncio.get_running_loop().run_in_executor(self._clerk, work)

    async def ask(
        self, name: str, work: Callable[[OpenRun], T], gone: Callable[[], Awaitable[bool]] | None = None, apart: str = "",
        long: bool = False,
    ) -> T:  # fmt: skip
        """What ``work`` makes of a run; not asked any more if the client has ``gone`` when its turn comes.

        What is named ``apart`` has a turn of its own: it does not hold up what else is asked of the run.
        ``long`` questions leave a thread to the others.
        """
        place = await self._place(name)
        async with self._locks.setdefault(f"{name} {apart}", asyncio.Lock()), self._long if long else self._turns:
            if gone is not None and await gone():
                raise Refused(499, "nobody waits for this any more")
            opened = self._entry(place)
            self._busy[name] += 1
            try:
                return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: _worked(opened, work))
            except (UsageError, Refused):
                raise
            except BaseException:
                self._open.pop(name, None)  # the next one opens the folder as it is then
                raise
            finally:
                self._busy[name] -= 1
                self._evict()

    async def _place(self, name: str) -> Place:
        try:
            return await self.listed(lambda: self.catalogue.place(name))
        except Refused:
            self._open.pop(name, None)
            raise

    def _entry(self, place: Place) -> OpenRun:
        """The run as it is on disk; a folder that was written anew is opened anew."""
        known = self._open.get(place.id)
        if known is None or known.place.stamp != place.stamp:
            known = self._open[place.id] = OpenRun(place)
        self._open.move_to_end(place.id)
        return known

    def _evict(self) -> None:
        """Let the oldest go while all together hold too much; the last used stays, however large."""
        weights = {name: one.weight for name, one in self._open.items()}
        for name in list(self._open)[:-1]:
            if sum(weights.values()) <= self._most:
                return
            if not self._busy[name]:
                del self._open[name], weights[name]

    def close(self) -> None:
        """End the threads; what they are at is not waited for."""
        for pool in (self._pool, self._clerk):
            pool.shutdown(wait=False, cancel_futures=True)


def _worked(opened: OpenRun, work: Callable[[OpenRun], T]) -> T:
    with refusing_runs(opened.place.folder):
        return work(opened)
