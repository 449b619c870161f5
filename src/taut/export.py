"""A finished run in the forms that other tools open: what they show is computed here and rendered by ``render``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from taut.core.array_types import Ints, Mask
from taut.core.errors import UsageError
from taut.core.ids import greatest, least, rows_of_ids
from taut.core.tables import NULL, Action, Table
from taut.graph import Graph
from taut.render.perfetto import Picture, Spans, Times, render
from taut.replay import reference
from taut.replay.timeline import Change, Timeline, replay
from taut.result.types import Finding, Zone
from taut.views.axis import segment_begins

if TYPE_CHECKING:
    import pyarrow as pa

    from taut.stored_bill import StoredBill

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def perfetto(graph: Graph, waits: Table, findings: Sequence[Finding], out: BinaryIO, zone: Zone | None = None) -> None:
    """Write a job as a Perfetto trace, the ideal replay (that of ``whatif.ideal_wall_ns``) beside the observed one.

    Waits are those of the blame, findings those of the result. Of a zone of a relation between controllers, only its ops
    and the actions of its time are written.
    """
    observed = replay(graph)
    ideal = replay(
        graph, [Change(np.arange(len(graph)), "work", "set", reference.across(graph), "every op at reference")], gaps=False
    )
    axis_ns = segment_begins(graph, np.maximum(observed.completion_ns, ideal.completion_ns))
    zero_ns = axis_ns[graph.segment][graph.window]
    shown = _times(observed, zero_ns)
    actions, hits = _actions(graph, axis_ns, shown)
    picture = Picture(
        ops=graph.ops.replace(step=graph.steps[graph.window]),
        names=graph.names,
        lanes=graph.trace.lanes,
        groups=graph.trace.groups,
        members=graph.members,
        rank=graph.rank_index,
        gate=graph.gate,
        observed=shown,
        ideal=_times(ideal, zero_ns),
        waits=waits,
        findings=findings,
        spans=_spans(graph, shown, findings),
        actions=actions,
        hits=hits,
    )
    render(picture if zone is None else _cut(picture, graph, zone), out)


def focus(bill: StoredBill, out: BinaryIO, version: str = "1.4", *, columnar: bool = False) -> list[str]:
    """Write a bill as FOCUS, every charge in parts; what is not among them is told in words.

    A bill at given prices is written as charges of the provider ``internal``. ``columnar``: Parquet instead of CSV.
    """
    from taut.ledger.bill.allocated_parts import allocated_parts
    from taut.render.focus_table import render_parts

    if bill.result.currency is None:
        raise UsageError(f"{bill.folder}: no money to export; make the bill with --prices, --gpu-hour or --focus")
    booked, charges = (bill.booked, bill.charges) if bill.charges is not None else _internal(bill, bill.result.currency)
    parts = allocated_parts(bill.held, booked, charges, bill.result.money_units)
    render_parts(parts.blocks(), parts.filled, out, version, parquet=columnar)
    return _left_out(bill)


def html(folder: str) -> bytes:
    """A run folder as one HTML file that needs nothing else: its pages, their scripts, and what they answer from."""
    from taut.render.page.bundle import file
    from taut.result.view_types import Overview, RunList
    from taut.views.packed_run import packed_run, unpacked

    packed = packed_run(folder)
    runs, first = unpacked(packed, "runs", RunList), unpacked(packed, "overview", Overview)
    return file(" · ".join([*(one.name for one in runs.runs), "taut"] if runs else ["taut"]), packed, first).encode()


def _internal(bill: StoredBill, currency: str) -> tuple[Table, pa.Table]:
    from taut.ledger.bill.internal_charges import Period, internal_charges

    edges = [None if one is None else _moment_ns(one) for one in (bill.result.period.start, bill.result.period.end)]
    period = None if edges[0] is None or edges[1] is None else Period(edges[0], edges[1])
    try:
        return internal_charges(bill.booked, currency, period, bill.result.money_units)
    except ValueError as error:
        raise UsageError(f"{bill.folder}: {error}, and FOCUS wants them; make the bill again with --period") from None


def _moment_ns(text: str) -> int:
    return round((datetime.fromisoformat(text) - EPOCH) / timedelta(microseconds=1)) * 1000


def _left_out(bill: StoredBill) -> list[str]:
    """What a bill has and its charges have not."""
    said = []
    accrued = Decimal(bill.result.accrual.ledger or 0) - Decimal(int(bill.booked.effective.sum())) / bill.result.money_units
    if accrued > 0:
        said.append(f"{accrued:,.2f} {bill.result.currency} were used without a charge: not written")
    booked = set(bill.booked.item.tolist())
    other = [one for one in bill.result.lines if one.money is not None and one.item not in booked]
    if other:
        amount = sum((Decimal(one.money or 0) for one in other), Decimal(0))
        items = ", ".join(sorted({one.item for one in other}))
        said.append(f"{amount:,.2f} {bill.result.currency} are no charges of a provider ({items}): not written")
    return said


def _cut(picture: Picture, graph: Graph, zone: Zone) -> Picture:
    """What lies in a zone: its ops, their waits, and what controllers did meanwhile. Arrows from outside are left out."""
    from taut.ledger.zones import ops_of

    rows = ops_of(graph, zone)
    place = rows_of_ids(rows, len(graph) + 1, NULL)
    ranks = np.flatnonzero(np.isin(graph.ranks, zone.ranks))
    row = rows_of_ids(ranks, len(graph.ranks), NULL)
    op, opener = place[picture.waits.op], place[picture.waits.opener]
    both = (op >= 0) & (opener >= 0)
    waits = picture.waits.replace(op=op, opener=opener).take(both)
    shown, ideal = (Times(*(values[rows] for values in times)) for times in (picture.observed, picture.ideal))
    first, last = (shown.start_ns.min(), shown.end_ns.max()) if len(rows) else (0, 0)
    begin, end = picture.actions.time_ns, picture.actions.time_ns + picture.actions.busy_ns
    meanwhile = (end > first) & (begin <= last)
    hits = _on_ranks(picture.hits, row, meanwhile[picture.hits.which])
    return replace(
        picture,
        ops=picture.ops.take(rows),
        members=picture.members.take(ranks),
        rank=row[picture.rank[rows]],
        gate=picture.gate[rows],
        observed=shown,
        waits=waits,
        ideal=ideal,
        spans=_on_ranks(picture.spans, row),
        actions=picture.actions.take(meanwhile),
        hits=hits._replace(which=(np.cumsum(meanwhile) - 1)[hits.which]),
    )


def _on_ranks(spans: Spans, row: Ints, also: Mask | bool = True) -> Spans:
    """Those on ranks that have a row among others, numbered anew."""
    kept = (row[spans.rank] != NULL) & also
    return Spans(spans.which[kept], row[spans.rank[kept]], spans.start_ns[kept], spans.end_ns[kept])


def _times(timeline: Timeline, zero_ns: Ints) -> Times:
    """Times of every op on the axis of the trace, and what it did in between."""
    return Times(
        start_ns=zero_ns + timeline.arrival_ns,
        opening_ns=zero_ns + timeline.opening_ns,
        end_ns=zero_ns + timeline.end_ns,
        work_ns=timeline.work_ns,
        gap_ns=timeline.gap_ns,
        wait_ns=timeline.wait_ns,
    )


def _actions(graph: Graph, axis_ns: Ints, shown: Times) -> tuple[Table, Spans]:
    """Actions of the traced time on its axis, cut to it, and where they hit; none where steps have no time in common."""
    actions = graph.trace.actions
    if (graph.trace.relative and graph.trace.zero_ns is None) or not len(actions) or not len(graph.ops):
        return Table(Action, {}, 0), Spans(*np.zeros((4, 0), dtype=np.int64))
    from taut.control.on_graph import project

    on = project(graph)
    begin = np.where(on.segment >= 0, axis_ns[on.segment] + on.begin_ns, NULL)
    if not graph.trace.relative:
        begin = np.where(on.segment >= 0, begin, actions.time_ns - min(int(graph.origin_ns.min()), 0))
    end = begin + np.maximum(actions.busy_ns, 1)
    first, last = int(shown.start_ns.min()), int(shown.end_ns.max())
    inside = (end > first) & (begin <= last) & ((on.segment >= 0) | (not graph.trace.relative))
    rows, place = np.flatnonzero(inside), np.cumsum(inside) - 1
    ops, by = on.next_ops(np.flatnonzero((on.place >= 0) & inside))
    hits = Spans(place[by], graph.rank_index[ops].astype(np.int64), begin[by], shown.start_ns[ops])
    begin, end = np.maximum(begin[rows], first), np.minimum(end[rows], last + 1)
    return actions.take(rows).replace(time_ns=begin, busy_ns=end - begin), hits


def _spans(graph: Graph, shown: Times, findings: Sequence[Finding]) -> Spans:
    """Each finding on each of its ranks: from their first to their last op in the steps it names."""
    rows: list[tuple[int, int, int, int]] = []
    step = graph.steps[graph.window]
    for number, finding in enumerate(findings):
        first, last = finding.steps
        mine = np.flatnonzero((step >= first) & (step <= last) & np.isin(graph.ops.rank, _ranks(graph, finding)))
        start = least(graph.rank_index[mine], len(graph.ranks), shown.start_ns[mine])
        end = greatest(graph.rank_index[mine], len(graph.ranks), shown.end_ns[mine])
        rows += [(number, int(rank), int(start[rank]), int(end[rank])) for rank in np.flatnonzero(end >= 0)]
    table = np.array(rows, dtype=np.int64).reshape(-1, 4)
    return Spans(*table.T)


def _ranks(graph: Graph, finding: Finding) -> Sequence[int] | Ints:
    """The ranks a finding names, else the ends of its links, else those of its stages, else all."""
    ends = [int(rank) for link in finding.links for rank in link.split(":")]
    of_stages = graph.ranks[np.isin(graph.members.stage, finding.stages)]
    return next(ranks for ranks in (finding.ranks, ends, of_stages, graph.ranks) if len(ranks))
