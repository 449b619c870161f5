"""``taut export``: a finished run, or a bill, in the forms that other tools open."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from taut.cli.common import reason, say, write_out
from taut.cli.options import Target, force_option
from taut.core.errors import TautError, UsageError

if TYPE_CHECKING:
    from taut.audit.trust import Replaceable
    from taut.result.types import Zone
    from taut.run import Run

FOCUS_VERSIONS = ("1.0", "1.2", "1.4")


@click.command(short_help="Write a finished run or a bill in a form that other tools open.")
@click.argument("run", metavar="RUN", required=False, type=click.Path())
@click.option(
    "--to", "form", type=click.Choice(["html", "perfetto", "focus", "schema"]), required=True, help="The form to write."
)
@click.option(
    "-o",
    "--output",
    "file",
    metavar="FILE",
    type=Target(dir_okay=False, allow_dash=True),
    help="File to write, - for standard output  "
    "[default: RUN/taut.html, RUN/perfetto.pftrace, RUN/focus.csv; a schema is printed]",
)
@click.option(
    "--zone",
    metavar="K",
    type=click.IntRange(min=1),
    help="Only the zone of the K-th relation between controllers: the ops of the ranks they hit, from first to last.",
)
@click.option("--version", type=click.Choice(FOCUS_VERSIONS), help="Version of FOCUS to write  [default: 1.4]")
@click.option("--parquet", is_flag=True, help="Write FOCUS as Parquet instead of CSV.")
@force_option
def export(
    run: str | None, form: str, file: str | None, zone: int | None, version: str | None, parquet: bool, force: bool
) -> None:
    """Write a finished run or a bill in a form that other tools open.

    HTML is one file to share: overview, timeline, structure, what-ifs, where the money went and decisions of a run, or
    the pages of a bill, of controllers or of a scenario, with their data. It opens from disk in any browser, asks for
    nothing from elsewhere, and is the same each time. Needs the extra: pip install 'taut[brief]'.

    A Perfetto trace (open it at ui.perfetto.dev) has ranks as processes, lanes as threads and ops as slices, arrows from
    the last at a gate to those it held up, waits, blame and findings as tracks of each rank, and every rank once more
    with the ideal replay. Needs the extra: pip install 'taut[export]'.

    A bill (the run folder that taut bill -o writes) becomes rows of FOCUS: every charge in parts by job, fate and cause,
    whose costs add up to it and whose ratios add up to 1. A bill without charges is one of the provider "internal".

    The JSON Schema of what --json prints needs no RUN.

    \b
      taut export RUN --to html -o monday.html
      taut export RUN --to perfetto
      taut export RUN --to perfetto -o - | gzip > run.pftrace.gz
      taut export RUN --to perfetto --zone 1 -o zone.pftrace
      taut export BILL --to focus -o october.csv
      taut export BILL --to focus --version 1.2 --parquet -o october.parquet
      taut export --to schema > taut.schema.json
    """
    for name, given, wants in (("--zone", zone, "perfetto"), ("--version", version, "focus"), ("--parquet", parquet, "focus")):
        if given and form != wants:
            raise UsageError(f"{name} is of --to {wants}, not of --to {form}")
    if form == "schema":
        _export_schema(file, force)
        return
    if run is None:
        raise UsageError("give the RUN to export")
    if form == "html":
        _export_pages(run, file, force)
    elif form == "focus":
        _export_bill(run, file, version or FOCUS_VERSIONS[-1], parquet, force)
    else:
        _export_trace(run, file, zone, force)


def _export_schema(file: str | None, force: bool) -> None:
    from taut.result.schema import stored_schema

    if file is None or file == "-":
        write_out(stored_schema())
        return
    from taut.audit.trust import replaceable

    target = replaceable(Path(file), force)
    data = stored_schema()
    with _written(target) as out:
        out.write(data)


def _export_pages(run: str, file: str | None, force: bool) -> None:
    from taut.audit.trust import replaceable
    from taut.core.folder import add_file, is_run_folder
    from taut.export import html
    from taut.stored import refusing_runs

    path = Path(file) if file else Path(run) / "taut.html"
    target = None if file == "-" else replaceable(path, force)
    with refusing_runs(run):
        page = html(run)
    if target is None:
        write_out(page)
        return
    with _written(target) as out:
        out.write(page)
    if is_run_folder(run) and path.parent.samefile(run):
        add_file(Path(run), path.name)


def _export_bill(run: str, file: str | None, version: str, parquet: bool, force: bool) -> None:
    if parquet and (file is None or (file == "-" and sys.stdout.isatty())):
        raise UsageError("--parquet: give a file with -o, or -o - and send it through a pipe")
    from taut.audit.trust import replaceable
    from taut.core.folder import add_file
    from taut.export import focus
    from taut.stored_bill import open_bill, refusing_bill

    bill = open_bill(run)
    if file == "-":
        with refusing_bill(run):
            notes = focus(bill, sys.stdout.buffer, version, columnar=parquet)
        write_out(b"")
    else:
        path = Path(file) if file else bill.folder / "focus.csv"
        target = replaceable(path, force)
        with refusing_bill(run), _written(target) as out:
            notes = focus(bill, out, version, columnar=parquet)
        if path.parent.samefile(bill.folder):
            add_file(bill.folder, path.name)
    for note in notes:
        say(note)


def _export_trace(run: str, file: str | None, zone: int | None, force: bool) -> None:
    if file == "-" and sys.stdout.isatty():
        raise UsageError("-o -: a trace is not for a terminal; give a file, or send it through a pipe")
    from taut.audit.trust import replaceable
    from taut.core.folder import add_file
    from taut.export import perfetto
    from taut.run import open_run
    from taut.stored import refusing_runs

    opened = open_run(run)
    shown, part = (opened.graph, opened.waits, opened.result.findings), _zone(opened, zone)
    if file == "-":
        perfetto(*shown, sys.stdout.buffer, part)
        write_out(b"")
        return
    path = Path(file) if file else opened.folder / ("perfetto.pftrace" if zone is None else f"perfetto-zone{zone}.pftrace")
    target = replaceable(path, force)
    with refusing_runs(run), _written(target) as out:
        perfetto(*shown, out, part)
    if path.parent.samefile(opened.folder):
        add_file(opened.folder, path.name)


@contextmanager
def _written(target: Replaceable) -> Iterator[BinaryIO]:
    """A file that appears when it is complete; says so, or why not."""
    from taut.audit.trust import replacing

    try:
        with replacing(target) as out:
            yield out
    except OSError as error:
        raise TautError(f"{target.path}: cannot be written ({reason(error)}); give another -o") from None
    say(f"written: {target.path}")


def _zone(run: Run, number: int | None) -> Zone | None:
    """The zone of a relation, by its number in the result."""
    if number is None:
        return None
    relations = run.result.control.relations if run.result.control else []
    zones = {k: one.zone for k, one in enumerate(relations, 1) if one.zone and one.zone.ops}
    if number not in zones:
        have = ", ".join(map(str, zones)) or "none: no relation between controllers lies on the graph"
        raise UsageError(f"--zone {number}: the run has {have}")
    return zones[number]
