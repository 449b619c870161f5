"""The same job seen twice: as parts with limits, and as ops that wait for each other."""

from __future__ import annotations

from collections.abc import Sequence

from taut.core.finding_place import place_of
from taut.render.brief.document import (
    Block,
    Cell,
    Colour,
    Column,
    Edge,
    Empty,
    Fact,
    Facts,
    Grid,
    Network,
    Node,
    Picture,
    Section,
    Sides,
    Text,
)
from taut.render.brief.nobody import no_waiting
from taut.render.brief.written import percent, share
from taut.render.text import UNKNOWN, count, middle, safe, size, three
from taut.result.brief_types import BriefedRun, Briefing, OperatorEdge, OperatorNode, OperatorView
from taut.result.types import AnalysisResult, AttemptsResult, Component, Device, Job

LABEL = 30
"""Letters of a class in the picture; all of them stand in the table."""
FAILED = ("failed", "node failed", "timed out", "out of memory")
"""Outcomes of attempts that ended against their will."""
STRONG = 0.05
"""Share of the wall, or of the steps, from which the critical path is drawn strong."""
OFTEN = 0.5
"""Share of the steps from which an arrow that the critical path takes is drawn strong."""
FAINT = 0.1
"""Edges below this share of the most frequent one are left out, unless the critical path takes them."""
ROWS = 6
"""Rows of a table at most."""
COLUMN_OF = {"coordinate": 0.14, "compute": 0.46, "communicate": 0.82, "synchronise": 0.82}
EFFECTIVE = "Of the accelerator time of the traced steps, what went into work at its usual speed."
RECORD = "taut analyze TRACES METRICS -o RUN"


def two_views(briefing: Briefing) -> Section | None:
    """Component view beside operator view, of every run."""
    blocks: list[Block] = []
    for run in briefing.runs:
        blocks += _run(run, f"Run {safe(run.source.name)}. " if len(briefing.runs) > 1 else "")
    if not briefing.runs:
        blocks.append(
            Empty("No run was given: neither parts nor ops were measured.", "traces of the job", "taut analyze TRACES")
        )
    commands = [run.source.command for run in briefing.runs]
    return Section("two-views", "The same job, two answers", blocks, commands, page=True)


def _run(run: BriefedRun, named: str) -> list[Block]:
    result = run.result
    sides = Sides("As parts: the component view", _components(result), "As work that waits: the operator view", _operators(run))
    return [Text(f"{named}{_both(result)}", "lead"), *_nominal(result), sides, *_drawn(run.view)]


def _drawn(view: OperatorView | None) -> list[Block]:
    """The operator graph over the whole width, and its classes as a table."""
    if view is None or not view.nodes:
        return []
    return [Picture("The operator graph, one node for each class", _alt(view), network(view)), _classes(view)]


def _both(result: AnalysisResult) -> str:
    """One sentence each."""
    limited = [one for one in result.components if one.inside is not None]
    outside = [one for one in limited if not one.inside]
    parts = "Nothing measured the parts"
    if limited:
        named, every = ({one.metric for one in some} for some in (limited, result.components))
        parts = f"Every part that has a limit is inside it ({_some_of(len(named), len(every))} one)"
    if outside:
        parts = f"{len(outside):,} of {len(limited):,} measurements of parts are outside their limits"
    elif not limited and result.components:
        parts = "Parts were measured, but nobody named their limits"
    elif not limited and result.device is not None:
        parts = "What the accelerators did is on record, but no part was held against a limit"
    return f"{parts}. {_loss(result)}"


def _some_of(named: int, every: int) -> str:
    if named == every:
        return "the one metric has" if every == 1 else f"all {every:,} metrics have"
    return f"{named:,} of {every:,} metrics {'has' if named == 1 else 'have'}"


def _loss(result: AnalysisResult) -> str:
    share, wall = result.verdict.effective_share, result.job.wall_ns
    if share is None and result.attempts is not None and result.attempts.held_rank_ns:
        return _kept(result.attempts)
    told = (
        "How much of the time was useful is not recorded."
        if share is None
        else f"{percent(share)} of the time was useful work."
    )
    if result.recoverable_wall_ns and wall:
        told += f" Mending what was found would save {percent(result.recoverable_wall_ns / wall)} of the time."
    return told


def _kept(found: AttemptsResult) -> str:
    """What job logs alone tell of useful time."""
    kept = sum(entry.held_rank_ns for entry in found.entries if entry.fate == "kept")
    share = percent(kept / (found.held_rank_ns or 1))
    return f"Of the time that accelerators were held, {share} went into attempts whose work was kept."


def _nominal(result: AnalysisResult) -> list[Block]:
    verdict = result.verdict
    if verdict.nominal_share is None and verdict.effective_share is None:
        return []
    how = {"measured": "utilisation as it was measured", "derived from kernels": "time with any kernel on the device"}
    nominal = how.get(verdict.nominal_is or "", "time inside any operation, waiting included")
    shown = [
        Fact("Nominal", percent(verdict.nominal_share), f"How busy it looks: {nominal}.{_derived(verdict.nominal_is)}"),
        Fact("Effective", percent(verdict.effective_share), EFFECTIVE),
    ]
    return [Facts([fact for fact in shown if fact.value != UNKNOWN])]


# ---------------------------------------------------------------------------------------------------------------------
# parts


def _derived(how: str | None) -> str:
    return "" if how == "measured" else " No gauge was recorded: from the trace, as a dashboard would show it."


def _components(result: AnalysisResult) -> list[Block]:
    device = _device(result.device) if result.device else []
    if not result.components:
        needs = "metrics beside the traces: utilisation, power, clocks, temperatures, errors, with their limits"
        return [*device, Empty("No part was measured.", needs, RECORD)]
    by_metric: dict[str, list[Component]] = {}
    for one in result.components:
        by_metric.setdefault(one.metric, []).append(one)
    # What has a limit first, what breaks it before all.
    order = sorted(by_metric, key=lambda metric: (_state(by_metric[metric]), metric))
    columns = [Column("Measured"), Column("Parts", True), Column("Worst value", True), Column("Limit", True), Column("Inside")]
    rows = [_metric_row(metric, by_metric[metric]) for metric in order]
    note = "" if any(one.limit is not None for one in result.components) else "Nobody named limits: add them to the metrics."
    return [Text(_answer(result)), *device, Grid("Parts and their limits", columns, rows, note)]


def _answer(result: AnalysisResult) -> str:
    """What somebody would do who sees only the parts."""
    outside = [one for one in result.components if one.inside is False]
    if outside:
        return f"By this view, {safe(outside[0].component)} is to be looked at first: {_metric_name(outside[0].metric)}."
    if any(one.inside for one in result.components):
        return f"By this view alone nothing is wrong, and nothing would be repaired.{_late(result)}{_ended(result.attempts)}"
    return "By this view nothing can be said: no limit is known."


def _late(result: AnalysisResult) -> str:
    """That a part which is late shows in the other view only."""
    place = next((place for one in result.findings if one.ranks or one.links if (place := place_of(one))), None)
    return "" if place is None else f" That {safe(place)} is late shows only in how ranks wait: no metric of a part says so."


def _ended(found: AttemptsResult | None) -> str:
    """That attempts which failed show in no metric of a part."""
    failed = 0 if found is None else sum(number for outcome, number in found.outcomes.items() if outcome in FAILED)
    if not failed:
        return ""
    return f" That {count(failed, 'attempt')} of the job failed shows in the job's log, and in no metric of a part."


def _state(some: Sequence[Component]) -> int:
    told = [one.inside for one in some]
    return 0 if False in told else 1 if True in told else 2


def _metric_row(metric: str, some: Sequence[Component]) -> list[Cell | str]:
    limited = [one for one in some if one.limit is not None]
    least = bool(limited) and limited[0].limit_is == "at least"
    worst = min(some, key=lambda one: one.value) if least else max(some, key=lambda one: one.value)
    words = "" if not limited else f"{limited[0].limit_is} {_in_units(metric, limited[0].limit)}"
    outside = [one for one in limited if not one.inside]
    inside = Cell(UNKNOWN) if not limited else Cell("all", "good")
    if outside:
        named = ", ".join(safe(one.component) for one in outside[:3]) + (" …" if len(outside) > 3 else "")
        inside = Cell(f"not {named}", "bad")
    return [_metric_name(metric), f"{len({one.component for one in some}):,}", _in_units(metric, worst.value), words, inside]


SUFFIXES = (
    ("_bytes_per_s", "bytes/s"), ("_bytes", "bytes"), ("_share", "share"), ("_mhz", "MHz"), ("_ms", "ms"), ("_w", "W"),
    ("_c", "°C"), ("_j", "J"),
)  # fmt: skip
"""How the name of a metric ends, and its unit."""


def _metric_name(metric: str) -> str:
    ending = next((end for end, _ in SUFFIXES if metric.endswith(end)), "")
    return safe(metric.removesuffix(ending).replace("_", " "))


def _in_units(metric: str, value: float | None) -> str:
    if value is None:
        return UNKNOWN
    unit = next((unit for end, unit in SUFFIXES if metric.endswith(end)), "")
    if unit == "share":
        return percent(value)
    if unit.startswith("bytes"):
        return size(round(value)) + unit.removeprefix("bytes")
    return f"{three(value)} {unit}".rstrip()


def _device(device: Device) -> list[Block]:
    """What the accelerators did, as their own tools would show it."""
    mean, mfu = device.mean, device.mfu
    if mean is None:
        return []
    rows: list[list[Cell | str]] = [
        ["Busy: under any kernel or copy", percent(mean.busy_share)],
        ["Computing", percent(mean.compute_share)],
        ["Communicating, under compute", percent(mean.hidden_share)],
        ["Communicating, nothing else", percent(mean.exposed_share)],
        ["Idle", percent(mean.idle_share)],
    ]
    if mfu is not None and mfu.value is not None:
        least = "at least " if mfu.lower_bound else ""
        rows.append(["Arithmetic, of what the accelerator can do", f"{least}{percent(mfu.value)}"])
    ranks = count(len(device.ranks), "accelerator")
    return [Grid(f"What {ranks} did", [Column("State"), Column("Share of the time", True)], rows)]


# ---------------------------------------------------------------------------------------------------------------------
# ops


def _operators(run: BriefedRun) -> list[Block]:
    view = run.view
    if view is None or not view.nodes:
        needs = "traces of the ranks (Kineto, Nsight, XPlane, OTLP, or an op table) beside the logs"
        return [Empty("No operation was traced.", needs, "taut analyze TRACES LOGS -o RUN")]
    return [Text(_where(view, run.result.job)), *_of_the_wall(run.result)]


def _where(view: OperatorView, job: Job) -> str:
    """Where the loss is."""
    gates = sorted((node for node in view.nodes if node.wait_share > 0), key=lambda node: -node.wait_share)
    waited = sum(node.wait_share for node in view.nodes)
    if not gates:
        unknown = sum(node.rank_share for node in view.nodes if _undivided(node))
        told = f" {percent(unknown)} of the rank time is communication that may be waiting." if unknown >= 0.01 else ""
        return f"{no_waiting(job)}{told}"
    told = f"{percent(waited)} of all rank time is spent waiting for the last to arrive"
    first = gates[0]
    if len(gates) == 1:
        return f"{told}, all of it at {_name(first)}."
    return f"{told}, most of it at {_name(first)} ({percent(first.wait_share)})."


def _of_the_wall(result: AnalysisResult) -> list[Block]:
    """How waiting of rank time and what the wall loses to it go together."""
    lost = next((one.loss_share for one in result.findings if one.loss_share is not None), None)
    if lost is None:
        return []
    return [
        Text(
            "Rank time is the time of all ranks added up; the wall is the time on the clock. Of the wall, waiting for whoever "
            f"happens to be late costs {share(lost)}. The two differ: whoever is late holds up the clock, and does not wait.",
            "note",
        )
    ]


def _undivided(node: OperatorNode) -> bool:
    """Whether its ops communicate, and with whom was not matched: what of it is waiting is not known."""
    return not node.gate and node.kind in ("communicate", "synchronise")


def _waits(node: OperatorNode) -> Cell | str:
    if node.wait_share >= STRONG:
        return Cell(percent(node.wait_share), "bad")
    return percent(node.wait_share) if node.gate or node.wait_share > 0 else UNKNOWN if _undivided(node) else ""


def _name(node: OperatorNode) -> str:
    return safe(node.name)


def _alt(view: OperatorView) -> str:
    """The picture in words."""
    path = sorted((node for node in view.nodes if node.critical_share), key=lambda node: -(node.critical_share or 0))
    parts = [f"{_name(node)} ({percent(node.critical_share)} of the time)" for node in path[:3]]
    gates = [f"{_name(node)} ({percent(node.wait_share)})" for node in view.nodes if node.gate and node.wait_share > 0]
    through = f"The critical path runs mostly through {', '.join(parts)}." if parts else "No critical path is known."
    waits = f" Ranks wait at {', '.join(gates[:4])}." if gates else ""
    return (
        f"{count(len(view.nodes), 'class')[:-1] + 'es' if len(view.nodes) != 1 else '1 class'} of operations. {through}{waits}"
    )


def _classes(view: OperatorView) -> Grid:
    order = sorted(view.nodes, key=lambda node: -(node.rank_share + node.wait_share))
    columns = [
        Column("Class"), Column("Works, of rank time", True), Column("Waits, of rank time", True),
        Column("On the critical path, of the wall", True),
    ]  # fmt: skip
    rows: list[list[Cell | str]] = [
        [
            f"{_name(node)}{' (gate)' if node.gate else ''}",
            percent(node.rank_share),
            _waits(node),
            percent(node.critical_share),
        ]
        for node in order[:ROWS]
    ]
    rest = len(order) - ROWS
    more = "" if rest <= 0 else "1 more is in the picture. " if rest == 1 else f"{rest} more are in the picture. "
    if view.left_out and not view.nodes[-1].name.endswith(("other classes", "other class")):
        more += f"{view.left_out:,} smaller left out. "
    note = f"{more}What hides under other work is not counted; the rest of the wall is gaps between operations."
    return Grid("Where rank time goes, by class", columns, rows, note)


def network(view: OperatorView) -> Network:
    """The condensed graph, placed: in the order of the step from above, host, compute and communication side by side."""
    order = sorted(range(len(view.nodes)), key=lambda k: (view.nodes[k].place, k))
    row = {k: (place + 0.5) / len(order) for place, k in enumerate(order)}
    largest = max((node.rank_share + node.wait_share for node in view.nodes), default=0) or 1
    nodes = [_placed(node, row[k], largest) for k, node in enumerate(view.nodes)]
    most = max((edge.count for edge in view.edges), default=0) or 1
    edges = [
        _drawn_edge(edge, edge.count / most)
        for edge in view.edges
        if edge.count >= FAINT * most or (edge.critical_share or 0) >= STRONG
    ]
    return Network(nodes, edges)


def _drawn_edge(edge: OperatorEdge, often: float) -> Edge:
    """As thick as the critical path takes it; what it takes now and then is as thin as the others."""
    taken = edge.critical_share or 0.0
    return Edge(edge.first, edge.then, taken if taken >= OFTEN else often, strong=taken >= OFTEN)


def _placed(node: OperatorNode, y: float, largest: float) -> Node:
    taken = node.rank_share + node.wait_share
    return Node(
        label=safe(middle(node.name, LABEL)),
        shape="gate" if node.gate else "work",
        colour=_colour(node),
        x=0.82 if node.gate else COLUMN_OF[node.kind],
        y=y,
        size=taken / largest,
        strong=(node.critical_share or 0) >= STRONG,
        detail=_detail(node),
    )


def _colour(node: OperatorNode) -> Colour:
    if node.gate:
        return "waiting" if node.wait_share > node.rank_share else "communication"
    words: dict[str, Colour] = {"compute": "useful", "coordinate": "gap"}
    return words.get(node.kind, "communication")


def _detail(node: OperatorNode) -> str:
    words = [f"works {percent(node.rank_share)}"]
    words += [f"waits {percent(node.wait_share)}"] if node.wait_share > 0 else []
    words += [f"on the path {percent(node.critical_share)}"] if node.critical_share else []
    return ", ".join(words)
