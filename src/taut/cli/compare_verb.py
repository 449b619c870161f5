"""``taut compare``: what changed between runs, and whether steps became longer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from taut.cli.common import FINDINGS, print_object, progress, say, show, shown, write_out
from taut.cli.options import Real, check_form, markdown_option
from taut.core.errors import UsageError

if TYPE_CHECKING:
    from taut.result.types import CompareResult


@click.command(short_help="Say what changed between two or more runs.")
@click.argument("runs", metavar="RUN RUN...", nargs=-1, required=True, type=click.Path())
@click.option("--same-job", is_flag=True, help="Take all runs as runs of one job, whatever their names.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
@markdown_option
@click.option(
    "--fail-on",
    metavar="SHARE",
    type=Real(0, 1),
    help="Exit 3 if steps of the last run are surely longer than those of the first by this share of them (0-1) at least: "
    "the lower end of the interval reaches it. Runs are then taken in the order given.",
)
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
def compare(runs: tuple[str, ...], same_job: bool, as_json: bool, markdown: bool, fail_on: float | None, quiet: bool) -> None:
    """Say what changed between two or more runs: trends, work by class and rank, repeats, restarts.

    RUN is a run folder. Runs are taken in order of their time where all traces tell it, else as given. Trends need
    three runs; what changed compares the first with the last. Runs of one job (by name, or --same-job) that go on
    from each other are restarts; runs with the same graph are repeats.

    \b
      taut compare baseline now --fail-on 0.05 --markdown
    """
    check_form(as_json, markdown)
    from taut.compare.comparison import compare as run_compare
    from taut.stored import refusing_runs

    with progress(quiet) as stage, refusing_runs(*runs):
        stage("comparing")
        result = run_compare(runs, same_job=same_job, as_given=fail_on is not None)
    lost = shown(lambda: _show_compared(result, as_json, markdown, fail_on))
    if lost is not None:
        raise lost
    if fail_on is not None:
        _judge_steps(result, fail_on, quiet)


def _show_compared(result: CompareResult, as_json: bool, markdown: bool, fail_on: float | None) -> None:
    if as_json:
        print_object(result)
    elif markdown:
        from taut.render.markdown_results import compare_markdown

        write_out(compare_markdown(result, fail_on))
    else:
        from taut.render.compare_screen import render_compare

        show(render_compare, result)


def _judge_steps(result: CompareResult, fail_on: float, quiet: bool) -> None:
    """Exit 3 where steps became longer by at least so much, surely; where nothing can be told, that is no pass either."""
    from taut.core.differences import LEAST_STEPS

    change = result.step_time
    if change is None or change.ratio.lo is None:
        raise UsageError(f"--fail-on {fail_on:g}: cannot be told, too few steps; record {LEAST_STEPS} or more in each run")
    fails = change.ratio.lo - 1 >= fail_on
    if fails or not quiet:
        from taut.render.markdown_results import step_words

        say(f"{step_words(change)}; --fail-on is {fail_on:g}: {'reached' if fails else 'not reached'}")
    if fails:
        click.get_current_context().exit(FINDINGS)
