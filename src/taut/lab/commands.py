"""``taut lab``: run real jobs with real faults, and score what the analysis makes of them."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from taut.cli.options import on_option
from taut.core.errors import TautError, UsageError
from taut.core.json_text import json_text
from taut.core.whole_file import whole_file

if TYPE_CHECKING:
    from taut.lab.case import Spec
    from taut.lab.score import Row

_SEED = click.option(
    "--seed", type=click.IntRange(0, 2**31), default=0, show_default=True, help="Draws place, onset and strength."
)
_DEVICE = click.option(
    "--device",
    default="cpu",
    show_default=True,
    help="cpu, or cuda: all ranks on one GPU, without root (docs/lab.md).",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print the rows and their summary as one JSON object.")

DECIDED = ("slow", "link", "stall", "checkpoint", "loader", "drift")
"""Faults of ``lab decide``."""


class _About(TypedDict):
    """The options of a lab run: fields of ``Spec``."""

    job: str
    fault: str
    ranks: int
    seed: int
    steps: int
    device: str
    from_start: bool
    places: str


class _Chosen(TypedDict):
    """The options of a matrix: fields of ``Chosen``."""

    jobs: tuple[str, ...]
    faults: tuple[str, ...]
    ranks: int | None
    device: str
    only: tuple[str, ...]


@click.group(short_help="Run real jobs with real faults and score the analysis.")
def lab() -> None:
    """Real multi-rank jobs on this machine, real faults, known truth, and a score.

    Running jobs needs Linux, root and torch (pip install 'taut[lab]'); scoring and modelled jobs need neither.
    """


@lab.command(short_help="Run one job with one fault.")
@click.option("--job", required=True, help="ddp, fsdp, tp-fsdp, pipeline, hsdp, or plain: processes without torch.")
@click.option("--fault", default="none", show_default=True, help="What to do to it: slow, link, stall, … (see docs/lab.md).")
@click.option("--ranks", type=int, default=4, show_default=True, help="Processes, each in its own network namespace.")
@_SEED
@click.option("--steps", type=click.IntRange(1, 1_000_000), default=30, show_default=True, help="Steps of each recorded part.")
@_DEVICE
@click.option("--from-start", is_flag=True, help="The fault is there from the first analysed step: there is no past.")
@click.option("--places", default="1", show_default=True, help="How many ranks have the fault; host: all ranks of one host.")
@click.option("-o", "--output", type=click.Path(), required=True, help="Folder for traces, logs and truth.json.")
def run(output: str, **about: Unpack[_About]) -> None:
    """Run a job with a fault between two runs without it, record it, and write down the truth.

    Then: taut analyze DIR/faulted, and: taut lab score DIR.
    """
    from taut.lab.case import Spec
    from taut.lab.run_case import Runner

    spec = Spec(folder=str(Path(output).resolve()), **about)
    spec.check()
    with Runner(spec.device) as runner:
        seconds = runner.run(spec)
    click.echo(f"{output}: {spec.job} with {spec.fault}, {spec.ranks} ranks, {seconds:.0f} s", err=True)


@lab.command(short_help="Score what the analysis makes of lab runs.")
@click.argument("folders", metavar="DIR...", nargs=-1, required=True, type=click.Path())
@click.option("--ladder", "with_ladder", is_flag=True, help="Also analyse each run from less: what must a site record?")
@click.option("-o", "--output", type=click.Path(), help="Folder for the table (JSON, CSV, Markdown) and its plots.")
@_JSON
def score(folders: tuple[str, ...], with_ladder: bool, output: str | None, as_json: bool) -> None:
    """Analyze lab runs, alone and with their first healthy part as baseline, and compare with their truth."""
    from taut.lab.matrix import BUILT, judge

    runs = [found for folder in folders for found in _runs(Path(folder))]
    rows = []
    for number, folder in enumerate(runs):
        rows.append(judge(folder))
        _print_progress(number + 1, len(runs), rows[-1])
    _result(rows, output, as_json)
    if with_ladder:
        from rich.console import Console

        from taut.lab.ladder import ladder, recorded, tables

        grids = tables(ladder((recorded(folder) for folder in runs), BUILT))
        for grid in grids:
            grid.show(Console(stderr=as_json))
        if output:
            with whole_file(Path(output, "ladder.md")) as out:
                out.write("\n".join(grid.markdown() for grid in grids).encode())


@lab.command(short_help="Run and score a whole matrix of jobs and faults.")
@_SEED
@click.option("--job", "jobs", multiple=True, help="Only these jobs (may be repeated).")
@click.option("--fault", "faults", multiple=True, help="Only these faults (may be repeated).")
@click.option("--ranks", type=int, help="Ranks of the real jobs.  [default: 4, 8 and some 16]")
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(("past", "start", "healthy", "structural")),
    help="Only faults that begin in mid-run, that are there from the start, healthy runs, or jobs without a culprit "
    "(may be repeated).",
)
@_DEVICE
@on_option
@click.option("--modelled", is_flag=True, help="Generated jobs of 64 to 1,024 ranks instead of real ones; needs no root.")
@click.option("-o", "--output", type=click.Path(), required=True, help="Folder for runs, table and plots.")
@_JSON
def matrix(seed: int, modelled: bool, on: str | None, output: str, as_json: bool, **chosen: Unpack[_Chosen]) -> None:
    """Run every fault on several jobs, and healthy jobs beside them; print the table and write it with plots.

    A run that is already in the folder is scored and not run again, so an interrupted matrix goes on where it stopped.
    """
    from taut.lab import matrix as plans

    if on is not None and not modelled:
        raise UsageError("--on needs --modelled: real jobs run on this machine, one after the other")
    rows: list[Row] = []
    if modelled:
        runs = list(plans.model_plan(seed, chosen["jobs"], chosen["faults"]))
        for row in plans.judge_model(runs, on or "local"):
            rows.append(row)
            _print_progress(len(rows), len(runs), row)
    else:
        specs = plans.plan(seed, Path(output).resolve() / "runs", plans.Chosen(**chosen))
        for spec in specs:
            spec.check()
        rows = _run_all(specs)
    _result(rows, output, as_json)


@lab.command(short_help="Run control loops that fail, and score taut control.")
@click.option("-o", "--output", type=click.Path(file_okay=False), required=True, help="Folder for logs, truth and results.")
@click.option("--experiment", "experiments", multiple=True, help="pair, torchrun or slurm; may be repeated. [default: all]")
@_SEED
@click.option("--short", is_flag=True, help="The same with shorter times.")
def control(output: str, experiments: tuple[str, ...], seed: int, short: bool) -> None:
    """Run real control loops that fail and that do not, and score what taut control makes of their logs alone.

    pair: a client with and without retries, and a server that stalls once. torchrun: restarts against a stall that is longer
    than the timeout of a collective (needs torch). slurm: preemption against a rescuer, in a private cluster (needs Slurm and
    root). What cannot run here is left out. What is predicted is written before anything runs.
    """
    from rich.console import Console

    from taut.lab.control_lab import EXPERIMENTS, Row, run, show

    unknown = [name for name in experiments if name not in EXPERIMENTS]
    if unknown:
        raise UsageError(f"no experiment {unknown[0]}; there are: {', '.join(EXPERIMENTS)}")
    rows = []
    for report in run(experiments or tuple(EXPERIMENTS), Path(output), seed, short):
        if isinstance(report, Row):
            rows.append(report)
        else:
            click.echo(report, err=True)
    if rows:
        show(rows, Console())


@lab.command(short_help="Mend real faults, and hold what was expected against what came of it.")
@click.option(
    "-o", "--output", type=click.Path(file_okay=False), required=True, help="Folder for jobs, runs and their audit log."
)
@click.option("--faults", default=",".join(DECIDED), show_default=True, help="Faults, with commas between them.")
@click.option("--job", default="ddp", show_default=True, help="ddp, fsdp, tp-fsdp, pipeline or hsdp.")
@_SEED
@click.option("--steps", type=click.IntRange(1, 1_000_000), default=30, show_default=True, help="Steps of each recorded part.")
@click.option("--runs", type=click.IntRange(1, 9), default=3, show_default=True, help="Runs of each mended job.")
@_JSON
def decide(output: str, faults: str, job: str, seed: int, steps: int, runs: int, as_json: bool) -> None:
    """Run a job with a fault, decide on its first finding, run the job mended, and say whether the expected saving came true.

    The decision expects what the finding says that its repair saves. Everything is recorded in DIR/taut-runs/audit.db as
    taut analyze, audit decide and audit outcome record it; taut audit log and why show it, and audit verify checks it.
    """
    from taut.lab.case import Spec
    from taut.lab.decision_lab import chains, decide_all, show

    rows = []
    about = Spec(job=job, fault="none", seed=seed, steps=steps, folder="")
    for row in decide_all(chains(Path(output), faults.split(","), about, runs)):
        rows.append(row)
        click.echo(f"{row.fault}: {row.says}", err=True)
    if as_json:
        click.echo(f"{json_text({'rows': rows})}\n".encode(), nl=False)
    else:
        show(rows)
    click.echo(f"next: taut audit log --audit {shlex.quote(str(Path(output, 'taut-runs', 'audit.db')))}", err=True)


def _run_all(specs: Sequence[Spec]) -> list[Row]:
    from taut.lab.matrix import judge
    from taut.lab.run_cases import run_all
    from taut.lab.truth import TRUTH

    began = time.monotonic()
    missing = [spec for spec in specs if not Path(spec.folder, TRUTH).exists()]
    for number, (spec, error) in enumerate(run_all(missing)):
        if error is not None:
            click.echo(f"taut: {error}", err=True)
        click.echo(f"[{number + 1}/{len(missing)}] {Path(spec.folder).name}, {time.monotonic() - began:.0f} s", err=True)
    return [judge(Path(spec.folder)) for spec in specs if Path(spec.folder, TRUTH).exists()]


def _runs(folder: Path) -> list[Path]:
    """The lab runs in a folder: itself, or those below it."""
    from taut.lab.truth import TRUTH

    found = sorted(path.parent for path in folder.rglob(TRUTH))
    return found or [folder]


def _print_progress(number: int, of: int, row: Row) -> None:
    if sys.stderr.isatty():
        click.echo(f"\r[{number}/{of}] {row.job} with {row.fault}: {row.verdict}\x1b[K", err=True, nl=number == of)


def _result(rows: Sequence[Row], output: str | None, as_json: bool) -> None:
    from rich.console import Console

    from taut.lab.score import summarise
    from taut.lab.score_table import show, write

    if as_json:
        click.echo(f"{json_text({'rows': list(rows), 'summary': summarise(rows)})}\n".encode(), nl=False)
    else:
        show(rows, Console())
    if output:
        try:
            Path(output).mkdir(parents=True, exist_ok=True)
            for line in write(rows, Path(output)):
                click.echo(line, err=True)
        except OSError as error:
            raise TautError(f"{output}: cannot be written ({error.strerror}); give another -o") from None
