"""What the readers of Chakra traces agree on: the nodes of one file as columns, whatever they were written in."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from taut.core.array_types import Floats, Ints, Mask
from taut.core.tables import NULL, Verb
from taut.read.columns import Codes
from taut.read.json_values import decoded
from taut.read.op_rows import rank_list

# Node types, in the numbers of the current schema.
METADATA, MEM_LOAD, MEM_STORE, COMPUTE, SEND, RECV, COLLECTIVE, STORAGE, BATCH, CHECKPOINT = range(1, 11)

TYPES = (
    "INVALID",
    "METADATA",
    "MEM_LOAD",
    "MEM_STORE",
    "COMP",
    "COMM_SEND",
    "COMM_RECV",
    "COMM_COLL",
    "STORAGE",
    "BATCH",
    "CHECKPOINT",
)
# ``comm_type`` of the current schema → verb.
VERBS = (
    Verb.ALL_REDUCE, Verb.REDUCE, Verb.ALL_GATHER, Verb.GATHER, Verb.SCATTER, Verb.BROADCAST, Verb.ALL_TO_ALL,
    Verb.REDUCE_SCATTER, Verb.REDUCE_SCATTER, Verb.BARRIER,
)  # fmt: skip

# Attributes that are numbers.
NUMBERS = (
    "comm_type", "comm_size", "comm_src", "comm_dst", "comm_tag", "is_cpu_op", "num_ops", "tensor_size", "stream", "tid",
    "runtime", "rank",
)  # fmt: skip

# More dependencies in one file than an execution trace of one rank holds.
DEPENDENCIES = 30_000_000
# Times beyond a century after 1970, and durations of more than some weeks, are none.
MOST_US = {"start": 4_000_000_000_000_000, "duration": 4_000_000_000_000}


@dataclass
class Needs:
    """Dependencies between nodes, as rows: the target waits for the source."""

    source: Ints
    target: Ints
    control: Mask
    """True for control dependencies (who called whom), false for those of data."""

    def take(self, chosen: Mask) -> Needs:
        """Some of them."""
        return self if chosen.all() else Needs(self.source[chosen], self.target[chosen], self.control[chosen])

    def among(self, rows: Ints, total: int) -> Needs:
        """Those between the given rows, which are numbered anew."""
        new = np.full(total, NULL, dtype=np.int64)
        new[rows] = np.arange(len(rows))
        kept = Needs(new[self.source], new[self.target], self.control)
        return kept.take((kept.source >= 0) & (kept.target >= 0))

    @classmethod
    def linked(cls, ids: Ints, owner: Ints, needed: Ints, control: Mask, counts: Counter[str]) -> Needs:
        """Dependencies by node id; those on a node that does not exist are counted, not kept."""
        # Stable, so that of nodes with the same id the first is depended on.
        order = np.argsort(ids, kind="stable")
        ordered = ids[order]
        counts["nodes with the id of another"] += int((np.diff(ordered) == 0).sum())
        source = _rows_of(needed, ordered, order)
        counts["dependencies"] += len(needed)
        counts["dependencies on a node that is not there"] += int((source < 0).sum())
        return cls(source, owner, control).take((source >= 0) & (source != owner))


def _rows_of(needed: Ints, ordered: Ints, order: Ints) -> Ints:
    """The first row of each id, -1 where none has it; ids that lie close together are looked up, not searched."""
    low, high = int(ordered[0]), int(ordered[-1])
    if high - low <= 16 * len(ordered):
        rows = np.full(high - low + 2, NULL, dtype=np.int64)
        rows[ordered[::-1] - low] = order[::-1]
        return rows[np.where((needed >= low) & (needed <= high), needed - low, -1)]
    at = np.minimum(np.searchsorted(ordered, needed), len(ordered) - 1)
    return np.where(ordered[at] == needed, order[at], NULL)


@dataclass
class Nodes:
    """The nodes of one file. An absent number is -1."""

    id: Ints
    type: Ints
    name: Ints
    """Index into ``names``."""
    start_ns: Ints
    duration_ns: Ints
    names: list[str]
    number: dict[str, Ints]
    """One column for each of NUMBERS; ``comm_type`` is a tables.Verb, -1 if not recorded."""
    group: Ints
    """Index into ``groups``: the process group, -1 if not recorded."""
    groups: list[str]
    some_dims: Ints
    """1 where a collective spans only some dimensions of the network, 0 where all, -1 if it does not say."""
    needs: Needs
    rank: int = NULL
    group_ranks: dict[str, list[int]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def __len__(self) -> int:
        return len(self.id)


def nanoseconds(us: Ints | Floats, counts: Counter[str], what: str) -> Ints:
    """µs → ns, -1 where absent or out of range."""
    # Whole and broken µs are scaled apart: the 53 bits of a float hold no epoch in ns.
    whole = us if us.dtype.kind == "i" else np.floor(us)
    whole = whole.astype(np.int64)
    wild = (whole > MOST_US[what]) | (whole < NULL)
    counts[f"dropped: {what} out of range"] += int(wild.sum())
    good = ~wild & (whole >= 0)
    return np.where(good, np.where(good, whole, 0) * 1000 + np.rint((us - whole) * 1000).astype(np.int64), NULL)


def process_groups(text: str) -> dict[str, list[int]]:
    """Process group → ranks out of the JSON that torch records when groups are made, however it is quoted."""
    text = text[text.find("[{") : text.rfind("}]") + 2]
    for quoted in (text, text.replace('\\"', '"'), text.replace("\\\\", "\\").replace('\\"', '"')):
        if isinstance(listed := decoded(quoted), list):
            entries = [entry for entry in listed if isinstance(entry, dict) and "pg_name" in entry]
            return {str(entry["pg_name"]): ranks for entry in entries if (ranks := rank_list(entry.get("ranks")))}
    return {}


_IN_NAME = re.compile(r"\.(\d{1,7})(?:\.(?:et|json|chakra|pb|protobuf))*$", re.IGNORECASE)
_LABELLED = re.compile(r"(?:rank|npu|worker|gpu|node|eg|et)[\W_]{0,2}(\d{1,7})(?!\d)", re.IGNORECASE)


def rank_in_name(label: str) -> int:
    """The rank in the name of a file of one rank, ``llama.3.et``; -1 if there is none."""
    base = re.split(r"[/\\:]", label)[-1].removesuffix(".gz")
    found = _IN_NAME.search(base) or _LABELLED.search(base)
    return int(found[1]) if found else NULL


def codes_of(values: Sequence[str], codes: Codes) -> Ints:
    """Codes of texts, -1 for the empty one."""
    return np.fromiter((codes[value] if value else NULL for value in values), dtype=np.int64, count=len(values))
