"""What is named → the briefing: opened, asked, and put together."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from taut import __version__
from taut.briefing.buyer_questions import Sources, questions
from taut.briefing.causes import causes, savings
from taut.briefing.decisions import Trail, trail_of
from taut.briefing.demands import demands
from taut.briefing.inputs import Asked, Opened, opened
from taut.briefing.log_steps import log_offset
from taut.briefing.monthly_cost import costs
from taut.briefing.redaction import redacted
from taut.briefing.simulated_control import stack_in
from taut.briefing.since_begun import since_begun
from taut.briefing.time_split import split_of_run, split_of_scenario
from taut.briefing.uncounted_restarts import left_out
from taut.briefing.verdict import verdict
from taut.core.errors import TautError, UsageError
from taut.core.prices import Prices
from taut.core.whole_file import whole_file
from taut.forecasts import project_run
from taut.graph import Graph
from taut.read.files import Paths, listed
from taut.read.prices_file import load
from taut.result.brief_types import BriefedRun, Briefing, Meets, TimePart
from taut.result.types import AnalysisResult, BriefCause, BriefCosts, BriefInput, BriefResult, ProjectResult
from taut.stored import open_run, refusing_runs
from taut.views.cells import cells_of
from taut.views.lateness import lateness_of
from taut.views.operator_view import condensed
from taut.views.run_course import course_of
from taut.views.transfer import transfer_of

MOST_OPS = 250_000
"""Ops of a graph that is widened for a briefing: larger ones take longer than the rest of it."""
FORMS = (".html", ".pdf", ".md")


@dataclass(frozen=True, repr=False)
class Brief:
    """A briefing: what it shows, and the same as HTML, PDF or Markdown."""

    briefing: Briefing

    @property
    def result(self) -> BriefResult:
        """What ``taut brief --json`` prints of it."""
        of = self.briefing
        return BriefResult(
            title=of.title,
            verdict=of.verdict,
            inputs=of.inputs,
            costs=of.costs,
            causes=of.causes,
            questions=of.questions,
            demands=of.demands,
            audit_root=of.audit_root,
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.briefing.verdict}>"

    def _repr_html_(self) -> str:
        from taut.render.brief_card import brief_card

        return brief_card(self.result)

    def redacted(self) -> Brief:
        """The same without hosts, jobs, people and other names."""
        return Brief(redacted(self.briefing))

    def form(self, suffix: str) -> bytes:
        """The document: ``.html``, ``.pdf`` or ``.md``."""
        from taut.render.brief.section_order import document_of

        document = document_of(self.briefing)
        if suffix == ".pdf":
            from taut.render.brief.pdf import render_pdf

            return render_pdf(document)
        if suffix == ".md":
            from taut.render.brief.markdown import render_markdown

            return render_markdown(document).encode()
        from taut.render.brief.html import render_html

        return render_html(document).encode()

    def save(self, path: str | Path) -> Path:
        """Write it; the end of the name says as what."""
        target = Path(path)
        if target.suffix.lower() not in FORMS:
            raise UsageError(f"{target}: a briefing is HTML, PDF or Markdown; end its name in {', '.join(FORMS)}")
        with whole_file(target) as out:
            out.write(self.form(target.suffix.lower()))
        return target


def brief(
    inputs: Paths,
    *,
    prices: Prices | str | Path | None = None,
    focus: Paths = (),
    seed: int = 0,
    audit: str | Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> Brief:
    """What ``taut brief`` writes: ``inputs`` are run folders, scenarios, logs of controllers and bills.

    ``prices`` (a ``prices.toml`` or ``taut.Prices``) and ``focus`` price the runs; ``audit`` is the log that tells decisions.
    """
    words = f"--prices {shlex.quote(str(prices))}" if isinstance(prices, (str, Path)) else "--prices FILE" if prices else ""
    given = load(prices) if isinstance(prices, (str, Path)) else prices
    asked = Asked(given, words, [str(path) for path in listed(focus)], seed, progress or (lambda stage: None))
    return make_brief([str(path) for path in listed(inputs)], asked, None if audit is None else Path(audit))


def make_brief(paths: Sequence[str], asked: Asked, log: Path | None) -> Brief:
    """Everything that a briefing on these inputs shows; ``log`` is the audit log that their records are in."""
    found = opened(paths, asked)
    trail = Trail() if log is None else trail_of(log, paths)
    found.add_commands(trail.commands)
    cost = costs(found, asked.prices)
    runs = [_run(*one, asked, cost) for one in found.runs]
    named = causes(found, cost)
    results = [result for _, _, result in found.runs]
    sources = Sources(runs, found.comparisons, found.scenarios, found.controls)
    return Brief(
        Briefing(
            version=__version__,
            title=_title(found),
            verdict=verdict(found, named),
            inputs=found.inputs,
            runs=runs,
            comparisons=found.comparisons,
            scenarios=found.scenarios,
            controls=found.controls,
            bills=found.bills,
            decisions=trail.decisions,
            costs=cost,
            split=_split(found, named),
            since_begun=since_begun(runs, named),
            left_out=list(left_out(results, found.bills)),
            causes=named,
            notes=[*found.notes, *([f"The audit log: {trail.fault}"] if trail.fault else [])],
            questions=questions(sources),
            demands=demands(runs, cost, savings(found), found.scenarios),
            audit_root=trail.root,
            audit_log=trail.log,
        )
    )


def _split(found: Opened, named: Sequence[BriefCause]) -> list[TimePart]:
    """Where the time goes of what page one speaks of: the first run, else the first scenario."""
    for _, _, result in found.runs[:1]:
        return split_of_run(result, named)
    for scenario in found.scenarios[:1]:
        return split_of_scenario(scenario)
    return []


def _run(source: BriefInput, folder: Path, result: AnalysisResult, asked: Asked, cost: BriefCosts | None) -> BriefedRun:
    """A run with the pictures that only its graph gives; one of logs alone has none."""
    stack = stack_in(folder) if result.control and result.control.actions else None
    if result.whatif is None:
        return BriefedRun(source=source, result=result, view=None, course=None, lateness=None, stack=stack)
    asked.stage(f"looking at {source.name}")
    with refusing_runs(folder):
        run = open_run(folder)
        cells = cells_of(run, ("step", "fate", "name", "rank_ns"))
        return BriefedRun(
            source=source,
            result=result,
            view=condensed(run.graph, cells),
            course=course_of(run, cells, _rate(cost, asked)),
            lateness=lateness_of(run),
            stack=stack,
            grown=_grown(folder, result, asked),
            meets=_meets(run.graph, result),
            transfer=transfer_of(run.graph),
            log_offset=log_offset(result),
        )


def _rate(cost: BriefCosts | None, asked: Asked) -> tuple[float, str] | None:
    """What an hour of one accelerator costs, and the currency: as the bill has it, else as the prices do."""
    if cost is not None and cost.per_accelerator_hour is not None:
        return cost.per_accelerator_hour, cost.currency
    prices = asked.prices
    return None if prices is None or prices.base_rate is None else (float(prices.base_rate), prices.currency or "")


def _grown(folder: Path, result: AnalysisResult, asked: Asked) -> ProjectResult | None:
    """The job on more ranks, where its graph is small enough to be widened quickly."""
    if result.job.ops > MOST_OPS:
        return None
    asked.stage("widening")
    with suppress(TautError):  # some graphs cannot be widened: what is not known stays so
        return project_run(folder, seed=asked.seed)
    return None


def _meets(graph: Graph, result: AnalysisResult) -> Meets | None:
    gates = graph.gates
    if not len(gates) or not result.job.steps:
        return None
    largest = int(gates.members.max())
    names = {graph.trace.names[code] for code in np.unique(gates.name[gates.members == largest]).tolist()}
    return Meets(largest=largest, names=sorted(names), per_step=len(gates) / result.job.steps)


def _title(found: Opened) -> str:
    """What the briefing is about."""
    jobs = list(dict.fromkeys(result.job.name for _, _, result in found.runs))
    named = [
        *jobs,
        *(one.source.name for one in found.scenarios),
        *(str(one.result.name or "control") for one in found.controls),
    ]
    named = named or [one.source.name for one in found.bills]
    return ", ".join(named[:3]) + (f" and {len(named) - 3} more" if len(named) > 3 else "")
