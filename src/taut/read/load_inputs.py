"""All inputs of a job → what they hold: read here, in processes where that pays, or by workers elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from taut import __version__
from taut.core import scratch
from taut.core.errors import InputRefused
from taut.core.tables import Trace
from taut.read import files, remote
from taut.read.fetched_ahead import fetched
from taut.read.kept_reading import KeptReading
from taut.read.load import Loaded, load_file

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from taut.core.executors import On

PARALLEL_BYTES = 30 << 20
"""Below this much input, starting processes costs more than it saves."""
BATCH_BYTES, BATCH_FILES, BATCHES = 8 << 20, 32, 64
"""Small inputs are handed to a worker together: up to so much, and so that there are at least so many tasks."""


class Wanted(Struct, frozen=True):
    """An input that a worker is to read."""

    path: str
    """An address, or a path from the root: a worker has a working folder of its own."""
    label: str
    size_bytes: int


class Unseen(Struct, frozen=True):
    """Why a worker could not read an input, and where that worker runs."""

    worker: str
    why: str


def load_all(
    inputs: list[str],
    progress: Callable[[int, int], None] | None,
    columns: str = "",
    on: On = None,
    kept: KeptReading | None = None,
) -> list[Loaded]:
    """What all inputs hold, in their order; ``progress`` is called with how many are read, and how many there are.

    ``columns`` names those of rows without a header; ``on`` says where they are read; what ``kept`` has is not read again.
    """
    unique = list(dict.fromkeys(inputs))
    results: dict[str, Loaded] = {}
    if kept is not None:
        results = {path: _on_disk(found) for path in unique if (found := kept.get(path)) is not None}
    for path, loaded in _loaded([path for path in unique if path not in results], columns, on):
        if kept is not None:
            kept.put(path, loaded)
        results[path] = _on_disk(loaded)
        if progress is not None:
            progress(len(results), len(unique))
    return [results[path] for path in unique]


def _on_disk(loaded: Loaded) -> Loaded:
    """The same, the ops of its traces on disk where columns lie there."""
    for part in loaded.parts if scratch.is_on_disk() else ():
        if isinstance(part.found, Trace):
            part.found = replace(part.found, ops=part.found.ops.on_disk())
    return loaded


def _loaded(paths: list[str], columns: str, on: On) -> Iterator[tuple[str, Loaded]]:
    """Every input with its parts, as they are read."""
    away = [path for path in paths if remote.is_address(path) or os.path.isfile(path)]  # a pipe can be read only here
    finished: set[str] = set()
    if place := _place(away, on):
        for path, loaded in _elsewhere(away, columns, place):
            finished.add(path)
            yield path, loaded
    here = [path for path in paths if path not in finished]  # also what workers died of
    for path, data in zip(here, fetched(here, [files.size_of(path) for path in here]), strict=True):
        yield path, load_file(path, columns, data=data)


def _place(paths: Sequence[str], on: On) -> str | Executor | None:
    """Where to read these inputs; None for here."""
    if on is None and sum(map(files.size_of, paths)) <= PARALLEL_BYTES:
        return None  # without importing what runs work elsewhere
    from taut.core.executors import LOCAL, cores

    if on is None and cores() > 1:
        on = LOCAL
    return None if not paths or (on == LOCAL and len(paths) == 1) else on


def _elsewhere(paths: list[str], columns: str, on: str | Executor) -> Iterator[tuple[str, Loaded]]:
    """Inputs as workers finish them; fewer than all if workers were killed too often."""
    from taut.core.executors import as_finished, executor_at

    batches = _batches(paths)
    with executor_at(on, len(batches)) as pool:
        work = partial(load_batch, columns=columns, version=__version__)
        wanted = [[_wanted(path) for path in batch] for batch in batches]
        for number, found in as_finished(pool, work, wanted):
            for path, one in zip(batches[number], found, strict=True):
                yield path, _read_here(path, columns, one) if isinstance(one, Unseen) else one


def _batches(paths: list[str]) -> list[list[str]]:
    """Inputs in their order, small ones together."""
    most = max(min(len(paths) // BATCHES, BATCH_FILES), 1)
    batches: list[list[str]] = []
    room_bytes = 0
    for path in paths:
        size_bytes = files.size_of(path)
        if not batches or len(batches[-1]) == most or size_bytes > room_bytes:
            batches.append([])
            room_bytes = BATCH_BYTES
        batches[-1].append(path)
        room_bytes -= size_bytes
    return batches


def _wanted(path: str) -> Wanted:
    # Not abspath: it takes `..` away, which behind a link leads elsewhere.
    whole = path if remote.is_address(path) else os.path.join(os.getcwd(), path)
    return Wanted(whole, path, files.size_of(path))


def _read_here(path: str, columns: str, unseen: Unseen) -> Loaded:
    """An input that a worker could not read: refused where it can be read here, for then the worker is at fault."""
    loaded = None if os.path.isfile(path) else load_file(path, columns)
    if loaded is not None and _is_unreadable(loaded):
        return loaded
    remedy = "put it where all workers can read it, or give an address (s3://…) that they may read"
    raise InputRefused(files.as_text(path), f"worker {unseen.worker} cannot read it: {unseen.why}", remedy)


def load_batch(batch: Sequence[Wanted], columns: str, version: str) -> list[Loaded | Unseen]:
    """What a worker does: read some inputs."""
    import socket

    from taut.core.executors import refuse_version

    worker = f"{socket.gethostname()} (pid {os.getpid()})"
    refuse_version(__version__, version, f"worker {worker}")  # one that came late was not asked before
    ahead = fetched([one.path for one in batch], [one.size_bytes for one in batch])
    return [_load_there(one, columns, worker, data) for one, data in zip(batch, ahead, strict=True)]


def _load_there(wanted: Wanted, columns: str, worker: str, data: bytes | None) -> Loaded | Unseen:
    if remote.is_address(wanted.path):
        loaded = load_file(wanted.path, columns, data=data)
        return Unseen(worker, str(loaded.parts[0].found)) if _is_unreadable(loaded) else loaded
    if not os.path.isfile(wanted.path):
        return Unseen(worker, "no such file there")
    if files.size_of(wanted.path) != wanted.size_bytes:
        return Unseen(worker, f"another file there, of {files.size_of(wanted.path):,} bytes, not {wanted.size_bytes:,}")
    return load_file(wanted.path, columns, wanted.label)


def _is_unreadable(loaded: Loaded) -> bool:
    """Whether nothing of an input could be read."""
    return len(loaded.parts) == 1 and isinstance(loaded.parts[0].found, InputRefused)
