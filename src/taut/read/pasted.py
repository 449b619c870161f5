"""Output of commands as people paste or save it: behind a prompt, in a fence, quoted, or with what grep put before each line.

``sacct`` behind ``amy@login01:~$ sacct -P …``, between lines of three back-ticks, and a log's lines as ``grep -n`` or ``grep``
over several files print them: ``slurmctld.log.1:1042:[2026-01-01T10:00:00] …``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

_FENCE = re.compile(rb"\s{0,3}(?:`{3,}|~{3,})[ \t]{0,3}[\w+.-]{0,30}[ \t]*\r?$")
_PROMPT = re.compile(
    rb"\s{0,3}(?:\([\w.-]{1,60}\) ?)?(?:"
    rb"\[?[\w.-]{1,64}@[\w.-]{1,253}[ :][^\r\n$#%>]{0,200}[$#%>](?:\s|$)"  # amy@login01:~$, [amy@login01 ~]$
    rb"|PS [A-Z]:[^\r\n>]{0,200}>"
    rb"|[$%] ?\S|# ?(?:sudo )?(?:sacct|scontrol|squeue|kubectl|oc|qstat|tracejob|bjobs|bhist|journalctl|cat|z?grep)\b"
    rb"|\$\s*$)"
)
_DATED = (
    rb"(?=\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\[?[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:\d\d"
    rb"|[IWEF]\d{4} \d\d:\d\d:\d\d|\d\d/\d\d/\d{4} \d\d:\d\d:\d\d|\d{10}\.\d{3})"
)
_GREPPED = re.compile(rb"^((?:[^\s:\[|]{1,200}?[:-])?)(?:\d{1,9}[:-])?" + _DATED, re.MULTILINE)
_GREP = re.compile(
    rb"(?=.)(?:[^\s:\[|]{0,200}?(?:/|\.(?:log|out|err|txt|gz|\d{1,3}))[^\s:\[|]{0,60}?[:-](?:\d{1,9}[:-])?|\d{1,9}[:-])"
    + _DATED
)
_STAMP = re.compile(rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?")
# Lines that are looked at: a prompt, a fence, or what grep puts before a line shows at once.
LINES = 3


def is_grepped(head: bytes) -> bool:
    """Whether the first lines have a file's name or a line's number before their date."""
    lines = [line for line in islice(head.split(b"\n", LINES), LINES) if line.strip() not in (b"", b"--")]
    return bool(lines) and all(_GREP.match(line[:400]) for line in lines)


def without_grep(data: bytes) -> bytes:
    """The lines themselves; those of several files in the order of the files' first dates, as rotated logs are."""
    parts: dict[bytes, list[bytes]] = {}
    for line in bytes(data).split(b"\n"):
        found = _GREPPED.match(line[:400])
        parts.setdefault(found[1] if found else next(reversed(parts), b""), []).append(line[found.end() :] if found else line)
    stamps = {name: found[0] if (found := _STAMP.search(lines[0][:100])) else b"" for name, lines in parts.items()}
    order = sorted(parts, key=stamps.__getitem__) if all(stamps.values()) else parts
    return b"\n".join(line for name in order for line in parts[name])


def is_quoted(head: bytes) -> bool:
    """Whether the first lines are quoted, as mail and Markdown do it."""
    lines = [line for line in head.lstrip().split(b"\n", LINES)[:LINES] if line.strip()]
    return len(lines) > 1 and all(line[:2].rstrip() == b">" for line in lines)


def without_quotes(data: bytes) -> bytes:
    """The lines themselves."""
    return b"\n".join(line.removeprefix(b">").removeprefix(b" ") for line in bytes(data).lstrip().split(b"\n"))


def is_pasted(head: bytes) -> bool:
    """Whether a text begins with a shell's prompt or a fence."""
    line = head.lstrip()[:1000].partition(b"\n")[0]
    return _FENCE.match(line) is not None or _PROMPT.match(line) is not None


def outputs(data: bytes) -> Iterator[bytes]:
    """What stands between prompts and fences, each piece that holds anything."""
    piece: list[bytes] = []
    for line in bytes(data).split(b"\n"):
        if _FENCE.match(line[:1000]) or _PROMPT.match(line[:1000]):
            if any(one.strip() for one in piece):
                yield b"\n".join(piece) + b"\n"
            piece = []
        else:
            piece.append(line)
    if any(one.strip() for one in piece):
        yield b"\n".join(piece)
