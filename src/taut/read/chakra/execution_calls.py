"""Nodes of PyTorch execution traces, and what ``record_param_comms`` records of a collective, in the layout of any schema."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from taut.core.array_types import Json
from taut.core.tables import Verb
from taut.read.chakra.nodes import process_groups
from taut.read.contents import Call
from taut.read.json_values import decoded, integer
from taut.read.op_rows import NAME_LENGTH
from taut.read.verb_words import verb_of


class Node(msgspec.Struct, gc=False):
    """One operator; its values are decoded only where they are wanted."""

    id: Json = None
    name: str = ""
    rf_id: Json = None
    parent: Json = None
    ctrl_deps: Json = None
    tid: Json = None
    inputs: msgspec.Raw = msgspec.Raw(b"null")
    outputs: msgspec.Raw = msgspec.Raw(b"null")
    attrs: msgspec.Raw = msgspec.Raw(b"null")
    ts: Json = None
    inclusive_dur: Json = None
    exclusive_dur: Json = None
    cat: Json = None
    stream: Json = None
    pg_name: Json = None
    inter_thread_dep: Json = None

    @property
    def caller(self) -> int:
        """The id of the node that called this one."""
        return integer(self.ctrl_deps if self.parent is None else self.parent)


def attributes(node: Node) -> dict[str, Json]:
    """Attributes by name, as schemas from 1.0.2 on have them; before, they stood beside the name."""
    listed = decoded(node.attrs)
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    own = {key: value for key, value in (("rf_id", node.rf_id), ("tid", node.tid)) if value is not None}
    return {**{str(entry.get("name")): entry.get("value") for entry in entries}, **own}


def _values(raw: msgspec.Raw) -> list[Json]:
    """Inputs or outputs, in the layout of any schema."""
    side = decoded(raw)
    values = side.get("values") if isinstance(side, dict) else side
    return values if isinstance(values, list) else []


def made_groups(nodes: Sequence[Node]) -> dict[str, list[int]]:
    """Process group → ranks, from the notes that torch leaves when it makes groups."""
    made: dict[str, list[int]] = {}
    for node in nodes:
        if "process_group:init" in node.name:
            for value in _values(node.inputs):
                made.update(process_groups(value) if isinstance(value, str) else {})
    return made


def call_of(node: Node) -> Call | None:
    """The collective that a ``record_param_comms`` node records; None for waits and other notes.

    Its inputs end with: sequence number, group, rank, name, two lists of split sizes, and later the ranks of the group.
    Sequence number and group are pairs in newer versions; in the oldest the group is an address, which names nothing.
    """
    inputs, named = _values(node.inputs), attributes(node)
    words = ((i, inputs[i]) for i in range(len(inputs) - 1, 2, -1))
    at, word = next((one for one in words if isinstance(one[1], str) and verb_of(one[1])), (0, named.get("collective_name")))
    verb = verb_of(word) if isinstance(word, str) else Verb.NONE
    if verb is Verb.NONE:
        return None
    seq, group, member = inputs[at - 3 : at] if at else (None, None, None)
    seq = seq[0] if isinstance(seq, list) and seq else seq
    group = group[0] if isinstance(group, list) and group else group
    group = named.get("pg_name", group if isinstance(group, str) else None)
    order = integer(named.get("rf_id"))
    return Call(
        order=order if order > 0 else integer(node.id),
        verb=int(verb),
        group="" if group is None else str(group)[:NAME_LENGTH],
        seq=integer(seq),
        size=max(_bytes(inputs[: at - 3] if at else inputs), _bytes(_values(node.outputs))),
        member=integer(member),
    )


def _bytes(values: list[Json], depth: int = 3) -> int:
    """Bytes of tensors, each of which is ``[id, storage, offset, elements, bytes of one, device]``; -1 for none."""
    total = -1
    for value in values:
        if not isinstance(value, list):
            continue
        if len(value) == 6 and isinstance(value[5], str) and type(value[3]) is int and type(value[4]) is int:
            size = value[3] * value[4]
        else:
            size = _bytes(value, depth - 1) if depth else -1
        if 0 <= size < 2**60:
            total = min(max(total, 0) + size, 2**60)
    return total
