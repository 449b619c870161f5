"""What a bill is asked about: run folders and job logs that are named → held time, attempts, traced runs, metrics."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct

from taut.core.errors import InputRefused
from taut.core.executors import On
from taut.core.folder import is_run_folder
from taut.core.prices import Prices
from taut.core.tables import NULL, Action, Attempt, Table, concat
from taut.ledger.attempt_ledger import Attempts, charge_attempts
from taut.ledger.bill.attempt_time import attempt_time
from taut.ledger.bill.held_time import join, meets
from taut.ledger.bill.host_rates import team_of
from taut.ledger.bill.meters import SOURCES, Metered, metered
from taut.ledger.bill.moved_bytes import TracedBytes, moved_bytes
from taut.ledger.bill.rows import Held
from taut.ledger.bill.running_attempts import ended
from taut.ledger.bill.traced_time import STRUCTURE, Traced
from taut.read.focus.focus_reader import sniff
from taut.read.trace import read
from taut.result.types import AnalysisResult, LedgerEnergy
from taut.stored_tables import StoredTables, open_tables

MEASURED = 0.9
"""Share of a run's time that must be measured for all of its joules to count as measured."""
HEAD_BYTES = 1 << 16
"""What of a file is looked at to tell a bill."""
SEVERAL = 2
"""From so many findings with a place on, it is looked up whom ranks waited for."""


class Opened(Struct, kw_only=True):
    """All inputs of a bill together."""

    held: Table
    attempts: Table
    runs: list[BilledRun]
    meters: list[Metered]
    """What measured energy beside runs and logs."""
    uncounted: dict[str, str]
    """Job → what its logs count instead of accelerators."""
    notes: list[str]
    inputs: list[str]
    name: str


class BilledRun(Struct, frozen=True):
    """A traced run, the job that it is part of, and its wall."""

    run: Traced
    job: str
    wall_ns: int
    energy: LedgerEnergy | None
    """Who tells its joules."""
    moved: TracedBytes | None = None
    """What it moved, where bytes have a price in energy."""


class _Source(Struct):
    """One run folder, or all logs together."""

    name: str
    attempts: Table
    actions: Table
    world_size: int | None = None
    run: StoredTables | None = None


def opened(
    paths: Sequence[str | Path], prices: Prices, columns: str = "", until_ns: int | None = None, on: On = None
) -> Opened:
    """Open what is named; run folders by their manifest, everything else as logs that are read together.

    ``until_ns``: how far a bill goes, for jobs that still run. ``on``: where logs are read.
    """
    folders = [open_tables(path) for path in paths if str(path) != "-" and is_run_folder(path)]
    runs = {one.digest or str(one.folder.resolve()): one for one in folders}  # one that is named twice counts once
    logs = [path for path in paths if str(path) == "-" or not is_run_folder(path)]
    found = Opened(
        held=Table(Held, {}, 0),
        attempts=Table(Attempt, {}, 0),
        runs=[],
        meters=[],
        uncounted={},
        notes=[],
        inputs=[],
        name="the jobs" if len(paths) != 1 else Path(paths[0]).name or "the jobs",
    )
    told = _logs(logs, columns, found, on) if logs else None
    sources = [_of_folder(one, found) for one in runs.values()]
    for source in [*([told] if told else []), *sources]:
        whole = ended(source.attempts, source.name, until_ns)
        source.attempts = whole.attempts
        found.notes += whole.notes
    _put_together(told, sources, found, prices)
    found.held = _with_teams(found.held, found.attempts, prices)
    return found


def _logs(paths: Sequence[str | Path], columns: str, found: Opened, on: On) -> _Source:
    for path in paths:
        if str(path) != "-" and _is_bill(Path(path)):
            raise InputRefused(str(path), "is a FOCUS bill, and no log of jobs", f"give --focus {shlex.quote(str(path))}")
    trace = read(paths, columns=columns, on=on)
    if len(trace.ops):
        named = " ".join(shlex.quote(str(path)) for path in paths)
        remedy = f"analyze them first: taut analyze {named} -o RUN; then: taut bill RUN"
        raise InputRefused(trace.source, "holds traces, and a bill prices what was analysed", remedy)
    found.inputs.append(f"{trace.source} sha256:{trace.digest[:12]}")
    found.notes += trace.partial
    found.meters += metered(trace.metrics) if len(trace.metrics) else []
    return _Source(trace.source, trace.attempts, trace.actions)


def _is_bill(path: Path) -> bool:
    """Whether a file begins like a bill in CSV."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return sniff(file.read(HEAD_BYTES))


def _of_folder(run: StoredTables, found: Opened) -> _Source:
    found.inputs.append(f"{run.folder} sha256:{run.digest[:12]}")
    world = run.about.world_size if run.about is not None else None
    return _Source(run.folder.name, run.attempts, run.actions, world or len(run.members) or None, run)


def _put_together(logs: _Source | None, folders: Sequence[_Source], found: Opened, prices: Prices) -> None:
    """Held time of all sources, each job once: a run that was traced inside a job of the logs is part of that job."""
    if logs is not None:
        for source in folders:
            _once(logs, source)
    told = _held(logs, found, prices) if logs is not None else Table(Held, {}, 0)
    held, traced = [told], list[tuple[Traced, StoredTables]]()
    for source in folders:
        run = _traced(source)
        if run is None or not len(told) or meets(told, run) is None:
            held.append(_held(source, found, prices))
        if source.run is not None:
            traced += [(run, source.run)] if run is not None else []
            found.meters += metered(source.run.metrics) if run is None and len(source.run.metrics) else []
    joined = join(concat(Held, [one for one in held if len(one)]), [run for run, _ in traced])
    for (run, stored), job in zip(traced, joined.jobs, strict=True):
        energy = stored.result.ledger.energy if stored.result is not None and stored.result.ledger is not None else None
        found.runs.append(BilledRun(run, job, _wall_ns(run), energy, _traced_bytes(run, job, stored, prices)))
        hosts = {rank: run.host_of.get(rank) or rank_place(job, rank) for rank in run.ranks.tolist()}
        found.meters += metered(stored.metrics, hosts) if len(stored.metrics) else []
    found.held = joined.held
    found.notes += joined.notes


def _traced_bytes(run: Traced, job: str, stored: StoredTables, prices: Prices) -> TracedBytes | None:
    """Bytes that a run moved; they are looked up only where the prices tell what a bit takes."""
    if prices.network is None or prices.network.pj_per_bit is None:
        return None
    return TracedBytes(run.name, job, moved_bytes(stored.transfers()), float(run.cells.rank_ns.sum(dtype=np.float64)))


def rank_place(job: str, rank: int) -> str:
    """What stands for the host of a rank where nobody names it: its meters are its own."""
    return f"\0{job} {rank}"


def _once(logs: _Source, run: _Source) -> None:
    """Leave a job that both tell of to the one with more attempts; to the run if they are equal: it also knows its ranks."""
    of_logs, of_run = (Counter(source.attempts.job.tolist()) for source in (logs, run))
    both = of_logs.keys() & of_run.keys()
    to_logs = {job for job in both if of_logs[job] > of_run[job]}
    logs.attempts = _without(logs.attempts, both - to_logs)
    run.attempts = _without(run.attempts, to_logs)


def _without(attempts: Table, jobs: set[str]) -> Table:
    return attempts.take(np.array([job not in jobs for job in attempts.job.tolist()], dtype=np.bool_)) if jobs else attempts


def _held(source: _Source, found: Opened, prices: Prices) -> Table:
    """Held time of the attempts of one source."""
    found.attempts = concat(Attempt, [one for one in (found.attempts, source.attempts) if len(one)])
    charged = None
    if len(source.attempts) and _without_accelerators(source.attempts):
        jobs = len(set(source.attempts.job.tolist()))
        found.notes.append(f"{source.name}: {jobs:,} jobs held no accelerator: not in the bill")
    elif len(source.attempts):
        charged = charge_attempts(source.attempts, prices, source.world_size, source.actions)
    if charged is None:
        return Table(Held, {}, 0)
    placed = attempt_time(charged, source.name)
    found.notes += placed.notes + _left_out(charged, source.name)
    if charged.unit == "accelerator":
        return placed.held
    return _counted(placed.held, charged.unit, found, prices)


def _without_accelerators(attempts: Table) -> bool:
    """Whether all attempts of a log say that they held none."""
    return bool(((attempts.unit == "accelerator") & (attempts.accelerators == 0)).all())


def _left_out(charged: Attempts, name: str) -> list[str]:
    out = []
    if charged.left_out:
        out.append(f"{name}: {charged.left_out:,} jobs do not count {charged.unit}s as the others do: left out")
    if charged.cpu_jobs:
        out.append(f"{name}: {charged.cpu_jobs:,} jobs held no accelerator: not in the bill")
    return out


def _counted(held: Table, unit: str, found: Opened, prices: Prices) -> Table:
    """Rows that count nodes as accelerators, where the prices say how many a host has; else the jobs are marked uncounted."""
    facts = prices.hosts
    each = np.array(
        [facts.accelerators_of.get(host, facts.accelerators or NULL) for host in held.host.tolist()], dtype=np.int64
    )
    if unit == "node" and len(held) and (each > 0).all() and (held.host != "").all():
        count = held.accelerators.astype(np.int64) * each
        return held.replace(accelerators=count, rank_ns=held.rank_ns * each)
    found.uncounted |= dict.fromkeys(held.job.tolist(), unit or "job")
    return held


def _traced(source: _Source) -> Traced | None:
    """What a run folder tells of traced time; None where it has no traces."""
    run = source.run
    if run is None or run.about is None or run.result is None or not len(run.cells):
        return None
    jobs = set(run.attempts.job.tolist())
    located = [one for one in run.result.findings if one.mode != STRUCTURE]
    executed = np.maximum(run.attempts.last_step, 0)
    return Traced(
        name=source.name,
        job=jobs.pop() if len(jobs) == 1 else run.about.name,
        cells=run.cells,
        members=run.members,
        actions=run.actions if len(run.actions) else Table(Action, {}, 0),
        findings=run.result.findings,
        steps=np.array(run.about.steps, dtype=np.int64),
        segment=np.array(run.about.segment, dtype=np.int64),
        origin_ns=np.array(run.about.origin_ns, dtype=np.int64),
        relative=run.about.relative,
        world_size=run.about.world_size,
        opened_by=run.waited_for() if len(located) >= SEVERAL else None,
        executed=int(executed.max()) if len(executed) else None,
        joules_by=_measured_by(run.result),
    )


def _measured_by(result: AnalysisResult) -> str:
    """Who measured the joules of a run's cells; empty where nobody did."""
    energy = result.ledger.energy if result.ledger is not None else None
    if energy is None or (energy.joules is not None and energy.coverage < MEASURED):
        return ""  # joules that nobody measured are among them
    return next((one.name for one in energy.sources if one.name in SOURCES), "")


def _wall_ns(run: Traced) -> int:
    """Wall of a traced run: what its cells hold for each rank."""
    return int(run.cells.rank_ns.sum() // max(len(run.ranks), 1))


def _with_teams(held: Table, attempts: Table, prices: Prices) -> Table:
    """The team of each job as the prices name it, by id or name, else as its log does."""
    if not prices.teams or not len(held):
        return held
    names, code = np.unique(held.job.astype(str), return_inverse=True)
    called = dict(zip(attempts.job.tolist(), attempts.name.tolist(), strict=True))
    given = np.array([team_of(prices, job, called.get(job, "")) for job in names.tolist()], dtype=object)[code]
    return held.replace(team=np.where(given != "", given, held.team))
