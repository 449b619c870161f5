"""What an analysis says beside its result: what is missing, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from taut.core.finding_place import fixes_of
from taut.core.reporting import LISTED_SHARE
from taut.result.types import AnalysisResult


def hints(result: AnalysisResult, run: Path | None, carbon: bool = False) -> list[str]:
    """What is missing, and as the last line what to do next."""
    lines = [] if run is None else [f"written: {run}"]
    if result.ledger is None:
        return [*lines, "next: taut analyze LOGS TRACES, to see where the time of a traced attempt went"]
    if result.job.ranks == 1 and _has_others(result):
        return [*lines, *_record_all(result)]
    from taut.render.remedy_lines import remedy_lines

    where, before = _as_argument(run)
    return [*lines, *remedy_lines(result, where, before), *_nulls(result, carbon), f"next: {_next(result, where, before)}"]


def then_bill(lines: list[str], run: Path | None, job: Path) -> list[str]:
    """Hints of a job that comes with prices and a bill: what it cost, and as the next command the file that shows it."""
    where, before = _as_argument(run)
    prices, charges = (shlex.quote(str(job / name)) for name in ("prices.toml", "bill.csv"))
    cost = f"what it cost: {before}taut bill {where} --prices {prices} --focus {charges}"
    return [*lines[:-1], cost, f"next: {before}taut export {where} --to html, one file to look at and to share"]


def _as_argument(run: Path | None) -> tuple[str, str]:
    """The run folder as a command takes it, and what comes before that command: without a folder, one that makes it."""
    return (shlex.quote(str(run)), "") if run is not None else ("RUN", "the same with -o RUN, then ")


def _record_all(result: AnalysisResult) -> tuple[str, str]:
    """How to see the others of a job of which one rank was recorded."""
    if result.job.counts.get("xla profiles"):
        how = "one device tells no culprit; how to profile all devices of all hosts: docs/recording.md#jax-and-tensorflow"
        return how, "next: taut analyze FOLDER/plugins/profile/TIME"
    how = "one rank tells no culprit; how to record all ranks: taut analyze --help, at its end, or docs/recording.md"
    return how, "next: taut analyze traces/"


def _nulls(result: AnalysisResult, carbon: bool) -> Iterator[str]:
    """What the ledger cannot tell, and the option that would let it."""
    ledger = result.ledger
    if ledger is not None and carbon and (ledger.energy is None or ledger.energy.joules is None):
        yield "energy is null: no power was measured beside the traces; --power 700,450,120 gives it"
    if ledger is not None and ledger.currency is None:
        yield "money is null: --gpu-hour 2.50EUR prices it"


def _next(result: AnalysisResult, where: str, before: str) -> str:
    """What to do next: most often a command."""
    if result.findings and result.findings[0].mode == "hang":
        return f"stacks and logs of rank {_stopped(result)} (py-spy dump), then what its host says"
    if result.verdict.kind == "control" and result.control is not None:
        taken = [one.zone.rank_ns if one.zone else -1 for one in result.control.relations]
        return f"{before}taut export {where} --to perfetto --zone {taken.index(max(taken)) + 1}"
    alone = result.job.ranks == 1 and not result.findings
    asked = None if alone else _worth_asking(result)
    if asked is not None:
        return f"{before}taut whatif {where} {asked}"
    if alone or result.findings:
        return f"{before}taut export {where} --to perfetto, to look at it op by op"
    if result.failed and result.failed.by:
        return f"logs of {result.failed.by[0].op_class} at the times of its failures, in run.json"
    return f"nothing to fix; {before}taut project --from {where} says what other scales give"


def _stopped(result: AnalysisResult) -> str:
    """The ranks that a hang is blamed on."""
    from taut.core.rank_words import listed
    from taut.render.calls_screen import who

    return listed([who(result, rank).removeprefix("rank ") for rank in result.findings[0].ranks])


def _has_others(result: AnalysisResult) -> bool:
    """Whether the job of a single traced rank has others, as far as can be told."""
    if result.job.world_size is not None:
        return result.job.world_size > 1
    mean = result.device.mean if result.device else None
    return mean is None or mean.communication_share > 0 or bool(result.collectives)


def _worth_asking(result: AnalysisResult) -> str | None:
    """The question that the result raises: a finding, else the slowest stage or cause; None where that saves too little."""
    least = LISTED_SHARE * (result.job.wall_ns or 0)
    for first in result.findings:
        if first.policy is not None:
            return "--advice"
        # A class that is slow on all ranks has no peers to be like: setting it to its reference saves nothing.
        places = fixes_of(first) or [f"stage={stage}" for stage in first.stages]
        if places and first.recoverable_wall_ns >= least:
            return " ".join(f"--fix {shlex.quote(place)}" for place in places)
    stages = result.whatif.by.get("stage", {}) if result.whatif else {}
    longest = max(stages, key=stages.__getitem__, default="")
    if result.verdict.kind == "structural" and len(stages) > 1 and stages[longest] >= 1 + LISTED_SHARE:
        return f"--fix stage={longest}"
    # A fix keeps gaps as they are, so what they cost is not what it would save.
    ours = [row for row in result.blame if not (row.cause.op_class or "").startswith("gap before ")]
    causes = [row for row in ours if row.recoverable_wall_ns >= least > 0]
    if not causes:
        return None
    cause = max(causes, key=lambda row: row.recoverable_wall_ns).cause
    return f"--fix link={cause.link}" if cause.link else f"--fix rank={cause.rank}"
