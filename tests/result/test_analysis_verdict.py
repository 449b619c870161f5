"""What the verdict says, and what the time is bound by."""

from __future__ import annotations

from dataclasses import replace

from build import MS, Do, analyze, play
from taut.core.device_words import NO_DEVICE
from taut.core.tables import Kind, Trace


def copying() -> Trace:
    """A rank that copies for nine tenths of the time."""
    ops = [Do(0, "copy h2d", 9 * MS, step=step, kind=Kind.COMMUNICATE) for step in range(4)]
    return play([op for copy in ops for op in (copy, Do(0, "fwd", MS, step=copy.step))])


def test_a_job_that_copies_is_bound_by_copies() -> None:
    verdict = analyze(copying()).result.verdict
    assert verdict.bound == "copy"
    assert "exposed copies" in verdict.text


def test_without_the_device_nothing_is_bound_by_compute() -> None:
    """Operators that put work onto a device are no compute of it."""
    hosted = play([Do(0, "aten::mm", 5 * MS, step=step) for step in range(4)])
    assert analyze(hosted).result.verdict.bound == "compute"
    verdict = analyze(replace(hosted, counts={NO_DEVICE: 7})).result.verdict
    assert verdict.bound is None
    assert "the device's side is not recorded" in verdict.text
