"""Where the ranks sit: rank → host → rack → pod, and how many hops lie between any two.

Three kinds of file are recognised: Slurm's ``topology.conf`` (switches and their nodes), the output of
``nvidia-smi topo -m`` (how the devices of a host are joined), and TOML::

    [[host]]
    name = "node-1"
    rack = "r1"
    pod = "p1"
    ranks = [0, 1, 2, 3]

A hop is a switch that a message crosses: 0 within a host, 1 within a rack, 3 within a pod (rack, pod, rack), 5 beyond.
Inside a host that ``nvidia-smi`` describes it is a bridge: 0 over NVLink, 1 (PIX) to 5 (SYS) over PCIe.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from taut.core.array_types import Ints, Json
from taut.core.errors import InputRefused, TooLarge
from taut.core.tables import NULL, Table
from taut.read.config_text import load_text, parsed
from taut.read.limits import RANKS

# Larger files are no topology.
BYTES = 16 << 20
# More hosts (or switches) than any cluster has: a short bracket may stand for billions.
HOSTS = 200_000
# More switches above one another than any fabric has.
DEPTH = 16
BRIDGES = {"X": 0, "PIX": 1, "PXB": 2, "PHB": 3, "NODE": 4, "SYS": 5}
"""What nvidia-smi calls the way between two devices, and the bridges on it; NV1, NV2, … is NVLink and crosses none."""
REMEDY = "give Slurm's topology.conf, the output of nvidia-smi topo -m, or TOML with [[host]] name, rack, pod, ranks"

_SWITCH = re.compile(r"^[^\S\n]*+(switch|block)name\s*+=", re.I | re.M)
_MATRIX = re.compile(r"^(?:\x1b\[\d*+m|[^\S\n])*+GPU0\b", re.M)
_COLOUR = re.compile(r"\x1b\[[\d;]*+m")
_CONTINUED = re.compile(r"\\\r?\n")
_PAIR = re.compile(r"\b(\w++)\s*+=\s*+(\S++)")
_HOSTS = re.compile(r"(?:\[[^][]*+\]|[^,\[]++)++")
_PIECE = re.compile(r"\[[^][]*+\]|[^\[]++")
_RANGE = re.compile(r"(\d{1,12})(?:-(\d{1,12}))?", re.ASCII)

Places = Mapping[str, tuple[str, ...]]
"""Host → the switches above it, nearest first."""


class Topology(Struct, frozen=True):
    """Hosts and the switches above them, and the host of every rank."""

    source: str
    places: Places
    host_of: Mapping[int, str] = field(default_factory=dict)
    bridges: Ints | None = None
    """Device × device of a host: bridges between them, NULL if unknown; all hosts are taken to be alike."""
    device_of: Mapping[int, int] = field(default_factory=dict)

    def seated(self, members: Table) -> Topology:
        """The same with every rank on its host: as the file says, else as the trace does. The n-th rank has device n."""
        host_of = {int(r): self._known(str(h)) for r, h in zip(members.rank, members.host, strict=True) if h}
        host_of |= {r: h for r, h in self.host_of.items() if r in set(members.rank.tolist())}
        if self.bridges is not None and not host_of and len(members) <= len(self.bridges):
            host_of = {int(r): "host" for r in members.rank}
        known = set(self.places)
        if self.bridges is None and not known & set(host_of.values()):
            some = ", ".join(sorted(set(host_of.values()))[:3])
            why = f"none of the job's hosts ({some} …) is in it" if some else "the traces name no host"
            raise InputRefused(self.source, why, "say which ranks a host has, in TOML: [[host]] name, rack, pod, ranks")
        seats: dict[str, int] = {}
        device_of = {}
        for rank in sorted(host_of):
            device_of[rank] = seats.get(host_of[rank], 0)
            seats[host_of[rank]] = device_of[rank] + 1
        return replace(self, host_of=host_of, device_of=device_of)

    def _known(self, host: str) -> str:
        """A host as the file writes it: with its domain or without."""
        short = host.split(".", 1)[0]
        return host if host in self.places or short not in self.places else short

    def unplaced(self, members: Table) -> list[int]:
        """Ranks whose host the file does not place."""
        if self.bridges is not None:
            return [int(r) for r in members.rank if self.device_of.get(int(r), len(self.bridges)) >= len(self.bridges)]
        return [int(r) for r in members.rank if self.host_of.get(int(r)) not in self.places]

    def hops(self, a: Ints, b: Ints) -> Ints:
        """Hops between pairs of ranks, arrays in and out; NULL where they are not known."""
        hosts = sorted(set(self.host_of.values()))
        number = {host: i for i, host in enumerate(hosts)}
        seats = {rank: number[host] for rank, host in self.host_of.items()}
        count = len(hosts) + 1
        here, there = (np.array([seats.get(int(r), count - 1) for r in side], dtype=np.int64) for side in (a, b))
        # Hosts are few and ranks are many: each pair of hosts is looked at once.
        pairs, which = np.unique(here * count + there, return_inverse=True)
        apart = [self._between([*hosts, ""][p // count], [*hosts, ""][p % count]) for p in pairs.tolist()]
        out = np.array(apart, dtype=np.int64)[which]
        if self.bridges is not None:
            for i in np.flatnonzero((here == there) & (here < count - 1)):
                one, other = self.device_of[int(a[i])], self.device_of[int(b[i])]
                out[i] = self.bridges[one, other] if max(one, other) < len(self.bridges) else NULL
        return out

    def _between(self, one: str, other: str) -> int:
        """Switches between two hosts: up to the first that both are under, and down again."""
        if one == other:
            return 0 if one else NULL
        up, down = self.places.get(one, ()), self.places.get(other, ())
        return next((i + down.index(s) + 1 for i, s in enumerate(up) if s in down), NULL)


def load(path: str | Path) -> Topology:
    """The topology in a file of any of the three kinds."""
    text = load_text(path, REMEDY, BYTES, errors="replace")
    if _SWITCH.search(text):
        return Topology(str(path), _slurm(text, path))
    if _MATRIX.search(text):
        return Topology(str(path), {}, bridges=_matrix(text, path))
    return _toml(text, path)


def _toml(text: str, path: str | Path) -> Topology:
    found = parsed(text, path, REMEDY)
    hosts = found.get("host")
    if set(found) != {"host"} or not isinstance(hosts, list) or not all(isinstance(h, dict) for h in hosts):
        raise InputRefused(path, "not a topology", REMEDY)
    places: dict[str, tuple[str, ...]] = {}
    host_of: dict[int, str] = {}
    for i, host in enumerate(hosts):
        name, ranks = _host(host, f"{path}: host {i + 1}")
        if name in places:
            raise InputRefused(f"{path}: host {i + 1}", f"{name} is there twice", "name every host once")
        rack, pod = host.get("rack"), host.get("pod", "")
        # A rack's number may recur in every pod; above the pods (or above the racks, without any) is one core.
        places[name] = (f"{pod}/{rack}", *([f"{pod}/"] if pod else []), "core") if rack is not None else ()
        for rank in ranks:
            if rank in host_of:
                raise InputRefused(f"{path}: host {i + 1}", f"rank {rank} is also on {host_of[rank]}", "give a rank one host")
            host_of[rank] = name
    return Topology(str(path), places, host_of)


def _host(host: Mapping[str, Json], where: str) -> tuple[str, list[int]]:
    """Name and ranks of one host, checked."""
    unknown = set(host) - {"name", "rack", "pod", "ranks"}
    if unknown:
        raise InputRefused(where, f"unknown key {', '.join(sorted(unknown))}", "a host has name, rack, pod, ranks")
    if not all(isinstance(host.get(key, ""), str) for key in ("name", "rack", "pod")) or not host.get("name"):
        raise InputRefused(where, "name, rack and pod are texts, and a name there must be", REMEDY)
    ranks = host.get("ranks", [])
    if not isinstance(ranks, list) or not all(type(r) is int and 0 <= r < RANKS for r in ranks):
        raise InputRefused(where, "ranks is a list of whole numbers from 0", "for example ranks = [0, 1, 2, 3]")
    if host.get("pod") and "rack" not in host:
        raise InputRefused(where, "a pod without a rack", "give the rack as well")
    return str(host["name"]), [rank for rank in ranks if isinstance(rank, int)]


def _slurm(text: str, path: str | Path) -> Places:
    """Switch lines: what is below each; then for each host the switches above it."""
    above: dict[tuple[str, str], str] = {}
    spelled = 0
    joined = _CONTINUED.sub(" ", text)
    for number, line in enumerate(joined.splitlines(), 1):
        where = f"{path}: line {number}"
        words = dict(_PAIR.findall(line.split("#", 1)[0]))
        pairs = {key.lower(): value for key, value in words.items()}
        switch = pairs.get("switchname") or pairs.get("blockname")
        if not switch:
            continue
        for kind, key in (("host", "nodes"), ("switch", "switches")):
            names = hostlist(pairs.get(key, ""), where)
            spelled += len(names)
            if spelled > HOSTS:
                raise TooLarge(where, f"more than {HOSTS:,} hosts", "this is no topology")
            for name in names:
                if above.setdefault((kind, name), switch) != switch:
                    raise InputRefused(where, f"{name} is also under {above[kind, name]}", "a tree has one way up")
    places = {name: tuple(_upwards(name, above, path)) for kind, name in above if kind == "host"}
    if not places:
        raise InputRefused(path, "no switch has a node", REMEDY)
    return places


def _upwards(host: str, above: Mapping[tuple[str, str], str], path: str | Path) -> Iterator[str]:
    switch = above.get(("host", host))
    for _ in range(DEPTH):
        if switch is None:
            return
        yield switch
        switch = above.get(("switch", switch))
    raise InputRefused(path, f"more than {DEPTH} switches above {host}, or a circle of them", "a tree has a top")


def hostlist(text: str, where: str = "host list") -> list[str]:
    """The names that Slurm's short form stands for: ``n[1-3,7],gpu[01-02]a`` is n1, n2, n3, n7, gpu01a, gpu02a."""
    out: list[str] = []
    for item in _HOSTS.findall(text):
        pieces = [_numbers(p[1:-1], where) if p.startswith("[") else [p] for p in _PIECE.findall(item)]
        if len(out) + np.prod([len(p) for p in pieces], dtype=float) > HOSTS:
            raise TooLarge(where, f"more than {HOSTS:,} hosts", "this is no topology")
        out += map("".join, product(*pieces))
    if text.count("[") != text.count("]") or any("[" in name or "]" in name for name in out):
        raise InputRefused(where, f"{text[:60]!r} is no host list", "write it like node[01-16,20]")
    return out


def _numbers(text: str, where: str) -> list[str]:
    out: list[str] = []
    for part in text.split(","):
        found = _RANGE.fullmatch(part.strip())
        if not found or int(found[2] or found[1]) < int(found[1]):
            raise InputRefused(where, f"[{text[:60]}] is no range", "write it like node[01-16,20]")
        low, high = int(found[1]), int(found[2] or found[1])
        if len(out) + high - low > HOSTS:
            raise TooLarge(where, f"more than {HOSTS:,} hosts", "this is no topology")
        out += [str(i).zfill(len(found[1])) for i in range(low, high + 1)]
    return out


def _matrix(text: str, path: str | Path) -> Ints:
    """Bridges between the devices of the host, from the rows that begin with one."""
    lines = [line.split() for line in _COLOUR.sub("", text).splitlines()]
    header = next((words for words in lines if words[:1] == ["GPU0"] and "X" not in words), [])
    devices = [word for word in header if re.fullmatch(r"GPU\d+", word)]
    known = set(devices)
    rows = {words[0]: words[1 : len(devices) + 1] for words in lines if words and words != header and words[0] in known}
    if not devices or sorted(rows) != sorted(devices) or any(len(row) != len(devices) for row in rows.values()):
        raise InputRefused(path, f"{len(rows)} rows for {len(devices)} devices", "give all that nvidia-smi topo -m prints")
    return np.array([[0 if re.fullmatch(r"NV\d+", w) else BRIDGES.get(w, NULL) for w in rows[d]] for d in devices])
