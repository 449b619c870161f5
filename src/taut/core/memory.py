"""Limits on the memory of this process (``ulimit -v``), and the errors that libraries make of them."""

from __future__ import annotations

import errno
import gc
import os
import re
import resource
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

GROUPS = (
    ("", Path("/sys/fs/cgroup"), "memory.max", "memory.current"),
    ("memory", Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes"),
)
"""Both versions of control groups: what lists them in /proc/self/cgroup, where they lie, limit and use."""
LEAST_BYTES = 1_000_000 << 10
"""Address space that libraries and compiled kernels of a small job take, measured at 800 MB. Below it, C libraries abort."""
SEARCHED_AFTER = 50_000
"""Objects made, and not let go, after which Python looks for garbage among them; it would after 700."""
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Settings of glibc's allocator: free memory at its end that it keeps, and arrays that it maps one by one."""
OWN = threading.Event()
"""Set where this process is taut's own, whose allocator may be set up for it."""
_SHORT = re.compile(
    r"failed to map segment|cannot (re)?allocate|can't start new thread|out of memory|bad_alloc|malloc of size|"
    r"failed to launch worker thread|resource temporarily unavailable|unable to allocate|memory allocation|"
    r"libllvmlite\.so|numpy C-extensions failed",
    re.IGNORECASE,
)
"""What libraries say when memory or threads run out; the last two only where memory is limited."""
_MAPPED_ONLY = ("libllvmlite", "numpy C-extensions")


def limit_bytes() -> int | None:
    """The limit on the address space; None without one."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def is_limited() -> bool:
    """Whether there is a limit on address space or data."""
    return any(resource.getrlimit(kind)[0] != resource.RLIM_INFINITY for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA))


def fit() -> None:
    """Have libraries take no memory that nobody uses; call it in a process of taut's own, before they are imported."""
    # Arrow's own pool would reserve 1 GiB of address space, and keep what was freed.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    sys.meta_path.insert(0, _WithoutUnused())
    # What is made while a trace is read and analyzed is nearly all needed to the end, or let go without a search.
    gc.set_threshold(SEARCHED_AFTER)
    OWN.set()


@contextmanager
def loading() -> Iterator[None]:
    """Load modules without looking for garbage, of which they make next to none: looking is a tenth of a short command.

    What is there afterwards stays for good, and is not looked at again. Memory of the work itself is looked after as ever.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.freeze()
            gc.enable()


class _WithoutUnused:
    """An importer to which what no verb uses, and Arrow imports wherever it is installed, is not installed.

    That is pandas (50 MB and 0.4 s; no verb makes a data frame), and file systems: readers open addresses themselves.
    """

    UNUSED = frozenset({"pandas", "pyarrow._azurefs", "pyarrow._gcsfs", "pyarrow._s3fs"})

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Nothing, so that others look for the module."""
        if name in self.UNUSED:
            raise ModuleNotFoundError("not loaded in a process of taut")
        return None


def use_again() -> None:
    """Have arrays lie where others were freed, in a process of taut's own: before a large job.

    The C library maps every large array anew, and the system clears its pages: of a job of 20 million ops that was a quarter of
    all CPU time.
    """
    import ctypes

    if OWN.is_set():
        with suppress(OSError, AttributeError):  # another C library has other ways
            library = ctypes.CDLL(None)
            library.mallopt(M_MMAP_MAX, 0)
            library.mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)


def give_back() -> None:
    """Give memory that was freed back to the system, where the C library kept it: between parts of a large job."""
    import ctypes

    with suppress(OSError, AttributeError):  # another C library keeps it
        ctypes.CDLL(None).malloc_trim(0)


def left_bytes() -> int | None:
    """What the limit leaves to this process; None without a limit, or where the system does not tell."""
    limit = limit_bytes()
    if limit is None:
        return None
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return limit - int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return None


def available_bytes() -> int | None:
    """Memory that this process may still take: what the machine, its control group and its own limit leave; None if unknown."""
    found = [left_bytes(), *_groups_left()]
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            found += [int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable")]
    except OSError:
        pass
    return min((each for each in found if each is not None), default=None)


def _groups_left() -> Iterator[int]:
    """What the control groups of this process leave, and those that these are in, where they have a limit."""
    try:
        lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()]
    except OSError:
        return
    for name, root, limit, used in GROUPS:
        for own in (Path(path.strip("/")) for _, kinds, path in lines if name in kinds.split(",")):
            for group in (own, *own.parents):  # in a container the root is the container's own
                with suppress(OSError, ValueError):
                    most = int((root / group / limit).read_text(encoding="ascii"))
                    yield max(most - int((root / group / used).read_text(encoding="ascii")), 0)


def require(needed_bytes: int, what: str) -> None:
    """Raise MemoryError if a limit leaves less: for C libraries that abort the process instead of failing."""
    left = left_bytes()
    if left is not None and left < needed_bytes:
        raise MemoryError(f"{what} needs {needed_bytes >> 20} MB, {max(left, 0) >> 20} MB are left")


def is_short(error: BaseException) -> bool:
    """Whether an error, or one that led to it, says that memory ran out, in whatever words."""
    seen: BaseException | None = error
    for _ in range(20):
        if seen is None:
            return False
        if isinstance(seen, MemoryError) or (isinstance(seen, OSError) and seen.errno == errno.ENOMEM):
            return True
        if isinstance(seen, (ImportError, OSError, RuntimeError)) or type(seen).__module__.startswith("pyarrow"):
            found = _SHORT.search(str(seen))
            if found and (is_limited() or not found[0].startswith(_MAPPED_ONLY)):
                return True
        seen = seen.__cause__ or seen.__context__
    return False
