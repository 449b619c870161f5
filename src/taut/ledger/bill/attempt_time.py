"""Attempts of jobs → held time: who held which accelerators when, with one fate and one cause.

Logs tell how long an attempt spent on each fate, not in which order. Here an attempt begins with what it needs before its
first step and ends with what a later attempt did again and with the time until its end was noticed.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from taut.core.array_types import Ints, Texts
from taut.core.errors import InputRefused
from taut.core.tables import NULL, Table, concat
from taut.ledger.attempt_ledger import Attempts
from taut.ledger.bill.cut_rows import cut_at_days
from taut.ledger.bill.rows import Held
from taut.read.rank_topology import hostlist

BETWEEN = "between"
"""Time before an attempt in which the accelerators of the one before stayed held."""
ORDER = (
    BETWEEN, "hold/init", "restore", "kept", "checkpoint save", "discarded", "discarded at most", "unfinished",
    "detect+recover",
)  # fmt: skip
"""What an attempt is laid out in, from its begin to its end."""
BEFORE = (BETWEEN, "hold/init", "restore")
"""What the end of the attempt before is the cause of; the end of an attempt itself, of what is behind its last save."""
LOST = ("discarded", "discarded at most", "unfinished", "detect+recover")
BOUND = "discarded at most"
_SOURCE = np.array(["modelled" if part == BOUND else "measured" for part in ORDER], dtype=object)
WENT_WELL = ("", "completed", "running", "pending")
MOST_REASONS = 40
"""More reasons than this are as many as there are jobs: outcomes alone then tell causes apart."""
REASON = 60
"""Characters of a reason that are part of a cause."""
MOST_HELD = 100_000
"""Accelerators of one row: a day of more does not fit 64 bits in ns."""


class Placed(Struct, frozen=True):
    """Held time of attempts, and what was decided on the way."""

    held: Table
    notes: list[str]


def attempt_time(attempts: Attempts, origin: str) -> Placed:
    """Rows of held time of all attempts, cut at midnights; they sum to what the attempts held."""
    ran = attempts.recorded.take(attempts.rows)
    length, start = _laid_out(attempts)
    row, part = np.nonzero(length)
    notes: list[str] = []
    host = _Hosts(ran.nodes, attempts.held, notes)
    many, place = host.repeated(row)
    row, part = row[many], part[many]
    accelerators = host.share(row, place, np.where(part == 0, attempts.most[row], attempts.held[row]))
    columns = {
        "job": np.array(attempts.names, dtype=object)[attempts.job[row]], "team": ran.team[row], "host": host.name(row, place),
        "accelerators": accelerators, "start_ns": start[row, part], "end_ns": start[row, part] + length[row, part],
        "fate": _fates(attempts)[row, part], "cause": _causes(attempts, ran)[row, part],
        "source": _SOURCE[part], "origin": np.array([origin, f"{origin}: no checkpoint is known, an upper bound"],
                                                     dtype=object)[(part == ORDER.index(BOUND)).astype(np.int64)],
    }  # fmt: skip
    if len(row) and int(accelerators.max()) > MOST_HELD:
        raise InputRefused(origin, f"{int(accelerators.max()):,} accelerators on one host", "name the hosts of the job")
    dated = ran.dated[row] == 1
    whole = Table(Held, columns, len(row)).take(accelerators > 0)
    return Placed(_timed(whole, dated[accelerators > 0]), notes)


def _timed(held: Table, dated: Ints) -> Table:
    """Rows cut at midnights, with their accelerator time; those without a date lose their times, which only gave lengths."""
    known, bare = (cut_at_days(held.take(mask)) for mask in (dated, ~dated))
    known, bare = (
        one.replace(rank_ns=one.accelerators.astype(np.int64) * (one.end_ns - one.start_ns)) for one in (known, bare)
    )
    nowhen = np.full(len(bare), NULL, dtype=np.int64)
    return concat(Held, [known, bare.replace(start_ns=nowhen, end_ns=nowhen)])


def _laid_out(attempts: Attempts) -> tuple[Ints, Ints]:
    """Of every attempt the length of each part in ``ORDER``, and when it begins, ns."""
    gap = np.where(attempts.gap_held, attempts.gap_ns, 0)
    length = np.stack([gap, *(attempts.fates[fate] for fate in ORDER[1:])], axis=1)
    begin = (attempts.begin_ns - gap)[:, None]
    return length, begin + np.cumsum(length, axis=1) - length


def _fates(attempts: Attempts) -> Texts:
    """The fate of each part: what follows a controller's decision until the next attempt is under way is its overhead."""
    plain = np.array(["detect+recover", *ORDER[1:]], dtype=object)
    decided = np.array(["control overhead" if fate in BEFORE else fate for fate in ORDER], dtype=object)
    return np.where(attempts.restarted[:, None], decided[None, :], plain[None, :])


def _causes(attempts: Attempts, ran: Table) -> Texts:
    """The end of an attempt to which each part is traced; empty for none."""
    # What is cancelled is not started again: such an attempt was requeued.
    again = np.append(attempts.job[1:] == attempts.job[:-1], False) & (ran.outcome == "cancelled")
    ends = _ends(ran.replace(outcome=np.where(again, "requeued", ran.outcome).astype(object)), attempts.ended_by)
    same = np.concatenate([[False], attempts.job[1:] == attempts.job[:-1]])
    before = np.where(same, np.concatenate([[""], ends[:-1]]), "")
    nobody = np.full(len(ends), "", dtype=object)
    columns = [before if part in BEFORE else ends if part in LOST else nobody for part in ORDER]
    return np.stack(columns, axis=1)


def _ends(ran: Table, decided: Texts) -> Texts:
    """How each attempt ended, in words: ``preempted by slurmctld``, ``node failed``, ``failed: exit code 1``."""
    told = {reason for reason in ran.reason.tolist() if reason}
    words: dict[tuple[str, str | None, str], str] = {}
    out = []
    for key in zip(ran.outcome.tolist(), decided.tolist(), ran.reason.tolist(), strict=True):
        if key not in words:
            outcome, who, reason = key
            words[key] = _end(outcome, who, reason if len(told) <= MOST_REASONS else "")
        out.append(words[key])
    return np.array(out, dtype=object)


def _end(outcome: str, who: str | None, reason: str) -> str:
    if who is not None:
        ended = outcome if outcome not in WENT_WELL else "ended"
        return f"{ended} by {who}" if who else f"{ended} by a controller"
    if outcome in WENT_WELL:
        return f"ended: {reason[:REASON]}" if reason else "an attempt whose end is not told"
    return f"{outcome}: {reason[:REASON]}" if reason and outcome == "failed" else outcome


class _Hosts:
    """The hosts of attempts: each list is expanded once, and accelerators are shared out over it as evenly as they go."""

    def __init__(self, nodes: Texts, held: Ints, notes: list[str]) -> None:
        lists, code = np.unique(nodes.astype(str), return_inverse=True)
        found = [_expanded(text) for text in lists.tolist()]
        unclear = [text for text, hosts in zip(lists.tolist(), found, strict=True) if text and not hosts]
        if unclear:
            notes.append(f"{len(unclear):,} lists of hosts are not understood ({unclear[0][:60]!r}): those hosts are not known")
        hosts = [one or [""] for one in found]
        size = np.array([len(one) for one in hosts], dtype=np.int64)
        # More hosts than accelerators: which of them had some is not told.
        self._size = np.minimum(size[code], np.maximum(held, 1))
        self._first = (np.cumsum(size) - size)[code]
        self._names = np.array([name for one in hosts for name in one], dtype=object)

    def repeated(self, row: Ints) -> tuple[Ints, Ints]:
        """Indices that repeat each of some rows (of attempts) for every host, and the place of the host in its list."""
        count = self._size[row]
        many = np.repeat(np.arange(len(row)), count)
        return many, np.arange(len(many)) - np.repeat(np.cumsum(count) - count, count)

    def share(self, row: Ints, place: Ints, accelerators: Ints) -> Ints:
        """Accelerators of an attempt on one of its hosts; what does not divide goes to the first."""
        each, over = np.divmod(accelerators, self._size[row])
        return each + (place < over)

    def name(self, row: Ints, place: Ints) -> Texts:
        """What a host is called."""
        found: Texts = self._names[self._first[row] + place]
        return found


def _expanded(nodes: str) -> list[str]:
    """The hosts of a list as Slurm, Kubernetes and LSF (``a,b[1-3]``) or PBS (``a/0*8+b/0*8``) write it; none if unclear."""
    if "+" in nodes or "/" in nodes:
        return list(dict.fromkeys(part.partition("/")[0].strip() for part in nodes.split("+") if part.strip()))
    try:
        return list(dict.fromkeys(name.strip() for name in hostlist(nodes)))
    except InputRefused:
        return []
