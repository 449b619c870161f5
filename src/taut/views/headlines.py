"""Findings in the words of a first screen: who, what, what a fix saves; and what is said where there is no finding.

Places, causes and remedies are worded elsewhere (``core/finding_place.py``, the ``because`` of the diagnosis, the remedies of a
briefing); here they become one short line each.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from decimal import Decimal

from msgspec.structs import replace

from taut.core.finding_place import fixes_of
from taut.core.rank_words import listed
from taut.core.reporting import spell
from taut.render.brief.remedies import kind_of, repair_first, what_to_do
from taut.replay.saving_interval import lab_error, replayed_saving
from taut.result.savings import REASSIGNED
from taut.result.types import AnalysisResult, ControlResult, Estimate, Finding, Money, VerdictClass
from taut.result.view_types import Headline, Severity

NAMED = 36
"""Characters of a class that a title shows."""
NAMED_RANKS = 3
"""Ranks of a set that a title names; the others are counted."""
OPEN = {
    ("unexplained", "unobserved"): "unexplained",
    ("communication undivided",): "communication that cannot be told from waiting",
}
"""Fates of which nobody knows what they are, and how that is said."""
OPEN_SHARE = 0.05
"""From this share on a job without a finding is said to be open."""
_TOOK = r"(?<![\d.,])([\d.,]+ (?:ns|µs|ms|s))"
_MORE = re.compile(rf"{_TOOK} (?:more|longer) a step|(?:take longer by|on average by) {_TOOK} a step")
_GREW = re.compile(rf"takes? (?:up to )?{_TOOK} a step.*?, {_TOOK} in the baseline")
_SHARE = re.compile(r"takes? (\d+ %) longer in (?:its|their) own work")
_UNITS = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}
MANY = 3
"""Classes that a finding names where an excess is spread over many: evidence lists no more."""
_LATE = re.compile(rf"is late in (\d+ of \d+ steps), by {_TOOK}")


def headlines(result: AnalysisResult, folder: str) -> list[Headline]:
    """One a finding, a repair before a policy that is not surely worth more; at least one, which says so without a finding."""
    found = [_of_finding(one, result, folder) for one in in_order(result)]
    fought = _fought(result, folder) if result.verdict.kind == "control" or not found else None
    every = [*([fought] if fought is not None else []), *found]
    return every or [_none(result)]


def in_order(result: AnalysisResult) -> list[Finding]:
    """The findings as a first screen lists them: as the verdict does, a hang before all else."""
    wall = max(result.job.wall_ns or 0, 1)
    rows, _ = repair_first(
        result.findings, lambda f: (kind_of(f), f.recoverable_share or Estimate(value=f.recoverable_wall_ns / wall))
    )
    return sorted(rows, key=lambda finding: finding.mode != "hang")


def stopped(result: AnalysisResult) -> list[int]:
    """Ranks that hang, and that the others wait for without an end."""
    return sorted({rank for finding in result.findings if finding.mode == "hang" for rank in finding.ranks})


def _of_finding(f: Finding, result: AnalysisResult, folder: str) -> Headline:
    fixes = fixes_of(f)
    asked = f"--policy {shlex.quote(f.policy.name)}" if f.policy is not None else _fix_words(fixes)
    return Headline(
        id=f.id,
        severity=_severity(f),
        title=title(f, result),
        saving=_saving(f, result),
        because=f.because,
        do=what_to_do(f),
        steps=list(f.steps),
        ranks=list(f.ranks),
        recoverable_share=_share(f, result),
        money=f.money,
        fix=fixes,
        policy=None if f.policy is None else f.policy.name,
        whatif=f"taut whatif {shlex.quote(folder)} {asked}" if asked else None,
        ticket=None if f.remedy is None else f.remedy.ticket,
    )


def _fix_words(fixes: Sequence[str]) -> str:
    return " ".join(f"--fix {shlex.quote(one)}" for one in fixes)


def _severity(f: Finding) -> Severity:
    return "structure" if f.mode in REASSIGNED or f.mode == "tail latency inflation" else "fault"


def _share(f: Finding, result: AnalysisResult) -> float | None:
    """Of the wall, what mending it saves; null where that was not replayed."""
    if f.mode == "hang" or not result.job.wall_ns:
        return None
    return min(f.recoverable_wall_ns / result.job.wall_ns, 1.0)


# ---------------------------------------------------------------------------------------------------------------------
# Titles


def title(f: Finding, result: AnalysisResult) -> str:
    """Who, and what: one line."""
    words = _TITLES.get(f.mode)
    said = words(f, result) if words is not None else f"{f.mode}{f': {who}' if (who := _who(f, result)) else ''}"
    return said[:1].upper() + said[1:]


def _who(f: Finding, result: AnalysisResult) -> str:
    """A set by what it has in common, ranks by their labels, stages; nothing where it has no place."""
    if f.where:
        return f"{f.where} ({_ranks(f.ranks)})"
    labels = {row.rank: row.label for row in result.ranks or ()}
    if len(f.ranks) == 1:
        return labels.get(f.ranks[0], f"rank {f.ranks[0]}")
    if f.ranks:
        return _ranks(f.ranks)
    return f"stage{'s' if len(f.stages) > 1 else ''} {', '.join(map(str, f.stages))}" if f.stages else ""


def _ranks(ranks: Sequence[int]) -> str:
    """``rank 3``, ``ranks 8–15``, ``ranks 1, 5, 9 and 4 more``."""
    if len(ranks) > 2 and list(ranks) == list(range(ranks[0], ranks[-1] + 1)):
        return f"ranks {ranks[0]}–{ranks[-1]}"
    more = f" and {len(ranks) - NAMED_RANKS} more" if len(ranks) > NAMED_RANKS + 1 else ""
    named = ranks[:NAMED_RANKS] if more else ranks
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, named))}{more}"


def _many(f: Finding) -> bool:
    return len(f.ranks) > 1 and not f.where


def short_class(name: str) -> str:
    """A class as a title names it: without the words that frameworks put before it, and cut where it is long."""
    plain = name.removeprefix("gap before ").rpartition(": ")[2]
    bare = re.split(r"(?<=\w)<", plain)[0]  # a kernel without its template's arguments
    last = re.split(r"::|(?<=[A-Za-z_])\.(?=[A-Za-z_])", bare)[-1].strip() or plain
    return last if len(last) <= NAMED else f"{last[: NAMED - 1]}…"


def _spread(f: Finding, result: AnalysisResult) -> str:
    """``: +16.9 ms a step, over many classes`` of a rank that comes much later than the class with most of it explains."""
    more, late = _MORE.search(f.because), {row.rank: row.late_ns for row in result.ranks or ()}
    if more is None or len(f.ranks) != 1 or f.links or len(f.classes) < MANY:
        return ""
    told, behind = _nanoseconds(next(filter(None, more.groups()))), late.get(f.ranks[0]) or 0.0
    # A rank may also come late because it waits elsewhere: mending it must bring about as much.
    mended = f.recoverable_wall_ns / (f.steps[-1] - f.steps[0] + 1)
    if behind < 2 * told or mended < behind / 2:
        return ""
    return f": +{spell(behind)} a step, over many classes"


def _nanoseconds(words: str) -> float:
    """``216 µs`` as a number."""
    number, _, unit = words.partition(" ")
    return float(number.replace(",", "")) * _UNITS[unit]


def _extra(f: Finding, result: AnalysisResult) -> str:
    """``: Sleepy +42 ms a step``, as far as the evidence tells it."""
    what = short_class(f.classes[0]) if f.classes else ""
    if spread := _spread(f, result):
        return spread
    if more := _MORE.search(f.because):
        return f": {f'{what} ' if what else ''}+{next(filter(None, more.groups()))} a step"
    if grew := _GREW.search(f.because):
        return f": {f'{what} ' if what else ''}{grew[1]} a step, {grew[2]} in the baseline"
    if share := _SHARE.search(f.because):
        return f": {share[1]} longer{f', most of it in {what}' if what else ''}"
    if late := _LATE.search(f.because):
        return f": late in {late[1]}, by {late[2]}"
    return f": {what}" if what else ""


def _since(f: Finding, result: AnalysisResult) -> str:
    """From which step on, where not from the first."""
    first = result.job.first_step
    return f" from step {f.steps[0]} on" if first is not None and f.steps[0] > first else ""


def _straggler(f: Finding, result: AnalysisResult) -> str:
    if f.links:
        shared = f", all at {_who(f, result)}" if f.ranks else ""
        many = len(f.links) > 1
        told = _MORE.search(f.because) or _GREW.search(f.because)
        cost = _extra(replace(f, classes=["transfers"]), result) if told else ""
        return f"link{'s' if many else ''} {listed(f.links)} {'are' if many else 'is'} slow{shared}{cost}"
    return f"{_who(f, result) or 'the job'} {'are' if _many(f) else 'is'} slow{_extra(f, result)}"


def _degraded(f: Finding, result: AnalysisResult) -> str:
    return f"{_who(f, result) or 'the whole job'} became slower{_extra(f, result)}{_since(f, result)}"


def _nobody(f: Finding, result: AnalysisResult) -> str:
    loss = f.loss_share
    cost = "" if loss is None else f" costs {100 * loss.value:.0f} % of the time"
    return f"nobody in particular: waiting for whoever is late{cost}"


def _hang(f: Finding, result: AnalysisResult) -> str:
    if not f.ranks:
        return "the job hangs: who stopped is not told"
    return f"{_who(f, result)} stopped: the job hangs{f' in {short_class(f.classes[0])}' if f.classes else ''}"


def _input(f: Finding, result: AnalysisResult) -> str:
    return f"{_who(f, result) or 'the job'} {'wait' if _many(f) else 'waits'} for input{_extra(f, result)}"


def _checkpoint(f: Finding, result: AnalysisResult) -> str:
    each = re.search(rf"in (\d+ of \d+ steps), {_TOOK} each", f.because)
    cost = f": {each[2]} each, in {each[1]}" if each else _extra(f, result)
    return f"{_who(f, result) or 'the job'} {'hold' if _many(f) else 'holds'} the others up with checkpoints{cost}"


def _contention(f: Finding, result: AnalysisResult) -> str:
    times = re.search(r"take ([\d.]+) times as long", f.because)
    what = short_class(f.classes[0]) if f.classes else "they"
    return f"transfers get in each other's way{f': {what} takes {times[1]} times as long' if times else ''}"


def _energy(f: Finding, result: AnalysisResult) -> str:
    watts = re.search(r"between (\d+) and (\d+) W", f.because)
    swing = f" between {watts[1]} and {watts[2]} W" if watts else ""
    return f"{_who(f, result) or 'the job'} {'throttle' if _many(f) else 'throttles'} in a loop: power swings{swing}"


def _tail(f: Finding, result: AnalysisResult) -> str:
    times = re.search(r"has a tail of ([\d.]+) times its median", f.because)
    what = short_class(f.classes[0]) if f.classes else "a fan-out"
    return f"{what} waits for its slowest call{f': a tail of {times[1]} times the median' if times else ''}"


def _imbalance(f: Finding, result: AnalysisResult) -> str:
    if not f.stages:
        return "micro-batches are unequal work: whoever has the longest is waited for"
    times = re.search(r"computes ([\d.]+) times", f.because)
    return f"{_who(f, result)} has too much work{f': {times[1]} times the mean of the stages' if times else ''}"


def _repeats(f: Finding, result: AnalysisResult) -> str:
    took = re.search(rf"a step takes {_TOOK} to {_TOOK} in (\d+) runs", f.because)
    much = f": {took[1]} to {took[2]} a step in {took[3]} runs" if took else ""
    return f"the same job takes unlike times when it is repeated{much}"


def _unsynchronised(f: Finding, result: AnalysisResult) -> str:
    apart = re.search(rf"up to {_TOOK} apart", f.because)
    much = f": up to {apart[1]} apart" if apart else ""
    return f"{_who(f, result) or 'some ranks'} {'no longer meet' if _many(f) else 'no longer meets'} the others{much}"


_TITLES: dict[str, Callable[[Finding, AnalysisResult], str]] = {
    "straggler cascade": _straggler,
    "silent degradation": _degraded,
    "structural instability": _nobody,
    "hang": _hang,
    "input stall": _input,
    "checkpoint stall": _checkpoint,
    "fabric contention": _contention,
    "energy feedback loop": _energy,
    "tail latency inflation": _tail,
    "work imbalance": _imbalance,
    "non-determinism": _repeats,
    "partial synchronisation loss": _unsynchronised,
}


# ---------------------------------------------------------------------------------------------------------------------
# What it saves


def _saving(f: Finding, result: AnalysisResult) -> str:
    """``A fix saves 28.9 % ≈ 185 EUR/h (4,400 a day), likely 24–46 %``; empty where nothing is saved."""
    if f.mode == "hang":
        return "Nothing more is done until it is mended"
    share = _share(f, result)
    if share is None or share <= 0:
        return ""
    what = f"Policy {f.policy.name}" if f.policy is not None else "A fix"
    return f"{what} saves {100 * share:.1f} %{_priced(f.money)}{_likely(f)}"


def _likely(f: Finding) -> str:
    """The interval of its steps and of the lab's errors, as a briefing has it."""
    share, error = f.recoverable_share, lab_error(f)
    if share is not None and error is not None:
        share = replayed_saving(share, error)
    if share is None or share.lo is None or share.hi is None:
        return ""
    lo, hi = max(100 * share.lo, 0), 100 * share.hi
    told = next((pair for digits in (0, 1) if len(set(pair := (f"{lo:.{digits}f}", f"{hi:.{digits}f}"))) > 1), None)
    return "" if told is None else f", likely {told[0]}–{told[1]} %"


def _priced(money: Money | None) -> str:
    if money is None:
        return ""
    return f" ≈ {about(money.per_hour, 3)} {money.currency}/h ({about(money.per_day, 2)} a day)"


def about(amount: str, digits: int) -> str:
    """An amount with so many significant digits."""
    value = Decimal(amount)
    if not value:
        return "0"
    place = value.adjusted() - digits + 1
    rounded = round(value, -place)
    return f"{rounded:,.{max(-place, 0)}f}"


# ---------------------------------------------------------------------------------------------------------------------
# Without a finding


def _fought(result: AnalysisResult, folder: str) -> Headline | None:
    """Controllers that work against each other, where that is what the verdict is about."""
    control = result.control
    if control is None or not control.relations or result.verdict.kind != "control":
        return None
    worst = max(control.relations, key=lambda one: -1 if one.zone is None else one.zone.rank_ns)
    number, zone = control.relations.index(worst) + 1, worst.zone
    where = f" on {_ranks(zone.ranks)}" if zone is not None and zone.ranks else ""
    return Headline(
        id=None,
        severity="control",
        title=f"Controllers work against each other: {worst.kind} of {' and '.join(worst.controllers) or 'controllers'}{where}",
        saving=_overhead(result),
        because=worst.because,
        do=_separated(control),
        steps=[] if zone is None or zone.steps is None else list(zone.steps),
        ranks=[] if zone is None else list(zone.ranks),
        recoverable_share=None,
        money=None,
        fix=[],
        policy=None,
        whatif=f"taut export {shlex.quote(folder)} --to perfetto --zone {number}",
        ticket=None,
    )


def _overhead(result: AnalysisResult) -> str:
    share = sum(_fate_share(result, fate) for fate in ("control overhead", "discarded"))
    return f"It takes {100 * share:.1f} % of the rank time" if share > 0 else ""


def _separated(control: ControlResult) -> str:
    said = (one.advice.says for one in control.relations if one.advice is not None and one.advice.says)
    return next(said, "give each knob one owner, or let them act at different times") or ""


def _fate_share(result: AnalysisResult, fate: str) -> float:
    ledger = result.ledger
    if ledger is None or not ledger.total_rank_ns:
        return 0.0
    return sum(one.rank_ns for one in ledger.entries if one.fate == fate) / ledger.total_rank_ns


def _none(result: AnalysisResult) -> Headline:
    severity, said, because = _quiet(result)
    job = result.job
    known = job.first_step is not None and job.last_step is not None
    return Headline(
        id=None,
        severity=severity,
        title=said,
        saving="",
        because=because,
        do="",
        steps=[job.first_step or 0, job.last_step or 0] if known else [],
        ranks=[],
        recoverable_share=None,
        money=None,
        fix=[],
        policy=None,
        whatif=None,
        ticket=None,
    )


def _quiet(result: AnalysisResult) -> tuple[Severity, str, str]:
    """(severity, title, why) of a result without a finding."""
    verdict = result.verdict
    first, rest = _sentence(verdict.text)
    if result.ledger is None:  # of job logs alone
        return "unknown", first, rest
    if verdict.kind == "healthy":
        return "healthy", f"Nothing to fix: {100 * _fate_share(result, 'productive'):.0f} % productive", verdict.text
    if verdict.kind == "unknown" and (said := _open(result)):
        return "unknown", said, rest if first.startswith("Unknown: ") else verdict.text
    if verdict.kind == "unknown":  # its first sentence is long: a title is as far as its first stop
        first, _, more = first.partition("; ")
        rest = " ".join(filter(None, (f"{more[:1].upper()}{more[1:]}." if more else "", rest)))
    return _SEVERITIES[verdict.kind], first, rest


def _open(result: AnalysisResult) -> str:
    """What is not known, and why; empty where little is, or where gaps are more: then the verdict leads as in the terminal."""
    shares = {words: sum(_fate_share(result, fate) for fate in some) for some, words in OPEN.items()}
    large = {words: share for words, share in shares.items() if share >= OPEN_SHARE}
    first, rest = _sentence(result.verdict.text)
    if not large:
        return ""
    named = " and ".join(f"{100 * share:.0f} % is {words}" for words, share in large.items())
    if first.startswith("Unknown: "):
        return f"No finding, but {named}: {first.removeprefix('Unknown: ')}"
    if _fate_share(result, "gap") > sum(shares.values()):
        return ""
    # What keeps it open follows the shares.
    why = rest.partition(". ")[0] or first.partition(": ")[2] or first
    return f"No finding, but {named}: {why.rstrip('.')}"


_SEVERITIES: dict[VerdictClass, Severity] = {
    "healthy": "healthy", "component": "fault", "structural": "structure", "control": "control", "unknown": "unknown",
}  # fmt: skip


def _sentence(text: str) -> tuple[str, str]:
    """(the first sentence without its stop, what follows)."""
    first, _, rest = text.partition(". ")
    return first.rstrip("."), rest
