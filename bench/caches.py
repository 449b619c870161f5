"""Damage the kept machine code of kernels in every way and run analyses with it: right results, and what becomes of the files.

python bench/caches.py --cases 1000 --seed 0

A copy of the package, with its kept code, is put into a temporary folder. Each run damages about half of the files it is
going to load, and its output is compared byte by byte with that of a run whose code is whole. A third of the cases is
``taut demo --json``; the others call every kernel with the arguments that small jobs of all kinds give it.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HASH = 32
"""Bytes of the hash at the beginning of a kept file; the length of the header follows in four more."""

OFFERED = """
import sys
from taut.core import jit, native
usual = native.load
def load(code):
    print(code.kept_as, file=sys.stderr)
    return usual(code)
native.load = load
EXPECT
"""
"""Begins every program: it names the files that the loader is asked for."""
DEMO = (
    OFFERED
    + """
from taut.cli import main
main(["demo", "--json", "-q", "-o", sys.argv[1]])
"""
)
CALLS = (
    OFFERED
    + """
import pickle
import numpy as np
from importlib import import_module
jit.SMALL = 1 << 40  # what is not kept runs in Python, however large
for name, calls in sorted(pickle.load(open(sys.argv[1], "rb")).items()):
    for given in calls:
        args = tuple(one.copy() if isinstance(one, np.ndarray) else one for one in given)
        module, _, kernel = name.rpartition(".")
        out = getattr(import_module(module), kernel)(*args)
        shown = [np.asarray(one).tolist() for one in (*(out if isinstance(out, tuple) else (out,)), *args)]
        # sums of many exponentials are rounded differently in Python
        print(name, [f"{one:.10g}" for one in np.ravel(shown[0])] if name.endswith(".fitted") else shown)
print("numba" in sys.modules, file=sys.stderr)
"""
)


def truncate(path: Path, rng: random.Random) -> None:
    os.truncate(path, rng.randrange(path.stat().st_size))


def flip(path: Path, rng: random.Random) -> None:
    _edit(path, rng, lambda data, at: data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :])


def zero(path: Path, rng: random.Random) -> None:
    size = rng.randrange(1, 4096)
    _edit(path, rng, lambda data, at: data[:at] + bytes(len(data[at : at + size])) + data[at + size :])


def noise(path: Path, rng: random.Random) -> None:
    _edit(path, rng, lambda data, at: data[:at] + rng.randbytes(len(data) - at))


def append(path: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes() + rng.randbytes(rng.randrange(1, 5000)))


def empty(path: Path, rng: random.Random) -> None:
    os.truncate(path, 0)


def swap(path: Path, rng: random.Random) -> None:
    """The file of another kernel of the package under this name."""
    other = rng.choice(sorted(one for one in path.parents[2].rglob("*.kernel") if one != path and one.is_file()))
    path.write_bytes(other.read_bytes())


def header(path: Path, rng: random.Random) -> None:
    """Another symbol or other returned types under the old hash."""
    data = path.read_bytes()
    size = int.from_bytes(data[HASH : HASH + 4], "little")
    fields = json.loads(data[HASH + 4 : HASH + 4 + size])
    fields |= rng.choice(
        [{"symbol": "free"}, {"returns": ["l1"] * 9}, {"returns": [".", "d2"]}, {"symbol": fields["symbol"] + "x"}]
    )
    text = json.dumps(fields).encode()
    path.write_bytes(data[:HASH] + len(text).to_bytes(4, "little") + text + data[HASH + 4 + size :])


def length(path: Path, rng: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:HASH] + rng.randbytes(4) + data[HASH + 4 :])


def unhashed(path: Path, rng: random.Random) -> None:
    """Without its hash, as files were kept before there was one."""
    path.write_bytes(path.read_bytes()[HASH:])


def link(path: Path, rng: random.Random) -> None:
    """The whole file, reached through a link."""
    aside = path.with_suffix(".aside")
    path.rename(aside)
    path.symlink_to(rng.choice([aside, Path("/nowhere"), Path("/dev/zero")]))


def pipe(path: Path, rng: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def writable(path: Path, rng: random.Random) -> None:
    """The whole file, but others may write to it."""
    path.chmod(rng.choice([0o620, 0o602, 0o666, 0o777]))


def foreign(path: Path, rng: random.Random) -> None:
    """The whole file, but of another user."""
    os.chown(path, 65534, -1)


def _edit(path: Path, rng: random.Random, change: Callable[[bytes, int], bytes]) -> None:
    data = path.read_bytes()
    changed = change(data, rng.randrange(len(data)))
    path.write_bytes(changed if changed != data else data[:-1])  # zeroes among zeroes damage nothing


DAMAGES: tuple[Callable[[Path, random.Random], None], ...] = (
    truncate, truncate, flip, flip, flip, zero, noise, append, empty, swap, header, length, unhashed, link, pipe, writable,
    *((foreign,) if os.geteuid() == 0 else ()),
)  # fmt: skip


@dataclass
class Tally:
    """What happened to the damaged files, and to the runs that met them."""

    cases: int = 0
    runs: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    crashes: int = 0
    wrong: int = 0
    left: int = 0
    unseen: int = 0
    kernels: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        return (
            f"{self.cases:,} damaged files of {len(self.kernels)} kernels in {self.runs} runs: {self.crashes} crashes, "
            f"{self.wrong} wrong results, {self.cases - self.left:,} removed or replaced, {self.left} left, "
            f"{self.unseen} not looked at"
        )


@dataclass
class Workload:
    """A program, what it prints when all kept code is whole, and the files that it loads."""

    program: str
    argument: str
    folder: Path
    clean: bytes = b""
    files: list[Path] = field(default_factory=list)

    def run(self, expect: bool = False) -> subprocess.CompletedProcess[bytes]:
        text = self.program.replace("EXPECT", "jit.expect(1e9);" if expect else "")
        env = {
            **os.environ,
            "PYTHONPATH": str(self.folder),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "PYTHONFAULTHANDLER": "1",
        }
        env.pop("TAUT_KERNEL_CACHE", None)
        return subprocess.run([sys.executable, "-c", text, self.argument], env=env, cwd=self.folder, capture_output=True)

    def prepare(self) -> None:
        """Compile what is not kept yet, and see what a run prints and loads."""
        self.run(expect=True)
        whole = self.run()
        if whole.returncode:
            raise SystemExit(whole.stderr.decode())
        kept = {path.name: path for path in self.folder.rglob("*.kernel")}
        self.clean, self.files = whole.stdout, sorted(kept[name] for name in set(whole.stderr.decode().split()) & set(kept))

    def damaged(self, cases: int, rng: random.Random, tally: Tally) -> None:
        """Run once with that many damaged files."""
        pristine = {path: path.read_bytes() for path in self.files}
        chosen = rng.sample(self.files, min(cases, len(self.files)))
        for path in chosen:
            damage = rng.choice(DAMAGES)
            damage(path, rng)
            tally.kinds[damage.__name__] += 1
            tally.kernels.add(path.name.rpartition("-")[0])
        done = self.run()
        tally.cases, tally.runs = tally.cases + len(chosen), tally.runs + 1
        tally.crashes += done.returncode != 0
        tally.wrong += done.returncode == 0 and done.stdout != self.clean
        if done.returncode:
            print(done.stderr.decode()[-2000:], file=sys.stderr)
        tally.left += sum(os.path.lexists(path) and not _whole(path, data) for path, data in pristine.items())
        tally.unseen += len({path.name for path in chosen} - set(done.stderr.decode().split()))
        for path, data in pristine.items():
            path.unlink(missing_ok=True)
            path.with_suffix(".aside").unlink(missing_ok=True)
            path.touch(0o600)
            path.write_bytes(data)


def _whole(path: Path, data: bytes) -> bool:
    """Whether the file is the one that was kept: a regular file of this user with what was written."""
    found = path.lstat()
    return path.is_file() and not path.is_symlink() and found.st_uid == os.geteuid() and path.read_bytes() == data


def repaired(work: Workload) -> str:
    """Empty all files, run with the compiler, run without: how many are kept again, and whether the last run needed it."""
    for path in work.files:
        os.truncate(path, 0)
    first, second = work.run(expect=True), work.run()
    right = first.stdout == second.stdout == work.clean
    again = sum(path.stat().st_size > 0 for path in work.files)
    compiler = second.stderr.split()[-1:] == [b"True"]
    return f"{again} of {len(work.files)} emptied files made again; {'right' if right else 'WRONG'}, " + (
        "the next run compiled" if compiler else "the next run did not compile"
    )


def prepared(folder: Path, room: str) -> list[Workload]:
    """The workloads on a copy of the package; with a room only calls of its kernels."""
    sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]
    from kernel_calls import recorded_calls

    shutil.copytree(ROOT / "src" / "taut", folder / "taut")
    calls = {name: args for name, args in recorded_calls().items() if name.startswith(f"taut.{room}")}
    (folder / "calls").write_bytes(pickle.dumps(calls))
    works = [Workload(CALLS, str(folder / "calls"), folder)]
    if not room:
        works.insert(0, Workload(DEMO, str(folder / "run"), folder))
    for work in works:
        work.prepare()
    return works


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--room", default="", help="only kernels of this room, and no demo")
    parser.add_argument("--repair", action="store_true", help="also empty all files and have them made again")
    given = parser.parse_args()
    rng, tally = random.Random(given.seed), Tally()
    with tempfile.TemporaryDirectory() as name:
        works = prepared(Path(name), given.room)
        while tally.cases < given.cases:
            work = works[tally.runs % len(works)]
            work.damaged(min(max(len(work.files) // 2, 1), given.cases - tally.cases), rng, tally)
        print(tally)
        print(", ".join(f"{kind} {count}" for kind, count in sorted(tally.kinds.items())))
        if given.repair:
            print(repaired(works[-1]))
    sys.exit(1 if tally.crashes or tally.wrong or tally.left or tally.unseen else 0)


if __name__ == "__main__":
    main()
