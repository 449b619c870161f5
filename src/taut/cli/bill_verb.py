"""``taut bill``: what jobs cost, where that went, and whether it closes to what was invoiced."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from taut.cli.common import announce_stdin, print_object, progress, say, show, shown_and_kept
from taut.cli.options import Real, Target, on_option, price, watts
from taut.core.errors import UsageError

if TYPE_CHECKING:
    from taut.core.prices import Prices
    from taut.result.types import BillResult

DRILLS = ("cause", "rank", "host", "job", "team", "day")


def drill(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """One of ``DRILLS``."""
    if value is None or value in DRILLS:
        return value
    alike = get_close_matches(value, DRILLS, 1)
    meant = f"did you mean {alike[0]}? " if alike else ""
    raise click.BadParameter(f"{value!r}: {meant}give one of {', '.join(DRILLS)}")


class PriceOptions(TypedDict):
    """What time and energy are priced at: a file, or the options in its place."""

    file: str | None
    gpu_hour: tuple[str, str] | None
    power: list[float] | None
    carbon: float | None


class BillOptions(PriceOptions):
    """What is billed, and what it is closed to."""

    focus: tuple[str, ...]
    period: str | None
    currency: str | None
    columns: str
    on: str | None


@click.command(short_help="Say what jobs cost, where that went, and whether it closes to the bill.")
@click.argument("inputs", metavar="IN...", nargs=-1, type=click.Path(allow_dash=True))
@click.option(
    "--prices", "file", metavar="FILE", type=click.Path(), help="Rates, tariffs, power, carbon, promises, budget: prices.toml."
)
@click.option(
    "--gpu-hour",
    "gpu_hour",
    metavar="PRICE",
    callback=price,
    help="Price of an accelerator hour, in place of --prices: 2.50EUR.",
)
@click.option("--power", metavar="WATTS", callback=watts, help="Watts of an accelerator without --prices: LOAD[,STALL[,IDLE]].")
@click.option("--carbon", metavar="KG", type=Real(0, 1000), help="kg CO2e per kWh without --prices; needs --power.")
@click.option(
    "--focus",
    metavar="BILL",
    multiple=True,
    type=click.Path(),
    help="FOCUS bill (CSV or Parquet, file or folder); may be given again.",
)
@click.option(
    "--period",
    metavar="TIME",
    help="2026-10, 2026-10-05 or 2026-10-01/2026-10-15 (without its last day), in UTC  [default: that of the bill]",
)
@click.option("--currency", metavar="CODE", help="Which charges to take of a bill in two currencies, for example EUR.")
@click.option("--by", metavar="WHAT", callback=drill, help="Also show one drill-down: cause, rank, host, job, team or day.")
@click.option("--columns", metavar="NAMES", default="", help="Columns of a job list without a header (sacct -n).")
@click.option(
    "-o", "--output", "folder", metavar="OUT", type=Target(file_okay=False), help="Also write the bill as a run folder."
)
@on_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
@click.option("-q", "--quiet", is_flag=True, help="No progress and no hints on stderr.")
def bill(
    inputs: tuple[str, ...], folder: str | None, by: str | None, as_json: bool, quiet: bool, **options: Unpack[BillOptions]
) -> None:
    """Say what jobs cost, where every unit of it went, and whether that closes to what was invoiced.

    IN is run folders (of taut analyze or taut control), job logs and tables of jobs: one job, or a cluster's month. The
    bill prices what was analysed and never analyses again. Without a price it still says where the time went.

    \b
      taut bill RUN --gpu-hour 2.50EUR
      taut bill sacct.txt --prices prices.toml --period 2026-10 --by team
      taut bill RUN sacct.txt --prices prices.toml --focus october.csv -o october
      taut export october --to focus
    """
    from taut.billing import bill as run_bill
    from taut.core.folder import checked_target

    given = _price_options(options)
    if folder is not None:
        checked_target(Path(folder))
    announce_stdin(inputs)
    with progress(quiet) as stage:
        found = run_bill(
            inputs,
            prices=given,
            focus=options["focus"],
            period=options["period"],
            currency=options["currency"],
            columns=options["columns"],
            progress=stage,
            on=options["on"],
        )
    save = None if folder is None else lambda: found.save(folder)
    shown_and_kept(lambda: _show(found.result, as_json, by), save, "the bill", "give -o a folder that can be written", quiet)
    if not quiet and not as_json:
        say(_next(found.result, inputs, folder))


def _price_options(priced: PriceOptions) -> Prices | str | None:
    """The prices as options give them, or the file that holds them."""
    from decimal import Decimal

    from taut.core.prices import Prices

    file, gpu_hour, power, carbon = priced["file"], priced["gpu_hour"], priced["power"], priced["carbon"]
    options = {"--gpu-hour": gpu_hour, "--power": power, "--carbon": carbon}
    if file is not None:
        beside = next((name for name, value in options.items() if value is not None), None)
        if beside is not None:
            raise UsageError(f"{beside} and --prices: give one of them; {file} may hold both")
        return file
    if carbon is not None and power is None:
        raise UsageError("--carbon needs --power: without watts there are no kWh")
    load, stall, idle = (*(power or ()), None, None, None)[:3]
    amount, currency = (Decimal(gpu_hour[0]), gpu_hour[1]) if gpu_hour else (None, None)
    return Prices(amount, currency, load, stall, idle, carbon)


def _show(result: BillResult, as_json: bool, by: str | None) -> None:
    if as_json:
        print_object(result)
        return
    from taut.render.bill_screen import render_bill

    show(lambda found, screen: render_bill(found, screen, by), result)


def _next(result: BillResult, inputs: tuple[str, ...], folder: str | None) -> str:
    """What to do next: what is missing most, else what to look at."""
    if result.accrual.ledger is None:
        return "next: give a price, --gpu-hour 2.50EUR or --prices prices.toml (docs/bill-prices.md)"
    if result.unmatched:
        return "next: name the hosts of unmatched resources under [hosts] in prices.toml (docs/bill-prices.md)"
    if result.accrual.effective is None:
        return "next: --focus BILL closes this to what was invoiced"
    if folder is not None:
        return f"next: taut export {folder} --to focus"
    return f"next: taut bill {' '.join(inputs[:2])} … --by job, or -o OUT to keep it"
