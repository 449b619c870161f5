"""Steps of several phases: found by marks, shown in the result, and never of one class."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import taut
from taut.core.tables import Kind
from taut.graph.link import link
from taut.read.kineto import reader as kineto
from taut.replay.reference import peers

PREFILL, DECODE = "step[EXTEND bs=1 toks=900]", "step[DECODE bs=1]"


def server(phases: Sequence[str], rank: int = 0) -> dict[str, Any]:
    """Steps of 100 µs with four kernels; a prefill has kernels of 20 µs, a decode of 5."""
    events: list[dict[str, Any]] = []

    def add(cat: str, name: str, ts: float, dur: float, tid: int, **args: int) -> None:
        events.append({"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": tid, "ts": ts, "dur": dur, "args": args})

    for k, name in enumerate(phases):
        add("user_annotation", name, 100 * k, 80, 1)
        for turn in range(4):
            at, number = 100 * k + 22 * turn, 4 * k + turn + 1
            add("cuda_runtime", "cudaLaunchKernel", at, 1, 1, correlation=number)
            length = 20 if name == PREFILL else 5
            add("kernel", f"gemm {turn % 2}", at + 2, length, 7, correlation=number, stream=7, device=0)
    info = {"backend": "nccl", "rank": rank, "world_size": 2}
    return {"schemaVersion": 1, "distributedInfo": info, "traceEvents": events}


MIX = [DECODE, DECODE, PREFILL, DECODE, DECODE, PREFILL, DECODE, DECODE]


def test_windows_have_the_phase_of_their_marks(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(json.dumps(server(MIX)))
    windows = taut.analyze(tmp_path / "t.json").result.windows
    assert windows is not None
    kept = [{PREFILL: "prefill", DECODE: "decode"}[name] for name in MIX][-len(windows) :]
    assert [window.phase for window in windows] == kept


def test_the_phase_is_unknown_without_such_marks(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(json.dumps(server([f"ProfilerStep#{k}" for k in range(5)])))
    windows = taut.analyze(tmp_path / "t.json").result.windows
    assert windows is not None
    assert {window.phase for window in windows} == {None}


def test_ops_of_different_phases_are_not_compared() -> None:
    trace = kineto.load(json.dumps(server(MIX)).encode(), "t.json")
    graph = link(trace)
    gemm = np.char.startswith(np.array(graph.names)[graph.ops.name], "gemm")
    prefill = np.array([word == "prefill" for word in graph.phases])[graph.window]
    assert set(graph.place[gemm & prefill]).isdisjoint(graph.place[gemm & ~prefill])
    assert not np.intersect1d(graph.work_ns[gemm & prefill], graph.work_ns[gemm & ~prefill]).size
    reference = peers(graph).value_ns
    known = gemm & np.isfinite(reference)
    assert (reference[known] == graph.work_ns[known]).all()


def test_one_phase_leaves_places_as_they_are() -> None:
    graph = link(kineto.load(json.dumps(server([DECODE] * 6)).encode(), "t.json"))
    assert len(graph.steps) == 6
    assert graph.place.tolist() == replace(graph, stored_phases=[""] * 6).place.tolist()


def test_servers_beside_each_other_need_not_be_in_step(tmp_path: Path) -> None:
    for rank, names in enumerate((MIX, [PREFILL] * 2 + MIX[2:])):
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(server(names, rank)))
    graph = link(taut.read([tmp_path]))
    assert graph.phases[graph.steps.tolist().index(1)] == "mixed"
    first = (graph.steps[graph.window] == 1) & (graph.ops.kind == Kind.COMPUTE)
    places = [set(graph.place[first & (graph.ops.rank == rank)].tolist()) for rank in range(2)]
    assert places[0].isdisjoint(places[1])


def test_a_run_opened_again_has_its_phases(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(json.dumps(server(MIX)))
    run = taut.analyze(tmp_path / "t.json")
    again = taut.open_run(run.save(tmp_path / "run"))
    assert again.graph.phases == run.graph.phases
    assert again.graph.place.tolist() == run.graph.place.tolist()
