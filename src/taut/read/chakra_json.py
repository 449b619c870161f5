"""Chakra traces as JSON: a ``workload_graph``, or the nodes as protobuf prints them, one object after another."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from taut.errors import InputRefused, TooLarge
from taut.read.chakra_nodes import NUMBERS, TYPES, VERBS, Needs, Nodes, codes_of, nanoseconds, process_groups
from taut.read.columns import Codes, Ints, Mask
from taut.read.kineto_json import Int64, integer
from taut.read.kineto_rows import NAME_LENGTH
from taut.read.words import verb_of
from taut.tables import NULL

_SPOKEN = (b'"workload_graph"', b'"COMP_NODE"', b'"COMM_COLL_NODE"', b'"COMM_SEND_NODE"', b'"COMM_RECV_NODE"')
_BETWEEN = re.compile(rb"\}\s*(?=\{)")
Deps = list[Int64] | None
OBJECTS, VALUES = 5_000_000, 50_000_000
"""More objects, or values, in one file than an execution trace of one rank holds."""


def sniff(head: bytes) -> bool:
    """A JSON object, or several, with the words of Chakra."""
    text = head.lstrip()
    return text[:1] in (b"{", b"[") and any(word in text for word in _SPOKEN)


class _Attribute(msgspec.Struct, gc=False):
    name: Any = None
    int64Val: Any = None
    int64_val: Any = None
    int32Val: Any = None
    int32_val: Any = None
    uint64Val: Any = None
    uint64_val: Any = None
    uint32Val: Any = None
    uint32_val: Any = None
    boolVal: Any = None
    bool_val: Any = None
    doubleVal: Any = None
    double_val: Any = None
    floatVal: Any = None
    float_val: Any = None
    stringVal: Any = None
    string_val: Any = None
    boolList: Any = None
    bool_list: Any = None

    def value(self) -> Any:
        """The one value that is given; an attribute without any is false."""
        for key in self.__struct_fields__[1:]:
            found = getattr(self, key)
            if found is not None:
                return found.get("values") if isinstance(found, dict) else found
        return False


class _Node(msgspec.Struct, gc=False):
    """One node in any of the spellings; what is not here is passed over."""

    Id: Int64 = NULL
    id: Int64 = NULL
    Name: str = ""
    name: str = ""
    NodeType: int | str = 0
    type: int | str = 0
    ctrlDeps: Deps = None
    ctrl_deps: Deps = None
    dataDeps: Deps = None
    data_deps: Deps = None
    startTimeMicros: float = NULL
    start_time_micros: float = NULL
    durationMicros: float = NULL
    duration_micros: float = NULL
    runtime: float = NULL
    is_cpu_op: bool | None = None
    comm_type: int | str | None = None
    comm_size: Int64 = NULL
    comm_src: Int64 = NULL
    comm_dst: Int64 = NULL
    comm_tag: Int64 = NULL
    num_ops: Int64 = NULL
    tensor_size: Int64 = NULL
    stream: Int64 = NULL
    tid: Int64 = NULL
    pg_name: int | str | None = None
    involved_dim: Any = None
    rank: Int64 = NULL
    inputs: msgspec.Raw = msgspec.Raw(b"null")
    attr: list[_Attribute] | None = None

    def absorb(self) -> None:
        """Attributes become fields of the same name."""
        for attribute in self.attr or ():
            if attribute.name in _NUMERIC:
                setattr(self, attribute.name, _number(attribute.value()))
            elif attribute.name in ("comm_type", "pg_name", "involved_dim", "is_cpu_op"):
                setattr(self, attribute.name, attribute.value())


_NUMERIC = frozenset(NUMBERS) - {"comm_type", "is_cpu_op"}


class _Graph(msgspec.Struct):
    workload_graph: list[_Node] | None = None
    nodes: list[_Node] | None = None
    node: list[_Node] | None = None
    rank: Int64 = NULL


def nodes(data: bytes | bytearray, label: str) -> Nodes:
    """The nodes of a JSON trace."""
    if data.count(b"{") > OBJECTS or data.count(b",") > VALUES:
        raise TooLarge(label, f"more than {OBJECTS:,} objects or {VALUES:,} values", "trace fewer steps")
    try:
        found, rank = _decode(bytes(data))
    except RecursionError:
        raise TooLarge(label, "nested too deeply to be a trace") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputRefused(label, f"not valid trace JSON: {error}", "write the trace again, or leave this file out") from None
    found = [node for node in found if node.id >= 0 or node.Id >= 0]
    if not found:
        raise InputRefused(label, "no node in this trace", "convert the trace again")
    for node in found:
        if node.attr:
            node.absorb()
    return _columns(found, rank)


def _decode(data: bytes) -> tuple[list[_Node], int]:
    """Nodes of one document, or of many behind each other; the first of those is the header."""
    text = data.lstrip()
    if text[:1] == b"[":
        return msgspec.json.decode(text, type=list[_Node], strict=False), NULL
    try:
        graph = msgspec.json.decode(text, type=_Graph, strict=False)
        return graph.workload_graph or graph.nodes or graph.node or [], graph.rank
    except msgspec.DecodeError:
        joined, cuts = _BETWEEN.subn(_comma, text)
        if not cuts:
            raise
    head, *found = msgspec.json.decode(b"[" + joined + b"]", type=list[_Node], strict=False)
    if head.id >= 0 or head.name:
        return [head, *found], NULL
    head.absorb()
    return found, head.rank


def _comma(cut: re.Match[bytes]) -> bytes:
    """Objects behind each other become a list. Strings hold no line breaks, so a break beside the braces proves them real."""
    broken = b"\n" in cut[0] or cut.string[cut.start() - 1 : cut.start()] == b"\n"
    return b"}," if broken else cut[0]


def _columns(found: Sequence[_Node], rank: int) -> Nodes:
    counts: Counter[str] = Counter({"nodes": len(found)})
    ids = np.maximum(_each(found, "id"), _each(found, "Id"))
    names, groups, types, verbs = Codes(), Codes(), Codes(), Codes()
    owner, needed, control = _needs(found)
    number = {key: _each(found, key) for key in _NUMERIC - {"runtime"}}
    kind = verbs.of(node.comm_type for node in found)
    number["comm_type"] = np.array([_verb(word) for word in verbs], dtype=np.int64)[kind]
    number["is_cpu_op"] = np.array([NULL if node.is_cpu_op is None else bool(node.is_cpu_op) for node in found], dtype=np.int64)
    which = types.of(node.type or node.NodeType for node in found)
    made = [bytes(node.inputs).decode("utf-8", "replace") for node in found if "process_group:init" in node.name + node.Name]
    return Nodes(
        id=ids,
        type=np.array([_type(word) for word in types], dtype=np.int64)[which],
        name=names.of((node.name or node.Name)[:NAME_LENGTH] for node in found),
        start_ns=_times(found, ("startTimeMicros", "start_time_micros"), counts, "start"),
        duration_ns=_times(found, ("durationMicros", "duration_micros", "runtime"), counts, "duration"),
        names=list(map(str, names)),
        number=number,
        group=codes_of([str(node.pg_name)[:NAME_LENGTH] if node.pg_name is not None else "" for node in found], groups),
        groups=list(map(str, groups)),
        some_dims=np.array([_some(node.involved_dim) for node in found], dtype=np.int64),
        needs=Needs.linked(ids, owner, needed, control, counts),
        rank=rank if 0 <= rank < 2**31 else NULL,
        group_ranks={name: ranks for text in made for name, ranks in process_groups(text).items()},
        counts=counts,
    )


def _each(found: Sequence[_Node], key: str) -> Ints:
    return np.fromiter(map(attrgetter(key), found), dtype=np.int64, count=len(found))


def _times(found: Sequence[_Node], keys: Sequence[str], counts: Counter[str], what: str) -> Ints:
    """ns out of µs that may have a fraction, from the first spelling that is used."""
    us = np.full(len(found), float(NULL))
    for key in keys:
        told = np.fromiter(map(attrgetter(key), found), dtype=np.float64, count=len(found))
        us = np.where(us < 0, told, us)
    us = np.where(np.abs(us) < 2**62, us, 2.0**62)
    whole = np.floor(us)
    ns = nanoseconds(whole.astype(np.int64), counts, what)
    return np.where(ns >= 0, ns + np.rint((us - whole) * 1000).astype(np.int64), NULL)


def _needs(found: Sequence[_Node]) -> tuple[Ints, Ints, Mask]:
    """(row, id of the node that it depends on, whether that is a control dependency)."""
    owner, needed, control = [], [], []
    for key in ("ctrlDeps", "ctrl_deps", "dataDeps", "data_deps"):
        lists: list[Sequence[int]] = [told or () for told in map(attrgetter(key), found)]
        length = np.fromiter(map(len, lists), dtype=np.int64, count=len(lists))
        owner.append(np.repeat(np.arange(len(found)), length))
        needed.append(np.fromiter(chain.from_iterable(lists), dtype=np.int64, count=int(length.sum())))
        control.append(np.full(int(length.sum()), key.startswith("ctrl")))
    return np.concatenate(owner), np.concatenate(needed), np.concatenate(control)


def _number(value: Any) -> int:
    return int(value) if isinstance(value, bool) else integer(value)


def _type(word: Any) -> int:
    """A node type, as number or word."""
    if isinstance(word, str) and not word.isdigit():
        return TYPES.index(word.removesuffix("_NODE")) if word.removesuffix("_NODE") in TYPES else 0
    return integer(word, 0)


def _verb(word: Any) -> int:
    """A kind of collective, as number or word."""
    if isinstance(word, str) and not word.isdigit():
        return int(verb_of(word)) or NULL
    kind = integer(word)
    return int(VERBS[kind]) if 0 <= kind < len(VERBS) else NULL


def _some(dims: Any) -> int:
    return int(not all(dims)) if isinstance(dims, list) and dims else NULL
