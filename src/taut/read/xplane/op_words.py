"""Names of device events and of HLO instructions → what they do: compute, copy, meet others."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import NamedTuple

from taut.core.tables import NULL, Kind, Verb
from taut.read.op_rows import NAME_LENGTH
from taut.read.verb_words import is_collective_kernel, kernel_verb

_HLO: tuple[tuple[str, Verb], ...] = (
    ("all-reduce-scatter", Verb.REDUCE_SCATTER),
    ("all-reduce", Verb.ALL_REDUCE),
    ("all-gather", Verb.ALL_GATHER),
    ("reduce-scatter", Verb.REDUCE_SCATTER),
    ("ragged-all-to-all", Verb.ALL_TO_ALL),
    ("all-to-all", Verb.ALL_TO_ALL),
    # Who sends to whom is not in the name.
    ("collective-permute", Verb.NONE),
    ("collective-broadcast", Verb.NONE),
    ("async-collective", Verb.NONE),
    ("send", Verb.NONE),
    ("recv", Verb.NONE),
)
_OPCODE = re.compile(rf"%?({'|'.join(word for word, _ in _HLO)})(?:-(start|done))?(?![a-z])")
_MOVE = re.compile(r"%?(?:copy|slice|dynamic-slice|dynamic-update-slice)-(start|done)(?![a-z])")
_FEED = re.compile(r"%?(infeed|outfeed)(?![a-z])")
_COPY = re.compile(r"memcpy|memory copy|rocclr_copy|copybuffer", re.IGNORECASE)
_SET = re.compile(r"memset|memory set|rocclr_fill|fillbuffer", re.IGNORECASE)
_WAY = re.compile(r"(?<![a-z])(h|d|p)(?:2|to)(h|d|p)(?![a-z])|(host|device)to(host|device)", re.IGNORECASE)
_CALL_WAY = re.compile(r"(H|D|P)to(H|D|P)")
_GROUPS = re.compile(r"replica_groups=(\{[\d,{} ]{0,100000}\}|\[\d{1,9},\d{1,9}\])")
_SHAPE = re.compile(r"\b(pred|[suf]\d{1,2}(?:e\d\w{0,6})?|bf16|c64|c128)\[([\d,]{0,100})\]")
_BYTES = {"pred": 1, "bf16": 2, "c64": 8, "c128": 16}


class Meaning(NamedTuple):
    """What an event does."""

    kind: Kind
    name: str
    """Its class."""
    verb: Verb = Verb.NONE
    phase: str = ""
    """``start`` or ``done`` of a transfer that runs beside the work."""
    everybody: bool = False
    """Whether its text says that all replicas are one group."""
    size: int = NULL
    """Bytes, where its text tells."""


@lru_cache(1 << 16)
def meaning(name: str, program: str = "", hlo_op: str = "", call: str = "") -> Meaning:
    """What an event of this name does; the HLO instruction behind it, its text and the call that launched it may tell more."""
    moved = _copy_class(name, call)
    if moved:
        return Meaning(Kind.COMMUNICATE, moved)
    if is_collective_kernel(name):
        found = _OPCODE.match(hlo_op)
        verb = kernel_verb(name) or (dict(_HLO)[found[1]] if found else Verb.NONE)
        return Meaning(Kind.COMMUNICATE, _titled("rccl" if name[:4].lower() == "rccl" else "nccl", verb), verb)
    found = _OPCODE.match(name) or _OPCODE.match(hlo_op)
    if found:
        return _collective(dict(_HLO)[found[1]], found[1], found[2] or "", program)
    found = _MOVE.match(name)
    if found:
        return Meaning(Kind.COMMUNICATE, "copy d2d", phase=found[1])
    found = _FEED.match(name)
    if found:
        return Meaning(Kind.COMMUNICATE, "copy h2d" if found[1] == "infeed" else "copy d2h")
    return Meaning(Kind.COMPUTE, name.removeprefix("%")[:NAME_LENGTH])


def _collective(verb: Verb, word: str, phase: str, program: str) -> Meaning:
    groups = _groups(program)
    if groups > 1:
        verb = Verb.NONE  # which ranks are in which group is not known for certain: a wrong match is worse than none
    name = _titled("xla", verb) if verb else f"xla {word}"
    return Meaning(Kind.COMMUNICATE, name, verb, phase, groups == 1, _bytes(program))


def _titled(library: str, verb: Verb) -> str:
    return f"{library} {verb.word if verb else 'collective'}"


def _copy_class(name: str, call: str) -> str:
    """The class of a copy; empty for what is none."""
    if _SET.search(name[:NAME_LENGTH]):
        return "set"
    if not _COPY.search(name[:NAME_LENGTH]):
        return ""
    found = _WAY.search(name.replace("Memcpy", " ").replace("memcpy", " ")[:NAME_LENGTH]) or _CALL_WAY.search(call)
    if not found:
        return "copy d2d"
    ends = [end[0].lower().replace("p", "d") for end in found.groups() if end]
    return f"copy {ends[0]}2{ends[1]}"


def _groups(program: str) -> int:
    """How many groups of replicas the text of an instruction names; 0 if it names none."""
    found = _GROUPS.search(program)
    if not found:
        return 0
    text = found[1]
    return int(text[1:].split(",")[0]) if text[0] == "[" else max(text.count("{") - 1, 1)


def _bytes(program: str) -> int:
    """Bytes of the result that the text of an instruction names, -1 if it names none."""
    head = program.partition(" = ")[2]
    head = head[: head.find("(", 1)] if head[:1] == "(" else head.partition(" ")[0]
    found = _SHAPE.match(head)
    if not found:
        return NULL
    kind, dims = found[1], [int(d) for d in found[2].split(",") if d]
    each = _BYTES.get(kind) or max(int(re.sub(r"\D.*", "", kind[1:]) or 8) // 8, 1)
    size = each * math.prod(dims)
    return size if size < 1 << 55 else NULL
