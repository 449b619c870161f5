"""Values that no job has are left out or refused, and cost no memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spans import BASE, MS, Spans
from taut.core.errors import InputRefused
from taut.core.tables import Member, Op, Table, Trace
from taut.read.chakra import reader as chakra
from taut.read.jobs import progress_log as progress
from taut.read.json_values import integer
from taut.read.kineto import reader as kineto
from taut.read.limits import WALL_NS, YEAR_NS, check_wall, near
from taut.read.metrics.rank_metrics import hosts_of
from taut.read.trace import read
from taut.run import analyze_trace

NOW = 1_700_000_000_000_000_000


@pytest.mark.parametrize("stray", [0, -(2**63), 2**63 - 1, NOW + WALL_NS])
def test_what_lies_years_away_from_the_rest_is_not_near(stray: int) -> None:
    start = np.array([NOW, NOW + 5, stray, NOW + 9])
    assert near(start, np.minimum(start, 2**63 - 2) + 1).tolist() == [True, True, False, True]


def test_all_is_near_in_a_job_of_years() -> None:
    start = np.array([NOW, NOW + 9 * YEAR_NS])
    assert near(start, start + 1).all()
    check_wall(start, start + 1, "t")
    with pytest.raises(InputRefused, match="its events lie 11 years apart"):
        check_wall(start, start + 2 * YEAR_NS, "t")


def test_an_event_at_the_beginning_of_time_is_dropped_and_counted(tiny: Any) -> None:
    events = [*(tiny.event("cpu_op", "aten::mm", NOW / 1000 + i, 1) for i in range(3)), tiny.event("cpu_op", "aten::mm", 5, 1)]
    found = kineto.load(tiny.as_bytes(events), "t")
    assert len(found.ops) == 3
    assert found.counts["dropped: time out of range"] == 1


@pytest.mark.parametrize("number", [2**31, 2**62, -5, 0.5, "x"])
def test_a_rank_and_a_world_that_no_job_has_are_not_known(tiny: Any, number: Any) -> None:
    found = kineto.load(
        tiny.as_bytes([tiny.event("cpu_op", "aten::mm", 5, 1)], distributedInfo={"rank": number, "world_size": number}), "t"
    )
    assert found.members.rank.tolist() in ([-1], [0])
    assert found.world_size is None


def collective(tiny: Any, i: int, **group: Any) -> list[dict[str, Any]]:
    return [tiny.launch(i, 10.0 * i), tiny.kernel("ncclDevKernel_AllReduce_Sum", i, 10.0 * i + 3, 4, **group)]


def test_groups_of_a_million_ranks_are_spelled_out_once(tiny: Any) -> None:
    events = []
    for i in range(1, 300):
        about = {"Collective name": "allreduce", "Process Group Name": f"g{i}", "Group size": 1 << 20}
        events += collective(tiny, i, **about, **{"Global rank start": i, "Global rank stride": 1})
    found = kineto.load(tiny.as_bytes(events), "t")
    assert sum(map(len, found.group_ranks.values())) <= 1 << 20


def test_hosts_that_are_no_text_are_none() -> None:
    members = Table(Member, {"rank": [0, 1, 2], "host": np.array(["a", b"\xff", "a"], dtype=object)})
    trace = Trace(ops=Table(Op, {}, 0), names=[], lanes=[], groups=[], members=members)
    assert hosts_of(trace) == {"a": [0, 2]}


def test_spans_of_another_century_are_dropped_and_counted() -> None:
    spans = Spans()
    root = spans.add("a", "root", 0, 20)
    spans.add("a", "child", 1, 5, root)
    spans.add("a", "stray", 1000 - BASE / MS, 2, root)
    found = spans.trace()
    assert found.counts["dropped: time out of range"] == 1
    assert int(found.ops.end_ns.max()) <= 20 * MS


def test_chakra_nodes_of_different_decades_are_refused() -> None:
    node = {"type": "COMP_NODE", "durationMicros": 5}
    starts = (1_000_000, 1_700_000_000_000_000)
    nodes = [{"id": i, "name": "a", "startTimeMicros": start, **node} for i, start in enumerate(starts)]
    with pytest.raises(InputRefused, match="years apart"):
        chakra.load(json.dumps({"schema": "1.0.2-chakra.0.0.4", "nodes": nodes}).encode(), "t.0.json")


@pytest.mark.parametrize("text", ["²", "--5", "-", "", "١٢x", "9" * 5000, "nan", "1e5"])
def test_what_is_no_whole_number_is_none(text: str) -> None:
    assert integer(text) == -1


@pytest.mark.parametrize(("text", "number"), [("5", 5), (" 7 ", 7), ("-3", -3), ("٣", 3)])
def test_whole_numbers_in_texts(text: str, number: int) -> None:
    assert integer(text) == number


def test_a_progress_log_with_times_of_thousands_of_digits_is_read() -> None:
    found = progress.load(b"step,loss,time_ns\n1,2," + b"9" * 5000 + b"\n2,1,5\n", "p.csv")
    assert found.step.tolist() == [1, 2]


def test_ranks_far_apart_take_no_memory(tiny: Any, tmp_path: Path) -> None:
    for rank in (0, 2**31 - 1):
        events = [
            tiny.step(0, 0, 50),
            tiny.event("cpu_op", "aten::mm", 5, 30),
            tiny.step(1, 60, 50),
            tiny.event("cpu_op", "aten::mm", 65, 30),
        ]
        (tmp_path / f"{rank}.json").write_bytes(tiny.as_bytes(events, rank=rank, world_size=2))
    assert analyze_trace(read([tmp_path])).graph.rank_index.tolist()[-1] == 1


@pytest.mark.parametrize("kind", [2**63, 2**200, -1, 7, None, "SPAN_KIND_NONE"])
def test_a_kind_of_span_that_there_is_not_is_internal(kind: Any) -> None:
    spans = Spans()
    spans.add("a", "root", 0, 20, kind=kind)
    assert len(spans.trace().ops) == 1
