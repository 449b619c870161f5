"""Controllers of a stored run, what they did and when, on the time axis of its steps where it was traced."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from taut.briefing.simulated_control import stack_in
from taut.control.on_graph import axis_ns
from taut.core.errors import RunError
from taut.core.ids import least
from taut.core.reporting import FIRST_DATE_NS
from taut.core.tables import Table
from taut.graph import Graph
from taut.result.types import ControlResult
from taut.result.view_types import ControlAction, ControlView
from taut.stored import Run, damaged, read_stored
from taut.stored_tables import open_tables
from taut.views.overview import step_times

MOST_ACTIONS = 2_000


def control_view(folder: str | Path, run: Run | None = None) -> ControlView:
    """The controllers of a run folder of ``taut control`` or ``taut analyze``; ``run`` where that is open, and was traced."""
    root = Path(folder)
    stored = open_tables(root)
    result = stored.result.control if stored.result is not None else _result(root)
    if result is None:
        raise RunError(
            f"{root}: nobody decides anything here; put logs of controllers beside the traces (docs/control-logs.md)"
        )
    return ControlView(
        result=result,
        stack=stack_in(root) if len(stored.actions) else None,
        actions=actions(stored.actions),
        step_times=None if run is None else step_times(run),
        step_begin_ns=[] if run is None else step_begins(run.graph),
        zones=[0 if one.zone is None else one.zone.ops for one in result.relations],
    )


def _result(root: Path) -> ControlResult:
    try:
        return msgspec.json.decode(read_stored(root).result, type=ControlResult)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise damaged(root, str(error)) from None


def actions(table: Table, most: int = MOST_ACTIONS) -> list[ControlAction]:
    """Decisions in order of time; of very many, so many of them, spread evenly."""
    order = np.argsort(table.time_ns, kind="stable") if len(table) else np.zeros(0, dtype=np.int64)
    if len(order) > most:
        order = order[np.linspace(0, len(order) - 1, most).astype(np.int64)]
    shown = table.take(order)
    words = [[str(one) for one in shown.columns[name]] for name in ("layer", "controller", "target", "knob", "before", "after")]
    return [
        ControlAction(
            time_ns=int(at),
            layer=layer,
            controller=who,
            target=target,
            knob=knob,
            before=before,
            after=after,
            direction=int(way),
            rank=None if rank < 0 else int(rank),
        )
        for at, way, rank, layer, who, target, knob, before, after in zip(
            shown.time_ns, shown.direction, shown.rank, *words, strict=True
        )
    ]


def step_begins(graph: Graph) -> list[int]:
    """When each step began, ns since 1970; empty where the traces do not tell."""
    zero = axis_ns(graph)
    if zero is None or not len(graph) or int(zero.min()) < FIRST_DATE_NS:
        return []
    begin = zero[graph.segment] + least(graph.window, len(graph.steps), graph.ops.start_ns)
    return [int(one) for one in begin]
