"""The same small job seen from every rung."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from build import MS, Do, barriers, play
from taut.core.errors import RunError
from taut.core.tables import Call, Kind, Mark, Table, Trace, Verb
from taut.lab import ladder
from taut.lab.ladder import COSTS, rungs, tables
from taut.lab.truth import Injected, Truth
from taut.run import analyze_trace

BUILT = frozenset({"straggler cascade"})
PLAYED = [name for name in COSTS if name != "flight recorder only"]
"""Rungs of a job that is not real: it has no flight recorder."""


def job(ranks: int = 4, slow: int | None = None, steps: int = 20, **about: Any) -> Trace:
    """Compute of 50 ms, then an all-reduce; one rank may need 25 ms more from step 8 on."""
    work = 50 * MS * (1 + 0.01 * np.random.default_rng(3).standard_normal((steps, ranks)))
    if slow is not None:
        work[8:, slow] += 25 * MS
    return barriers(work, 2 * MS, **about)


def truth(fault: str, *injected: Injected, **about: Any) -> Truth:
    healthy = tuple(int(52 * MS + d) for d in 20 * (-1000,))
    faulted = tuple(t + 25 * MS * (bool(injected) and step >= 8) for step, t in enumerate(healthy))
    return Truth(job="ddp", fault=fault, seed=0, ranks=4, injected=injected, faulted_ns=faulted, healthy_ns=(healthy,), **about)


SLOW = truth(
    "slow", Injected(fault="slow", ranks=(2,), first_step=8, last_step=19),
    overhead={"plain_ms": 50.0, "profiled_ms": 55.0, "trace_bytes": 80_000.0, "flight_bytes": 800.0, "log_bytes": 1600.0},
)  # fmt: skip


def test_collectives_only_keeps_what_meets_and_forgets_lost_launches() -> None:
    ops = [
        Do(0, "launch", MS),
        Do(0, "fwd", MS, lane=1, launch=0),
        Do(0, "all-reduce", MS, lane=1, verb=Verb.ALL_REDUCE, launch=1),
    ]
    ops += [Do(1, "all-reduce", MS, verb=Verb.ALL_REDUCE), Do(1, "barrier", MS, lane=1, verb=Verb.BARRIER, launch=3)]
    ops += [Do(0, "barrier", MS, verb=Verb.BARRIER, lane=1)]
    left = rungs(play(ops))["collectives only"]
    assert [left.names[n] for n in left.ops.name] == ["all-reduce", "all-reduce", "barrier", "barrier"]
    assert left.ops.launch.tolist() == [-1, -1, 1, -1]
    assert left.ops.kind.tolist() == [Kind.COMMUNICATE, Kind.COMMUNICATE, Kind.SYNCHRONISE, Kind.SYNCHRONISE]


@pytest.mark.parametrize(("ranks", "kept"), [(4, [0]), (10, [0]), (24, [0, 10, 20])])
def test_a_tenth_of_the_ranks_says_how_many_there_were(ranks: int, kept: list[int]) -> None:
    whole = job(ranks)
    marks = Table(Mark, {"rank": np.arange(ranks), "step": np.zeros(ranks, dtype=np.int64)})
    left = rungs(replace(whole, marks=marks))["a tenth of the ranks"]
    assert left.members.rank.tolist() == np.unique(left.ops.rank).tolist() == left.marks.rank.tolist() == kept
    assert left.world_size == ranks
    assert "missing" in left.partial[-1]
    assert analyze_trace(left).result["job"]["ranks"] == len(kept)


def test_without_alignment_a_wrong_clock_stays_wrong() -> None:
    right = job(hosts={r: f"host {r}" for r in range(4)})
    wrong = 20 * MS * (right.ops.rank == 3)
    ops = right.ops.replace(start_ns=right.ops.start_ns + wrong, end_ns=right.ops.end_ns + wrong)
    left = rungs(replace(right, ops=ops))
    offset = {
        name: analyze_trace(left[name]).result["fidelity"]["clock"]["offset_ns"]["3"]["value"]
        for name in ("no clock alignment", "full trace")
    }
    assert offset["no clock alignment"] == 0
    assert offset["full trace"] == pytest.approx(20 * MS, abs=MS / 10)


def test_step_times_are_those_of_the_log_for_the_steps_of_the_trace() -> None:
    log = Table(
        Mark,
        {
            "rank": [0, 0, 0, 1, 1, 1],
            "step": [6, 7, 8, 6, 7, 8],
            "start_ns": [0, 10, 20, 0, 10, 20],
            "end_ns": [7, 18, 29, 4, 15, 26],
        },
    )
    whole = job(2, steps=2)
    whole = replace(whole, ops=whole.ops.replace(step=whole.ops.step + 7))
    left = rungs(whole, log)["step times"]
    steps = left.ops.kind == Kind.COMPUTE
    seen = [left.ops.columns[c][steps].tolist() for c in ("rank", "step", "end_ns")]
    assert seen == [[0, 0, 1, 1], [7, 8, 7, 8], [8, 9, 5, 6]]


def test_the_flight_recorder_only_shows_when_ranks_arrived() -> None:
    """Every rank makes a call when its work is done: the slow rank is told from these times alone."""
    whole = job(slow=2)
    met = whole.ops.take(whole.ops.verb != Verb.NONE)
    met = met.take(np.lexsort((met.start_ns, met.rank)))
    calls = {"rank": met.rank, "group": np.zeros(len(met)), "name": met.name, "seq": met.step, "verb": met.verb}
    table = Table(Call, {**calls, "created_ns": met.start_ns + MS, "done": np.ones(len(met))})
    left = rungs(replace(whole, calls=table, groups=["0"]))["flight recorder only"]
    assert [(f.mode, f.ranks) for f in analyze_trace(left).findings] == [("straggler cascade", (2,))]
    assert "flight recorder only" not in rungs(whole)


def test_a_log_of_other_steps_fails_on_its_rung_alone() -> None:
    log = Table(Mark, {"rank": [0, 1], "step": [99, 99], "start_ns": [0, 0], "end_ns": [7, 8]})
    seen = ladder.ladder([(job(2), log, truth("none"))], BUILT)
    assert {r.rung: r.row.verdict for r in seen} == {**dict.fromkeys(PLAYED, "quiet"), "step times": "failed"}


@pytest.mark.parametrize("marked", [True, False])
def test_step_times_without_a_log_come_from_marks_or_ops(marked: bool) -> None:
    whole = job(2, steps=4)
    if marked:
        rank, step = np.divmod(np.arange(8), 4)
        marks = Table(Mark, {"rank": rank, "step": step, "start_ns": 100 * step, "end_ns": 100 * step + 90 + rank})
        whole = replace(whole, marks=marks)
    left = rungs(whole)["step times"]
    took = left.ops.end_ns[left.ops.kind == Kind.COMPUTE].tolist()
    # A marked trace loses its first step: the profiler's own start is in it.
    assert took == [90] * 3 + [91] * 3 if marked else len(took) == 8 and min(took) > 45 * MS


def test_ladder_scores_every_run_on_every_rung_with_its_cost() -> None:
    seen = ladder.ladder([(job(slow=2), None, SLOW), (job(), None, truth("none"))], BUILT)
    assert [r.rung for r in seen] == [*PLAYED, *PLAYED]
    by = {r.rung: r for r in seen[: len(PLAYED)]}
    assert by["full trace"].row.verdict == by["no clock alignment"].row.verdict == "right"
    assert by["a tenth of the ranks"].row.verdict == "missed"
    assert by["step times"].row.verdict == "wrong mode", "all ranks' steps got longer: that is all these tell"
    assert by["full trace"].overhead == pytest.approx(0.1)
    assert by["step times"].overhead is None, "nobody measured it"
    assert {name: r.bytes_per_rank_step for name, r in by.items()} == {
        "step times": 20, "collectives only": 10, "a tenth of the ranks": 252.5, "no clock alignment": 1010, "full trace": 1010,
    }  # fmt: skip
    assert {r.bytes_per_rank_step for r in seen[len(PLAYED) :]} == {None}


def test_tables_say_what_a_rung_can_answer_and_what_the_least_is() -> None:
    seen = ladder.ladder([(job(slow=2), None, SLOW), (job(), None, truth("none"))], BUILT)
    able, answers = tables(seen)
    assert [row[0] for row in able.body] == PLAYED
    assert [*able.body[-1][:3], *able.body[-1][4:]] == ["full trace", "1 of 1", "0 of 1", "10.0 %", "1.01 kB"]
    assert able.body[0][4] == "–"
    quiet, slow = answers.body
    assert quiet == ["none", *["1/1"] * 5, ""]
    assert slow[:2] == ["slow", "0/1"]
    assert tables(ladder.ladder([(job(slow=2), None, SLOW)], frozenset()))[1].body == [["slow", *["not yet"] * 6]]
    assert slow[-1] == next(name for name, text in zip(PLAYED, slow[1:], strict=False) if text == "1/1")


def test_a_damaged_step_log_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "faulted").mkdir()
    (tmp_path / "faulted" / "steps.csv").write_text("rank,step,start_ns,end_ns,loss\n0,1,x,3,0.5\n")
    with pytest.raises(RunError, match="run the lab again"):
        ladder.recorded(tmp_path)
