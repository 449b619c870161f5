"""What job logs say, in the words and keys of the JSON contract: the block ``attempts``, and a result without traces."""

from __future__ import annotations

from collections import Counter

import numpy as np
from msgspec.structs import replace

from taut.core.array_types import Ints
from taut.core.reporting import stuck_text
from taut.core.tables import Table, Trace
from taut.ledger.attempt_ledger import Attempts
from taut.result.risk_profile import risk_of_attempts
from taut.result.types import (
    AnalysisResult,
    AttemptRow,
    AttemptsResult,
    AttemptSteps,
    DecidedCost,
    Job,
    RestartedJob,
    Verdict,
)

WORST, LISTED = 20, 100
"""Jobs and attempts that are listed at most."""
WORDED = {"out of memory": "ran out of memory", "node failed": "lost a node"}
LEAST = 0.05
"""Percent of the time that was held: less is not worth a sentence."""
HOUR_NS = 3_600_000_000_000


def block(recorded: Table, ledger: Attempts | None, window: tuple[int, int] | None = None) -> AttemptsResult | None:
    """The block ``attempts``: None without job logs. ``window`` is the time that was traced."""
    if not len(recorded):
        return None
    from taut.control.stuck_jobs import stuck  # most traces have no job logs beside them

    jobs = Counter(recorded.job.tolist())
    alone = len(jobs) == 1
    # A job that waits again, or was cancelled while it did, was not restarted.
    waited = (recorded.start_ns < 0) & np.isin(recorded.outcome, ("pending", "cancelled"))
    uncharged = AttemptsResult(
        jobs=len(jobs),
        restarted_jobs=sum(n > 1 for n in Counter(recorded.job[~waited].tolist()).values()),
        attempts=len(recorded),
        unit=None,
        uncounted_jobs=len(jobs),
        cpu_jobs=0,
        outcomes=dict(Counter(word or "not told" for word in recorded.outcome.tolist()).most_common()),
        wall_ns=None,
        total_rank_ns=None,
        held_rank_ns=None,
        entries=[],
        currency=None,
        closes=None,
        queue_ns=None,
        cpu_queue_ns=None,
        down_ns=None,
        discarded_by=None,
        steps=None,
        decided_by=None,
        out_of_restarts=_out_of_restarts(recorded),
        worst=[],
        rows=_rows(recorded, ledger) if alone or len(recorded) <= LISTED else [],
        traced_attempt=_traced(recorded, window) if alone else None,
        stuck=stuck(recorded),
    )
    return uncharged if ledger is None else _charged(uncharged, ledger)


def _charged(found: AttemptsResult, ledger: Attempts) -> AttemptsResult:
    """The block with what only the ledger tells: sums of time, and what was lost to what."""
    return replace(
        found,
        unit=ledger.unit or None,
        uncounted_jobs=ledger.left_out,
        cpu_jobs=ledger.cpu_jobs,
        wall_ns=int(ledger.end_ns[-1] - ledger.begin_ns[0]) if found.jobs == 1 else None,
        total_rank_ns=ledger.total_rank_ns,
        held_rank_ns=ledger.held_rank_ns,
        entries=ledger.entries(),
        currency=ledger.prices.currency if ledger.unit == "accelerator" else None,
        closes=ledger.closes,
        queue_ns=ledger.queue_ns,
        cpu_queue_ns=ledger.cpu_queue_ns,
        down_ns=sum(ledger.gap_ns.tolist()),  # between attempts, whether accelerators were held or not, over all jobs
        discarded_by=_discarded_by(ledger),
        steps=_steps(ledger),
        decided_by=_decided_by(ledger),
        worst=_worst(ledger),
    )


def _discarded_by(ledger: Attempts) -> dict[str, int]:
    """What was discarded, at most, by how the attempt ended: a decision (preempted, cancelled, a limit) or a fault."""
    lost: Counter[str] = Counter()
    for word, known, bound in zip(
        ledger.recorded.outcome[ledger.rows], ledger.cells["discarded"], ledger.cells["discarded at most"], strict=True
    ):
        lost[word or "not told"] += int(known + bound)
    return {word: ns for word, ns in lost.most_common() if ns}


def _decided_by(ledger: Attempts) -> dict[str, DecidedCost]:
    """What controllers cost that ended attempts: work discarded, at most, and the time until the next was under way."""
    discarded: Counter[str] = Counter()
    overhead: Counter[str] = Counter()
    lost, over = ledger.cells["discarded"] + ledger.cells["discarded at most"], ledger.cells["control overhead"]
    for row in np.flatnonzero(ledger.restarted).tolist():
        name = ledger.ended_by[row - 1] or "not told"
        discarded[name] += int(lost[row - 1])
        overhead[name] += int(over[row])
    names = sorted(discarded, key=lambda name: (-discarded[name] - overhead[name], name))
    return {name: DecidedCost(discarded_rank_ns=discarded[name], control_overhead_rank_ns=overhead[name]) for name in names}


def _steps(ledger: Attempts) -> AttemptSteps | None:
    """Steps executed and discarded, and the share of the latter; None where no log tells steps."""
    flags = ledger.discarded_steps()
    if flags is None:
        return None
    # Loads the compiler; most job logs tell no steps.
    from taut.diagnose.job_indices import replay_probability

    known = (ledger.executed >= 0) & (ledger.discarded >= 0)
    return AttemptSteps(
        executed=int(ledger.executed[known].sum()),
        discarded=int(ledger.discarded[known].sum()),
        replay_probability=replay_probability(flags),
        resumed_by_guess=ledger.guessed,
    )


def _out_of_restarts(recorded: Table) -> list[str]:
    """Jobs whose last attempt failed with no restart left, after at least one."""
    last = {job: i for i, job in enumerate(recorded.job.tolist())}
    return [
        job
        for job, i in last.items()
        if recorded.restarts_left[i] == 0
        and recorded.attempt[i] > 1
        and recorded.outcome[i] not in ("completed", "running", "")
    ]


def _worst(ledger: Attempts) -> list[RestartedJob]:
    """Restarted jobs, those that discarded most first."""
    lost = ledger.cells["discarded"] + ledger.cells["discarded at most"]
    many = [(a, b) for a, b in ledger.spans if b - a > 1]
    order = sorted(many, key=lambda span: (-int(sum(lost[slice(*span)])), ledger.names[ledger.job[span[0]]]))
    return [_job(ledger, a, b, lost) for a, b in order[:WORST]]


def _job(ledger: Attempts, a: int, b: int, lost: Ints) -> RestartedJob:
    rows, t = ledger.rows[a:b], ledger.recorded
    held = sum(int(sum(column[a:b])) for column in ledger.cells.values())
    held -= sum(int(sum(column[a:b])) for column in ledger.not_held.values())
    every = np.flatnonzero(t.job == t.job[rows[0]])  # also attempts of which no time is known
    return RestartedJob(
        job=str(t.job[rows[0]]),
        name=str(t.name[rows[0]]) or None,
        attempts=len(every),
        held=int(ledger.most[a]) if ledger.unit else None,
        outcome=str(t.outcome[rows[-1]]) or None,
        held_rank_ns=held,
        discarded_rank_ns=int(sum(lost[a:b])),
        at_most=bool(sum(ledger.cells["discarded at most"][a:b]) > 0),
        down_ns=int(ledger.gap_ns[a:b].sum()),
        outcomes=dict(Counter(str(t.outcome[row]) or "not told" for row in every).most_common()),
    )


def _rows(recorded: Table, ledger: Attempts | None) -> list[AttemptRow]:
    """The attempts, the last ones if there are too many."""
    cut = {} if ledger is None else {int(row): i for i, row in enumerate(ledger.rows.tolist())}
    return [_row(recorded, i, ledger, cut.get(i)) for i in range(max(0, len(recorded) - LISTED), len(recorded))]


def _row(recorded: Table, i: int, ledger: Attempts | None, place: int | None) -> AttemptRow:
    """One attempt; ``place`` is its row in the ledger."""
    cells = ledger.cells.items() if ledger is not None and place is not None else None
    return AttemptRow(
        job=str(recorded.job[i]),
        attempt=int(recorded.attempt[i]),
        outcome=str(recorded.outcome[i]) or None,
        reason=str(recorded.reason[i]) or None,
        submit_ns=_known(recorded.submit_ns[i]) if recorded.dated[i] else None,
        start_ns=_known(recorded.start_ns[i]) if recorded.dated[i] else None,
        end_ns=_known(recorded.end_ns[i]) if recorded.dated[i] else None,
        ran_ns=_ran(recorded, i),
        first_step=_known(recorded.first_step[i]),
        last_step=_known(recorded.last_step[i]),
        resumed_step=_known(recorded.resumed_step[i]),
        saved_step=_known(recorded.saved_step[i]),
        restarts_left=_known(recorded.restarts_left[i]),
        fates=None if cells is None else {fate: int(column[place]) for fate, column in cells if column[place]},
        failures=_known(recorded.failures[i]),
    )


def _known(value: int) -> int | None:
    """A number that is -1 where nothing was recorded."""
    return int(value) if value >= 0 else None


def _ran(recorded: Table, i: int) -> int | None:
    start, end = int(recorded.start_ns[i]), int(recorded.end_ns[i])
    return end - start if 0 <= start <= end else None


def _traced(recorded: Table, window: tuple[int, int] | None) -> int | None:
    """The attempt in whose time the traces lie."""
    if window is None:
        return None
    inside = (recorded.dated == 1) & (recorded.start_ns >= 0) & (recorded.start_ns < window[1]) & (recorded.end_ns > window[0])
    return int(recorded.attempt[inside][0]) if inside.sum() == 1 else None


def notes(ledger: Attempts | None, found: AttemptsResult | None) -> list[str]:
    """What the block leaves open, one line each."""
    if found is None:
        return []
    lines = []
    if ledger is None:
        return ["no attempt tells when it started and ended: nothing can be charged"]
    if ledger.cpu_jobs:
        lines.append(f"{ledger.cpu_jobs:,} of {found.jobs:,} jobs held no accelerator: their time is not in the sums")
    if ledger.left_out:
        lines.append(f"{ledger.left_out:,} of {found.jobs:,} jobs do not tell their {ledger.unit}s: left out of the sums")
    if not ledger.unit:
        lines.append("no log tells accelerators: every attempt counts as one")
    elif ledger.unit != "accelerator":
        lines.append(f"no log tells accelerators: {ledger.unit}s are counted")
    if any(entry.fate == "discarded at most" and entry.rank_ns for entry in found.entries):
        lines.append("attempts without a known checkpoint are taken as wholly discarded: an upper bound")
    if ledger.guessed:
        lines.append(
            f"{ledger.guessed} attempts do not tell the step they resumed from: taken as the last save, else their first step"
        )
    return lines


def report_jobs(trace: Trace, ledger: Attempts | None) -> AnalysisResult:
    """The whole result where there are job logs and no traces; what only traces tell is null."""
    found = block(trace.attempts, ledger)
    assert found is not None
    job = Job(
        name=trace.name,
        ranks=0,
        world_size=None,
        steps=0,
        names={},
        first_step=None,
        last_step=None,
        ops=0,
        edges=0,
        gates=0,
        wall_ns=found.wall_ns,
        partial=[*trace.partial, *notes(ledger, found)],
        counts=dict(trace.counts),
    )
    verdict = Verdict(text=attempts_text(found), kind="unknown", bound=None, components=None)
    return AnalysisResult(
        verdict=verdict,
        job=job,
        attempts=found,
        fidelity=None,
        whatif=None,
        blame=[],
        waits=None,
        coupling=None,
        windows=[],
        gates=[],
        collectives=[],
        findings=[],
        early_warning=None,
        components=[],
        recoverable_wall_ns=None,
        indices=None,
        regime=None,
        envelope=None,
        redundant=None,
        tails=None,
        progress=None,
        ledger=None,
        control=None,
        risk=risk_of_attempts(trace.attempts, found),
    )


def attempts_text(found: AttemptsResult) -> str:
    """The block in a sentence or two."""
    from taut.result.attempt_advice import advice

    stuck = stuck_text([one.text for one in found.stuck or []])
    if found.jobs == 1:  # what is stuck is said with its starts, why and since when
        told = (stuck, _lost(found)) if stuck else (_tries(found), _lost(found), advice(found.rows))
    else:
        told = (stuck, _tries(found), _lost(found))
    return " ".join(filter(None, told))


def _tries(found: AttemptsResult) -> str:
    if found.jobs > 1:
        if found.restarted_jobs == 0 and set(found.outcomes) == {"completed"}:
            return f"{found.jobs:,} jobs, all completed, none restarted."
        if found.restarted_jobs == 0 and found.attempts == found.jobs:
            each = ", ".join(f"{n:,} {word}" for word, n in found.outcomes.items())
            return f"{found.jobs:,} jobs, none restarted: {each}."
        many = f"{found.restarted_jobs:,} of {found.jobs:,} jobs restarted"
        ended = len(found.out_of_restarts)
        return many + (f", {ended:,} of them until no restart was left." if ended else ".")
    last = found.rows[-1]
    ends = {None: "how the last ended is not told", "running": "the last still runs", "pending": "the next one waits"}
    end = ends.get(last.outcome, f"the last {_was(last.outcome or '')}")
    if found.attempts == 1:
        return f"One attempt: {end.replace('the last ', 'it ')}."
    if found.out_of_restarts:
        return f"{found.attempts} attempts, all {found.attempts - 1} restarts burned: {end}."
    why = Counter(row.outcome for row in found.rows[:-1] if row.outcome)
    before = f" ({', '.join(f'{n} {word}' for word, n in why.most_common())})" if why else ""
    return f"{found.attempts} attempts{before}, {end}."


def _was(outcome: str) -> str:
    plain = ("completed", "failed", "timed out")
    return outcome if outcome in plain else WORDED.get(outcome, f"was {outcome}")


def _lost(found: AttemptsResult) -> str:
    """What was done twice, and what was left unfinished, of the time that was held."""
    if not found.held_rank_ns:
        return ""
    fates = {entry.fate: entry.rank_ns for entry in found.entries}
    known, bound = fates["discarded"], fates["discarded at most"]
    share, rest = (100 * ns / found.held_rank_ns for ns in (known + bound, fates["unfinished"]))
    hours, unit = found.held_rank_ns / HOUR_NS, found.unit or "job"
    time = f"{hours:,.0f} {unit}-hours" if hours >= 10 else f"{3600 * hours:,.0f} {unit}-seconds"
    if share < LEAST:
        unfinished = f"{rest:.1f} % of {time} was left unfinished." if rest >= LEAST else ""
        calm = not known + bound and found.restarted_jobs == 0 and not found.stuck
        return unfinished or ("Nothing was done twice." if calm else "")
    text = f"{share:.1f} % of {time} was discarded"
    why = ": no checkpoint is known" if not known else ", all of an attempt where no checkpoint is known"
    after = f"; {rest:.1f} % more was left unfinished" if rest >= LEAST else ""
    return f"At most {text}{why}{after}." if bound else f"{text}{after}."
