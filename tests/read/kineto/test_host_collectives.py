"""Collectives that the host runs in a job with an accelerator."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import taut
from taut.read.kineto import reader

Write = Callable[..., Path]


def step_of(tiny: Any, number: int, begin: float, ready: float, moved: float, library: str = "gloo") -> list[dict[str, Any]]:
    """One step: a kernel and the copy to the host until ``ready``, the transfer until ``moved``, and the copy back.

    The annotation of the library begins on its own thread long before the data are on the host, as torch has it.
    """
    c = 10 * number + 1
    note = tiny.gloo("all_reduce", begin + 12, moved + 6 - begin - 12, 1000)
    note["name"] = f"{library}:all_reduce"
    copies = [
        tiny.event("gpu_memcpy", "Memcpy DtoH", ready - 5, 5, 7, correlation=c + 1, stream=7, device=0, bytes=4000),
        tiny.event("gpu_memcpy", "Memcpy HtoD", moved + 8, 5, 7, correlation=c + 2, stream=7, device=0, bytes=4000),
    ]
    return [
        tiny.step(number, begin, moved + 30 - begin),
        tiny.launch(c, begin + 1),
        tiny.kernel("gemm", c, begin + 10, ready - 6 - begin - 10),
        tiny.c10d("allreduce_", begin + 5, 6, [[[1000]], []]),
        tiny.launch(c + 1, begin + 7, name="cudaMemcpyAsync"),
        note,
        tiny.launch(c + 3, begin + 13, ready - begin - 13, 9, name="cudaStreamSynchronize"),
        tiny.launch(c + 2, moved, 3, 9, name="cudaMemcpyAsync"),
        *copies,
        tiny.launch(c + 4, begin + 14, moved + 28 - begin - 14, name="cudaDeviceSynchronize"),
    ]


def test_a_transfer_lies_between_the_wait_for_the_device_and_the_copy_back(tiny: Any) -> None:
    trace = reader.load(tiny.as_bytes(step_of(tiny, 0, 0, 500, 600), world_size=2), "t.json")
    found = [op for op in tiny.ops_of(trace) if op["verb"] == "all-reduce"]
    assert [(op["name"], op["lane"], op["start"], op["end"], op["size"]) for op in found] == [
        ("gloo all-reduce", "thread 9", 500, 600, 4000)
    ]


@pytest.mark.parametrize("library", ["mpi", "ucc"])
def test_other_libraries_of_the_host(tiny: Any, library: str) -> None:
    trace = reader.load(tiny.as_bytes(step_of(tiny, 0, 0, 500, 600, library), world_size=2), "t.json")
    assert [op["name"] for op in tiny.ops_of(trace) if op["verb"] == "all-reduce"] == [f"{library} all-reduce"]


def test_an_annotation_around_a_kernel_of_communication_is_no_second_transfer(tiny: Any) -> None:
    note = tiny.event("user_annotation", "ucc:all_reduce", 10, 20)
    events = [note, tiny.launch(1, 12), tiny.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 1, 40, 9)]
    trace = reader.load(tiny.as_bytes(events, world_size=2), "t.json")
    assert [op["name"] for op in tiny.ops_of(trace) if op["verb"] == "all-reduce"] == ["nccl all-reduce"]


def job(tiny: Any, write: Write, slow: int, library: str = "gloo") -> Path:
    """Four ranks whose device computes 400 µs a step, one of them 700 µs; the host runs ahead."""
    for rank in range(4):
        events = []
        for n in range(10):
            begin = 1000.0 * n
            mine = begin + (700 if rank == slow else 400) + (n * 7 + rank * 3) % 5
            last = begin + 700 + max((n * 7 + r * 3) % 5 for r in ([slow] if slow >= 0 else range(4)))
            events += step_of(tiny, n, begin, mine, last + 50, library)
        folder = write(f"rank{rank}.json", events, rank=rank, world_size=4).parent
    return folder


def test_the_slow_rank_of_a_job_with_gloo_on_tensors_of_the_device_is_found(tiny: Any, write: Write) -> None:
    a = taut.analyze([job(tiny, write, slow=2)])
    assert len(a.graph.gates) == 9
    assert [(f["mode"], f["ranks"]) for f in a.result["findings"]] == [("straggler cascade", [2])]
    assert set(a.graph.gates.last_rank.tolist()) == {2}
    assert a.result["findings"][0]["classes"][0] == "gemm"


def test_several_ranks_that_never_meet_are_reported_and_never_healthy(tiny: Any, write: Write) -> None:
    folder = job(tiny, write, slow=-1)
    for path in folder.iterdir():
        document = json.loads(path.read_text())
        document["traceEvents"] = [e for e in document["traceEvents"] if not e["name"].startswith(("gloo:", "c10d::"))]
        path.write_text(json.dumps(document))
    result = taut.analyze([folder]).result
    missing = "no collective is in the traces, so who waits for whom cannot be told"
    assert f"no rank meets another: {missing}" in result["job"]["partial"]
    assert result["verdict"]["class"] == "unknown"
    assert missing in result["verdict"]["text"]


def test_collectives_of_which_only_the_calls_are_known_are_reported(tiny: Any, write: Write) -> None:
    folder = job(tiny, write, slow=-1, library="other")
    result = taut.analyze([folder]).result
    assert result["verdict"]["class"] == "unknown"
    assert "collectives were called, but no event says when they ran" in result["verdict"]["text"]
