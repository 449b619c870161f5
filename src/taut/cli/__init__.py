"""The command line: parses, calls the library, prints. Data on stdout, messages on stderr.

Nothing heavy is imported before a command runs, so that help and completion answer at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import click

from taut import __version__
from taut.cli.command_failures import Commands
from taut.cli.common import FAILED, FINDINGS, announce_stdin, kept, print_object, progress, say, show, shown, write_out
from taut.cli.options import (
    MOST_STALENESS,
    Real,
    Target,
    check_form,
    delays,
    factors,
    fixes,
    markdown_option,
    on_option,
    price,
    token_price,
    watts,
)
from taut.cli.recording import audit_file, record_all, recorded
from taut.core import memory
from taut.core.errors import UsageError
from taut.core.question_words import FIX_KEYS, Delay

if TYPE_CHECKING:
    from taut.ledger import Prices
    from taut.result.types import AnalysisResult, Finding
    from taut.run import Analysis, JobAnalysis

DEMO = Path(__file__).parents[1] / "demo"
SNIPPET = Path(__file__).parents[1] / "render" / "recording.txt"
NO_ENVELOPE = "no envelope: that needs four steps, a collective of all, and three ranks of one role"
SAVING = "give -o a folder that can be written, or --no-save"

EPILOG = """\b
Exit codes: 0 done, 1 failure, 2 the question does not fit, 3 findings at or above
--fail-on, 4 input refused, 5 audit verification failed, 130 interrupted, 143 terminated.
\b
Environment: TAUT_DEBUG=1 shows tracebacks; TAUT_KERNEL_CACHE=off neither loads nor
keeps compiled code; TAUT_AUDIT=off records nothing.
\b
Shell completion:
  bash   eval "$(_TAUT_COMPLETE=bash_source taut)"
  zsh    eval "$(_TAUT_COMPLETE=zsh_source taut)"
  fish   _TAUT_COMPLETE=fish_source taut | source
"""


@click.group(cls=Commands, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="taut")
@click.option(
    "--audit",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    expose_value=False,
    callback=audit_file,
    help="Where this command is recorded  [default: ./taut-runs/audit.db]",
)
def main() -> None:
    """Where the accelerator bill really goes, why, and what would change it.

    Start with: taut demo. Then: taut analyze TRACES.
    """


ANALYSIS_OPTIONS = (
    click.option(
        "-o", "--output", "folder", metavar="RUN", type=Target(file_okay=False),
        help="Run folder to write  [default: ./taut-runs/<job>-<digest>]",
    ),
    click.option("--no-save", is_flag=True, help="Write no run folder."),
    click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object."),
    markdown_option,
    click.option(
        "--gpu-hour", "price", metavar="PRICE", callback=price,
        help="Price of one rank for one hour, for example 2.50EUR.",
    ),
    click.option(
        "--token-price", metavar="IN,OUT", callback=token_price,
        help="Price of a million tokens, read and written, for example 3.00,15.00USD.",
    ),
    click.option(
        "--power", metavar="WATTS", callback=watts,
        help="Watts per rank: LOAD[,STALL[,IDLE]]; one left out is as the one before.",
    ),
    click.option("--carbon", metavar="KG", type=Real(0, 1000), help="kg CO2e per kWh, of power that was measured or given."),
    click.option(
        "--topology", metavar="FILE", type=click.Path(),
        help="Where the ranks sit: topology.conf of Slurm, output of nvidia-smi topo -m, or TOML.",
    ),
    click.option(
        "--metrics", metavar="AT", multiple=True,
        help="Metrics that do not lie beside the traces: a file, or the address of a Prometheus (http://host:9090); "
        "may be given again. TAUT_METRICS_TOKEN is its bearer token.",
    ),
    click.option(
        "--map", "places", metavar="LABELS",
        help="Labels of --metrics that make a rank: 'Hostname,gpu→rank' (a host and the index of its accelerator) or "
        "'worker→rank' (the rank itself); -> will do.",
    ),
    click.option(
        "--columns", metavar="NAMES", default="",
        help="Columns of a job list without a header (sacct -n), as sacct -o was given them: JobID,State,Start,End",
    ),
    click.option(
        "--baseline", metavar="RUN", type=click.Path(),
        help="Run folder of a healthy run of the same job: what is slower than it was there is a finding.",
    ),
    click.option(
        "--fail-on", metavar="SHARE", type=Real(0, 1),
        help="Exit 3 if a finding's recoverable share of the wall (0-1) reaches this.",
    ),
    click.option(
        "--pays", metavar="SHARE", type=Real(0, 1, min_open=True),
        help="Share of its own throughput the next accelerator must bring to pay  [default: 0.5]",
    ),
    click.option("--all-ranks", is_flag=True, help="Show every rank in the table of ranks."),
    click.option(
        "--envelope", is_flag=True,
        help="Map which failure modes would dominate with more ranks, unequal ranks, more gates; show the risk profile.",
    ),
    click.option(
        "--memory", metavar="MIB", type=click.IntRange(64, 1 << 30),
        help="Memory for the columns of the job: those of a larger one lie in files (TMPDIR)  [default: what is free]",
    ),
    click.option("-q", "--quiet", is_flag=True, help="No progress and no hints on stderr."),
)  # fmt: skip


class AnalysisOptions(TypedDict):
    """What ``ANALYSIS_OPTIONS`` give a verb."""

    folder: str | None
    no_save: bool
    as_json: bool
    markdown: bool
    price: tuple[str, str] | None
    token_price: tuple[str, str, str] | None
    power: list[float] | None
    carbon: float | None
    topology: str | None
    metrics: tuple[str, ...]
    places: str | None
    columns: str
    baseline: str | None
    fail_on: float | None
    pays: float | None
    all_ranks: bool
    envelope: bool
    memory: int | None
    quiet: bool


def _analysis_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What analyze and demo both take."""
    for option in reversed(ANALYSIS_OPTIONS):
        command = option(command)
    return command


RECORDING = f"""\b
To record all ranks of a PyTorch job (docs/recording.md says more):
\b
{SNIPPET.read_text(encoding="utf-8")}"""


@main.command(short_help="Say where a job's time went, why, and what would change it.", epilog=RECORDING)
@click.argument("inputs", metavar="IN...", nargs=-1, required=True, type=click.Path(allow_dash=True))
@on_option
@click.option(
    "--resume", is_flag=True, help="Read only what the same command had not read when it was killed, or lost its scheduler."
)
@_analysis_options
def analyze(inputs: tuple[str, ...], on: str | None, resume: bool, **options: Unpack[AnalysisOptions]) -> None:
    """Say where a job's time went, why, and what would change it.

    IN is a trace file, a folder or a tar.gz with the traces of all ranks, or - for standard input. Job logs (Slurm,
    Kubernetes, torchrun, training) lie beside the traces, or stand alone. Formats are recognised. The result is also
    written to a run folder, which other commands take.
    """
    _analyze(inputs, options, on=on, resume=resume)


@main.command(short_help="Analyze a small built-in job.")
@_analysis_options
def demo(**options: Unpack[AnalysisOptions]) -> None:
    """Analyze the small built-in job: eight ranks, one of them slow, in two attempts.

    The job was recorded; its power, its prices and its bill are made for it (docs/lab.md).
    """
    from taut.cli.analysis_hints import then_bill

    _analyze((str(DEMO),), options, hinted=lambda lines, run: then_bill(lines, run, DEMO))


def _as_they_are(lines: list[str], run: Path | None) -> list[str]:
    return lines


def _analyze(
    inputs: Sequence[str],
    options: AnalysisOptions,
    *,
    on: str | None = None,
    resume: bool = False,
    hinted: Callable[[list[str], Path | None], list[str]] = _as_they_are,
) -> None:
    folder, fail_on, quiet = options["folder"], options["fail_on"], options["quiet"]
    _check_output(options)
    with memory.loading():
        from taut.core.folder import checked_target
        from taut.diagnose.job_regime import PAYS
        from taut.run import all_cores, within_memory
        from taut.run import analyze as run_analyze

    if folder is not None:
        checked_target(Path(folder))  # a folder that holds other files is refused before anything is computed

    prices = _prices(options)
    announce_stdin(inputs)
    most = options["memory"]
    click.get_current_context().with_resource(within_memory(inputs, None if most is None else most << 20))
    click.get_current_context().with_resource(all_cores(on))
    with progress(quiet) as stage:
        analysis = run_analyze(
            inputs,
            prices=prices,
            topology=options["topology"],
            progress=stage,
            envelope=options["envelope"],
            pays=PAYS if options["pays"] is None else options["pays"],
            metrics=options["metrics"],
            places=options["places"],
            columns=options["columns"],
            baseline=options["baseline"],
            on=on,
            resume=resume,
            reading=_reading(inputs, options) if resume or (on is not None and not options["no_save"]) else None,
        )
        result = analysis.result
    lost = shown(lambda: _show(analysis, options))
    run = None if options["no_save"] else kept(lambda: analysis.save(folder), "the run folder", SAVING)
    failing = [] if fail_on is None else _failing(result, fail_on)
    if not quiet:
        from taut.cli.analysis_hints import hints

        unmapped = [NO_ENVELOPE] if options["envelope"] and result.envelope is None else []
        then = hinted(hints(result, run, options["carbon"] is not None), run)
        for line in [*unmapped, *_failures(failing, fail_on), *then]:
            say(line)
    if lost is not None:
        raise lost
    if folder is not None and run is None:
        click.get_current_context().exit(FAILED)
    if failing:
        click.get_current_context().exit(FINDINGS)


def _check_output(options: AnalysisOptions) -> None:
    """Refuse options of the output that exclude each other."""
    if options["no_save"] and options["folder"] is not None:
        raise UsageError("--no-save and -o: give one of them")
    check_form(options["as_json"], options["markdown"])


def _reading(inputs: Sequence[str], options: AnalysisOptions) -> Path:
    """Where this command keeps what it has read until it is done: beside its run folder."""
    if options["folder"] is not None:
        run = Path(options["folder"])
        return run.with_name(f".{run.name}.reading")
    from hashlib import sha256

    asked = sha256("\0".join((*inputs, options["columns"])).encode("utf-8", "surrogateescape")).hexdigest()
    return Path("taut-runs") / f".{asked[:16]}.reading"


def _prices(options: AnalysisOptions) -> Prices:
    from decimal import Decimal

    from taut.ledger import Prices

    price, power, carbon = options["price"], options["power"], options["carbon"]
    load, stall, idle = (*(power or ()), None, None, None)[:3]
    amount, currency = (Decimal(price[0]), price[1]) if price else (None, None)
    read, written, token_currency = options["token_price"] or (None, None, None)
    tokens = [None if each is None else Decimal(each) for each in (read, written)]
    return Prices(amount, currency, load, stall, idle, carbon, tokens[0], tokens[1], token_currency)


def _show(analysis: Analysis | JobAnalysis, options: AnalysisOptions) -> None:
    if options["as_json"]:
        print_object(analysis.result)
        return
    if options["markdown"]:
        from taut.render.markdown_results import analysis_markdown

        write_out(analysis_markdown(analysis.result))
        return
    from taut.render.analysis_screen import render

    show(lambda result, screen: render(result, screen, options["all_ranks"], options["envelope"]), analysis.result)


def _share(finding: Finding, result: AnalysisResult) -> float:
    """Share of the wall that a finding costs: all of it, if the job stopped."""
    return 1.0 if finding.mode == "hang" else finding.recoverable_wall_ns / max(result.job.wall_ns or 0, 1)


def _failing(result: AnalysisResult, fail_on: float) -> list[tuple[Finding, float]]:
    shares = [(finding, _share(finding, result)) for finding in result.findings]
    return [(finding, share) for finding, share in shares if share >= fail_on]


def _failures(failing: list[tuple[Finding, float]], fail_on: float | None) -> list[str]:
    return [
        f"finding {finding.id}: {share:.3f} of the wall is recoverable"
        f"{f' by a policy ({finding.policy.name})' if finding.policy else ''}, --fail-on is {fail_on:g}"
        for finding, share in failing
    ]


@main.command(short_help="Replay a finished run with something changed.")
@click.argument("run", metavar="RUN", type=click.Path())
@click.option(
    "--fix",
    "fixes",
    metavar="KEY=VALUE",
    multiple=True,
    callback=fixes,
    help=f"Set one {', '.join(FIX_KEYS)} to its reference; may be given again.",
)
@click.option(
    "--scale",
    "scales",
    metavar="KEY=FACTOR",
    multiple=True,
    callback=factors,
    help="Scale all of something: compute work, bandwidth of transfers (work=0.9, bandwidth=2), or gaps (gaps=0: none).",
)
@click.option(
    "--delay",
    "delays",
    metavar="rank=R,step=S,ms=MS[,op=N]",
    multiple=True,
    callback=delays,
    help="Delay a rank once, in one step, at its first op or at a row of ops.parquet; may be given again.",
)
@click.option(
    "--policy",
    "policies",
    metavar="NAME[=VALUE]",
    multiple=True,
    help="Say what a policy of synchronisation would have saved: local-steps, semi-synchronous, backup-workers, overlap, "
    "deal-by-speed; may be given again.",
)
@click.option("--advice", is_flag=True, help="Try these policies, and show what they save for the staleness they bring.")
@click.option(
    "--staleness",
    metavar="N",
    type=click.IntRange(0, MOST_STALENESS),
    help="With --advice: steps that a gradient may be behind  [default: 8]",
)
@click.option(
    "--more-steps",
    metavar="SHARE",
    type=Real(0, 100),
    help="Steps that a policy needs more of to converge, as a share (0.03); without it that is unknown.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
def whatif(
    run: str,
    fixes: list[tuple[str, str]],
    scales: list[tuple[str, float]],
    delays: list[Delay],
    as_json: bool,
    quiet: bool,
    **asked: Unpack[PolicyOptions],
) -> None:
    """Replay a finished run with something changed: what would the wall clock have been?

    Changes compose. A rank or link that became slow is replayed as it was before; anything else as in the baseline
    that the run was analyzed with, or like its peers. Gaps are kept. Scales come after fixes. Policies come after the
    other changes, each by itself (docs/policies.md says which are exact, which are a range, and what needs a scenario
    instead).

    \b
      taut whatif RUN --fix rank=3
      taut whatif RUN --fix link=2:1 --fix class=all-reduce
      taut whatif RUN --scale work=0.9 --scale bandwidth=2
      taut whatif RUN --delay rank=3,step=10,ms=40
      taut whatif RUN --policy local-steps=4 --more-steps 0.03
      taut whatif RUN --advice --staleness 16
    """
    _check_question(bool(fixes or delays or scales), asked)
    from taut.run import open_run
    from taut.stored import refusing_runs
    from taut.views.replays import Question, Replays

    with progress(quiet) as stage, refusing_runs(run):
        stage("replaying")
        question = Question(fixes=fixes, scales=dict(scales), delays=delays, **asked)
        result = Replays(open_run(run)).result(question, say)
    if as_json:
        print_object(result)
        return
    from taut.render.policy_screen import render_whatif

    show(render_whatif, result)


class PolicyOptions(TypedDict):
    """What is asked about policies of a run."""

    policies: tuple[str, ...]
    advice: bool
    staleness: int | None
    more_steps: float | None


def _check_question(changed: bool, asked: PolicyOptions) -> None:
    """Refuse a question without a change, and options that belong to another."""
    policies = bool(asked["policies"]) or asked["advice"]
    if not changed and not policies:
        raise UsageError("nothing to change: give --fix, --scale, --delay, --policy or --advice")
    if asked["staleness"] is not None and not asked["advice"]:
        raise UsageError("--staleness is a budget for --advice; of a policy it follows from its value")
    if asked["more_steps"] is not None and not policies:
        raise UsageError("--more-steps is what a policy costs: give --policy or --advice")


VERBS = {
    "audit": "taut.cli.decision_verb",
    "bill": "taut.cli.bill_verb",
    "brief": "taut.cli.brief_verb",
    "compare": "taut.cli.compare_verb",
    "control": "taut.cli.control_verb",
    "export": "taut.cli.export_verb",
    "lab": "taut.lab.commands",
    "project": "taut.cli.project_verb",
    "serve": "taut.cli.serve_verb",
    "watch": "taut.cli.watch_verb",
}
"""Verbs that have a file of their own, which is imported when one of them is asked for."""
main.elsewhere(VERBS, recorded)
record_all(main)
