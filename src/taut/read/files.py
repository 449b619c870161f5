"""User inputs → members: one readable file each, out of paths, folders, addresses, gzip, tar and standard input.

Nothing is ever extracted to disk, and every cap is checked while bytes flow, so a bomb costs its first megabytes.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import sys
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol, cast

from msgspec import Struct

from taut.core.errors import InputRefused, NotATrace, TooLarge
from taut.core.folder import is_run_folder
from taut.read import remote, windows_text
from taut.read.inflate import Damaged, inflater

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

HEAD_BYTES = 64 << 10
CHUNK_BYTES = 1 << 20
SAMPLES, SAMPLE_BYTES = 64, 16 << 10
RATIO = 200
RATIO_FREE_BYTES = 64 << 20
SIZE_BYTES = 8 << 30
MEMBERS = 100_000
TAR_HEADER_BYTES = 1 << 20

_DIGITS = re.compile(rb"\d{32}")
# Where files are not what they seem: reading one may wait for ever.
UNREAL = ("/proc/", "/sys/", "/dev/")

STDIN = "-"
# The answer key of a lab run. A reader that opened it could cheat.
TRUTH = "truth.json"


def size_cap() -> int:
    """The most bytes one member may inflate to: 8 GiB, or half of the memory that is free."""
    try:
        text = Path("/proc/meminfo").read_text()
        free = int(text.split("MemAvailable:")[1].split()[0]) << 10
    except (OSError, IndexError, ValueError):
        free = SIZE_BYTES * 2
    return min(SIZE_BYTES, free // 2)


class Member(Struct):
    """One file inside the input: its label in messages, its base name, its first bytes; read it before the next one."""

    label: str
    head: bytes
    stream: io.BufferedReader
    path: str | None = None
    """Where it lies on disk as it is, neither compressed nor inside an archive."""
    size: int = 0
    """How many bytes it claims to have; 0 where nothing tells."""

    @property
    def name(self) -> str:
        """The base name, without the compression suffix."""
        return re.split(r"[/\\:]", self.label)[-1].removesuffix(".gz")

    def front(self, most: int) -> memoryview:
        """Its first bytes, up to so many, for a reader that holds them; ``chunks`` has the rest.

        They are read into memory of numpy's, which asks the system for large pages: to touch every small page of a growing
        buffer takes as long as to inflate what is put there.
        """
        stream = self.stream
        if len(self.head) < HEAD_BYTES - len(windows_text.BOM) or not isinstance(stream, io.BufferedIOBase):
            return memoryview(b"".join(self.chunks()))
        import numpy as np  # what lists and names files starts without it

        # One byte more than it claims, so that a full room shows a wrong claim.
        room, size = np.empty(min(self.size + 1, most) if self.size else most, dtype=np.uint8), 0
        # What is inflated for a short file fits into memory that is there already.
        step = min(max(len(room) >> 3, HEAD_BYTES), CHUNK_BYTES)
        while found := stream.readinto(room.data[size : size + step]):
            size += found
            self._check(size)
            if size == len(room) < most:
                filled, room = room, np.empty(most, dtype=np.uint8)
                room[:size] = filled
        return room.data[:size]

    def chunks(self, step: int = CHUNK_BYTES, already: int = 0) -> Iterator[bytes]:
        """Its bytes as they come, for a reader that does not hold them, after those that were read ``already``."""
        size = already
        while chunk := self.stream.read(step):
            size += len(chunk)
            self._check(size)
            yield chunk

    def _check(self, size: int) -> None:
        if size > SIZE_BYTES:
            raise TooLarge(self.label, f"more than {SIZE_BYTES >> 20:,} MiB when read", "profile fewer steps")

    def samples(self) -> list[bytes]:
        """Some bytes from all over it, where it is a file that can be read anywhere; else none."""
        try:
            descriptor = self.stream.fileno()
            size = os.fstat(descriptor).st_size
            return [os.pread(descriptor, SAMPLE_BYTES, at) for at in range(0, size, max(size // SAMPLES, SAMPLE_BYTES))]
        except (OSError, AttributeError):  # compressed, inside an archive, or a pipe
            return []

    def read(self, share: float = 1.0) -> bytes:
        """All of its bytes, if they are no more than a share of what may be read."""
        cap = int(share * size_cap())
        step = CHUNK_BYTES if self.path is None else min(max(size_of(self.path), CHUNK_BYTES), cap) + 1
        data: bytes | bytearray = b""
        for chunk in self.chunks(step):
            if len(data) + len(chunk) > cap:
                raise TooLarge(self.label, f"more than {cap >> 20:,} MiB when read", "profile fewer steps")
            if not data:
                data = chunk  # of a plain file that is all
            else:
                data = data if isinstance(data, bytearray) else bytearray(data)
                data += chunk
        # Readers only look at bytes; a copy to the very type would double the memory.
        return cast(bytes, data)


# One input, or several: files, folders, archives, ``-`` for standard input.
Paths = str | Path | Sequence[str | Path]


def listed(paths: Paths) -> list[str | Path]:
    """One path or several as a list."""
    return [paths] if isinstance(paths, str | Path) else list(paths)


def expand(paths: Sequence[str | Path]) -> list[str]:
    """The files that paths and folders stand for, in a stable order; ``-`` stays as it is."""
    files: list[str] = []
    for path in map(str, paths):
        if remote.is_address(path):
            files += sorted(remote.expand(path, MEMBERS), key=natural)
        elif path == STDIN or not os.path.isdir(path):
            if path != STDIN and not os.path.exists(path):
                raise InputRefused(path, "no such file or folder", "check the path")
            files.append(path)
        else:
            if is_run_folder(path):
                raise InputRefused(
                    path, "is a run folder, the result of an analysis", "use taut whatif, compare or export on it"
                )
            found = _walk(path)
            if not found:
                raise NotATrace(path, "an empty folder", "name a folder with one trace per rank")
            files += found
    if len(files) > MEMBERS:
        raise TooLarge(paths[0], f"more than {MEMBERS:,} files", "name the trace files themselves")
    return [file for file in files if os.path.basename(file) != TRUTH]


def _walk(folder: str) -> list[str]:
    found: list[str] = []
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(n for n in folders if not n.startswith(".") and not is_run_folder(os.path.join(root, n)))
        found += [os.path.join(root, name) for name in names if not name.startswith(".")]
        if len(found) > MEMBERS:
            break
    anchors = {name.removesuffix(".otf2") for name in found if name.endswith(".otf2")}
    # The files of an OTF2 archive are read through its anchor.
    apart = (name for name in found if name.removesuffix(".def") not in anchors and os.path.dirname(name) not in anchors)
    return sorted(filter(_is_real, apart), key=natural)


def _is_real(path: str) -> bool:
    """Whether a file of a folder is a plain one, on a disk."""
    return os.path.isfile(path) and not (os.path.islink(path) and os.path.realpath(path).startswith(UNREAL))


def natural(text: str) -> list[tuple[int, str]]:
    """Sorts ``rank2`` before ``rank10``."""
    return [(int(part[:18]), part) if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", text)]


def as_text(path: str) -> str:
    """A path that can be written as UTF-8: a name of other bytes, which no table and no JSON holds, has ``?`` for them."""
    return remote.shown(path).encode("utf-8", "replace").decode()


def size_of(path: str) -> int:
    """Bytes on disk, or where it lies; 0 where nothing tells."""
    if remote.is_address(path):
        return remote.size_of(path)
    try:
        return 0 if path == STDIN else os.path.getsize(path)
    except OSError:
        return 0


class Source:
    """One input: its members, and afterwards the hash of its bytes, taken while they were read."""

    def __init__(self, path: str, label: str = "", data: bytes | None = None) -> None:
        self._data = data
        self.path, self.label = path, "standard input" if path == STDIN else as_text(label or path)
        self._hash = hashlib.sha256()
        self._stream: io.BufferedIOBase = io.BytesIO()

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def members(self) -> Iterator[Member]:
        """The input itself, inflated, or what is inside the archive."""
        try:
            stream = _buffered(_opened(self.path) if self._data is None else io.BytesIO(self._data), self._hash)
            self._stream = stream
            on_disk = self.path != STDIN and not remote.is_address(self.path)
            yield from _unwrap(stream, self.label, archive=True, path=self.path if on_disk else None)
        except (OSError, tarfile.TarError) as error:
            raise unreadable(self.label, error) from None

    def digest(self) -> str:
        """SHA-256 of the whole input and of the other files of an OTF2 archive; to be asked last."""
        while self._stream.read(CHUNK_BYTES):
            pass  # what no reader wanted counts as well
        for path in archive_files(self.path):
            with open(path, "rb") as stream:
                self._hash.update(hashlib.file_digest(stream, "sha256").digest())
        return self._hash.hexdigest()


def members(path: str) -> Iterator[Member]:
    """The members of one file: itself, inflated, or what is inside the archive."""
    with Source(path) as source:
        yield from source.members()


def unreadable(label: str, error: OSError | tarfile.TarError) -> InputRefused:
    """The refusal of an input that the system or the archive cannot read."""
    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return InputRefused(label, f"cannot be read: {why}", "check the file")


def _opened(path: str) -> _Below:
    if path == STDIN:
        # A copy of the descriptor, so that closing the stream leaves the caller's standard input open.
        raw = sys.stdin.buffer
        return raw if isinstance(raw, io.BytesIO) else open(os.dup(raw.fileno()), "rb", buffering=0)
    return remote.opened(path) if remote.is_address(path) else open(path, "rb", buffering=0)


def archive_files(path: str) -> list[str]:
    """The files that an OTF2 anchor stands for: its definitions and its folder of events."""
    if not path.endswith(".otf2"):
        return []
    stem = path.removesuffix(".otf2")
    events = [os.path.join(root, name) for root, _, names in os.walk(stem) for name in names]
    return [name for name in (f"{stem}.def", *sorted(events)) if os.path.isfile(name)]


class _Below(Protocol):
    """A stream under another one."""

    def readinto(self, buffer: WriteableBuffer, /) -> int | None:
        """Read at most a buffer full."""

    def fileno(self) -> int:
        """Its descriptor."""

    def close(self) -> None:
        """Let go of it."""


def _buffered(stream: _Below, into: hashlib._Hash | None = None) -> io.BufferedReader:
    return io.BufferedReader(_Filled(stream, into), HEAD_BYTES)


class _Filled(io.RawIOBase):
    """A stream that gives as much as is asked for, and hashes it where asked: a pipe gives what its writer wrote at
    once, which may be too little to know a format by."""

    def __init__(self, stream: _Below, into: hashlib._Hash | None) -> None:
        self._stream, self._into = stream, into

    def readable(self) -> bool:
        """Always: there is no other use for it."""
        return True

    def fileno(self) -> int:
        """The descriptor below."""
        return self._stream.fileno()

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read until the buffer is full or nothing is left."""
        view, size = memoryview(buffer).cast("B"), 0
        while size < len(view):
            found = self._stream.readinto(view[size:])
            if not found:
                break
            size += found
        if self._into is not None:
            self._into.update(view[:size])
        return size

    def close(self) -> None:
        """Close the stream below, unless it is the caller's own standard input."""
        if not isinstance(self._stream, io.BytesIO):
            self._stream.close()
        super().close()


def peek(stream: io.BufferedReader) -> bytes:
    """The next bytes of a buffered stream, which stay in it."""
    return stream.peek(HEAD_BYTES)


def _unwrap(stream: io.BufferedReader, label: str, archive: bool, path: str | None = None, size: int = 0) -> Iterator[Member]:
    """Look through at most two layers of gzip and one of tar, going by content; ``size`` is that of a member of an archive."""
    size = size_of(path) if path else size
    for _ in range(2):
        if peek(stream)[:2] != b"\x1f\x8b":
            break
        stream, path, size = _buffered(Inflating(stream, label)), None, _claimed(path) if path else 0
    head = peek(stream)
    if head[257:262] == b"ustar":
        if archive:
            yield from _tar(stream, label)
        else:
            raise InputRefused(label, "an archive inside an archive", "unpack the outer one first")
    elif head[:4] == b"\x28\xb5\x2f\xfd" or head[:6] == b"\xfd7zXZ\x00" or head[:3] == b"BZh" or head[:4] == b"PK\x03\x04":
        raise NotATrace(label, "compressed in a way taut does not read", "use gzip, or a tar of traces")
    elif wide := windows_text.wide(head):
        stream = _buffered(windows_text.Recoded(stream, wide))
        yield Member(label, _without_bom(stream), stream)
    elif head[:3] == windows_text.BOM:
        yield Member(label, _without_bom(stream), stream)
    else:
        yield Member(label, head, stream, path, size)


def _claimed(path: str) -> int:
    """The bytes that a gzip file claims to inflate to, in its last four; 0 if they cannot be read."""
    if not os.path.isfile(path):  # a pipe opened anew might wait for ever
        return 0
    try:
        with open(path, "rb") as stream:
            stream.seek(-4, os.SEEK_END)
            return int.from_bytes(stream.read(4), "little")
    except OSError:  # shorter than that
        return 0


def _without_bom(stream: io.BufferedReader) -> bytes:
    """The first bytes of text behind its mark."""
    if peek(stream)[:3] == windows_text.BOM:
        stream.read(3)
    return peek(stream)


class _Archive(tarfile.TarFile):
    members: list[tarfile.TarInfo]


def _tar(stream: IO[bytes], label: str) -> Iterator[Member]:
    with _Archive.open(fileobj=stream, mode="r|", bufsize=CHUNK_BYTES, tarinfo=_CappedHeader) as tar:
        for count, entry in enumerate(tar):
            if count >= MEMBERS:
                raise TooLarge(label, f"more than {MEMBERS:,} members", "pack only the traces")
            # A streamed archive remembers every header it has passed.
            tar.members.clear()
            name = entry.name
            if not entry.isreg() or entry.issparse() or os.path.basename(name) == TRUTH:
                continue
            inner = tar.extractfile(entry)
            if isinstance(inner, io.BufferedReader):
                yield from _unwrap(_buffered(inner), f"{label}:{as_text(name)}", archive=False, size=entry.size)


class _Once:
    """Stands for the stream of an archive until it is read once: what is read was looked at before."""

    def __init__(self, tar: tarfile.TarFile, data: bytes) -> None:
        self._tar, self._stream, self._data = tar, tar.fileobj, data

    def read(self, _: int) -> bytes:
        self._tar.fileobj = self._stream
        return self._data


class _CappedHeader(tarfile.TarInfo):
    """Refuses extended headers that would exhaust memory or time: long ones, maps of sparse files, endless digits."""

    def _proc_pax(self, tar: tarfile.TarFile) -> tarfile.TarInfo:
        data = tar.fileobj.read(self._block(self.size))  # type: ignore[attr-defined]
        if _DIGITS.search(data) or b"GNU.sparse." in data:  # what tarfile makes of these is quadratic
            raise InputRefused(self.name[:80], "an archive header of a sparse file, or damaged", "pack the traces again")
        tar.fileobj = _Once(tar, data)  # type: ignore[assignment]
        return cast(tarfile.TarInfo, super()._proc_pax(tar))  # type: ignore[misc]

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _CappedHeader:
        header = super().frombuf(buf, encoding, errors)
        if header.type == tarfile.GNUTYPE_SPARSE:
            raise InputRefused(header.name[:80], "a sparse file in an archive", "pack the traces without --sparse")
        if not header.isreg() and header.size > TAR_HEADER_BYTES:
            raise TooLarge(header.name[:80], f"an archive header of {header.size:,} bytes", "pack the traces again")
        return header


class Inflating(io.RawIOBase):
    """A gzip stream that stops at a suspicious ratio and names the byte at which it breaks off."""

    def __init__(self, stream: IO[bytes], label: str) -> None:
        self._stream, self._label = stream, label
        self._member = inflater()
        self._pending = b""
        self._in = self._out = 0
        self._held = self._done = False

    def readable(self) -> bool:
        """Always: there is no other use for it."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Inflate up to a buffer full."""
        view = memoryview(buffer).cast("B")
        while not self._done:
            chunk = self._inflate(len(view))
            if chunk:
                view[: len(chunk)] = chunk
                return len(chunk)
        return 0

    def _inflate(self, room: int) -> bytes:
        if not self._pending and not self._held:
            self._pending = self._stream.read(HEAD_BYTES)
            self._in += len(self._pending)
            if not self._pending:
                raise self._refused("the gzip stream breaks off", "copy the file again")
        try:
            chunk = self._member.decompress(self._pending, room)
        except Damaged as error:
            raise self._refused(f"damaged gzip stream ({error})", "copy the file again") from None
        self._pending = self._member.unconsumed_tail
        self._held = len(chunk) == room  # a library may have taken all that was put in, and not given all that comes of it
        self._out += len(chunk)
        if self._out > RATIO_FREE_BYTES and self._out > RATIO * self._in:
            why = f"inflates more than {RATIO}:1 at byte {self._in:,}"
            raise TooLarge(self._label, why, "inflate it yourself if you trust it")
        if self._member.eof:
            self._next_member()
        return chunk

    def _next_member(self) -> None:
        """Gzip files may be concatenated; zero padding after the last one is allowed."""
        rest = self._member.unused_data or self._stream.read(HEAD_BYTES)
        self._in += 0 if self._member.unused_data else len(rest)
        self._done = not rest.strip(b"\0")
        self._pending, self._held = rest, False
        self._member = inflater()

    def _refused(self, why: str, remedy: str) -> InputRefused:
        return InputRefused(self._label, f"{why} after byte {self._in:,}", remedy)
