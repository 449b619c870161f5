"""The comparison in a few sentences, and the nulls behind them."""

from __future__ import annotations

from collections.abc import Iterator

from taut.compare.changed_work import FALSE_SHARE
from taut.compare.restarts import FALSE_ALARMS as RESTARTS
from taut.core.rank_words import listed
from taut.core.reporting import spell
from taut.diagnose.finding import Finding
from taut.diagnose.nondeterminism import FALSE_ALARMS as REPEATS
from taut.result.types import CompareResult, NonDeterminism, NullTest, Restarts

TRENDS = 0.05
"""Corrected chance from which a trend is named."""
WORDS = {
    "step_ns": "step time", "runtime_variance_index": "runtime variance", "effective_throughput_ratio": "effective throughput",
    "waiting_share": "waiting", "recoverable_share": "recoverable", "rerun_share": "re-run rate",
    "energy_per_kept_step_j": "energy per kept step", "cost_per_kept_step": "cost per kept step",
}  # fmt: skip
"""The quantities as people say them."""
NULLS = {
    "trends": NullTest(
        null="a stationary series, perhaps red (AR(1)): nothing rises or falls from run to run",
        test="Mann-Kendall with variance for red noise, counted exactly for up to 7 runs; slope: Theil-Sen per run",
        size=TRENDS,
        correction="Benjamini-Hochberg over the quantities",
    ),
    "changed": NullTest(
        null="the steps of both runs are draws of one process; heavy tails and red steps allowed",
        test="Welch on trimmed means, errors for red steps; from 24 steps on also by either run's jitter alone, times three",
        size=FALSE_SHARE,
        correction="Benjamini-Hochberg over all classes and ranks",
    ),
    "non_determinism": NullTest(
        null="repeats of one graph have the same step time; own spread, heavy tails and red steps allowed",
        test="Brown-Forsythe on trimmed means, errors for red steps",
        size=REPEATS,
        correction="Benjamini-Hochberg over the sets of repeats; over all classes and ranks of a set",
    ),
    "restarts": NullTest(
        null="a restart changes neither step time nor its spread",
        test="ratio of trimmed means on both sides, errors for red steps, pooled over the restarts",
        size=RESTARTS,
        correction="Benjamini-Hochberg over the restarts; none for what is pooled",
    ),
}
"""What every test of a comparison holds for true until shown otherwise, and how often it errs then."""


def verdict(result: CompareResult, first: Finding | None = None) -> str:
    """What a person should know first; ``first`` is what the later of two runs, with the other as its baseline, shows first."""
    return " ".join(
        [*_trends(result), *_changed(result, first), *_repeats(result.non_determinism), *_restarts(result.restarts)]
    )


def _trends(result: CompareResult) -> Iterator[str]:
    count = len(result.runs)
    if count == 2:  # two points always lie on a line
        return
    found = [(t, t.slope) for t in result.trends if t.q is not None and t.q <= TRENDS and t.slope is not None]
    how = "in order of their time" if result.order == "time" else "in the order given"
    if not found:
        yield f"{count} runs {how}: no trend that chance would not give."
    for t, slope in found:
        way = "rises" if slope.value > 0 else "falls" if slope.value < 0 else "moves"
        yield f"Over {count} runs {how} {WORDS[t.quantity]} {way} (q {t.q:.2g})."


def _changed(result: CompareResult, first: Finding | None) -> Iterator[str]:
    runs, rows, tested = result.runs, result.changed, result.changed_tested
    if not tested:
        yield "What changed cannot be told: too few steps, or no class in common."
        return
    which = "" if len(runs) == 2 else "From the first run to the last, "
    before, after = runs[0].step_ns, runs[-1].step_ns
    by = f" ({100 * (after / before - 1):+.0f} %)" if before else ""
    step = f"step time {spell(before)} → {spell(after)}{by}{_from(first)}"
    if not rows:
        text = f"{which}{step}; no class on any rank changed by more than its jitter."
    else:
        text = f"{which}{step}; {len(rows):,} of {tested:,} classes on ranks changed{'' if first else _most(result)}."
    yield text[0].upper() + text[1:]


def _from(first: Finding | None) -> str:
    """Where the difference comes from: the place, its class, before and after."""
    if first is None:
        return ""
    ranks = f"rank{'' if len(first.ranks) == 1 else 's'} {listed(list(map(str, first.ranks)))}" if first.ranks else "all ranks"
    place = f"link {' and '.join(first.links)}" if first.links else ranks
    if first.grew is None:
        return f", from {place} (steps {first.steps[0]}–{first.steps[1]})"
    grew = f"{spell(first.grew.before_ns)} → {spell(first.grew.after_ns)}"
    alone = len(first.ranks) == 1 and not first.links
    return f", from {place}'s {first.grew.name}, {grew}" if alone else f", from {first.grew.name} of {place}, {grew}"


def _most(result: CompareResult) -> str:
    """The class, or the rank, whose change did most to the wall clock."""
    by, steps = result.changed_by, max(result.runs[-1].steps, 1)
    found = [
        (abs(ns), ns, f"{kind} {name}")
        for kind, costs in (("rank", by.rank), ("class", by.op_class))
        for name, ns in costs.items()
        if ns
    ]
    if not found:
        return ", none of it on the critical path"
    _, ns, place = max(found)
    most = max(result.changed, key=lambda row: abs(row.effect_wall_ns or 0))
    example = f" (rank {most.rank}'s {most.op_class}, {spell(most.before_ns)} → {spell(most.after_ns)})"
    return f"; {place} {'costs' if ns > 0 else 'saves'} most, {spell(abs(ns) / steps)} a step{example}"


def _repeats(found: NonDeterminism) -> Iterator[str]:
    for row in found.findings:
        yield f"Non-determinism: {row.because}."
    other = sum(not row.same_graph for row in found.structure)
    if other:
        yield f"{other} of {len(found.structure)} runs {'is' if other == 1 else 'are'} not the same graph as the first."


def _restarts(found: Restarts) -> Iterator[str]:
    if not found.at:
        return
    count = len(found.at)
    said = {
        "reset": "steps vary less afterwards: restarts reset instability",
        "amplify": "steps vary more afterwards: restarts amplify instability",
        "none shown": "no effect on the spread of steps is shown",
        None: "too few steps tell what it does",
    }[found.effect]
    yield f"{count} restart{'' if count == 1 else 's'}; {said}."
