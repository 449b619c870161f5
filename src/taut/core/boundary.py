"""Where an exception that nobody foresaw becomes a refusal of the one file or folder that caused it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from taut.core.errors import TautError


@contextmanager
def refusing_unexpected(refusal: Callable[[str], TautError]) -> Iterator[None]:
    """Turn an exception that nobody foresaw into a refusal of what was being read; ``TAUT_DEBUG`` lets it through."""
    try:
        yield
    except (TautError, MemoryError, OSError):  # what the system refuses is no fault of the file
        raise
    except Exception as error:
        if os.environ.get("TAUT_DEBUG"):
            raise
        raise refusal(f"{type(error).__name__}: {error}") from error
