"""What one file can hold where that is not a trace: the classes that readers return between which ``trace.py`` distinguishes.

They are here, and not beside the readers that fill them, so that distinguishing them imports no reader.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field

from taut.core.array_types import Floats, Ints, Mask
from taut.core.tables import NULL, Table, Trace
from taut.read.verb_words import HOPS

ONLY_DUMPS = "only flight-recorder dumps"
"""How a note begins that says what dumps without traces cannot tell."""


class Place(NamedTuple):
    """Where samples were taken: how that is called, and what is known of rank, host and accelerator."""

    component: str
    rank: int | None = None
    host: str = ""
    gpu: int | None = None


class Found(Struct, frozen=True):
    """Samples of one metric as a reader found them: nothing renamed, nothing converted, in any order."""

    name: str
    labels: Mapping[str, str]
    time_ns: Ints
    value: Floats
    unit: str = ""
    limit: Floats | None = None
    limit_source: str = ""
    counter: bool = False
    """Whether the source says that it only ever grows."""


class Series(Struct, frozen=True):
    """The samples of one metric of one component, in order of time."""

    place: Place
    metric: str
    time_ns: Ints
    value: Floats
    limit: Floats
    limit_source: str = ""

    @property
    def component(self) -> str:
        """What was measured."""
        return self.place.component


class Metrics(Struct, frozen=True):
    """What one file or server holds."""

    label: str
    series: Sequence[Series]
    zoneless: bool = False
    """Times were written as dates without a zone."""
    notes: Sequence[str] = ()
    """What was left out, one line each."""
    settings: Sequence[Found] = ()
    """Series of what somebody sets (replicas, limits), as they were found: their changes are actions."""


class ControlLog(Struct, frozen=True):
    """The actions of one file."""

    label: str
    actions: Table
    """In the order of the log."""
    demand: Sequence[Series] = ()
    """What the controllers reacted to, where they log it."""
    zoneless: bool = False
    """Times were written without a time zone, and taken as UTC."""
    torn: int = 0
    """Lines or rows that could not be read, or have no time."""
    repeated: int = 0
    """Deliveries that carry the id of one before."""
    partial: Sequence[str] = ()


class JobLog(Struct, frozen=True):
    """The attempts of one file."""

    label: str
    attempts: Table
    inside: bool = False
    """True for a log written inside the job (a launcher, the training): a scheduler's attempts may hold several of these."""
    zoneless: bool = False
    """Times were written without a time zone, and taken as UTC."""
    yearless: bool = False
    """Dates were written without a year: times are right only against each other."""
    partial: Sequence[str] = ()
    controller: str = ""
    """Who starts the jobs of this log; empty if it does not say."""
    control: ControlLog | None = None
    """The decisions that the log holds beside its attempts; None for a format that holds none."""


class Dump(Struct):
    """The calls that one rank's flight recorder holds, in order of creation."""

    label: str
    rank: int
    calls: Table
    """Rows of tables.Call; ``group`` and ``name`` index the two lists."""
    names: list[str]
    groups: list[str]
    group_ranks: dict[str, list[int]] = field(default_factory=dict)

    @property
    def collectives(self) -> Table:
        """The recorded calls that all members of a group take part in."""
        hop = np.isin(self.calls.verb, HOPS)
        return self.calls.take((self.calls.created_ns >= 0) & ~hop)


class Seat(NamedTuple):
    """The place of one process in one communicator of NCCL."""

    host: str
    pid: int
    comm: str
    rank: int
    """Inside the communicator."""
    ranks: int

    @property
    def process(self) -> tuple[str, int]:
        """Host and pid."""
        return self.host, self.pid

    def known(self) -> bool:
        """Whether it names a communicator and a rank inside it."""
        return bool(self.comm) and 0 <= self.rank < self.ranks


class InspectorLog(Struct, frozen=True):
    """The operations of one log of NCCL's Inspector; times in ns, -1 where they are not recorded."""

    label: str
    seats: list[Seat]
    names: list[str]
    columns: Mapping[str, Ints]
    """Of every operation: seat, name, seq, peer (in the communicator), size, took, dumped, start, end, call, called."""
    lost: int
    """Operations that the plugin reports as overwritten."""
    unreadable: int


class Facts(Struct):
    """What the attributes of a span record beyond its name."""

    far: str = ""
    """Name of the far end."""
    operation: str = ""
    model: str = ""
    tool: str = ""
    error: str = ""
    tokens_in: int = -1
    tokens_out: int = -1
    resend: int = 0
    content: int = 0
    """Hash of what was asked; 0 if that was not recorded."""
    queued_ns: int = 0
    calls_model: bool = False
    """It is said to ask a model, in words that know no clients."""


class Service(Struct, frozen=True):
    """One service instance: its name, what distinguishes it from its siblings, and its host."""

    name: str
    instance: str
    host: str


class Spans(Struct):
    """The spans of one file as columns, and what only some spans have."""

    label: str
    trace: list[str] = field(default_factory=list)
    span: list[str] = field(default_factory=list)
    parent: list[str] = field(default_factory=list)
    name: list[str] = field(default_factory=list)
    kind: list[int] = field(default_factory=list)
    failed: list[bool] = field(default_factory=list)
    start_ns: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    end_ns: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    service: list[int] = field(default_factory=list)
    services: list[Service] = field(default_factory=list)
    facts: dict[int, Facts] = field(default_factory=dict)
    """Of spans whose attributes are sure to be needed."""
    raw: dict[int, bytes] = field(default_factory=dict)
    """Attributes of calls and failures, decoded where they are needed."""
    links: dict[int, tuple[str, str]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    partial: list[str] = field(default_factory=list)


class Gpu(Struct):
    """One rank to be: a GPU of a process. The peers in its trace are ranks of the communicators that name its groups."""

    process: int
    device: int
    trace: Trace
    mpi_rank: int = NULL


class Init(Struct, frozen=True):
    """The place of one process in a communicator of NCCL, from the call that made it."""

    comm: int
    ranks: int
    rank: int
    device: int


class Report(Struct):
    """One export of Nsight Systems: its GPUs, and what it records of their ranks."""

    label: str
    gpus: list[Gpu] = field(default_factory=list)
    inits: dict[int, list[Init]] = field(default_factory=dict)
    """Process → the communicators it joined."""
    environment: dict[str, str] = field(default_factory=dict)


class Profile(Struct):
    """One XLA profile of one host: its devices, each with the trace of its ops."""

    label: str
    host: str
    devices: list[tuple[int, Trace]]
    """Number of the device, and its trace."""
    start_ns: int = NULL
    """When it was recorded, ns of the calendar; -1 where it does not tell."""
    stop_ns: int = NULL
    viewed: bool = False
    """Whether it is the trace viewer's copy, which holds less than the profile itself."""


class Call(NamedTuple):
    """One collective as PyTorch's ``record_param_comms`` recorded it; -1 or empty where that is unknown."""

    order: int
    verb: int
    group: str
    seq: int
    size: int
    member: int
    """The rank inside the group that is named: the root, the peer, else this rank itself."""


class Execution(Struct):
    """The collectives that one rank issued, in order, from an execution trace without times."""

    label: str
    rank: int
    calls: list[Call]
    group_ranks: dict[str, list[int]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)


class Plan(Struct):
    """The ops of one rank before they have times, and what each must wait for."""

    label: str
    rank: int
    columns: dict[str, Ints]
    """Columns of tables.Op without rank and times; ``launch`` is a row."""
    duration_ns: Ints
    names: list[str]
    lanes: list[str]
    groups: list[str]
    group_ranks: dict[str, list[int]]
    source: Ints
    target: Ints
    """Rows: the target depends on the source; never against ``place``."""
    place: Ints
    """Where each op stands in the order in which the rank issues them."""
    serial: Mask
    """False for messages, which may overlap others of their lane."""
    tag: Ints
    counts: Counter[str]
    notes: list[str]


# What a reader returns; a table is one of progress.
Contents = Trace | Table | Metrics | JobLog | ControlLog | Dump | InspectorLog | Spans | Report | Profile | Execution | Plan
