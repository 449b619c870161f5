"""Prometheus as text → what was found: the exposition format, OpenMetrics, and what ``promtool tsdb dump`` writes.

A line is a name, labels, a value and a time. Exporters leave the time out; then the last line before it that holds
nothing but a time counts (a comment may), such as ``echo "# $(date +%s.%N)"`` writes between two scrapes.

Almost every line ends in `` value time``, so all lines are split there at once, and names with labels are looked at once
per distinct one. What does not fit that goes line by line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from msgspec import Struct, field

from taut.core.array_types import Floats, Ints, Json, Mask
from taut.core.errors import InputRefused
from taut.core.tables import NULL
from taut.read.columns import Codes, grouped
from taut.read.contents import Found
from taut.read.dates import FAR, date_ns, ns_per_unit, number_ns
from taut.read.metrics.series import check_series
from taut.read.metrics.vocabulary import plain

if TYPE_CHECKING:
    import pyarrow as pa

# Bytes that are split at once.
SLAB = 8 << 20
# Bytes of the longest line.
LONGEST = 1 << 20
_TEXT = r'"((?:[^"\\\n]|\\.)*+)"'
_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:.]*+"
_INNER = rf"(?:[^\"\\\n}}]|{_TEXT.replace('(', '(?:', 1)})*+"
_LABELS = rf"\{{{_INNER}\}}"
_PAIR = re.compile(rf"\s*+(?:({_NAME})|{_TEXT})\s*+(?:=\s*+{_TEXT})?\s*+(?:,|$)")
_KEY = re.compile(rf"\s*+({_NAME})?\s*+(?:\{{({_INNER})\}})?\s*+")
_NUMBER = r"[-+]?(?:[0-9][0-9_.eE+-]*+|\.[0-9][0-9eE+-]*+|(?i:nan|inf|infinity))"
_LINE = re.compile(rf"\s*+((?:{_NAME})?(?:\s*+{_LABELS})?)\s++({_NUMBER})(?:\s++({_NUMBER}))?(?:\s++#.*)?\s*+")
_TYPE = re.compile(rf"#\s*+TYPE\s++({_NAME})\s++(counter|histogram|summary)\b")
_ABOUT = re.compile(rf"#\s*+(?:TYPE|HELP|UNIT)\s++{_NAME}\s")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def sniff(head: bytes) -> bool:
    """Whether the first line that is no time and no plain comment is a labelled sample, or says what a metric is."""
    for line in head[: 16 << 10].decode("utf-8", "replace").splitlines():
        if not line.strip() or line.startswith("# EOF") or _moment(line) is not None:
            continue
        sample = _LINE.fullmatch(line)
        return bool(_ABOUT.match(line) or (sample and "{" in sample[1] and _key(sample[1])))
    return False


class _Samples(Struct):
    """Samples while they are gathered: one code per series, and the time that counts for lines without one."""

    label: str
    codes: Codes = field(default_factory=Codes)
    series: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    parts: list[tuple[Ints, Ints, Floats]] = field(default_factory=list)
    counters: set[str] = field(default_factory=set)
    since: int = NULL
    line: int = 0

    def code(self, key: str) -> int:
        """The code of a name with its labels; -1 for what is none."""
        known = self.codes.get(key)
        if known is None:
            read = _key(key)
            if read is None:
                return NULL
            self.series.append(read)
            check_series(len(self.series), self.label)
            known = self.codes[key]
        return known


def load(data: bytes, label: str) -> tuple[list[Found], list[str]]:
    """What the text holds, and what was left out of it; refuses at the first line that is none of it."""
    samples, at = _Samples(label), 0
    while at < len(data):
        end = data.rfind(b"\n", at, at + SLAB) + 1 or data.find(b"\n", at) + 1 or len(data)
        if end - at > SLAB + LONGEST:
            raise InputRefused(f"{label}, byte {at:,}", "no line ends here", "one sample a line")
        _slab(samples, bytes(data[at:end]), last=end == len(data))
        at = end
    if not samples.parts:
        return [], []
    code, time, value = (np.concatenate(column) for column in zip(*samples.parts, strict=True))
    timeless = int((time == NULL).sum())
    if timeless and timeless == len(time):
        raise InputRefused(label, "samples without a time", 'write one before each scrape: echo "# $(date +%s.%N)"')
    notes = [f"{label}: {timeless:,} samples without a time left out"] if timeless else []
    return list(_found(samples, code, time, value)), notes


def _found(samples: _Samples, code: Ints, time: Ints, value: Floats) -> Iterator[Found]:
    order = grouped(code)
    ends = np.searchsorted(code[order], np.arange(1, len(samples.series)))
    for (name, labels), mine in zip(samples.series, np.split(order, ends), strict=False):
        yield Found(name, labels, time[mine], value[mine], counter=name in samples.counters)


class _Lines(Struct, frozen=True):
    """Where the lines of a slab and their parts begin and end, in bytes."""

    text: bytes
    start: Ints
    key_end: Ints
    """End of the name and its labels …"""
    value_end: Ints
    """… of the value, one blank later …"""
    end: Ints
    """… and of the line."""
    timeless: Mask
    """Whether the value is the last part."""

    def take(self, which: Mask) -> _Lines:
        """Some of the lines."""
        start, key_end, value_end, end = (one[which] for one in (self.start, self.key_end, self.value_end, self.end))
        return _Lines(self.text, start, key_end, value_end, end, self.timeless[which])


def _lines(text: bytes) -> tuple[_Lines, Mask]:
    """The lines of a text, and which of them are blank or comments; parts are divided at the last two blanks of a line."""
    letters = np.frombuffer(text, dtype=np.uint8)
    end = np.flatnonzero(letters == ord("\n"))
    if not len(end) or end[-1] != len(text) - 1:
        end = np.append(end, len(text))
    start = np.concatenate([[0], end[:-1] + 1])
    blanks = np.concatenate([[NULL, NULL], np.flatnonzero(letters == ord(" "))])
    behind = np.searchsorted(blanks, end)
    last, before = blanks[behind - 1], blanks[behind - 2]
    timeless = (before < start) | (letters[np.maximum(last - 1, 0)] == ord("}"))
    comment = (start == end) | (letters[np.minimum(start, len(letters) - 1)] == ord("#"))
    return _Lines(text, start, np.where(timeless, last, before), np.where(timeless, end, last), end, timeless), comment


def _slab(samples: _Samples, text: bytes, last: bool) -> None:
    """Add whole lines: those that end as almost all do at once, the others one by one."""
    lines, comment = _lines(text)
    easy = ~comment & (lines.key_end > lines.start)
    code, value, time = _split(samples, lines.take(easy))
    row, good = np.flatnonzero(easy), code >= 0
    odd = np.sort(np.concatenate([np.flatnonzero(~easy & (lines.start < lines.end)), row[~good]]))
    marks: list[tuple[int, int]] = [(-1, samples.since)]
    slow = list(_one_by_one(samples, lines, odd.tolist(), marks, last))
    row = np.append(row[good], np.array([one[0] for one in slow], dtype=np.int64))
    code = np.append(code[good], np.array([one[1] for one in slow], dtype=np.int64))
    time = np.append(time[good], np.array([one[2] for one in slow], dtype=np.int64))
    value = np.append(value[good], np.array([one[3] for one in slow], dtype=np.float64))
    marked, since = np.array(marks, dtype=np.int64).T
    time = np.where(time == NULL, since[np.searchsorted(marked, row) - 1], time)
    samples.since, samples.line = int(since[-1]), samples.line + len(lines.end)
    samples.parts.append((code, time, value))


def _split(samples: _Samples, lines: _Lines) -> tuple[Ints, Floats, Ints]:
    """Code (-1: look again), value and time (NULL: none) of each of these lines."""
    import pyarrow as pa

    time_start = np.minimum(lines.value_end + 1, lines.end)
    edges = np.stack([lines.start, lines.key_end, lines.key_end + 1, lines.value_end, time_start, lines.end], axis=1)
    # One Arrow array of six cells a line, of which every other one is the blank between two parts.
    edges = edges.astype(np.int32).ravel()
    edges = np.append(edges, edges[-1:] if len(edges) else np.int32(0))
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(lines.text)]
    cells = pa.BinaryArray.from_buffers(pa.binary(), len(edges) - 1, buffers)
    keys, values, times = (cells.take(pa.array(np.arange(k, len(edges) - 1, 6))) for k in (0, 2, 4))
    encoded = keys.dictionary_encode()
    codes = [samples.code(key.decode("utf-8", "replace")) for key in encoded.dictionary.to_pylist()]
    code = np.array(codes, dtype=np.int64)[encoded.indices.to_numpy()] if codes else np.empty(0, np.int64)
    value, valued = _floats(values)
    time, timed = (np.full(len(code), np.nan), ~lines.timeless) if lines.timeless.all() else _floats(times)
    return np.where(valued & (timed | lines.timeless), code, NULL), value, number_ns(time, ns_per_unit(time))


def _floats(texts: pa.BinaryArray) -> tuple[Floats, Mask]:
    """Numbers, and where there were any; Arrow reads those without a sign or a name, which almost all are."""
    import pyarrow as pa

    try:
        found: Floats = texts.cast(pa.string()).cast(pa.float64()).to_numpy(zero_copy_only=False)
        return found, np.ones(len(found), np.bool_)
    except pa.ArrowInvalid:
        encoded = texts.dictionary_encode()
    known = [_float(word) for word in encoded.dictionary.to_pylist()]
    index = encoded.indices.to_numpy()
    value = np.array([np.nan if v is None else v for v in known])[index]
    return value, np.array([v is not None for v in known])[index]


def _float(word: bytes | str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


def _one_by_one(
    samples: _Samples, lines: _Lines, rows: list[int], marks: list[tuple[int, int]], last: bool
) -> Iterator[tuple[int, int, int, float]]:
    """Row, code, time and value of lines that are out of the ordinary; comments and times on the way."""
    text = lines.text
    for row in rows:
        line = text[lines.start[row] : lines.end[row]].decode("utf-8", "replace").strip()
        if (found := _TYPE.match(line)) is not None:
            samples.counters |= {found[1]} if found[2] == "counter" else {f"{found[1]}_sum", f"{found[1]}_count"}
        elif (moment := _moment(line)) is not None:
            marks.append((row, moment))
        elif line and not line.startswith("#"):
            sample = _LINE.fullmatch(line)
            code = samples.code(sample[1]) if sample else NULL
            value, at = (_float(sample[2]), _float(sample[3] or "nan")) if sample else (None, None)
            if code != NULL and value is not None and at is not None:
                yield row, code, _ns(at), value
            elif not (last and row == rows[-1] and text[-1:] != b"\n" and lines.end[row] == len(text)):
                # A last line that breaks off is what a copy of a growing file ends in.
                where = f"{samples.label}, line {samples.line + row + 1:,}"
                raise InputRefused(where, f"not a sample: {line[:60]}", "cut the file before this line")


def _moment(line: str) -> int | None:
    """The ns that a line (a comment, even) holds as its only content: a number of seconds or ms, or a date."""
    text = line.strip().lstrip("#").strip()
    if not text[:1].isdigit() or len(text) > 40:
        return None
    number = _float(text)
    if number is not None:
        return _ns(number) if number >= 1e8 else None
    found = date_ns(text)
    return found[0] if found and abs(found[0]) < FAR else None


def _ns(number: float) -> int:
    """One time of a unit that its size shows."""
    time = np.array([number])
    return int(number_ns(time, ns_per_unit(time))[0])


def _key(text: str) -> tuple[str, Mapping[str, str]] | None:
    """Name and labels of a series; None if the text is something else."""
    found = _KEY.fullmatch(text)
    labels = _pairs(found[2] or "") if found else None
    if found is None or labels is None:
        return None
    name = found[1] or labels.pop("__name__", "")
    return (name, labels) if name else None


def _pairs(text: str) -> dict[str, str] | None:
    """Labels between braces; a quoted text that is no pair is the metric's name."""
    labels: dict[str, str] = {}
    at, end = 0, len(text.rstrip())
    while at < end:
        found = _PAIR.match(text, at)
        if found is None or (found[1] and found[3] is None):
            return None
        key = found[1] or _unescaped(found[2])
        labels |= {"__name__": key} if found[3] is None else {key if key == "__name__" else plain(key): _unescaped(found[3])}
        at = found.end()
    return labels


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: {"n": "\n", "t": "\t"}.get(found[1], found[1]), text) if "\\" in text else text


@cache
def _json() -> msgspec.json.Decoder[dict[str, Json]]:
    return msgspec.json.Decoder(dict[str, Json])


def labels_in(text: str) -> dict[str, str]:
    """Labels written as JSON, or as Prometheus writes them; none for anything else."""
    body = text.strip()
    try:
        return {plain(key): str(value) for key, value in _json().decode(body).items()} if body[:1] == "{" else {}
    except (msgspec.DecodeError, RecursionError):
        return _pairs(body[1:-1]) or {}
