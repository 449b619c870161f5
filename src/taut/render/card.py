"""A result as a card in a notebook: the verdict, the job, what was found, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator

from taut.render.brief.written import share
from taut.render.card_parts import framed, line
from taut.render.text import count, duration, money, percent
from taut.result.types import AnalysisResult, DeviceRank, Finding

FINDINGS = 5
"""Findings shown at most."""


def card(result: AnalysisResult, folder: str | None = None) -> str:
    """HTML of a few lines; every text from a trace is escaped. ``folder`` is where the run is kept."""
    return framed(result.verdict.text, _lines(result, folder))


def _lines(result: AnalysisResult, folder: str | None) -> Iterator[str]:
    job, verdict = result.job, result.verdict
    if verdict.nominal_share is not None and verdict.effective_share is not None:
        nominal, effective = 100 * verdict.nominal_share, 100 * verdict.effective_share
        yield line(f"{nominal:.0f} % utilised ({verdict.nominal_is}), {effective:.0f} % productive")
    words = [job.name, *([count(job.ranks, "rank")] if job.ranks else [])]
    words += [f"wall {duration(job.wall_ns)}"] if job.wall_ns else []
    yield line(" · ".join([*words, *_stands(result), *([folder] if folder else [])]), "muted")
    if result.device is not None and result.device.mean is not None:
        yield line(_device(result.device.mean))
    for one in result.findings[:FINDINGS]:
        yield line(_finding(one, max(job.wall_ns or 0, 1)), "wrong")
        yield from (line(f"next: {words}", "do") for words in _do(one))
    yield from (line(f"partial: {words}", "wrong") for words in job.partial[:FINDINGS])


def _stands(result: AnalysisResult) -> list[str]:
    """The regime, and the index that matters most."""
    ratio = result.indices.effective_throughput_ratio if result.indices else None
    kind = result.regime.kind if result.regime else None
    return [*([kind] if kind else []), *([f"throughput {share(ratio)} of the ideal"] if ratio else [])]


def _finding(one: Finding, wall_ns: int) -> str:
    """A finding: what it costs, and why it is believed."""
    back = share(one.recoverable_share) if one.recoverable_share else percent(one.recoverable_wall_ns / wall_ns)
    cost = f", {money(one.money.per_day, one.money.currency)} a day" if one.money else ""
    return f"{one.mode}: {back} of the wall recoverable{cost}, because {one.because}"


def _do(one: Finding) -> list[str]:
    """What to do about a finding; nothing where nothing is known to help."""
    if one.remedy is not None:
        return [one.remedy.do]
    return [f"try {one.policy.name} (taut whatif RUN --policy {one.policy.name})"] if one.policy else []


def _device(mean: DeviceRank) -> str:
    """What the accelerators did, in a line."""
    words = [f"busy {percent(mean.busy_share)}", f"compute {percent(mean.compute_share)}"]
    words += [f"exposed communication {percent(mean.exposed_share)}"] if mean.communication_share else []
    words += [f"exposed copies {percent(mean.exposed_copy_share)}"] if mean.copy_share else []
    return f"device: {', '.join(words)}, idle {percent(mean.idle_share)}"
