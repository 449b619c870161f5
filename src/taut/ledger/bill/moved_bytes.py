"""Bytes that jobs moved between their ranks: what collectives and messages of traced runs carry over the link of each rank."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats, Ints
from taut.core.tables import Table, Verb
from taut.ledger.charge import FATES
from taut.ledger.device_use import PART_OF

HOPS = (Verb.SEND, Verb.RECV)


class Transfers(Struct, frozen=True):
    """Collectives and messages of a run, one row for each rank that took part."""

    verb: Ints
    size: Ints
    """Bytes of the larger buffer of the rank; below 0 where the trace does not tell."""
    members: Ints
    """Ranks of the group; below 1 where nobody tells."""
    in_bytes: bool = True
    """Whether sizes are bytes: some traces count elements."""


class MovedBytes(Struct, frozen=True):
    """Bytes moved, or why they are not known."""

    count: float | None
    why: str = ""


def moved_bytes(found: Transfers) -> MovedBytes:
    """What all ranks together sent: of a collective what crosses the link of each (as nccl-tests counts), of a message all."""
    meets = ~np.isin(found.verb, (Verb.NONE, Verb.BARRIER, *HOPS))
    told = meets | np.isin(found.verb, HOPS)
    unknown, alone = int((told & (found.size < 0)).sum()), int((meets & (found.members < 1)).sum())
    if not told.any():
        return MovedBytes(None, "no collective and no message was traced")
    if not found.in_bytes:
        return MovedBytes(None, "the trace does not tell sizes in bytes")
    if unknown:
        return MovedBytes(None, f"of {unknown:,} of {int(told.sum()):,} transfers the bytes were not recorded")
    if alone:
        return MovedBytes(None, f"how many ranks took part in {alone:,} of {int(told.sum()):,} transfers is not known")
    sent, received = (float(found.size[found.verb == verb].sum(dtype=np.float64)) for verb in HOPS)
    return MovedBytes(float(_crossing(found)[meets].sum()) + max(sent, received))


def _crossing(found: Transfers) -> Floats:
    """Bytes of collectives that cross the link of a rank."""
    times = np.array([PART_OF.get(verb, 1) for verb in Verb], np.float64)[found.verb]
    members = np.maximum(found.members, 1)
    return times * found.size * ((members - 1) / members)


class TracedBytes(Struct, frozen=True):
    """What a traced run moved in the accelerator time of its cells."""

    name: str
    job: str
    moved: MovedBytes
    rank_ns: float


def billed_bytes(held: Table, runs: Sequence[TracedBytes]) -> MovedBytes:
    """Bytes of all traced jobs in a bill: time of a job beyond the traced one moves as many a second."""
    if not runs:
        return MovedBytes(None, "no run folder of traces was given, and logs of jobs tell no bytes")
    dark = next((one for one in runs if one.moved.count is None), None)
    if dark is not None:
        return MovedBytes(None, f"{dark.name}: {dark.moved.why}")
    out, stepping = 0.0, np.isin(held.fate.astype(np.str_), FATES)
    for job in sorted({one.job for one in runs}):
        mine = [one for one in runs if one.job == job]
        time = float(held.rank_ns[stepping & (held.job == job)].sum(dtype=np.float64))
        out += sum(one.moved.count or 0.0 for one in mine) / max(sum(one.rank_ns for one in mine), 1.0) * time
    return MovedBytes(out, _others(held, {one.job for one in runs}))


def _others(held: Table, traced: set[str]) -> str:
    """What is said of jobs without traces."""
    others = len(set(held.job.tolist()) - traced)
    return f"of {others:,} jobs without traces the bytes are not known, and not in it" if others else ""
