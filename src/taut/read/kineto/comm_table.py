"""What the events of a Kineto trace record about collectives."""

from __future__ import annotations

from array import array

import msgspec

from taut.core.array_types import Json
from taut.read.json_values import integer
from taut.read.kineto.json_events import CommArgs


class CommTable:
    """What events record about collectives, one row each.

    In a file too large to hold, equal records are kept once, and the three numbers in which they differ apart from them.
    """

    def __init__(self, shared: bool) -> None:
        self._shared = shared
        self._known: dict[bytes, int] = {}
        self.distinct: list[CommArgs] = []
        """Every record; if ``shared``, each once."""
        self._code, self._external, self._seq = array("i"), array("q"), array("q")

    def add(self, args: CommArgs) -> None:
        """Append what one more event records."""
        if not self._shared:
            self.distinct.append(args)
            return
        external, seq = _whole(args.external), _whole(args.seq if args.Seq is None else args.Seq)
        args.external = args.Seq = args.seq = None
        code = self._known.setdefault(msgspec.json.encode(args), len(self.distinct))
        if code == len(self.distinct):
            self.distinct.append(args)
        self._code.append(code)
        self._external.append(external)
        self._seq.append(seq)

    def __len__(self) -> int:
        return len(self._code) if self._shared else len(self.distinct)

    def at(self, row: int) -> CommArgs:
        """The record of one event."""
        if not self._shared:
            return self.distinct[row]
        common = self.distinct[self._code[row]]
        return msgspec.structs.replace(common, external=self._external[row], Seq=self._seq[row])


def _whole(value: Json) -> int:
    """``integer``, quicker for what nearly all events hold."""
    return -1 if value is None else value if type(value) is int and -1 <= value < 1 << 62 else integer(value)
