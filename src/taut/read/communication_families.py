"""Kernels that communicate, by family: how their names look, what they do, who meets in them, where their bytes stand.

A name is looked up without its return type, template arguments and parameters, so that what a kernel is instantiated with
cannot be taken for what it is. The table is data: a line more is a library more. It errs towards compute, because a
kernel that only sounds like communication (a gather, a scan's dispatch, a block's reduction) is far more frequent than a
library that nobody has listed.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, NamedTuple

from taut.core.tables import Verb
from taut.read.verb_words import verb_of

Bytes = Literal["call", "operator", ""]
"""Where a family's bytes are recorded: by the call that ``record_param_comms`` or NVTX describes, as the shape of an input
of the operator around the launch, or nowhere."""

NO_VERB = "communication kernels that do not say what they do"
"""Counted: their names hold no verb, and no call around their launch is recorded."""


class Family(NamedTuple):
    """One line of the table; the first that fits a kernel is its family."""

    name: str
    pattern: str
    """Found in the kernel's own name, namespaces included."""
    verb: Verb | None = None
    """What it does; None where a word of its own name tells."""
    meets: bool = True
    """Whether no rank of the group leaves it before all have come; else it is matched with nobody."""
    size: Bytes = ""


FAMILIES: tuple[Family, ...] = (
    # NCCL, RCCL and what replaces single algorithms inside them. A generic kernel of RCCL runs any verb.
    Family("nccl", r"^(?:nccl|rccl|msccl_?kernel)", size="call"),
    Family("mscclpp", r"\bmscclpp", size="call"),
    # Expert parallelism: phases of an exchange among all ranks. Halves that only send, or clean up, meet nobody.
    Family("deep_ep", r"\b(?:deep_ep|dpsk::ep)::internode_ll::", Verb.ALL_TO_ALL, False),
    Family("deep_ep", r"\b(?:deep_ep|dpsk::ep)::(?:\w+::)*(?:cached_notify|barrier)", Verb.BARRIER),
    Family("deep_ep", r"\b(?:deep_ep|dpsk::ep)::(?:\w+::)*(?:notify_)?(?:dispatch|combine)", Verb.ALL_TO_ALL),
    Family("deep_ep", r"\b(?:deep_ep|dpsk::ep)::", Verb.NONE, False),
    Family("hybrid_ep", r"\bhybrid_ep::(?:dispatch|combine|device_sync)\w*kernel", Verb.ALL_TO_ALL, False),
    Family("mori", r"\bEp(?:Dispatch|Combine)(?:Intra|Inter)Node\w*|\bmori::(?:moe|collective)::", Verb.ALL_TO_ALL, False),
    Family("pplx", r"\bpplx::(?:\w+::)*\w*(?:dispatch|combine)", Verb.ALL_TO_ALL, False),
    Family("pplx", r"\ba2a_(?:dispatch|combine)_(?:send|recv)", Verb.ALL_TO_ALL, False),
    Family("uccl", r"\buccl::(?:\w+::)*\w*(?:dispatch|combine|all_?reduce|all_?gather|all_?to_?all)", Verb.NONE, False),
    Family("trtllm moe", r"\bmoeA2A(?:Dispatch|Combine)Kernel", Verb.ALL_TO_ALL),
    Family("trtllm moe", r"\bmoeA2A|\bmoe_?comm\w*::|\b(?:fused)?moe_?(?:all_?to_?all|comm)\w*kernel", Verb.ALL_TO_ALL, False),
    # One-sided libraries; operations on a stream that all ranks take part in meet.
    Family("nvshmem", r"\b(?:barrier|sync)(?:_all)?_on_stream_kernel", Verb.BARRIER),
    Family("nvshmem", r"\b(?:alltoall|broadcast|f?collect|rdxn|reduce|reducescatter)\w*_on_stream_kernel", Verb.NONE, False),
    Family("nvshmem", r"(?:\b|_)(?:nv|roc|acl|i)shmem(?:i|x|xi)?_|\bnvshmem\w*::|\bnvshmemAlltoall", Verb.NONE, False),
    # Direct reads of peers, PyTorch's symmetric memory.
    Family("symm_mem", r"\bmultimem_all_gather|\bsymm_?mem\w*all_gather", Verb.ALL_GATHER, size="operator"),
    Family("symm_mem", r"\bmultimem_(?:one_shot_)?(?:reduce_scatter)", Verb.REDUCE_SCATTER, size="operator"),
    Family("symm_mem", r"\bmultimem_(?:\w+_)?(?:all_)?reduce|\b(?:one|two)_shot_all_reduce", Verb.ALL_REDUCE, size="operator"),
    Family("symm_mem", r"\bsymmetric_memory::(?:\w+::)*barrier|\bsymm_mem\w*barrier", Verb.BARRIER),
    Family("symm_mem", r"\bsymmetric_memory::|\bsymm_mem(?:_|::)|\bmultimem_", Verb.NONE, False),
    # Custom all-reduce of vLLM, SGLang and AITER, and what they fuse with it.
    Family("custom all-reduce", r"\bcross_device_(?:all_)?gather", Verb.ALL_GATHER, size="operator"),
    Family("custom all-reduce", r"\breduce_scatter_(?:cross_device|kernel|[12]stage)", Verb.REDUCE_SCATTER, size="operator"),
    Family("custom all-reduce", r"\bcross_device_reduce_scatter", Verb.REDUCE_SCATTER, size="operator"),
    Family("custom all-reduce", r"\bcross_device_reduce|\ballreduce_prototype", Verb.ALL_REDUCE, size="operator"),
    Family("custom all-reduce", r"\bquick_?reduce::", Verb.ALL_REDUCE, size="operator"),
    Family("custom all-reduce", r"\ball_?gather_(?:lastdim|naive|unaligned|kernel)", Verb.ALL_GATHER, size="operator"),
    # TensorRT-LLM and FlashInfer: one shot and two, fused with a norm.
    Family("trtllm all-reduce", r"\b\w*mnnvl\w*::\w*rmsNormLamport", Verb.NONE, False),
    Family("trtllm all-reduce", r"(?i:\b(?:one|two)shot_?all_?reduce)", Verb.ALL_REDUCE, size="operator"),
    Family("trtllm all-reduce", r"\b(?:moe\w+_)?allreduce_fusion_kernel", Verb.ALL_REDUCE, size="operator"),
    Family("trtllm all-reduce", r"\blamport\w*_?all_?reduce", Verb.ALL_REDUCE, size="operator"),
    Family("userbuffers", r"\bk?userbuffers_(?:fp16_)?\w*(?:_ag|_oop_ag)\b", Verb.ALL_GATHER, False),
    Family("userbuffers", r"\bk?userbuffers_", Verb.NONE, False),
    # Other vendors.
    Family("oneccl", r"^(?:one_?ccl|ccl(?:_|::|[A-Z]))|\boneccl::|\bccl::", size="call"),
    Family("hccl", r"^(?:hcom_|hccl)", size="call"),
    Family("ucc", r"^(?:ucc_|ucp_|uct_|ucc_tl_)", Verb.NONE, False),
    # What says so by name and is of no family above: counted as communication, and matched with nobody.
    Family("other", r"(?<![A-Za-z])all_?reduce(?!d)|All[Rr]educe|AllGather|AllToAll|All2All|ReduceScatter", Verb.NONE, False),
    Family("other", r"(?<![A-Za-z])all_?(?:gather|to_?all|2all)v?(?:_?\w*kernel|$)", Verb.NONE, False),
    Family("other", r"(?<![A-Za-z])reduce_?scatter_?\w*kernel", Verb.NONE, False),
)  # fmt: skip
"""All families, the stricter line before the wider one."""

LOCAL = re.compile(
    r"\b(?:deep_ep|dpsk::ep)::(?:\w+::)*\w*(?:layout|epilogue)"
    r"|^triton_(?:poi|red|per|tem|for|mm)_|gemm|matmul|^at::|^cub::|^thrust::|^rocprim::|^cutlass::|^ck(?:_tile)?::|^flash(?:_|::)"
    r"|attention|_attn|(?:[Ww]arp|[Bb]lock|[Tt]hread)_?[Aa]ll_?[Rr]educe|copy_(?:in|out)|norm2d",
)
"""Names that are local work whatever else they hold: operators fused by compilers are named after their neighbours."""
_SURELY = re.compile(r"^(?:nccl|rccl|msccl|hcom_|hccl|one_?ccl)", re.IGNORECASE)
OPERATORS = re.compile(
    r"^(?:_C_custom_ar|_C_custom_ag|symm_mem|sgl_kernel|sglang|vllm|vllm_aiter|aiter|trtllm|flashinfer|torchcomms)::"
    r"\w*(?:all_?reduce|all_?gather|reduce_?scatter|all_?to_?all)"
)
"""Operators of the host whose inputs tell the bytes of the kernel they launch."""


class Communication(NamedTuple):
    """The communication of a kernel, from its name."""

    family: str
    verb: Verb
    """NONE where the name does not say it, or where the kernel meets nobody."""
    word: str
    """What a class of such kernels is called; empty where its verb says it."""
    hops: bool = False
    """It carries sends and receives, and an exchange made of them."""
    size: Bytes = ""


_ANONYMOUS = re.compile(r"\(anonymous namespace\)|<unnamed>|\{anonymous\}")
_ARGUMENTS = re.compile(r"[<(]| \[")
_IDENTIFIER = re.compile(r"\d{1,3}")


def own_name(kernel: str) -> str:
    """A kernel's name with its namespaces, without return type, template arguments and parameters."""
    text = kernel[:400]
    if text.startswith("_Z"):
        return _demangled(text)
    if "nonymous" in text or "unnamed" in text:
        text = _ANONYMOUS.sub("_", text)
    cut = _ARGUMENTS.search(text, 1)
    return (text[: cut.start()] if cut else text).rstrip().rpartition(" ")[2]


def _demangled(text: str) -> str:
    """The identifiers at the front of a mangled name, joined."""
    at = 2 + (text[2:3] == "N")
    while at < len(text) and text[at] in "KLVrS":
        at += 2 if text[at] == "S" else 1  # qualifiers, and the abbreviation of std
    parts = []
    while (size := _IDENTIFIER.match(text, at)) is not None:
        at = size.end() + int(size[0])
        part = text[size.end() : at]
        parts.append("_" if part.startswith("_GLOBAL__N") else part)
    return "::".join(parts)


_TABLE = tuple((re.compile(one.pattern, re.IGNORECASE if one.name in ("nccl", "hccl") else 0), one) for one in FAMILIES)


@lru_cache(1 << 14)
def communication(kernel: str) -> Communication | None:
    """The communication of a kernel, from its name; None where it does not communicate."""
    return _by_own_name(own_name(kernel))


@lru_cache(1 << 12)
def _by_own_name(name: str) -> Communication | None:
    """The same by its own name, which kernels share that are instantiated with different arguments."""
    if LOCAL.search(name) and not _SURELY.match(name):
        return None
    one = next((family for pattern, family in _TABLE if pattern.search(name)), None)
    if one is None:
        return None
    verb = verb_of(name) if one.verb is None else one.verb
    last = name.rpartition("::")[2].strip("_")
    hops = one.name == "nccl" and "sendrecv" in name.lower().replace("_", "")
    if one.verb is None and verb:
        last = verb.word  # some number the names of their calls
    word = "" if one.name == "nccl" else f"{one.name} {last}"
    return Communication(one.name, verb if one.meets else Verb.NONE, word, hops, one.size)


def is_communication(kernel: str) -> bool:
    """Whether a kernel communicates with other ranks."""
    return communication(kernel) is not None


def assumed_verb(kernel: str) -> Verb:
    """The verb of a kernel of which only the name is known: one of sends and receives is taken for an exchange among all."""
    found = communication(kernel)
    if found is None:
        return Verb.NONE
    return Verb.ALL_TO_ALL if found.hops else found.verb
