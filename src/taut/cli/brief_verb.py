"""``taut brief``: the document on which people decide."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from taut.cli.common import print_object, progress, shown_and_kept
from taut.cli.options import Target, force_option, price
from taut.core.errors import UsageError
from taut.core.question_words import HIGHEST

if TYPE_CHECKING:
    from taut.audit.trust import Replaceable
    from taut.core.prices import Prices


class BriefOptions(TypedDict):
    """What a briefing is made with beside its inputs."""

    gpu_hour: tuple[str, str] | None
    prices_file: str | None
    focus: tuple[str, ...]
    seed: int


@click.command(short_help="Write the briefing on which people decide.")
@click.argument("inputs", metavar="IN...", nargs=-1, type=click.Path())
@click.option(
    "-o",
    "--output",
    "files",
    metavar="FILE",
    multiple=True,
    type=Target(dir_okay=False),
    help="brief.html, brief.pdf or brief.md; may be given again  [default: brief.html]",
)
@click.option("--gpu-hour", metavar="PRICE", callback=price, help="Price of an accelerator hour, for example 2.50EUR.")
@click.option(
    "--prices", "prices_file", metavar="FILE", type=click.Path(), help="Rates, tariffs, power, promises: prices.toml."
)
@click.option("--focus", metavar="BILL", multiple=True, type=click.Path(), help="FOCUS bill of the runs; may be given again.")
@click.option("--redact", is_flag=True, help="Take hosts, jobs, people and other names out.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0, HIGHEST), help="Decides every draw.")
@force_option
@click.option("--json", "as_json", is_flag=True, help="Print questions, causes and demands as one JSON object.")
@click.option("-q", "--quiet", is_flag=True, help="No progress and no hints on stderr.")
def brief(
    inputs: tuple[str, ...],
    files: tuple[str, ...],
    redact: bool,
    force: bool,
    as_json: bool,
    quiet: bool,
    **asked: Unpack[BriefOptions],
) -> None:
    """Write the Architecture Risk Briefing: one document for those who decide, from what was measured and modelled.

    IN is run folders (of taut analyze, taut control or taut bill), scenarios (by shipped name or TOML file) and logs of
    controllers; several together make one briefing, and several runs of a job are compared. Nothing is analysed again.
    The same inputs give the same bytes, whatever the file is called. Needs the extra: pip install 'taut[brief]'.

    \b
      taut brief RUN --gpu-hour 2.50EUR -o brief.pdf
      taut brief BEFORE AFTER --prices prices.toml --focus october.csv -o brief.html -o brief.pdf
      taut brief large-training -o brief.html
      taut brief slurmctld.log rescuer.log -o brief.md
      taut brief RUN --redact -o for-the-vendor.pdf
    """
    from taut.briefing.brief import make_brief
    from taut.briefing.inputs import Asked
    from taut.cli.recording import log_path

    targets = [Path(file) for file in files] or ([] if as_json else [Path("brief.html")])
    replaced = _check(targets, force)
    _one_heap()
    prices, words = _prices(asked["gpu_hour"], asked["prices_file"])
    with progress(quiet) as stage:
        question = Asked(prices, words, asked["focus"], asked["seed"], stage)
        made = make_brief(inputs, question, log_path(click.get_current_context()))
        made = made.redacted() if redact else made
        stage("rendering")
        rendered = {path: made.form(path.suffix.lower()) for path in targets}  # nothing is written before all are made
    if as_json:
        print_object(made.result)
    for path, data in rendered.items():
        shown_and_kept(
            lambda: None, partial(_write, replaced[path], data), "the briefing", "give -o a file that can be written", quiet
        )


def _one_heap() -> None:
    """Have tables that are read come from the C library, which keeps what is freed: a large run is read column by column."""
    import pyarrow as pa

    pa.set_memory_pool(pa.system_memory_pool())


def _check(targets: list[Path], force: bool) -> dict[Path, Replaceable]:
    from taut.audit.trust import replaceable
    from taut.briefing.brief import FORMS

    for path in targets:
        if path.suffix.lower() not in FORMS:
            raise UsageError(f"-o {path}: a briefing is HTML, PDF or Markdown; end its name in {', '.join(FORMS)}")
        if not path.parent.is_dir():
            raise UsageError(f"-o {path}: there is no folder {path.parent}")
    return {path: replaceable(path, force) for path in targets}


def _prices(gpu_hour: tuple[str, str] | None, file: str | None) -> tuple[Prices | None, str]:
    """The prices, and how they were given."""
    import shlex
    from decimal import Decimal

    from taut.core.prices import Prices

    if file is not None and gpu_hour is not None:
        raise UsageError(f"--gpu-hour and --prices: give one of them; {file} may hold both")
    if file is not None:
        from taut.read.prices_file import load

        return load(file), f"--prices {shlex.quote(file)}"
    if gpu_hour is None:
        return None, ""
    return Prices(Decimal(gpu_hour[0]), gpu_hour[1]), f"--gpu-hour {''.join(gpu_hour)}"


def _write(target: Replaceable, data: bytes) -> Path:
    from taut.audit.trust import replacing

    with replacing(target) as out:
        out.write(data)
    return target.path
