"""Kineto traces with an accelerator: launches, streams, NCCL."""

from __future__ import annotations

from typing import Any

import pytest

from taut.read.kineto import reader as kineto

NEW_ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)"
SEND_RECV = "ncclDevKernel_SendRecv(ncclDevComm*)"


def load(tiny: Any, events: list[Any], **header: Any) -> Any:
    return kineto.load(tiny.as_bytes(events, **header), "t.json")


def device_ops(tiny: Any, trace: Any) -> list[dict[str, Any]]:
    return [op for op in tiny.ops_of(trace) if "stream" in op["lane"]]


def test_a_kernel_is_launched_by_the_call_of_its_correlation(tiny: Any) -> None:
    trace = load(tiny, [tiny.kernel("gemm", 5, ts=20, dur=10.5), tiny.launch(5, ts=10)])
    call, gemm = tiny.ops_of(trace)
    assert (call["kind"], call["lane"], call["start"], call["end"]) == ("coordinate", "thread 1", 10, 12)
    assert (gemm["kind"], gemm["lane"], gemm["start"], gemm["end"]) == ("compute", "stream 7", 20, 30.5)
    assert gemm["launch"] == "cudaLaunchKernel"


def test_only_calls_that_launch_or_wait_are_ops(tiny: Any) -> None:
    events = [
        tiny.kernel("gemm", 5, 20, 10),
        tiny.launch(5, 10),
        tiny.launch(6, 13, name="cudaEventQuery"),
        tiny.launch(7, 16, dur=20, name="cudaDeviceSynchronize"),
        tiny.event("cpu_op", "aten::mm", 9, 5),
    ]
    trace = load(tiny, events)
    found = [(op["name"], op["start"], op["end"]) for op in tiny.ops_of(trace)]
    # What waits for the device begins when the device is done.
    assert found == [("cudaLaunchKernel", 10, 12), ("gemm", 20, 30), ("cudaDeviceSynchronize", 30, 36)]
    assert trace.counts["dropped: runtime calls that launch nothing"] == 1
    assert trace.counts["dropped: cpu_op"] == 1


def test_several_devices_have_lanes_of_their_own(tiny: Any) -> None:
    other = tiny.kernel("b", 2, 20, 5)
    other["args"]["device"] = 1
    trace = load(tiny, [tiny.kernel("a", 1, 20, 5), other])
    assert [op["lane"] for op in tiny.ops_of(trace)] == ["device 0 stream 7", "device 1 stream 7"]


def test_a_cuda_graph_launches_many_kernels(tiny: Any) -> None:
    trace = load(tiny, [tiny.launch(3, 0, name="cudaGraphLaunch"), tiny.kernel("a", 3, 10, 5), tiny.kernel("b", 3, 15, 5)])
    assert [op["launch"] for op in device_ops(tiny, trace)] == ["cudaGraphLaunch"] * 2
    assert trace.counts["cuda graph launches"] == 1
    assert trace.counts["launched by cuda graphs"] == 2


def test_overlapping_kernels_of_a_stream_spill(tiny: Any) -> None:
    trace = load(tiny, [tiny.kernel("a", 1, 10, 50), tiny.kernel("b", 2, 20, 10), tiny.kernel("c", 3, 40, 30)])
    assert [op["lane"] for op in tiny.ops_of(trace)] == ["stream 7", "stream 7/1", "stream 7/1"]
    assert trace.counts["overlapping in a lane"] == 2


def test_an_overlap_within_rounding_is_trimmed(tiny: Any) -> None:
    trace = load(tiny, [tiny.kernel("a", 1, 10, 10.25), tiny.kernel("b", 2, 20, 10)])
    assert [(op["lane"], op["end"]) for op in tiny.ops_of(trace)] == [("stream 7", 20), ("stream 7", 30)]


@pytest.mark.parametrize(
    ("name", "verb"),
    [
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "all-reduce"),
        (NEW_ALL_REDUCE, "all-reduce"),
        ("ncclKernel_ReduceScatter_RING_LL_Sum_half(ncclWorkElem)", "reduce-scatter"),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevComm*)", "all-gather"),
        ("ncclDevKernel_Broadcast_RING_LL(ncclDevComm*)", "broadcast"),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL(ncclDevComm*)", "reduce"),
    ],
)
def test_verbs_of_nccl_kernels(tiny: Any, name: str, verb: str) -> None:
    trace = load(tiny, [tiny.launch(1, 0), tiny.kernel(name, 1, 10, 10)])
    (op,) = device_ops(tiny, trace)
    assert (op["kind"], op["verb"], op["name"], op["group"]) == ("communicate", verb, f"nccl {verb}", "default")


def test_the_kernel_itself_may_tell_everything(tiny: Any) -> None:
    args = {
        "Collective name": "_allgather_base",
        "Process Group Name": "3",
        "Process Group Ranks": "[0, 2]",
        "In msg nelems": 10,
        "Out msg nelems": 20,
        "dtype": "BFloat16",
        "Seq": 42,
    }
    trace = load(tiny, [tiny.kernel("ncclDevKernel_AllGather_RING_LL", 1, 10, 10, **args)])
    (op,) = tiny.ops_of(trace)
    assert (op["verb"], op["group"], op["seq"], op["size"]) == ("all-gather", "3", 42, 40)
    assert trace.group_ranks == {"3": [0, 2]}


def test_record_param_comms_around_the_launch_describes_it(tiny: Any) -> None:
    args = {"Collective name": "allreduce", "In msg nelems": 100, "Out msg nelems": 100, "dtype": "Float"}
    events = [
        tiny.event("cpu_op", "record_param_comms", 0, 20, **args, **{"Process Group Name": "1", "Seq": 3}),
        tiny.launch(1, 5),
        tiny.event("cpu_op", "record_param_comms", 30, 20, **{**args, "In msg nelems": 7, "Out msg nelems": 7}),
        tiny.launch(2, 35),
        tiny.kernel(NEW_ALL_REDUCE, 1, 100, 10),
        tiny.kernel(NEW_ALL_REDUCE, 2, 110, 10),
    ]
    first, second = device_ops(tiny, load(tiny, events))
    assert (first["size"], first["group"], first["seq"]) == (400, "1", 3)
    assert (second["size"], second["group"], second["seq"]) == (28, "", -1)


def test_record_param_comms_of_the_same_external_id_describes_a_kernel_without_a_launch(tiny: Any) -> None:
    args = {"Collective name": "allreduce", "In msg nelems": 100, "dtype": "Float", "External id": 77}
    events = [
        tiny.event("cpu_op", "record_param_comms", 0, 20, **args),
        tiny.kernel(NEW_ALL_REDUCE, 1, 100, 10, **{"External id": 77}),
    ]
    (op,) = device_ops(tiny, load(tiny, events))
    assert op["size"] == 400


@pytest.mark.parametrize(("note", "verb"), [("nccl:all_to_all", "all-to-all"), ("nccl:send", "send"), ("nccl:recv", "recv")])
def test_the_annotation_says_what_a_sendrecv_kernel_is(tiny: Any, note: str, verb: str) -> None:
    events = [
        tiny.event("user_annotation", note, 0, 20, **{"Input Dims": [[8, 4]], "Input type": ["long"]}),
        tiny.launch(1, 5),
        tiny.kernel(SEND_RECV, 1, 100, 10),
    ]
    trace = load(tiny, events)
    (op,) = device_ops(tiny, trace)
    assert (op["verb"], op["size"]) == (verb, 256)


def test_a_peer_is_named_as_a_global_rank(tiny: Any) -> None:
    args = {"Collective name": "send", "Process Group Name": "4", "Process Group Ranks": "[2, 6]", "Dst Rank": 1}
    (op,) = tiny.ops_of(load(tiny, [tiny.kernel(SEND_RECV, 1, 10, 10, **args)]))
    assert (op["verb"], op["peer"]) == ("send", 6)


def test_the_loader_and_the_checkpoint_are_coordination(tiny: Any) -> None:
    events = [
        tiny.kernel("gemm", 1, 10, 10),
        tiny.event("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 0, 8),
        tiny.event("user_annotation", "torch.save", 30, 8),
    ]
    loader, _, save = tiny.ops_of(load(tiny, events))
    assert (loader["lane"], loader["kind"], loader["name"]) == ("thread 1", "coordinate", "input: DataLoader")
    assert (save["lane"], save["kind"], save["name"]) == ("thread 1", "coordinate", "checkpoint")


def test_a_checkpoint_that_copies_is_what_the_host_does_between_its_calls(tiny: Any) -> None:
    events = [
        tiny.event("user_annotation", "checkpoint", 0, 100),
        tiny.launch(5, 10, 20, name="cudaMemcpyAsync"),
        tiny.event("gpu_memcpy", "Memcpy DtoH", 12, 5, 7, correlation=5, stream=7, device=0),
        tiny.launch(6, 40, 10),
        tiny.launch(7, 45, 15, name="cudaStreamSynchronize"),
        tiny.kernel("gemm", 6, 200, 10),
    ]
    ops = [op for op in tiny.ops_of(load(tiny, events)) if op["name"] == "checkpoint"]
    assert [(op["lane"], op["start"], op["end"]) for op in ops] == [
        ("thread 1", 0, 10), ("thread 1", 30, 40), ("thread 1", 60, 100),
    ]  # fmt: skip


def test_old_spellings_of_categories(tiny: Any) -> None:
    work = tiny.kernel("gemm", 5, 20, 10) | {"cat": "Kernel"}
    call = tiny.launch(5, 10) | {"cat": "Runtime"}
    assert [op["name"] for op in tiny.ops_of(load(tiny, [work, call]))] == ["cudaLaunchKernel", "gemm"]


def test_header(tiny: Any) -> None:
    config = [{"pg_name": "0", "ranks": "[0, 1]"}]
    trace = load(
        tiny,
        [tiny.kernel("gemm", 1, 0, 1)],
        rank=1,
        world_size=2,
        host_name="node7",
        deviceProperties=[{"name": "H200"}],
        distributedInfo={"pg_config": config},
    )
    assert (trace.world_size, trace.backend, dict(trace.group_ranks)) == (2, "gloo", {"0": [0, 1]})
    assert (trace.members.rank[0], trace.members.host[0], trace.members.device[0]) == (1, "node7", "H200")


def test_epoch_times_keep_their_microseconds(tiny: Any) -> None:
    trace = kineto.load(tiny.as_bytes([tiny.kernel("a", 1, 1694128201435447, 53)], baseTimeNanoseconds=0), "t")
    assert (trace.ops.start_ns[0], trace.ops.end_ns[0]) == (1694128201435447000, 1694128201435500000)


def test_copies_are_classes_of_their_own(tiny: Any) -> None:
    """Pageable or pinned is one class; a copy communicates with nobody."""
    events = [
        tiny.event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 10, 5, device=0, stream=7, correlation=1, bytes=64),
        tiny.event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 20, 5, device=0, stream=7, correlation=2, bytes=32),
        tiny.event("gpu_memset", "Memset (Device)", 30, 5, device=0, stream=7, correlation=3, bytes=16),
        tiny.launch(1, 0, name="cudaMemcpyAsync"),
    ]
    found = [(op["name"], op["kind"], op["verb"], op["size"], op["group"]) for op in device_ops(tiny, load(tiny, events))]
    assert found == [
        ("copy h2d", "communicate", "none", 64, ""),
        ("copy h2d", "communicate", "none", 32, ""),
        ("set", "communicate", "none", 16, ""),
    ]


def test_copies_alone_are_a_device(tiny: Any) -> None:
    trace = load(tiny, [tiny.event("Memcpy", "Memcpy DtoH (Device -> Pageable)", 10, 5, device=0, stream=7)])
    assert [(op["name"], op["lane"]) for op in tiny.ops_of(trace)] == [("copy d2h", "stream 7")]


def test_events_of_mtia_are_a_device(tiny: Any) -> None:
    """DMA requests are copies, and a stream that waits for another does nothing."""
    events = [
        tiny.event("mtia_ccp_events", "pe_exe", 10, 50, pid=17, tid=3, stream=106),
        tiny.event("mtia_ccp_events", "dma_request", 60, 5, pid=17, tid=4, stream=107, direction="HOST_TO_DEVICE", size=99),
        tiny.event("mtia_ccp_events", "event_wait", 70, 5, pid=17, tid=4, stream=107),
        tiny.event("mtia_runtime", "runFunction", 0, 5, correlation=4),
    ]
    trace = load(tiny, events)
    found = [(op["lane"], op["name"], op["kind"], op["size"]) for op in tiny.ops_of(trace)]
    assert found == [("stream 106", "pe_exe", "compute", -1), ("stream 107", "copy h2d", "communicate", 99)]
    assert trace.counts["dropped: waits of a stream"] == 1


def test_old_traces_have_annotations_among_their_operators(tiny: Any) -> None:
    """PyTorch before 1.10 has one category for both."""
    events = [
        tiny.event("Operator", "ProfilerStep#5", 0, 40),
        tiny.event("Operator", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 1, 8),
        tiny.event("Operator", "aten::mm", 10, 5),
        tiny.event("Kernel", "gemm", 20, 5, device=0, stream=7, correlation=1),
    ]
    trace = load(tiny, events)
    assert trace.marks.step.tolist() == [5]
    assert [op["name"] for op in tiny.ops_of(trace)] == ["input: DataLoader", "gemm"]


def test_marks_may_stand_among_the_operators(tiny: Any) -> None:
    """PyTorch 1.10 to 1.12 knew annotations, but listed its own among the operators."""
    events = [
        tiny.event("cpu_op", "ProfilerStep#5", 0, 40),
        tiny.event("cpu_op", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 1, 8),
        tiny.event("cpu_op", "aten::mm", 10, 5),
        tiny.launch(1, 11),
        tiny.kernel("gemm", 1, 20, 5),
    ]
    trace = load(tiny, events)
    assert trace.marks.step.tolist() == [5]
    assert [op["name"] for op in device_ops(tiny, trace)] == ["gemm"]


def test_a_field_of_the_wrong_type_costs_no_other(tiny: Any) -> None:
    kernels = [tiny.kernel("gemm", 5, at, 10, bytes=wrong) for at, wrong in ((20, 2**64 - 1), (30, None), (40, "many"))]
    found = device_ops(tiny, load(tiny, [tiny.launch(5, 10), *kernels]))
    assert [(op["lane"], op["launch"]) for op in found] == [("stream 7", "cudaLaunchKernel")] * 3


def test_a_number_that_is_used_again_means_the_last_call_before_the_work(tiny: Any) -> None:
    """A call inside another of its number is the same launch; a profiler that starts again counts from the beginning."""
    events = [tiny.event("user_annotation", f"ProfilerStep#{s}", at, 90) for s, at in ((1, 0), (2, 100), (8, 1000), (9, 1100))]
    for at in (10, 1010, 1110):
        events += [tiny.launch(5, at, dur=6), tiny.event("cuda_driver", "cuLaunchKernel", at + 1, 3, correlation=5)]
        events += [tiny.kernel("gemm", 5, at + 20, 10)]
    trace = load(tiny, [*events, tiny.launch(6, 110), tiny.kernel("gemm", 6, 150, 10)])
    on_device = [op.startswith("stream") for op in [trace.lanes[lane] for lane in trace.ops.lane.tolist()]]
    assert trace.ops.step[on_device].tolist() == [1, 2, 8, 9]


def test_events_that_begin_and_end_apart_are_joined(tiny: Any) -> None:
    events = []
    for event in (tiny.event("user_annotation", "ProfilerStep#5", 0, 40), tiny.launch(1, 10), tiny.kernel("gemm", 1, 20, 5)):
        end = event["ts"] + event.pop("dur")
        events += [event | {"ph": "B"}, {"ph": "E", "pid": event["pid"], "tid": event["tid"], "ts": end}]
    trace = load(tiny, sorted(events, key=lambda event: event["ts"]))
    assert trace.marks.step.tolist() == [5]
    assert [(op["start"], op["end"]) for op in device_ops(tiny, trace)] == [(20, 25)]


def test_steps_at_the_end_that_lost_their_work_are_left_out(tiny: Any) -> None:
    events = []
    for s in range(6):
        events.append(tiny.event("user_annotation", f"ProfilerStep#{s}", 100 * s, 90))
        for k in range(5):
            events.append(tiny.launch(10 * s + k + 1, 100 * s + 10 * k))
            if s < 4 or (s == 4 and k == 0):
                events.append(tiny.kernel("gemm", 10 * s + k + 1, 100 * s + 10 * k + 5, 5))
    trace = load(tiny, events)
    assert trace.marks.step.tolist() == [0, 1, 2, 3]
    assert trace.partial == ("the recording ends before the work that was launched in it: the last step is left out",)


def test_an_unlabelled_generic_kernel_is_no_send(tiny: Any) -> None:
    """RCCL runs every verb in one kernel: without a call around its launch nobody knows which."""
    generic = "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)"
    events = [
        tiny.event("user_annotation", "nccl:all_reduce", 0, 20, **{"Input Dims": [[8, 4]], "Input type": ["long"]}),
        tiny.launch(1, 5),
        tiny.kernel(generic, 1, 100, 10),
        tiny.kernel(generic, 2, 200, 10),
    ]
    trace = load(tiny, events)
    assert [(op["name"], op["verb"], op["size"]) for op in device_ops(tiny, trace)] == [
        ("nccl all-reduce", "all-reduce", 256),
        ("nccl collective", "none", -1),
    ]
    assert trace.counts["communication kernels that do not say what they do"] == 1
    assert not trace.counts.get("grouped sends and receives without their calls")


def test_other_libraries_communicate_too(tiny: Any) -> None:
    """A kernel in which all ranks meet has a verb and a group; of another nobody knows who waits for whom."""
    custom = "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)"
    events = [
        tiny.event(
            "cpu_op", "_C_custom_ar::all_reduce", 0, 20, **{"Input Dims": [[], [8, 4]], "Input type": ["Scalar", "half"]}
        ),
        tiny.launch(1, 5),
        tiny.kernel(custom, 1, 100, 10),
        tiny.kernel("void deep_ep::internode_ll::dispatch<true, 6144>(void*)", 2, 200, 10),
    ]
    found = [(op["name"], op["kind"], op["verb"], op["group"], op["size"]) for op in device_ops(tiny, load(tiny, events))]
    assert found == [
        ("custom all-reduce cross_device_reduce_1stage", "communicate", "all-reduce", "default (custom all-reduce)", 64),
        ("deep_ep dispatch", "communicate", "none", "", -1),
    ]


def test_the_device_that_most_kernels_use_is_the_gpu(tiny: Any) -> None:
    def on(device: Any, at: float) -> dict[str, Any]:
        one: dict[str, Any] = tiny.kernel("gemm", 1, at, 5)
        one["args"]["device"] = device
        return one

    assert load(tiny, [on(3, 0), on(2, 10), on(3, 20)]).members.gpu.tolist() == [3]
    assert load(tiny, [on("x", 0)]).members.gpu.tolist() == [-1]
    assert load(tiny, [tiny.event("cpu_op", "aten::mm", 0, 5)]).members.gpu.tolist() == [-1]


def test_tasks_of_ascend_devices_are_work(tiny: Any) -> None:
    """They have no category; what its own analysis adds beside them is no work, and no wait is."""

    def task(name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
        return {"ph": "X", "name": name, "pid": "3_0", "tid": 4, "ts": str(ts), "dur": dur, "args": args}

    events = [
        tiny.event("cpu_op", "aten::mm", 0, 5),
        task("aclnnMatmul", 10, 5, **{"Task Type": "AI_CORE", "Stream Id": 4}),
        task("Memcpy HtoD", 20, 5, **{"Task Type": "MEMCPY_ASYNC", "Stream Id": 4}),
        task("Notify_Wait", 30, 5, **{"Task Type": "NOTIFY_WAIT_SQE", "Stream Id": 4}),
        task("hcom_allReduce__606_0_1", 40, 5),
        task("Computing", 10, 5),
    ]
    trace = load(tiny, events)
    assert [(op["lane"], op["name"], op["kind"], op["verb"]) for op in tiny.ops_of(trace)] == [
        ("stream 4", "aclnnMatmul", "compute", "none"),
        ("stream 4", "copy h2d", "communicate", "none"),
        ("stream 4", "hccl all-reduce", "communicate", "all-reduce"),
    ]
    assert trace.counts["dropped: no category"] == 2


def test_copies_among_the_kernels_are_copies(tiny: Any) -> None:
    copied, filled = tiny.ops_of(
        load(
            tiny,
            [
                tiny.kernel("Memcpy DtoH (Device -> Pinned)", 1, 10, 5, bytes=8),
                tiny.kernel("__amd_rocclr_fillBufferAligned", 2, 20, 5),
            ],
        )
    )
    assert (copied["name"], copied["kind"], copied["size"]) == ("copy d2h", "communicate", 8)
    assert (filled["name"], filled["kind"], filled["size"]) == ("set", "communicate", -1)
