"""Files at an address (``s3://``, ``gs://``, ``abfs://``, ``https://`` …), read where they lie through fsspec.

Only what is asked for travels, in blocks; nothing is copied to disk. What fails for a moment is asked again from where it
stopped; what has vanished is a file that cannot be read, and so a missing rank.
"""

from __future__ import annotations

import io
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol

from taut.core.errors import InputRefused, NotATrace, TooLarge

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from fsspec import AbstractFileSystem

BLOCK_BYTES = 8 << 20
"""Bytes that are asked for at once."""
ATTEMPTS, FIRST_PAUSE_S = 5, 0.2
"""How often a block is asked for, and the first pause between; each is twice as long as the one before."""
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://", re.ASCII)
_SIGNED = re.compile(r"[a-z][a-z0-9+.-]{0,20}://[^\s'\"]{1,4096}", re.ASCII)
_WILD = re.compile(r"[*?\[]")
_GONE = (FileNotFoundError, PermissionError, IsADirectoryError)
"""What asking again does not change."""

TAGS = ("ETag", "etag", "md5", "md5Hash", "content_md5", "mtime", "LastModified", "last_modified", "updated", "created")
"""Keys under which stores tell what changes with a file."""
_sizes: dict[str, int] = {}
"""Bytes of files that were listed: asking for each of 10,000 would take longer than to list them all."""
_tags: dict[str, str] = {}
"""What tells these files from others of the same name."""


class _Opened(Protocol):
    def read(self, length: int) -> bytes: ...

    def seek(self, at: int) -> int: ...

    def close(self) -> None: ...


def is_address(path: str) -> bool:
    """Whether it names a file elsewhere, and not a path."""
    return _ADDRESS.match(path) is not None


def shown(address: str) -> str:
    """An address without what proves who may read there, for records and messages; what is no address stays as it is."""
    if not is_address(address):
        return address
    scheme, _, rest = address.partition("://")
    host, slash, path = rest.split("?")[0].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def job_name(address: str) -> str:
    """The last part of an address that is a name: a pattern is none."""
    parts = [part for part in shown(address).partition("://")[2].split("/") if part and not _WILD.search(part)]
    return parts[-1] if parts else "job"


def expand(address: str, most: int) -> list[str]:
    """The files that an address, a folder or a pattern there stands for."""
    with _refusing(address):
        system, path = _system(address)
        if _WILD.search(path) and not address.startswith("http"):
            found = system.glob(path, detail=True)
        elif address.startswith("http") or not system.isdir(path):
            return [address]  # a page is no folder; what is not there is said when it is read
        else:
            found = system.find(path, detail=True)
        files = {name: about for name, about in found.items() if about.get("type") == "file" and not _is_hidden(name, path)}
        if not files:
            raise NotATrace(shown(address), "no files there", "name a folder, or a pattern, with one trace per rank")
        if len(files) > most:
            raise TooLarge(shown(address), f"more than {most:,} files", "name fewer by a pattern")
        whole = {str(system.unstrip_protocol(name)): about for name, about in files.items()}
    _sizes.update({name: int(about.get("size") or 0) for name, about in whole.items()})
    _tags.update({name: tag for name, about in whole.items() if (tag := _tag(about))})
    return list(whole)


def size_of(address: str) -> int:
    """Bytes of a file that was listed; 0 where nothing tells."""
    return _sizes.get(address, 0)


def tag_of(address: str) -> str | None:
    """What changes when a file does, as its store tells it; None where it tells nothing."""
    if address not in _tags:
        with suppress(Exception):  # whoever reads it says what is wrong
            system, path = _system(address)
            _tags[address] = _tag(system.info(path))
    return _tags.get(address) or None


def _tag(about: Mapping[str, object]) -> str:
    told = [f"{key} {about[key]}" for key in TAGS if about.get(key) is not None]
    return ", ".join([f"size {about.get('size')}", *told]) if told else ""


def fetcher(address: str, most_bytes: int) -> Callable[[], bytes | None] | None:
    """What asks once for all of a small file, in whatever thread; None where its library is not made for that.

    It gives None for what fails, or is larger than it was.
    """
    with suppress(Exception):  # whoever reads it says what is wrong
        system, path = _system(address)  # here, because each thread would have a connection, and a set-up, of its own
        if system.async_impl:
            return partial(_fetched, system, path, most_bytes)
    return None


def _fetched(system: AbstractFileSystem, path: str, most_bytes: int) -> bytes | None:
    with suppress(Exception):
        data: bytes = system.cat_file(path, start=0, end=most_bytes + 1)
        return data if len(data) <= most_bytes else None
    return None


def opened(address: str) -> io.RawIOBase:
    """A file to read from its beginning."""
    with _refusing(address):
        return _Remote(address)


def _is_hidden(name: str, folder: str) -> bool:
    return any(part.startswith(".") for part in name.removeprefix(folder).split("/"))


def _system(address: str) -> tuple[AbstractFileSystem, str]:
    """What reads the address, and what it calls the file."""
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise InputRefused(shown(address), "reading addresses needs fsspec", "pip install 'taut[remote]'") from None
    system, path = url_to_fs(address)
    return system, str(path)


class _Remote(io.RawIOBase):
    """A file elsewhere, from its beginning to its end; blocks that fail are asked for again."""

    def __init__(self, address: str) -> None:
        self._address, self._at = address, 0
        self._file: _Opened | None = self._open()

    def _open(self) -> _Opened:
        system, path = _system(self._address)
        # Told sizes are of the listing: whoever replaced the file since must not be cut off.
        system.invalidate_cache(path)
        file: _Opened = system.open(path, "rb", block_size=BLOCK_BYTES, cache_type="readahead")
        if self._at:
            file.seek(self._at)
        return file

    def readable(self) -> bool:
        """Always: there is no other use for it."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read a block."""
        view = memoryview(buffer).cast("B")
        data = self._read(min(len(view), BLOCK_BYTES))
        view[: len(data)] = data
        self._at += len(data)
        return len(data)

    def _read(self, length: int) -> bytes:
        pause_s = FIRST_PAUSE_S
        for attempt in range(1, ATTEMPTS + 1):
            try:
                if self._file is None:
                    self._file = self._open()
                return self._file.read(length)
            except _GONE as error:
                raise OSError(error.errno or 0, _first_line(error)) from None
            except Exception as error:  # every library of a store has failures of its own
                if attempt == ATTEMPTS:
                    raise OSError(0, f"{_first_line(error)}, asked {ATTEMPTS} times") from None
            self._file = None
            time.sleep(pause_s)
            pause_s *= 2
        raise AssertionError("unreachable")

    def close(self) -> None:
        """Give the connection back."""
        if self._file is not None:
            self._file.close()
            self._file = None
        super().close()


@contextmanager
def _refusing(address: str) -> Iterator[None]:
    """What goes wrong at an address, in one line."""
    label = shown(address)
    try:
        yield
    except InputRefused:
        raise
    except ImportError as error:
        raise InputRefused(label, f"cannot be read: {_first_line(error)}", "install what it names with pip") from None
    except FileNotFoundError:
        raise InputRefused(label, "no such file or folder", "check the address") from None
    except Exception as error:
        raise InputRefused(
            label, f"cannot be read: {_first_line(error)}", "check the address, and who may read there"
        ) from None


def _first_line(error: Exception) -> str:
    """The first line of what a library says."""
    text = _SIGNED.sub(lambda found: shown(found[0]), " ".join(str(error).split())) or type(error).__name__
    return text if len(text) <= 160 else f"{text[:160]}…"
