"""Events of Kubernetes in columns of one's own choice: ``kubectl get events -o custom-columns=TIME:.lastTimestamp,…``.

Headers are whatever was asked for, so that the values tell what a column holds: reasons that are known, dates, counts, kinds
and names. Without a time, a reason and an object there is nothing to be told.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from taut.core.errors import InputRefused
from taut.read.jobs.event_words import OF_ATTEMPTS
from taut.read.jobs.job_words import count_or_null
from taut.read.jobs.kube_event import Event, Object, Source

SAMPLE = 200
"""Rows that are looked at to tell what columns hold."""
NONE = ("<none>", "<nil>", "<no value>", "")
_HEADER = re.compile(r"[A-Z][\w./-]*(?: [\w./-]+)*(?:\s{2,}[A-Z][\w./-]*(?: [\w./-]+)*){1,30}\s*$")
_CELL = re.compile(r"\S+(?: \S+)*")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)")
_REASON = re.compile(r"[A-Z]\w{2,60}")
_KIND = re.compile(r"Pod|Node|[A-Z]\w{0,40}(?:Job|Set|Deployment|Autoscaler|Claim)|Job|Deployment|Service|Workflow")
_NAME = re.compile(r"(?:([A-Za-z][\w.]{0,60})/)?([a-z0-9][a-z0-9.-]{0,252})")
_OF_EVENT = re.compile(r"(.{1,230})\.[0-9a-f]{12,20}")
_HEADINGS = {
    "namespace": re.compile(r"NAMESPACE|\bNS\b", re.IGNORECASE),
    "source": re.compile(r"SOURCE|COMPONENT|FROM|REPORT", re.IGNORECASE),
    "host": re.compile(r"HOST|NODE", re.IGNORECASE),
    "first": re.compile(r"FIRST|CREAT", re.IGNORECASE),
    "message": re.compile(r"MESSAGE|MSG|NOTE", re.IGNORECASE),
    "object": re.compile(r"OBJ|POD|INVOLVED|NAME|REGARD", re.IGNORECASE),
}
SAVE = "save kubectl get events -A -o json, or add .lastTimestamp, .reason and .involvedObject.name to the columns"
Row = list[str]


def sniff(head: bytes) -> bool:
    """A line of headings, and rows below of which one column holds reasons of events."""
    rows = _table(head[:16384].decode("utf-8", "replace").splitlines()[: SAMPLE + 5])
    return rows is not None and _reasons(rows[1:]) is not None


def events(lines: Sequence[str], label: str) -> list[Event]:
    """The events; none if the lines are no such list."""
    rows = _table(lines)
    reason = _reasons(rows[1:]) if rows else None
    if rows is None or reason is None:
        return []
    columns = _columns(rows, reason)
    missing = [words for name, words in (("last", "time"), ("object", "object")) if name not in columns]
    if missing:
        why = f"events of Kubernetes in columns of one's own (-o custom-columns), without a column of their {missing[0]}"
        raise InputRefused(label, why, SAVE)
    return [_event({name: row[k] for name, k in columns.items()}) for row in rows[1:]]


def _table(lines: Sequence[str]) -> list[Row] | None:
    """Headings and rows, cut where the headings begin; None if there are none."""
    begin = next((k for k, line in enumerate(lines) if _HEADER.match(line) and len(line) < 2000), None)
    if begin is None or begin > 3 or begin + 1 >= len(lines):
        return None
    starts = [found.start() for found in _CELL.finditer(lines[begin].rstrip())]
    rows = [_cut(line, starts) for line in lines[begin:] if line.strip()]
    return [row for row in rows if len(row) == len(starts)]


def _cut(line: str, starts: Sequence[int]) -> Row:
    if all(a == 0 or (line[a - 1 : a] in (" ", "") and line[a : a + 1] != " ") for a in starts):
        return [line[a:b].strip() for a, b in zip(starts, [*starts[1:], None], strict=True)]
    return re.split(r"\s{2,}", line.strip(), maxsplit=len(starts) - 1)  # a row that is wider than the headings


def _reasons(rows: Sequence[Row]) -> int | None:
    """The column that holds reasons, of which most are known."""
    for k in range(len(rows[0]) if rows else 0):
        words = [row[k] for row in rows[:SAMPLE]]
        known = sum(word.lower() in OF_ATTEMPTS for word in words)
        if 2 * known >= len(words) and all(_REASON.fullmatch(word) or word in NONE for word in words):
            return k
    return None


def _columns(rows: Sequence[Row], reason: int) -> dict[str, int]:
    """What columns hold → which."""
    heads, cells = rows[0], [list(column)[:SAMPLE] for column in zip(*rows[1:], strict=True)]
    found = {"reason": reason}
    for k, (head, column) in enumerate(zip(heads, cells, strict=True)):
        values = [cell for cell in column if cell not in NONE]
        if k == reason or not values:
            continue
        name = _what(head, values)
        if name == "object" and name in found and not _HEADINGS["object"].search(heads[found[name]]):
            found[name] = k  # better by its heading
        elif name:
            found.setdefault(name, k)
    if "last" not in found and "first" in found:
        found["last"] = found.pop("first")
    return found


def _what(head: str, values: Sequence[str]) -> str:
    """What a column holds; empty if that is of no use, or not known."""
    if all(map(_TIME.fullmatch, values)):
        return "first" if _HEADINGS["first"].search(head) else "last"
    if all(value.isdecimal() for value in values):
        return "count"
    if all(value in ("Normal", "Warning") for value in values):
        return ""
    if all(map(_KIND.fullmatch, values)):
        return "kind"
    for name in ("namespace", "message", "source", "host"):
        if _HEADINGS[name].search(head):
            return name
    if all(map(_NAME.fullmatch, values)):
        return "object"
    return "message" if any(" " in value for value in values) else ""


def _event(cells: dict[str, str]) -> Event:
    told = {name: None if cell in NONE else cell for name, cell in cells.items()}
    named = _NAME.fullmatch(told["object"] or "")
    kind, name = (named[1], named[2]) if named else (None, None)
    own = _OF_EVENT.fullmatch(name or "")
    about = Object(kind=_kind(told.get("kind") or kind), name=own[1] if own else name, namespace=told.get("namespace"))
    return Event(
        involvedObject=about,
        reason=told["reason"],
        message=told.get("message") or "",
        count=count_or_null(told.get("count") or "1"),
        firstTimestamp=told.get("first"),
        lastTimestamp=told.get("last"),
        source=Source(host=told.get("host"), component=told.get("source")),
    )


def _kind(word: str | None) -> str:
    return "Pod" if word is None or word.lower() in ("pod", "po", "pods") else word[:1].upper() + word[1:]
