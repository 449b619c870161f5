"""Whether traces are of one job: what cannot be is refused, naming what differs and how two jobs are compared.

One job may be recorded in several cycles of the profiler, its clocks may be hours apart, and ranks may start late. So times
that do not overlap are told from two jobs by what else the traces say: steps of one rank that begin anew, another host for
the same rank, another world size, or one clock for ranks that never ran at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from taut.core.errors import InputRefused
from taut.core.tables import NULL, Trace

Labelled = tuple[str, Trace]
TRIVIAL_OVERLAP = 0.01
CLOSE = 0.25
"""Parts of one recording are at most this share of the longer one apart."""
TWO_JOBS = "two different jobs"
# A job that was started again looks the same: in a container it has the host and the process number of the first.
CYCLES = "; or, if they are cycles of one run, analyze one, or record with one profiler (schedule(repeat=…) numbers all steps)"
NAMED_CYCLES = "; or, if they are cycles of one process, call them NAME.TIME.pt.trace.json, as tensorboard_trace_handler does"


class _Recording(Struct, frozen=True):
    """What one file holds of one rank."""

    label: str
    host: str
    start_ns: int
    end_ns: int
    first_step: int
    last_step: int
    """-1 where it names no steps."""
    relative: bool
    source: str
    """The file: what one file holds is of one job, whenever its ranks ran."""

    @property
    def steps(self) -> str:
        """Its steps in words."""
        return str(self.first_step) if self.first_step == self.last_step else f"{self.first_step}–{self.last_step}"


def window(trace: Trace) -> tuple[int, int]:
    """First start and last end, ns."""
    return (int(trace.ops.start_ns.min()), int(trace.ops.end_ns.max())) if len(trace.ops) else (0, 0)


def one_world(parts: Sequence[Labelled]) -> int | None:
    """The number of ranks that the traces name; refuses two."""
    known = [(label, trace.world_size) for label, trace in parts if trace.world_size is not None]
    for label, size in known:
        if size != known[0][1]:
            why = f"world size {size}, but {known[0][0]} has {known[0][1]}: {TWO_JOBS}"
            raise InputRefused(label, why, _compared(known[0][0], label))
    return known[0][1] if known else None


def refuse_two_jobs(parts: Sequence[Labelled], guessed: Sequence[str]) -> None:
    """Refuse traces that cannot be of one job; ``guessed`` are labels of files that may be of any rank."""
    before: dict[int, _Recording] = {}
    firsts: list[_Recording] = []
    for label, trace in sorted(parts, key=lambda part: window(part[1])[0]):
        start, end = window(trace)
        steps = trace.marks.step if len(trace.marks) else trace.ops.step[trace.ops.step >= 0]
        first, last = (int(steps.min()), int(steps.max())) if len(steps) else (NULL, NULL)
        for rank, host in zip(trace.members.rank.tolist(), trace.members.host.tolist(), strict=True):
            one = _Recording(label, host, start, end, first, last, trace.relative, trace.source or label)
            if rank in before:
                _refuse_twice(rank, before[rank], one)
                one = replace(one, start_ns=before[rank].start_ns, end_ns=max(end, before[rank].end_ns))
            elif end > start:
                firsts.append(one)
            before[rank] = one
    _refuse_never_together(firsts, guessed)


def _refuse_twice(rank: int, a: _Recording, b: _Recording) -> None:
    """Refuse two files of one rank unless they are cycles of one profiler, ``b`` after ``a``."""
    differ = []
    if a.host and b.host and a.host != b.host:
        differ.append(f"rank {rank} is on host {a.host} in {a.label} and on {b.host} here")
    overlap = a.end_ns - b.start_ns
    shorter = min(a.end_ns - a.start_ns, b.end_ns - b.start_ns)
    together = a.relative or b.relative or overlap > TRIVIAL_OVERLAP * shorter
    if together and not differ:
        remedy = f"leave one of the two out; or, if they are two jobs, {_compared(a.label, b.label)}"
        raise InputRefused(b.label, f"covers the same time of rank {rank} as {a.label}", remedy)
    anew = [] if together else _begun_anew(rank, a, b)
    if differ or anew:
        remedy = _compared(a.label, b.label) + (CYCLES if not differ else "")
        raise InputRefused(b.label, f"{'; '.join([*differ, *anew])}: {TWO_JOBS}", remedy)


def _begun_anew(rank: int, a: _Recording, b: _Recording) -> list[str]:
    """Why a later recording of a rank is no further cycle of the earlier one."""
    pause = b.start_ns - a.end_ns
    later = f"it begins {_seconds(pause)} after {a.label} ends"
    if a.last_step >= 0 and b.last_step >= 0:
        if b.first_step > a.last_step:
            return []
        return [f"{later}, and rank {rank} has steps {a.steps} there and {b.steps} here"]
    # Without numbers of steps only parts of one recording can be recognised: they follow one another closely.
    if pause <= CLOSE * max(a.end_ns - a.start_ns, b.end_ns - b.start_ns):
        return []
    return [f"{later}, and no step marks say that rank {rank} goes on where it ended"]


def _refuse_never_together(ranks: Sequence[_Recording], guessed: Sequence[str]) -> None:
    """Refuse ranks that share a clock and never ran at the same time, and files that say no rank and never did."""
    begins, ends = dict[str, int](), dict[str, int]()
    for one in ranks:
        begins[one.source] = min(begins.get(one.source, one.start_ns), one.start_ns)
        ends[one.source] = max(ends.get(one.source, one.end_ns), one.end_ns)
    hosts: dict[str, _Recording] = {}
    whole = (replace(one, start_ns=begins[one.source], end_ns=ends[one.source]) for one in ranks)
    for one in sorted(whole, key=lambda one: one.start_ns):
        if one.relative:
            continue
        keys = [f"host {one.host}"] if one.host else []
        keys += ["one clock"] if one.label in guessed else []
        for key in keys:
            latest = hosts.get(key)
            if latest is not None and one.start_ns > latest.end_ns:
                why = f"it begins {_seconds(one.start_ns - latest.end_ns)} after {latest.label} ends"
                why += f", on the same host {one.host}" if one.host else ", and neither names its rank"
                remedy = _compared(latest.label, one.label) + (NAMED_CYCLES if one.label in guessed else "")
                raise InputRefused(one.label, f"{why}: {TWO_JOBS}", remedy)
            if latest is None or one.end_ns > latest.end_ns:
                hosts[key] = one


def _seconds(ns: int) -> str:
    return f"{ns / 1e9:,.3g} s"


def _compared(a: str, b: str) -> str:
    """The commands that compare two jobs, by the first part in which their paths differ."""
    parts = [label.split("/") for label in (a, b)]
    same = next((i for i, (x, y) in enumerate(zip(*parts, strict=False)) if x != y), 0)
    first, second = ("/".join(part[: same + 1]) for part in parts)
    return f"compare them: taut analyze {first} -o RUN-A, taut analyze {second} -o RUN-B, taut compare RUN-A RUN-B"
