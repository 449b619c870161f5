"""Who wrote a line of a log that several processes share: ranks, pods, actors. One of them is followed."""

from __future__ import annotations

import re

_RANK = re.compile(r"\brank\s?[:=]?\s?(\d{1,7})\b", re.IGNORECASE)
_PREFIX = re.compile(
    r"\s{0,7}(\d{1,7}): |\[\d{1,4},(?:mpirank:)?(\d{1,7})[^\]]{0,60}\]<std|\[(?:default|rank)(\d{1,7})\]:"
    r"|\[?(pod/[\w.-]{1,200}(?:/[\w.-]{1,80})?)\]? "
)
_PROCESS = re.compile(
    r"\(([\w.]{1,80} (?:\w{1,20}, )?pid=\d{1,9}(?:, ip=[\d.:a-f]{1,40})?)\)|.{0,80}?\s([\w./-]{1,60}\[\d{1,9}\]): "
)
# Lines of one process after which it is followed instead of one that is silent.
TAKES_OVER = 3


class Sources:
    """Of each kind of line the source that is followed.

    A rank or a pod keeps its name when it is restarted; a process does not: another one takes its place when it goes on alone.
    """

    def __init__(self) -> None:
        self.followed: dict[str, str] = {}
        self.others: dict[str, dict[str, int]] = {}
        self.last_ns: dict[str, int] = {}

    def is_followed(self, kind: str, line: str, now_ns: int) -> bool:
        """Whether the line names no source, or the one whose lines of this kind are followed."""
        head = line[:200]
        found = (_RANK.search(head) if "ank" in head or "ANK" in head else None) or _PREFIX.match(head)
        if found:
            name = next(part for part in found.groups() if part)
            return self.followed.setdefault(kind, name) == name
        process = _PROCESS.match(head) if "pid=" in head or "]: " in head else None
        if process is None:
            return True
        return self._follows_process(kind, process[1] or process[2], now_ns)

    def _follows_process(self, kind: str, name: str, now_ns: int) -> bool:
        others = self.others.setdefault(kind, {})
        if self.followed.setdefault(kind, name) != name:
            others[name] = others.get(name, 0) + 1
            if others[name] < TAKES_OVER or now_ns < self.last_ns.get(kind, now_ns):
                return False
            self.followed[kind] = name
        others.clear()
        self.last_ns[kind] = now_ns
        return True
