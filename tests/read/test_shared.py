"""What is known of the real traces beside the repository."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from taut.core.tables import Kind, Trace, Verb
from taut.read.trace import read


def serial(trace: Trace) -> bool:
    """No two ops of a lane overlap."""
    ops = trace.ops
    order = np.lexsort((ops.end_ns, ops.start_ns, ops.lane, ops.rank))
    same = (np.diff(ops.lane[order]) == 0) & (np.diff(ops.rank[order]) == 0)
    return bool((ops.start_ns[order][1:] >= ops.end_ns[order][:-1])[same].all())


def verbs(trace: Trace) -> dict[str, int]:
    return dict(Counter(Verb(int(verb)).word for verb in trace.ops.verb if verb))


def test_dlrm(shared: Path) -> None:
    trace = read([shared / "dlrm-8rank" / "dlrm_kineto.tar.gz"])
    assert (trace.world_size, trace.backend, trace.counts["events"]) == (8, "nccl", 26_538)
    assert trace.members.rank.tolist() == list(range(8))
    assert verbs(trace) == {"all-to-all": 40, "all-reduce": 24}
    assert serial(trace)


def test_rank_seven_of_dlrm_arrives_last_in_the_first_five_collectives(shared: Path) -> None:
    ops = read([shared / "dlrm-8rank" / "dlrm_kineto.tar.gz"]).ops
    starts = np.stack([np.sort(ops.start_ns[(ops.rank == r) & (ops.verb != Verb.NONE)]) for r in range(8)])
    last = starts.argmax(axis=0).tolist()
    assert last[:5] == [7] * 5
    assert set(last[5:]) <= {4, 5}


def test_a_large_single_rank(shared: Path) -> None:
    trace = read([shared / "kineto-single" / "df_index_resolver.json.gz"])
    assert (trace.counts["events"], len(trace.ops)) == (216_092, 44_581)
    assert trace.partial == ("rank 0 of 2 missing: waits for it cannot be seen",)
    assert serial(trace)


def test_two_of_many(shared: Path) -> None:
    trace = read([shared / "kineto-2of128"])
    assert trace.partial == ("ranks 2–127 of 128 missing: waits for them cannot be seen",)
    assert trace.marks.step.tolist() == [551, 552, 551, 552]


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("lab-baseline", {"all-reduce": 160}),
        ("lab-slow-link", {"all-reduce": 160}),
        ("lab-fsdp", {"all-gather": 96, "reduce-scatter": 48}),
        ("lab-pipeline", {"send": 144, "recv": 144}),
    ],
)
def test_every_gloo_transfer_of_the_lab_finds_its_call(shared: Path, folder: str, expected: dict[str, int]) -> None:
    trace = read([shared / folder])
    ops = trace.ops
    transfers = ops.kind == Kind.COMMUNICATE
    assert verbs(trace) == expected
    assert (ops.launch[transfers] >= 0).all()
    assert (ops.start_ns[ops.launch[transfers]] <= ops.start_ns[transfers]).all()
    assert ((ops.seq[transfers] >= 0) | (ops.verb[transfers] >= Verb.SEND)).all()
    assert serial(trace)
