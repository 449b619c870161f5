"""Files that appear when they are complete."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

_SCRATCH = re.compile(r"\.taut-([0-9a-f]{16})([0-9a-f]{8})(\.part|\+.*)?", re.DOTALL)


def scratch_name(suffix: str = "") -> str:
    """A name for something half-written that nobody can guess, and that ``is_scratch`` knows again."""
    token = os.urandom(8).hex()
    return f".taut-{token}{_check(token)}{suffix}"


def is_scratch(name: str) -> bool:
    """Whether ``scratch_name`` made this name: a folder of somebody else's that is called alike lacks the right end."""
    found = _SCRATCH.fullmatch(name)
    return found is not None and found[2] == _check(found[1])


def _check(token: str) -> str:
    return sha256(f"taut scratch {token}".encode()).hexdigest()[:8]


@contextmanager
def whole_file(path: str | Path) -> Iterator[BinaryIO]:
    """A file to write; it takes the place of ``path`` when the block ends, and is removed if the block raises.

    It is written beside ``path`` under a name that nobody can guess, so that no link planted there is followed; a link at
    ``path`` itself is replaced. A file that is replaced passes on who may read and write it. What is no file (a device, a
    pipe) is written to at once. Raises OSError.
    """
    target = Path(path)
    if target.exists() and not target.is_file():
        with target.open("wb") as out:
            yield out
        return
    scratch = target.with_name(scratch_name(".part"))
    try:
        # Not tempfile: its files are private, while here the umask decides.
        made = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        with os.fdopen(made, "wb") as out:
            if (mode := _mode(target)) is not None:
                os.fchmod(made, mode)
            yield out
        os.replace(scratch, target)
    finally:
        scratch.unlink(missing_ok=True)


def _mode(path: Path) -> int | None:
    """Who may read and write a file; None where there is none, or a link."""
    try:
        found = path.lstat().st_mode
    except FileNotFoundError:
        return None
    return stat.S_IMODE(found) if stat.S_ISREG(found) else None
