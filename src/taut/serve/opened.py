"""Runs that are open, and what was made of them: the last used, as far as memory allows.

The event loop only waits. What is heavy runs in a small pool of threads, one at a time for each run and kind of question:
twenty clients that ask for a run open it once, and neither a second run nor a timeline is held up by a long question.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterator
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
BINDINGS, CUTS, MENDED, POLICIES = 17, 64, 250, 600
"""Bytes an op of who bound whom, of the ways to cut the ops for what-ifs, of regimes, and of policies."""
REPLAYS = "replays"
"""The turn of all that replays a run."""
PREPARED_OPS, MOST_PREPARED = 50_000, 2_000_000
"""Of runs between these what-ifs are prepared before they are asked; smaller ones need no time for it, larger ones memory."""
LEAST_BUDGET, SHARE = 256 << 20, 0.5
"""Bytes for runs that are open: this share of the machine's memory."""


@dataclass
class OpenRun:
    """A run that is open, with the answers that are always the same. It is opened by one thread, then read by several."""

    place: Place
    answers: dict[str, bytes] = field(default_factory=dict)
    preparing: asyncio.Task[None] | None = None
    """What makes that which will be asked next."""

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

    def ahead(self) -> Iterator[Callable[[], object]]:
        """What will be asked after the first page, in short parts."""
        from taut.views.run_questions import ahead, questions

        if PREPARED_OPS <= len(self.run.graph) <= MOST_PREPARED:
            yield from ahead(self.replays)
            yield lambda: self.kept("questions", lambda: questions(self.replays))

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
        replays = self.__dict__.get("replays")
        made_of = () if replays is None else replays.__dict__
        beside = BINDINGS * ("ops" in self.__dict__) + CUTS * (replays is not None)
        beside += MENDED * ("mended" in made_of) + POLICIES * ("policies" in made_of)
        made = 0 if run is None else beside * len(run.graph)
        return int(graph + prepared + made) + sum(map(len, self.answers.values()))


def held_bytes(thing: object) -> int:
    """Bytes of the arrays that an object holds."""
    if isinstance(thing, (np.ndarray, Table)):
        return int(thing.nbytes)
    if is_dataclass(thing) and not isinstance(thing, type):
        return sum(held_bytes(getattr(thing, one.name)) for one in fields(thing))
    return 0


def warm_up() -> None:
    """Load what the first page of a run needs, before anybody asks for one."""
    import pyarrow.compute
    import pyarrow.parquet  # noqa: F401

    from taut.replay.engine import sweep
    from taut.views import frames, op_detail, overview, replays, run_questions  # noqa: F401

    none, one, two, slot = (np.zeros(n, dtype=kind) for n, kind in ((0, "i8"), (1, "i8"), (2, "i8"), (1, "i4")))
    sweep(one, two, none, none, slot - 1, slot - 1, one, 0, one, one)


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
        self._ahead = ThreadPoolExecutor(1, thread_name_prefix="taut-ahead")
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
        self,
        name: str,
        work: Callable[[OpenRun], T],
        gone: Callable[[], Awaitable[bool]] | None = None,
        apart: str = "",
        long: bool = False,
    ) -> T:
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

    async def known(self, name: str, answer: str) -> bytes | None:
        """An answer that was made before, of the run as it is on disk; nobody is waited for."""
        place, opened = await self._place(name), self._open.get(name)
        return opened.answers.get(answer) if opened is not None and opened.place.stamp == place.stamp else None

    def prepare(self, name: str) -> None:
        """Begin to make what will be asked of an open run next; who asks meanwhile comes in between the parts of it."""
        opened = self._open.get(name)
        if opened is not None and opened.preparing is None:
            opened.preparing = asyncio.get_running_loop().create_task(self._prepared(name, opened))

    async def _prepared(self, name: str, opened: OpenRun) -> None:
        parts = opened.ahead()
        try:
            while self._open.get(name) is opened and await self._part(name, opened, parts):
                await asyncio.sleep(0)
        except Exception:  # whoever asks for it is told why
            return
        finally:
            self._evict()

    async def _part(self, name: str, opened: OpenRun, parts: Iterator[Callable[[], object]]) -> bool:
        """Make one part; whether there was any."""

        def made() -> bool:
            part = next(parts, None)
            if part is not None:
                part()
            return part is not None

        async with self._locks.setdefault(f"{name} {REPLAYS}", asyncio.Lock()):
            self._busy[name] += 1
            try:
                return await asyncio.get_running_loop().run_in_executor(self._ahead, made)
            finally:
                self._busy[name] -= 1

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
        self._open.clear()  # so that nothing more is prepared
        for pool in (self._pool, self._clerk, self._ahead):
            pool.shutdown(wait=False, cancel_futures=True)


def _worked(opened: OpenRun, work: Callable[[OpenRun], T]) -> T:
    with refusing_runs(opened.place.folder):
        return work(opened)
