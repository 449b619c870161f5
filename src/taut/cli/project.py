"""``taut project``: scenarios to forecasts."""

from __future__ import annotations

import os
from typing import Any

import click

from taut.cli.common import print_object, progress, show
from taut.errors import UsageError


def _counts(context: click.Context, option: click.Parameter, value: str | None) -> list[int]:
    """``64,128,4096`` → numbers."""
    if value is None:
        return []
    try:
        found = [int(part) for part in value.split(",")]
    except ValueError:
        raise click.BadParameter(f"{value!r}: give whole numbers, 1024,4096") from None
    if min(found) < 1:
        raise click.BadParameter(f"{value!r}: give numbers of ranks from 1 on")
    return found


@click.command(short_help="Say what a scenario gives at other scales.")
@click.argument("scenario", metavar="SCENARIO", required=False, type=click.Path())
@click.option("--from", "run", metavar="RUN", type=click.Path(), help="Take work, jitter and transfers from a finished run.")
@click.option("--same-hosts", is_flag=True, help="With --from: more ranks share the hosts of the run.")
@click.option("--ranks", metavar="N,N,...", callback=_counts, help="Numbers of ranks  [default: as in the scenario]")
@click.option("--steps", default=200, show_default=True, type=click.IntRange(2, 1_000_000), help="Steps to draw at each.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Decides every draw.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
def project(
    scenario: str | None, run: str | None, same_hosts: bool, ranks: list[int], steps: int, seed: int, as_json: bool, quiet: bool
) -> None:
    """Say what a scenario gives at other scales: step times with their spread, throughput, cost, what dominates.

    SCENARIO is a TOML file (docs/project.md), or the name of one that ships with taut. More ranks are more replicas.

    \b
      taut project gpt-175b --ranks 1536,6144
      taut project --from RUN --ranks 64,4096
    """
    if (scenario is None) == (run is None):
        raise UsageError("give a SCENARIO, or --from RUN")
    if same_hosts and run is None:
        raise UsageError("--same-hosts needs --from RUN")
    with progress(quiet) as stage:
        stage("projecting")
        result = _from_run(run, ranks, same_hosts, seed) if run is not None else _scenario(str(scenario), ranks, steps, seed)
    if as_json:
        print_object(result)
        return
    from taut.brief.forecast import render_forecasts

    show(render_forecasts, result)


def _scenario(scenario: str, ranks: list[int], steps: int, seed: int) -> dict[str, Any]:
    from taut.project import project as run_project
    from taut.read.scenario import load

    table, text = load(scenario)
    cores = os.cpu_count() or 1
    return run_project(table, scenario, text, ranks=ranks, count=steps, seed=seed, cores=cores, measured=_measured)


def _measured(run: str) -> Any:
    """How the work of a finished run strays."""
    from taut.project.noise import strays
    from taut.run import open_run
    from taut.tables import Kind

    opened = open_run(run)
    return strays(opened.graph.work_ns, opened.reference_ns, opened.graph.ops.kind == Kind.COMPUTE)


def _from_run(run: str, ranks: list[int], same_hosts: bool, seed: int) -> dict[str, Any]:
    from taut.project.measured import learn
    from taut.run import open_run

    opened = open_run(run)
    here = len(opened.graph.ranks)
    return learn(opened.graph).entry(ranks or [here, 2 * here, 4 * here], same_hosts=same_hosts, seed=seed)
