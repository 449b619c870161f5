"""Write a Kineto trace of any size by repeating a real one, later and later, and measure how taut reads it.

    python bench/big_kineto.py write TRACE.json.gz OUT.json --gb 2
    python bench/big_kineto.py read OUT.json

Every copy has its own times, steps, correlations and external ids, so that nothing in it links across copies. As the
profiler does, it writes what the host did first, of all copies, then what devices did. ``read`` prints seconds of CPU,
MB/s of inflated JSON and the peak memory of the process, with nothing but reading done in it.
"""

from __future__ import annotations

import argparse
import gzip
import re
import resource
import time
from collections.abc import Callable
from pathlib import Path

TIME = re.compile(rb'("ts"\s*:\s*)(\d+)')
SEAM = re.compile(rb"\}\s*,\s*\{")
STEP = re.compile(rb"(ProfilerStep#)(\d+)")
LINK = re.compile(rb'("(?:correlation|External id)"\s*:\s*)(\d+)')


def later(by: int) -> Callable[[re.Match[bytes]], bytes]:
    """The number of a match, raised."""
    return lambda found: found[1] + str(int(found[2]) + by).encode()


def write(source: Path, target: Path, size: int) -> None:
    """Copies of the events of a trace until the file has this many bytes."""
    data = gzip.decompress(source.read_bytes()) if source.suffix == ".gz" else source.read_bytes()
    first = data.index(b"[", data.index(b'"traceEvents"')) + 1
    last = data.rindex(b"}", 0, data.rindex(b"]")) + 1
    head, events, tail = data[:first], data[first:last], data[last:]
    times = [int(t[2]) for t in TIME.finditer(events)]
    span = max(times) - min(times) + 1_000_000
    steps, links = (1 + max((int(n[2]) for n in kind.finditer(events)), default=0) for kind in (STEP, LINK))
    device = events.find(b'"kernel"')
    seam = events.rindex(b"{", 0, SEAM.match(events, events.rindex(b"}", 0, device)).end()) if device >= 0 else len(events)
    copies = max(1, round((size - len(head) - len(tail)) / len(events)))
    with target.open("wb") if target.suffix != ".gz" else gzip.open(target, "wb", compresslevel=1) as out:
        out.write(head)
        for which, part in enumerate((events[:seam].rstrip(b", \r\n\t"), events[seam:])):
            for copy in range(copies if part else 0):
                moved = TIME.sub(later(copy * span), part)
                moved = LINK.sub(later(copy * links), STEP.sub(later(copy * steps), moved))
                out.write(b"," * (copy + which > 0) + moved)
        out.write(tail)


def measure(path: Path) -> None:
    """Read one trace and print what that cost."""
    from taut.read.trace import read

    size = path.stat().st_size
    if path.suffix == ".gz":
        with gzip.open(path) as stream:
            size = sum(iter(lambda: len(stream.read(1 << 24)), 0))
    before, began = time.process_time(), time.perf_counter()
    trace = read([path])
    cpu, wall = time.process_time() - before, time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{size / 1e6:,.0f} MB, {trace.counts['events']:,} events, {len(trace.ops):,} ops")
    print(f"{cpu:.1f} s CPU, {wall:.1f} s wall, {size / 1e6 / cpu:.0f} MB/s, peak {peak:,.0f} MiB")


def main() -> None:
    """Write or read."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = parser.add_subparsers(dest="verb", required=True)
    writing = sub.add_parser("write")
    writing.add_argument("source", type=Path)
    writing.add_argument("target", type=Path)
    writing.add_argument("--gb", type=float, default=2.0)
    sub.add_parser("read").add_argument("path", type=Path)
    args = parser.parse_args()
    if args.verb == "write":
        write(args.source, args.target, int(args.gb * 1e9))
    else:
        measure(args.path)


if __name__ == "__main__":
    main()
