"""What ``taut analyze`` made of a lab run, held against the truth: one row per run, and a summary over many.

Only the first finding counts as the answer, because that is what a person acts on. A run that shows nothing where
something was done is *missed*, and its saving was predicted as zero: it stays in every figure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, Required, TypedDict, Unpack

import msgspec
import numpy as np

from taut.lab.truth import HEALTHY, HICCUPS, NOBODY, ON_ALL, Injected, Truth
from taut.result.types import AnalysisResult, Device, Estimate, Finding, Grown

Verdict = Literal["right", "wrong place", "wrong mode", "missed", "false finding", "quiet", "not yet", "failed"]
Place = Literal["ranks", "links", "sets of ranks", "hosts", "nothing"]
"""What was faulty: a rank (or two, one after the other), the network, several ranks at once, all ranks of a host."""
PLACES: tuple[Place, ...] = ("ranks", "links", "sets of ranks", "hosts")
WORTH = 10
"""Standard errors that a measured saving must be worth before a prediction is held against it."""
COSTS = 3
"""Standard errors that a fault must have cost before it can be said to have cost anything."""
LEAST_SAVED = 0.03
"""Share of the wall that a policy must really save before a prediction of it is held against that."""


class DeviceStep(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's steps on its GPU, by CUDA events and by the analysis of the same steps."""

    rank: int
    events_ns: float
    """Mean step by CUDA events, ns; below, the period of the device by the analysis."""
    analysed_ns: float
    steps: int
    worst_step: float
    """Largest |analysed − events| ÷ events of a single step."""

    @property
    def error(self) -> float:
        """|analysed − events| ÷ events of the mean step."""
        return abs(self.analysed_ns / self.events_ns - 1)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One scored run: what it was, what was found and whether that is right; ``extra`` findings fit nothing that was done."""

    job: str
    fault: str
    seed: int
    ranks: int
    modelled: bool
    detected: bool
    verdict: Verdict
    from_start: bool = False
    places: str = "1"
    place: Place = "nothing"
    baseline_verdict: Verdict | None = None
    """The same with the first healthy part as baseline, also below; None where there was none."""
    baseline_found: str = ""
    baseline_counterfactual_error: float | None = None
    found: str
    """The first findings in a few words; of a failed analysis, why it failed."""
    wanted: str
    extra: int = 0
    link_fault: bool = False
    onset_error_steps: int | None = None
    saving_ns: float | None = None
    """What removing the fault really saved on the wall, ns; below, what fixing all findings was predicted to save."""
    saving_se_ns: float | None = None
    predicted_ns: float | None = None
    counterfactual_error: float | None = None
    """|predicted − measured| ÷ measured; None where the saving is below ten standard errors."""
    clock_error_ns: float | None = None
    """Largest |estimated − true| offset against the first rank's clock, ns; None where there was nothing to fit."""
    clock_covered: float | None = None
    closes: bool = False
    device: str = "cpu"
    device_steps: tuple[DeviceStep, ...] = ()
    """Every rank that has both CUDA events and windows on the device."""
    device_error: float | None = None
    """The largest error of a rank's mean step on the device; None on a CPU, or where the analysis has no such step."""
    class_named: bool | None = None
    """Whether a finding that fits names the kernel that was made slow; None where none was."""
    profiler_overhead: float | None = None
    """Median step with the profiler over that of the same steps without, less one; None on a CPU."""

    wanted_class: str | None = None
    """Class that the verdict must have, of jobs without a culprit; below, the one it has."""
    found_class: str = ""
    policy_saved: float | None = None
    """Share of the wall that the policy really saved, of jobs that were run again under one; below, what was predicted."""
    policy_predicted: Estimate | None = None
    loss_share: float | None = None
    """Share of the wall by which the last to arrive was later than ranks were on average, as the job itself measured it."""
    growth: tuple[Grown, ...] = ()

    @property
    def law(self) -> tuple[str, str, int]:
        """What jobs without a culprit have in common if they differ in size alone."""
        return self.job, self.fault, self.seed // 10

    @property
    def policy_ratio(self) -> float | None:
        """Predicted ÷ measured saving of the policy; None without hiccups, or below a measured ``LEAST_SAVED``."""
        if self.policy_saved is None or self.policy_predicted is None:
            return None
        if self.fault not in (*HICCUPS, "both") or self.policy_saved < LEAST_SAVED:
            return None
        return self.policy_predicted.value / self.policy_saved

    @property
    def label(self) -> str:
        """The fault in a few words, with where and when it was if that is not the usual."""
        many = {"1": "", "host": ", a host"}.get(self.places, f", {self.places} places")
        return f"{self.fault}{many}{', from the start' if self.from_start else ''}"


class Share(msgspec.Struct, frozen=True):
    """A count out of a number with Wilson's 95 % interval; None where there is nothing to count."""

    count: int
    of: int
    value: float | None = None
    lo: float | None = None
    hi: float | None = None


class Spread(msgspec.Struct, frozen=True):
    """How a figure is spread over ``n`` runs; None where there are none."""

    n: int
    median: float | None = None
    p90: float | None = None
    max: float | None = None


class Quartiles(msgspec.Struct, frozen=True):
    """How a ratio is spread over ``n`` runs."""

    n: int
    p10: float
    median: float
    p90: float


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Runs of one kind: root cause right at first place, alone and with a baseline; of healthy runs, those with a finding."""

    past: bool | None
    """Whether what was analysed holds healthy steps before the fault; None of healthy runs."""
    place: Place | Literal["all"]
    alone: Share
    with_baseline: Share


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The score of a whole matrix; rows that wait for a mode not built yet are only counted, failed ones are not right."""

    right: Share
    right_measured: Share = Share(0, 0)
    """The same of faults that are known to have cost something: ``COSTS`` standard errors or more."""
    precision: Share
    recall: Share
    false_findings: Share
    false_per_20: tuple[float, ...]
    """Healthy runs with a finding, per 20: value, lower and upper end; empty without healthy runs."""
    extra: int
    counterfactual: Spread
    counterfactual_no_change: float = 1.0
    baseline_counterfactual: Spread = Spread(0)
    """The same with a baseline."""
    groups: tuple[Group, ...] = ()
    onset_steps: Spread
    clock_ns: Spread
    """Largest clock error of each run without a faulty link, ns."""
    clock_covered: float | None
    """Mean share of ranks whose interval holds the truth in runs with a faulty link, 0–1."""
    closes: Share
    device_error: Spread
    """Largest error of a rank's mean step on the device against CUDA events, in every run that has them."""
    class_named: Share
    profiler_overhead: Spread
    without_culprit: Share = Share(0, 0)
    """Jobs without a culprit, and with one beside hiccups, of which the finding is right; below, of which the class is."""
    classes: Share = Share(0, 0)
    policy_ratio: Quartiles | None = None
    """Predicted ÷ measured saving of the policy, over jobs with hiccups of which it saved at least ``LEAST_SAVED``."""
    policy_error: Spread = Spread(0)
    growth_covered: Share = Share(0, 0)
    """Intervals of what larger jobs lose that hold what a job of that size and law did lose."""
    not_yet: dict[str, int]
    failed: int


def attempt(truth: Truth, analysed: Callable[[], AnalysisResult], built: frozenset[str]) -> Row:
    """Score an analysis that may fail: whatever it raises becomes one row, and the matrix goes on."""
    try:
        result = analysed()
    except Exception as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        can = {i.mode for i in truth.injected} <= {None, *built}
        return _row(truth, verdict="failed" if can else "not yet", detected=False, found=why)
    return score(result, truth, built)


def score(result: AnalysisResult, truth: Truth, built: frozenset[str]) -> Row:
    """Hold one result against the truth; ``built`` are the modes that have a detector."""
    findings, faults = result.findings, [i for i in truth.injected if i.mode is not None]
    verdict = _verdict(findings, faults, truth, built)
    (saving, se), joint = truth.saving_ns, result.recoverable_wall_ns
    predicted = float(sum(f.recoverable_wall_ns for f in findings) if joint is None else joint)
    worth = truth.fault not in HEALTHY and verdict != "not yet" and saving > 0 and saving >= WORTH * se
    clock_error, covered = _clock(result.fidelity.clock.offset_ns if result.fidelity else {}, truth)
    sentences = [_sentence((f.mode, *f.alternatives), f.links, f.ranks, f.steps) for f in findings]
    return _row(
        truth,
        verdict=verdict,
        detected=bool(findings),
        found=_joined(sentences),
        predicted_ns=predicted,
        onset_error_steps=_onset(findings, faults, result.job.first_step or 0),
        extra=sum(not _points_at(f, faults, truth.places != "1") for f in findings),
        counterfactual_error=abs(predicted - saving) / saving if worth else None,
        clock_error_ns=clock_error,
        clock_covered=covered,
        closes=result.ledger is not None and result.ledger.closes,
        device_steps=device_steps(result.device, truth),
        class_named=_class_named(findings, faults),
        found_class=result.verdict.kind,
        growth=_growth(findings),
    )


def _growth(findings: Sequence[Finding]) -> tuple[Grown, ...]:
    """What the finding about nobody expects of jobs of other sizes."""
    return tuple(grown for f in findings for grown in f.growth or ())


def device_steps(device: Device | None, truth: Truth) -> tuple[DeviceStep, ...]:
    """The device's steps held against CUDA events, rank by rank, over the steps that the analysis kept."""
    out = []
    for rank, events in sorted(truth.device_step_ns.items() if device else ()):
        mine = [w for w in device.windows if w.rank == rank and 1 <= w.step <= len(events)] if device else []
        if device and mine and str(rank) in device.ranks:
            known = np.array([events[w.step - 1] for w in mine], dtype=np.float64)  # the first step has number 0 and is dropped
            seen = np.array([w.end_ns - w.start_ns for w in mine], dtype=np.float64)
            out.append(
                DeviceStep(
                    rank=rank,
                    events_ns=float(known.mean()),
                    analysed_ns=device.ranks[str(rank)].step_ns,
                    steps=len(mine),
                    worst_step=float(np.abs(seen / known - 1).max()),
                )
            )
    return tuple(out)


def _class_named(findings: Sequence[Finding], faults: Sequence[Injected]) -> bool | None:
    """Whether every slow kernel is named by a finding that fits its fault; None where no kernel was made slow."""
    slow = [fault for fault in faults if fault.classes]
    if not slow:
        return None
    return all(any(_fits(f, fault) and fault.classes[0] in " ".join(f.classes) for f in findings) for fault in slow)


class _Judged(TypedDict, total=False):
    """What is held of a run against its truth: fields of ``Row``."""

    verdict: Required[Verdict]
    detected: Required[bool]
    found: Required[str]
    extra: int
    onset_error_steps: int | None
    predicted_ns: float | None
    counterfactual_error: float | None
    clock_error_ns: float | None
    clock_covered: float | None
    closes: bool
    device_steps: tuple[DeviceStep, ...]
    class_named: bool | None
    found_class: str
    growth: tuple[Grown, ...]


def _row(truth: Truth, **judged: Unpack[_Judged]) -> Row:
    saving, se = (None if np.isnan(value) else value for value in truth.saving_ns)
    on_gpu, cost = truth.device != "cpu", truth.overhead
    steps = judged.get("device_steps", ())
    done = [_sentence((i.mode,), i.links, i.ranks, (i.first_step, i.last_step)) for i in truth.injected if i.mode]
    return Row(
        job=truth.job,
        fault=truth.fault,
        seed=truth.seed,
        ranks=truth.ranks,
        modelled=truth.modelled,
        from_start=truth.from_start,
        places=truth.places,
        place=_place(truth),
        wanted=_joined(done),
        link_fault=any(i.links for i in truth.injected),
        wanted_class=truth.wanted_class,
        policy_saved=truth.policy_saved,
        loss_share=truth.late_share,
        saving_ns=saving,
        saving_se_ns=se,
        device=truth.device,
        device_error=max((s.error for s in steps), default=None),
        profiler_overhead=cost["profiled_ms"] / cost["plain_ms"] - 1 if on_gpu and cost.get("plain_ms") else None,
        **judged,
    )


def _place(truth: Truth) -> Place:
    if truth.fault in (*HEALTHY, *ON_ALL):
        return "nothing"
    if truth.places != "1" or truth.fault == "set":
        return "hosts" if truth.places == "host" else "sets of ranks"
    return "links" if any(i.links for i in truth.injected) else "ranks"


def beside_baseline(row: Row, again: Row) -> Row:
    """A scored run, and what the analysis made of it with a baseline."""
    return msgspec.structs.replace(
        row,
        baseline_verdict=again.verdict,
        baseline_found=again.found,
        baseline_counterfactual_error=again.counterfactual_error,
    )


def beside_policy(row: Row, predicted: Estimate | None) -> Row:
    """A scored run, and what a policy was predicted to save of it."""
    return msgspec.structs.replace(row, policy_predicted=predicted)


def _verdict(findings: Sequence[Finding], faults: Sequence[Injected], truth: Truth, built: frozenset[str]) -> Verdict:
    if truth.fault in HEALTHY:
        return "false finding" if findings else "quiet"
    if {fault.mode for fault in faults} - built:
        return "not yet"
    if truth.fault in NOBODY:
        return "false finding" if any(_blames(f, truth) for f in findings) else "right"
    many = truth.places != "1"
    if many and (_in_parts(findings, faults[0]) or _together(findings, faults)):
        return "right"
    if not findings or _points_at(findings[0], faults, many):
        return "right" if _all_found(findings, faults) else "missed"
    return "wrong place" if any(_names(findings[0], fault) for fault in faults) else "wrong mode"


def _points_at(finding: Finding, faults: Sequence[Injected], many: bool) -> bool:
    """Whether a finding fits something that was done; where ``many`` ranks are faulty at once, some of them suffice."""
    return any(_fits(finding, fault) or (many and _part(finding, fault)) for fault in faults)


def _all_found(findings: Sequence[Finding], faults: Sequence[Injected]) -> bool:
    """Whether everything that was done has a finding that fits it."""
    return all(any(_fits(f, fault) for f in findings) for fault in faults)


def _blames(finding: Finding, truth: Truth) -> bool:
    """Whether a finding names some ranks or links and not others, where all are alike or differ by chance."""
    whole = not finding.links and len(finding.ranks) in (0, truth.ranks)
    return not whole and finding.mode not in ("work imbalance", "structural instability")


def _names(finding: Finding, fault: Injected) -> bool:
    """The mode, or several modes it cannot tell apart, this one among them."""
    return fault.mode in (finding.mode, *finding.alternatives)


def _fits(finding: Finding, fault: Injected) -> bool:
    """Mode and place: a rank; a link and at most one more; a network interface by its links, or its rank and any link."""
    ranks, links = set(finding.ranks), finding.links
    if not fault.links:
        placed = ranks == set(fault.ranks) and not links
    elif len(fault.links) == 1:
        placed = fault.links[0] in links and len(links) <= 2
    else:
        owner = set(fault.ranks[:1])
        placed = bool(links and owner) and (ranks == owner or all(owner & set(map(int, link.split(":"))) for link in links))
    return placed and _names(finding, fault)


def _in_parts(findings: Sequence[Finding], fault: Injected) -> bool:
    """Whether the first findings, one by one, name nobody but ranks of a faulty set, and all of them."""
    wanted, named = set(fault.ranks), set[int]()
    for f in findings:
        if not _part(f, fault):
            break
        named |= set(f.ranks)
    return bool(wanted) and named == wanted


def _part(finding: Finding, fault: Injected) -> bool:
    """Whether a finding names some ranks of a faulty set and nobody else."""
    return (
        bool(finding.ranks)
        and set(finding.ranks) <= set(fault.ranks)
        and not finding.links
        and not fault.links
        and (_names(finding, fault))
    )


def _together(findings: Sequence[Finding], faults: Sequence[Injected]) -> bool:
    """Whether the first finding names several faulty links, or interfaces, at once, and nothing else."""
    if not findings or not all(fault.links for fault in faults) or not _names(findings[0], faults[0]):
        return False
    one_way, links = all(len(fault.links) == 1 for fault in faults), findings[0].links
    if one_way:
        return {link for fault in faults for link in fault.links} == set(links)
    owners, ends = {rank for fault in faults for rank in fault.ranks}, [set(map(int, link.split(":"))) for link in links]
    return all(end & owners for end in ends) and all(any(owner in end for end in ends) for owner in owners)


def _onset(findings: Sequence[Finding], faults: Sequence[Injected], begin: int) -> int | None:
    """Begin of the first finding against the fault it fits; a fault older than the trace begins with the trace."""
    late = [f.steps[0] - max(fault.first_step, begin) for f in findings[:1] for fault in faults if _fits(f, fault)]
    return min(late, key=abs, default=None)


def _clock(offsets: Mapping[str, Estimate], truth: Truth) -> tuple[float | None, float | None]:
    """(largest error, share covered) over the ranks but the first; nothing where all are known to share one clock."""
    known = {int(rank): (float(o.lo or 0), float(o.value), float(o.hi or 0)) for rank, o in offsets.items()}
    others = sorted(known)[1:]
    if not others or (not truth.skew_ns and all(known[r][0] == known[r][2] for r in others)):
        return None, None
    true = {r: truth.skew_ns.get(r, 0.0) - truth.skew_ns.get(min(known), 0.0) for r in others}
    covered = sum(known[r][0] <= true[r] <= known[r][2] for r in others)
    return max(abs(known[r][1] - true[r]) for r in others), covered / len(others)


def _sentence(modes: Sequence[str], links: Sequence[str], ranks: Sequence[int], steps: tuple[int, int]) -> str:
    """A finding, or a fault in the words of one: what, where and when."""
    place = [f"{word} {', '.join(map(str, some))}" for word, some in (("link", links), ("rank", ranks)) if some]
    return f"{' or '.join(modes)}, {' of '.join(place) or 'no place'}, steps {steps[0]}–{steps[1]}"


def _joined(sentences: Sequence[str]) -> str:
    """The first two of them, and how many more."""
    more = [f"and {len(sentences) - 2} more"] * (len(sentences) > 2)
    return "; ".join([*sentences[:2], *more]) or "nothing"


def summarise(rows: Sequence[Row]) -> Summary:
    """The figures of a matrix."""
    judged = [r for r in rows if r.verdict != "not yet"]
    faulted = [r for r in judged if r.fault not in (*HEALTHY, *ON_ALL)]
    healthy = [r for r in judged if r.fault in HEALTHY and r.verdict != "failed"]
    caught, alarms = _detected(faulted), wilson(_detected(healthy), len(healthy))
    ratios = [r.policy_ratio for r in rows if r.policy_ratio is not None]
    failed = sum(r.verdict == "failed" for r in rows)
    return Summary(
        right=_right(faulted),
        right_measured=_right([r for r in faulted if _costs(r)]),
        precision=wilson(caught, caught + alarms.count),
        recall=wilson(caught, len(faulted)),
        false_findings=alarms,
        false_per_20=_per_20(alarms),
        extra=sum(r.extra for r in faulted),
        counterfactual=spread(r.counterfactual_error for r in faulted),
        baseline_counterfactual=spread(r.baseline_counterfactual_error for r in faulted),
        groups=grouped(judged),
        onset_steps=_onset_steps(faulted),
        clock_ns=spread(r.clock_error_ns for r in judged if not r.link_fault),
        clock_covered=_clock_covered(judged),
        failed=failed,
        closes=wilson(sum(r.closes for r in judged), len(judged) - failed),
        device_error=spread(r.device_error for r in judged),
        class_named=_share_named(faulted),
        profiler_overhead=spread(r.profiler_overhead for r in rows),
        without_culprit=_right([r for r in judged if r.fault in ON_ALL]),
        classes=_classes(rows),
        policy_ratio=_quartiles(ratios),
        policy_error=spread(abs(ratio - 1) for ratio in ratios),
        growth_covered=_covered(rows),
        not_yet=dict(Counter(r.fault for r in rows if r.verdict == "not yet")),
    )


def _right(rows: Sequence[Row]) -> Share:
    return wilson(sum(r.verdict == "right" for r in rows), len(rows))


def _detected(rows: Sequence[Row]) -> int:
    return sum(r.detected for r in rows)


def _costs(row: Row) -> bool:
    """Whether a fault is known to have cost something."""
    return row.saving_ns is not None and row.saving_ns >= COSTS * (row.saving_se_ns or 0.0) > 0


def _per_20(alarms: Share) -> tuple[float, ...]:
    return tuple(20 * v for v in (alarms.value, alarms.lo, alarms.hi) if v is not None)


def _onset_steps(faulted: Sequence[Row]) -> Spread:
    return spread(abs(r.onset_error_steps) for r in faulted if r.onset_error_steps is not None)


def _classes(rows: Sequence[Row]) -> Share:
    """Jobs whose verdict has the class that it must have."""
    return wilson(sum(r.found_class == r.wanted_class for r in rows), sum(r.wanted_class is not None for r in rows))


def _quartiles(ratios: Sequence[float]) -> Quartiles | None:
    return Quartiles(len(ratios), *np.quantile(ratios, (0.1, 0.5, 0.9)).tolist()) if ratios else None


def _covered(rows: Sequence[Row]) -> Share:
    """How many intervals of what a larger job would lose hold what one of that size and law lost."""
    lost = {(*row.law, row.ranks): row.loss_share for row in rows if row.loss_share is not None}
    held = [
        bool(g.loss_share.lo <= lost[*row.law, g.ranks] <= g.loss_share.hi)
        for row in rows
        for g in row.growth
        if g.ranks > row.ranks and (*row.law, g.ranks) in lost and g.loss_share.lo is not None and g.loss_share.hi is not None
    ]
    return wilson(sum(held), len(held))


def grouped(rows: Sequence[Row]) -> tuple[Group, ...]:
    """Runs with a past and without, each by what was faulty and all together; then the healthy ones."""
    out = []
    for past in (True, False):
        some = [r for r in rows if r.fault not in (*HEALTHY, *ON_ALL) and r.from_start != past]
        kinds = [(place, [r for r in some if r.place == place]) for place in PLACES]
        out += [_group(past, place, here, "right") for place, here in kinds if here]
        out += [_group(past, "all", some, "right")] if some else []
    healthy = [r for r in rows if r.fault in HEALTHY and r.verdict != "failed"]
    return (*out, *([_group(None, "all", healthy, "false finding")] if healthy else []))


def _group(past: bool | None, place: Place | Literal["all"], rows: Sequence[Row], what: Verdict) -> Group:
    again = [r.baseline_verdict for r in rows if r.baseline_verdict is not None]
    alone = wilson(sum(r.verdict == what for r in rows), len(rows))
    return Group(past=past, place=place, alone=alone, with_baseline=wilson(sum(v == what for v in again), len(again)))


def _clock_covered(judged: Sequence[Row]) -> float | None:
    """Mean share of clock offsets that lie inside their intervals, of runs with a faulty link."""
    covered = [r.clock_covered for r in judged if r.clock_covered is not None and r.link_fault]
    return sum(covered) / len(covered) if covered else None


def _share_named(faulted: Sequence[Row]) -> Share:
    """Share of the faults on a device whose class of kernels was named."""
    return wilson(sum(r.class_named is True for r in faulted), sum(r.class_named is not None for r in faulted))


def wilson(count: int, of: int) -> Share:
    """A share with Wilson's 95 % interval."""
    from scipy.stats import binomtest

    if of == 0:
        return Share(count, of)
    interval = binomtest(count, of).proportion_ci(0.95, method="wilson")
    return Share(count, of, count / of, float(interval.low), float(interval.high))


def spread(values: Iterable[float | None]) -> Spread:
    """Median, 90 % quantile and largest of the values that are there."""
    known = [value for value in values if value is not None]
    return Spread(len(known), *np.quantile(known, (0.5, 0.9, 1.0)).tolist()) if known else Spread(0)
