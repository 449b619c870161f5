"""Everything that a file shows of a run, in bytes by name: what scripts without a server answer from.

Names that end in ``.json`` are answers of the API, or lists of them; ``.json.zlib`` is the same deflated, where it is long.
``timeline`` is as ``packed_timeline`` says. The same run gives the same bytes: nothing here knows when or where it is asked,
except by the folder that its commands name.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec.structs import replace

from taut.core.array_types import Json
from taut.core.folder import read_steadily
from taut.result.view_types import Decisions, DelayWave, Overview, RunCard, RunList, Structure
from taut.stored import Run, open_run, read_stored
from taut.views.run_card import run_card

if TYPE_CHECKING:
    from taut.views.frames import Frames

T = TypeVar("T")
BUDGET = 4_000_000
"""Bytes of all that is packed, unless told otherwise; text that holds them takes a third more."""
TIMELINE = 2_400_000
"""Bytes of the timeline, at most."""
LEAST, FIXED = 50_000, 16_000
"""Bytes of the timeline, at least, however much the rest takes; and of its header, its coarsest cells and its gates."""
LONG = 8_192
"""Bytes of JSON from which on it is deflated."""
VISITS = 60_000_000
"""Op visits that all delays together may cost."""
DELAYS = 14
RANKS = 4
"""Ranks that are delayed, and steps."""
KEPT = ("by", "do", "finding")
"""What a file tells of a decision."""
PROVES = "A file proves nothing: the log and the run do. These commands look at them."
FILE = "file"
"""What a file calls its one run."""


def packed_run(folder: str | Path, budget_bytes: int = BUDGET) -> dict[str, bytes]:
    """All that a file shows of a run folder of any verb, in about so many bytes."""
    root = Path(folder)
    return read_steadily(root, lambda: _packed(root, budget_bytes))


def _packed(root: Path, budget_bytes: int) -> dict[str, bytes]:
    read_stored(root)  # says of a folder that is none what would make it one
    card = replace(run_card(root), id=FILE, made_ns=0)
    if "timeline" in card.views:
        run = open_run(root)
        parts, frames = _traced(run, card), _frames(run)
        parts["axis"] = frames.axis.described(run.result.findings)
        out = _encoded(parts)
        return out | {"timeline": _timeline(run, frames, budget_bytes - sum(map(len, out.values())))}
    return _encoded(_untraced(root, card))


# ---------------------------------------------------------------------------------------------------------------------
# Pages


def _traced(run: Run, card: RunCard) -> dict[str, object]:
    """What is shown of a run with a graph, less its timeline."""
    from taut.views.control_view import control_view
    from taut.views.overview import overview
    from taut.views.packed_answers import packed_answers
    from taut.views.replays import Replays
    from taut.views.structure import structure

    first = overview(run, _shown_card(card))
    shape = structure(run, first)
    parts: dict[str, object] = {
        "runs": _listed(first.run), "overview": first, "structure": shape, "delays": [*delays(run, first, shape)],
        "answers": packed_answers(Replays(run)), "decisions": file_decisions(run.folder),
    }  # fmt: skip
    return parts | ({"control": control_view(run.folder, run)} if "control" in card.views else {})


def _untraced(root: Path, card: RunCard) -> dict[str, object]:
    """What is shown of logs, controllers, a scenario or a bill."""
    from taut.views.bill_view import bill_view
    from taut.views.control_view import control_view
    from taut.views.overview import overview_of
    from taut.views.scaling import scaling

    if card.verb != "analyze":
        made: Mapping[str, Callable[[Path], object]] = {"bill": bill_view, "control": control_view, "scaling": scaling}
        return {"runs": _listed(card), **{view: made[view](root) for view in card.views}}
    return {"runs": _listed(card), "overview": replace(overview_of(root), run=card)}


def _shown_card(card: RunCard) -> RunCard:
    """The card of a file: what takes minutes to compute is not in it."""
    return replace(card, views=[view for view in card.views if view != "scaling"])


def _listed(card: RunCard) -> RunList:
    return RunList(version=FILE, runs=[card], refused=[])


def file_decisions(folder: str | Path) -> Decisions:
    """What was decided, and on what nobody has: of records what a page shows, of the log no place and no proof."""
    from taut.views.decision_loop import decisions

    found = decisions(folder)
    rows = [replace(one, record=replace(one.record, details=_kept_details(one.record.details))) for one in found.decisions]
    return replace(found, decisions=rows, log=None, verified=None, verified_is=PROVES)


def _kept_details(details: Mapping[str, Json]) -> dict[str, Json]:
    return {key: value for key, value in details.items() if key in KEPT}


# ---------------------------------------------------------------------------------------------------------------------
# Delays and timeline


def delays(run: Run, seen: Overview, shape: Structure) -> Iterator[DelayWave]:
    """Delays on their way: where one is put at first, shorter and longer ones, then those of other ranks and steps."""
    from taut.views.delay_wave import delay_wave

    most = min(DELAYS, max(VISITS // max(len(run.graph), 1), 2))
    usual = usual_delay_ns(seen.run.step_ns)
    first, middle = shape.delayed_rank, shape.delayed_step
    asked = [(first, middle, usual), (first, middle, usual * 10), (first, middle, max(usual // 10, 1))]
    asked += [(rank, middle, usual) for rank in _ranks_worth(seen, shape)[:RANKS]]
    asked += [(first, step, usual) for step in (shape.steps[0], shape.steps[-1])]
    asked += [(rank, shape.steps[0], usual) for rank in _ranks_worth(seen, shape)[:RANKS]]
    yield from (delay_wave(run, *one) for one in [*dict.fromkeys(asked)][:most])


def usual_delay_ns(step_ns: float | None) -> int:
    """A third of a step, in one digit; of steps that are not known, 10 ms."""
    third = min(max((step_ns or 30e6) / 3, 1e5), 1e10)
    return round(float(f"{third:.0e}"))


def _ranks_worth(seen: Overview, shape: Structure) -> list[int]:
    """Ranks that people ask about: those of findings, the least late, the last."""
    found = [rank for one in seen.headlines for rank in one.ranks]
    late = sorted((row.late_ns, row.rank) for row in seen.ranks if row.late_ns is not None)
    others = [late[0][1], late[-1][1]] if late else []
    known = [row.rank for row in seen.ranks]
    return [rank for rank in dict.fromkeys([*found, *others, *known[-1:]]) if rank in known and rank != shape.delayed_rank]


def _frames(run: Run) -> Frames:
    from taut.views.frames import Frames

    return Frames(run)


def _timeline(run: Run, frames: Frames, left_bytes: int) -> bytes:
    """The timeline in what the rest leaves; its budget is without what it cannot do without."""
    from taut.views.packed_timeline import pack

    return pack(frames, run.result.findings, max(min(left_bytes - FIXED, TIMELINE), LEAST))


# ---------------------------------------------------------------------------------------------------------------------
# Bytes


def _encoded(parts: Mapping[str, object]) -> dict[str, bytes]:
    return dict(_block(name, msgspec.json.encode(value)) for name, value in parts.items())


def _block(name: str, data: bytes) -> tuple[str, bytes]:
    return (f"{name}.json", data) if len(data) < LONG else (f"{name}.json.zlib", zlib.compress(data, 9))


def unpacked(packed: Mapping[str, bytes], name: str, kind: type[T]) -> T | None:
    """An answer that was packed; None where there is none of that name."""
    if f"{name}.json" in packed:
        return msgspec.json.decode(packed[f"{name}.json"], type=kind)
    long = packed.get(f"{name}.json.zlib")
    return None if long is None else msgspec.json.decode(zlib.decompress(long), type=kind)
