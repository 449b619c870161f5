"""Answers of the API for the pages that draw on canvases: of a small job, and of one whose names are hostile."""

from __future__ import annotations

from collections.abc import Sequence

from build import job
from taut.result.brief_types import OperatorEdge, OperatorNode, OperatorView, RankLateness
from taut.result.view_types import (
    STATES,
    AbsorbedDelay,
    DelayWave,
    OpDetail,
    PathOp,
    Structure,
    StructurePart,
    TimelineAxis,
    TimelineFrame,
    TimelineGates,
    TimelineOps,
    TimelineRow,
    TimelineStep,
    WaitParts,
)
from taut.views.op_detail import OpDetails
from timelines import timeline_of

MS = 1_000_000


class Job:
    """Two ranks, six steps: rank 1 computes for 9 ms, rank 0 for 5 and then waits for it."""

    def __init__(self) -> None:
        self.frames = timeline_of(job({0: "fwd 5 | AR 1", 1: "fwd 9 | AR 1"}, steps=6))
        self.details = OpDetails(self.frames)

    def axis(self) -> TimelineAxis:
        """What can be asked for."""
        return self.frames.axis.described()

    def frame(self, given: dict[str, int]) -> TimelineFrame:
        """A part of the timeline."""
        return self.frames.frame(*(given[key] for key in ("begin_ns", "end_ns", "first_row", "rows", "columns", "lines")))

    def op(self, given: dict[str, int]) -> OpDetail | None:
        """An op by its number, or by its place; None where nothing is."""
        return self.details.by_number(given["op"]) if "op" in given else self.details.at(given["row"], given["at_ns"])


class Named:
    """A rank, an op and a path entry for every name."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)

    def axis(self) -> TimelineAxis:
        """One step, one rank for every name."""
        rows = [TimelineRow(rank=k, label=name, lanes=[name]) for k, name in enumerate(self.names)]
        step = TimelineStep(step=0, begin_ns=0, end_ns=10 * MS)
        return TimelineAxis(wall_ns=10 * MS, zero_ns=0, rows=rows, steps=[step], ops=len(rows), states=list(STATES))

    def frame(self, given: dict[str, int]) -> TimelineFrame:
        """One op of every rank, all of them shown."""
        count = len(self.names)
        each = list(range(count))
        ops = TimelineOps(
            op=each, row=each, lane=[0] * count, begin_ns=[0] * count, opening_ns=[4 * MS] * count, end_ns=[10 * MS] * count,
            state=[0] * count, wait=[4] * count, name=each,
        )  # fmt: skip
        gates = TimelineGates(gate=[0], name=[0], first_ns=[0], opens_ns=[4 * MS], rows=[each[:40]], last_row=[3])
        return TimelineFrame(
            begin_ns=0, end_ns=10 * MS, first_row=0, rows=count, columns=given["columns"], lines=count, cells=None, ops=ops,
            gates=gates, left_out_gates=0, names=self.names,
        )  # fmt: skip

    def op(self, given: dict[str, int]) -> OpDetail:
        """A wait whose path goes over all ranks."""
        path = [
            PathOp(
                op=k, rank=k, label=name, name=name, row=k, begin_ns=0, opening_ns=4 * MS, end_ns=10 * MS,
                because="last at the gate" if k else "asked", excess_ns=MS, gap_ns=0,
            )
            for k, name in enumerate(self.names)
        ]  # fmt: skip
        first = self.names[0]
        wait = WaitParts(wait_ns=4 * MS, fault_ns=3 * MS, jitter_ns=MS, structural_ns=0, gap_ns=0, unexplained_ns=0)
        return OpDetail(
            op=given.get("op", 0), rank=0, label=first, lane=first, name=first, kind="compute", step=0, begin_ns=0,
            opening_ns=4 * MS, end_ns=10 * MS, work_ns=6 * MS, reference_ns=5e6, size_bytes=None, gate=0, members=2,
            last_label=first, wait=wait, slack_ns=0, critical=True, path=path, root=1,
        )  # fmt: skip


def structure(names: Sequence[str]) -> Structure:
    """A part and a rank for every name, a node for the first few."""
    parts = [
        StructurePart(label=name, ranks=[k], busy_share=0.98, productive_share=0.6, metrics=[], inside=True)
        for k, name in enumerate(names)
    ]
    few = names[:8]
    nodes = [
        OperatorNode(
            name=name, kind="compute", gate=k % 3 == 1, ops=4, rank_share=0.1, wait_share=0.05 * (k % 3), critical_share=0.1,
            place=(k + 0.5) / len(few),
        )
        for k, name in enumerate(few)
    ]  # fmt: skip
    edges = [OperatorEdge(first=k, then=k + 1, count=4, critical_share=1.0) for k in range(len(few) - 1)]
    shown = list(names[:32])
    pairs = RankLateness(
        labels=shown, cause=[1] * len(shown), victim=list(range(len(shown))), share=[1 / len(shown)] * len(shown)
    )
    view = OperatorView(nodes=nodes, edges=edges, left_out=0)
    return Structure(parts=parts, view=view, waits=pairs, ranks=list(names), steps=[0, 1, 2], delayed_rank=1, delayed_step=1)


def wave(names: Sequence[str], given: dict[str, float]) -> DelayWave:
    """A delay of which 30 % is lost in slack at the second of three gates."""
    ns = int(given["ms"] * MS)
    late: list[int | None] = [ns, ns * 7 // 10, ns * 7 // 10]
    rank, step = int(given["rank"]), int(given["step"])
    return DelayWave(
        command=f"taut whatif RUN --delay rank={rank},step={step},ms={given['ms']:g}", actual_wall_ns=100 * MS,
        changed_wall_ns=100 * MS + ns * 7 // 10, saved_wall_ns=-(ns * 7 // 10), delay_ns=ns, rank=rank, step=step, op=3,
        name=names[0], gates=[0, 1, 2], gate_names=[names[0]] * 3, gate_steps=[step] * 3, labels=list(names),
        late_ns=[late for _ in names], reached_ranks=len(names), left_ns=[ns, ns * 7 // 10, ns * 7 // 10],
        absorbed=[AbsorbedDelay(label=name, name=name, ns=ns * 3 // 10) for name in names[:12]],
    )  # fmt: skip
