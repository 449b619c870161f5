"""What a briefing is made of: run folders, scenarios, control logs and bills that are named → their results.

A run folder is opened as it is: nothing is analysed again. Several runs are also compared, and priced where a price is given.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec.structs import replace

from taut.core.errors import InputRefused, RunError, TautError, UsageError
from taut.core.folder import is_run_folder
from taut.core.prices import Prices
from taut.read.scenario_file import load, names
from taut.result.brief_types import BriefedBill, BriefedComparison, BriefedControl, BriefedScenario
from taut.result.types import AnalysisResult, BriefInput, ControlResult, InputKind
from taut.stored import decoded_result, read_stored

if TYPE_CHECKING:
    from taut.project.policy import Described
    from taut.project.workload import Workload

S = TypeVar("S", bound="Described")

MOST_INPUTS = 32
"""A briefing of more has no reader."""
SCALES = (0.25, 0.5, 1, 2, 4, 8)
"""Multiples of a training scenario's own ranks, for its growth."""


@dataclass(frozen=True)
class Asked:
    """How a briefing is made."""

    prices: Prices | None = None
    price_words: str = ""
    """The prices as they were given on the command line."""
    focus: Sequence[str] = ()
    seed: int = 0
    stage: Callable[[str], None] = field(default=lambda name: None)


@dataclass
class Opened:
    """Everything that was named, opened."""

    inputs: list[BriefInput] = field(default_factory=list)
    runs: list[tuple[BriefInput, Path, AnalysisResult]] = field(default_factory=list)
    comparisons: list[BriefedComparison] = field(default_factory=list)
    scenarios: list[BriefedScenario] = field(default_factory=list)
    controls: list[BriefedControl] = field(default_factory=list)
    bills: list[BriefedBill] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add_commands(self, commands: Mapping[str, str]) -> None:
        """Put in the commands that made the run folders, where somebody recorded them."""

        def known(one: BriefInput) -> BriefInput:
            return replace(one, command=commands.get(one.name, one.command))

        self.inputs = [known(one) for one in self.inputs]
        self.runs = [(known(source), folder, result) for source, folder, result in self.runs]
        self.controls = [replace(one, source=known(one.source)) for one in self.controls]
        self.bills = [replace(one, source=known(one.source)) for one in self.bills]


def opened(paths: Sequence[str], asked: Asked) -> Opened:
    """Open what is named; what cannot be in a briefing is refused in one line."""
    _check(paths)
    if asked.focus and not any(map(is_run_folder, paths)):
        raise UsageError("--focus closes runs to a bill: give their run folders too, or the folder of taut bill -o")
    found, logs = Opened(), list[str]()
    for path in paths:
        if is_run_folder(path):
            _folder(path, found)
        elif _is_scenario(path):
            found.scenarios.append(_scenario(path, asked))
        else:
            logs.append(path)
    if logs:
        found.controls.append(_logs(logs, asked))
    _compare(found, asked)
    _bill(found, asked)
    made = (found.comparisons, found.scenarios, found.controls, found.bills)
    found.inputs = [*(run[0] for run in found.runs), *(one.source for some in made for one in some)]
    return found


def _check(paths: Sequence[str]) -> None:
    if not paths:
        raise UsageError("nothing to brief on: give run folders, scenarios, control logs or bills")
    if len(paths) > MOST_INPUTS:
        raise UsageError(f"{len(paths)} inputs: a briefing holds {MOST_INPUTS}; give those that the decision is about")
    kept = [path.rstrip("/") for path in paths]
    twice = next((path for path in kept if kept.count(path) > 1), None)
    if twice is not None:
        raise UsageError(f"{twice}: given twice")


def _is_scenario(path: str) -> bool:
    return path in names("") or (path.endswith(".toml") and Path(path).is_file())


def _folder(path: str, found: Opened) -> None:
    """A run folder of ``taut analyze``, ``taut control`` or ``taut bill``."""
    root = Path(path)
    stored = read_stored(root)
    keys = msgspec.json.decode(stored.result, type=dict[str, msgspec.Raw])
    named = shlex.quote(path)
    if "booked.parquet" in stored.files:
        found.bills.append(_stored_bill(path, stored.digest))
    elif "verdict" in keys and "job" in keys:
        source = _source(path, "run", stored.digest, f"taut analyze TRACES -o {named}")
        found.runs.append((source, root, decoded_result(root, stored.result)))
    elif "relations" in keys:
        from taut.briefing.simulated_control import stack_in

        result = _decoded(root, stored.result)
        source = _source(path, "control log", stored.digest, f"taut control LOG… -o {named}")
        found.controls.append(BriefedControl(source=source, result=result, stack=stack_in(root)))
    else:
        raise RunError(f"{path}: holds nothing to brief on; give a folder of taut analyze, taut control or taut bill")


def _decoded(root: Path, raw: msgspec.Raw) -> ControlResult:
    try:
        return msgspec.json.decode(raw, type=ControlResult)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RunError(f"{root}: damaged run folder ({str(error)[:100]}); make it again: taut control") from None


def _stored_bill(path: str, digest: str) -> BriefedBill:
    from taut.ledger.bill.cost_over_time import cost_over_time
    from taut.stored_bill import open_bill, refusing_bill

    with refusing_bill(path):
        stored = open_bill(path)
        over_time = cost_over_time(stored.held, stored.booked, unit=stored.result.money_units)
    command = f"taut bill IN… --prices FILE -o {shlex.quote(path)}"
    return BriefedBill(source=_source(path, "bill", digest, command), result=stored.result, over_time=over_time)


def _scenario(path: str, asked: Asked) -> BriefedScenario:
    """A scenario with what lies around it (its envelope, or what separates its loops), and at other scales."""
    from taut.briefing.assumed_figures import assumed_figures
    from taut.briefing.declared import declared_of
    from taut.briefing.loop_review import review_of
    from taut.briefing.simulated_control import control_of
    from taut.forecasts import project
    from taut.project.workload import workload_of

    table, text = load(path)
    kind = workload_of(table, path)
    training = kind.name == "training"
    asked.stage(f"projecting {path}")
    result = project(
        path, seed=asked.seed, envelope=training, advice=kind.has_advice, prices=asked.prices, progress=asked.stage
    )
    scales = [] if kind.has_advice else _scales(kind, kind.parse(table, path, text)[0])
    grown = project(path, seed=asked.seed, ranks=scales, policies=(), prices=asked.prices) if len(scales) > 1 else None
    words = f"{' --envelope' if training else ' --advice' if kind.has_advice else ''} {asked.price_words}".rstrip()
    source = _source(path, "scenario", hashlib.sha256(text.encode()).hexdigest(), f"taut project {shlex.quote(path)}{words}")
    declared = declared_of(path)
    control, stack = control_of(path, asked.prices, asked.seed)
    return BriefedScenario(
        source=source,
        result=result,
        grown=grown,
        review=review_of(path),
        declared=declared.without,
        assumes=assumed_figures(table, path, text) if training else {},
        declared_with=declared.with_,
        declared_by=declared.by,
        control=control,
        stack=stack,
    )


def _scales(kind: Workload[S], scenario: S) -> list[int]:
    """Scales around a scenario's own that it can be spread over."""
    fit = []
    for times in SCALES:
        with suppress(TautError):
            ranks = max(1, round(times * kind.ranks(scenario)))
            kind.at(scenario, ranks)
            fit.append(ranks)
    return sorted(set(fit))


def _logs(paths: Sequence[str], asked: Asked) -> BriefedControl:
    """Control logs, read together as one system."""
    from taut.briefing.simulated_control import stack_of
    from taut.control.relations import control
    from taut.read.trace import read

    named = " ".join(map(shlex.quote, paths))
    asked.stage("reading")
    trace = read(paths)
    if len(trace.ops):
        remedy = f"analyze them first: taut analyze {named} -o RUN; then: taut brief RUN"
        raise InputRefused(trace.source, "holds traces, and a briefing shows what was analysed", remedy)
    if not len(trace.actions) and not len(trace.attempts) and "calls" not in trace.counts:
        raise InputRefused(trace.source, "nobody decides anything here", "give logs of controllers; see docs/control-logs.md")
    asked.stage("relating")
    result = replace(control(trace, seed=asked.seed), name=trace.name, counts=dict(trace.counts))
    source = _source(" ".join(paths), "control log", trace.digest, f"taut control {named}")
    return BriefedControl(source=source, result=result, stack=stack_of(trace))


def _compare(found: Opened, asked: Asked) -> None:
    """Several runs with graphs side by side; those of logs alone have nothing to be compared by."""
    from taut.compare.comparison import compare

    folders = [path for _, path, result in found.runs if result.whatif is not None]
    if len(folders) < 2:
        return
    asked.stage("comparing")
    digest = hashlib.sha256("".join(source.sha256 or "" for source, _, _ in found.runs).encode()).hexdigest()
    command = f"taut compare {' '.join(shlex.quote(str(path)) for path in folders)}"
    source = _source(" ".join(map(str, folders)), "comparison", digest, command)
    try:
        found.comparisons.append(BriefedComparison(source=source, result=compare(folders)))
    except TautError as error:
        found.notes.append(f"The runs were not compared: {error}")


def _bill(found: Opened, asked: Asked) -> None:
    """What the runs cost, where a price or a bill is given."""
    if not found.runs or (asked.prices is None and not asked.focus):
        return
    from taut.billing import bill
    from taut.ledger.bill.cost_over_time import cost_over_time
    from taut.ledger.bill.down_time import down_money, windows, with_downtime

    asked.stage("pricing")
    folders = [str(path) for _, path, _ in found.runs]
    made = bill(folders, prices=asked.prices, focus=asked.focus)
    charges = "".join(f" --focus {shlex.quote(path)}" for path in asked.focus)
    command = f"taut bill {' '.join(map(shlex.quote, folders))} {asked.price_words}{charges}"
    over_time = cost_over_time(made.held, made.booked, unit=made.result.money_units)
    named = "the invoice of the runs" if asked.focus else "the runs at the prices given"
    attempts = [result.attempts.rows for _, _, result in found.runs if result.attempts is not None]
    down = down_money(made.held, made.booked, [one for rows in attempts for one in windows(rows)], made.result.money_units)
    result = with_downtime(made.result, down)
    source = _source(named, "bill", made.digest, command)
    found.bills.append(BriefedBill(source=source, result=result, over_time=over_time))


def _source(name: str, kind: InputKind, digest: str | None, command: str) -> BriefInput:
    return BriefInput(name=name, kind=kind, sha256=digest or None, command=command)
