"""OTF2 archives (Score-P and others): an anchor ``traces.otf2``, definitions beside it, and a folder of events.

Processes are ranks, their threads and accelerator streams are lanes. Read through the ``otf2`` bindings where they are
installed (`bindings.py`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from taut.core.array_types import Ints
from taut.core.errors import InputRefused
from taut.core.tables import NULL, Kind, Mark, Member, Op, Table, Trace, Verb, concat
from taut.read.columns import Codes
from taut.read.files import Member as File
from taut.read.limits import check_wall
from taut.read.op_rows import NAME_LENGTH, steps_at
from taut.read.otf2.bindings import COLUMNS, Definitions, available, events
from taut.read.otf2.location_ops import Location, Message, Segment
from taut.read.step_marks import Ranges, is_iteration, loops
from taut.read.verb_words import HOPS

# OTF2's reference to nothing.
NONE = 0xFFFFFFFF
FAR = 2_000_000_000_000_000_000
_COMMUNICATE = re.compile("COLL_|POINT2POINT|RMA|DATA_TRANSFER")
_SYNCHRONISE = re.compile("BARRIER|WAIT|CRITICAL|ORDERED|FLUSH|ATOMIC")
_COORDINATE = re.compile("FILE_IO|ALLOCATE|ARTIFICIAL|CREATE|CANCEL")
_LIBRARY = re.compile(r"MPI|SHMEM|GASPI|MEASUREMENT_SYSTEM")
_RANK = re.compile(r"rank\D{0,3}(\d{1,7})", re.IGNORECASE)


def sniff(head: bytes) -> bool:
    """The first chunk of an anchor: a marker, the byte order, the name of the format."""
    return head[:1] == b"\x03" and head[2:6] == b"OTF2"


def load_member(member: File) -> Trace:
    """The ops of an archive."""
    if not member.path or not member.path.endswith(".otf2"):
        why = "an OTF2 archive is an anchor, a .def file and a folder beside it"
        raise InputRefused(member.label, why, "unpack it and name its .otf2 file or the folder around it")
    if not available():
        raise InputRefused(
            member.label, "an OTF2 archive needs the otf2 bindings", "pip install otf2, or python3-otf2 of your distribution"
        )
    definitions, columns = events(member.path, member.label)
    return _Archive(definitions, columns, member.label).trace()


class _Archive:
    """Definitions put to use."""

    def __init__(self, definitions: Definitions, columns: dict[str, Ints], label: str) -> None:
        self.d, self.columns, self.label = definitions, columns, label
        self.counts: Counter[str] = Counter(events=len(columns["kind"]))
        self.partial: list[str] = []
        self.listed = {owner: self._listed(owner) for owner in {owner for _, owner, _ in self.d.groups.values()}}
        self.rank = self._ranks()
        self.comms = {ref: self._comm(group) for ref, (_, group) in self.d.comms.items()}
        named = Counter(name for name, _ in self.d.comms.values())
        self.comm_names = {
            ref: name if name and named[name] == 1 else f"{name or 'comm'} {ref}" for ref, (name, _) in self.d.comms.items()
        }
        places: Counter[int] = Counter()
        self.turn = {}
        for ref, (_, _, group) in sorted(self.d.locations.items()):
            self.turn[ref], places[group] = places[group], places[group] + 1
        second, origin, _, self.began = (*self.d.clock, 0, 0, 0)[:4] if self.d.clock else (10**9, 0, 0, 0)
        self.second, self.origin = max(second, 1), min(origin, int(columns["time"].min(initial=2**62)))
        self.talks = frozenset(ref for ref, (name, role, paradigm) in self.d.regions.items() if paradigm == "MPI")
        self.names, self.lanes, self.groups, self.tags = Codes(), Codes(), Codes(), Codes()

    def trace(self) -> Trace:
        """All locations, one after the other."""
        order = np.lexsort((np.arange(len(self.columns["kind"])), self.columns["location"]))
        located = self.columns["location"][order]
        cuts = np.flatnonzero(np.diff(located)) + 1
        rows: list[tuple[int, ...]] = []
        whole: list[tuple[int, int, int, int]] = []
        # Enter and leave nest inside a location only, so each is read on its own.
        for mine in np.split(order, cuts):
            ref = int(self.columns["location"][mine[0]]) if len(mine) else NULL
            place = self._place(ref)
            if place is None:
                self.counts["dropped: at a location of no process"] += len(mine)
                continue
            location = Location(self.talks, self.counts)
            location.read(zip(*(self.columns[name][mine].tolist() for name in COLUMNS if name != "location"), strict=True))
            rank, lane = place
            rows += [row for segment in location.segments for row in self._rows(rank, lane, segment)]
            whole += [(rank << 24 | lane, start, end, region) for region, start, end in location.whole]
        if not rows:
            raise InputRefused(self.label, "no operator events in this archive", "trace with regions or MPI enabled")
        return self._assembled(np.array(rows, dtype=np.int64).T, np.array(whole, dtype=np.int64).reshape(-1, 4).T)

    def _assembled(self, rows: Ints, whole: Ints) -> Trace:
        names = ("rank", "lane", "kind", "name", "start_ns", "end_ns", "verb", "group", "size", "peer", "part")
        columns = dict(zip(names, rows, strict=True))
        for name in ("start_ns", "end_ns"):
            columns[name] = self._ns(columns[name])
        check_wall(columns["start_ns"], columns["end_ns"], self.label)
        if len(self.tags) < 2:
            columns["part"] = np.full(len(columns["part"]), NULL)
        marks = self._marks(columns, whole)
        columns["step"] = np.full(len(columns["rank"]), NULL)
        for rank in np.unique(marks.rank).tolist():
            mine = np.flatnonzero(columns["rank"] == rank)
            columns["step"][mine] = steps_at(columns["start_ns"][mine], marks.take(marks.rank == rank))
        ranks = sorted(set(self.rank.values()))
        hosts = self._hosts()
        self.counts["ops"] = len(columns["rank"])
        if self.counts["nonblocking collectives that meet nobody"]:
            n = self.counts["nonblocking collectives that meet nobody"]
            self.partial.append(f"{n} nonblocking collectives: the waits for them are seen, but not which ranks they wait for")
        return Trace(
            ops=Table(Op, columns),
            names=list(map(str, self.names)),
            lanes=list(map(str, self.lanes)),
            groups=list(map(str, self.groups)),
            members=Table(
                Member, {"rank": ranks, "host": np.array([hosts.get(r, "") for r in ranks], dtype=object)}, len(ranks)
            ),
            marks=marks,
            source=self.label,
            world_size=len(ranks),
            backend="mpi" if self.talks else "",
            timer_ns=max(1000, 2 * 10**9 // self.second),
            group_ranks={self.comm_names[ref]: ranks for ref, ranks in self.comms.items() if len(ranks) > 1},
            partial=tuple(self.partial),
            counts=dict(+self.counts),
        )

    def _ranks(self) -> dict[int, int]:
        """Location group → rank: MPI's own list, else their names, else their order."""
        processes = [ref for ref, (_, kind, _, _) in self.d.location_groups.items() if kind != "ACCELERATOR"]
        listed = self.listed.get("MPI", [])
        if listed:
            rank = {group: place for place, group in reversed(list(enumerate(listed)))}
            others = [ref for ref in processes if ref not in rank]
            if others:
                self.partial.append(f"{len(others)} processes are not in MPI's list: taken as the ranks after it")
            return rank | {ref: len(listed) + place for place, ref in enumerate(others)}
        found = [_RANK.search(self.d.location_groups[ref][0]) for ref in processes]
        numbers = [int(match[1]) for match in found if match]
        if len(set(numbers)) == len(processes):
            self.partial.append("ranks are assumed: from the names of the processes")
            return dict(zip(processes, numbers, strict=True))
        self.partial.append("ranks are assumed: the order of the processes")
        return {ref: place for place, ref in enumerate(processes)}

    def _listed(self, paradigm: str) -> list[int]:
        """Location groups in the order in which members of communicators are numbered."""
        for kind, owner, members in reversed(list(self.d.groups.values())):
            if owner == paradigm and kind == "COMM_LOCATIONS" and all(m in self.d.locations for m in members):
                return [self.d.locations[member][2] for member in members]
            if owner == paradigm and kind == "COMM_LOCATION_GROUPS":
                return list(members)
        return []

    def _comm(self, group: int) -> list[int]:
        """Ranks of a communicator's members in their order; empty where they are not recorded."""
        kind, paradigm, members = self.d.groups.get(group, ("", "", []))
        listed = self.listed.get(paradigm, [])
        if kind in ("COMM_LOCATIONS", "COMM_LOCATION_GROUPS"):
            members = list(range(len(listed)))
        if kind == "COMM_SELF" or not all(0 <= member < len(listed) for member in members):
            return []
        ranks = [self.rank.get(listed[member], NULL) for member in members]
        return ranks if NULL not in ranks else []

    def _place(self, location: int) -> tuple[int, int] | None:
        """(rank, lane) of a location; a stream belongs to the process that made its group."""
        name, kind, group = self.d.locations.get(location, ("", "", NONE))
        owner = group
        for _ in range(8):
            if owner in self.rank or owner not in self.d.location_groups:
                break
            owner = self.d.location_groups[owner][3]
        if owner not in self.rank or kind == "METRIC":
            return None
        own = "" if owner == group else f"{self.d.location_groups[group][0]} "
        return self.rank[owner], self.lanes[f"{own}{name or 'location'} {self.turn[location]}"[:NAME_LENGTH]]

    def _rows(self, rank: int, lane: int, segment: Segment) -> Sequence[tuple[int, ...]]:
        """One op, or one for each message of a call."""
        name, role, paradigm = self.d.regions.get(segment.region, ("", "", ""))
        found = []
        for message in segment.messages or (Message(Verb.NONE, NULL, NULL, NULL, NULL),):
            kind = Kind.COMMUNICATE if segment.messages else _kind(role, paradigm)
            kind = Kind.SYNCHRONISE if message.verb is Verb.BARRIER else kind
            label = self.names[(name or f"MPI {message.verb.word}")[:NAME_LENGTH]]
            ranks = self.comms.get(message.comm, [])
            hop = message.verb in HOPS
            peer = ranks[message.peer] if 0 <= message.peer < len(ranks) else NULL
            verb = message.verb if peer >= 0 or (not hop and len(ranks) > 1) else Verb.NONE
            self.counts["messages that meet nobody"] += bool(message.verb and not verb)
            group = self.groups[self.comm_names[message.comm]] if verb and not hop else NULL
            part = self.tags[message.comm, message.tag] if hop else NULL
            times = segment.start, segment.end
            found.append((rank, lane, kind, label, *times, verb, group, message.size, peer, part))
        return found

    def _ns(self, ticks: Ints) -> Ints:
        """Ticks as ns since the epoch, or since the origin of the trace."""
        # Whole seconds and the rest apart: ticks × 10⁹ would overflow 64 bits.
        whole, rest = np.divmod(ticks - self.origin, self.second)
        if len(whole) and int(whole.max()) > FAR // 10**9:
            raise InputRefused(self.label, "times beyond 63 years", "write the archive again")
        return (
            whole * 10**9 + np.rint(rest * (1e9 / self.second)).astype(np.int64) + (self.began if 0 < self.began < FAR else 0)
        )

    def _marks(self, columns: dict[str, Ints], whole: Ints) -> Table:
        """Regions named after iterations as steps."""
        thread, start, end, region = whole
        names = [name for name, _, _ in self.d.regions.values()]
        code = {ref: place for place, ref in enumerate(self.d.regions) if is_iteration(names[place])}
        rows = np.flatnonzero(np.isin(region, np.fromiter(code, dtype=np.int64, count=len(code))))
        coded = np.array([code[ref] for ref in region[rows].tolist()], dtype=np.int64)
        starts = {rank << 24: np.sort(columns["start_ns"][columns["rank"] == rank]) for rank in set(self.rank.values())}
        ranges = Ranges(thread[rows], self._ns(start[rows]), self._ns(end[rows]), coded, names)
        found = loops(ranges, starts)
        if found:
            loop = next(iter(found.values()))
            if loop.doubt:
                self.partial.append(f"regions {loop.doubt}")
        return concat(
            Mark, [loop.marks().replace(rank=np.full(len(loop.step), process >> 24)) for process, loop in sorted(found.items())]
        )

    def _hosts(self) -> dict[int, str]:
        """Rank → the node of the machine it runs on."""
        found = {}
        for group, rank in self.rank.items():
            node = self.d.location_groups[group][2] if group in self.d.location_groups else NONE
            for _ in range(16):
                name, kind, parent = self.d.nodes.get(node, ("", "", NONE))
                if kind.lower() in ("node", "host"):
                    found[rank] = name
                    break
                node = parent
        return found


def _kind(role: str, paradigm: str) -> Kind:
    """What a region does with its time, from its role and whose it is."""
    if _COMMUNICATE.search(role):
        return Kind.COMMUNICATE
    if _SYNCHRONISE.search(role):
        return Kind.SYNCHRONISE
    return Kind.COORDINATE if _COORDINATE.search(role) or _LIBRARY.search(paradigm) else Kind.COMPUTE
