"""A result as a card in a notebook: the verdict, the job, and what was found."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from taut.render.text import count, duration, percent, safe
from taut.result.types import AnalysisResult, DeviceRank

FINDINGS = 5
"""Findings shown at most."""
STYLE = "border:1px solid #888;border-radius:6px;padding:0.6em 1em;max-width:60em;font-family:sans-serif"


def card(result: AnalysisResult) -> str:
    """HTML of a few lines; every text from a trace is escaped."""
    return f'<div style="{STYLE}">{"".join(_lines(result))}</div>'


def _lines(result: AnalysisResult) -> Iterator[str]:
    job = result.job
    yield f"<b>{_text(result.verdict.text)}</b>"
    nominal, effective = result.verdict.nominal_share, result.verdict.effective_share
    if nominal is not None and effective is not None:
        yield f"<div>{100 * nominal:.0f} % utilised ({result.verdict.nominal_is}), {100 * effective:.0f} % productive</div>"
    words = [_text(job.name), *([count(job.ranks, "rank")] if job.ranks else [])]
    words += [f"wall {duration(job.wall_ns)}"] if job.wall_ns else []
    yield f'<div style="color:#666">{" · ".join(words)}</div>'
    if result.device is not None and result.device.mean is not None:
        yield f"<div>{_device(result.device.mean)}</div>"
    wall_ns = max(job.wall_ns or 0, 1)
    for finding in result.findings[:FINDINGS]:
        share = percent(finding.recoverable_wall_ns / wall_ns)
        yield f"<div>{_text(finding.mode)}: {share} of the wall recoverable. {_text(finding.because)}</div>"
    yield from (f'<div style="color:#a60">partial: {_text(line)}</div>' for line in job.partial[:FINDINGS])


def _device(mean: DeviceRank) -> str:
    """What the accelerators did, in a line."""
    words = [f"busy {percent(mean.busy_share)}", f"compute {percent(mean.compute_share)}"]
    words += [f"exposed communication {percent(mean.exposed_share)}"] if mean.communication_share else []
    words += [f"exposed copies {percent(mean.exposed_copy_share)}"] if mean.copy_share else []
    return f"device: {', '.join(words)}, idle {percent(mean.idle_share)}"


def _text(text: str) -> str:
    return escape(safe(text))
