"""``taut control``: do the controllers of a system work with each other, or against each other?"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from taut.cli.common import announce_stdin, print_object, progress, show, shown_and_kept
from taut.cli.options import Target, price, watts
from taut.core.question_words import HIGHEST

if TYPE_CHECKING:
    from taut.core.prices import Prices
    from taut.core.tables import Trace
    from taut.result.types import ControlResult

LOGS = "logs"
"""The command that takes the arguments of ``taut control`` where they name no other; not shown."""


class _Control(click.Group):
    """A group whose arguments go to one command unless the first of them names another."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the name of that command before its arguments."""
        named = not args or args[0] in self.commands or args[0] in ctx.help_option_names
        return super().parse_args(ctx, args if named else [LOGS, *args])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """The command and its arguments; in messages the unshown one is called by the name of the group."""
        name, command, rest = super().resolve_command(ctx, args)
        return "" if name == LOGS else name, command, rest

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The help of that command, then the others."""
        logs = self.commands[LOGS]
        logs.format_help(click.Context(logs, info_name=ctx.info_name, parent=ctx.parent), formatter)
        self.format_commands(ctx, formatter)


@click.group(cls=_Control, short_help="Say whether controllers work against each other.", no_args_is_help=True)
def control() -> None:
    """Say whether controllers work against each other."""


class ControlOptions(TypedDict):
    """What is asked about logs of controllers, and what they are priced at."""

    gpu_hour: tuple[str, str] | None
    power: list[float] | None
    advice: bool
    columns: str
    seed: int


@control.command(LOGS, hidden=True)
@click.argument("inputs", metavar="LOG...", nargs=-1, required=True, type=click.Path(allow_dash=True))
@click.option("-o", "--output", "folder", metavar="RUN", type=Target(file_okay=False), help="Also write a run folder.")
@click.option("--gpu-hour", metavar="PRICE", callback=price, help="Price of one rank for one hour, for example 2.50EUR.")
@click.option(
    "--power",
    metavar="WATTS",
    callback=watts,
    help="Watts per rank: LOAD[,STALL[,IDLE]]; one left out is as the one before.",
)
@click.option("--advice", is_flag=True, help="Also try in the simulator what would remove each relation.")
@click.option(
    "--columns",
    metavar="NAMES",
    default="",
    help="Columns of a job list without a header (sacct -n), as sacct -o was given them: JobID,State,Start,End",
)
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0, HIGHEST), help="Decides every draw of the tests.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
@click.option("-q", "--quiet", is_flag=True, help="No progress and no hints on stderr.")
def of_logs(inputs: tuple[str, ...], folder: str | None, as_json: bool, quiet: bool, **asked: Unpack[ControlOptions]) -> None:
    """Say whether the controllers of a system work with each other or against each other.

    LOG is what controllers write: Slurm (sacct, slurmctld), Kubernetes (events, audit logs), Ray Serve, torchrun,
    job tables, spans with retries, series of replicas or limits, a plain log or table of actions (docs/control-logs.md),
    or - for standard input. Formats are recognised, and logs given together are read as one system.

    \b
      taut control slurmctld.log rescuer.log
      sacct -j 1234 --json | taut control -
      taut control attempts.jsonl --advice
      taut control slurmctld.log --gpu-hour 2.50EUR --power 550,150
      taut control review loops.toml changed.toml
    """
    from msgspec.structs import replace

    from taut.control.relation_price import priced
    from taut.control.relations import control as relate
    from taut.core.errors import NotATrace
    from taut.core.folder import checked_target
    from taut.read.trace import read

    seed, gpu_hour, power = asked["seed"], asked["gpu_hour"], asked["power"]
    if folder is not None:
        checked_target(Path(folder))
    announce_stdin(inputs)
    with progress(quiet) as stage:
        stage("reading")
        trace = read(inputs, columns=asked["columns"])
        if not len(trace.actions) and not len(trace.attempts) and "calls" not in trace.counts:
            raise NotATrace(trace.source, "nobody decides anything here", "give logs of controllers; see docs/control-logs.md")
        stage("relating")
        found = relate(trace, seed=seed)
        found = replace(found, relations=[priced(one, _prices(gpu_hour, power)) for one in found.relations])
        if asked["advice"]:
            found = _advised(trace, found, seed, stage)
        result = replace(found, name=trace.name, counts=dict(trace.counts))
    save = None if folder is None else partial(_save, folder, trace, result, (seed, asked["advice"], gpu_hour, power))
    remedy = "give -o a folder that can be written"
    shown_and_kept(lambda: _show(result, as_json), save, "the run folder", remedy, quiet)


def _prices(gpu_hour: tuple[str, str] | None, power: list[float] | None) -> Prices:
    from decimal import Decimal

    from taut.core.prices import Prices

    load, stall, idle = (*(power or ()), None, None, None)[:3]
    amount, currency = (Decimal(gpu_hour[0]), gpu_hour[1]) if gpu_hour else (None, None)
    return Prices(amount, currency, load, stall, idle)


def _show(result: ControlResult, as_json: bool) -> None:
    if as_json:
        print_object(result)
        return
    from taut.render.control_screen import render_control

    show(render_control, result)


def _advised(trace: Trace, result: ControlResult, seed: int, stage: Callable[[str], None]) -> ControlResult:
    """Give each relation what removes it in the simulator, and say where nothing could be checked."""
    from msgspec.structs import replace

    from taut.project.loops.from_log import advise_log

    found, notes = advise_log(trace, result.relations, seed=seed, stage=stage)
    relations = [replace(one, advice=advice) for one, advice in zip(result.relations, found, strict=True)]
    return replace(result, relations=relations, partial=[*result.partial, *notes])


@control.command("review", short_help="Say what a change of control loops would start.")
@click.argument("configurations", metavar="[OLD] NEW", nargs=-1, required=True, type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
@click.option("-q", "--quiet", is_flag=True, expose_value=False, hidden=True)
def of_change(configurations: tuple[str, ...], as_json: bool) -> None:
    """Compare two configurations of control loops before the second is deployed: what it adds, and what would fight.

    OLD and NEW are TOML files of loops (docs/control-loops.md says what they hold), or scenarios with control loops: files, or
    names of those that ship with taut. NEW alone is held against nothing: all of it is added.

    \b
      taut control review loops.toml changed.toml
      taut control review retry-heavy
    """
    from taut.briefing.loop_review import loops_of
    from taut.control.review import review

    if len(configurations) > 2:
        raise click.UsageError(f"{len(configurations)} configurations: give one, or the old one and the new one")
    old, new = ((), *map(loops_of, configurations))[-2:]
    result = review(old, new)
    if as_json:
        print_object(result)
        return
    from taut.render.review_screen import render_review

    show(render_review, result)


def _save(folder: str, trace: Trace, result: ControlResult, options: tuple[object, ...]) -> Path:
    """A run folder: the actions and the attempts as tables, and the result."""
    import pyarrow.parquet as pq

    from taut.run import digest, save_run

    def write(scratch: Path) -> dict[str, object]:
        for name, table in (("actions", trace.actions), ("attempts", trace.attempts), ("metrics", trace.metrics)):
            if len(table):
                pq.write_table(table.to_arrow(), scratch / f"{name}.parquet", compression="lz4")
        return {"digest": digest(trace, *options), "result": result, "graph": None}

    return save_run(folder, "control", write)
