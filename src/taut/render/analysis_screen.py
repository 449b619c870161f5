"""The result on a terminal: the verdict first, and everything that supports it on one screen.

Takes the object that ``--json`` prints and adds nothing to it; every text from a trace goes through ``text.safe``.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from rich.console import ConsoleRenderable, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from taut.core.rank_words import MOST_NAMED, listed
from taut.render.calls_screen import calls, who
from taut.render.terminal import (
    CLASS_STYLE,
    FATE_STYLE,
    LEAST_FATE,
    Screen,
    Side,
    clipped,
    fate_mark,
    heading,
    new_table,
    partial_lines,
    screen_text,
    spaced_text,
    stacked_bar,
    unclosed_lines,
)
from taut.render.text import count, duration, money, percent, safe, size, span
from taut.result.types import (
    AnalysisResult,
    Baseline,
    Cause,
    Clock,
    Device,
    Fidelity,
    Finding,
    LedgerEnergy,
    LedgerEntry,
    LedgerResult,
    Verdict,
    WhatIfResult,
)

CAUSES, CALM_CAUSES, GATES, COLLECTIVES = 4, 3, 4, 4
"""Lines at most: causes beside a finding and without one, gates, one-sided collectives."""
TRANSFERS = 0.1
"""Share of the bill in exposed transfers from which a run without a finding asks for a baseline: all may be equally slow."""
STAGE_WIDTH = 100
"""Narrower screens have no room for the stage of a cause."""
LEAST_SHARE = 0.005
"""A cause below this share of all waiting is not worth a line."""

FATE_WIDTH = 39
"""Columns that one fate takes with its share and its time."""
ALL_LEFT = 0.9995
"""A delay of which more is left has lost nothing."""


def render(result: AnalysisResult, screen: Screen, all_ranks: bool = False, all_signs: bool = False) -> str:
    """The whole screen of ``taut analyze``; all ranks in its table, and all signs of risk, where they are asked for."""
    from taut.render.attempts_screen import render_jobs, section
    from taut.render.device_screen import device_part, rank_table
    from taut.render.envelope_screen import envelope_part
    from taut.render.index_screen import indices_part, risk_part

    ledger = result.ledger
    if ledger is None:
        return render_jobs(result, screen)
    parts = [
        _verdict(result),
        _job(result),
        _findings(result, ledger),
        _baseline(result),
        _early(result),
        device_part(result),
        _causes(result, ledger, screen),
        _together(rank_table(result, all_ranks), _coupling(result)),
        _gates(result),
        _collectives(result, ledger),
        _ledger(ledger, screen),
        calls(result),
        _control(result),
        section(result.attempts, screen) if result.attempts else None,
        envelope_part(result, screen),
        _together(
            indices_part(result, screen),
            _regime(result),
            risk_part(result, all_signs),
            *_fidelity(result.fidelity, result.device),
        ),
    ]
    return spaced_text(parts, screen)


def _together(*parts: ConsoleRenderable | None) -> ConsoleRenderable | None:
    """Parts without an empty line between them."""
    shown = [part for part in parts if part is not None]
    return Group(*shown) if shown else None


def _control(result: AnalysisResult) -> ConsoleRenderable | None:
    """Which controllers work against each other, and where: only if any do."""
    if result.control is None or not result.control.relations:
        return None
    from taut.render.control_screen import section

    return section(result.control)


def render_change(result: WhatIfResult, screen: Screen) -> str:
    """The answer of ``taut whatif``: before and after, as bars of one scale."""
    before, after = result.actual_wall_ns, result.changed_wall_ns
    room, longest = max(10, screen.width - 50), max(before, after, 1)
    table = new_table("", "bar", "wall", ("", "left"), header=False)
    for label, ns, gain in (("as it was", before, ""), ("changed", after, _gain(result))):
        bar = ("█" if screen.unicode else "#") * max(1, round(room * ns / longest))
        table.add_row(label, clipped(bar, "green" if label == "changed" else "grey62"), duration(ns), gain)
    changes = "; ".join(map(safe, result.changes))
    return screen_text([table, Text(changes, style="dim"), *_trust(result)], screen)


def _trust(result: WhatIfResult) -> list[ConsoleRenderable]:
    """What such predictions were worth in the lab, where that was measured."""
    error, saved = result.error, result.saved_wall_ns
    if error is None or saved <= 0:
        return []
    low, high = (duration(round(saved * (1 + end))) for end in (error.lo, error.hi))
    return [Text(f"going by the lab, nine of ten such fixes really save between {low} and {high}", style="dim")]


def _gain(result: WhatIfResult) -> str:
    saved, share = result.saved_wall_ns, result.saved_share
    if saved == 0:
        return "no difference"
    return f"{'saves' if saved > 0 else 'costs'} {duration(abs(saved))} ({percent(abs(share))})"


def _verdict(result: AnalysisResult) -> ConsoleRenderable:
    verdict = result.verdict
    headline = Text(safe(verdict.text), style=CLASS_STYLE.get(verdict.kind, "bold"))
    lines = [headline, *([both] if (both := _utilised(verdict, result.baseline)) else [])]
    lines += [Text(f"{safe(verdict.components)}.")] if verdict.components else []
    return Group(*lines)


def _utilised(verdict: Verdict, baseline: Baseline | None) -> Text | None:
    """What a dashboard would show, beside what was produced; behind what both were in the baseline."""
    if verdict.nominal_share is None or verdict.effective_share is None:
        return None
    line = Text(style="bold")
    before = (None, None) if baseline is None else (baseline.nominal_share, baseline.effective_share)
    for old, new, word in zip(
        before, (verdict.nominal_share, verdict.effective_share), ("utilised", "productive"), strict=True
    ):
        line.append(", " if line else "")
        if old is not None:
            line.append(f"{100 * old:.0f}", style="not bold strike dim").append(" → ", style="not bold")
        line.append(f"{100 * new:.0f} % {word}")
    how = {"measured": "by metrics", "derived from kernels": "by time under any kernel"}
    source = how.get(verdict.nominal_is or "", "by time inside ops, waits included")
    return line.append(f" ({source})", style="not bold dim")


def _job(result: AnalysisResult) -> ConsoleRenderable:
    job = result.job
    ranks = count(job.ranks, "rank")
    if job.world_size and job.world_size != job.ranks:
        ranks = f"{job.ranks:,} of {job.world_size:,} ranks"
    if job.ranks == 1 and result.ranks:
        ranks = f"{who(result, result.ranks[0].rank)}{f' of {job.world_size:,}' if job.world_size else ''}"
    words = [safe(job.name), ranks, count(job.steps, job.unit), f"wall {duration(job.wall_ns)}"]
    if job.steps > 1:
        # The wall also holds what ranks do before the first of them, and beside the step before: the period does not.
        period = result.device.mean.step_ns if result.device and result.device.mean else (job.wall_ns or 0) / job.steps
        words.append(f"{duration(period)} a step")
    if result.verdict.bound:
        words.append(f"{result.verdict.bound}-bound")
    return Group(Text(" · ".join(words)), *partial_lines(job.partial))


def _findings(result: AnalysisResult, ledger: LedgerResult) -> ConsoleRenderable | None:
    if not result.findings:
        return None
    lines: list[ConsoleRenderable] = [heading("Findings")]
    for finding in result.findings:
        lines += [Padding(line, (0, 0, 0, indent)) for line, indent in _finding(finding, result, ledger)]
    return Group(*lines)


def _baseline(result: AnalysisResult) -> ConsoleRenderable | None:
    """The healthy run it was compared with; without one, what one would tell where that is open."""
    told, job = result.baseline, result.job
    if told is not None:
        step = f"step {duration(told.step_ns.before)} → {duration(told.step_ns.after)}"
        return Text(f"baseline {safe(told.run)}: {step}", style="dim")
    if job.ranks < 2 or result.ledger is None:
        return None
    if result.findings:
        if result.findings[0].reference != "peers":
            return None
        return Text(
            "compared with others of this run; --baseline RUN, a healthy run of the job, would tell if it was always so", "dim"
        )
    spent = {entry.fate: entry.rank_ns for entry in result.ledger.entries}
    open_share = spent.get("exposed transfer", 0) / max(result.ledger.total_rank_ns, 1)
    if result.verdict.kind == "healthy" and open_share < TRANSFERS:
        return None
    return Text("whether it was always like this, --baseline RUN would tell: a healthy run of the same job", style="dim")


def _early(result: AnalysisResult) -> ConsoleRenderable | None:
    """What may come, in one quiet line: the clearest of the series that recover ever more slowly."""
    if not result.early_warning:
        return None
    first, more = result.early_warning[0], len(result.early_warning) - 1
    whose = "the job" if first.rank is None else who(result, first.rank)
    others = f"; {more} more, see run.json" if more else ""
    because = safe(first.because)
    return Text(f"early warning, no finding yet: {whose}, {span(*first.steps)}: {because}{others}", style="dim")


def _finding(finding: Finding, result: AnalysisResult, ledger: LedgerResult) -> list[tuple[ConsoleRenderable, int]]:
    wall, recoverable = max(result.job.wall_ns or 0, 1), finding.recoverable_wall_ns
    head = Text(safe(finding.mode), style="bold")
    words = [_places(finding, result), span(*finding.steps), _sure(finding.confidence)]
    head.append("".join(f" · {word}" for word in words if word), style="not bold")
    lost = f"lost {duration(finding.lost_rank_ns)} rank time"
    because = Text(f"because {safe(finding.because)}")
    todo = [(Text(f"now: {safe(finding.remedy.do)}"), 3)] if finding.remedy else []
    if finding.mode == "hang":  # what it goes on to cost is not in the dumps
        so_far = filter(None, [lost, _priced(finding.lost_rank_ns, ledger)])
        return [(head, 1), (Text(f"at least {' · '.join(so_far)}"), 3), (because, 3), *todo]
    gain = Text(f"recoverable {duration(recoverable)} = {percent(recoverable / wall)} of wall", style="bold")
    if finding.loss_share is not None:  # nobody's: a policy recovers it, where one can be replayed
        by = f", {safe(finding.policy.name)} recovers {percent(recoverable / wall)}" if finding.policy else ""
        gain = Text(f"costs {percent(finding.loss_share.value)} of wall{by}", style="bold")
    gain.append(f" · {' · '.join([*_costs(finding), lost])}", style="not bold")
    return [(head, 1), (gain, 3), (because, 3), *todo]


def _costs(finding: Finding) -> list[str]:
    """What the recoverable time costs in the traced time, and goes on to cost; nothing without a price."""
    if finding.money is None:
        return []
    now, hour, day = (
        money(one, finding.money.currency) for one in (finding.money.window, finding.money.per_hour, finding.money.per_day)
    )
    return [f"{now}: {hour} an hour, {day} a day"]


def _places(finding: Finding, result: AnalysisResult) -> str:
    ranks = [who(result, rank).removeprefix("rank ") for rank in finding.ranks[: MOST_NAMED + 1]]
    ranks += [""] * (len(finding.ranks) - len(ranks))  # counted, not named
    kinds = (("link", finding.links), ("rank", ranks), ("stage", [*map(str, finding.stages)]))
    words = [f"{word} {listed([*map(safe, values)])}" for word, values in kinds if values]
    return " · ".join([*([safe(finding.where)] if finding.where else []), *words])


def _sure(confidence: float | None) -> str:
    if confidence is None:
        return "confidence unknown"
    return "confidence " + (">99.9 %" if confidence > 0.999 else percent(confidence))


def _causes(result: AnalysisResult, ledger: LedgerResult, screen: Screen) -> ConsoleRenderable | None:
    most = CAUSES if result.findings else CALM_CAUSES
    rows = [row for row in result.blame if row.share >= LEAST_SHARE][:most]
    if not rows:
        return None
    priced = bool(_priced(1, ledger))
    table = new_table("cause", "class", "blamed", *(["cost"] if priced else []), "of wait", "recoverable", "of wall")
    for row in rows:
        cause, wait = row.cause, row.wait_rank_ns
        table.add_row(
            clipped(_place(cause, result, screen.width >= STAGE_WIDTH), "bold"),
            clipped(_short(cause.op_class)),
            duration(wait),
            *([_priced(max(row.recoverable_wall_ns, 0) * result.job.ranks, ledger)] if priced else []),
            percent(row.share),
            *_recoverable(row.recoverable_wall_ns, result.job.wall_ns or 0),
        )
    return Group(heading("Who was waited for"), Padding(table, (0, 0, 0, 1)))


def _place(cause: Cause, result: AnalysisResult, with_stage: bool) -> str:
    if cause.link:
        return f"link {safe(cause.link)}"
    stage = f", stage {cause.stage}" if with_stage and cause.stage is not None else ""
    if cause.rank is None:
        return safe(cause.controller or cause.group)
    by = f", held by {safe(cause.controller)}" if cause.controller else ""
    return f"{who(result, cause.rank)}{stage}{by}"


def _short(name: str | None) -> str:
    return safe(name or "").replace("autograd::engine::evaluate_function: ", "autograd ")


def _recoverable(ns: int, wall_ns: int) -> tuple[Text, Text]:
    if ns <= 0:
        return clipped("none", "dim"), clipped("", "dim")
    return clipped(duration(ns)), clipped(percent(ns / max(wall_ns, 1)))


def _gates(result: AnalysisResult) -> ConsoleRenderable | None:
    """With a single step there is no trend to show, but who was last at each gate is the whole story."""
    gates = [(turn, gate) for turn, gate in enumerate(result.gates)]
    if result.job.steps != 1 or not gates:
        return None
    latest = sorted(gates, key=lambda item: -item[1].late_ns)[:GATES]
    table = new_table("gate", "class", "members", "last", "late")
    for turn, gate in sorted(latest, key=lambda item: item[0]):
        last = clipped(who(result, gate.last_rank), "bold")
        table.add_row(str(turn), clipped(_short(gate.op_class)), str(gate.members), last, duration(gate.late_ns))
    more = f", the {GATES} latest of {len(gates)}" if len(gates) > GATES else ""
    return Group(heading(f"Who came last{more} (late = behind the median arrival)"), Padding(table, (0, 0, 0, 1)))


def _collectives(result: AnalysisResult, ledger: LedgerResult) -> ConsoleRenderable | None:
    """Where the other members were not traced, how much of each collective may have been waiting."""
    if result.device is not None and result.device.collectives:
        return None  # they stand with what the device did
    least_ns = LEAST_FATE * ledger.total_rank_ns
    rows = [row for row in result.collectives if row.rank_ns >= least_ns][:COLLECTIVES]
    if not rows:
        return None
    table = new_table("class", "size", "calls", "rank time", "at most wait", "floor a call")
    for row in rows:
        times = map(duration, (row.rank_ns, row.wait_upper_bound_rank_ns, row.floor_ns))
        table.add_row(clipped(_short(row.op_class)), size(row.size_bytes), f"{row.count:,}", *times)
    return Group(heading("Collectives seen from one side only"), Padding(table, (0, 0, 0, 1)))


def _coupling(result: AnalysisResult) -> ConsoleRenderable | None:
    """One line: how far a delay travels, and who absorbs it."""
    response = result.coupling.response if result.coupling else None
    if not response:
        return None
    ranks, reached, left = result.job.ranks, response.reached_ranks, response.left_by_step[-1]
    whom = f"all {ranks:,} ranks" if reached == ranks else f"{reached:,} of {ranks:,} ranks"
    clauses = [f"A delay on {who(result, response.rank)} reaches {whom} within {count(response.within_steps or 1, 'step')}"]
    if left >= ALL_LEFT:
        clauses[0] += " undiminished"
    else:
        by = "".join(f", most of all by {_short(x.op_class)} on {who(result, x.rank)}" for x in response.absorbed_by[:1])
        clauses.append(f"{percent(1 - left)} of it is absorbed{by}")
    other = response.median_rank
    if other and other.left_by_step[-1] < ALL_LEFT:
        clauses.append(f"of one on {who(result, other.rank)}, {percent(1 - other.left_by_step[-1])} is absorbed")
    return Text("; ".join(clauses) + ".")


def _ledger(ledger: LedgerResult, screen: Screen) -> ConsoleRenderable:
    total = max(ledger.total_rank_ns, 1)
    entries = [entry for entry in ledger.entries if entry.rank_ns / total >= LEAST_FATE]
    small = [entry.fate for entry in ledger.entries if 0 < entry.rank_ns / total < LEAST_FATE]
    lines: list[ConsoleRenderable] = [heading(_bill(ledger)), stacked_bar(entries, total, screen)]
    lines.append(Padding(_fates(entries, total, ledger.currency, screen), (0, 0, 0, 1)))
    beside = [f"below 0.1 %: {', '.join(map(safe, small))}"] if small else []
    hidden = ledger.hidden_wait_rank_ns
    beside += [f"{duration(hidden)} more of waiting hid under other work and costs nothing"] if hidden else []
    if beside:
        lines.append(Text(f" {' · '.join(beside)}", style="dim"))
    return Group(*lines, *unclosed_lines(ledger.closes))


def _fates(entries: Sequence[LedgerEntry], total: int, currency: str | None, screen: Screen) -> Table:
    """Fates with mark, share, time and cost, in as many columns as there is room for."""
    across = max(1, screen.width // (FATE_WIDTH + (12 if currency else 0)))
    rows = -(-len(entries) // across)
    one: tuple[str | tuple[str, Side], ...] = ("", ("", "left"), ("", "right"), ("", "right"))
    table = new_table(*(one + ((("", "right"),) if currency else ())) * across, header=False)
    for at in range(rows):
        cells: list[Text | str] = []
        for entry in entries[at::rows]:
            style, mark = FATE_STYLE.get(entry.fate, ("", "", ""))[0], fate_mark(entry.fate, screen)
            cells += [
                clipped(mark * 2, style),
                clipped(safe(entry.fate)),
                percent(entry.rank_ns / total),
                duration(entry.rank_ns),
            ]
            cells += [money(entry.money, currency)] if currency else []
        table.add_row(*cells)
    return table


def _regime(result: AnalysisResult) -> ConsoleRenderable | None:
    """How far the job is from not paying, and what was done for nothing, where a progress log tells."""
    found, log = result.regime, result.progress
    lines: list[ConsoleRenderable] = []
    if found and found.kind and found.reserve and found.marginal_return and found.pays:
        reserve, back = found.reserve, found.marginal_return
        least = "at least " if reserve.hi is None else ""
        line = Text(f"Regime: {found.kind}", style="bold")
        line.append(
            f" · one more accelerator adds {percent(back.value)} of an accelerator's throughput · jitter may grow {least}"
            f"{reserve.value:.1f}-fold before it adds less than {percent(found.pays)}",
            style="not bold",
        )
        lines.append(line)
    if log:
        words = [f"Progress: {log.kept_steps:,} of {count(log.executed_steps, 'executed step')} kept"]
        if log.kept_steps_per_rank_hour:
            words.append(f"{log.kept_steps_per_rank_hour.value:,.4g} a rank-hour")
        lines.append(Text(" · ".join(words)))
    return Group(*lines) if lines else None


def _bill(ledger: LedgerResult) -> str:
    words = [f"Where {duration(ledger.total_rank_ns)} of rank time went"]
    if ledger.currency:
        words.append(money(_paid(ledger), ledger.currency))
    joules = [entry.joules for entry in ledger.entries if entry.joules is not None]
    carbon = [entry.kg_co2e for entry in ledger.entries if entry.kg_co2e is not None]
    if joules:
        words.append(f"{sum(joules) / 3.6e6:.3g} kWh{_energy_source(ledger.energy)}")
    if carbon:
        words.append(f"{sum(carbon):.3g} kg CO2e")
    return " · ".join(words)


def _energy_source(energy: LedgerEnergy | None) -> str:
    """Who says so, where it was measured."""
    if energy is None or energy.source in (None, "states"):
        return ""
    rest = "" if energy.coverage > 0.995 else f", {100 * energy.coverage:.0f} % of the time"
    apart = energy.joules
    both = (None, None) if apart is None else (apart.lo, apart.hi)
    low, high = ("" if end is None else f"{end / 3.6e6:.3g}" for end in both)
    ends = "" if low == high else f", {low}-{high}"
    alone = " alone" if len(energy.sources) == 1 else ""
    return f" (by {energy.source}{alone}{rest}{ends})"


def _priced(rank_ns: int, ledger: LedgerResult) -> str:
    """Rank time at the ledger's own rate; empty without a price."""
    if not ledger.currency:
        return ""
    return money(_paid(ledger) * rank_ns / max(ledger.total_rank_ns, 1), ledger.currency)


def _paid(ledger: LedgerResult) -> Decimal:
    return sum((Decimal(entry.money) for entry in ledger.entries if entry.money is not None), Decimal(0))


def _fidelity(fidelity: Fidelity | None, device: Device | None) -> list[ConsoleRenderable]:
    if fidelity is None:
        return []
    error = fidelity.replay_error
    words = [
        "replay exact" if error == 0 else f"replay error {percent(error)}",
        f"{100 * fidelity.explained_share:.0f} % of starts explained",
        _without_gaps(fidelity.gapfree_error, device),
        count(fidelity.dropped_edges, "edge") + " dropped",
        _clock(fidelity.clock),
    ]
    return [Text("Fidelity: " + " · ".join(words), style="dim")]


def _without_gaps(error: float, device: Device | None) -> str:
    """What the gaps between ops are worth, in words."""
    if abs(error) < 0.0005:
        return "no time is lost in host gaps"
    alone = list(device.ranks.values()) if device else []
    if len(alone) == 1 and -error > alone[0].idle_share + 0.0005:
        # More than the device was idle: its streams wait for each other, which no event tells.
        return f"if no stream waited for another, and without gaps, the job would take {percent(-error)} less time"
    return f"without host gaps the job would take {percent(abs(error))} {'less' if error < 0 else 'more'} time"


def _clock(clock: Clock) -> str:
    offsets = {rank: offset.value for rank, offset in clock.offset_ns.items() if offset.value}
    if not offsets:
        return "no clock offset applied"
    worst = max(offsets, key=lambda rank: abs(offsets[rank]))
    most = f"most to rank {safe(worst)}: {duration(offsets[worst])}"
    return f"clock offsets applied to {count(len(offsets), 'rank')}, {most}"
