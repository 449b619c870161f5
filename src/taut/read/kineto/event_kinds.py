"""What the events of a Kineto trace are: found by category, by name, or by the type of a task."""

from __future__ import annotations

import re
from functools import lru_cache

from taut.read.communication_families import OPERATORS
from taut.read.kineto.json_events import Event

# What an event is: a kernel of an accelerator, a call into its driver, an operator on the host, an annotation, a copy or a
# fill of an accelerator's memory, the shadow of an annotation on a device.
DEVICE, RUNTIME, CPU_OP, ANNOTATION, COPY, SHADOW = range(6)
# What is not known by the category alone: events of a device whose names tell copies and waits from work, and host
# events of PyTorch before 1.10, which has one category for operators and annotations.
LANE, HOST = 6, 7
# An operator whose FLOPs are counted, in a trace with device events.
MATRIX = 8

# taut's own hook around point-to-point calls, for backends whose traces do not say who sends to whom.
HOOKS = ("taut::send", "taut::recv")

UNUSED = frozenset(
    {
        "",
        "__metadata",
        "ac2g",
        "async",
        "async_cpu_to_gpu",
        "async_gpu",
        "cpu_instant_event",
        "cpu_op",
        "cuda_event",
        "cuda_profiler_range",
        "cuda_sync",
        "external_correlation",
        "flow",
        "forward_backward",
        "fwdbwd",
        "gpu_user_annotation",
        "mtia_counters",
        "mtia_insight",
        "mtia_workloadd",
        "overhead",
        "python_function",
        "trace",
        "xpu_sync",
        "negative duration",
        "no category",
        "no time or duration",
        "not an event",
        "not an interval",
        "time out of range",
        "waits of a stream",
    }
)
"""Categories that hold no work, and other reasons for which events are dropped."""
_LAUNCH = re.compile(r"launch|mem(?:cpy|set)|enqueue|runFunction|^submit", re.IGNORECASE)
_COPIES, _WAITS = re.compile(r"memcpy|memset|dma|copy", re.IGNORECASE), re.compile(r"event|wait|sync|record", re.IGNORECASE)
_TASK = re.compile(rb'"Task Type"\s{0,9}:\s{0,9}"([A-Z_]{1,40})')
_CATEGORIES = {
    "cpu_op": CPU_OP,
    "user_annotation": ANNOTATION,
    "gpu_user_annotation": SHADOW,
    "operator": HOST,
    "mtia_ccp_events": LANE,
}


def category(cat: str) -> int:
    """What kind of event a category is, in the spellings of several Kineto versions; -1 if it is none."""
    word = cat.lower()
    if word.endswith(("memcpy", "memset")):
        return COPY
    if word.endswith("kernel"):
        return DEVICE
    if "runtime" in word or "driver" in word or word == "hpu_op":
        return RUNTIME
    return _CATEGORIES.get(word, -1)


def is_copied(name: str) -> bool:
    """Whether an event of a device lane is a copy, or fills memory."""
    return _COPIES.search(name) is not None


def is_waiting(name: str) -> bool:
    """Whether an event of a device lane is a wait of one stream for another."""
    return _WAITS.search(name) is not None


def is_marked(name: str) -> bool:
    """Whether an operator is an annotation of torch itself, which PyTorch 1.10 to 1.12 listed among the operators."""
    return name.startswith(("ProfilerStep#", "Optimizer.", "enumerate(DataLoader)#"))


def is_operator(name: str) -> bool:
    """Whether an event of PyTorch before 1.10 is an operator (``aten::mm``, ``AddmmBackward``) and no annotation."""
    return "::" in name or "Backward" in name or name == "record_param_comms"


def task_kind(event: Event) -> int:
    """What a task of an Ascend device is, which has no category; -1 for a wait, and for anything else."""
    if event.ph != "X":
        return -1
    if (event.name or "").startswith("hcom_"):
        return DEVICE
    task = _TASK.search(event.args)
    if task is None:
        return -1
    return DEVICE if task[1].startswith((b"AI_", b"MIX_", b"KERNEL_")) else COPY if task[1].startswith(b"MEMCPY") else -1


_COMM = ("c10d::", "nccl", "gloo:", "mpi:", "ucc:", "rccl", "void nccl", *HOOKS)


@lru_cache(1 << 14)
def is_comm(name: str) -> bool:
    """Whether an event of this name records something about a collective."""
    return name == "record_param_comms" or name.startswith(_COMM) or OPERATORS.match(name) is not None


def is_launch(name: str) -> bool:
    """Whether a call of this name into a driver puts work onto a device."""
    return _LAUNCH.search(name) is not None


@lru_cache(1 << 14)
def is_checkpoint(name: str) -> bool:
    """Whether a host event of this name saves a checkpoint."""
    word = name.lower()
    return "torch.save" in word or ("checkpoint" in word and "backward" not in word and "autograd" not in word)
