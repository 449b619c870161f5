"""A run drawn for Perfetto, read back with its messages: every op, wait and finding is there, to the nanosecond."""

from __future__ import annotations

import io
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from dataclasses import replace as edited
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from build import MS, analyze, barriers, job, trace
from jobs import jobs, nonsense
from taut.core.tables import Action, Table, Trace
from taut.export import perfetto
from taut.result.types import Finding, Zone
from taut.run import Analysis, analyze_trace
from taut.run import analyze as run_analyze

pb = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")

PARTS = ("fault", "jitter", "structural", "gap", "unexplained")
SCRIPT = {0: "fwd 5 | AR 2", 1: "fwd 9 | AR 2", 2: "fwd 6 | AR 2"}


@dataclass
class Drawn:
    """One slice as a viewer would show it."""

    process: str
    track: str
    name: str
    start_ns: int
    end_ns: int = -1
    depth: int = 0
    args: dict[str, Any] = field(default_factory=dict)
    flows_out: list[int] = field(default_factory=list)
    flows_in: list[int] = field(default_factory=list)


def exported(analysis: Analysis) -> bytes:
    out = io.BytesIO()
    perfetto(analysis.graph, analysis.blame.waits, analysis.result["findings"], out)
    return out.getvalue()


def drawn(data: bytes) -> list[Drawn]:
    """The slices of a trace, as a viewer makes them of its events: a stack on each track."""
    tracks: dict[int, Any] = {}
    names: dict[int, Any] = {}
    stacks: dict[int, list[Drawn]] = defaultdict(list)
    out: list[Drawn] = []
    for packet in pb.Trace.FromString(data).packet:
        if packet.HasField("track_descriptor"):
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor
        elif packet.HasField("interned_data"):
            names[packet.trusted_packet_sequence_id] = packet.interned_data
        else:
            event, interned = packet.track_event, names[packet.trusted_packet_sequence_id]
            stack = stacks[event.track_uuid]
            if event.type == pb.TrackEvent.TYPE_SLICE_END:
                stack.pop().end_ns = packet.timestamp
                continue
            made = Drawn(*place(tracks, event.track_uuid), interned.event_names[event.name_iid - 1].name, packet.timestamp)
            made.depth, made.args = len(stack), dict(argument(interned, a) for a in event.debug_annotations)
            (made.flows_in if stack else made.flows_out).extend(event.flow_ids)
            stack.append(made)
            out.append(made)
    assert not any(stacks.values()), "every slice ends"
    return out


def place(tracks: dict[int, Any], uuid: int) -> tuple[str, str]:
    """Process and name of a track: its own process, its thread's, or its parent's."""
    track = tracks[uuid]
    if track.HasField("thread"):
        return tracks[track.thread.pid].process.process_name, track.thread.thread_name
    parent = tracks[track.parent_uuid]
    return (parent.process.process_name if parent.HasField("process") else place(tracks, parent.uuid)[0]), track.name


def argument(interned: Any, note: Any) -> tuple[str, Any]:
    name = interned.debug_annotation_names[note.name_iid - 1].name
    kind = note.WhichOneof("value")
    value = getattr(note, kind)
    return name, interned.debug_annotation_string_values[value - 1].str.decode() if kind == "string_value_iid" else value


def of_lanes(slices: list[Drawn], ideal: bool = False) -> list[Drawn]:
    """The ops among the slices."""
    own = ("waits", "blame", "findings", "actions")
    return [s for s in slices if s.depth == 0 and s.track not in own and s.process.endswith(", ideal") == ideal]


def zero_ns(analysis: Analysis) -> Any:
    """The time of each op's segment on the axis of the trace, where steps share one."""
    graph = analysis.graph
    return graph.origin_ns[graph.segment[graph.window]] - min(int(graph.origin_ns.min()), 0)


def assert_complete(analysis: Analysis) -> None:
    """Slices are ops, arrows are held-up members, and the events of every sequence come in the order of time."""
    data = exported(analysis)
    slices, graph, ops = drawn(data), analysis.graph, analysis.graph.ops
    seen = of_lanes(slices)
    length = zip(ops.rank, ops.name, ops.end_ns - ops.start_ns, graph.steps[graph.window], strict=True)
    assert Counter((s.process, s.name, s.end_ns - s.start_ns, s.args["step"]) for s in seen) == Counter(
        (f"rank {rank}", graph.names[name], ns, step) for rank, name, ns, step in length
    )
    if not graph.trace.relative:
        assert sorted(s.start_ns for s in seen) == sorted((ops.start_ns + zero_ns(analysis)).tolist())
    assert len(of_lanes(slices, ideal=True)) == len(ops)
    arrows_out = Counter(flow for s in slices for flow in s.flows_out)
    arrows_in = Counter(flow for s in slices for flow in s.flows_in)
    assert arrows_out == arrows_in
    assert sorted(arrows_in.values()) == [1] * len(analysis.blame.waits)
    times = defaultdict(list)
    for packet in pb.Trace.FromString(data).packet:
        times[packet.trusted_packet_sequence_id].append(packet.timestamp)
    assert all(a <= b for of_one in times.values() for a, b in pairwise(of_one))


@settings(max_examples=30)
@given(jobs())
def test_every_op_is_a_slice_and_every_held_up_member_has_an_arrow(built: Trace) -> None:
    assert_complete(analyze_trace(built))


@settings(max_examples=30)
@given(nonsense())
def test_what_no_machine_would_do_is_drawn_all_the_same(built: Trace) -> None:
    """Ops of one lane overlap: they lie side by side, and none takes another's end."""
    assert_complete(analyze_trace(edited(built, lanes=["lane 0", "lane 1"])))


def test_ops_of_one_lane_that_overlap_keep_its_name() -> None:
    columns = {
        "rank": [0, 0],
        "lane": [1, 1],
        "step": [0, 0],
        "start_ns": [0, 10 * MS],
        "end_ns": [30 * MS, 40 * MS],
        "name": [0, 0],
    }
    built = edited(trace(columns, ["fwd"], []), lanes=["loader", "stream 7"])
    assert [s.track for s in of_lanes(drawn(exported(analyze(built))))] == ["stream 7", "stream 7"]


@cache
def small() -> tuple[Analysis, list[Drawn]]:
    analysis = analyze(job(SCRIPT, steps=2))
    return analysis, drawn(exported(analysis))


def test_an_op_tells_what_is_known_of_it_and_nothing_else() -> None:
    _, slices = small()
    fwd = next(s for s in of_lanes(slices) if s.process == "rank 1" and s.name == "fwd")
    assert fwd.args == {"step": 0, "work_ns": 9 * MS, "gap_ns": 0, "wait_ns": 0, "kind": "compute"}
    meets = next(s for s in of_lanes(slices) if s.process == "rank 0" and s.name != "fwd")
    assert meets.args["wait_ns"] == 4 * MS
    assert meets.args["kind"] == "communicate"
    assert {"gate", "group"} <= set(meets.args)


def test_arrows_lead_from_the_last_arriver_to_where_the_held_up_begin_their_work() -> None:
    _, slices = small()
    sources = {flow: s for s in slices for flow in s.flows_out}
    targets = {flow: s for s in slices for flow in s.flows_in}
    first = [(sources[flow], target) for flow, target in targets.items() if sources[flow].args["step"] == 0]
    assert sorted((source.process, target.process) for source, target in first) == [("rank 1", "rank 0"), ("rank 1", "rank 2")]
    assert all(target.name == "work" and target.depth == 1 for _, target in first)
    assert all(target.start_ns == source.start_ns and target.end_ns - target.start_ns == 2 * MS for source, target in first)


def test_a_viewer_sees_the_source_of_an_arrow_before_its_target() -> None:
    """They begin in the same nanosecond, and viewers turn an arrow round whose target comes first."""
    _, slices = small()
    begun: set[int] = set()
    for one in slices:
        assert set(one.flows_in) <= begun
        begun |= set(one.flows_out)


def test_waits_say_for_whom_and_their_blame_fills_them() -> None:
    analysis, slices = small()
    waits = [s for s in slices if s.track == "waits"]
    assert {(s.process, s.name) for s in waits} == {("rank 0", "waits for rank 1"), ("rank 2", "waits for rank 1")}
    assert sum(s.end_ns - s.start_ns for s in waits) == analysis.blame.totals.wait_ns
    for part in PARTS:
        blamed = [s for s in slices if s.track == "blame" and s.name == part]
        assert sum(s.end_ns - s.start_ns for s in blamed) == getattr(analysis.blame.totals, f"{part}_ns")
        assert all(s.args["waits_for_rank"] == 1 for s in blamed)


def test_the_ideal_lies_beside_the_observed_and_is_the_ideal_of_the_result() -> None:
    analysis, slices = small()
    ideal = of_lanes(slices, ideal=True)
    assert {s.process for s in ideal} == {f"rank {rank}, ideal" for rank in SCRIPT}
    first = min(s.start_ns for s in of_lanes(slices))
    assert max(s.end_ns for s in ideal) - first == analysis.result["whatif"]["ideal_wall_ns"]


def test_findings_lie_over_their_steps_on_their_ranks() -> None:
    work = 100 * MS * (1 + 0.01 * np.random.default_rng(1).standard_normal((16, 4)))
    work[8:, 2] *= 2
    analysis = analyze(barriers(work, MS))
    (finding,) = analysis.result["findings"]
    slices = drawn(exported(analysis))
    (shown,) = [s for s in slices if s.track == "findings"]
    named = [
        s for s in of_lanes(slices) if s.process == "rank 2" and finding["steps"][0] <= s.args["step"] <= finding["steps"][1]
    ]
    assert finding["ranks"] == [2]
    assert (shown.process, shown.name) == ("rank 2", finding["mode"])
    assert (shown.start_ns, shown.end_ns) == (min(s.start_ns for s in named), max(s.end_ns for s in named))
    assert shown.args == {key: finding[key] for key in ("lost_rank_ns", "recoverable_wall_ns", "confidence", "id", "because")}


def test_a_finding_without_ranks_lies_on_the_ends_of_its_links_or_on_its_stages_or_on_all() -> None:
    analysis, _ = small()
    about = {
        "mode": "m",
        "id": "f",
        "because": "",
        "lost_rank_ns": 1,
        "recoverable_wall_ns": 1,
        "confidence": 1.0,
        "steps": (0, 1),
        "classes": [],
        "alternatives": [],
        "money": None,
    }
    findings = [
        Finding(**about, ranks=[], links=["2:1"], stages=[]),
        Finding(**about, ranks=[], links=[], stages=[]),
    ]
    out = io.BytesIO()
    perfetto(analysis.graph, analysis.blame.waits, findings, out)
    slices = [s for s in drawn(out.getvalue()) if s.track == "findings"]
    assert Counter(s.process for s in slices) == {"rank 0": 1, "rank 1": 2, "rank 2": 2}


def test_steps_without_a_common_clock_follow_each_other() -> None:
    analysis = analyze(job(SCRIPT, steps=3, relative=True))
    ends = [0, 0, 0]
    starts = [1 << 62] * 3
    for s in of_lanes(drawn(exported(analysis))):
        starts[s.args["step"]] = min(starts[s.args["step"]], s.start_ns)
        ends[s.args["step"]] = max(ends[s.args["step"]], s.end_ns)
    assert starts[1:] == ends[:-1]
    assert [end - start for start, end in zip(starts, ends, strict=True)] == analysis.observed.window_ns.tolist()


def test_actions_lie_on_tracks_of_their_controllers_in_the_traced_time() -> None:
    built = job(SCRIPT, steps=2)
    at = int(built.ops.start_ns.min())
    fields: dict[str, Any] = {
        "time_ns": [at - 10**12, at - MS, at + MS, at + 2 * MS], "busy_ns": [MS, 3 * MS, -1, 5 * MS],
        "controller": ["hpa", "hpa", "ops", "hpa"], "target": ["web"] * 4, "knob": ["replicas"] * 4,
        "before": ["", "", "", "5"], "after": ["1", "2", "", "3"], "direction": [1, 1, -1, 0], "trigger": ["", "cpu", "", ""],
    }  # fmt: skip
    words = {key: np.array(value, dtype=object) if isinstance(value[0], str) else value for key, value in fields.items()}
    analysis = analyze(edited(built, actions=Table(Action, words)))
    slices = [s for s in drawn(exported(analysis)) if s.process == "control"]
    zero = at - min(int(analysis.graph.origin_ns.min()), 0)
    seen = [(s.track, s.name, s.start_ns - zero, s.end_ns - s.start_ns, s.args) for s in slices]
    assert sorted(seen, key=lambda row: row[2]) == [
        ("hpa", "replicas of web: ? → 2", 0, 2 * MS, {"direction": "up", "trigger": "cpu"}),
        ("ops", "replicas of web", MS, 1, {"direction": "down"}),
        ("hpa", "replicas of web: 5 → 3", 2 * MS, 5 * MS, {}),
    ]


def test_a_zone_alone_has_its_ops_and_the_actions_of_its_time() -> None:
    """Rank 1 is hit twice in step 1 of 4: of three ranks one is drawn, from the first action to the op after the last."""
    built = job(SCRIPT, steps=4)
    numbers = {"time_ns": [12 * MS, 14 * MS, 40 * MS], "busy_ns": [-1, -1, -1]}
    words = {"controller": ["a", "b", "a"], "target": ["rank 1", "rank 1", "rank 0"], "knob": ["clock"] * 3}
    columns = {**numbers, **{key: np.array(value, dtype=object) for key, value in words.items()}}
    analysis = analyze(edited(built, actions=Table(Action, columns)))
    zone = Zone(ranks=[1], steps=(1, 1), ops=0, first_ns=12 * MS, last_ns=22 * MS, rank_ns=0)
    out = io.BytesIO()
    perfetto(analysis.graph, analysis.blame.waits, [], out, zone)
    slices = drawn(out.getvalue())
    assert {s.process for s in slices} == {"rank 1", "rank 1, ideal", "control"}
    seen = [(s.name, s.args["step"], s.start_ns // MS, s.end_ns // MS) for s in of_lanes(slices) if s.process == "rank 1"]
    assert seen == [("fwd", 1, 11, 20), ("all-reduce", 1, 20, 22), ("fwd", 2, 22, 31)]
    assert sorted(s.track for s in slices if s.process == "control") == ["a", "b"]


def test_actions_lie_over_the_ranks_that_they_hit_until_the_next_op_there() -> None:
    built = job({0: "fwd 5 | AR 2", 1: "fwd 5 | AR 2"}, steps=2)
    numbers = {"time_ns": [6 * MS, 8 * MS, 9 * MS]}
    words = {"controller": ["a", "b", "c"], "target": ["rank 1", "job", "nobody"], "knob": ["clock"] * 3}
    columns = {**numbers, **{key: np.array(value, dtype=object) for key, value in words.items()}}
    slices = drawn(exported(analyze(edited(built, actions=Table(Action, columns)))))
    over = [(s.process, s.args["controller"], s.start_ns // MS, s.end_ns // MS) for s in slices if s.track == "actions"]
    assert sorted(over) == [("rank 0", "b", 8, 12), ("rank 1", "a", 6, 7), ("rank 1", "b", 8, 12)]


def test_names_from_a_trace_are_capped_data() -> None:
    built = job({0: "fwd 5"})
    named = edited(built, names=["\x1b[2J\u202e" + "x" * 10_000, *built.names[1:]], lanes=["lane\n"])
    (op,) = of_lanes(drawn(exported(analyze(named))))
    assert op.name.startswith("\\x1b[2J\\u202exxx")
    assert len(op.name) < 1000
    assert op.track == "lane\\n"


def test_the_same_job_gives_the_same_bytes() -> None:
    analysis, _ = small()
    assert exported(analysis) == exported(analyze(job(SCRIPT, steps=2)))


def test_real_traces_of_a_pipeline(shared: Path) -> None:
    assert_complete(run_analyze([shared / "lab-pipeline"]))
