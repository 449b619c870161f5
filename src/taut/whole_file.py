"""Files that appear when they are complete."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: str | Path) -> Iterator[BinaryIO]:
    """A file to write; it takes the place of ``path`` when the block ends, and is removed if the block raises.

    It is written beside ``path`` under a name that nobody can guess, so that no link planted there is followed; a link at
    ``path`` itself is replaced. What is no file (a device, a pipe) is written to at once. Raises OSError.
    """
    target = Path(path)
    if target.exists() and not target.is_file():
        with target.open("wb") as out:
            yield out
        return
    scratch = target.with_name(f".{os.urandom(8).hex()}.part")
    try:
        # Not tempfile: its files are private, while here the umask decides.
        made = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        with os.fdopen(made, "wb") as out:
            yield out
        os.replace(scratch, target)
    finally:
        scratch.unlink(missing_ok=True)
