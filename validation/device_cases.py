"""Small accelerator traces that are hard to read right, each with its truth known by construction.

    python validation/device_cases.py [--only NAME…] [--keep FOLDER]

Each case is written as Kineto JSON, ``taut analyze`` runs on it, and its ``device`` is held to the construction (step
time within 1 %, shares within 1 point) and to ``validation/device.py`` (unions of the raw file inside taut's windows).
Exit 1 on a miss.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import device
import device_more_cases
from device_jobs import CASES, D2H, FILL, GEMM, H2D, LEFT_OUT, REDUCE, RELU, Case, Job, Truth, ahead, case

__all__ = ["CASES", "LEFT_OUT", "device_more_cases"]


@case
def far_ahead() -> Case:
    """8 steps of 10 ms on the device are launched in 2 ms each."""
    job = Job()
    ahead(job, range(5, 13), lambda _, at: [job.run(GEMM, at + 0.1 * k, 1.0) for k in range(10)] and None)
    return [job], Truth(10, 100, 100, 0, 0, 0, 0, (6, 8))


@case
def prefetch_in_the_step_before() -> Case:
    """Copies of step k+1 run on a side stream during step k, launched at the beginning of mark k+1."""
    job = Job()

    def body(step: int, at: float) -> None:
        begin = (step - 3) * 10.0
        here = job.on_device(H2D, begin - 5.0 + 8.0, 3.0, job.call(at, "cudaMemcpyAsync"), 20, bytes=1 << 20)
        for k in range(10):
            job.run(GEMM, at + 0.1 + 0.1 * k, 1.0, after=max(here, begin + 8.0))

    ahead(job, range(3, 10), body)
    return [job], Truth(10, 100, 100, 0, 0, None, 0, (5, 7))


@case
def offload() -> Case:
    """Copies fill the side stream all the time, beside little compute; launched a whole trace ahead."""
    job = Job()

    def body(step: int, at: float) -> None:
        for k in range(8):
            end = job.run(H2D, at + 0.1 * k, 1.25, 20, bytes=1 << 20)
            job.run(GEMM, at + 0.1 * k + 0.05, 0.1, after=end)

    ahead(job, range(3, 10), body)
    return [job], Truth(10, 100, 8, 0, 0, 100, 92, (5, 7))


@case
def streams_end_apart() -> Case:
    """Compute of a step ends 2 ms before its all-reduce, under which the next step already computes."""
    job = Job()

    def body(_: int, at: float) -> None:
        for k in range(10):
            end = job.run(GEMM, at + 0.1 * k, 1.0)
        job.run(REDUCE, at + 1.5, 4.0, 20, after=end - 2.0)

    ahead(job, range(0, 8), body)
    return [job], Truth(10, 100, None, None, None, 0, 0, (6, 8))


@case
def without_launch_records() -> Case:
    """The first 25 ms on the device were launched before the profiler began."""
    job = Job()
    for k in range(25):
        job.on_device(GEMM, k, 1.0, 10 + k)
    ahead(job, range(2, 9), lambda _, at: [job.run(GEMM, at + 0.1 * k, 1.0) for k in range(10)] and None)
    return [job], Truth(10, 100, 100, 0, 0, 0, 0, (5, 7))


@case
def graphs() -> Case:
    """One graph launch a step; all its kernels carry the launch's correlation."""
    job = Job()

    def body(_: int, at: float) -> None:
        c = job.call(at + 0.5, "cudaGraphLaunch")
        begin = max(at + 0.51, job.free.get((0, 7), 0.0))
        for k in range(20):
            job.on_device(GEMM if k % 2 else RELU, begin + k * 0.5, 0.4, c, **{"graph id": 3, "graph node id": k})
        job.free[0, 7] = begin + 10.0

    ahead(job, range(0, 8), body)
    return [job], Truth(10, 80, 80, 0, 0, 0, 0, (6, 8))


@case
def uneven_steps() -> Case:
    """Steps of 5, 20, 8, 30, 12 and 7 ms, launched far ahead: the mean is of the kept ones."""
    job = Job()
    lengths = dict(zip(range(6), (5, 20, 8, 30, 12, 7), strict=True))
    ahead(job, range(6), lambda s, at: [job.run(GEMM, at + 0.1 * k, lengths[s] / 10) for k in range(10)] and None)
    return [job], Truth(None, 100, 100, 0, 0, 0, 0, (4, 6))


@case
def last_step_cut() -> Case:
    """The profiler stops in mid-step: the last mark is cut and most of its kernels are missing."""
    job = Job()
    ahead(job, range(0, 6), lambda _, at: [job.run(GEMM, at + 0.1 * k, 1.0) for k in range(10)] and None)
    job.mark(6, 12.0, 12.5)
    job.run(GEMM, 12.1, 1.0)
    job.call(12.2)
    job.call(12.3)
    return [job], Truth(10, 100, 100, 0, 0, 0, 0, (4, 6))


@case
def gaps_between_marks() -> Case:
    """Between marks the host evaluates: 3 ms of device work of no mark, 2 ms of nothing; 15 ms a step."""
    job = Job()
    for i in range(7):
        at = 15.0 * i
        job.mark(i, at, at + 9.9)
        for k in range(10):
            job.run(GEMM, at + 0.9 * k, 1.0)
        job.run(RELU, at + 10.5, 3.0)
    return [job], Truth(15, 100 * 13 / 15, 100 * 13 / 15, 0, 0, 0, 0, (5, 7))


@case
def two_cycles() -> Case:
    """Steps 2–5 and, two seconds later, 12–15 of one file: nobody was idle for two seconds."""
    job = Job()
    for first, begin in ((2, 0.0), (12, 2000.0)):
        job.free.clear()
        for i in range(4):
            at = begin + 10.0 * i
            job.mark(first + i, at, at + 9.98)
            for k in range(10):
                job.run(GEMM, at + 0.2 * k, 0.9)
            job.free[0, 7] = at + 10.0
    return [job], Truth(None, None, None, 0, 0, 0, 0, (4, 8))


@case
def skewed_clocks() -> Case:
    """4 ranks with clocks up to 3 s apart, ends of steps 0.7 ms apart from rank to rank; an all-reduce in each step."""
    jobs = []
    for rank, clock in enumerate((5000.0, 2000.0, 8000.0, 5003.0)):
        job = Job(rank, 4, clock)

        def body(step: int, at: float, job: Job = job, rank: int = rank) -> None:
            begin = step * 20.0
            for k in range(8):
                job.run(GEMM, at + 0.1 * k, 1.0 + 0.25 * rank, after=begin)
            labels = {"Collective name": "allreduce", "In msg nelems": 1 << 20, "dtype": "BFloat16", "Group size": 4}
            job.run(REDUCE, at + 1.2, 2.0, 20, after=begin + 16.0 - 2.0, **labels, **{"Process Group Name": "0"})
            job.run(RELU, at + 1.4, 2.0 * rank / 3, after=begin + 16.0)

        ahead(job, range(0, 8), body)
        jobs.append(job)
    return jobs, Truth(20, None, None, 10, 10, 0, 0, (6, 8), (0, 1, 2, 3))


@case
def pipeline_skew() -> Case:
    """4 stages: the work of stage r begins 8 ms after that of r-1, so ends of a step differ by more than a step."""
    jobs = []
    for rank in range(4):
        job = Job(rank, 4)

        def body(step: int, at: float, job: Job = job, rank: int = rank) -> None:
            for k in range(8):
                job.run(GEMM, at + 0.1 * k, 1.0, after=step * 10.0 + 8.0 * rank)

        ahead(job, range(0, 8), body)
        jobs.append(job)
    return jobs, Truth(10, 80, 80, 0, 0, 0, 0, (6, 8), (0, 1, 2, 3))


@case
def rank_without_device() -> Case:
    """Rank 2 of 4 recorded its host only: the others' figures stand, its own are not made up."""
    jobs, truth = skewed_clocks()
    for job in jobs:
        job.clock = 1000.0
        for e in job.events:
            e["ts"] = round(e["ts"] % 1e6 + 1e6, 3)
    jobs[2].events = [e for e in jobs[2].events if e["cat"] in ("user_annotation", "cuda_runtime")]
    truth.ranks = (0, 1, 3)
    return jobs, truth


@case
def two_devices_one_process() -> Case:
    """One process drives two devices: 9 of 10 ms on the first, 4 on the second."""
    job = Job()

    def body(step: int, at: float) -> None:
        for k in range(9):
            job.run(GEMM, at + 0.1 * k, 1.0, after=step * 10.0 + 2.0)
        for k in range(4):
            job.run(GEMM, at + 1.0 + 0.1 * k, 1.0, dev=1, after=step * 10.0 + 2.0)

    ahead(job, range(0, 8), body)
    return [job], Truth(10, windows=(6, 8), several_devices=True)


@case
def zero_length_kernels() -> Case:
    """Between kernels, and at the end of every step, there are some of no length."""
    job = Job()

    def body(_: int, at: float) -> None:
        for k in range(10):
            job.run(GEMM, at + 0.1 * k, 1.0)
            job.run(RELU, at + 0.1 * k + 0.02, 0.0)

    ahead(job, range(0, 8), body)
    return [job], Truth(10, 100, 100, 0, 0, 0, 0, (6, 8))


@case
def overlap_on_one_stream() -> Case:
    """Kernels of 2 ms begin every millisecond on one stream; time counts once."""
    job = Job()

    def body(step: int, at: float) -> None:
        for k in range(8):
            job.on_device(GEMM, step * 10.0 + k + 1.0, 2.0 if k < 7 else 1.0, job.call(at + 0.1 * k))

    ahead(job, range(0, 8), body)
    return [job], Truth(10, 80, 80, 0, 0, 0, 0, (6, 8))


@case
def host_bound() -> Case:
    """Kernels of 0.2 ms launched every millisecond: the device is idle 80 % of the time."""
    job = Job()
    for i in range(8):
        job.mark(i, 10.0 * i, 10.0 * i + 9.98)
        for k in range(10):
            job.event("cpu_op", "aten::linear", 10.0 * i + k, 0.9)
            job.run(GEMM, 10.0 * i + k + 0.3, 0.2)
    return [job], Truth(10, 20, 20, 0, 0, 0, 0, (6, 8))


@case
def copies_only() -> Case:
    """Up and down on two streams, no kernel at all."""
    job = Job()

    def body(_: int, at: float) -> None:
        for k in range(5):
            end = job.run(H2D, at + 0.1 * k, 2.0, 20, bytes=1 << 20)
            job.run(D2H, at + 0.1 * k + 0.05, 1.0, 21, after=end, bytes=1 << 20)

    ahead(job, range(0, 8), body)
    return [job], Truth(10, 100, 0, 0, 0, 100, 100, (6, 8))


@case
def hidden_communication() -> Case:
    """An all-reduce on its own stream runs 60 % of the time, all of it under compute."""
    job = Job()

    def body(step: int, at: float) -> None:
        for k in range(10):
            job.run(GEMM, at + 0.1 * k, 1.0)
        for k in range(3):
            job.run(REDUCE, at + 0.5 * k, 2.0, 20, after=step * 10.0 + 0.51 + 3.0 * k)

    ahead(job, range(0, 8), body)
    return [job], Truth(10, 100, 100, 60, 0, 0, 0, (6, 8))


@case
def nested_annotations() -> Case:
    """Micro-steps, forward, backward and optimiser inside each mark, and one epoch around all."""
    job = Job()
    job.mark("epoch 1", -0.5, 81.0)
    for i in range(8):
        at = 10.0 * i
        job.mark(i, at, at + 9.98)
        for m in range(4):
            job.mark(f"micro step {m}", at + 2 * m + 0.1, at + 2 * m + 1.9)
            job.mark("forward", at + 2 * m + 0.2, at + 2 * m + 0.9)
            job.mark("backward", at + 2 * m + 1.0, at + 2 * m + 1.8)
            job.run(GEMM, at + 2 * m + 0.3, 0.6)
            job.run(GEMM, at + 2 * m + 1.1, 0.6, tid=2)
        job.mark("Optimizer.step#AdamW.step", at + 8.2, at + 9.8)
        job.run(RELU, at + 8.5, 1.2)
    return [job], Truth(10, 60, 60, 0, 0, 0, 0, (6, 8))


@case
def annotations_on_the_device() -> Case:
    """Annotations copied to the device's lanes span idle time; they are no work."""
    job = Job()

    def body(step: int, at: float) -> None:
        for k in range(7):
            job.run(GEMM, at + 0.1 * k, 1.0, after=step * 10.0 + 1.0)
        for name in (f"ProfilerStep#{step}", "forward"):
            job.event(
                "gpu_user_annotation", name, step * 10.0 + 1.0, 9.0 if name == "forward" else 7.0, 7, pid=0, device=0, stream=7
            )

    ahead(job, range(0, 8), body)
    return [job], Truth(10, 70, 70, 0, 0, 0, 0, (6, 8))


@case
def host_waits_every_step() -> Case:
    """The loss is read in every step: the device ends in the mark, and waits for the host after it."""
    job = Job()
    for i in range(8):
        at = 10.0 * i
        job.mark(i, at, at + 9.98)
        for k in range(8):
            job.run(GEMM, at + 0.2 + 0.1 * k, 1.0)
        end = job.run(D2H, at + 1.5, 0.1, bytes=4)
        job.event("cuda_runtime", "cudaStreamSynchronize", at + 1.6, end - at - 1.6)
    return [job], Truth(10, 81, 80, 0, 0, 1, 1, (6, 8))


@case
def families() -> Case:
    """Communication of many libraries: 4 ms of it exposed in 12, and names that only look like it."""
    job = Job()
    names = (
        "void deep_ep::internode::dispatch<false, 8, true, 8>(int4*)",
        "nvshmemi_transfer_amo_on_stream_kernel",
        "void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(vllm::RankData*)",
        "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)",
        "void tensorrt_llm::kernels::mnnvl_throughput::moeA2ADispatchKernel<8>(int)",
        "void mscclpp::allreduce7<float>(float*)",
        "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 8>(c10::BFloat16**)",
        "void quickreduce::allreduce_prototype_twoshot<quickreduce::TwoshotFP8>(half const*)",
    )
    plain = (
        "void at::native::vectorized_gather_kernel<16, long>(char*)",
        "void cub::DeviceReduceByKeyKernel<cub::DispatchReduceByKey<long*, long*>>",
        "_combined_routing_compute",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>",
        "splitKreduce_kernel",
        "void at::native::_scatter_gather_elementwise_kernel<128, 4>",
        "void moe::dev::routing::routingIndicesHistogramKernel",
        "_finalize_matmul_scatter_bf16",
    )

    def body(_: int, at: float) -> None:
        for k in range(8):
            job.run(plain[k], at + 0.2 * k, 1.0)
            job.run(names[k], at + 0.2 * k + 0.1, 0.5)

    ahead(job, range(0, 8), body)
    return [job], Truth(12, 100, 100 * 8 / 12, 100 * 4 / 12, 100 * 4 / 12, 0, 0, (6, 8))


@case
def shuffled_file() -> Case:
    """Events in no order; the launching thread is not the marks'."""
    job = Job()

    def body(_: int, at: float) -> None:
        for k in range(10):
            job.run(GEMM, at + 0.1 * k, 1.0, tid=2 + k % 2)

    ahead(job, range(0, 8), body)
    random.Random(1).shuffle(job.events)
    return [job], Truth(10, 100, 100, 0, 0, 0, 0, (6, 8))


@case
def decode_marks() -> Case:
    """Marks of vLLM over layers that recur 32 times: a step is what the marks say."""
    job = Job()
    for i in range(6):
        at = 2.0 * i
        job.mark(f"execute_{32 + i}_context_0(sq0sk0)_generation_{32 + i}(sq32sk55{i})", at, at + 1.9)
        c = job.call(at + 0.5, "cudaGraphLaunch")
        begin = max(at + 0.51, job.free.get((0, 7), 0.0))
        for k in range(32):
            job.on_device(GEMM, begin + 0.25 * k, 0.2, c)
            job.on_device(RELU, begin + 0.25 * k + 0.2, 0.05, c)
    return [job], Truth(8, 100, 100, 0, 0, 0, 0, (4, 6))


@case
def prefill_and_decode() -> Case:
    """SGLang's marks; a prefill of 20 ms among decodes of 5 ms."""
    job = Job()
    for i in range(8):
        prefill = i == 3
        at = 2.0 * i
        job.mark("step[EXTEND bs=1 toks=2048]" if prefill else f"step[DECODE bs={8 + i}]", at, at + 1.9)
        for k in range(10):
            job.run(GEMM, at + 0.1 * k, 2.0 if prefill else 0.5)
    return [job], Truth(None, 100, 100, 0, 0, 0, 0, (6, 8))


@case
def one_mark() -> Case:
    """One step only, its kernels long after the mark: it is kept, and is as long as its work."""
    job = Job()
    job.mark(10, 0.0, 2.0)
    for k in range(10):
        job.run(GEMM, 0.1 * k, 1.0, after=8.0)
    return [job], Truth(10, 100, 100, 0, 0, 0, 0, (1, 1))


@case
def no_marks() -> Case:
    """Nothing is marked: whatever is called a step, unions inside the windows are right."""
    job = Job()
    for i in range(8):
        for k in range(10):
            job.run(GEMM if k else RELU, 2.0 * i + 0.1 * k, 0.9, after=10.0 * i + k)
    return [job], Truth(None, None, None, 0, 0, 0, 0)


@case
def launches_lag_behind_marks() -> Case:
    """A second thread launches what the mark asked for one whole mark later."""
    job = Job()

    def body(_: int, at: float) -> None:
        for k in range(10):
            job.run(GEMM, at + 2.1 + 0.1 * k, 1.0, tid=5)

    ahead(job, range(0, 9), body)
    return [job], Truth(10, 100, 100, 0, 0, 0, 0, (5, 9))


@case
def one_slow_input() -> Case:
    """The loader stalls for 50 ms in step 4 of 8; other steps are 10 ms and full."""
    job = Job()
    at = 0.0
    for i in range(8):
        stall = 50.0 if i == 4 else 0.0
        if stall:
            job.event("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", at + 0.1, 49.8)
        job.mark(i, at, at + stall + 9.98)
        for k in range(10):
            job.run(GEMM, at + stall + 0.2 + 0.5 * k, 1.0)
        at += stall + 10.0
    return [job], Truth(None, None, None, 0, 0, 0, 0, (6, 8))


@case
def fills_and_small_reads() -> Case:
    """Fills of memory are copies; kernels wait for them."""
    job = Job()

    def body(_: int, at: float) -> None:
        for k in range(5):
            job.run(FILL, at + 0.2 * k, 0.4, bytes=1 << 20)
            job.run(GEMM, at + 0.2 * k + 0.1, 1.6)

    ahead(job, range(0, 8), body)
    return [job], Truth(10, 100, 80, 0, 0, 20, 20, (6, 8))


@case
def late_clock() -> Case:
    """Time stamps of today's epoch in microseconds with three decimals."""
    job = Job(clock=1.79e12)
    ahead(job, range(0, 8), lambda _, at: [job.run(GEMM, at + 0.1 * k, 0.9, after=0) for k in range(10)] and None)
    return [job], Truth(9, 100, 100, 0, 0, 0, 0, (6, 8))


@case
def long_copy_beside() -> Case:
    """An asynchronous checkpoint: a copy of 25 ms, launched in step 3, runs on a side stream until step 5."""
    job = Job()

    def body(step: int, at: float) -> None:
        for k in range(10):
            end = job.run(GEMM, at + 0.1 * k, 1.0)
        if step == 3:
            job.run(D2H, at + 1.5, 25.0, 20, after=end, bytes=1 << 30)

    ahead(job, range(0, 10), body)
    return [job], Truth(10, 100, 100, 0, 0, None, 0, (8, 10))


@case
def persistent_kernel() -> Case:
    """A kernel of the first step runs on its own stream until the trace ends."""
    job = Job()

    def body(step: int, at: float) -> None:
        if step == 0:
            job.run("persistent_proxy_kernel", at, 79.0, 30)
        for k in range(8):
            job.run(GEMM, at + 0.1 * k + 0.05, 1.0, after=step * 10.0)

    ahead(job, range(0, 8), body)
    return [job], Truth(10, None, None, 0, 0, 0, 0, (6, 8))


@case
def two_steps_ahead() -> Case:
    """Batches are copied two steps before they are used, on a side stream, in the mark that launches the copy."""
    job = Job()

    def body(step: int, at: float) -> None:
        job.run(H2D, at, 4.0, 20, after=step * 10.0 + 1.0, bytes=1 << 24)
        for k in range(10):
            job.run(GEMM, at + 0.1 + 0.1 * k, 1.0, after=20.0 + step * 10.0)

    ahead(job, range(0, 9), body)
    return [job], Truth(10, None, None, 0, 0, None, None, (7, 9))


@case
def one_kernel_a_step() -> Case:
    """A step is one long kernel and a short one."""
    job = Job()

    def body(_: int, at: float) -> None:
        job.run(GEMM, at + 0.1, 9.9)
        job.run(RELU, at + 0.2, 0.1)

    ahead(job, range(0, 8), body)
    return [job], Truth(10, 100, 100, 0, 0, 0, 0, (6, 8))


@case
def before_zero() -> Case:
    """Time stamps below zero."""
    job = Job(clock=-40.0)
    ahead(job, range(0, 8), lambda _, at: [job.run(GEMM, at + 0.1 * k, 0.8, after=at * 5 + k) for k in range(10)] and None)
    return [job], Truth(10, 80, 80, 0, 0, 0, 0, (6, 8))


@case
def unequal_marks() -> Case:
    """Rank 1 was profiled for two steps less than rank 0; both take 10 ms."""
    jobs = []
    for rank, steps in ((0, range(2, 10)), (1, range(3, 9))):
        job = Job(rank, 2)
        for step in steps:
            at = 2.0 * step
            job.mark(step, at, at + 1.98)
            for k in range(8):
                job.run(GEMM, at + 0.1 * k, 1.0, after=10.0 * step)
            job.run(REDUCE, at + 1.0, 1.0, 20, after=10.0 * step + 8.0, **{"Collective name": "allreduce", "Group size": 2})
        jobs.append(job)
    return jobs, Truth(10, 90, 80, 10, 10, 0, 0, (4, 8), (0, 1))


@case
def slow_rank() -> Case:
    """Rank 2 of 4 computes 12 ms where the others compute 6 and wait in an all-reduce; 14 ms a step."""
    jobs = []
    for rank in range(4):
        job = Job(rank, 4)
        work = 12.0 if rank == 2 else 6.0

        def body(step: int, at: float, job: Job = job, work: float = work) -> None:
            for k in range(6):
                end = job.run(GEMM, at + 0.1 * k, work / 6, after=14.0 * step)
            labels = {"Collective name": "allreduce", "In msg nelems": 1 << 20, "dtype": "Float", "Group size": 4}
            done = 14.0 * (step + 1)
            job.run(REDUCE, at + 1.0, done - end, 20, after=end, **labels)

        ahead(job, range(0, 8), body)
        jobs.append(job)
    return jobs, Truth(14, 100, None, None, None, 0, 0, (6, 8), (0, 1, 2, 3))


@case
def device_and_host_collectives() -> Case:
    """Gloo on CUDA tensors: the host reduces in every step, the device copies down and up for it."""
    jobs = []
    for rank in range(2):
        job = Job(rank, 2)
        for i in range(8):
            at = 20.0 * i
            job.mark(i, at, at + 19.9)
            for k in range(10):
                job.run(GEMM, at + 0.1 * k, 1.0)
            job.run(D2H, at + 1.2, 1.0, bytes=1 << 20)
            job.event("cpu_op", "gloo:all_reduce", at + 11.5, 5.0, 3)
            job.run(H2D, at + 17.0, 1.0, bytes=1 << 20)
        jobs.append(job)
    return jobs, Truth(20, 60, 50, 0, 0, 10, 10, (6, 8), (0, 1))


def renamed(job: Job, categories: dict[str, str]) -> Job:
    for e in job.events:
        e["cat"] = categories.get(e["cat"], e["cat"])
    return job


@case
def categories_of_old_pytorch() -> Case:
    """PyTorch 1.8 wrote Operator, Runtime, Kernel, Memcpy and Memset, and external ids under another name."""
    (job,), truth = offload()
    names = {"user_annotation": "Operator", "cuda_runtime": "Runtime", "kernel": "Kernel", "gpu_memcpy": "Memcpy"}
    return [renamed(job, names)], truth


@case
def numbers_as_text() -> Case:
    """Streams, devices and correlations written as text."""
    (job,), truth = offload()
    for e in job.events:
        e["args"] = {key: str(value) if key != "bytes" else value for key, value in e["args"].items()}
    return [job], truth


@case
def intel_xpu() -> Case:
    """Launches of category xpu_runtime, oneCCL beside compute."""
    job = Job()

    def body(_: int, at: float) -> None:
        for k in range(8):
            job.run("gemm_kernel", at + 0.1 * k, 1.0)
        job.run("void oneccl_allreduce_large_kernel<8>", at + 1.0, 2.0)

    ahead(job, range(0, 8), body)
    return [renamed(job, {"cuda_runtime": "xpu_runtime"})], Truth(10, 100, 80, 20, 20, 0, 0, (6, 8))


@case
def hip_launches() -> Case:
    """ROCm: hip calls, kernels with plain names, a generic kernel of RCCL on its own stream."""
    job = Job()

    def body(step: int, at: float) -> None:
        for k in range(10):
            job.run("Cijk_Alik_Bljk_BBS_BH_MT128x128x64_MI16x16x16x1", at + 0.1 * k, 1.0)
        job.run("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", at + 1.5, 5.0, 3, after=step * 10.0 + 4.0)

    ahead(job, range(0, 8), body)
    for e in job.events:
        e["name"] = (
            e["name"].replace("cudaLaunchKernel", "hipExtModuleLaunchKernel").replace("cudaMemcpyAsync", "hipMemcpyAsync")
        )
    return [job], Truth(10, 100, 100, 50, 0, 0, 0, (6, 8))


@case
def correlations_reused() -> Case:
    """A second profiler cycle counts correlations from the beginning again."""
    job = Job()
    for first, begin in ((0, 0.0), (10, 500.0)):
        job.correlation = 100
        job.free.clear()
        for i in range(5):
            at = begin + 2.0 * i
            job.mark(first + i, at, at + 1.98)
            for k in range(10):
                job.run(GEMM, at + 0.1 * k, 0.9, after=begin + 10.0 * i + k)
    return [job], Truth(None, None, None, 0, 0, 0, 0, (6, 10))


@case
def marks_of_two_threads() -> Case:
    """A second thread has marks of its own, over nothing."""
    job = Job()
    ahead(job, range(0, 8), lambda _, at: [job.run(GEMM, at + 0.1 * k, 1.0) for k in range(10)] and None)
    for i in range(5):
        job.event("user_annotation", f"ProfilerStep#{i}", 3.1 * i, 3.0, 9)
    return [job], Truth(10, 100, 100, 0, 0, 0, 0, (6, 8))


@case
def synchronisation_events() -> Case:
    """Waits of streams for each other and for the host are recorded on the device's lanes; they are no work."""
    job = Job()

    def body(step: int, at: float) -> None:
        for k in range(7):
            job.run(GEMM, at + 0.1 * k, 1.0, after=step * 10.0 + 1.0)
        job.event("cuda_sync", "Stream Wait Event", step * 10.0 + 8.0, 2.5, 7, pid=0, device=0, stream=7, correlation=9)
        job.event("cuda_sync", "Context Sync", step * 10.0, 10.0, 7, pid=0, device=0, stream=-1, correlation=9)
        job.event("overhead", "Activity Buffer Request", step * 10.0 + 8.0, 1.0, 0, pid=-1)

    ahead(job, range(0, 8), body)
    return [job], Truth(10, 70, 70, 0, 0, 0, 0, (6, 8))


# ---------------------------------------------------------------------------------------------------------------------


def misses(truth: Truth, reported: dict[str, Any] | str, raws: list[device.Raw]) -> list[str]:
    """What taut says that is not so."""
    if isinstance(reported, str):
        return [reported]
    found = []
    ranks = {int(r) for r in reported["ranks"]}
    if truth.several_devices:
        fits = all(abs(r["step_ns"] / 1e6 / (truth.step_ms or 1) - 1) < 0.01 for r in reported["ranks"].values())
        steps = ", ".join(f"{r['step_ns'] / 1e6:.3f}" for r in reported["ranks"].values())
        return [] if fits else [f"steps of {steps} ms on the devices"]
    if ranks != set(truth.ranks):
        found.append(f"device.ranks {sorted(ranks)} for {sorted(truth.ranks)}")
    for raw in raws:
        if str(raw.rank) not in reported["ranks"]:
            continue
        row = device.check("", raw, str(raw.rank), reported)
        found += [f"rank {raw.rank}: {miss}" for miss in row.misses]
        mine = reported["ranks"][str(raw.rank)]
        if not truth.windows[0] <= row.windows <= truth.windows[1]:
            found.append(f"rank {raw.rank}: {row.windows} windows for {truth.windows[0]} to {truth.windows[1]}")
        if truth.step_ms and abs(mine["step_ns"] / 1e6 / truth.step_ms - 1) > device.STEP:
            found.append(f"rank {raw.rank}: step {mine['step_ns'] / 1e6:.3f} for {truth.step_ms:.3f} ms")
        for name in ("busy", "compute", "communication", "exposed", "copy", "exposed_copy"):
            right = getattr(truth, name)
            if right is not None and abs(100 * mine[f"{name}_share"] - right) > 100 * device.POINT:
                found.append(f"rank {raw.rank}: {name} {100 * mine[f'{name}_share']:.1f} for {right:.1f} %")
    return found


def written(name: str, folder: Path, form: str = "kineto") -> tuple[Truth, list[Path], list[device.Raw]]:
    """What is true of a case, its files, and what the checker reads in them."""
    jobs, truth = CASES[name]()
    files = [job.write(folder, form) for job in jobs]
    raws = []
    for job, path in zip(jobs, files, strict=True):
        found = device.load(path)
        assert not isinstance(found, str)
        for raw in found:
            raw.rank = job.rank
        raws += found
    return truth, files, raws


def try_case(name: str, folder: Path, command: str, form: str = "kineto") -> list[str]:
    """Write one case, run taut on it, and compare."""
    folder.mkdir(parents=True)
    truth, files, raws = written(name, folder, form)
    return misses(truth, device.taut(command, files), raws)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=list(CASES))
    parser.add_argument("--keep", type=Path, help="write the traces here")
    parser.add_argument("--form", choices=("kineto", "nsight", "xla"), default="kineto", help="how traces are written")
    parser.add_argument("--taut", default=shutil.which("taut") or f"{sys.executable} -m taut", help="how to run taut")
    asked = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as temporary:
        names = asked.only or [name for name in CASES if name not in LEFT_OUT[asked.form]]
        for name in names:
            found = try_case(name, (asked.keep or Path(temporary)) / name, asked.taut, asked.form)
            wrong += bool(found)
            print(f"{name}: {'; '.join(found) or 'yes'}", flush=True)
    print(f"{wrong} of {len(names)} cases with a miss")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
