"""Makes a case smaller while it still shows the same finding."""

from __future__ import annotations

import shutil
import time

from fuzzing.judge import Case, Finding, Judge, judged
from fuzzing.workers import scratch_folder

SECONDS = 3.0
"""How long to try."""


def smaller(judge: Judge, case: Case, finding: Finding) -> Case:
    """The smallest case that was found within a few seconds."""
    root, until = scratch_folder(), time.monotonic() + SECONDS

    def same(files: dict[str, bytes]) -> bool:
        try:
            _, found = judged(judge, Case(files, case.args, case.number), root)
        except Exception:
            return False
        return found is not None and (found.kind, found.site) == (finding.kind, finding.site)

    try:
        files = dict(case.files)
        for name in list(files):
            without = {other: data for other, data in files.items() if other != name}
            if without and time.monotonic() < until and same(without):
                files = without
        for name in files:
            for separator in (b"\n", b",", b""):
                files = _shrunk(files, name, separator, same, until)
        return Case(files, case.args, case.number)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _shrunk(files: dict[str, bytes], name: str, separator: bytes, same: object, until: float) -> dict[str, bytes]:
    """The files with parts of one of them left out: halves, then quarters, and so on."""
    assert callable(same)
    pieces = files[name].split(separator) if separator else [bytes([b]) for b in files[name]]
    step = max(len(pieces) // 2, 1)
    while step >= 1 and len(pieces) > 1:
        at = 0
        while at < len(pieces):
            if time.monotonic() > until:
                return files
            less = pieces[:at] + pieces[at + step :]
            tried = {**files, name: separator.join(less)}
            if less and same(tried):
                pieces, files = less, tried
            else:
                at += step
        step //= 2
    return files
