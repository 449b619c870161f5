"""The tables of a run folder without its graph, for the bill: cells, members, findings, attempts, actions, metrics.

Every kind of run folder has some of them: of traces, of job logs alone, of control logs. They are compared with the manifest
and with their types, like everything that is read from a run folder.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgspec
import numpy as np

from taut.core.array_types import Ints
from taut.core.boundary import refusing_unexpected
from taut.core.device_words import NO_BYTES, on_device
from taut.core.errors import RunError
from taut.core.folder import File, read_steadily
from taut.core.ids import distinct
from taut.core.tables import Action, Attempt, Member, Metric, Table, Verb
from taut.ledger.bill.moved_bytes import Transfers
from taut.ledger.charge import FATES, Cell
from taut.replay.blame import Wait
from taut.result.types import AnalysisResult
from taut.stored import About, Stored, damaged, decoded_result, read_columns, read_stored, schema_of

NEWER = ("team", "joules")
"""Columns of attempts and cells that older run folders do not have."""


@dataclass(frozen=True)
class StoredTables:
    """What a run folder holds for the bill."""

    folder: Path
    digest: str
    result: AnalysisResult | None
    """What ``taut analyze`` printed; None for a run of ``taut control``."""
    about: About | None
    """What its tables refer to; None for a run without traces."""
    files: Mapping[str, File]
    members: Table
    attempts: Table
    actions: Table
    metrics: Table

    @cached_property
    def cells(self) -> Table:
        """The ledger of the traced time, without the names of ops, which no bill asks for; empty without traces."""
        if self.about is None:
            return Table(Cell, {}, 0)
        columns = {name: kind for name, kind in schema_of(Cell).items() if name != "name"}
        cells = Table(Cell, read_columns(self.folder, self.files, "ledger", columns, {"fate": FATES}, NEWER))
        known = set(self.about.steps)
        if len(cells) and not (known.issuperset(distinct(cells.step).tolist()) and int(cells.rank_ns.min()) >= 0):
            raise damaged(self.folder, "a cell of its ledger belongs to no step, or has no time")
        if len(cells) and (int(cells.action.max()) >= max(len(self.actions), 1) or int(cells.action.min()) < -1):
            raise damaged(self.folder, "a cell of its ledger belongs to no action")
        return cells

    def waited_for(self) -> dict[tuple[int, int], dict[int, int]]:
        """(rank, step) → rank that arrived last → wait of the first for it, ns."""
        rank, step = self._ops()
        waits = Table(Wait, read_columns(self.folder, self.files, "waits", schema_of(Wait)))
        out: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
        if not len(waits):
            return out
        if min(int(waits.op.min()), int(waits.opener.min())) < 0 or max(int(waits.op.max()), int(waits.opener.max())) >= len(
            rank
        ):
            raise damaged(self.folder, "a wait belongs to no op")
        keys = zip(
            rank[waits.op].tolist(), step[waits.op].tolist(), rank[waits.opener].tolist(), waits.fault_ns.tolist(), strict=True
        )
        for who, when, opener, ns in keys:
            if ns > 0:
                mine = out[who, when]
                mine[opener] = mine.get(opener, 0) + ns
        return out

    def transfers(self) -> Transfers:
        """Collectives and messages of the traced time: those of accelerators where there are any, else those of hosts."""
        if self.about is None:
            nothing = np.zeros(0, dtype=np.int64)
            return Transfers(nothing, nothing, nothing)
        words = {"lane": self.about.lanes, "verb": [verb.word for verb in Verb], "group": self.about.groups}
        columns = {"lane": "int32", "verb": "int8", "group": "int32", "size": "int64", "gate": "int32"}
        ops = read_columns(self.folder, self.files, "ops", columns, words)
        rows = ops["verb"] != Verb.NONE
        on_it = on_device(self.about.lanes)[ops["lane"]]
        rows = np.flatnonzero(rows & on_it if (rows & on_it).any() else rows)
        gates = read_columns(self.folder, self.files, "gates", {"members": "int32"})["members"]
        members = self._members(ops["group"][rows], ops["gate"][rows], gates.astype(np.int64))
        return Transfers(ops["verb"][rows].astype(np.int64), ops["size"][rows], members, not self.about.counts.get(NO_BYTES))

    def _members(self, group: Ints, gate: Ints, met: Ints) -> Ints:
        """Ranks of groups: as the trace names them, else as many as met where no rank is missing; else -1."""
        about = self.about
        if about is None or not len(group):
            return np.zeros(0, dtype=np.int64)
        whole = about.world_size or 0
        named = np.array([len(about.group_ranks.get(one, ())) or whole * (one == "default") for one in about.groups] + [0])
        seen = np.append(met, -1)[gate] if about.world_size in (None, len(self.members)) else np.full(len(gate), -1)
        return np.where(named[group] > 0, named[group], np.where(gate >= 0, seen, -1)).astype(np.int64)

    def _ops(self) -> tuple[Ints, Ints]:
        found = read_columns(self.folder, self.files, "ops", {"rank": "int32", "step": "int32"})
        return found["rank"].astype(np.int64), found["step"].astype(np.int64)


def open_tables(folder: str | Path) -> StoredTables:
    """Open the tables of a run folder; says in one line what is wrong with it if anything is."""
    root = Path(folder)
    with refusing_unexpected(lambda why: damaged(root, why)):
        return read_steadily(root, lambda: _opened(root, read_stored(root)))


def _opened(root: Path, stored: Stored) -> StoredTables:
    def table(row: type, name: str) -> Table:
        there = f"{name}.parquet" in stored.files
        return Table(row, read_columns(root, stored.files, name, schema_of(row), newer=NEWER)) if there else Table(row, {}, 0)

    return StoredTables(
        folder=root,
        digest=stored.digest,
        result=_result(root, stored),
        about=stored.graph,
        files=stored.files,
        members=table(Member, "members"),
        attempts=table(Attempt, "attempts"),
        actions=table(Action, "actions"),
        metrics=table(Metric, "metrics"),
    )


def _result(root: Path, stored: Stored) -> AnalysisResult | None:
    """What was analysed; a run of another verb has none."""
    keys = msgspec.json.decode(stored.result, type=dict[str, msgspec.Raw])
    if "bill" in stored.files or "lines" in keys:
        raise RunError(f"{root}: is a bill already; give the run folders and job logs that it was made of")
    return decoded_result(root, stored.result) if "verdict" in keys and "job" in keys else None
