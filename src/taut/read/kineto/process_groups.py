"""Process groups of a Kineto trace, as its header declares them and as collectives name them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from taut.core.array_types import Json
from taut.read.json_values import integer
from taut.read.kineto.json_events import CommArgs
from taut.read.limits import RANKS
from taut.read.op_rows import rank_list

# Ranks of all groups together that are written as first rank, stride and size: a hostile size must not cost memory.
GROUP_RANKS = 1 << 20
# Libraries whose collectives the host runs, in the words of their annotations; the device runs those of the others.
HOST_LIBRARIES = ("gloo", "mpi", "ucc")
_LIBRARIES = ("nccl", *HOST_LIBRARIES)


class Groups:
    """Process group → its ranks, and which group a collective belongs to."""

    def __init__(self, distributed: Mapping[str, Json], comm: Iterable[CommArgs]) -> None:
        self.ranks: dict[str, list[int]] = {}
        config = distributed.get("pg_config")
        self._library: dict[str, str] = {}
        self._unnamed: dict[str, str] = {}
        for entry in config if isinstance(config, list) else []:
            if isinstance(entry, dict) and entry.get("pg_name") is not None:
                self.ranks[str(entry["pg_name"])] = rank_list(entry.get("ranks"))
                self._library[str(entry["pg_name"])] = str(entry.get("backend_config", ""))
        self._any_named = any(map(_name_of, comm))
        self._strided: dict[tuple[int, int, int], list[int]] = {}
        self._room = GROUP_RANKS

    def name(self, sources: Sequence[CommArgs], library: str) -> str:
        """The group a collective belongs to; empty where there are several and it names none."""
        ranks = next((r for r in map(self._ranks_of, sources) if r), [])
        name = next(filter(None, map(_name_of, sources)), "")
        if not name and ranks and len(self._library) != 1:
            name = f"ranks {ranks[0]}-{ranks[-1]} ({len(ranks)})"
        if name:
            if ranks and not self.ranks.get(name):
                self.ranks[name] = ranks
            return name
        if library not in self._unnamed:
            self._unnamed[library] = self._only_group(library)
        return self._unnamed[library]

    def _only_group(self, library: str) -> str:
        """The group that a collective belongs to which names none."""
        # A group that runs on other libraries only cannot be meant.
        able = [
            group
            for group, config in self._library.items()
            if library in config or not any(other in config for other in _LIBRARIES)
        ]
        if len(able) == 1:
            return able[0]
        return "" if self._any_named or able else "default"

    def of_library(self, sources: Sequence[CommArgs], library: str) -> str:
        """The group of a call of another library: it counts its calls apart from those of the process group."""
        name = self.name(sources, "nccl")
        if not name:
            return ""
        apart = f"{name} ({library})"
        if self.ranks.get(name):
            self.ranks[apart] = self.ranks[name]
        return apart

    def _ranks_of(self, source: CommArgs) -> list[int]:
        if source.ranks is None and source.group_size is None:
            return []
        ranks = rank_list(source.ranks)
        size, first, stride = integer(source.group_size), integer(source.rank_start), integer(source.rank_stride)
        if len(ranks) < size and first >= 0 and stride > 0:
            return self._strided_ranks(size, first, stride)
        return ranks if size < 0 or len(ranks) == size else []

    def _strided_ranks(self, size: int, first: int, stride: int) -> list[int]:
        """The ranks that three numbers stand for; none once all such lists together are longer than any job."""
        key = size, first, stride
        if key not in self._strided:
            if size > self._room or first + size * stride > RANKS:
                return []
            self._room -= size
            self._strided[key] = list(range(first, first + size * stride, stride))
        return self._strided[key]

    def member(self, group: str, index: int) -> int:
        """The global rank of a group's member."""
        ranks = self.ranks.get(group, [])
        return ranks[index] if 0 <= index < len(ranks) else index


def _name_of(args: CommArgs) -> str:
    """The group that an event names."""
    if args.group is None and args.group_id is None:  # most events name none
        return ""
    return next((str(name) for name in (args.group, args.group_id) if isinstance(name, (str, int)) and str(name)), "")
