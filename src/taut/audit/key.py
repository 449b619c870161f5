"""The key by which this user's logs are signed: one file in the user's configuration, made when first needed."""

from __future__ import annotations

import os
import stat
from base64 import b64decode
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from taut.core.errors import AuditError
from taut.core.whole_file import scratch_name

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

FILE = "audit.pem"
MOST_BYTES = 4096
BEFORE_KEY = bytes.fromhex("302e020100300506032b657004220420")
"""What stands before the 32 bytes of an Ed25519 key in PKCS #8 (RFC 8410)."""


def config_folder() -> Path:
    """Where this user's configuration lies."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    if os.path.isabs(base):
        return Path(base) / "taut"
    try:
        home = Path.home() if os.environ.get("HOME") != "" else Path()
    except RuntimeError:  # no HOME, and nobody knows the user
        home = Path()
    if not home.is_absolute():
        raise AuditError("where your configuration lies is not known, and the key with it; set HOME or XDG_CONFIG_HOME")
    return home / ".config" / "taut"


def signing_key() -> Ed25519PrivateKey:
    """The user's key; made, readable by the user alone, where there is none yet."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(private_bytes())


def private_bytes() -> bytes:
    """The 32 secret bytes of the user's key, read without loading what signs with it."""
    path = config_folder() / FILE
    try:
        return _loaded(path)
    except FileNotFoundError:
        return _made(path)
    except OSError as error:
        raise AuditError(f"{path}: the key cannot be read ({error.strerror}); nothing is signed") from None


def _loaded(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_mode & 0o077 or found.st_uid != os.geteuid():
            raise AuditError(f"{path}: others may read the key, or it is not yours; nothing is signed until: chmod 600 {path}")
        data = stream.read(MOST_BYTES)
    key = _as_made(data) or _of_any_form(data)
    if key is None:
        raise AuditError(f"{path}: holds no Ed25519 key; move it away, and a new key is made")
    return key


def _as_made(data: bytes) -> bytes | None:
    """A key in the form of ``_made``, without importing what reads keys of every kind: that takes longer than to sign."""
    body = data.removeprefix(b"-----BEGIN PRIVATE KEY-----\n").removesuffix(b"\n-----END PRIVATE KEY-----\n")
    try:
        whole = b64decode(body, validate=True)
    except ValueError:
        return None
    return whole[-32:] if whole[:-32] == BEFORE_KEY else None


def _of_any_form(data: bytes) -> bytes | None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(data, password=None)
    except (ValueError, TypeError):
        return None
    return key.private_bytes_raw() if isinstance(key, Ed25519PrivateKey) else None


def _made(path: Path) -> bytes:
    """A new key. It is linked into place whole, so that of two processes that make one at once the first wins."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    pem = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        put_new(path, pem)
        return _loaded(path)
    except OSError as error:
        raise AuditError(f"{path}: no key can be made there ({error.strerror}); nothing is signed") from None


def put_new(path: Path, data: bytes) -> None:
    """A file of the user's own that appears whole, unless there is one already."""
    scratch = path.with_name(scratch_name(".part"))
    try:
        _write(scratch, data)
        with suppress(FileExistsError):
            os.link(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)


def put(path: Path, data: bytes) -> None:
    """A file of the user's own that takes the place of an older one, whole."""
    scratch = path.with_name(scratch_name(".part"))
    try:
        _write(scratch, data)
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)


def _write(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        out.write(data)
        out.flush()
        os.fsync(descriptor)
