"""Names of device events and of HLO instructions → what they do: compute, copy, meet others."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import NamedTuple

from taut.core.tables import NULL, Kind, Verb
from taut.read.communication_families import communication
from taut.read.copy_words import copy_class
from taut.read.op_rows import NAME_LENGTH
from taut.read.xplane.hlo_programs import REPLICAS, Fact, Groups

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
_OPCODE = re.compile(rf"({'|'.join(word for word, _ in _HLO)})(?:-(start|done))?(?![a-z])")
# What instructions are called that JAX made of its own primitives.
_PRIMITIVES: tuple[tuple[str, str], ...] = (
    ("psum_scatter", "reduce-scatter"),
    ("psum_invariant", "all-reduce"),
    ("psum", "all-reduce"),
    ("all_gather", "all-gather"),
    ("reduce_scatter", "reduce-scatter"),
    ("all_to_all", "all-to-all"),
    ("ppermute", "collective-permute"),
)
_PRIMITIVE = re.compile(rf"({'|'.join(word for word, _ in _PRIMITIVES)})(?:\.\d{{1,9}})?")
_INSTRUCTION = re.compile(r" ([a-z][a-z0-9-]{1,40})\(")
_MOVE = re.compile(r"%?(?:copy|slice|dynamic-slice|dynamic-update-slice)-(start|done)(?![a-z])")
_FEED = re.compile(r"%?(infeed|outfeed)(?![a-z])")
_COPY = re.compile(r"memcpy|memory copy|rocclr_copy|copybuffer", re.IGNORECASE)
_SET = re.compile(r"memset|memory set|rocclr_fill|fillbuffer", re.IGNORECASE)
_GROUPS = re.compile(r"replica_groups=(\{[\d,{} ]{0,100000}\}|\[\d{1,9},\d{1,9}\])")
_LISTED = re.compile(r"\d{1,9}(?:, ?\d{1,9})*")
UNKNOWN_GROUPS: Groups = ((), ())
"""Several groups, of which nothing more is known."""
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
    groups: Groups | None = None
    """Replicas that meet; empty if all do, None where that is not known."""
    size: int = NULL
    """Bytes, where its text tells."""


@lru_cache(1 << 16)
def meaning(name: str, program: str = "", hlo_op: str = "", call: str = "", fact: Fact | None = None) -> Meaning:
    """What an event of this name does; the HLO instruction behind it, its text and the call that launched it may tell more."""
    moved = _copy_class(name, call)
    if moved:
        return Meaning(Kind.COMMUNICATE, moved)
    word, phase = _opcode(name, program, hlo_op, fact)
    kernel = communication(name)
    if kernel is not None and not (word and kernel.family == "other"):
        verb = kernel.verb
        if not verb and kernel.family == "nccl" and not kernel.hops:
            verb = dict(_HLO).get(word, Verb.NONE)
        library = "rccl" if name[:4].lower() == "rccl" else "nccl"
        return Meaning(
            Kind.COMMUNICATE, (kernel.word or _titled(library, verb))[:NAME_LENGTH], verb, "", *_groups_and_size(fact)
        )
    if word:
        verb = dict(_HLO)[word]
        groups_and_size = _groups_and_size(fact) if fact else (_groups(program), _bytes(program))
        return Meaning(Kind.COMMUNICATE, _titled("xla", verb) if verb else f"xla {word}", verb, phase, *groups_and_size)
    name = name.removeprefix("%")
    found = _MOVE.match(name)
    if found:
        return Meaning(Kind.COMMUNICATE, "copy d2d", phase=found[1])
    found = _FEED.match(name)
    if found:
        return Meaning(Kind.COMMUNICATE, "copy h2d" if found[1] == "infeed" else "copy d2h")
    return Meaning(Kind.COMPUTE, name[:NAME_LENGTH])


def _groups_and_size(fact: Fact | None) -> tuple[Groups | None, int]:
    return (fact.groups, fact.size) if fact else (None, NULL)


def _opcode(name: str, program: str, hlo_op: str, fact: Fact | None) -> tuple[str, str]:
    """(opcode, start or done) of a collective, from what tells it most surely; empty for anything else."""
    text = _INSTRUCTION.search(program[:4096], max(program.find(" = "), 0)) if " = " in program else None
    for word in (fact.opcode if fact else "", text[1] if text else "", name.removeprefix("%"), hlo_op):
        found = _OPCODE.match(word)
        if found:
            return found[1], found[2] or ""
        made = _PRIMITIVE.fullmatch(word)
        if made and fact is None:  # else the module says that it is another instruction of this name
            return dict(_PRIMITIVES)[made[1]], ""
    return "", ""


def _titled(library: str, verb: Verb) -> str:
    return f"{library} {verb.word if verb else 'collective'}"


def _copy_class(name: str, call: str) -> str:
    """The class of a copy; empty for what is none."""
    if _SET.search(name[:NAME_LENGTH]):
        return "set"
    return copy_class(name, call) if _COPY.search(name[:NAME_LENGTH]) else ""


def _groups(program: str) -> Groups | None:
    """The groups of replicas that the text of an instruction lists or counts; None if it does neither."""
    found = _GROUPS.search(program)
    if not found:
        return None
    if found[1][0] == "[":
        groups, each = (int(number) for number in found[1][1:-1].split(","))
        # Which replica is in which group depends on a transposition; of one group all are.
        return (tuple(range(each)),) if groups == 1 and each <= REPLICAS else UNKNOWN_GROUPS
    listed = [tuple(int(number) for number in one.split(",")) for one in _LISTED.findall(found[1])]
    return tuple(listed)


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
