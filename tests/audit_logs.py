"""Small logs, written the way verbs write them."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from taut.audit.log import open_log
from taut.audit.record import VERB, Detail, Text

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
AT_NS = 1_700_000_000_000_000_000


def details(k: int) -> dict[str, Detail]:
    """What a verb leaves: plain settings, and names that are salted."""
    name = Text(f"traces/of-somebody-{k}")
    return {"verb": "analyze", "inputs": [{"name": name, "sha256": f"{k:064x}"}], "options": {"envelope": False}}


def written(path: Path, records: int, signed: bool = False) -> Path:
    """A log of the record that names it and so many more, each a minute after the other."""
    with open_log(path, "1.2.3", create=True) as log:
        for k in range(records):
            key = KEY if signed and k == records - 1 else None
            log.append(VERB, details(k), at_ns=AT_NS + k * 60_000_000_000, key=key)
    return path
