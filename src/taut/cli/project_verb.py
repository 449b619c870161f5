"""``taut project``: scenarios to forecasts, and to the evidence on which people decide."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import click

from taut.cli.common import print_object, progress, show, shown_and_kept
from taut.cli.options import Target, on_option, price, scales, tokens
from taut.core.errors import UsageError
from taut.core.question_words import HIGHEST

if TYPE_CHECKING:
    from taut.core.prices import Prices
    from taut.result.evidence_types import ScenarioEvidence
    from taut.result.types import ProjectResult, TwoScenarios


class Question(TypedDict):
    """What is asked about a scenario or a run."""

    ranks: list[int]
    policies: tuple[str, ...]
    envelope: bool
    advice: bool
    evidence: str | None
    gpu_hour: tuple[str, str] | None
    prices: str | None
    tokens: float | None
    steps: int | None
    seed: int
    on: str | None
    as_json: bool
    quiet: bool
    list_them: bool
    show: str | None


@click.command(short_help="Say what a scenario gives at other scales and with policies.")
@click.argument("scenarios", metavar="SCENARIO [SCENARIO]", nargs=-1, type=click.Path())
@click.option("--from", "run", metavar="RUN", type=click.Path(), help="Take work, jitter and transfers from a finished run.")
@click.option("--same-hosts", is_flag=True, help="With --from: more ranks share the hosts of the run.")
@click.option("--ranks", metavar="N,N,...", callback=scales, help="Numbers of ranks  [default: as in the scenario]")
@click.option(
    "--policy",
    "policies",
    metavar="NAME[=VALUE],...",
    multiple=True,
    help="Compare with these together; give it again for another comparison.  [default: as in the scenario]",
)
@click.option("--envelope", is_flag=True, help="Also map regimes, elasticities, fabrics and growth around a training job.")
@click.option("--advice", is_flag=True, help="Also try what separates control loops, and sweep their capacity.")
@click.option("--evidence", metavar="DIR", type=Target(file_okay=False), help="Write the scenario's evidence there.")
@click.option("--gpu-hour", metavar="PRICE", callback=price, help="Price of an accelerator hour, for example 2.50EUR.")
@click.option("--prices", metavar="FILE", type=click.Path(), help="Prices of a TOML file in place of the scenario's own.")
@click.option("--tokens", metavar="N", callback=tokens, help="Also days, money and energy of training on 15T, 300B, 1.5e12 …")
@click.option("--steps", type=click.IntRange(2, 1_000_000), help="Steps to draw at each  [default: 200, fewer of large jobs]")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0, HIGHEST), help="Decides every draw.")
@on_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
@click.option("--list", "list_them", is_flag=True, help="List the scenarios that ship with taut, and nothing else.")
@click.option("--show", metavar="NAME", help="Print the TOML of one that ships, and nothing else.")
def project(scenarios: tuple[str, ...], run: str | None, same_hosts: bool, **question: Unpack[Question]) -> None:
    """Say what a scenario gives at other scales: step times with their spread, throughput, cost, what dominates, where
    one more accelerator stops paying, and what policies change. Regime, indices and policies are those of each scale.

    SCENARIO is a TOML file (docs/project.md), or the name of one that ships with taut (--list). Two of them are set
    side by side, figure by figure.

    \b
      taut project --list
      taut project gpt-175b --ranks 1536,6144 --gpu-hour 2.50USD --tokens 300B
      taut project gpt-175b --policy overlap=0.9 --policy spares=16,local-steps=4
      taut project gpt-175b our-vendor.toml --ranks 1536,6144
      taut project gpt-175b --evidence evidence/
      taut project control-stack --advice
      taut project --from RUN --ranks 64,4096
    """
    as_json, quiet = question["as_json"], question["quiet"]
    if question["list_them"] or question["show"] is not None:
        if scenarios or run is not None or (question["list_them"] and question["show"] is not None):
            raise UsageError("--list and --show NAME stand alone")
        _shipped(question["show"], as_json)
        return
    _check(scenarios, run, same_hosts, question)
    write = None
    result: ProjectResult | TwoScenarios
    with progress(quiet) as stage:
        stage("projecting")
        if run is not None:
            from taut.forecasts import project_run

            result = project_run(run, ranks=question["ranks"], same_hosts=same_hosts, seed=question["seed"])
        elif len(scenarios) > 1:
            result = _two(scenarios, question, stage)
        else:
            result, write = _scenario(scenarios[0], question, stage)
    remedy = "give --evidence a folder that can be written"
    shown_and_kept(lambda: _show(result, as_json), write, "the evidence", remedy, quiet)


def _check(scenarios: tuple[str, ...], run: str | None, same_hosts: bool, question: Question) -> None:
    """Refuse what does not go together."""
    if len(scenarios) > 2:
        raise UsageError(f"{len(scenarios)} scenarios: two are set side by side; give the others in further commands")
    if bool(scenarios) == (run is not None):
        raise UsageError("give a SCENARIO, or --from RUN")
    if same_hosts and run is None:
        raise UsageError("--same-hosts needs --from RUN")
    of_scenarios = ("policies", "evidence", "envelope", "advice", "gpu_hour", "prices", "tokens")
    if run is not None and any(question.get(one) for one in of_scenarios):
        named = "--policy, --envelope, --advice, --evidence, --gpu-hour, --prices and --tokens"
        raise UsageError(f"{named} need a SCENARIO: a run has none to change")
    if run is not None and question["on"] is not None:
        raise UsageError("--on forecasts the scales of a SCENARIO side by side: those of a run take moments")
    if len(scenarios) > 1 and any(question.get(one) for one in ("evidence", "envelope", "advice")):
        raise UsageError("--evidence, --envelope and --advice are of one SCENARIO: ask for them without the other")


def _show(result: ProjectResult | TwoScenarios, as_json: bool) -> None:
    from taut.result.types import TwoScenarios

    if as_json:
        print_object(result)
    elif isinstance(result, TwoScenarios):
        from taut.render.two_scenarios_screen import render_two

        show(render_two, result)
    else:
        from taut.render.forecast_screen import render_forecasts

        show(render_forecasts, result)


def _two(scenarios: tuple[str, ...], question: Question, stage: Callable[[str], None]) -> TwoScenarios:
    from taut.forecasts import project as forecast

    return forecast(
        scenarios[0],
        scenarios[1],
        ranks=question["ranks"],
        policies=question["policies"] or None,
        steps=question["steps"],
        seed=question["seed"],
        gpu_hour=question["gpu_hour"],
        prices=_prices(question),
        tokens=question["tokens"],
        progress=stage,
        on=question["on"],
    )


def _scenario(
    scenario: str, question: Question, stage: Callable[[str], None]
) -> tuple[ProjectResult, Callable[[], Path] | None]:
    """The result, and what writes its evidence, if that is asked for, and returns its first page."""
    from taut.forecasts import project as forecast
    from taut.project.workload import workload_of
    from taut.read.scenario_file import load

    table, text = load(scenario)
    evidence, steps, seed = question["evidence"], question["steps"], question["seed"]
    advice = question["advice"] or (evidence is not None and workload_of(table, scenario).has_advice)
    result = forecast(
        scenario,
        ranks=question["ranks"],
        policies=question["policies"] or None,
        steps=steps,
        seed=seed,
        envelope=question["envelope"],
        advice=advice,
        gpu_hour=question["gpu_hour"],
        prices=_prices(question),
        tokens=question["tokens"],
        progress=stage,
        on=question["on"],
    )
    if evidence is None:
        return result, None
    from taut.project.scenario_evidence import evidence as gather

    table = _priced(table, question)
    found = gather(scenario, table, result, seed=seed, steps=steps, options=_options(question))
    return result, lambda: _write(Path(evidence), found, text)


def _prices(question: Question) -> Prices | None:
    if question["prices"] is None:
        return None
    from taut.read.prices_file import load

    return load(question["prices"])


def _priced(table: dict[str, Any], question: Question) -> dict[str, Any]:
    """The scenario's table with the prices that were given."""
    from taut.project.gpu_hour import with_gpu_hour, with_prices

    prices = _prices(question)
    table = table if prices is None else with_prices(table, prices)
    return table if question["gpu_hour"] is None else with_gpu_hour(table, *question["gpu_hour"])


def _options(question: Question) -> str:
    """What was asked beside the scenario, as it is asked again."""
    out = f" --ranks {','.join(map(str, question['ranks']))}" if question["ranks"] else ""
    out += "".join(f" --policy {one}" for one in question["policies"])
    out += f" --tokens {question['tokens']:g}" if question["tokens"] else ""
    out += f" --prices {shlex.quote(question['prices'])}" if question["prices"] else ""
    return out + (f" --gpu-hour {''.join(question['gpu_hour'])}" if question["gpu_hour"] else "")


def _write(folder: Path, found: ScenarioEvidence, text: str) -> Path:
    from taut.render.evidence_folder import write

    write(folder, found, text)
    return folder / "README.md"


def _shipped(name: str | None, as_json: bool) -> None:
    """The TOML of a scenario that ships with taut, or the list of all."""
    from taut.read.scenario_file import listed, shipped_text
    from taut.result.types import ScenariosResult

    if name is not None:
        click.echo(shipped_text(name), nl=False)
        return
    found = listed()
    if as_json:
        print_object(ScenariosResult(scenarios=found))
        return
    from taut.render.evidence_folder import render_list

    show(render_list, found)
