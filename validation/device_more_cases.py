"""More small traces that are hard to read right: what other profilers, versions and devices write, and what gets lost.

In the style of ``device_cases.py``, which runs them.
"""

from __future__ import annotations

import random
from typing import Any

from device_jobs import D2H, GEMM, H2D, REDUCE, RELU, Case, Job, Truth, ahead, case, kineto_case

FULL = Truth(10, 100, 100, 0, 0, 0, 0, (6, 8))


def full(job: Job, steps: range = range(0, 8), length: float = 1.0) -> Job:
    """Steps of ten kernels, launched far ahead."""
    ahead(job, steps, lambda _, at: [job.run(GEMM, at + 0.1 * k, length) for k in range(10)] and None)
    return job


@kineto_case
def begin_and_end_apart() -> Case:
    """Every interval as an event that begins it and one that ends it, as other writers of the format do."""
    job = full(Job())
    events = []
    for e in sorted(job.events, key=lambda e: (e["ts"], -e["dur"])):
        dur = e.pop("dur")
        events.append({**e, "ph": "B"})
        events.append({"ph": "E", "pid": e["pid"], "tid": e["tid"], "name": e["name"], "ts": round(e["ts"] + dur, 3)})
    job.events = sorted(events, key=lambda e: (e["ts"], e["ph"] == "B"))
    return [job], FULL


@kineto_case
def marks_on_the_device_only() -> Case:
    """Only the device was recorded: marks are their shadows on its lanes, from the first kernel of a step to its last."""
    job = Job()
    for step in range(8):
        begin = 12.0 * step
        for k in range(9):
            job.on_device(GEMM, begin + k, 1.0, 100 + 10 * step + k)
        job.event("gpu_user_annotation", f"ProfilerStep#{step}", begin, 9.0, 7, pid=0, device=0, stream=7)
    return [job], Truth(12, 75, 75, 0, 0, 0, 0, (6, 8))


@kineto_case
def correlation_of_nobody() -> Case:
    """A tenth of the kernels have the greatest 32-bit number for a correlation, and so has a call in the first mark."""
    job = full(Job())
    kernels = [e for e in job.events if e["cat"] == "kernel"]
    for e in random.Random(3).sample(kernels[10:], 8):
        e["args"]["correlation"] = 4294967295
    job.event("cuda_runtime", "cudaEventQuery", 0.05, 0.004, correlation=4294967295)
    return [job], FULL


@kineto_case
def huge_numbers() -> Case:
    """Correlations beyond 32 bits; bytes, threads and processes beyond 63."""
    job = full(Job())
    for e in job.events:
        if "correlation" in e["args"]:
            e["args"]["correlation"] += 2**40
        if e["cat"] == "kernel":
            e["args"]["bytes"] = 2**64 - 1
        else:
            e["tid"], e["pid"] = 2**64 - 7, 2**64 - 9
    return [job], FULL


@kineto_case
def odd_events() -> Case:
    """Among the events: no length, one that is no number or negative, no arguments, no name, and things that are no events."""
    job = full(Job())
    plain = {"ph": "X", "cat": "kernel", "name": GEMM, "pid": 0, "tid": 7, "ts": 1_500_000.0}
    args = {"device": 0, "stream": 7, "correlation": 1}
    job.events += [
        {**plain, "args": args},
        {**plain, "dur": float("nan"), "args": args},
        {**plain, "dur": -5000.0, "args": args},
        {**plain, "dur": None, "args": args},
        {**plain, "ts": float("nan"), "dur": 5.0, "args": args},
        {**plain, "ts": 1_030_500.0, "dur": 0.0, "args": None},
        {"ph": "X", "cat": "kernel", "pid": 0, "tid": 7, "ts": 1_030_000.0, "dur": 1.0},
        {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": 1_000_000.0, "s": "t"},
        {"ph": "C", "name": "power", "pid": 0, "ts": 1_000_000.0, "args": {"W": 600}},
        {},
    ]
    return [job], FULL


@case
def records_lost() -> Case:
    """The profiler dropped a tenth of the kernels, none of them the last of its step; their launches remain."""
    job = full(Job())
    kernels = [e for e in job.events if e["cat"] == "kernel"]
    lost = random.Random(4).sample([e for k, e in enumerate(kernels) if k % 10 not in (0, 9)], 8)
    job.events = [e for e in job.events if all(e is not one for one in lost)]
    return [job], Truth(10, None, None, 0, 0, 0, 0, (6, 8))


@kineto_case
def eight_devices_one_used() -> Case:
    """The header and the metadata name eight devices, and events are on the sixth."""
    job = Job()
    ahead(job, range(0, 8), lambda _, at: [job.run(GEMM, at + 0.1 * k, 1.0, dev=5) for k in range(10)] and None)
    job.header["deviceProperties"] = [
        {"id": i, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85_000_000_000} for i in range(8)
    ]
    named = [
        {"ph": "M", "name": what, "pid": i, "tid": 0, "ts": 0, "args": {word: f"GPU {i}"}}
        for i in range(8)
        for what, word in (("process_name", "name"), ("process_labels", "labels"), ("process_sort_index", "sort_index"))
    ]
    job.events = named + job.events
    return [job], FULL


@kineto_case
def marks_that_are_operators() -> Case:
    """PyTorch 1.10 to 1.12 wrote its marks among the operators, and annotations too."""
    job = full(Job())
    for e in job.events:
        if e["cat"] == "user_annotation":
            e["cat"] = "cpu_op"
    return [job], FULL


@kineto_case
def words_of_rocm() -> Case:
    """Copies and fills in the words of ROCm's tracer, streams as text, launches of HIP."""
    job = Job()

    def body(_: int, at: float) -> None:
        job.event("cuda_runtime", "hipMemcpyWithStream", at, 0.01, correlation=1)
        for k in range(8):
            job.run(GEMM, at + 0.1 * k, 1.0)
        job.run(H2D, at + 1.0, 1.2, bytes=1 << 20)
        job.run("Memset (Device)", at + 1.1, 0.8, bytes=1 << 20)

    ahead(job, range(0, 8), body)
    words = {H2D: "CopyHostToDevice", "Memset (Device)": "FillBuffer", "cudaLaunchKernel": "hipExtModuleLaunchKernel"}
    for e in job.events:
        e["name"] = words.get(e["name"], e["name"])
        if "stream" in e["args"]:
            e["args"]["stream"] = e["tid"] = "0x55d0c1a0"
    return [job], Truth(10, 100, 80, 0, 0, 20, 20, (6, 8))


@case
def copies_as_kernels_of_the_driver() -> Case:
    """Inside a graph the driver copies and fills with kernels of its own."""
    job = Job()

    def body(_: int, at: float) -> None:
        c = job.call(at + 0.5, "cudaGraphLaunch")
        begin = max(at + 0.51, job.free.get((0, 7), 0.0))
        for k, (name, length) in enumerate(
            ((GEMM, 3.0), ("memcpy128", 1.0), (GEMM, 4.0), ("memset32_post", 0.5), ("memcpy32_post", 1.5))
        ):
            begin = job.on_device(name, begin, length, c, **{"graph id": 3, "graph node id": k})

    ahead(job, range(0, 8), body)
    return [job], Truth(10, 100, 70, 0, 0, 30, 30, (6, 8))


@kineto_case
def ascend() -> Case:
    """An Ascend device: tasks without categories, times as text, its own summary of what overlapped beside them."""
    job = Job()
    tasks: list[dict[str, Any]] = []

    def task(name: str, start: float, length: float, stream: int, **args: Any) -> None:
        times = {"ts": f"{(job.clock + start) * 1000:.3f}", "dur": round(length * 1000, 3)}
        tasks.append({"ph": "X", "name": name, "pid": 44, "tid": stream, **times, "args": {"Stream Id": stream, **args}})

    for i in range(8):
        at = 10.0 * i
        job.mark(i, at, at + 9.98)
        for k in range(7):
            job.event("cpu_op", "aten::matmul", at + 0.1 * k, 0.05)
            task("MatMulV2", at + 0.5 + k, 1.0, 2, **{"Task Type": "AI_CORE", "Task Id": 10 * i + k})
        task("hcom_allReduce__123_0", at + 6.5, 2.0, 5, **{"Task Type": "HCCL"})
        task("EVENT_WAIT", at + 8.5, 1.4, 2, **{"Task Type": "EVENT_WAIT_SQE"})
        overlap = {
            "Computing": (0.5, 7.0),
            "Communication": (6.5, 2.0),
            "Communication(Not Overlapped)": (7.5, 1.0),
            "Free": (8.5, 1.5),
        }
        for k, (name, (start, length)) in enumerate(overlap.items()):
            times = {"ts": f"{(job.clock + at + start) * 1000:.3f}", "dur": length * 1000}
            tasks.append({"ph": "X", "name": name, "pid": 55, "tid": k, **times, "args": {}})
    job.events += tasks
    return [job], Truth(10, 80, 70, 20, 10, 0, 0, (6, 8))


@kineto_case
def no_correlations() -> Case:
    """Nothing ties kernels to launches; the host waits for the device in every step."""
    job = Job()
    for i in range(8):
        at = 10.0 * i
        job.mark(i, at, at + 9.9)
        for k in range(8):
            job.run(GEMM, at + 0.2 + 0.1 * k, 1.0)
        job.event("cuda_runtime", "cudaDeviceSynchronize", at + 1.2, 7.2)
    for e in job.events:
        e["args"].pop("correlation", None)
    return [job], Truth(10, 80, 80, 0, 0, 0, 0, (6, 8))


@case
def copies_that_outlast_the_step() -> Case:
    """Every step writes its result down on a side stream, which ends 3 ms into the compute of the next."""
    job = Job()

    def body(_: int, at: float) -> None:
        for k in range(10):
            end = job.run(GEMM, at + 0.1 * k, 1.0)
        job.run(D2H, at + 1.2, 3.0, 20, after=end, bytes=1 << 24)

    ahead(job, range(0, 9), body)
    return [job], Truth(10, 100, None, 0, 0, None, None, (7, 9))


@case
def steps_in_turns() -> Case:
    """Every third step evaluates as well: 10, 10 and 25 ms in turns, 15 on the mean of whole turns."""
    job = Job()

    def body(step: int, at: float) -> None:
        for k in range(10):
            job.run(GEMM, at + 0.1 * k, 1.0)
        for k in range(15 if step % 3 == 2 else 0):
            job.run(RELU, at + 1.0 + 0.05 * k, 1.0)

    ahead(job, range(0, 10), body)
    return [job], Truth(15, 100, 100, 0, 0, 0, 0, (9, 9))


@case
def layers_without_marks() -> Case:
    """Nothing is marked; six layers a step, then an update: the step is 10 ms, no layer is."""
    job = Job()
    for i in range(8):
        at = 2.0 * i
        job.run("embedding_kernel", at, 0.2)
        for k in range(6):
            job.run(GEMM, at + 0.1 + 0.2 * k, 1.0)
            job.run(RELU, at + 0.2 + 0.2 * k, 0.3)
        job.run("multi_tensor_apply_kernel", at + 1.5, 2.0)
    return [job], Truth(10, 100, 100, 0, 0, 0, 0, (6, 8))


@case
def decodes_without_marks() -> Case:
    """A prefill of other kernels, then 24 tokens of 4 layers and a sampler, 5 ms each; nothing is marked.

    Whether the prefill is a step is a matter of taste.
    """
    job = Job()
    job.run("gather_kernel", 0.0, 0.5)
    for k in range(4):
        job.run("sm90_gemm_256x128", 0.1 + 0.2 * k, 5.0)
        job.run("flash_fwd_kernel", 0.2 + 0.2 * k, 3.0)
    job.run("argmax_kernel", 1.5, 0.5)
    for i in range(24):
        at = 40.0 + 5.0 * i
        job.run("gather_kernel", at, 0.1)
        for k in range(4):
            job.run("gemv_64x8", at + 0.1 + k, 0.5)
            job.run("flash_fwd_splitkv_kernel" if i < 12 else "flash_fwd_splitkv_combine_kernel", at + 0.5 + k, 0.3)
        job.run("argmax_kernel", at + 4.5, 0.2)
    return [job], Truth(None, None, None, 0, 0, 0, 0, (20, 25))


@case
def device_clock_early() -> Case:
    """The device's clock is 0.5 ms early: kernels begin before they are launched."""
    job = Job()
    for i in range(8):
        at = 10.0 * i
        job.mark(i, at, at + 9.98)
        for k in range(8):
            c = job.call(at + 0.1 + k)
            job.on_device(GEMM, at + 0.1 + k + 0.01 - 0.5, 0.8, c)
    return [job], Truth(10, 64, 64, 0, 0, 0, 0, (6, 8))


@case
def device_behind_at_the_end() -> Case:
    """The profiler stopped while the device was two steps behind: of the last marks there are launches and few kernels."""
    job = full(Job(), range(0, 10))
    job.events = [e for e in job.events if e["cat"] != "kernel" or e["ts"] < (job.clock + 83.0) * 1000]
    return [job], Truth(10, 100, 100, 0, 0, 0, 0, (6, 8))


@kineto_case
def launches_of_two_threads_collide() -> Case:
    """A runtime call and the driver's call inside it are both recorded, with one correlation."""
    job = Job()

    def body(_: int, at: float) -> None:
        for k in range(10):
            job.run(GEMM, at + 0.1 * k, 1.0)
            job.event("cuda_driver", "cuLaunchKernelEx", at + 0.1 * k + 0.001, 0.002, correlation=job.correlation)

    ahead(job, range(0, 8), body)
    return [job], FULL


@kineto_case
def reduction_in_the_next_step() -> Case:
    """Gradients of a step are reduced while the next one computes, and end with its last kernel."""
    job = Job()

    def body(step: int, at: float) -> None:
        for k in range(10):
            job.run(GEMM, at + 0.1 * k, 1.0)
        job.run(REDUCE, at + 1.5, 8.0, 20, after=step * 10.0 + 12.0, **{"Collective name": "allreduce", "Group size": 1})

    ahead(job, range(0, 9), body)
    return [job], Truth(10, None, None, None, None, 0, 0, (7, 9))
