"""What is found while a job runs, as it is told: who, where, since when, what it costs and what is not seen."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from decimal import Decimal

from msgspec import Struct

from taut.core.rank_words import listed
from taut.result.types import LiveFinding
from taut.watch.named import Named, sentence
from taut.watch.seen import Seen
from taut.watch.stopped import Stopped

HANG = "hang"


class Teller(Struct, frozen=True):
    """Tells the findings of one job."""

    job: str
    rate: float
    """False alarms an hour."""
    price: Decimal | None
    """Of one rank for one hour."""
    currency: str | None
    clock: Callable[[], int]

    def finding(self, named: Named, seen: Seen, done: int, since: int | None, cannot_see: Sequence[str]) -> LiveFinding:
        """Something that is named, of a job whose last complete step is ``done``; ``since`` is None where it is not known."""
        ranks = named.ranks or tuple(sorted({int(link.split(":")[1]) for link in named.links}))
        hosts, money = hosts_of(seen, ranks), self._money(named.share * len(seen.seats))
        unseen = [*cannot_see, *_not_heard(seen)]
        if since is None:
            unseen.append(f"it may have begun before step {named.since_step}, the first of those that were analysed")
        return LiveFinding(
            at_ns=self.clock(),
            id=self._id(named.mode, named.ranks, named.links, named.since_step),
            job=self.job,
            mode=named.mode,
            state="open",
            ranks=list(ranks),
            hosts=hosts,
            links=list(named.links),
            since_step=since,
            delay_steps=None if since is None else max(done - since + 1, 0),
            money_per_hour=money,
            currency=self.currency if money is not None else None,
            false_alarms_per_hour=self.rate,
            cannot_see=unseen,
            text=sentence(named, hosts),
        )

    def hang(self, found: Stopped, seen: Seen, done: int | None, now_ns: int) -> LiveFinding:
        """A job that stands still."""
        ranks, money = list(found.ranks), self._money(len(seen.seats))
        unseen = [] if ranks else ["nobody is seen to have made fewer calls than the others: dump the flight recorders"]
        who = f"rank {listed([str(rank) for rank in ranks])} stopped" if ranks else "nothing is done any more"
        waiting = f"; {len(found.waiting)} ranks wait at {found.at}" if found.waiting else ""
        return LiveFinding(
            at_ns=self.clock(),
            id=self._id(HANG, ranks, done),
            job=self.job,
            mode=HANG,
            state="open",
            ranks=ranks,
            hosts=hosts_of(seen, ranks),
            links=[],
            since_step=done,
            delay_steps=None,
            money_per_hour=money,
            currency=self.currency if money is not None else None,
            false_alarms_per_hour=0.0,
            cannot_see=[*unseen, *_not_heard(seen)],
            text=f"{who} {(now_ns - found.since_ns) / 1e9:.0f} s ago{waiting}; take the stacks of its processes (py-spy dump)",
        )

    def _money(self, ranks: float) -> str | None:
        """What so many ranks cost an hour."""
        if self.price is None:
            return None
        return str((Decimal(repr(round(ranks, 6))) * self.price).quantize(Decimal("0.01")))

    def _id(self, *parts: object) -> str:
        return "w-" + hashlib.sha256("|".join(map(str, (self.job, *parts))).encode()).hexdigest()[:10]


def hosts_of(seen: Seen, ranks: Sequence[int]) -> list[str | None]:
    """Host of each rank; None where it is not known."""
    return [seen.seats[rank].host or None if rank in seen.seats else None for rank in ranks]


def _not_heard(seen: Seen) -> list[str]:
    """Whether ranks of the job were never heard."""
    if seen.world <= len(seen.seats):
        return []
    return [f"{len(seen.seats)} of {seen.world} ranks are heard: whoever is waited for may be one of the others"]
