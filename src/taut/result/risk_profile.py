"""Does this deployment belong to the class of systems that lose without a failing part? Four signs, each measured or not.

Longer without errors, re-runs without a reproducible bug, utilisation that falls though all is allocated, energy out of
proportion to useful work. A sign is shown by a test (a baseline, a trend over the steps, an interval) at a size of 1 % or
5 % that is stated where it is used, and only where it is worth at least LISTED_SHARE. That a test finds nothing is a *no*
only where its interval also excludes BOUNDED; else it is undecided, and says what would decide it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats
from taut.core.rank_words import rank_labels
from taut.core.reporting import LISTED_SHARE, spell
from taut.core.tables import Table
from taut.core.trend import trend
from taut.diagnose.metric_steps import steps_of
from taut.result.computed import Computed
from taut.result.types import (
    AnalysisResult,
    AttemptsResult,
    Baseline,
    Estimate,
    Finding,
    Progress,
    Risk,
    RiskAnswer,
    RiskQuestion,
    Verdict,
)

LONGER: RiskQuestion = "longer without errors"
AGAIN: RiskQuestion = "re-runs without a reproducible bug"
FALLS: RiskQuestion = "utilisation falls though allocated"
ENERGY: RiskQuestion = "energy out of proportion"
SURE = 0.01
"""Chance at which a series of steps without a trend is said to have one."""
BOUNDED = 0.10
"""A change that is excluded from this size on is none, for the purpose of an answer."""
LEAST_STEPS, MOST_STEPS = 8, 400
"""Steps from which a trend is tested, and points that a longer run is averaged to."""
ENDED_BADLY = ("failed", "node failed", "out of memory", "timed out")
"""Ends of attempts that are failures; preempted and cancelled ones were decided."""
DECIDED = ("preempted", "cancelled")
ALWAYS = 3
"""Failures without a named cause from which a job that did nothing else is taken to repeat one."""
ERRORS = ("xid", "ecc_uncorrected")
"""Metrics that are errors of a device."""
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+", re.IGNORECASE)


def risk_profile(a: Computed, known: AnalysisResult) -> Risk:
    """The four answers, and whether this is soft degradation, hard failure, or both."""
    errors = list(_errors(a, known))
    answers = [
        _longer(a, known, errors),
        _again(a.graph.trace.attempts, known.progress),
        _falls(a, known.verdict),
        _energy(a, known.indices.energy_per_useful_step if known.indices else None),
    ]
    lost = _recoverable(a, known.findings)
    soft = next((one.says for one in (answers[0], answers[2]) if one.answer == "yes"), "")
    if not soft and lost >= LISTED_SHARE:
        soft = f"mending the findings saves {100 * lost:.1f} % of the wall"
    return _risk(soft, [*errors, *_attempt_failures(a.graph.trace.attempts, known.attempts)], answers)


def risk_of_attempts(recorded: Table, found: AttemptsResult) -> Risk:
    """The same from job logs alone: what only traces tell is not measured."""
    answers = [
        _unknown(LONGER, "", "traces, and a baseline"),
        _again(recorded, None),
        _unknown(FALLS, "", "traces"),
        _unknown(ENERGY, "", "traces, and power"),
    ]
    return _risk("", list(_attempt_failures(recorded, found)), answers)


def _risk(soft: str, hard: Sequence[str], answers: list[RiskAnswer]) -> Risk:
    if soft and hard:
        return Risk(kind="both", says=f"{'; '.join(hard)}; beside that {soft}", answers=answers)
    if hard:
        return Risk(kind="hard failure", says="; ".join(hard), answers=answers)
    if soft:
        return Risk(kind="soft degradation", says=soft, answers=answers)
    return Risk(kind=None, says="neither a slowdown nor an error shows", answers=answers)


def _errors(a: Computed, known: AnalysisResult) -> Iterator[str]:
    """Errors in the traced time."""
    for finding in known.findings:
        if finding.mode == "hang":
            yield f"hang, {rank_labels(finding.ranks, a.graph.members)} stopped" if finding.ranks else "hang"
    if known.failed is not None:
        yield f"{known.failed.failed:,} of {known.failed.spans:,} spans failed"
    for row in known.components:
        if row.metric in ERRORS and row.inside is False:
            yield f"{row.component} reports {row.metric}"


def _attempt_failures(recorded: Table, found: AttemptsResult | None) -> Iterator[str]:
    """Attempts that failed; where no log says how they ended, those that had to be done again."""
    if found is None:
        return
    bad = {word: found.outcomes[word] for word in ENDED_BADLY if found.outcomes.get(word)}
    again = sum(count for why, count in rerun_causes(recorded).items() if why != "decided")
    if bad:
        yield f"{sum(bad.values()):,} of {found.attempts:,} attempts ended badly ({_counted(bad)})"
    elif again:
        yield f"{again:,} of {found.attempts:,} attempts are re-runs"


def _counted(some: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {word}" for word, count in some.items())


def _recoverable(a: Computed, findings: Sequence[Finding]) -> float:
    """Share of the wall that mending all findings but hangs saves."""
    most = max((one.recoverable_wall_ns for one in findings if one.mode != "hang"), default=0)
    whole = 0 if any(one.mode == "hang" for one in findings) else a.recoverable_wall_ns
    return max(most, whole) / max(a.observed.wall_ns, 1)


def _answer(question: RiskQuestion, is_so: bool, says: str, *evidence: str) -> RiskAnswer:
    return RiskAnswer(question=question, answer="yes" if is_so else "no", says=says, evidence=list(evidence), needs=None)


def _unknown(question: RiskQuestion, says: str, needs: str, *evidence: str) -> RiskAnswer:
    return RiskAnswer(question=question, answer=None, says=says, evidence=list(evidence), needs=needs)


class Drift(Struct, frozen=True):
    """By how much a series changed from its first step to its last, with the interval and the chance of none."""

    change: float
    lo: float
    hi: float
    p: float

    @property
    def rises(self) -> bool:
        """Whether a rise is shown that is worth listing."""
        return self.p <= SURE and self.change >= LISTED_SHARE

    @property
    def bounded(self) -> bool:
        """Whether a rise worth an answer is excluded."""
        return self.hi < BOUNDED


def drift(series: Floats, scale: float) -> Drift | None:
    """The trend of a series over its steps, as a share of ``scale``; None where too few steps tell."""
    count = len(series)
    if count < LEAST_STEPS or scale <= 0 or not np.isfinite(series).all():
        return None
    block = -(-count // MOST_STEPS)
    points = series[: count // block * block].reshape(-1, block).mean(axis=1)
    found, reach = trend(points), (len(points) - 1) / scale
    if found is None or found.lo is None or found.hi is None:
        return None
    return Drift(found.slope * reach, found.lo * reach, found.hi * reach, found.p)


def _longer(a: Computed, known: AnalysisResult, errors: Sequence[str]) -> RiskAnswer:
    """Against a baseline, over the steps, or against the same job with its findings mended."""
    found = list(_slower(a, known.findings))
    shown = next((one for one in found if one[0]), None)
    if shown is not None:
        if errors:
            return _answer(LONGER, False, f"{shown[1]}, but with errors: {errors[0]}", *shown[2])
        return _answer(LONGER, True, f"{shown[1]}, without an error", *shown[2])
    excluded = next((one for one in found if one[0] is False), None)
    if excluded is not None:
        return _answer(LONGER, False, excluded[1], *excluded[2])
    needs = "a baseline" if a.baseline is None else "more steps"
    return _unknown(LONGER, found[0][1] if found else "", needs, *(found[0][2] if found else ()))


Shown = tuple[bool | None, str, tuple[str, ...]]
"""Whether it is so (None: undecided), what was measured, and the keys of the result."""


def _slower(a: Computed, findings: Sequence[Finding]) -> Iterator[Shown]:
    base = a.baseline
    if base is not None and base.step_ratio is not None:
        yield _against(base, base.step_ratio)
    shared = max((one.loss_share.value for one in findings if one.loss_share), default=0.0)
    if shared >= LISTED_SHARE:
        yield True, f"waiting that nobody in particular causes takes {100 * shared:.1f} % of the wall", ("findings",)
    lost = _recoverable(a, findings)
    if lost >= LISTED_SHARE:
        yield True, f"mending the findings saves {100 * lost:.1f} % of the wall", ("findings", "recoverable_wall_ns")
    walls = a.observed.window_ns.astype(np.float64)
    found = drift(walls, float(np.median(walls)))
    if found is not None:
        is_so = True if found.rises else False if found.bounded else None
        says = f"step time changes by {100 * found.change:+.1f} % over the run (p {found.p:.2g})"
        yield is_so, says, ("windows",)


def _against(base: Baseline, ratio: Estimate) -> Shown:
    """Step time against the baseline."""
    lo, hi = ratio.lo or 0.0, ratio.hi or np.inf
    is_so = True if lo > 1 and ratio.value >= 1 + LISTED_SHARE else False if hi < 1 + BOUNDED else None
    says = f"step {spell(base.step_ns.before)} → {spell(base.step_ns.after)} against the baseline"
    return is_so, f"{says} (×{ratio.value:.2f}, {lo:.2f}–{hi:.2f})", ("baseline.step_ratio",)


def _again(recorded: Table, log: Progress | None) -> RiskAnswer:
    """Re-runs by what ended the attempt before: a cause that comes back in the same job is a bug one can reproduce."""
    if not len(recorded):
        if log is None:
            return _unknown(AGAIN, "", "a job log")
        says = f"{log.discarded_steps:,} of {log.executed_steps:,} steps were done again, why is not logged"
        return _answer(AGAIN, log.discarded_steps > 0, says if log.discarded_steps else "no step was done again", "progress")
    why = rerun_causes(recorded)
    total = sum(why.values())
    if not total:
        return _answer(AGAIN, False, f"none of {len(recorded):,} attempts is a re-run", "attempts")
    words = _counted({word: count for word, count in why.items() if count})
    says = f"{total:,} re-run{'s' if total > 1 else ''}, what ended the attempt before: {words}"
    return _answer(AGAIN, why["not named"] + why["seen once"] > 0, says, "attempts")


def rerun_causes(recorded: Table) -> dict[str, int]:
    """How many re-runs follow an attempt that ended by something not named, seen once, repeated in the job, or decided."""
    job = recorded.job
    again = np.flatnonzero(job[1:] == job[:-1])  # rows that another attempt of the job follows
    out = {"not named": 0, "seen once": 0, "repeated": 0, "decided": 0}
    if not len(again):
        return out
    several = np.unique(np.concatenate([again, again + 1])).tolist()
    cause = {row: (str(job[row]), *_cause(str(recorded.outcome[row]), str(recorded.reason[row]))) for row in several}
    seen, ends = Counter(cause.values()), defaultdict[str, set[str]](set)
    for name, outcome, _ in cause.values():
        ends[name].add(outcome)
    for row in again.tolist():
        _, outcome, reason = cause[row]
        if outcome in DECIDED:
            out["decided"] += 1
        elif not reason and outcome in ("", "failed", "completed"):
            # A job that has always failed, and more than twice, fails for a reason, whether it is named or not.
            always = outcome == "failed" and seen[cause[row]] >= ALWAYS and ends[cause[row][0]] == {"failed"}
            out["repeated" if always else "not named"] += 1
        else:
            out["repeated" if seen[cause[row]] > 1 else "seen once"] += 1
    return out


def _cause(outcome: str, reason: str) -> tuple[str, str]:
    """How an attempt ended, and why, without the numbers that differ from attempt to attempt."""
    return outcome, _NUMBER.sub("#", reason.strip().lower())


def _falls(a: Computed, verdict: Verdict) -> RiskAnswer:
    """Utilisation, or the productive share, against a baseline or over the steps, while all ranks are at work."""
    shares = [(verdict.nominal_share, "utilised"), (verdict.effective_share, "productive")]
    today = ", ".join(f"{100 * value:.0f} % {word}" for value, word in shares if value is not None)
    graph = a.graph
    if a.ledger.by_fate["unobserved"] or (graph.trace.world_size or len(graph.ranks)) > len(graph.ranks):
        return _unknown(FALLS, today, "the traces of all ranks", "verdict")
    base = a.baseline
    if base is not None and base.effective_share is not None and verdict.effective_share is not None:
        return _fell(base, base.effective_share, verdict.effective_share)
    measured = _utilisation(a)
    found = drift(-(measured if measured is not None else _productive(a)), 1.0)
    what = "measured utilisation" if measured is not None else "the productive share"
    if found is None or not (found.rises or found.bounded):
        return _unknown(FALLS, today, "a baseline, or more steps", "verdict")
    says = f"{what} changes by {-100 * found.change:+.1f} points over the run, all ranks at work (p {found.p:.2g})"
    return _answer(FALLS, found.rises, says, "components" if measured is not None else "ledger")


def _fell(base: Baseline, before: float, after: float) -> RiskAnswer:
    ratio, keys = base.step_ratio, ("baseline.effective_share", "verdict.effective_share")
    says = f"productive {100 * before:.0f} → {100 * after:.0f} % against the baseline, all ranks at work"
    if before - after < LISTED_SHARE:
        return _answer(FALLS, False, says, *keys)
    if ratio is None or (ratio.lo or 0.0) <= 1:
        return _unknown(FALLS, says, "more steps", *keys)
    return _answer(FALLS, True, says, *keys)


def _utilisation(a: Computed) -> Floats | None:
    """Measured utilisation of the accelerators over the steps; None where too few samples tell."""
    steps = steps_of(a.graph, ("utilisation_share",), LEAST_STEPS)
    return _mean_over_ranks([one.metrics["utilisation_share"] for one in steps.values()])


def _mean_over_ranks(series: list[Floats]) -> Floats | None:
    """The mean of series of one length; None without any, or where they are sampled differently."""
    if not series or len({len(one) for one in series}) > 1:
        return None
    found: Floats = np.mean(series, axis=0)
    return found


def _productive(a: Computed) -> Floats:
    """Productive share of every step."""
    code = [one.fate for one in a.ledger.categories].index("productive")
    spent = a.ledger.by_step(a.graph.steps)
    share: Floats = spent[:, code] / np.maximum(spent.sum(axis=1), 1.0)
    return share


def _energy(a: Computed, index: Estimate | None) -> RiskAnswer:
    """Joules of a step that rise over the run, or that are more than useful work takes."""
    steps = steps_of(a.graph, ("power_w",), LEAST_STEPS)
    measured = _mean_over_ranks([one.metrics["power_w"] * one.length_ns * 1e-9 for one in steps.values()])
    given = a.ledger.energy(a.graph.steps)
    series = measured if measured is not None else given.joules if given is not None else None
    if series is None:
        return _unknown(ENERGY, "", "power")
    found = drift(series, float(np.median(series)))
    how = "measured" if measured is not None else "given"
    if found is not None and found.rises:
        says = f"joules of a step rise by {100 * found.change:.1f} % over the run (power {how}, p {found.p:.2g})"
        return _answer(ENERGY, True, says, "components" if measured is not None else "ledger")
    if index is not None and index.lo is not None and index.hi is not None:
        says = f"a useful step takes {index.value:.2f} times the joules of the ideal ({index.lo:.2f}–{index.hi:.2f})"
        if index.lo >= 1 + LISTED_SHARE or index.hi < 1 + BOUNDED:
            return _answer(ENERGY, index.lo >= 1 + LISTED_SHARE, says, "indices.energy_per_useful_step")
        return _unknown(ENERGY, says, "more steps", "indices.energy_per_useful_step")
    if found is not None and found.bounded:
        says = f"joules of a step change by {100 * found.change:+.1f} % over the run (power {how})"
        return _answer(ENERGY, False, says, "components")
    return _unknown(ENERGY, "", "more steps")
