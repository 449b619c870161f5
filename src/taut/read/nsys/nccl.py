"""What an export records of a communication kernel: the calls that issued it, their communicator, sizes and peers.

A kernel names its verb; the call that launched it lies inside a range of NCCL's own (``ncclAllReduce``, or
``ncclGroupEnd`` for all calls of a group) and perhaps inside a note of PyTorch (``nccl:all_to_all``).
Ranks of a communicator are not ranks of the job: they are kept as they are until all reports are known.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct, field

from taut.core.array_types import Ints
from taut.core.tables import NULL, Verb
from taut.read.columns import containing
from taut.read.communication_families import Communication, communication
from taut.read.contents import Init
from taut.read.nsys.nvtx import Notes, is_api, is_torch
from taut.read.step_marks import PROCESS
from taut.read.verb_words import HOPS, verb_of


class Collective(Struct):
    """One communication kernel, as far as it is known: ``hops`` are the sends and receives of a group, where they are known."""

    verb: Verb = Verb.NONE
    comm: int | None = None
    size: int = NULL
    peer: int = NULL
    hops: list[tuple[Verb, int, int]] = field(default_factory=list)
    """(verb, peer, size) of each."""
    guessed: bool = False
    """The sends and receives of this kernel are not recorded."""
    name: str = ""
    """The class of the kernel, where library and verb do not say it."""
    no_bytes: bool = False
    """The size is that of one rank's share, or counts elements: it tells classes apart, and no bandwidth."""


_UNKNOWN = Communication("nccl", Verb.NONE, "")


class Nccl:
    """NCCL calls and notes of all threads of a report."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._api, self._torch = notes.rows(is_api), notes.rows(is_torch)
        self._batch = self._batches()
        self._ranks = {init.comm: init.ranks for some in self.inits().values() for init in some}

    def inits(self) -> dict[int, list[Init]]:
        """Process → the communicators it joined."""
        found: dict[int, list[Init]] = {}
        for row in self._api.tolist():
            payload = self._notes.payloads.get(row, {})
            if {"comm", "ranks", "rank"} <= payload.keys() and 0 <= payload["rank"] < payload["ranks"]:
                init = Init(payload["comm"], payload["ranks"], payload["rank"], payload.get("device", NULL))
                found.setdefault(int(self._notes.thread[row]) & PROCESS, []).append(init)
        return found

    def described(self, names: list[str], thread: Ints, at: Ints) -> list[Collective]:
        """For each kernel what is known of it; thread and time of its launch, -1 where there was none."""
        by_call, by_note = (self._enclosing(rows, thread, at) for rows in (self._api, self._torch))
        return [
            self._one(communication(name) or _UNKNOWN, call, note)
            for name, call, note in zip(names, by_call, by_note, strict=True)
        ]

    def _enclosing(self, rows: Ints, thread: Ints, at: Ints) -> list[int]:
        r = self._notes
        found: list[int] = np.append(rows, NULL)[containing(r.thread[rows], r.start[rows], r.end[rows], thread, at)].tolist()
        return found

    def _batches(self) -> dict[int, list[int]]:
        """The calls between a group's start and its end, by the row of that end."""
        r, found = self._notes, dict[int, list[int]]()
        depth, batch, thread = 0, list[int](), None
        for row in self._api[np.lexsort((r.start[self._api], r.thread[self._api]))].tolist():
            if r.thread[row] != thread:
                depth, thread = 0, r.thread[row]
            word = r.word(row)
            if word == "ncclGroupStart":
                batch = [] if depth == 0 else batch
                depth += 1
            elif word == "ncclGroupEnd" and depth:
                depth -= 1
                if depth == 0:
                    found[row] = batch
            elif depth and _call_verb(word):
                batch.append(row)
        return found

    def _one(self, kernel: Communication, call: int, note: int) -> Collective:
        if kernel.word:
            return Collective(kernel.verb, name=kernel.word)
        calls = [] if call < 0 else self._batch.get(call, [call] if _call_verb(self._notes.word(call)) else [])
        verb = kernel.verb
        noted = verb_of(self._notes.word(note)) if note >= 0 else Verb.NONE
        fitting = [row for row in calls if verb in (Verb.NONE, _call_verb(self._notes.word(row)))]
        comms = {self._notes.payloads.get(row, {}).get("comm") for row in fitting}
        sizes = [self._number(row, "size") for row in fitting]
        size = sum(sizes) if min(sizes, default=NULL) >= 0 else NULL
        about = Collective(verb or noted, comms.pop() if len(comms) == 1 else None, size)
        self._set_size(about, note)
        if verb is Verb.NONE and (noted is Verb.NONE or noted in HOPS):
            if kernel.hops or fitting:  # a generic kernel without calls may be anything
                self._point_to_point(about, fitting)
        elif len(fitting) == 1:
            about.peer = self._number(fitting[0], "peer")
        return about

    def _set_size(self, about: Collective, note: int) -> None:
        """Turn the size of its calls into that of the whole collective; without any, take what its annotation tells."""
        if about.size >= 0 and about.verb in (Verb.ALL_GATHER, Verb.REDUCE_SCATTER):  # NCCL counts the share of one rank
            ranks = self._ranks.get(about.comm, 0) if about.comm is not None else 0
            about.size, about.no_bytes = min(about.size * max(ranks, 1), 2**62), ranks < 1
        if about.size < 0 and note >= 0:
            about.size = int(self._notes.size[note])
            about.no_bytes = about.size >= 0  # PyTorch notes elements

    def _point_to_point(self, about: Collective, calls: list[int]) -> None:
        """A kernel of sends and receives: one, an exchange among all, or several that meet pair by pair."""
        hops = [(_call_verb(self._notes.word(row)), self._number(row, "peer"), self._number(row, "size")) for row in calls]
        to, by = (sorted(peer for verb, peer, _ in hops if verb is side) for side in HOPS)
        if len(hops) == 1:
            about.verb, about.peer, about.size = hops[0]
        elif not hops or (to == by and len(to) > 1):
            about.guessed = about.verb is Verb.NONE and NULL in (to or [NULL])
            about.verb = about.verb or Verb.ALL_TO_ALL
            if hops and about.size >= 0:  # what a rank sends, without what it receives
                about.size = sum(size for verb, _, size in hops if verb is Verb.SEND)
        else:
            about.verb, about.hops = Verb.NONE, [hop for hop in hops if hop[1] >= 0]

    def _number(self, row: int, field: str) -> int:
        """A number from a call's payload; -1 where it is missing or absurd."""
        number = self._notes.payloads.get(row, {}).get(field, NULL)
        return number if 0 <= number < (2**50 if field == "size" else 2**31) else NULL


def _call_verb(word: str) -> Verb:
    return verb_of(word.replace("Bcast", "Broadcast")) if not any(w in word for w in ("Comm", "Group")) else Verb.NONE
