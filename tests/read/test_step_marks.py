"""Ranges that people, frameworks and servers write → steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from taut.read.kineto import reader as kineto
from taut.read.step_marks import Loop, Ranges, loops

Range = tuple[str, int, int] | tuple[str, int, int, int]


def found(ranges: list[Range], launches: list[int] | range) -> Loop | None:
    """The loop of one process; a range is (name, start, end, thread)."""
    names = list(dict.fromkeys(one[0] for one in ranges))
    thread, start, end = ([one[k] if len(one) > k else 1 for one in ranges] for k in (3, 1, 2))
    code = [names.index(one[0]) for one in ranges]
    columns = (np.array(column, dtype=np.int64) for column in (thread, start, end, code))
    return loops(Ranges(*columns, names), {0: np.array(sorted(launches), dtype=np.int64)}).get(0)


def marks(loop: Loop | None) -> list[tuple[int, int, int]]:
    if loop is None:
        return []
    table = loop.marks()
    return list(zip(table.step.tolist(), table.start_ns.tolist(), table.end_ns.tolist(), strict=True))


def every(names: list[str], width: int = 80) -> list[Range]:
    """These ranges, one each 100."""
    return [(name, 100 * k, 100 * k + width) for k, name in enumerate(names)]


VLLM = [
    "execute_context_2(512)_generation_0(0)",
    "execute_context_1(128)_generation_2(2)",
    "execute_context_0(0)_generation_3(3)",
    "execute_context_0(0)_generation_3(3)",
]
VLLM_NEW = [
    "execute_64_context_1(sq64sk64sqsq4096sqsk4096)_generation_0(sq0sk0sqsq0sqsk0)",
    "execute_2_context_0(sq0sk0sqsq0sqsk0)_generation_2(sq2sk130sqsq2sqsk130)",
    "execute_2_context_0(sq0sk0sqsq0sqsk0)_generation_2(sq2sk132sqsq2sqsk132)",
]
SGLANG = ["step[EXTEND bs=2 toks=640]", "step[DECODE bs=2]", "step[MIXED bs=3]", "step[DECODE bs=3]"]
TRTLLM = [
    "[Executor] _forward_step 41: 1 ctx reqs, 0 gen reqs",
    "[Executor] _forward_step 42: 1 ctx reqs, 800 ctx tokens, 7 gen reqs",
    "[Executor] _forward_step 43: 0 ctx reqs, 8 gen reqs",
]
PEOPLE = ["prefill", "decode_step_000", "decode_step_001", "decode_step_002"]


@pytest.mark.parametrize(
    ("names", "steps", "phases"),
    [
        (VLLM, [0, 1, 2, 3], ["prefill", "mixed", "decode", "decode"]),
        (VLLM_NEW, [0, 1, 2], ["prefill", "decode", "decode"]),
        (SGLANG, [0, 1, 2, 3], ["prefill", "decode", "mixed", "decode"]),
        (TRTLLM, [41, 42, 43], ["prefill", "mixed", "decode"]),
        (PEOPLE, [0, 1, 2, 3], ["prefill", "decode", "decode", "decode"]),
    ],
    ids=["vllm", "vllm with sums", "sglang", "tensorrt-llm", "people"],
)
def test_marks_of_servers_tell_the_phase(names: list[str], steps: list[int], phases: list[str]) -> None:
    loop = found(every(names), range(5, 400, 10))
    assert loop is not None
    assert (loop.step.tolist(), loop.phase) == (steps, phases)
    assert loop.marks().phase.tolist() == phases


@pytest.mark.parametrize(
    ("names", "steps"),
    [
        (["[pl][profile]run_training_batch"] * 4, [0, 1, 2, 3]),
        (["Iteration 12", "Iteration 13", "Iteration 14"], [12, 13, 14]),
        (["train_step"] * 2, [0, 1]),
        (["Step 3/100", "Step 4/100", "Step 5/100"], [3, 4, 5]),
        (["epoch 0 step 8", "epoch 0 step 9", "epoch 1 step 0"], [0, 1, 2]),
        (["batch_7", "batch_8"], [7, 8]),
        (["gpu_model_runner: forward"] * 3, [0, 1, 2]),
        (["Worker.execute_model"] * 3, [0, 1, 2]),
        (["step_5", "step_6"], [5, 6]),
        (["iteration_3_ga_step_0", "iteration_3_ga_step_1", "iteration_4_ga_step_0", "iteration_4_ga_step_1"], [3, 4]),
    ],
)
def test_marks_of_iterations(names: list[str], steps: list[int]) -> None:
    loop = found(every(names), range(5, 400, 10))
    assert loop is not None
    assert loop.step.tolist() == steps
    assert loop.start.tolist() == [k * 100 * (len(names) // len(steps)) for k in range(len(steps))]


@pytest.mark.parametrize(
    "names",
    [
        ["layer_0", "layer_1", "layer_2", "layer_3"],
        ["decoder_layer"] * 4,
        ["## Call CompiledFxGraph fabc ##"] * 4,
        ["run_training_epoch"] * 4,
        ["Optimizer.zero_grad#Adam.zero_grad"] * 4,
        ["lr_scheduler.step"] * 4,
        ["request 1", "request 2", "request 3"],
        ["criterion"] * 2,
    ],
)
def test_parts_of_steps_are_no_steps(names: list[str]) -> None:
    assert found(every(names), range(5, 400, 10)) is None


def test_marks_around_nothing_are_no_steps() -> None:
    assert found(every(SGLANG), []) is None
    idle = found(every([*SGLANG, "step[IDLE bs=0]", "step[DECODE bs=3]"]), [*range(5, 400, 10), 510, 520])
    assert marks(idle)[-2:] == [(3, 300, 500), (4, 500, 580)]


def test_a_part_inside_a_step_does_not_count() -> None:
    inside: list[Range] = [
        (f"forward_step {k}", 100 * (k // 4) + 20 * (k % 4), 100 * (k // 4) + 20 * (k % 4) + 19) for k in range(16)
    ]
    loop = found([*inside, *every(["train_step"] * 4)], range(5, 400, 10))
    assert loop is not None
    assert (loop.stem, len(loop.step)) == ("train_step", 4)


def test_a_name_inside_itself_counts_once() -> None:
    inside: list[Range] = [("train_step", start + 10, end - 10) for _, start, end in every(["train_step"] * 4)]
    assert [start for _, start, _ in marks(found([*inside, *every(["train_step"] * 4)], range(5, 400, 10)))] == [
        0,
        100,
        200,
        300,
    ]


def test_marks_of_a_warm_up_are_not_the_loop() -> None:
    warm: list[Range] = [("prefill", 10 * k, 10 * k + 9) for k in range(3)]
    loop = found([*warm, *[(f"iteration {k}", 100 * k, 100 * k + 80) for k in range(1, 9)]], range(5, 900, 10))
    assert loop is not None
    assert loop.step.tolist() == list(range(1, 9))


def test_the_thread_that_launches_counts() -> None:
    other: list[Range] = [(name, start + 90, start + 95, 2) for name, start, _ in every(SGLANG)]
    assert marks(found([*other, *every(SGLANG)], range(5, 400, 10)))[0] == (0, 0, 100)


def test_drafts_of_a_server_that_speculates_are_parts_of_its_steps() -> None:
    cycle = ["step[TARGET_VERIFY bs=4]", "step[DRAFT_EXTEND bs=4]", "step[DECODE bs=4]", "step[DECODE bs=4]"]
    loop = found(every(["step[EXTEND bs=4 toks=99]", *cycle * 3]), range(5, 1300, 10))
    assert loop is not None
    assert loop.start.tolist() == [0, 100, 500, 900]
    assert loop.phase == ["prefill", "decode", "decode", "decode"]


def test_what_follows_a_range_belongs_to_its_step_also_after_the_last() -> None:
    launches = [t for k in range(3) for t in (100 * k + 10, 100 * k + 20, 100 * k + 85, 100 * k + 90)]
    assert marks(found(every(["train_step"] * 3), launches)) == [(0, 0, 100), (1, 100, 200), (2, 200, 291)]


def test_optimisers_end_steps_that_nobody_marked() -> None:
    ends: list[Range] = [("Optimizer.step#Adam.step", 100 * k + 90, 100 * k + 99) for k in range(4)]
    loop = found(ends, range(5, 400, 10))
    assert marks(loop) == [(0, 5, 99), (1, 99, 199), (2, 199, 299), (3, 299, 399)]
    assert loop is not None
    assert loop.doubt == "of optimisers are taken as the ends of steps"


def test_the_first_step_before_an_optimiser_may_be_cut() -> None:
    ends: list[Range] = [("Optimizer.step#Adam.step", 100 * k + 90, 100 * k + 99) for k in range(4)]
    assert marks(found(ends, range(55, 400, 10))) == [(0, 99, 199), (1, 199, 299), (2, 299, 399)]


def test_optimisers_that_take_turns_are_of_one_step() -> None:
    ends: list[Range] = [(f"Optimizer.step#{'AS'[k % 2]}.step", 100 * k + 90, 100 * k + 99) for k in range(8)]
    assert marks(found(ends, range(5, 800, 10)))[1:] == [(1, 199, 399), (2, 399, 599), (3, 599, 799)]


def test_optimisers_of_one_name_take_turns_where_their_launches_do() -> None:
    """Two networks that are trained in turn launch almost as much, but exactly as much every other time."""
    ends: list[Range] = [("Optimizer.step#Adam.step", 100 * k + 90, 100 * k + 99) for k in range(8)]
    launches = [100 * k + at for k in range(8) for at in range(5, 90 if k % 2 else 80, 8)]
    assert marks(found(ends, launches))[1:] == [(1, 199, 399), (2, 399, 599), (3, 599, 799)]


def test_three_optimisers_of_one_step_are_not_three_steps() -> None:
    ends: list[Range] = [("Optimizer.step#Adam.step", at, at + 5) for at in (900, 910, 920)]
    assert found(ends, [*range(5, 900, 10), 902, 912, 922]) is None


def test_batches_of_a_loader_begin_steps_and_the_last_may_be_cut() -> None:
    loads: list[Range] = [("enumerate(DataLoader)#_Iter.__next__", 100 * k, 100 * k + 5) for k in range(4)]
    assert marks(found(loads, range(8, 350, 10))) == [(0, 0, 100), (1, 100, 200), (2, 200, 300)]
    assert len(marks(found(loads, range(8, 400, 10)))) == 4


def test_micro_steps_are_joined_up_to_the_update() -> None:
    updates: list[Range] = [("Optimizer.step#Adam.step", 200 * k + 170, 200 * k + 178) for k in range(3)]
    loop = found([*updates, *every(["[pl][profile]run_training_batch"] * 6)], range(5, 600, 10))
    assert marks(loop) == [(0, 0, 200), (1, 200, 400), (2, 400, 596)]


def kineto_trace(tiny: Any, notes: list[Any], launches: range) -> Any:
    work = [(tiny.launch(k + 1, ts), tiny.kernel("gemm", k + 1, ts + 30, 4)) for k, ts in enumerate(launches)]
    return kineto.load(tiny.as_bytes([*notes, *(event for pair in work for event in pair)]), "t.json")


def test_annotations_of_a_kineto_trace(tiny: Any) -> None:
    notes = [tiny.event("user_annotation", name, 100 * k, 80) for k, name in enumerate(SGLANG)]
    trace = kineto_trace(tiny, notes, range(5, 400, 10))
    assert trace.marks.phase.tolist() == ["prefill", "decode", "mixed", "decode"]
    assert sorted(set(trace.ops.step.tolist())) == [0, 1, 2, 3]


def test_steps_of_the_profiler_come_before_others(tiny: Any) -> None:
    notes = [tiny.event("user_annotation", name, 100 * k, 80) for k, name in enumerate(SGLANG)]
    trace = kineto_trace(tiny, [*notes, tiny.step(7, 0, 200), tiny.step(8, 200, 200)], range(5, 400, 10))
    assert trace.marks.step.tolist() == [7, 8]
    assert trace.marks.phase.tolist() == ["mixed", "mixed"]


def test_steps_of_the_profiler_have_the_phase_of_the_server_inside(tiny: Any) -> None:
    notes = [tiny.event("user_annotation", name, 100 * k + 5, 80) for k, name in enumerate(SGLANG)]
    trace = kineto_trace(tiny, [*notes, *(tiny.step(k, 100 * k, 100) for k in range(4))], range(6, 400, 10))
    assert (trace.marks.step.tolist(), trace.marks.phase.tolist()) == ([0, 1, 2, 3], ["prefill", "decode", "mixed", "decode"])


def test_a_loop_inside_the_only_step_of_the_profiler(tiny: Any) -> None:
    notes = [tiny.event("user_annotation", name, 100 * k, 80) for k, name in enumerate(SGLANG)]
    trace = kineto_trace(tiny, [*notes, tiny.step(7, 0, 399)], range(5, 400, 10))
    assert trace.marks.step.tolist() == [0, 1, 2, 3]


def test_what_is_only_implied_does_not_part_a_step_of_the_profiler(tiny: Any) -> None:
    notes = [tiny.event("user_annotation", "Optimizer.step#Adam.step", 100 * k + 90, 9) for k in range(4)]
    trace = kineto_trace(tiny, [*notes, tiny.step(7, 0, 399)], range(5, 400, 10))
    assert trace.marks.step.tolist() == [7]


def test_one_mark_of_a_server_is_one_step(tiny: Any) -> None:
    note = tiny.event("user_annotation", "execute_context_0(0)_generation_8(8)", 0, 80)
    trace = kineto_trace(tiny, [note], range(5, 80, 10))
    assert (trace.marks.step.tolist(), trace.marks.phase.tolist()) == ([0], ["decode"])


def test_steps_of_the_profiler_around_nothing(tiny: Any) -> None:
    trace = kineto_trace(tiny, [tiny.step(k, 100 * k, 100) for k in range(6)], range(105, 400, 10))
    assert trace.marks.step.tolist() == [1, 2, 3]


def test_an_assumption_is_noted(tiny: Any) -> None:
    notes = [tiny.event("user_annotation", "train_step", 100 * k, 80) for k in range(4)]
    assert kineto_trace(tiny, notes, range(5, 400, 10)).partial == (
        "annotations named 'train_step' are taken as steps, numbered in their order",
    )


def test_shadows_on_the_device_serve_where_the_host_has_no_annotations(tiny: Any) -> None:
    # The device runs far behind the host: its third step is shown where the host launches its fourth.
    shadows = [
        tiny.event("gpu_user_annotation", name, 100 * k + 130, 90, stream)
        for k, name in enumerate(SGLANG)
        for stream in (7, 20)
    ]
    work = [(tiny.launch(k + 1, ts), tiny.kernel("gemm", k + 1, ts + 130, 4)) for k, ts in enumerate(range(5, 400, 10))]
    trace = kineto.load(tiny.as_bytes([*shadows, *(event for pair in work for event in pair)]), "t.json")
    assert trace.marks.phase.tolist() == ["prefill", "decode", "mixed", "decode"]
    launched = [op["start"] for op in tiny.ops_of(trace) if op["name"] == "cudaLaunchKernel" and op["step"] == 1]
    assert (min(launched), max(launched)) == (105, 195)


def test_shadows_never_count_beside_annotations(tiny: Any) -> None:
    notes = [
        tiny.event(cat, name, 100 * k, 80)
        for k, name in enumerate(SGLANG)
        for cat in ("user_annotation", "gpu_user_annotation")
    ]
    trace = kineto_trace(tiny, notes, range(5, 400, 10))
    assert trace.marks.step.tolist() == [0, 1, 2, 3]
    assert trace.counts["dropped: gpu_user_annotation"] == 4
