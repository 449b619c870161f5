"""Steps of traces without marks, and windows that have none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from taut import read
from taut.core.tables import Kind, Member, Op, Table, Trace, Verb
from taut.graph.recurring_units import recurring

LAYER = ["norm", "qkv", "rope", "attention", "out", "norm", "gate", "silu", "down"]
STEP = ["copy h2d", "embed", *LAYER * 24, "final norm", "logits", "sample", "copy d2h"]
PREFILL = ["copy h2d", "embed", *[f"{name} big" for name in LAYER] * 24, "final norm", "logits", "sample", "copy d2h"]
BACK = ["norm back", "mm back", "attention back", "add"]
TRAIN = ["embed", *LAYER * 8, "loss", "loss back", *BACK * 8, "embed back", "clip", "adam", "adam 2"]


def traced(sequences: Sequence[Sequence[str]], ahead: int | None = None) -> Trace:
    """One device lane a rank, with these kernels one after the other; with launches ``ahead`` of them, or without any."""
    names = sorted({name for names in sequences for name in names} | {"launch"})
    rows: list[tuple[int, ...]] = []
    for rank, sequence in enumerate(sequences):
        for k, name in enumerate(sequence):
            verb = Verb.ALL_REDUCE if name.startswith("reduce") else Verb.NONE
            size = int(name.split()[1]) if verb and " " in name else -1
            launch = -1
            if ahead is not None:
                launch = len(rows)
                rows.append((rank, 1, Kind.COORDINATE, names.index("launch"), 10 * k, 10 * k + 2, 0, -1, -1))
            kind = Kind.COMMUNICATE if verb else Kind.COMPUTE
            at = 10 * k + (ahead or 0)
            rows.append((rank, 0, kind, names.index(name), at, at + 9, verb, size, launch))
    fields = ("rank", "lane", "kind", "name", "start_ns", "end_ns", "verb", "size", "launch")
    columns = dict(zip(fields, np.array(rows, dtype=np.int64).T, strict=True))
    members = Table(Member, {"rank": np.arange(len(sequences))})
    return Trace(Table(Op, columns), names, ["stream 7", "thread 1"], [], members)


def steps(sequence: Sequence[str]) -> list[int]:
    """How many ops each step has; those of cut steps come first, under -1."""
    step = recurring(traced([sequence]))
    return [int((step == k).sum()) for k in range(-1, int(step.max()) + 1)]


@pytest.mark.parametrize(
    ("sequence", "count"),
    [
        (STEP * 6, 6),
        (TRAIN * 5, 5),
        ([*PREFILL, *STEP * 9], 10),
        (STEP * 3, 3),
        ((["read", *LAYER * 24, "loss", *BACK * 24] * 4 + ["clip", "adam"]) * 3, 3),
        ([*TRAIN, *TRAIN, "log"] * 3, 6),
    ],
    ids=["decode", "training", "prefill first", "three", "gradient accumulation", "logging every other step"],
)
def test_the_unit_is_the_step_not_its_layers(sequence: list[str], count: int) -> None:
    found = steps(sequence)
    assert (len(found) - 1, found[0]) == (count, 0)


@pytest.mark.parametrize(
    "sequence",
    [
        STEP,
        STEP * 2,
        TRAIN,
        ["embed", *[*LAYER, "reduce 64"] * 24, "logits", "reduce 512", "sample"],
        ["reduce 64"] * 50,
        ["gemm"] * 50,
        ["embed", *LAYER * 3, *[*LAYER, "route", "experts"] * 20, "logits", "sample"],
        [
            "h2d",
            "embed",
            *LAYER * 3,
            *[f"{name} {k}" for name in LAYER for k in range(5)] * 58,
            "logits",
            "top",
            "sample",
            "d2h",
        ],
        ["patch", *[name + " a" for name in LAYER] * 12, *[name + " b" for name in LAYER] * 12, "sample"],
        [f"only once {k}" for k in range(50)],
    ],
    ids=[
        "decode",
        "two",
        "training",
        "tensor parallel",
        "collectives",
        "one kernel",
        "dense then moe",
        "many classes",
        "two stacks",
        "setup",
    ],
)
def test_a_window_without_steps_stays_one(sequence: list[str]) -> None:
    assert steps(sequence) == [0, len(sequence)]


def test_steps_that_are_cut_are_left_out() -> None:
    cut = STEP * 6
    found = steps(cut[100:-60])
    assert (found[0], len(found) - 1, set(found[1:])) == (len(STEP) - 100 + len(STEP) - 60, 4, {len(STEP)})


def test_nothing_is_cut_of_whole_steps_that_only_something_inside_tells() -> None:
    step = [*LAYER * 6, "route", *LAYER * 6]
    assert steps(step * 5) == [0, *[len(step)] * 5]


@pytest.mark.parametrize("seed", range(10))
def test_extra_kernels_do_not_hide_the_steps(seed: int) -> None:
    chance = np.random.default_rng(seed)
    noisy = [name for one in STEP * 8 for name in ([one, "extra"] if chance.random() < 0.01 else [one])]
    assert len(steps(noisy)) - 1 == 8


@pytest.mark.parametrize("seed", range(5))
def test_streams_that_overtake_each_other(seed: int) -> None:
    chance = np.random.default_rng(seed)
    order = np.argsort(np.arange(8 * len(STEP)) + chance.uniform(0, 3, 8 * len(STEP)))
    assert len(steps([(STEP * 8)[k] for k in order])) - 1 in (7, 8)


@pytest.mark.parametrize("seed", range(5))
def test_kernels_that_depend_on_the_data(seed: int) -> None:
    chance = np.random.default_rng(seed)
    experts = [f"expert {k}" for k in range(8)]
    routed = [[name for name in experts if chance.random() < 0.5] for _ in range(10)]
    wide = [f"{name} {k}" for name in LAYER for k in range(3)]
    found = steps([name for some in routed for name in ["copy h2d", "embed", *[*wide, *some] * 12, "logits", "sample"]])
    assert len(found) - 1 == 10


def test_prefills_among_decodes() -> None:
    assert len(steps([*STEP * 5, *PREFILL, *STEP * 5, *PREFILL, *STEP * 5])) - 1 == 17


def test_what_prepares_the_first_token_hides_no_tokens() -> None:
    """A prompt is prepared and prefilled by other kernels; then the host reads every token."""
    prepare = [f"prepare {k}" for k in range(8)] + ["embed", "embed"]
    found = steps([*prepare, *PREFILL, *STEP * 9])
    assert (len(found) - 1, found[1:]) == (10, [len(STEP)] * 10)
    assert found[0] == len(prepare)


def test_layers_are_no_tokens_though_all_else_comes_before_them() -> None:
    assert len(steps([f"prepare {k}" for k in range(12)] + LAYER * 24)) == 2


def test_calls_belong_to_the_step_of_what_they_launched() -> None:
    trace = traced([STEP * 6], ahead=7 * len(STEP))
    step = recurring(trace)
    work = np.flatnonzero(trace.ops.launch >= 0)
    assert step.max() == 5
    assert (step[trace.ops.launch[work]] == step[work]).all()


def test_ranks_have_the_same_steps() -> None:
    trace = traced([STEP * 6, [*STEP[-1:], *STEP * 6]])
    step = recurring(trace)
    assert np.bincount(step[trace.ops.rank == 0]).tolist() == [len(STEP)] * 6
    assert np.bincount(step[trace.ops.rank == 1] + 1).tolist() == [1, *[len(STEP)] * 6]


def test_ranks_without_a_common_unit_have_one_window() -> None:
    assert recurring(traced([STEP * 6, TRAIN])).max() == 0


def test_collectives_alone() -> None:
    assert len(steps(["reduce 64", "reduce 64", "reduce 32", "reduce 8"] * 5)) - 1 == 5


@pytest.mark.parametrize(
    ("path", "count"),
    [
        ("lab-baseline", 10),
        ("lab-fsdp", 3),
        ("wild/hta_trace_diff_test.json.gz", 6),
        ("wild/kineto_resnet50_nw0.pt.trace.json.gz", 6),
        ("kineto-single/ns_resolution.pt.trace.json.gz", 5),
        ("wild/tracelens_vllm_decode_full.json.gz", 1),
        ("wild/tracelens_b200_eager.json.gz", 1),
        ("wild/nsysai_h100_2gpu_1s.sqlite", 1),
        ("kineto-2of128", 1),
    ],
)
def test_steps_of_real_traces_are_found_without_their_marks(shared: Path, path: str, count: int) -> None:
    assert recurring(read([shared / path])).max() + 1 == count
