"""Words of communication libraries → verbs, and element types → bytes."""

from __future__ import annotations

import re
from functools import lru_cache

from taut.core.tables import Verb

# Order matters: "reducescatter" contains "reduce" and "scatter", "allgather" contains "gather".
_VERBS: tuple[tuple[str, Verb], ...] = (
    ("barrier", Verb.BARRIER),
    ("reducescatter", Verb.REDUCE_SCATTER),
    ("allreduce", Verb.ALL_REDUCE),
    ("allgather", Verb.ALL_GATHER),
    ("alltoall", Verb.ALL_TO_ALL),
    ("broadcast", Verb.BROADCAST),
    ("scatter", Verb.SCATTER),
    ("gather", Verb.GATHER),
    ("reduce", Verb.REDUCE),
    ("sendrecv", Verb.NONE),
    ("send", Verb.SEND),
    ("recv", Verb.RECV),
)

_OTHER = re.compile("[^a-z]+")

# Messages between two ranks.
HOPS = (Verb.SEND, Verb.RECV)
# Collectives in which every member waits for all others.
ALL_WAIT = (Verb.ALL_REDUCE, Verb.ALL_GATHER, Verb.REDUCE_SCATTER, Verb.ALL_TO_ALL, Verb.BARRIER)
_ELEMENT_BYTES = {
    "bool": 1,
    "byte": 1,
    "char": 1,
    "signed char": 1,
    "unsigned char": 1,
    "int8": 1,
    "uint8": 1,
    "short": 2,
    "short int": 2,
    "half": 2,
    "bfloat16": 2,
    "float16": 2,
    "uint16": 2,
    "int": 4,
    "unsigned int": 4,
    "uint32": 4,
    "float": 4,
    "long": 8,
    "long int": 8,
    "uint64": 8,
    "double": 8,
    "complexfloat": 8,
    "complex<float>": 8,
    "complexdouble": 16,
    "complex<double>": 16,
}


@lru_cache(4096)
def verb_of(word: str) -> Verb:
    """The verb in a library's own word (``nccl:_all_gather_base``, ``c10d::allreduce_``); NONE if there is none."""
    letters = _OTHER.sub("", word[:64].lower())
    return next((verb for part, verb in _VERBS if part in letters), Verb.NONE)


def element_bytes(dtype: object) -> int:
    """Bytes of one element of a dtype as torch writes it (``Float``, ``c10::BFloat16``, ``long int``); 0 if unknown."""
    if not isinstance(dtype, str):
        return 0
    word = dtype.lower().removeprefix("c10::")
    return 1 if word.startswith("float8") else _ELEMENT_BYTES.get(word, 0)
