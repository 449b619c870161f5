"""What is wrong with a job now: suspected by a panel of sequential tests, confirmed and named by an analysis of the last steps.

A suspicion that the analysis does not confirm is not told: it is counted, looked at again after ever more steps, and at last
taken for the new habit. A finding is told when it opens and when it closes; its id stays the same. What the panel cannot
suspect, because it was there from the beginning or has no place, is told when an analysis once a minute names it THRICE.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from decimal import Decimal

import msgspec
import numpy as np
from msgspec import Struct

from taut.core.array_types import Ints
from taut.core.rank_words import listed
from taut.result.types import LiveFinding, Regime, WatchedJob
from taut.watch.live_state import job_state
from taut.watch.naming import NAMED_MODES, Look, Named, look
from taut.watch.seen import Events, Seen, joined, no_events
from taut.watch.sequential import RATE, RECENT, Panel, Suspected
from taut.watch.step_series import BUSY, HOST, LATE, LOADER, STEP, TRANSFER, StepSeries
from taut.watch.stopped import LastCalls, Stopped, stopped
from taut.watch.window import Window

STEPS, SPAN_S = 120, 60.0
"""An analysis sees the last steps: no more than this, and of slow steps so many that they fill this time, but FEWEST."""
FEWEST = 36
PAST = 3
"""Of what is suspected since a while an analysis sees so many times as many steps."""
MOST_OPS = 200_000
"""Ops that an analysis is given: of a large job fewer steps."""
MOST_ROWS = 2_500_000
"""Rows of events that are kept for it."""
SHARE, MOST_TAKEN_S = 0.1, 5.0
"""Share of a core that analyses may take; one that takes longer than this counts as this."""
AGAIN = (6, 12, 24, 48)
"""Steps after which a suspicion that was not confirmed is looked at again; after the last it is a habit."""
MINUTE_S, THRICE = 60.0, 3
GONE = 0.4
"""A finding closes when its series rose by less than this part of what they rose by when it opened."""
CALM = 48
"""Steps without an outlier after which a series is calm."""
SAME = 8
"""Steps within which two findings began together."""
HANG = "hang"


class Open(Struct):
    """A finding that is open."""

    told: LiveFinding
    named: Named | None
    series: Ints
    """What the panel suspected."""
    shift: float
    missed: int = 0
    """Analyses of a minute in which it was not seen any more, of findings without series."""


class Live:
    """Looks at one job; ``new`` gives the events that came since it was last asked."""

    def __init__(
        self, new: Callable[[int], Seen], job: str = "job", *, gpu_hour: Decimal | None = None, currency: str | None = None,
        rate: float = RATE, minute_s: float = MINUTE_S, clock: Callable[[], int] = time.time_ns,
    ) -> None:  # fmt: skip
        self.job, self.rate, self.minute_s = job, rate, minute_s
        self._new, self._price, self._currency, self._clock = new, gpu_hour, currency, clock
        self.series: StepSeries | None = None
        self.panel: Panel | None = None
        self.open: dict[tuple[object, ...], Open] = {}
        self.regime: Regime | None = None
        """Of the last analysis: regime and reserve."""
        self.counts: Counter[str] = Counter()
        """Steps, suspicions, analyses, and suspicions that no analysis confirmed."""
        self.analysis_s = 0.0
        self.step_times: deque[float] = deque(maxlen=STEPS)
        """Times of the last steps, s."""
        self._kept: deque[Seen] = deque()
        self._kept_rows = 0
        self._newest = Seen(no_events(), no_events(), no_events(), [], {})
        self._last = LastCalls()
        self._explained: set[int] = set()
        self._tries: list[int] = []
        self._next_try, self._looked_ns, self._free_ns, self._minute_ns = 0, 0, 0, 0
        self._repeated: Counter[tuple[object, ...]] = Counter()

    def look(self, now_ns: int) -> list[LiveFinding]:
        """Findings that have opened or closed since it last looked."""
        self._looked_ns = now_ns
        seen = self._new(now_ns)
        self._last.add(seen)
        self._keep(seen)
        self._seat(seen)
        out = self._stopped(now_ns)
        if self.series is None or self.panel is None:
            return out
        rows = self.series.add(seen)
        if rows is None:
            return out
        self.counts["steps"] += len(rows.rows)
        self.step_times.extend(rows.rows[:, -1].tolist())
        crossed = self.panel.feed(rows.rows, rows.step_s)
        self.counts["suspicions"] += len(crossed)
        out += self._closed()
        out += self._suspected(now_ns, {series for _, series in crossed})
        out += self._minutely(now_ns)
        return out

    def state(self, window: Window) -> WatchedJob:
        """The job as it is now."""
        return job_state(window, self)

    # -- what is kept ---------------------------------------------------------------------------------------------------

    def _keep(self, seen: Seen) -> None:
        """Keep the newest events: as many steps as an analysis may see, and no more rows than it is given."""
        self._newest = seen
        self._kept.append(seen)
        self._kept_rows += _rows(seen)
        done = self.series.done if self.series is not None else 0
        while len(self._kept) > 1 and (self._kept_rows > MOST_ROWS or _last_step(self._kept[0]) < done - STEPS - 1):
            self._kept_rows -= _rows(self._kept.popleft())

    def _seat(self, seen: Seen) -> None:
        """Begin anew where the ranks of the job have changed."""
        ranks = sorted(seen.seats)
        if len(ranks) < 2 or (self.series is not None and ranks == self.series.ranks.tolist()):
            return
        self.series = StepSeries(ranks, [seen.seats[rank].host for rank in ranks])
        self.panel = Panel(self.series.kind, self.rate)
        self._explained.clear()
        self._tries = []

    def _window(self, age: int) -> Seen:
        """The steps that an analysis is given, of which the last ones, so many, are suspected."""
        assert self.series is not None
        assert self.panel is not None
        parts, done, new = self._kept, self.series.done, self._newest
        gates, stages, steps = (joined([getattr(one, name) for one in parts]) for name in ("gates", "stages", "steps"))
        kept = Seen(gates, stages, steps, new.classes, new.seats, new.ended)
        whole = max(len(np.unique(kept.steps.number)), 1)
        rows = (2.5 * len(kept.gates) + 4 * len(kept.steps)) / whole
        few = max(FEWEST, PAST * age if age else int(SPAN_S / max(self.panel.step_s, 1e-6)))
        count = min(STEPS, few, max(int(MOST_OPS / max(rows, 1)), FEWEST))
        window = _upto(_since(kept, done - count), done)
        most = int(MOST_OPS / max(count * rows / len(self.series.ranks), 1))
        return window if most >= len(self.series.ranks) else _of(window, self._some_ranks(max(most, 32)))

    def _some_ranks(self, most: int) -> Ints:
        """Ranks of a job that is too large to be analysed whole: the latest half, hosts and all, and some of the others."""
        assert self.series is not None
        assert self.panel is not None
        ranks = self.series.ranks
        late = (self.panel.level + self.panel.shift())[self.panel.kind == LATE]
        first = np.argsort(-late, kind="stable")[: most // 2]
        hosts = self.series.host[first[: max(most // 32, 1)]]
        mates = np.flatnonzero(np.isin(self.series.host, hosts))[: most // 2]
        spread = np.linspace(0, len(ranks) - 1, max(most - len(first), 1)).astype(np.int64)
        some: Ints = ranks[np.unique(np.concatenate([first, mates, spread]))]
        return some

    # -- naming ---------------------------------------------------------------------------------------------------------

    def _suspected(self, now_ns: int, crossed: set[int]) -> list[LiveFinding]:
        """Look into what is newly suspected, or was not confirmed yet."""
        assert self.series is not None
        assert self.panel is not None
        suspects = [one for one in self.panel.suspects(crossed) if one.series not in self._explained]
        if not suspects:
            self._tries = []
            return []
        new = any(one.series not in self._tries for one in suspects)
        if now_ns < self._free_ns or not (new or self.series.done >= self._next_try):
            return []
        found = self._analysed(suspects)
        named = [one for one in found.named if self._fits(one, suspects)] if found is not None else []
        if named:
            assert found is not None
            return self._opened([self._whole_host(one, suspects) for one in named], suspects, found)
        return self._not_confirmed(suspects)

    def _not_confirmed(self, suspects: list[Suspected]) -> list[LiveFinding]:
        assert self.series is not None
        assert self.panel is not None
        series = [one.series for one in suspects]
        before = sum(one in self._tries for one in series)
        turn = self.counts["tries"] if before else 0
        self.counts["tries"] = turn + 1
        if turn >= len(AGAIN):
            self.counts["not confirmed"] += 1
            self.panel.accept(np.array(series))
            self._tries, self.counts["tries"] = [], 0
        else:
            self._tries, self._next_try = series, self.series.done + AGAIN[turn]
        return []

    def _analysed(self, suspects: list[Suspected]) -> Look | None:
        assert self.series is not None
        places = [self.series.place(one.series) for one in suspects]
        ends = any(kind in (TRANSFER, STEP) for kind, _ in places)
        age = max((one.age for one in suspects), default=0)
        began = time.process_time()
        found = look(self._window(age), self.series.meets, transfers=ends, whole=not suspects)
        took = time.process_time() - began
        self.analysis_s += took
        self.counts["analyses"] += 1
        self._free_ns = self._looked_ns + int(min(took, MOST_TAKEN_S) / SHARE * 1e9)
        self.regime = (found.regime if found is not None else None) or self.regime
        return found

    def _fits(self, named: Named, suspects: list[Suspected]) -> bool:
        """Whether something named is what was suspected: its ranks are, or it began when the suspicion did."""
        assert self.series is not None
        if named.mode not in NAMED_MODES:
            return False
        ends = {int(end) for link in named.links for end in link.split(":")}
        if (set(named.ranks) | ends) & self._ranks(suspects):
            return True
        return named.past and named.since_step >= self.series.done - max(one.age for one in suspects) - SAME

    def _whole_host(self, named: Named, suspects: list[Suspected]) -> Named:
        """The same, of all ranks of a host where most of them are named, nobody else is, and the host is suspected itself."""
        assert self.series is not None
        places = [self.series.place(one.series) for one in suspects]
        for index in (index for kind, index in places if kind == HOST):
            ranks = self.series.ranks[self.series.host == self.series.host_rows[index]].tolist()
            if not named.links and set(named.ranks) < set(ranks) and 2 * len(named.ranks) > len(ranks):
                return msgspec.structs.replace(named, ranks=tuple(ranks))
        return named

    def _ranks(self, suspects: list[Suspected]) -> set[int]:
        assert self.series is not None
        out = set[int]()
        for one in suspects:
            kind, index = self.series.place(one.series)
            if kind in (LATE, BUSY, LOADER):
                out.add(int(self.series.ranks[index]))
            elif kind == HOST:
                out |= set(self.series.ranks[self.series.host == self.series.host_rows[index]].tolist())
        return out

    # -- findings -------------------------------------------------------------------------------------------------------

    def _opened(self, named: list[Named], suspects: list[Suspected], found: Look) -> list[LiveFinding]:
        """Tell what is new; what was open already explains the suspicion."""
        series = np.array([one.series for one in suspects])
        self._explained |= set(series.tolist())
        self._tries, self.counts["tries"] = [], 0
        out = []
        for one in named:
            if one.place not in self.open and not self._known(one):
                part = self._part(one)
                told = self._told(one, found.cannot_see)
                if part is not None:  # the same thing, of more ranks than were seen first
                    before = self.open.pop(part).told
                    told = msgspec.structs.replace(told, id=before.id, delay_steps=before.delay_steps)
                self.open[one.place] = Open(told, one, series, max(max(s.shift for s in suspects), 1e-9))
                out.append(told)
        for known in self.open.values():
            if len(known.series):
                known.series = np.unique(np.concatenate([known.series, series]))
        return out

    def _part(self, named: Named) -> tuple[object, ...] | None:
        """The open finding of the same mode about some of the same ranks."""
        return next(
            (
                place for place, known in self.open.items()
                if known.named is not None and known.named.mode == named.mode and known.named.ranks and not known.named.links
                and not named.links and set(known.named.ranks) < set(named.ranks)
            ),
            None,
        )  # fmt: skip

    def _known(self, named: Named) -> bool:
        """Whether something open is about the same place in other words, or began when something without a place did."""
        return any(known.named is not None and _same(named, known.named) for known in self.open.values())

    def _told(self, named: Named, cannot_see: tuple[str, ...]) -> LiveFinding:
        assert self.series is not None
        ranks = named.ranks or tuple(sorted({int(link.split(":")[1]) for link in named.links}))
        money = None
        if self._price is not None:
            money = str((Decimal(repr(round(named.share, 6))) * len(self.series.ranks) * self._price).quantize(Decimal("0.01")))
        return LiveFinding(
            at_ns=self._clock(), id=self._id(named), job=self.job, mode=named.mode, state="open", ranks=list(ranks),
            hosts=self._hosts(ranks),
            links=list(named.links), since_step=named.since_step, delay_steps=max(self.series.done - named.since_step + 1, 0),
            money_per_hour=money, currency=self._currency if money is not None else None,
            false_alarms_per_hour=self.rate, cannot_see=list(cannot_see), text=_sentence(named, self._hosts(ranks)),
        )  # fmt: skip

    def _hosts(self, ranks: Sequence[int]) -> list[str | None]:
        seats = self._newest.seats
        return [seats[rank].host or None if rank in seats else None for rank in ranks]

    def _id(self, named: Named) -> str:
        text = f"{self.job}|{named.mode}|{named.ranks}|{named.links}|{named.since_step}"
        return "w-" + hashlib.sha256(text.encode()).hexdigest()[:10]

    def _closed(self) -> list[LiveFinding]:
        """Findings whose series are back where they were."""
        assert self.panel is not None
        assert self.series is not None
        if not self.open or len(self.panel.recent) < RECENT:
            return []
        shift, out = self.panel.shift(), []
        for place, one in list(self.open.items()):
            opened = one.told.since_step or 0
            long_enough = self.series.done - opened - (one.told.delay_steps or 0) >= RECENT
            if len(one.series) and long_enough and shift[one.series].max() < GONE * one.shift and not self._still(one.series):
                out.append(self._close(place))
                self.panel.calm(one.series)
                self._explained -= set(one.series.tolist())
        return out

    def _still(self, series: Ints) -> bool:
        """Whether some of the series still have outliers."""
        assert self.panel is not None
        return bool((self.panel.since_spike[series] < CALM).any())

    def _close(self, place: tuple[object, ...]) -> LiveFinding:
        told = self.open.pop(place).told
        return msgspec.structs.replace(told, state="closed", at_ns=self._clock())

    # -- once a minute --------------------------------------------------------------------------------------------------

    def _minutely(self, now_ns: int) -> list[LiveFinding]:
        """What no series can show: findings of the last steps that are there minute after minute."""
        assert self.series is not None
        assert self.panel is not None
        if not self._minute_ns:
            self._minute_ns = now_ns
        if now_ns < max(self._minute_ns + self.minute_s * 1e9, self._free_ns) or not self.panel.learned:
            return []
        self._minute_ns = now_ns
        found = self._analysed([])
        if found is None:
            return []
        places = {one.place: one for one in found.named}
        self._repeated = Counter({place: self._repeated[place] + 1 for place in places})
        out = []
        for place, named in places.items():
            if self._repeated[place] >= THRICE and place not in self.open and not self._known(named):
                told = self._told(named, found.cannot_see)
                self.open[place] = Open(told, named, np.zeros(0, np.int64), 0.0)
                out.append(told)
        for known, one in list(self.open.items()):
            if one.named is not None and not len(one.series):
                one.missed = 0 if known in places else one.missed + 1
                if one.missed >= THRICE:
                    out.append(self._close(known))
        return out

    # -- hangs ----------------------------------------------------------------------------------------------------------

    def _stopped(self, now_ns: int) -> list[LiveFinding]:
        meets = self.series.meets if self.series is not None else {}
        found = stopped(self._last, self._newest, meets, self.panel.step_s if self.panel is not None else 1.0, now_ns)
        place = (HANG,)
        if found is None:
            return [self._close(place)] if place in self.open else []
        if place in self.open:
            return []
        told = self._hang(found, now_ns)
        self.open[place] = Open(told, None, np.zeros(0, np.int64), 0.0)
        return [told]

    def _hang(self, found: Stopped, now_ns: int) -> LiveFinding:
        ranks = list(found.ranks)
        unseen = (
            [] if ranks else ["calls are seen when they end: who waits, and for whom, is not known; dump the flight recorders"]
        )
        done = self.series.done if self.series is not None else None
        money = None if self._price is None else str((self._price * len(self._newest.seats)).quantize(Decimal("0.01")))
        who = f"rank {listed([str(rank) for rank in ranks])} stopped" if ranks else "nothing is done any more"
        waiting = f"; {len(found.waiting)} ranks wait at {found.at}" if found.waiting else ""
        return LiveFinding(
            at_ns=self._clock(), id="w-" + hashlib.sha256(f"{self.job}|{HANG}|{ranks}|{done}".encode()).hexdigest()[:10],
            job=self.job, mode=HANG, state="open", ranks=ranks, hosts=self._hosts(ranks),
            links=[], since_step=done, delay_steps=None, money_per_hour=money,
            currency=self._currency if money is not None else None, false_alarms_per_hour=0.0, cannot_see=unseen,
            text=f"{who} {(now_ns - found.since_ns) / 1e9:.0f} s ago{waiting}; take the stacks of its processes (py-spy dump)",
        )  # fmt: skip


def _sentence(named: Named, hosts: list[str | None]) -> str:
    """For people: who, where, what to do."""
    at = sorted({host for host in hosts if host})
    place = f" on {listed(at)}" if at and len(at) <= 8 else ""
    todo = {
        "input stall": "look at its input: disk, network file system, workers of the loader",
        "checkpoint stall": "look at where it saves",
        "structural instability": "nobody is to blame: see taut whatif --advice for policies",
    }.get(named.mode, "test the link" if named.links else "let no new job start there, and test it")
    return f"{named.because}; it costs {100 * named.share:.0f} % of the time{place}: {todo}"


def _same(named: Named, known: Named) -> bool:
    """Whether what is named is known already: nobody's, begun together; some of its ranks; its links, or links of its rank."""
    if not named.ranks and not named.links:
        return abs(named.since_step - known.since_step) <= SAME
    if named.links:
        ends = [set(link.split(":")) for link in named.links]
        of_rank = not known.links and any(all(str(rank) in end for end in ends) for rank in known.ranks)
        return named.links == known.links or of_rank
    return set(named.ranks) <= set(known.ranks) and not known.links


def _rows(seen: Seen) -> int:
    return len(seen.gates) + len(seen.stages) + len(seen.steps)


def _last_step(seen: Seen) -> int:
    """The last step that ended in a part of the window; -1 if none did."""
    return int(seen.steps.number.max(initial=-1))


def _since(seen: Seen, step: int) -> Seen:
    """What was seen from a step on, by each rank's own steps."""
    steps = seen.steps.take(seen.steps.number > step)
    begins: dict[int, int] = {}
    order = np.argsort(steps.begin, kind="stable")[::-1]
    begins.update(zip(steps.rank[order].tolist(), steps.begin[order].tolist(), strict=True))
    return Seen(_after(seen.gates, begins), _after(seen.stages, begins), steps, seen.classes, seen.seats, seen.ended)


def _after(events: Events, begins: dict[int, int]) -> Events:
    if not len(events):
        return events
    least = np.array([begins.get(rank, 0) for rank in range(int(events.rank.max()) + 1)], np.int64)
    return events.take(events.begin >= least[events.rank])


def _of(seen: Seen, ranks: Ints) -> Seen:
    """What was seen of some ranks."""
    gates, stages, steps = (part.take(np.isin(part.rank, ranks)) for part in (seen.gates, seen.stages, seen.steps))
    some = set(ranks.tolist())
    classes = [msgspec.structs.replace(one, ranks=tuple(rank for rank in one.ranks if rank in some)) for one in seen.classes]
    return Seen(gates, stages, steps, classes, seen.seats, seen.ended)


def _upto(seen: Seen, step: int) -> Seen:
    """What was seen up to the end of a step."""
    steps = seen.steps.take(seen.steps.number <= step)
    return Seen(seen.gates, seen.stages, steps, seen.classes, seen.seats, seen.ended)
