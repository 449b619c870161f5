"""Chakra traces as JSON: a ``workload_graph``, or the nodes as protobuf prints them, one object after another."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from operator import attrgetter

import msgspec
import numpy as np

from taut.core.array_types import Floats, Ints, Json, Mask
from taut.core.errors import InputRefused, TooLarge
from taut.core.tables import NULL
from taut.read.chakra.nodes import NUMBERS, TYPES, VERBS, Needs, Nodes, codes_of, nanoseconds, process_groups
from taut.read.columns import Codes, whole_numbers
from taut.read.json_values import Int64, integer
from taut.read.op_rows import NAME_LENGTH
from taut.read.verb_words import verb_of

_WORDS = (b'"workload_graph"', b'"COMP_NODE"', b'"COMM_COLL_NODE"', b'"COMM_SEND_NODE"', b'"COMM_RECV_NODE"')
_BETWEEN = re.compile(rb"\}\s*(?=\{)")
_NONE = msgspec.Raw(b"null")
_IDS = msgspec.json.Decoder(list[Int64] | None, strict=False)
# More objects, or values, in one file than an execution trace of one rank holds.
OBJECTS, VALUES = 5_000_000, 50_000_000


def sniff(head: bytes) -> bool:
    """A JSON object, or several, with the words of Chakra."""
    text = head.lstrip()
    return text[:1] in (b"{", b"[") and any(word in text for word in _WORDS)


class _Attribute(msgspec.Struct, gc=False):
    name: str = ""
    int64Val: Json = None
    int64_val: Json = None
    int32Val: Json = None
    int32_val: Json = None
    uint64Val: Json = None
    uint64_val: Json = None
    uint32Val: Json = None
    uint32_val: Json = None
    boolVal: Json = None
    bool_val: Json = None
    doubleVal: Json = None
    double_val: Json = None
    floatVal: Json = None
    float_val: Json = None
    stringVal: Json = None
    string_val: Json = None
    boolList: Json = None
    bool_list: Json = None

    def value(self) -> Json:
        """The one value that is there; an attribute without any is false."""
        if self.int64Val is not None:
            return self.int64Val
        found: Json = next((value for value in msgspec.structs.astuple(self)[1:] if value is not None), False)
        return found.get("values") if isinstance(found, dict) else found


class _Node(msgspec.Struct, gc=False):
    """One node in any of the spellings; what is not here is passed over."""

    Id: Int64 = NULL
    id: Int64 = NULL
    Name: str = ""
    name: str = ""
    NodeType: int | str = 0
    type: int | str = 0
    ctrlDeps: msgspec.Raw = _NONE
    ctrl_deps: msgspec.Raw = _NONE
    dataDeps: msgspec.Raw = _NONE
    data_deps: msgspec.Raw = _NONE
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
    involved_dim: Json = None
    rank: Int64 = NULL
    inputs: msgspec.Raw = _NONE
    attr: list[_Attribute] | None = None

    def absorb(self) -> None:
        """Attributes become fields of the same name."""
        for attribute in self.attr or ():
            name = attribute.name
            if name in _WANTED:
                value = attribute.value()
                setattr(self, name, _number(value) if name in _NUMERIC else value)


_NUMERIC = frozenset(NUMBERS) - {"comm_type", "is_cpu_op"}
_WANTED = _NUMERIC | {"comm_type", "pg_name", "involved_dim", "is_cpu_op"}


class _Graph(msgspec.Struct):
    workload_graph: list[_Node] | None = None
    nodes: list[_Node] | None = None
    node: list[_Node] | None = None
    rank: Int64 = NULL


def nodes(data: bytes | bytearray, label: str) -> Nodes:
    """The nodes of a JSON trace."""
    if _more(data, "{", OBJECTS) or _more(data, ",", VALUES):
        raise TooLarge(label, f"more than {OBJECTS:,} objects or {VALUES:,} values", "trace fewer steps")
    try:
        found, rank = _decode(bytes(data))
        found = [node for node in found if node.id >= 0 or node.Id >= 0]
        owner, needed, control = _needs(found)
    except RecursionError:
        raise TooLarge(label, "nested too deeply to be a trace") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputRefused(label, f"not valid trace JSON: {error}", "write the trace again, or leave this file out") from None
    if not found:
        raise InputRefused(label, "no node in this trace", "convert the trace again")
    for node in found:
        if node.attr:
            node.absorb()
    return _columns(found, rank, owner, needed, control)


def _more(data: bytes | bytearray, letter: str, most: int) -> bool:
    """Whether a letter is there more often than this."""
    return len(data) > most and int(np.count_nonzero(np.frombuffer(data, dtype=np.uint8) == ord(letter))) > most


def _decode(data: bytes) -> tuple[list[_Node], int]:
    """Nodes of one document, or of many behind each other; the first of those is the header."""
    text = data.lstrip()
    if text[:1] == b"[":
        return msgspec.json.decode(text, type=list[_Node], strict=False), NULL
    try:
        graph = msgspec.json.decode(text, type=_Graph, strict=False)
        return graph.workload_graph or graph.nodes or graph.node or [], graph.rank
    except msgspec.DecodeError:
        if not _BETWEEN.search(text):
            raise
    head, *found = _listed(text)
    if head.id >= 0 or head.name:
        return [head, *found], NULL
    head.absorb()
    return found, head.rank


def _listed(text: bytes) -> list[_Node]:
    """Objects behind each other, most of which begin on a line of their own."""
    decoder = msgspec.json.Decoder(list[_Node], strict=False)
    with suppress(msgspec.DecodeError):
        return decoder.decode(b"[" + text.replace(b"}\n{", b"},{") + b"]")
    return decoder.decode(b"[" + _BETWEEN.sub(_comma, text) + b"]")


def _comma(cut: re.Match[bytes]) -> bytes:
    """Objects behind each other become a list. Strings hold no line breaks, so a break beside the braces proves them real."""
    broken = b"\n" in cut[0] or cut.string[cut.start() - 1 : cut.start()] == b"\n"
    return b"}," if broken else cut[0]


def _columns(found: Sequence[_Node], rank: int, owner: Ints, needed: Ints, control: Mask) -> Nodes:
    counts: Counter[str] = Counter({"nodes": len(found)})
    fields = dict(zip(_Node.__struct_fields__, zip(*map(msgspec.structs.astuple, found), strict=True), strict=True))
    ids = np.maximum(_column(fields["id"]), _column(fields["Id"]))
    names, groups, types, verbs = Codes(), Codes(), Codes(), Codes()
    number = {key: _column(fields[key]) for key in _NUMERIC - {"runtime"}}
    kind = verbs.of(fields["comm_type"])
    number["comm_type"] = np.array(list(map(_verb, verbs)), dtype=np.int64)[kind]
    number["is_cpu_op"] = _column([NULL if host is None else bool(host) for host in fields["is_cpu_op"]])
    which = types.of(new or old for new, old in zip(fields["type"], fields["NodeType"], strict=True))
    called = [(new or old)[:NAME_LENGTH] for new, old in zip(fields["name"], fields["Name"], strict=True)]
    made = [bytes(node.inputs).decode("utf-8", "replace") for node in found if "process_group:init" in node.name + node.Name]
    return Nodes(
        id=ids,
        type=np.array(list(map(_type, types)), dtype=np.int64)[which],
        name=names.of(called),
        start_ns=_times(fields, ("startTimeMicros", "start_time_micros"), counts, "start"),
        duration_ns=_times(fields, ("durationMicros", "duration_micros", "runtime"), counts, "duration"),
        names=list(map(str, names)),
        number=number,
        group=codes_of(["" if name is None else str(name)[:NAME_LENGTH] for name in fields["pg_name"]], groups),
        groups=list(map(str, groups)),
        some_dims=_column([NULL if dims is None else _some(dims) for dims in fields["involved_dim"]]),
        needs=Needs.linked(ids, owner, needed, control, counts),
        rank=rank if 0 <= rank < 2**31 else NULL,
        group_ranks={name: ranks for text in made for name, ranks in process_groups(text).items()},
        counts=counts,
    )


def _column(values: Sequence[int]) -> Ints:
    """One column; most of the fields that a node may have are absent in all of them."""
    if values.count(NULL) == len(values):
        return np.full(len(values), NULL, dtype=np.int64)
    return np.array(values, dtype=np.int64)


def _times(fields: Mapping[str, Sequence[float]], keys: Sequence[str], counts: Counter[str], what: str) -> Ints:
    """ns out of µs, from the first spelling that is used."""
    us: Floats = np.full(len(fields[keys[0]]), NULL, dtype=np.float64)
    for key in keys:
        if fields[key].count(NULL) < len(us):
            us = np.where(us < 0, np.array(fields[key], dtype=np.float64), us)
    return nanoseconds(np.where(np.abs(us) < 2**62, us, 2.0**62), counts, what)


def _needs(found: Sequence[_Node]) -> tuple[Ints, Ints, Mask]:
    """(row, id of the node that it depends on, whether that is a control dependency)."""
    owner, needed, control = [], [], []
    for key in ("ctrlDeps", "ctrl_deps", "dataDeps", "data_deps"):
        lists = list(map(attrgetter(key), found))
        rows = [row for row, raw in enumerate(lists) if raw is not _NONE and (len(raw) > 2 or bytes(raw) != b"[]")]
        ids, length = _ids([lists[row] for row in rows])
        owner.append(np.repeat(np.array(rows, dtype=np.int64), length))
        needed.append(ids)
        control.append(np.full(len(ids), key.startswith("ctrl")))
    return np.concatenate(owner), np.concatenate(needed), np.concatenate(control)


def _ids(lists: list[msgspec.Raw]) -> tuple[Ints, Ints]:
    """The ids in many lists, and how many are in each. Files are mostly these, so all are read at once where they are plain."""
    found = whole_numbers(lists)
    if found is not None:
        return found
    each = [_IDS.decode(text) or [] for text in lists]
    length = np.fromiter(map(len, each), dtype=np.int64, count=len(each))
    return np.fromiter(chain.from_iterable(each), dtype=np.int64, count=int(length.sum())), length


def _number(value: Json) -> int:
    if type(value) is str and value.isdecimal() and len(value) < 19:
        return int(value)
    return int(value) if isinstance(value, bool) else integer(value)


def _type(word: Json) -> int:
    """A node type, as number or word."""
    if isinstance(word, str) and not word.isdecimal():
        return TYPES.index(word.removesuffix("_NODE")) if word.removesuffix("_NODE") in TYPES else 0
    return integer(word, 0)


def _verb(word: Json) -> int:
    """A kind of collective, as number or word."""
    if isinstance(word, str) and not word.isdecimal():
        return int(verb_of(word)) or NULL
    kind = integer(word)
    return int(VERBS[kind]) if 0 <= kind < len(VERBS) else NULL


def _some(dims: Json) -> int:
    """1 if a list of dimensions has one that is not spanned, else 0; -1 without a list."""
    return int(not all(dims)) if isinstance(dims, list) and dims else NULL
