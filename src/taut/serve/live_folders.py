"""What collectors keep in the folders that are served: read once a second at most, however many ask."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from taut.result.types import LiveFinding
from taut.result.view_types import LiveView
from taut.serve.catalogue import Catalogue
from taut.serve.refusals import encoded
from taut.views.live import MOST_CLOSED, live_folder
from taut.watch.kept import closed_findings, finding_files, live_state

FRESH_S = 1.0
DAY_NS = 86_400_000_000_000
MOST_FILES = 25
"""Hours of a day, the one that has begun among them."""


class LiveFolders:
    """The collectors' folders of a catalogue."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue, self._lock = catalogue, threading.Lock()
        self._sent, self._at = b"", float("-inf")
        self._closed: dict[Path, tuple[object, list[LiveFinding]]] = {}

    def sent(self) -> bytes:
        """Jobs that run, as they are sent."""
        with self._lock:
            if time.monotonic() - self._at >= FRESH_S:
                self._sent, self._at = encoded(self._view()), time.monotonic()
            return self._sent

    def _view(self) -> LiveView:
        folders, runs, now_ns = self._catalogue.watched(), self._catalogue.runs().runs, time.time_ns()
        self._closed = {folder: self._closed_in(folder, now_ns - DAY_NS) for folder in folders}
        return LiveView(
            now_ns=now_ns,
            folders=[live_folder(folder, live_state(folder), self._closed[folder][1], runs, now_ns) for folder in folders],
        )

    def _closed_in(self, folder: Path, since_ns: int) -> tuple[object, list[LiveFinding]]:
        """What was closed since, one more than is told; read again only where a file has changed."""
        files = finding_files(folder, since_ns)[:MOST_FILES]
        stamps = [_stamp(path) for path in files]
        known = self._closed.get(folder)
        if known is None or known[0] != stamps:
            return stamps, list(islice(closed_findings(files, since_ns), MOST_CLOSED + 1))
        return stamps, _since(known[1], since_ns)


def _since(findings: Sequence[LiveFinding], since_ns: int) -> list[LiveFinding]:
    return [one for one in findings if one.at_ns >= since_ns]


def _stamp(path: Path) -> tuple[str, int, int]:
    try:
        found = os.lstat(path)
    except OSError:
        return path.name, 0, 0
    return path.name, found.st_mtime_ns, found.st_size
