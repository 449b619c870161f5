"""FLOPs of the operators that the profiler recorded with their shapes: matrix products, convolutions, attention.

Only the innermost operator of each kind counts (``aten::linear`` calls ``aten::addmm``), and only one that launched something.
What kernels outside of these compute (compiled or hand-written products) is not known: their time is kept, so that a share
of the peak can say that it is at least so much.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod

import numpy as np
from msgspec import Struct, field

from taut.core.array_types import Floats, Ints, Json, Mask
from taut.core.ids import numbered, sums, weighed
from taut.core.tables import MatrixWork, Table
from taut.read.columns import Codes, containing
from taut.read.json_values import decoded
from taut.read.kineto.json_events import NOTHING, SEPARATOR, Event, ShapeArgs, args_of
from taut.read.op_rows import issuer, steps_at

LARGEST = 1 << 62
"""More FLOPs than this are no operator's."""
ENOUGH = 16
"""Operators without shapes that show that none has any."""
_NUMBER = re.compile(r"-?\d{1,9}")
_PRODUCT_WORDS = (
    "gemm", "nvjet", "cutlass::kernel", "cutlass_", "xmma", "cijk_", "wgrad", "dgrad", "fprop", "convolve", "winograd",
    "flash_fwd", "flash_bwd", "fmha", "attention", "_mm_", "bmm_", "matmul", "moe_kernel",
)  # fmt: skip
_NAME_START = 200
Shape = Sequence[int]


class _Arguments(Struct, frozen=True):
    dims: list[Json]
    values: list[str]

    def shape(self, at: int, rank: int) -> Shape:
        """A shape of at least so many extents; raises where it is not recorded."""
        found = _shape(self.dims[at])
        if len(found) < rank:
            raise ValueError
        return found

    def numbers(self, at: int) -> list[int]:
        return [int(one) for one in _NUMBER.findall(self.values[at])]


def _product(first: int) -> Callable[[_Arguments], int]:
    """A matrix product of two arguments that follow each other: rows × depth by depth × columns, perhaps in batches."""

    def flops(a: _Arguments) -> int:
        left, right = a.shape(first, 2), a.shape(first + 1, 2)
        return 2 * prod(left) * right[-1]

    return flops


def _convolution(a: _Arguments) -> int:
    data, weight = a.shape(0, 3), a.shape(1, 3)
    if a.values[6] == "True":  # transposed: every element that comes in meets the whole kernel
        return 2 * data[0] * prod(data[2:]) * prod(weight)
    stride, padding, dilation = a.numbers(3), a.numbers(4), a.numbers(5)
    out = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(data[2:], weight[2:], stride, padding, dilation, strict=True)
    ]
    return 2 * data[0] * prod(out) * prod(weight)


def _convolution_backward(a: _Arguments) -> int:
    grad, data, weight = a.shape(0, 3), a.shape(1, 3), a.shape(2, 3)
    met = data if a.values[7] == "True" else grad
    wanted = re.findall("True|False", a.values[10])[:2].count("True")
    return 2 * wanted * met[0] * prod(met[2:]) * prod(weight)


def _attention(first: int, causal: int, times: float) -> Callable[[_Arguments], int]:
    """Scores and values of queries × keys; half of it where each query sees only keys before it."""

    def flops(a: _Arguments) -> int:
        query, key, value = (a.shape(first + i, 4) for i in range(3))
        seen = 0.5 if a.values[causal : causal + 1] == ["True"] else 1.0
        return int(seen * times * 2 * prod(query[:3]) * key[2] * (query[3] + value[3]))

    return flops


PRODUCTS: dict[str, Callable[[_Arguments], int]] = {
    "aten::mm": _product(0),
    "aten::bmm": _product(0),
    "aten::addmm": _product(1),
    "aten::baddbmm": _product(1),
    "aten::_scaled_mm": _product(0),
    "aten::_addmm_activation": _product(1),
}
"""Operators whose shapes alone tell their FLOPs."""
FLOPS: dict[str, Callable[[_Arguments], int]] = PRODUCTS | {
    "aten::convolution": _convolution,
    "aten::convolution_backward": _convolution_backward,
    "aten::_scaled_dot_product_flash_attention": _attention(0, 4, 1.0),
    "aten::_scaled_dot_product_flash_attention_backward": _attention(1, 10, 2.5),
    "aten::_scaled_dot_product_efficient_attention": _attention(0, 6, 1.0),
    "aten::_scaled_dot_product_efficient_attention_backward": _attention(1, 11, 2.5),
    "aten::_scaled_dot_product_cudnn_attention": _attention(0, 6, 1.0),
    "aten::_scaled_dot_product_cudnn_attention_backward": _attention(1, 14, 2.5),
}
"""Operator → its FLOPs. Backward attention is two and a half times the forward one: five products for two."""


def is_matrix_op(name: str) -> bool:
    """Whether an operator's FLOPs can be computed from its shapes."""
    return name in FLOPS


class MatrixOps(Struct):
    """The operators of one file with their FLOPs; -1 where the shapes do not tell."""

    start: list[Ints] = field(default_factory=list)
    end: list[Ints] = field(default_factory=list)
    thread: list[Ints] = field(default_factory=list)
    flops: list[Floats] = field(default_factory=list)
    dtype: list[Ints] = field(default_factory=list)
    dtypes: Codes = field(default_factory=Codes)
    blind: bool = False
    """Whether the first of them showed that shapes were not recorded."""

    def add(self, events: Sequence[Event], start: Ints, end: Ints, thread: Ints) -> None:
        """Append some operators."""
        found = [(-1.0, "")] * len(events)
        if not self.blind:
            found = list(map(_found, events, args_of(events, ShapeArgs)))
            self.blind = len(events) >= ENOUGH and len(self.flops) == 0 and all(flops < 0 for flops, _ in found)
        self.start.append(start)
        self.end.append(end)
        self.thread.append(thread)
        self.flops.append(np.array([flops for flops, _ in found], dtype=np.float64))
        self.dtype.append(self.dtypes.of([dtype for _, dtype in found]))

    def table(self, rank: int, calls: tuple[Ints, Ints, Ints], work: tuple[Ints, Ints, Mask], marks: Table) -> Table:
        """What the steps of a rank hold of them.

        ``calls`` are thread, start and correlation of driver calls; ``work`` correlation and duration of kernels, and which of
        them look like products.
        """
        start, end, thread, dtype = (np.concatenate(part) for part in (self.start, self.end, self.thread, self.dtype))
        flops = np.concatenate(self.flops)
        inside = containing(thread, start, end, calls[0], calls[1])
        launched = np.zeros(len(start), dtype=np.bool_)
        launched[inside[inside >= 0]] = True
        correlation, took, product = work
        call = issuer(calls[2], correlation[product])
        counted, took = np.append(inside, -1)[call] >= 0, took[product]
        step = steps_at(np.concatenate([start[launched], np.append(calls[1], np.iinfo(np.int64).min)[call]]), marks)
        kind = np.concatenate([dtype[launched], np.full(len(call), len(self.dtypes))])
        ids, count = numbered(step, kind)
        one = np.zeros(count, dtype=np.int64)
        one[ids] = np.arange(len(ids))
        flops, of_ops, of_kernels = flops[launched], ids[: int(launched.sum())], ids[int(launched.sum()) :]
        return Table(
            MatrixWork,
            {
                "rank": np.full(count, rank),
                "step": step[one],
                "dtype": np.array([*map(str, self.dtypes), ""], dtype=object)[kind[one]],
                "flops": weighed(of_ops, np.maximum(flops, 0), count),
                "ops": np.bincount(of_ops, minlength=count),
                "unsized": np.bincount(of_ops[flops < 0], minlength=count),
                "counted_ns": sums(of_kernels, np.where(counted, took, 0), count),
                "uncounted_ns": sums(of_kernels, np.where(counted, 0, took), count),
            },
            count,
        )


@lru_cache(1 << 14)
def is_product_kernel(name: str) -> bool:
    """Whether a kernel is called like matrix products, convolutions and attention are."""
    word = name[:_NAME_START].lower().replace("fbgemm", "")
    return any(map(word.__contains__, _PRODUCT_WORDS))


def _found(event: Event, args: ShapeArgs) -> tuple[float, str]:
    dims, name = args.dims if args.dims is not NOTHING else args.old_dims, event.name or ""
    values = NOTHING if name in PRODUCTS else args.concrete
    return _flops_and_type(name, SEPARATOR.join((dims, args.types, values)))


@lru_cache(1 << 12)
def _flops_and_type(name: str, recorded: bytes) -> tuple[float, str]:
    """FLOPs of an operator and the type of its elements; -1 and nothing where they are not recorded.

    By the joined texts of shapes, types and values: operators of a step come again in every step and on every rank.
    """
    texts = recorded.split(SEPARATOR)
    dims, dtype = decoded(texts[0]), _dtype(texts[1])
    try:
        flops = FLOPS[name](_Arguments(dims if isinstance(dims, list) else [], _values(texts[2])))
    except (ValueError, IndexError, ZeroDivisionError, OverflowError):
        return -1.0, dtype
    return (float(flops), dtype) if 0 <= flops < LARGEST else (-1.0, dtype)


@lru_cache(1 << 10)
def _dtype(types: bytes) -> str:
    """The type of the elements, by the text of an operator's types."""
    found = decoded(types)
    words = found if isinstance(found, list) else []
    return next((one for one in words if isinstance(one, str) and one not in ("", "Scalar", "ScalarList")), "")


@lru_cache(1 << 10)
def _values(concrete: bytes) -> list[str]:
    """Plain values, by the text of an operator's arguments."""
    found = decoded(concrete)
    return [one if isinstance(one, str) else "" for one in found] if isinstance(found, list) else []


def _shape(value: Json) -> Shape:
    """A shape of whole numbers; empty if it is none."""
    if not isinstance(value, list) or len(value) > 8:
        return ()
    extents = [one for one in value if type(one) is int and 0 <= one < 1 << 40]
    return extents if len(extents) == len(value) else ()
