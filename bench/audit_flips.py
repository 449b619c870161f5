"""Flip every bit of an audit log of 64 KiB, one at a time, and cut it at every byte of its last three records.

    python bench/audit_flips.py --seed 1
    python bench/audit_flips.py --seed 1 --part 1/4     a quarter of the bits

A flip must be found (the log is refused, or does not verify), or leave records, texts and root as they were. A cut must be
found, and every record that lies before it and is vouched for by one that follows must be kept.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from taut.audit.log import Row, open_log
from taut.audit.record import Text
from taut.audit.verify import verify
from taut.core.errors import AuditError

BYTES = 64 << 10
STEP = 4096


def written(path: Path, seed: int) -> bytes:
    """A log of that size: records of a verb with inputs and names, signed now and then."""
    rng = random.Random(seed)
    os.urandom = rng.randbytes  # type: ignore[assignment]
    key = Ed25519PrivateKey.from_private_bytes(rng.randbytes(32))
    with open_log(path, "1", create=True) as log:
        k = 0
        while path.stat().st_size < BYTES:
            inputs = [
                {"name": Text(f"traces/rank{r}.json"), "sha256": rng.randbytes(32).hex()} for r in range(rng.randrange(4))
            ]
            details = {"verb": "analyze", "inputs": inputs, "options": {"envelope": False, "pays": 0.5}}
            log.append("verb", details, at_ns=1_700_000_000_000_000_000 + k, key=key if k % 10 == 9 else None)
            k += 1
    return path.read_bytes()


def flipped(asked: tuple[str, bytes, list[Row], str | None, range]) -> Counter[str]:
    """What became of every bit in a range."""
    folder, data, rows, root, bits = asked
    path, counts = Path(folder) / f"{bits.start}.db", Counter[str]()
    changed = bytearray(data)
    path.write_bytes(data)
    with open(path, "r+b", buffering=0) as file:
        for bit in bits:
            changed[bit >> 3] ^= 1 << (bit & 7)
            os.pwrite(file.fileno(), changed[bit >> 3 : (bit >> 3) + 1], bit >> 3)
            counts[outcome(path, rows, root)] += 1
            changed[bit >> 3] ^= 1 << (bit & 7)
            if path.stat().st_size == len(data):
                os.pwrite(file.fileno(), changed[bit >> 3 : (bit >> 3) + 1], bit >> 3)
            if path.read_bytes() != data:  # opening it made SQLite write
                path.write_bytes(data)
    path.unlink()
    return counts


def outcome(path: Path, rows: list[Row], root: str | None) -> str:
    try:
        found = verify(path)
    except AuditError:
        return "found: refused"
    except Exception as error:
        return f"CRASHED: {type(error).__name__}"
    if not found.ok:
        return "found: verified as damaged"
    with open_log(path) as log:
        return "unchanged" if (log.raw(), found.root) == (rows, root) else "MISSED"


def cut(path: Path, data: bytes, rows: list[Row]) -> Counter[str]:
    """What became of the file cut at every byte of its last three records."""
    counts: Counter[str] = Counter()
    begin = [data.find(row.body or b"") for row in rows]
    ends = [at + len(row.body or b"") + len(row.texts or b"") for at, row in zip(begin, rows, strict=True)]
    for length in range(min(begin[-3:]), len(data)):
        path.write_bytes(data[:length])
        found = verify(path)
        whole = next((k for k, end in enumerate(ends) if end > length), len(rows))
        kept = "kept all but the last whole one" if found.kept == whole - 1 else "kept all" if found.kept == whole else "LOST"
        counts["MISSED" if found.ok else kept] += 1
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--part", default="1/1", help="K/N: the K-th of N parts of the bits")
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    part, parts = map(int, asked.part.split("/"))
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as place:
        os.environ["XDG_CONFIG_HOME"] = place
        path = Path(place) / "audit.db"
        data = written(path, asked.seed)
        with open_log(path) as log:
            rows = log.raw()
        root = verify(path).root
        bits = range(len(data) * 8 * (part - 1) // parts, len(data) * 8 * part // parts)
        pieces = [(place, data, rows, root, bits[k : k + STEP]) for k in range(0, len(bits), STEP)]
        with ProcessPoolExecutor(asked.workers) as pool:
            counts = sum(pool.map(flipped, pieces), Counter[str]())
        print(f"{len(data):,} bytes, {len(rows)} records, seed {asked.seed}, part {asked.part}")
        print(f"{counts.total():,} flips: {dict(counts)}; {time.monotonic() - began:.0f} s")
        if part == 1:
            cuts = cut(path, data, rows)
            print(f"{cuts.total():,} cuts: {dict(cuts)}")


if __name__ == "__main__":
    main()
