"""Where work runs side by side: on the cores of this machine, on a Dask cluster, or on any ``concurrent.futures.Executor``."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, as_completed
from contextlib import contextmanager, suppress
from types import ModuleType, TracebackType
from typing import ParamSpec, Protocol, TypeAlias, TypeVar

from taut import __version__
from taut.core.errors import TautError, UsageError
from taut.core.signals import Held

P = ParamSpec("P")
T = TypeVar("T")
Task = TypeVar("Task")

On: TypeAlias = str | Executor | None
"""Where to run: ``local``, ``dask://HOST:PORT`` or an executor; None is here, or in processes where that pays."""
LOCAL, DASK = "local", "dask://"
_PLACE = re.compile(r"dask://([\w.-]{1,255}|\[[0-9a-fA-F:.]{2,45}\]):(\d{1,5})", re.ASCII)
ANSWER_S, WORKERS_S, LEAVE_S = 5, 60, 2
"""How long a scheduler may take to answer, its first worker to come, and a connection to be closed."""
RETRIES = 2
"""How often Dask tries a task again that failed; one whose worker died it tries as often as its scheduler is told to."""
PR_SET_PDEATHSIG = 1


About: TypeAlias = Mapping[str, Mapping[str, str | None]]
"""What a worker says of itself: of its ``packages``, the versions."""


class _Client(Protocol):
    """What is used of Dask's client."""

    def get_executor(self, *, pure: bool, retries: int) -> Executor: ...

    def wait_for_workers(self, n_workers: int, *, timeout: int) -> object: ...

    def get_versions(self, *, packages: Sequence[str]) -> Mapping[str, Mapping[str, About]]: ...

    def close(self, timeout: int) -> object: ...


class ExecutorLost(TautError):
    """The scheduler went away in the middle: what was done is not lost where it was kept."""


def checked(on: On) -> On:
    """The same, if it is a place where work can run; else UsageError."""
    if on is None or isinstance(on, Executor) or on == LOCAL or (isinstance(on, str) and _PLACE.fullmatch(on)):
        return on
    raise UsageError(f"--on {on}: give local, or the address of a Dask scheduler: dask://HOST:PORT")


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def executor_at(on: str | Executor, tasks: int) -> Iterator[Executor]:
    """What runs so many tasks there; an executor that was given stays open, any other is closed afterwards."""
    if isinstance(on, Executor):
        yield on
    elif checked(on) == LOCAL:
        with LocalPool(max(min(tasks, cores()), 1)) as pool:
            yield pool
    else:
        with _dask_executor(on) as remote:
            yield remote


def as_finished(pool: Executor, work: Callable[[Task], T], tasks: Sequence[Task]) -> Iterator[tuple[int, T]]:
    """Numbers of tasks with their results, as they end; without those whose workers died, which are left to the caller.

    Whoever stops asking has the others cancelled.
    """
    numbers: dict[Future[T], int] = {}
    try:
        for number, task in enumerate(tasks):
            numbers[pool.submit(work, task)] = number
        for future in as_completed(list(numbers)):
            number = numbers.pop(future)  # what was handed on is held nowhere else
            try:
                result = future.result()
            except CancelledError:
                raise ExecutorLost("the scheduler was lost while it worked; start it, and go on with --resume") from None
            except Exception as error:
                if not _workers_died(error):
                    raise
                continue
            del future
            yield number, result
            del result
    except BrokenExecutor:  # no further task can be submitted
        return
    finally:
        for future in numbers:
            future.cancel()


def results_in_order(on: str | Executor, work: Callable[[Task], T], tasks: Sequence[Task]) -> Iterator[T]:
    """The result of each task, in their order; those whose workers died are done here."""
    early: dict[int, T] = {}
    following = 0
    with executor_at(on, len(tasks)) as pool:
        for number, result in as_finished(pool, work, tasks):
            early[number] = result
            while following in early:
                yield early.pop(following)
                following += 1
    for number in range(following, len(tasks)):
        yield early[number] if number in early else work(tasks[number])


def _workers_died(error: Exception) -> bool:
    """Whether the processes that ran a task were killed, or ran out of memory."""
    lost = type(error).__name__ == "KilledWorker" or _dask_stumbled(error)  # of Dask, which need not be here
    return isinstance(error, BrokenExecutor) or lost


def _dask_stumbled(error: Exception) -> bool:
    """Whether it is no error of a task: where a worker dies after its result has come, Dask takes the result for an error."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_globals.get("__name__") == "distributed.cfexecutor"


class LocalPool(Executor):
    """Processes of this machine that import taut alone, hear no interrupts, and end with the process that started them."""

    def __init__(self, workers: int) -> None:
        # Imported here because most runs read little and never need it.
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor

        self._children = multiprocessing.active_children
        self._others = set(self._children())
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with, initargs=(os.getpid(),))

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Have a worker do it; starts one if none is idle."""
        with _without_main(), Held():
            return self._pool.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the workers when they are done."""
        self._pool.shutdown(wait, cancel_futures=cancel_futures)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if kind is not None:  # interrupted or refused: nobody waits for what nobody wants
            for worker in set(self._children()) - self._others:
                worker.kill()
        self.shutdown(cancel_futures=True)
        return None


@contextmanager
def _without_main() -> Iterator[None]:
    """Start workers from taut alone: spawning would import the caller's script anew, and run it if it has no guard."""
    script, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


def _end_with(parent: int) -> None:
    """Have this worker end when the process that started it is killed (Linux; elsewhere it would wait for ever)."""
    import ctypes

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


@contextmanager
def _dask_executor(on: str) -> Iterator[Executor]:
    """An executor of the cluster whose scheduler listens there; its workers have this taut and this Python."""
    try:
        import distributed
    except ImportError:
        raise UsageError(f"--on {on}: Dask is not installed; pip install 'taut[cluster]'") from None
    with _quiet_dask():
        client = _connected(on, distributed.Client)
        try:
            _check_workers(client, on)
            pool = client.get_executor(pure=False, retries=RETRIES)
            try:
                yield pool
            finally:
                with suppress(Exception):  # of a scheduler that is gone nothing can be taken back
                    pool.shutdown(wait=False)
        finally:
            with suppress(Exception):
                client.close(timeout=LEAVE_S)


def _connected(on: str, connect: Callable[..., _Client]) -> _Client:
    try:
        with warnings.catch_warnings(action="ignore"):  # about versions of other packages
            return connect(on.removeprefix(DASK), timeout=ANSWER_S, set_as_default=False)
    except Exception:  # every transport has failures of its own
        remedy = "check host and port, or start one: dask scheduler"
        raise TautError(f"{on}: no scheduler answered within {ANSWER_S} s; {remedy}") from None


def _check_workers(client: _Client, on: str) -> None:
    """Refuse workers with another taut or another Python: what they read would be read in another way."""
    try:
        client.wait_for_workers(1, timeout=WORKERS_S)
        told = client.get_versions(packages=["taut"])["workers"]
    except Exception:
        raise TautError(f"{on}: has no worker after {WORKERS_S} s; start some: dask worker {on.removeprefix(DASK)}") from None
    python = ".".join(map(str, sys.version_info[:2]))
    for worker, about in sorted(told.items()):
        theirs = ".".join(str(about["packages"].get("python")).split(".")[:2])
        if theirs != python:
            raise TautError(f"{on}: worker {worker} runs Python {theirs}, this is {python}; start workers with the same")
        refuse_version(about["packages"].get("taut"), __version__, f"{on}: worker {worker}")


def refuse_version(theirs: str | None, ours: str, where: str) -> None:
    """Refuse a worker whose taut is another version."""
    if theirs != ours:
        has = f"has taut {theirs}" if theirs else "has no taut"
        raise TautError(f"{where} {has}, this is {ours}; install the same version there")


@contextmanager
def _quiet_dask() -> Iterator[None]:
    """What Dask logs about workers that come and go is not for a terminal of taut's; what fails is said by taut.

    After a failure it stays quiet: its threads go on to log what they lost.
    """
    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "distributed"]
    before = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)
