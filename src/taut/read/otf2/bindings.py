"""OTF2 archives through the library's own bindings, in a process of their own.

The library is C and an archive is hostile: what crashes or eats memory there is a refusal here. The child writes names (one
line of JSON) and columns to standard output, nothing that has to be trusted.
"""

from __future__ import annotations

import subprocess
import sys
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Protocol

import msgspec
import numpy as np

from taut.core.array_types import Ints
from taut.core.errors import InputRefused, TooLarge
from taut.read.files import size_cap

# Kinds of events; of a deferred (nonblocking) collective only its completion.
ENTER, LEAVE, SEND, RECV, BEGIN, COLLECTIVE, DEFERRED = range(7)
# ``what`` is a region, a tag or a collective operation.
COLUMNS = ("kind", "location", "time", "what", "comm", "peer", "size")
# Address space of the child: what the library takes, and what a byte of an archive may become.
HEADROOM_BYTES, BYTES_PER_BYTE = 2 << 30, 60
PATIENCE_S, BYTES_PER_S = 60, 100_000
BATCH = 100_000
CHILD = "import sys; from taut.read.otf2.bindings import write; write(sys.argv[1], int(sys.argv[2]))"


class Definitions(msgspec.Struct):
    """What the archive defines, by reference; enumerations by name."""

    clock: list[int] = []
    """Ticks a second, tick of the trace's origin, length, and the origin's time since the epoch in ns."""
    regions: dict[int, tuple[str, str, str]] = {}
    """Name, role, paradigm."""
    locations: dict[int, tuple[str, str, int]] = {}
    """Name, type, location group."""
    location_groups: dict[int, tuple[str, str, int, int]] = {}
    """Name, type, node of the machine, the group that created it."""
    nodes: dict[int, tuple[str, str, int]] = {}
    """Name, class, parent."""
    groups: dict[int, tuple[str, str, list[int]]] = {}
    """Type, paradigm, members."""
    comms: dict[int, tuple[str, int]] = {}
    """Name, group; -1 for a communicator between two groups."""


def available() -> bool:
    """Whether the bindings are installed; they are not loaded here."""
    import importlib.util

    return importlib.util.find_spec("otf2") is not None


def events(anchor: str, label: str) -> tuple[Definitions, dict[str, Ints]]:
    """Definitions and events of an archive, in the order of each location."""
    size = _size(Path(anchor))
    if size > size_cap():
        raise TooLarge(label, f"an archive of {size >> 20:,} MiB", "trace fewer iterations")
    command = [sys.executable, "-c", CHILD, anchor, str(HEADROOM_BYTES + BYTES_PER_BYTE * size)]
    try:
        child = subprocess.run(command, capture_output=True, timeout=PATIENCE_S + size / BYTES_PER_S, check=False)
    except subprocess.TimeoutExpired:
        raise InputRefused(label, "the OTF2 library does not come to an end with it", "write the archive again") from None
    if child.returncode:
        raise InputRefused(label, f"damaged OTF2 archive ({_reason(child)})", "copy anchor, .def and folder again")
    first = child.stdout.index(b"\n") + 1
    columns = np.frombuffer(child.stdout, dtype=np.int64, offset=first).reshape(len(COLUMNS), -1)
    return msgspec.json.decode(child.stdout[:first], type=Definitions), dict(zip(COLUMNS, columns, strict=True))


def _size(anchor: Path) -> int:
    folder = anchor.with_suffix("")
    return sum(file.stat().st_size for file in (anchor.with_suffix(".def"), *folder.glob("*")) if file.is_file())


def _reason(child: subprocess.CompletedProcess[bytes]) -> str:
    if child.returncode < 0:
        return f"the library stopped with signal {-child.returncode}"
    lines = [line for line in child.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    return "".join(c for c in lines[-1] if c.isprintable())[:160] if lines else "the library gives no reason"


def write(anchor: str, memory: int) -> None:
    """Read an archive and write what it holds to standard output."""
    import _otf2

    _limit(memory)
    # The library writes to standard output too; only our bytes may go there.
    with open(1, "wb", closefd=False) as out:
        handle = _otf2.Reader_Open(anchor)
        _otf2.Reader_SetSerialCollectiveCallbacks(handle)
        definitions = _definitions(_otf2, handle)
        columns = _events(_otf2, handle, sorted(definitions.locations))
        out.write(msgspec.json.encode(definitions) + b"\n")
        for column in columns:
            out.write(column)


def _limit(memory: int) -> None:
    try:
        import resource
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


class Handle(Protocol):
    """An object of the library: an enumeration's value, a list of attributes, a reader. It is only passed on."""


# Called by the library for one kind of record: user data (always None) and the record's fields.
Handler = Callable[..., None]


def _word(value: Handle) -> str:
    """The name of an enumeration's value."""
    return str(getattr(value, "name", value)).rpartition(".")[2]


def _definitions(lib: ModuleType, handle: Handle) -> Definitions:
    found, strings = Definitions(), dict[int, str]()
    # Strings may come after what they name: until the end, the first number of each definition stands for its name.
    regions, locations = dict[int, tuple[int, str, str]](), dict[int, tuple[int, str, int]]()
    location_groups, nodes = dict[int, tuple[int, str, int, int]](), dict[int, tuple[int, int, int]]()
    comms = dict[int, tuple[int, int]]()

    def string(_: None, ref: int, text: str | bytes) -> None:
        strings[ref] = (text if isinstance(text, str) else text.decode("utf-8", "replace"))[:400]

    def clock(_: None, *values: int) -> None:
        found.clock = [int(value) for value in values]

    def region(
        _: None, ref: int, name: int, canonical: int, description: int, role: Handle, paradigm: Handle, *rest: int
    ) -> None:
        regions[ref] = (name, _word(role), _word(paradigm))

    def location(_: None, ref: int, name: int, kind: Handle, events: int, group: int) -> None:
        locations[ref] = (name, _word(kind), group)

    def location_group(_: None, ref: int, name: int, kind: Handle, node: int, creator: int = -1) -> None:
        location_groups[ref] = (name, _word(kind), node, creator)

    def node(_: None, ref: int, name: int, kind: int, parent: int) -> None:
        nodes[ref] = (name, kind, parent)

    def group(_: None, ref: int, name: int, kind: Handle, paradigm: Handle, flags: Handle, members: Sequence[int]) -> None:
        found.groups[ref] = (_word(kind), _word(paradigm), [int(member) for member in members])

    def comm(_: None, ref: int, name: int, group: int, *rest: int) -> None:
        comms[ref] = (name, group)

    def between(_: None, ref: int, name: int, *rest: int) -> None:
        comms[ref] = (name, -1)

    reader, callbacks = lib.Reader_GetGlobalDefReader(handle), lib.GlobalDefReaderCallbacks_New()
    handlers: dict[str, Handler] = {
        "ClockProperties": clock,
        "String": string,
        "Region": region,
        "Location": location,
        "InterComm": between,
        "LocationGroup": location_group,
        "SystemTreeNode": node,
        "Group": group,
        "Comm": comm,
    }
    _set(lib, "GlobalDefReaderCallbacks", callbacks, handlers)
    lib.Reader_RegisterGlobalDefCallbacks(handle, reader, callbacks, None)
    lib.Reader_ReadAllGlobalDefinitions(handle, reader)
    text = strings.get
    found.regions = {ref: (text(name, ""), role, owner) for ref, (name, role, owner) in regions.items()}
    found.locations = {ref: (text(name, ""), kind, group) for ref, (name, kind, group) in locations.items()}
    found.location_groups = {
        ref: (text(name, ""), kind, node, creator) for ref, (name, kind, node, creator) in location_groups.items()
    }
    found.nodes = {ref: (text(name, ""), text(int(kind), ""), parent) for ref, (name, kind, parent) in nodes.items()}
    found.comms = {ref: (text(name, ""), group) for ref, (name, group) in comms.items()}
    return found


def _events(lib: ModuleType, handle: Handle, locations: list[int]) -> list[array[int]]:
    columns = [array("q") for _ in COLUMNS]
    push = [column.append for column in columns]

    def add(kind: int, location: int, time: int, what: int, comm: int = -1, peer: int = -1, size: int = -1) -> None:
        for append, value in zip(push, (kind, location, time, what, comm, peer, size), strict=True):
            append(value if value < 1 << 63 else -1)

    def message(kind: int) -> Handler:
        def callback(at: int, time: int, _: None, attributes: Handle, *fields: int) -> None:
            peer, comm, tag, size = fields[:4]
            add(kind, at, time, tag, comm, peer if peer < 1 << 31 else -1, size)

        return callback

    def collective(kind: int) -> Handler:
        def callback(
            at: int, time: int, _: None, attributes: Handle, op: Handle | int, comm: int, root: int, *sizes: int
        ) -> None:
            what = op if isinstance(op, int) else int(getattr(op, "value", -1))
            add(kind, at, time, what, comm, root if root < 1 << 31 else -1, max(sizes[:2], default=-1))

        return callback

    def region(kind: int) -> Handler:
        return lambda at, time, _, attributes, what: add(kind, at, time, what)

    callbacks = lib.GlobalEvtReaderCallbacks_New()
    handlers: dict[str, Handler] = {
        "Enter": region(ENTER),
        "Leave": region(LEAVE),
        "MpiSend": message(SEND),
        "MpiIsend": message(SEND),
        "MpiRecv": message(RECV),
        "MpiIrecv": message(RECV),
        "MpiCollectiveBegin": lambda at, time, _, attributes: add(BEGIN, at, time, -1),
        "MpiCollectiveEnd": collective(COLLECTIVE),
        "NonBlockingCollectiveComplete": collective(DEFERRED),
    }
    _set(lib, "GlobalEvtReaderCallbacks", callbacks, handlers)
    reader = _event_reader(lib, handle, locations)
    lib.GlobalEvtReader_SetCallbacks(reader, callbacks, None)
    while lib.GlobalEvtReader_ReadEvents(reader, BATCH) == BATCH:
        pass
    return columns


def _set(lib: ModuleType, family: str, callbacks: Handle, handlers: dict[str, Handler]) -> None:
    """Register what this version of the library knows; the handlers must outlive the reading."""
    for name, handler in handlers.items():
        setter = getattr(lib, f"{family}_Set{name}Callback", None)
        if setter:
            setter(callbacks, handler)


def _event_reader(lib: ModuleType, handle: Handle, locations: list[int]) -> Handle:
    """The reader of all locations in one order of time; their own definitions correct their clocks."""
    for location in locations:
        lib.Reader_SelectLocation(handle, location)
    try:
        lib.Reader_OpenDefFiles(handle)
        local = True
    except lib.Error:
        local = False
    lib.Reader_OpenEvtFiles(handle)
    for location in locations:
        definitions = lib.Reader_GetDefReader(handle, location) if local else None
        if definitions:
            lib.Reader_ReadAllLocalDefinitions(handle, definitions)
            lib.Reader_CloseDefReader(handle, definitions)
        lib.Reader_GetEvtReader(handle, location)
    reader: Handle = lib.Reader_GetGlobalEvtReader(handle)
    return reader
