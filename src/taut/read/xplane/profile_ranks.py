"""Profiles → traces of ranks: every device is one, and the profiles of several hosts are those of one job.

The number of a device is its rank where no two devices have the same; else hosts follow one another in the order of the
files, which is reported. A profile without devices has the XLA ops that its host ran in their stead, if any.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from taut.core.array_types import Texts
from taut.core.errors import InputRefused
from taut.core.tables import NULL, Table, Trace, Verb
from taut.core.tables import Member as Rank
from taut.read.contents import Profile
from taut.read.kineto.event_kinds import is_launch
from taut.read.limits import check_wall
from taut.read.merge import as_rank
from taut.read.op_rows import Rows, coded
from taut.read.step_marks import cut_at_end, cut_note
from taut.read.xplane.device_ops import DeviceOps, device_model
from taut.read.xplane.host_threads import Calls, HostOps, called_steps, calls, host_marks, host_ops
from taut.read.xplane.line_roles import device_of
from taut.read.xplane.nesting import innermost
from taut.read.xplane.op_words import meaning
from taut.read.xplane.replica_groups import ReplicaGroups
from taut.read.xplane.space import Plane, Space

# A clock that counts from the beginning of the profile stays below this for three years.
RELATIVE_NS = 10**17
# Devices that a host may stand in for.
HOSTED = 1 << 20
PROFILES = "xla profiles"
NO_DEVICE = "no accelerator in the profile: the figures are those of XLA ops on threads of the host"
_RECORD = "record on the machine that has the accelerator: jax.profiler.start_trace(FOLDER), some steps, stop_trace()"
_NUMBER = re.compile(r"\d{1,19}")


def profile(space: Space) -> Profile:
    """What one profile tells of its devices."""
    host = space.hosts[0] if space.hosts else ""
    kind, devices = _devices(space)
    launches = calls(space)
    marked, called = host_marks(space, np.sort(launches.start)), ""
    if not len(marked):
        marked, called = called_steps(space, launches)
    cut = _cut(space, devices, launches, marked)
    marked = marked.take(np.arange(len(marked) - cut))
    found: list[tuple[int, Trace]] = []
    for number, planes in sorted(devices.items()):
        ops = DeviceOps(launches, space.modules, ReplicaGroups(number, len(devices), kind != "TPU"))
        for plane in planes:
            ops.add(plane)
        if len(ops):
            about = {"host": _text(host), "device": _text(device_model(planes))}
            found.append((number, ops.trace(number, marked, about, space.label)))
    notes = [
        *space.notes,
        *([f"no step marks: calls of {called!r} are taken as steps"] if called else []),
        *([cut_note(cut)] if cut else []),
        *(f"the profiler reported: {text[:200]}" for text in space.errors[:1]),
    ]
    if not found:
        found = [(ops.device, _host_trace(ops, marked, host, space)) for ops in host_ops(space)]
        notes.append(NO_DEVICE)
    if not found:
        empty = "its devices recorded nothing" if devices else "threads of the host only"
        raise InputRefused(space.label, f"an XLA profile without XLA ops: {empty}", _RECORD)
    start, end = (np.concatenate([trace.ops.columns[name] for _, trace in found]) for name in ("start_ns", "end_ns"))
    check_wall(start, end, space.label)
    number, first = found[0]
    counts = dict(+(space.counts + Counter(first.counts) + Counter({PROFILES: 1})))
    found[0] = number, replace(first, counts=counts, partial=tuple(notes))
    began, ended = (_time(space, f"profile_{word}_time") for word in ("start", "stop"))
    return Profile(space.label, host, found, began, ended)


def _cut(space: Space, devices: dict[int, list[Plane]], launches: Calls, marked: Table) -> int:
    """How many of the last marked steps launched work that is not recorded any more."""
    lines = [line for planes in devices.values() for plane in planes for line in plane.lines]
    if not lines or not len(marked):
        return 0
    served = np.isin(launches.number, np.concatenate([line.numbers["correlation_id"] for line in lines]))
    launching = np.array([is_launch(name) for name in launches.names], dtype=np.bool_)
    lost = ~served & (launching[launches.name] if len(launching) else False)
    return cut_at_end(marked, np.sort(launches.start[served]), np.sort(launches.start[lost]))


def _devices(space: Space) -> tuple[str, dict[int, list[Plane]]]:
    """Kind of the accelerators, and number → planes; those of a kind with work go before others (``CUSTOM``)."""
    kinds: dict[str, dict[int, list[Plane]]] = {}
    for plane in space.planes:
        found = device_of(plane.name)
        if found:
            kinds.setdefault(found[0], {}).setdefault(found[1], []).append(plane)
    events = {kind: sum(len(line) for some in of.values() for p in some for line in p.lines) for kind, of in kinds.items()}
    order = sorted(kinds, key=lambda kind: (kind == "CUSTOM", not events[kind], -events[kind]))
    return (order[0], kinds[order[0]]) if order else ("", {})


def _time(space: Space, key: str) -> int:
    values = [plane.about[key] for plane in space.planes if key in plane.about]
    return int(values[0]) if values and _NUMBER.fullmatch(values[0]) and int(values[0]) < 1 << 62 else NULL


def _host_trace(ops: HostOps, marked: Table, host: str, space: Space) -> Trace:
    """XLA ops on threads of the host as the ops of one rank; of those inside others the innermost count."""
    rows, groups = Rows(), ReplicaGroups(ops.device, HOSTED, in_order=True)
    meanings = [meaning(name, fact=space.modules.get(program, name)) for program, name in ops.names]
    met = [groups.of(m.groups) if m.verb else "" for m in meanings]
    group = np.array([rows.groups[name] if name else NULL for name in met], dtype=np.int64)
    verbs = np.array([Verb.NONE if name is None else m.verb for m, name in zip(meanings, met, strict=True)], dtype=np.int64)
    kinds, sizes = (np.array([getattr(m, key) for m in meanings], dtype=np.int64) for key in ("kind", "size"))
    for thread in np.unique(ops.thread).tolist():
        mine = np.flatnonzero(ops.thread == thread)
        owner, start, end = innermost(ops.start[mine], ops.end[mine])
        name = ops.name[mine[owner]]
        lane, codes = rows.lanes[f"thread {ops.threads[thread]}"], coded(rows.names, name, lambda code: meanings[code].name)
        rows.add(start, end, kind=kinds[name], verb=verbs[name], name=codes, lane=lane, group=group[name], size=sizes[name])
    marks = marked.replace(rank=np.full(len(marked), ops.device))
    table = rows.table(ops.device, marks)
    rows.counts["ops"] = len(table)
    return Trace(
        ops=table,
        names=list(map(str, rows.names)),
        lanes=list(map(str, rows.lanes)),
        groups=list(map(str, rows.groups)),
        group_ranks=groups.ranks,
        members=Table(Rank, {"rank": [ops.device], "host": _text(host)}, 1),
        marks=marks,
        source=space.label,
        counts=dict(+rows.counts),
    )


def _text(value: str) -> Texts:
    return np.array([value], dtype=object)


def traces(profiles: Sequence[Profile]) -> list[tuple[str, Trace]]:
    """The traces of all devices of all profiles, with their ranks."""
    profiles = _without_twins(profiles)
    _refuse_sessions(profiles)
    numbers = [number for one in profiles for number, _ in one.devices]
    apart = len(set(numbers)) == len(numbers)
    seats = Counter((one.host, number) for one in profiles for number, _ in one.devices)
    shifts = _shifts(profiles)
    found: list[tuple[str, Trace]] = []
    offset = 0
    for one, shift in zip(profiles, shifts, strict=True):
        for number, trace in one.devices:
            label = one.label if len(one.devices) == 1 else f"{one.label}:device {number}"
            trace = as_rank(trace, number if apart else offset + number)
            if not apart:
                trace = _in_several(trace, one, offset)
            if seats[one.host, number] > 1:  # processes that each see one device call it by the same number
                trace = replace(trace, members=trace.members.replace(gpu=np.array([NULL])))
            found.append((label, _shifted(trace, shift)))
        offset += max(number for number, _ in one.devices) + 1
    if not apart:
        label, first = found[0]
        note = "ranks are assumed: the order of the files, and of the devices in each"
        found[0] = label, replace(first, partial=(*first.partial, note))
    return found


def _in_several(trace: Trace, one: Profile, offset: int) -> Trace:
    """The groups of one profile among several: those that only hold its own devices are told from those of the others."""
    own = {name for name, ranks in trace.group_ranks.items() if max(ranks) < len(one.devices)}
    named = {name: f"{name} of {one.host or one.label}" if name in own else name for name in trace.groups}
    ranks = {}
    for name, some in trace.group_ranks.items():
        ranks[named.get(name, name)] = [rank + offset for rank in some] if name in own else list(some)
    return replace(trace, groups=[named[name] for name in trace.groups], group_ranks=ranks)


def _without_twins(profiles: Sequence[Profile]) -> list[Profile]:
    """Without the files for the trace viewer that lie beside the protobufs they were made from."""
    whole = {_folder(one.label) for one in profiles if not one.viewed}
    return [one for one in profiles if not one.viewed or _folder(one.label) not in whole]


def _folder(label: str) -> str:
    return re.split(r"[/\\:](?=[^/\\:]*$)", label)[0] if re.search(r"[/\\:]", label) else ""


def _refuse_sessions(profiles: Sequence[Profile]) -> None:
    """Profiles of one host at two times are two recordings, not two ranks."""
    seen: dict[tuple[str, int], Profile] = {}
    for one in profiles:
        for number, _ in one.devices:
            other = seen.setdefault((one.host, number), one)
            if other is one or not one.host or min(one.start_ns, other.start_ns) < 0:
                continue
            if one.start_ns >= other.stop_ns >= 0 or other.start_ns >= one.stop_ns >= 0:
                why = f"device {number} of {one.host} at another time than in {other.label}: two recordings"
                raise InputRefused(one.label, why, "give one folder of plugins/profile at a time")


def _shifts(profiles: Sequence[Profile]) -> list[int]:
    """What to add to the times of each profile so that those of several, which count from their own beginnings, fit."""
    starts = [one.start_ns for one in profiles]
    latest = max(int(trace.ops.end_ns.max()) for one in profiles for _, trace in one.devices)
    if len(profiles) < 2 or min(starts) < 0 or latest > RELATIVE_NS:
        return [0] * len(profiles)
    return [start - min(starts) for start in starts]


def _shifted(trace: Trace, shift: int) -> Trace:
    if not shift:
        return trace
    ops, marks = (t.replace(start_ns=t.start_ns + shift, end_ns=t.end_ns + shift) for t in (trace.ops, trace.marks))
    return replace(trace, ops=ops, marks=marks)
