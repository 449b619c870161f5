"""``taut watch pull``: a job read from outside, through the debug servers that torch runs in it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, TypeVar, Unpack

import click

from taut.cli.common import say, write_out
from taut.cli.options import Real, Target
from taut.core import signals
from taut.core.errors import UsageError

if TYPE_CHECKING:
    from taut.watch.torch_workers import Worker

FOLDER = Path("taut-runs") / "pulled"
PORTS = "25950-25957"
Command = TypeVar("Command", bound=Callable[..., object])


def worker_options(command: Command) -> Command:
    """How the workers of a job are given."""
    for option in (
        click.argument("places", metavar="[HOST:PORT]...", nargs=-1),
        click.option("--slurm", metavar="JOB", help="Workers on the nodes of this Slurm job, instead of HOST:PORT."),
        click.option(
            "--port",
            "ports",
            metavar="P",
            default=PORTS,
            show_default=True,
            help="With --slurm: port of the worker on every node, or FIRST-LAST, one for each.",
        ),
    ):
        command = option(command)
    return command


class WorkerOptions(TypedDict):
    """What ``worker_options`` give a verb."""

    places: tuple[str, ...]
    slurm: str | None
    ports: str


def given_workers(given: WorkerOptions) -> list[Worker]:
    """The workers that were asked for."""
    from taut.watch.torch_workers import slurm_places, workers

    places, slurm = given["places"], given["slurm"]
    if bool(places) == (slurm is not None):
        raise UsageError("give the workers as HOST:PORT..., or --slurm JOB")
    return workers(places if slurm is None else slurm_places(slurm, given["ports"]))


@click.command(short_help="Read a job from outside, through torch's debug servers.")
@worker_options
@click.option(
    "--keep",
    metavar="FOLDER",
    type=Target(file_okay=False),
    default=str(FOLDER),
    show_default=True,
    help="Where the last two dumps of every rank are written; taut analyze reads it.",
)
@click.option(
    "--every",
    metavar="S",
    type=Real(2, 86_400),
    default=30.0,
    show_default=True,
    help="Seconds between readings; more where a reading holds ranks up for long.",
)
@click.option("--times", metavar="N", type=click.IntRange(1), help="Readings  [default: until Ctrl-C]")
def pull(keep: str, every: float, times: int | None, **workers: Unpack[WorkerOptions]) -> None:
    """Read the flight recorders of a running job, and say who holds it up.

    The job runs torch's debug server in every rank (torch.distributed.debug, docs/watch.md#from-outside). Ranks are numbered in
    the order given, HOST:FIRST-LAST gives one for each port, RANK=HOST:PORT its number. All ranks are read at once, and held up
    for less than 0.2 % of the time. Nothing is unpickled. A worker that does not answer is a missing rank.

    \b
      taut watch pull node1:25950-25957 node2:25950-25957
      taut watch pull --slurm 4711 --times 2
    """
    from taut.watch.pull import Puller, describe, nobody_read, verdict

    folder = Path(keep)
    puller = Puller(given_workers(workers), folder, every_s=every)
    readings = 0
    for _ in range(times or 1 << 62):
        wait_until(puller.due_s, puller.every_s)
        done = puller.round()
        if not done.read and not readings:
            raise nobody_read(done)
        say(describe(done))
        readings += bool(done.read)
        if done.read and readings > 1:
            write_out(verdict(folder) + "\n")
        elif done.read:
            say("a verdict needs a second reading: one alone does not show who moves")
        else:
            say(f"nobody answers any more: the job has ended, or its debug servers; its last dumps stay in {folder}")
    say(f"next: taut analyze {folder}")


def wait_until(due_s: float, usual_s: float) -> None:
    """Wait; if for longer than usual, it is said."""
    left_s = due_s - time.monotonic()
    if left_s > 1.5 * usual_s:
        say(f"next reading in {left_s:,.0f} s: more often, it would hold the job up for more than 0.2 % of the time")
    while (left_s := due_s - time.monotonic()) > 0:
        signals.check()
        time.sleep(min(left_s, 0.5))
