"""NVTX ranges of an Nsight Systems export: what people, PyTorch and NCCL wrote beside the kernels."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from taut.core.array_types import Ints, Json
from taut.core.tables import NULL
from taut.read.columns import Codes
from taut.read.json_values import decoded, elements
from taut.read.nsys.sqlite import INTEGER, Database
from taut.read.step_marks import Ranges

TABLE = "NVTX_EVENTS"
NAME_LENGTH, JSON_LENGTH = 200, 4000
_API = re.compile(r"p?nccl[A-Z]")
_ADDED = re.compile(r", (?:op_id|seq|sizes) = ")
_SIZES = re.compile(r"sizes = (\[[\[\]\d, ]{0,4000}\])")
_FIELDS = (
    ("comm", re.compile("communicator", re.IGNORECASE)),
    ("ranks", re.compile(r"no\. of ranks|number of ranks|nranks", re.IGNORECASE)),
    ("peer", re.compile(r"peer|root", re.IGNORECASE)),
    ("rank", re.compile(r"rank$", re.IGNORECASE)),
    ("device", re.compile("device", re.IGNORECASE)),
    ("size", re.compile("message size|bytes", re.IGNORECASE)),
)
# NVTX's numbers of the entry types that hold whole numbers, as ``struct`` writes them.
_FORMATS = dict(zip(range(1, 19), "bBhHiIqQqQbBhHiIqQ", strict=True)) | {22: "Q"}
# What the exporter puts before a payload: domain, schema, size of the payload, and where it begins or ends.
_HEADER = struct.Struct("<QQQQ")


class Notes(Ranges, frozen=True):
    """Ranges of all threads; ``size`` is the elements of the recorded shapes."""

    size: Ints
    payloads: Mapping[int, Mapping[str, int]]
    """Row → what NCCL recorded of the call: comm, ranks, rank, device, size, peer."""

    def rows(self, test: Callable[[str], bool]) -> Ints:
        """Rows whose name passes the test."""
        passed = np.array([test(name) for name in self.names], dtype=np.bool_)
        return np.flatnonzero(passed[self.name]) if len(self.name) else self.name

    def chosen(self, rows: Ints) -> Ranges:
        """Some of the ranges, as ranges."""
        return Ranges(self.thread[rows], self.start[rows], self.end[rows], self.name[rows], self.names)

    def word(self, row: int) -> str:
        """The name of one range."""
        return self.names[int(self.name[row])]


def is_api(name: str) -> bool:
    """Whether a range is a call of NCCL's own interface: ``ncclAllReduce``."""
    return _API.match(name) is not None


def is_torch(name: str) -> bool:
    """Whether a range is PyTorch's note of a collective: ``nccl:all_reduce``."""
    return name.startswith(("nccl:", "rccl:"))


def notes(db: Database, strings: Mapping[int, str]) -> Notes:
    """The ranges that describe calls or steps; the ops that PyTorch notes by the million are left in the file."""
    ranges: list[tuple[int, int, int, int, int]] = []
    names, payloads, decode = Codes(), dict[int, Mapping[str, int]](), Decoder(db)
    for begin, finish, on, name_id, json_id, text, json, blob in _rows(db):
        name = text if isinstance(text, str) else strings.get(name_id, "")
        if not name or not 0 <= begin <= finish:
            continue
        count = _elements(name) if is_torch(name) else NULL
        if is_api(name):
            payload = decode(blob, json if isinstance(json, str) else strings.get(json_id, ""))
            if payload:
                payloads[len(ranges)] = payload
        ranges.append((on, begin, finish, names[_plain(name)], count))
    thread, start, end, code, size = np.array(ranges, dtype=np.int64).reshape(-1, 5).T.copy()
    return Notes(thread, start, end, code, list(map(str, names)), size, payloads)


def _rows(db: Database) -> Iterator[tuple[int, int, int, int, int, Json, Json, Json | bytes]]:
    """Start, end, thread, id of the name, id of the JSON, name, JSON and payload of the ranges; unknown columns as nulls."""
    if not db.has(TABLE, "start", "end", "globalTid"):
        return
    has = {name: db.has(TABLE, name) for name in ("textId", "jsonTextId", "text", "jsonText", "binaryData")}
    numbers = ("start", "end", "globalTid", "textId", "jsonTextId")
    whole = [INTEGER.format(f'"{name}"') if has.get(name, True) else "-1" for name in numbers]
    texts = [
        f"substr({n}, 1, {length})" if has[n] else "NULL"
        for n, length in (("text", 4 * NAME_LENGTH), ("jsonText", JSON_LENGTH))
    ]
    blob = "substr(CAST(binaryData AS BLOB), 1, 512)" if has["binaryData"] else "NULL"
    # PyTorch's ops are names with a namespace or nodes of autograd; without one they are ranges that somebody recorded.
    op = "instr(text, 'op_id = ') > 0 AND (instr(text, '::') > 0 OR instr(text, 'Backward') > 0)"
    wanted = f"text IS NULL OR NOT ({op}) OR text GLOB '[nr]ccl:*' OR text GLOB 'enumerate(DataLoader)*'"
    # Most are of one namespace: a comparison rules them out without all that is asked of the others.
    wanted = f"CASE WHEN text >= 'aten::' AND text < 'aten:;' THEN instr(text, 'op_id = ') = 0 ELSE {wanted} END"
    yield from db.rows(TABLE, [*whole, *texts, blob], f'"end" IS NOT NULL AND ({wanted if has["text"] else "1"})')


def _elements(name: str) -> int:
    """Elements of the shapes PyTorch noted; -1 if it noted none."""
    found = _SIZES.search(name)
    return elements(decoded(found[1])) if found else NULL


def _plain(name: str) -> str:
    """The name without what PyTorch adds to it (sequence, id, sizes)."""
    return _ADDED.split(name, maxsplit=1)[0][:NAME_LENGTH]


class Decoder:
    """Payloads of NCCL's ranges, from their bytes or from the exporter's JSON."""

    def __init__(self, db: Database) -> None:
        self._entries: dict[int, list[tuple[str, struct.Struct, int]]] = {}
        table, wanted = "NVTX_PAYLOAD_SCHEMA_ENTRIES", ("schemaId", "type", "offset", "name")
        if db.has(table, *wanted):
            for schema, kind, offset, name in db.rows(table, [f'"{column}"' for column in wanted]):
                field = _field(name)
                if field and kind in _FORMATS and (offset is None or type(offset) is int):
                    entry = (field, struct.Struct("<" + _FORMATS[kind]), offset or 0)
                    self._entries.setdefault(schema, []).append(entry)

    def __call__(self, blob: Json | bytes, json: str) -> dict[str, int]:
        """Field → value, empty where nothing was exported or it does not fit its schema."""
        return self._bytes(blob) if isinstance(blob, bytes) and blob else _from_json(json)

    def _bytes(self, blob: bytes) -> dict[str, int]:
        if len(blob) < _HEADER.size:
            return {}
        _, schema, size, _ = _HEADER.unpack_from(blob)
        if len(blob) != _HEADER.size + size:
            return {}
        fits = [e for e in self._entries.get(schema, ()) if 0 <= e[2] <= size - e[1].size]
        return {field: entry.unpack_from(blob, _HEADER.size + offset)[0] for field, entry, offset in fits}


def _field(name: Json) -> str:
    return next((field for field, words in _FIELDS if isinstance(name, str) and words.search(name[:80])), "")


def _from_json(text: str) -> dict[str, int]:
    if not text or len(text) > JSON_LENGTH:
        return {}
    document = decoded(text)
    found: dict[str, int] = {}
    for part in (document, *(document.values() if isinstance(document, dict) else ())):
        for name, value in part.items() if isinstance(part, dict) else ():
            field, number = _field(name), _whole(value)
            if field and number is not None:
                found.setdefault(field, number)
    return found


def _whole(value: Json) -> int | None:
    """A whole number out of a number or of digits, as people group them: a communicator takes all of 64 bits."""
    if isinstance(value, str) and re.fullmatch(r"-?\d[\d,]{0,26}", value):
        return int(value.replace(",", ""))
    return value if type(value) is int else None
