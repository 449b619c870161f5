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
from taut.core.errors import RunError
from taut.core.folder import File, read_steadily
from taut.core.tables import Action, Attempt, Member, Metric, Table
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
        """The ledger of the traced time; empty without traces."""
        if self.about is None:
            return Table(Cell, {}, 0)
        words = {"fate": FATES, "name": self.about.names}
        cells = Table(Cell, read_columns(self.folder, self.files, "ledger", schema_of(Cell), words, NEWER))
        known = set(self.about.steps)
        if len(cells) and not (np.isin(cells.step, list(known)).all() and int(cells.rank_ns.min()) >= 0):
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
        folder=root, digest=stored.digest, result=_result(root, stored), about=stored.graph, files=stored.files,
        members=table(Member, "members"), attempts=table(Attempt, "attempts"), actions=table(Action, "actions"),
        metrics=table(Metric, "metrics"),
    )  # fmt: skip


def _result(root: Path, stored: Stored) -> AnalysisResult | None:
    """What was analysed; a run of another verb has none."""
    keys = msgspec.json.decode(stored.result, type=dict[str, msgspec.Raw])
    if "bill" in stored.files or "lines" in keys:
        raise RunError(f"{root}: is a bill already; give the run folders and job logs that it was made of")
    return decoded_result(root, stored.result) if "verdict" in keys and "job" in keys else None
