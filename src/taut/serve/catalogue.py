"""The runs of the folders that are served. New ones appear by themselves; nothing outside these folders is named.

A scan looks at folders and at the times of their ``run.json``; only what changed is read again. A folder that a link leads out
of what was given is refused, and ids are digests: no address of the app holds a path.
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from taut.core.boundary import refusing_unexpected
from taut.core.errors import RunError, TautError
from taut.core.folder import RUN, file_unlike_manifest, is_run_folder
from taut.result.view_types import RunCard, RunList
from taut.serve.refusals import Refused, encoded
from taut.views.run_card import run_card, run_id, with_trends
from taut.watch.kept import LIVE

FRESH_S = 1.0
"""A scan is good for this long, however many ask."""
DEPTH = 3
"""Folders inside each other that are looked into."""
MOST_FOLDERS, MOST_RUNS = 20_000, 5_000
"""Folders of a scan, and runs in the list."""
MOST_WATCHED = 16
"""Folders of collectors."""
Stamp: TypeAlias = tuple[int, int, int]
"""When a run.json was written, its size and its number: another run in the same place has another."""


@dataclass(frozen=True)
class Place:
    """A run folder that is served."""

    id: str
    folder: Path
    """As commands take it."""
    stamp: Stamp
    root: Path
    """The folder that was given, without links: what lies outside of it is not read."""

    def now(self) -> Place:
        """The same as it is now; refused where it has gone, or leads elsewhere by now."""
        stamp, real = _stamp(self.folder), Path(os.path.realpath(self.folder))
        if stamp is None or run_id(self.folder) != self.id or not _inside(real, self.root):
            raise Refused(404, f"{self.folder}: is not there any more")
        return replace(self, stamp=stamp)


@dataclass
class _Scan:
    places: dict[str, Place] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    seen: set[tuple[int, int]] = field(default_factory=set)
    """Folders that were looked into: links may lead there again."""
    watched: list[tuple[Path, Path]] = field(default_factory=list)
    """Folders in which a collector keeps what it sees, each with the folder that was given."""

    def is_new(self, folder: Path) -> bool:
        """Whether a folder is there, and was not looked into."""
        try:
            found = os.stat(folder)
        except OSError:
            return False
        before = len(self.seen)
        self.seen.add((found.st_dev, found.st_ino))
        return len(self.seen) > before


class Catalogue:
    """The runs under some folders."""

    def __init__(self, roots: Sequence[str | Path], card: Callable[[Path], RunCard] = run_card) -> None:
        self._roots = [(Path(root), Path(os.path.realpath(root))) for root in roots]
        self._card, self._lock = card, threading.Lock()
        self._cards: dict[str, tuple[Stamp, RunCard | str]] = {}
        self._places: dict[str, Place] = {}
        self._watched: list[tuple[Path, Path]] = []
        self._list, self._encoded, self._at = RunList(version="", runs=[], refused=[]), b"", float("-inf")

    @property
    def fresh(self) -> bytes | None:
        """The list as it is sent, where the last scan is still good."""
        return self._encoded if time.monotonic() - self._at < FRESH_S else None

    def sent(self) -> bytes:
        """The list as it is sent."""
        self.runs()
        return self._encoded

    def runs(self) -> RunList:
        """All runs, the newest first."""
        with self._lock:
            if time.monotonic() - self._at >= FRESH_S:
                self._scan()
                self._at = time.monotonic()
            return self._list

    def place(self, name: str) -> Place:
        """The folder of an id; one that appeared just now too."""
        found = self._places.get(name)
        if found is None:
            self.runs()
            found = self._places.get(name)
        if found is None:
            raise Refused(404, "no such run: it is not in the folders that are served")
        return found.now()

    def card(self, name: str) -> RunCard:
        """The card of an id, with its trend."""
        found = next((card for card in self.runs().runs if card.id == name), None)
        if found is None:
            raise Refused(404, "no such run: it is not in the folders that are served")
        return found

    def watched(self) -> list[Path]:
        """The folders in which a collector keeps what it sees; none that leads elsewhere by now."""
        self.runs()
        return [folder for folder, root in self._watched if _inside(Path(os.path.realpath(folder)), root)]

    def _scan(self) -> None:
        scan = _Scan()
        for given, real in self._roots:
            _look(given, real, scan)
        known = {name: self._known(place) for name, place in scan.places.items()}
        cards = [card for _, card in known.values() if isinstance(card, RunCard)]
        refused = [*scan.refused, *(card for _, card in known.values() if isinstance(card, str))]
        version = _version(scan, refused)
        if version != self._list.version:
            self._list = RunList(version=version, runs=with_trends(cards), refused=refused, live=bool(scan.watched))
            self._encoded = encoded(self._list)
        self._cards, self._places, self._watched = known, scan.places, scan.watched

    def _known(self, place: Place) -> tuple[Stamp, RunCard | str]:
        """The card of a run, or why it has none; read again only where its run.json is another, or it had none.

        What was damaged may be mended by a file that is copied there again.
        """
        known = self._cards.get(place.id)
        if known is not None and known[0] == place.stamp and isinstance(known[1], RunCard):
            return known
        try:
            with refusing_unexpected(lambda why: RunError(f"{place.folder}: cannot be read ({why})")):
                return place.stamp, self._sound_card(place.folder)
        except (TautError, OSError) as error:
            return place.stamp, str(error)

    def _sound_card(self, folder: Path) -> RunCard:
        """The card of a run whose files are there, as long as they were written; opening it checks what they hold."""
        card, wrong = self._card(folder), file_unlike_manifest(folder)
        if wrong is not None:
            raise RunError(f"{folder}: damaged run folder ({wrong} is missing or has another size); make it again")
        return card


def _look(folder: Path, root: Path, scan: _Scan, depth: int = 0) -> None:
    """Add the runs at and below a folder."""
    if not scan.is_new(folder):
        return
    if len(scan.seen) > MOST_FOLDERS or len(scan.places) >= MOST_RUNS:
        said = f"{root}: more than {MOST_RUNS:,} runs or {MOST_FOLDERS:,} folders; serve a part of it"
        scan.refused += [] if said in scan.refused else [said]
        return
    stamp = _stamp(folder)
    if stamp is not None and is_run_folder(folder):
        name = run_id(folder)
        scan.places.setdefault(name, Place(name, folder, stamp, root))
        return
    if len(scan.watched) < MOST_WATCHED and _is_plain(folder / LIVE):
        scan.watched.append((folder, root))
    if depth < DEPTH:
        for below in _below(folder, root, scan):
            _look(below, root, scan, depth + 1)


def _below(folder: Path, root: Path, scan: _Scan) -> Iterator[Path]:
    """Folders in a folder; those that begin with a dot are half-written, or somebody else's."""
    try:
        with os.scandir(folder) as entries:
            found = sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda entry: entry.name)
    except OSError as error:
        if folder.exists():
            scan.refused.append(f"{folder}: cannot be read ({error.strerror})")
        return
    for entry in found:
        if not entry.is_symlink():
            if entry.is_dir():
                yield folder / entry.name
        elif os.path.isdir(entry.path):
            if _inside(Path(os.path.realpath(entry.path)), root):
                yield folder / entry.name
            else:
                scan.refused.append(f"{folder / entry.name}: a link that leads out of {root}; give its folder to taut serve")


def _inside(real: Path, root: Path) -> bool:
    return real == root or root in real.parents


def _is_plain(path: Path) -> bool:
    """Whether a file is there, and no link."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def _stamp(folder: Path) -> Stamp | None:
    """None where there is no run.json, or it is a link."""
    try:
        found = os.lstat(folder / RUN)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _version(scan: _Scan, refused: Sequence[str]) -> str:
    told = repr((sorted((name, place.stamp) for name, place in scan.places.items()), list(refused), bool(scan.watched)))
    return hashlib.sha256(told.encode("utf-8", "replace")).hexdigest()[:16]
