"""Decisions on real faults: fault → finding → decision with an expected saving → mended job → outcome.

Every step is the verb that a user would type, run in this process, so that the audit log holds what it holds of users. The
job that is analysed has its own healthy past as baseline; the mended one is another run of the same job and seed.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec.structs import replace
from rich.console import Console

from taut.audit.trail import FILE, FOLDER
from taut.core.errors import RunError, TautError, UsageError
from taut.lab.case import FATAL, PLAIN_JOB, TOUCHED, Spec
from taut.lab.matrix import BUILT
from taut.lab.run_case import Runner
from taut.lab.score import score
from taut.lab.score_table import Grid
from taut.lab.truth import BASELINE, HEALTHY, ON_ALL, TRACES, load
from taut.result.types import AnalysisResult, AuditOutcome, AuditVerification, Estimate, Finding

NOT_OK = 5
"""Exit code of ``taut audit verify`` where something does not fit."""
BY = "taut lab"
"""Who decides."""
NOTHING = "nothing found"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What was expected of mending one fault, and what came of it; shares of the step time."""

    fault: str
    job: str
    seed: int
    found: str | None
    """What was found, modes and places; null where nothing was."""
    right: bool
    """Whether that names what was done, and where (``taut lab score``)."""
    expected: Estimate | None = None
    measured: Estimate | None = None
    run_spread: float | None = None
    """By how much runs were taken to differ."""
    says: str = NOTHING
    """kept, missed or unclear; *nothing found* where there was nothing to decide on."""
    record: int | None = None
    """Number of the outcome in the log."""
    verified: bool | None = None
    """Whether log, all runs and their proofs verify afterwards."""


@dataclass(frozen=True)
class Chain:
    """One fault: the job that has it, the same job without it, once or several times, and where their runs are kept."""

    faulted: Spec
    mended: Sequence[Spec]
    runs: Path

    def run(self, part: str) -> str:
        """Folder of a run: ``past``, ``faulted``, ``mended-1`` and so on."""
        return str(self.runs / f"{self.faulted.fault}-{part}")

    def taut(self, *words: str, may_end: Sequence[int] = (0,)) -> bytes:
        """What a verb prints; it is recorded in the log beside the runs."""
        return _printed(["--audit", str(self.runs / FILE), *words], may_end)


def chains(folder: Path, faults: Sequence[str], about: Spec, after: int) -> list[Chain]:
    """What is going to be run, ``after`` times without its fault; refused, in one line, where that cannot be."""
    runs = folder.resolve() / FOLDER
    if os.environ.get("TAUT_AUDIT", "").lower() in ("off", "0", "no"):
        raise UsageError("TAUT_AUDIT is off, and decisions are nothing without their record; unset it")
    if (runs / FILE).exists():
        raise RunError(f"{folder}: holds the decisions of an earlier run; give another -o")
    return [_chain(runs, replace(about, fault=fault), after) for fault in faults]


def _chain(runs: Path, about: Spec, after: int) -> Chain:
    if about.fault in (*HEALTHY, *FATAL, *ON_ALL) or about.job == PLAIN_JOB:
        raise UsageError(f"--faults {about.fault}: no fault of {about.job} that can be mended; docs/lab.md lists them")
    jobs, always = runs.parent / "jobs", about.fault in TOUCHED
    faulted = replace(about, from_start=always, folder=str(jobs / about.fault))
    faulted.check()
    folders = [str(jobs / f"{about.fault}-mended-{k + 1}") for k in range(after)]
    return Chain(faulted, [replace(about, fault="none", folder=folder) for folder in folders], runs)


def decide_all(some: Sequence[Chain]) -> Iterator[Row]:
    """Run and decide one fault after the other."""
    with Runner() as runner:
        for chain in some:
            yield _decided(chain, runner)


def _decided(chain: Chain, runner: Runner) -> Row:
    spec = chain.faulted
    runner.run(spec)
    _analyzed(chain, Path(spec.folder, BASELINE), "past")
    result = _analyzed(chain, Path(spec.folder, TRACES), "faulted", "--baseline", chain.run("past"))
    judged = score(result, load(Path(spec.folder)), BUILT)
    row = Row(fault=spec.fault, job=spec.job, seed=spec.seed, found=judged.found or None, right=judged.verdict == "right")
    if not result.findings:
        return row
    decision = _decision(chain, result.findings[0])
    mended = [f"mended-{k + 1}" for k in range(len(chain.mended))]
    for part, again in zip(mended, chain.mended, strict=True):
        runner.run(again)
        _analyzed(chain, Path(again.folder, TRACES), part)
    printed = chain.taut("audit", "outcome", decision, *map(chain.run, mended), "--json", "-q")
    told = msgspec.json.decode(printed, type=AuditOutcome)
    return replace(
        row,
        expected=told.expected_saving,
        measured=told.measured_saving,
        run_spread=told.run_spread,
        says=told.says,
        record=told.record,
        verified=all(_verified(chain, run) for run in ("faulted", *mended)),
    )


def _analyzed(chain: Chain, traces: Path, part: str, *more: str) -> AnalysisResult:
    printed = chain.taut("analyze", str(traces), "-o", chain.run(part), "--json", "-q", *more)
    return msgspec.json.decode(printed, type=AnalysisResult)


def _decision(chain: Chain, finding: Finding) -> str:
    """Decide on a finding, expecting what it says; the number of the record."""
    place = f"links {', '.join(finding.links)}" if finding.links else f"ranks {', '.join(map(str, finding.ranks))}"
    words = ["--finding", finding.id, "--do", f"mend {place}", "--because", finding.because, "--by", BY, "-q"]
    return chain.taut("audit", "decide", chain.run("faulted"), *words).decode().strip()


def _verified(chain: Chain, part: str) -> bool:
    printed = chain.taut("audit", "verify", chain.run(part), "--json", may_end=(0, NOT_OK))
    return msgspec.json.decode(printed, type=AuditVerification).ok


def _printed(words: Sequence[str], may_end: Sequence[int]) -> bytes:
    """What a verb prints on standard output; an error where it ends otherwise than it may."""
    from taut.cli import main

    caught = io.BytesIO()
    with redirect_stdout(io.TextIOWrapper(caught, encoding="utf-8", write_through=True)):
        code = main.main(list(words), "taut", standalone_mode=False)
        printed = caught.getvalue()
    if isinstance(code, int) and code not in may_end:
        raise TautError(f"taut {' '.join(words)}: ended with {code}")
    return printed


def show(rows: Sequence[Row]) -> None:
    """Print the table, narrow enough for a terminal, and what was found where that was not what was done."""
    header = ["fault", "found", "expected %", "measured %", "outcome", "verified"]
    body = [
        [
            row.fault,
            "none" if row.found is None else "right" if row.right else "wrong",
            _share(row.expected),
            _share(row.measured),
            row.says,
            "" if row.verified is None else "yes" if row.verified else "no",
        ]
        for row in rows
    ]
    console = Console()
    Grid(header, body).show(console)
    for row in rows:
        if row.found is not None and not row.right:
            console.print(f"{row.fault}: found {row.found}", markup=False, highlight=False)


def _share(share: Estimate | None) -> str:
    """A share with its interval, in percent; unknown is a dash."""
    if share is None:
        return "–"
    ends = "" if share.lo is None or share.hi is None else f" ({100 * share.lo:.0f} to {100 * share.hi:.0f})"
    return f"{100 * share.value:.0f}{ends}"
