"""Record a lab's matrix on a machine that has torch, but neither the network nor what an analysis needs; score it here.

Here: ``python bench/lab_elsewhere.py plan SPECS --seed 87 88 --only past``. There, with ``src`` on the path, msgspec and
iproute2 (as root): ``python bench/lab_elsewhere.py record SPECS WORK OUT --seconds 480``; what was not begun by then is left
for the next call. Here again: ``python bench/lab_elsewhere.py unpack OUT MATRIX``, ``taut lab score MATRIX/*``.

A run has 80 MB of text, nearly all of it numbers in the same words, and comes back in 1 MB: texts are cut into words with the
numbers taken out, and numbers put into columns by the words before them. What is unpacked is the same text, byte by byte.
"""

from __future__ import annotations

import argparse
import gzip
import io
import lzma
import re
import sys
import tarfile
import time
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import msgspec
import numpy as np
from msgspec.structs import replace

from taut.lab.case import Spec

NUMBER = re.compile(rb"(?<![\w.\-])(?:0|[1-9]\d{0,14})(?:\.\d{3})?(?![\w.])")
"""A number that its value tells, with or without three decimals."""
BEFORE, BLOCK = 7, b"\n  {\n"
"""Bytes before a number that name its column; what parts events of a trace."""
BUNDLE, BUNDLES = 15 << 19, 8
"""Bytes of a file that is brought back, and how many of them at a time."""


def packed(text: bytes) -> bytes:
    """A text as words, and its numbers as differences from the last one after the same words."""
    words: dict[bytes, int] = {}
    columns: dict[bytes, list[int]] = defaultdict(list)
    blocks = []
    for block in text.split(BLOCK):
        parts, at = [], 0
        for found in NUMBER.finditer(block):
            number, before = found.group(), block[max(at, found.start() - BEFORE) : found.start()]
            parts += [block[at : found.start()], b"\x01" if b"." in number else b"\x00"]
            columns[before].append(int(number.replace(b".", b"")))
            at = found.end()
        blocks.append(words.setdefault(b"".join([*parts, block[at:]]), len(words)))
    out = io.BytesIO()
    for item in (
        b"\x02".join(words),
        b"\x02".join(columns),
        np.array([len(c) for c in columns.values()], dtype="<i8").tobytes(),
    ):
        out.write(len(item).to_bytes(8, "little") + item)
    out.write(len(blocks).to_bytes(8, "little") + _planes(blocks))
    for column in columns.values():
        out.write(_planes(np.diff(np.array(column, dtype=np.int64), prepend=0)))
    return out.getvalue()


def _planes(numbers: Iterable[int]) -> bytes:
    """Numbers as their lowest bytes, then their second ones, and so on, signs folded in."""
    values = np.asarray(numbers, dtype=np.int64)
    folded = (values << 1) ^ (values >> 63)
    return folded.astype("<i8").view(np.uint8).reshape(-1, 8).T.tobytes()


def _unplaned(data: bytes) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    folded = np.frombuffer(data, dtype=np.uint8).reshape(8, -1).T.copy().view("<i8").ravel()
    return ((folded >> 1) & ((1 << 63) - 1)) ^ -(folded & 1)


def unpacked(data: bytes) -> bytes:
    """The text again."""
    at = 0

    def item() -> bytes:
        nonlocal at
        size = int.from_bytes(data[at : at + 8], "little")
        at += 8 + size
        return data[at - size : at]

    words, names, lengths = item().split(b"\x02"), item().split(b"\x02"), np.frombuffer(item(), dtype="<i8")
    names = names if len(lengths) else []
    count = int.from_bytes(data[at : at + 8], "little")
    at += 8
    blocks = _unplaned(data[at : at + 8 * count])
    at += 8 * count
    columns = {}
    for name, length in zip(names, lengths.tolist(), strict=True):
        columns[name] = iter(np.cumsum(_unplaned(data[at : at + 8 * length])).tolist())
        at += 8 * length
    return BLOCK.join(_filled(words[block], columns) for block in blocks.tolist())


def _filled(words: bytes, columns: dict[bytes, Iterable[int]]) -> bytes:
    parts = re.split(rb"([\x00\x01])", words)
    for i in range(1, len(parts), 2):
        value = next(iter(columns[parts[i - 1][-BEFORE:]]))
        parts[i] = b"%d.%03d" % divmod(value, 1000) if parts[i] == b"\x01" else b"%d" % value
    return b"".join(parts)


def _pack_run(folder: Path) -> bytes:
    """All files of a run; texts as they are without gzip."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
                data = packed(text)
                if unpacked(data) != text:
                    sys.exit(f"{path}: is not the same when it is unpacked")
                name = tarfile.TarInfo(f"{folder.name}/{path.relative_to(folder)}")
                name.size = len(data)
                tar.addfile(name, io.BytesIO(data))
    return lzma.compress(out.getvalue(), preset=6)


def record(specs: Path, work: Path, out: Path, seconds: float) -> None:
    """Run what is not in ``work`` yet, until the time is over; pack what was not packed before, as much as can be brought back.

    In no seconds at all nothing is run: what is left is packed.
    """
    from taut.lab.run_cases import run_all

    until = time.monotonic() + seconds
    done = work / "packed.txt"
    work.mkdir(parents=True, exist_ok=True)
    all_specs = [
        replace(spec, folder=str(work / spec.folder)) for spec in msgspec.json.decode(specs.read_bytes(), type=list[Spec])
    ]
    left = [spec for spec in all_specs if not (Path(spec.folder) / "truth.json").exists()] if seconds else []
    for spec, error in run_all(left) if left else ():
        print(f"{time.monotonic() - until + seconds:.0f} s: {Path(spec.folder).name}: {error or 'done'}", flush=True)
        if time.monotonic() > until:
            break
    before = set(done.read_text().split()) if done.exists() else set()
    ready = [
        Path(s.folder) for s in all_specs if (Path(s.folder) / "truth.json").exists() and Path(s.folder).name not in before
    ]
    bundles: list[bytes] = [b""]
    with ProcessPoolExecutor() as pool:
        for folder, data in zip(ready, pool.map(_pack_run, ready), strict=True):
            part = len(data).to_bytes(8, "little") + data
            if len(bundles[-1]) + len(part) > BUNDLE:
                bundles.append(b"")
            if len(bundles) > BUNDLES:
                pool.shutdown(cancel_futures=True)
                break
            bundles[-1] += part
            (out / f"runs-{len(bundles)}").write_bytes(bundles[-1])
            with done.open("a") as file:
                file.write(f"{folder.name}\n")
    print(f"{len(left)} were asked for; {len(ready)} were there, {sum(map(len, bundles)) >> 20} MiB are brought back")


def unpack(out: Path, matrix: Path) -> None:
    """Runs in folders again."""
    for path in sorted(out.glob("runs-*")):
        data, at = path.read_bytes(), 0
        while at < len(data):
            size = int.from_bytes(data[at : at + 8], "little")
            with tarfile.open(fileobj=io.BytesIO(lzma.decompress(data[at + 8 : at + 8 + size]))) as tar:
                for member in tar:
                    file = tar.extractfile(member)
                    assert file is not None
                    text = unpacked(file.read())
                    target = matrix / member.name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(gzip.compress(text, 1, mtime=0) if target.suffix == ".gz" else text)
            at += 8 + size


def plan(specs: Path, seeds: Iterable[int], only: list[str]) -> None:
    """The runs of a matrix, in the order in which they are to be run."""
    from taut.lab.matrix import Chosen
    from taut.lab.matrix import plan as planned

    runs = [spec for seed in seeds for spec in planned(seed, Path(), Chosen(only=only))]
    specs.write_bytes(msgspec.json.encode(runs))
    print(f"{len(runs)} runs")


def main() -> None:
    """One of the three."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("plan")
    one.add_argument("specs", type=Path)
    one.add_argument("--seed", type=int, nargs="+", required=True)
    one.add_argument("--only", nargs="+", default=[])
    one = verbs.add_parser("record")
    for name in ("specs", "work", "out"):
        one.add_argument(name, type=Path)
    one.add_argument("--seconds", type=float, default=480)
    one = verbs.add_parser("unpack")
    for name in ("out", "matrix"):
        one.add_argument(name, type=Path)
    asked = parser.parse_args()
    if asked.verb == "plan":
        plan(asked.specs, asked.seed, asked.only)
    elif asked.verb == "record":
        record(asked.specs, asked.work, asked.out, asked.seconds)
    else:
        unpack(asked.out, asked.matrix)


if __name__ == "__main__":
    main()
