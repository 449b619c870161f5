"""``taut watch capture``: dumps, then a profile of all ranks at the same steps, then its analysis as a run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from taut.cli.common import FAILED, kept, progress, say, show
from taut.cli.options import Real, Target
from taut.cli.watch_pull import WorkerOptions, given_workers, worker_options
from taut.cli.watch_top import FOLDER
from taut.core import signals
from taut.core.errors import RunError, UsageError

if TYPE_CHECKING:
    from taut.result.types import LiveFinding
    from taut.watch.captures import Capture
    from taut.watch.torch_workers import Worker

TAKEN_S, POLL_S = 10.0, 0.25
SAVING = "the analysis is shown above; free some space, or give another folder with -o"


@click.command(short_help="Profile all ranks of a running job at the same steps, and analyze it.")
@worker_options
@click.option("--job", metavar="J", default="", help="Job that the collector hears  [default: the only one]")
@click.option(
    "--seconds",
    metavar="S",
    type=Real(0.1, 10),
    default=5.0,
    show_default=True,
    help="How long the profile is, about; of fewer than 20 steps who is slow is often not sure.",
)
@click.option(
    "--keep",
    metavar="FOLDER",
    type=Target(file_okay=False),
    default=str(FOLDER),
    show_default=True,
    help="Where the collector keeps: it is asked there.",
)
@click.option(
    "--traces",
    metavar="FOLDER",
    type=Target(file_okay=False),
    help="Where ranks write profiles, as seen from here  [default: TAUT_WATCH_TRACES, else a temporary folder]",
)
@click.option("-o", "--output", "folder", metavar="RUN", type=Target(), help="Run folder  [default: taut-runs/…]")
def capture(
    job: str, seconds: float, keep: str, traces: str | None, folder: str | None, **workers: Unpack[WorkerOptions]
) -> None:
    """Dump the flight recorders of a running job, profile a few seconds of all ranks, and analyze it.

    Without HOST:PORT the collector of this folder asks the ranks that allow it (TAUT_WATCH_PROFILE=1 in the job): all profile
    the same steps. With HOST:PORT, torch's debug servers are asked (docs/watch.md#from-outside): at the same time, not at the
    same step. A profile costs: the job is slower while it lasts. The run is kept in taut-runs, and taut serve shows it.

    \b
      taut watch capture --job 4711
      taut watch capture node1:25950-25957 node2:25950-25957
    """
    from taut.watch.profile_on_request import traces_folder

    where = Path(traces) if traces is not None else traces_folder()
    if workers["places"] or workers["slurm"] is not None:
        if job:
            raise UsageError("--job is of a collector: give it, or HOST:PORT")
        files = _from_workers(given_workers(workers), where / f"pulled-{time.time_ns()}", seconds)
    else:
        files = _from_collector(Path(keep), job, seconds, where)
    _analyze(files, folder)


def _from_workers(some: Sequence[Worker], folder: Path, seconds: float) -> list[Path]:
    from taut.watch.pull import Puller, describe, missing_ranks, nobody_read, profile

    puller = Puller(some, folder / "dumps")
    first = puller.round()
    if not first.read and not first.held_s:  # nobody answered anything
        raise nobody_read(first)
    say(describe(first))
    say(f"a profile of {seconds:g} s: the job is slower meanwhile")
    missing = profile(some, folder, seconds)
    for line in missing_ranks(missing):
        say(line)
    say(describe(puller.round()))
    return [folder]


def _from_collector(keep: Path, job: str, seconds: float, traces: Path) -> list[Path]:
    from taut.watch.captures import ask_in, written

    if not keep.is_dir():
        raise UsageError(f"--keep {keep}: no collector keeps there; start taut watch collect, or name its folder")
    done = _waited(ask_in(keep, job, seconds))
    if done.state == "refused":
        raise UsageError(done.text)
    for line in _not_written(done):
        say(line)
    found = written(done, traces)
    if not found:
        told = f" ({done.wrote})" if done.wrote else ""
        raise RunError(f"{traces}: no profile and no dump of this capture is here{told}; give the folder with --traces")
    if done.wrote and not any(path.is_dir() or path.name.startswith("rank") for path in found):
        say(f"{traces}: profiles were written, but not here: only dumps are analyzed; give the folder with --traces")
    return found


def _waited(path: Path) -> Capture:
    """The capture when it is done, or refused."""
    from taut.render.text import count
    from taut.watch.captures import MOST_S, standing, withdraw

    began, said = time.monotonic(), False
    try:
        while True:
            signals.check()
            found, took_s = standing(path), time.monotonic() - began
            if found is not None and found.state != "asked":
                path.unlink(missing_ok=True)
                return found
            if found is not None and not said:
                said = True
                steps = f"steps {found.step} to {found.step + found.steps - 1}"
                say(f"{found.job}: {steps} are profiled, of {count(len(found.ranks), 'rank')}; the job is slower meanwhile")
            if (found is None and took_s > TAKEN_S) or took_s > MOST_S + TAKEN_S:
                raise RunError(
                    f"{path.parent}: no collector answers there; start taut watch collect, or name its folder with --keep"
                )
            time.sleep(POLL_S)
    finally:
        withdraw(path)


def _not_written(done: Capture) -> list[str]:
    from taut.watch.pull import missing_ranks

    return missing_ranks({rank: state for rank, state in done.ranks.items() if state != "written"})


def _analyze(files: Sequence[Path], folder: str | None) -> None:
    from taut.render.analysis_screen import render
    from taut.run import analyze

    with progress(quiet=False) as stage:
        analysis = analyze(list(files), progress=stage)
        result = analysis.result
    show(lambda result, screen: render(result, screen, False, False), result)
    run = kept(lambda: analysis.save(folder), "the run folder", SAVING)
    if run is None:
        click.get_current_context().exit(FAILED)
    say(f"next: taut serve {run.parent}")


class CaptureOnFinding:
    """Starts ``taut watch capture`` when a finding opens, for each job at most once in so many minutes."""

    def __init__(self, keep: str, every_s: float) -> None:
        self._keep, self._every_s = keep, every_s
        self._last_s: dict[str, float] = {}
        self._running: list[subprocess.Popen[bytes]] = []

    def on_finding(self, finding: LiveFinding) -> None:
        """A finding has opened, or closed."""
        from taut.watch.captures import CAPTURED

        self._running = [one for one in self._running if one.poll() is None]
        if any(note.startswith(CAPTURED) for note in finding.cannot_see):
            return
        now = time.monotonic()
        if finding.state != "open" or now - self._last_s.get(finding.job, -self._every_s) < self._every_s or self._running:
            return
        self._last_s[finding.job] = now
        say(f"{finding.job}: it is captured, because of this finding")
        command = [sys.executable, "-m", "taut", "watch", "capture", f"--job={finding.job}", f"--keep={self._keep}"]
        try:
            self._running.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=os.environ))
        except OSError as error:
            say(f"{finding.job}: it could not be captured: {error.strerror}")
