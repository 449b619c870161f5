"""What is wrong with a job now: suspected by a panel of sequential tests, confirmed and named by an analysis of the last steps.

A suspicion that the analysis does not confirm is not told: it is counted, looked at again after ever more steps, and at last
taken for the new habit. A finding is told when it opens and when it closes; its id stays the same. What the panel cannot
suspect, because it was there from the beginning or has no place, is told when an analysis once a minute names it THRICE.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Container
from decimal import Decimal

import msgspec
import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats, Ints
from taut.result.types import LiveFinding, Regime, WatchedJob
from taut.watch.live_state import job_state
from taut.watch.named import NAMED_MODES, SAME, Named, same_place
from taut.watch.naming import Look, Waits, look
from taut.watch.recent_steps import STEPS, RecentSteps, analysable, of_ranks, some_of
from taut.watch.seen import KeptRows, Seen
from taut.watch.sequential import RATE, RECENT, Panel, Suspected
from taut.watch.step_series import BUSY, DEVICE, HOST, LATE, LOADER, STEP, TRANSFER, StepSeries
from taut.watch.stopped import LastCalls, stopped
from taut.watch.telling import HANG, Teller
from taut.watch.window import Window

SHARE, MOST_TAKEN_S = 0.1, 5.0
"""Share of a core that analyses may take; one that takes longer than this counts as this."""
AGAIN = (6, 12, 24, 48)
"""Steps after which a suspicion that was not confirmed is looked at again; after the last it is a habit."""
MINUTE_S, THRICE = 60.0, 3
GONE = 0.4
"""A finding closes when its series rose by less than this part of what they rose by when it opened."""
CALM = 48
"""Steps without an outlier after which a series is calm."""
EXCUSED = 0.5
"""Who waits for a core by this part of what a finding costs, more than usually, is not named: its host is busy."""


NONE: Ints = np.zeros(0, np.int64)


class Open(Struct):
    """A finding that is open."""

    told: LiveFinding
    named: Named | None
    series: Ints
    """What the panel suspected of its place; of what has no place, everything."""
    explains: Ints
    """All that was suspected when it was named, and since: as long as it is open nobody looks into that."""
    shift: float
    missed: int = 0
    """Analyses of a minute in which it was not seen any more, of findings without series."""


class Live:
    """Looks at one job; ``new`` gives the events that came since it was last asked."""

    def __init__(
        self,
        new: Callable[[int], Seen],
        job: str = "job",
        *,
        price: tuple[Decimal, str] | None = None,
        rate: float = RATE,
        minute_s: float = MINUTE_S,
        rows: KeptRows | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.job, self.rate, self.minute_s = job, rate, minute_s
        gpu_hour, currency = price or (None, None)
        self._new, self._tell = new, Teller(job, rate, gpu_hour, currency, clock)
        self.series: StepSeries | None = None
        self.panel: Panel | None = None
        self.open: dict[tuple[object, ...], Open] = {}
        self.regime: Regime | None = None
        """Of the last analysis: regime and reserve."""
        self.doubts: list[Named] = []
        """What the last look of every minute named, and is not told before it is named THRICE."""
        self.counts: Counter[str] = Counter()
        """Steps, suspicions, analyses, and suspicions that no analysis confirmed."""
        self.analysis_s = 0.0
        self.step_times: deque[float] = deque(maxlen=STEPS)
        """Times of the last steps, s."""
        self._recent = RecentSteps(rows)
        self.waits: deque[Floats] = deque(maxlen=STEPS)
        """What every rank waited for a core in the last steps, s."""
        self.last = LastCalls()
        self._explained: set[int] = set()
        self.tries: list[int] = []
        """Series that are suspected, and that no analysis has confirmed or refuted yet."""
        self._next_try, self.looked_ns, self._free_ns, self._minute_ns = 0, 0, 0, 0
        self._repeated: Counter[tuple[object, ...]] = Counter()

    def look(self, now_ns: int) -> list[LiveFinding]:
        """Findings that have opened or closed since it last looked."""
        self.looked_ns = now_ns
        seen = self._new(now_ns)
        out = self._over(seen)
        self.last.add(seen, now_ns)
        self._recent.keep(seen, self.series.done if self.series is not None else 0)
        self._seat(seen)
        out += [] if seen.is_over else self._stopped(now_ns)
        if self.series is None or self.panel is None:
            return out
        rows = self.series.add(seen)
        if rows is None:
            return out
        self.counts["steps"] += len(rows.rows)
        self.step_times.extend(rows.rows[:, -1].tolist())
        self.waits.extend(rows.rank_waits[-STEPS:].copy())
        crossed = self.panel.feed(rows.rows, rows.step_s, rows.waits)
        self.counts["suspicions"] += len(crossed)
        if not seen.is_over:
            out += self._closed()
            out += self._suspected(now_ns, {series for _, series in crossed})
            out += self._minutely(now_ns)
        return out

    def state(self, window: Window) -> WatchedJob:
        """The job as it is now."""
        return job_state(window, self)

    # -- what is kept ---------------------------------------------------------------------------------------------------

    def _over(self, seen: Seen) -> list[LiveFinding]:
        """Close what is open when nobody is heard any more, or the job was started anew: steps then count from 0."""
        if seen.restarted:
            self.series = self.panel = self.regime = None
            self.doubts, self._recent, self.last = [], RecentSteps(self._recent.room), LastCalls()
            self.step_times.clear()
            self._repeated.clear()
            self._minute_ns = 0
        elif not seen.is_over:
            return []
        self._explained.clear()
        return [self._close(place) for place in list(self.open)]

    def _seat(self, seen: Seen) -> None:
        """Begin anew where the ranks of the job have changed."""
        ranks = sorted(seen.seats)
        if len(ranks) < 2 or (self.series is not None and ranks == self.series.ranks.tolist()):
            return
        self.series = StepSeries(ranks, [seen.seats[rank].host for rank in ranks], self._recent.room)
        self.panel = Panel(self.series.kind, self.rate)
        self._explained.clear()
        self.waits.clear()
        self.tries = []
        for one in self.open.values():  # series have other numbers now: the looks of every minute tell when it is gone
            one.series = one.explains = NONE

    def _window(self, age: int) -> Seen:
        """The steps that an analysis is given, of which the last ones, so many, are suspected."""
        assert self.series is not None
        assert self.panel is not None
        count = len(self.series.ranks)
        window, most = self._recent.window(self.series.done, count, self.panel.step_s, age)
        if most >= count:
            return analysable(window)
        now = self.panel.level + self.panel.shift()
        late = np.maximum(now[self.panel.kind == LATE], now[self.panel.kind == DEVICE])
        return analysable(of_ranks(window, self.series.ranks[some_of(late, self.series.host, most)]))

    # -- naming ---------------------------------------------------------------------------------------------------------

    def _suspected(self, now_ns: int, crossed: set[int]) -> list[LiveFinding]:
        """Look into what is newly suspected, or was not confirmed yet."""
        assert self.series is not None
        assert self.panel is not None
        suspects = [one for one in self.panel.suspects(crossed) if one.series not in self._explained]
        if not suspects:
            self.tries = []
            return []
        new = any(one.series not in self.tries for one in suspects)
        if now_ns < self._free_ns or not (new or self.series.done >= self._next_try):
            return []
        found = self._analysed(suspects)
        named = [one for one in found.named if self._fits(one, suspects) and not self._excused(one)] if found else []
        if named:
            assert found is not None
            named = [self._since(self._whole_host(one, suspects), suspects) for one in named]
            return self._opened(named, suspects, found)
        return self._not_confirmed(suspects)

    def _not_confirmed(self, suspects: list[Suspected]) -> list[LiveFinding]:
        assert self.series is not None
        assert self.panel is not None
        series = [one.series for one in suspects]
        before = sum(one in self.tries for one in series)
        turn = self.counts["tries"] if before else 0
        self.counts["tries"] = turn + 1
        if turn >= len(AGAIN):
            self.counts["not confirmed"] += 1
            self.panel.accept(np.array(series))
            self.tries, self.counts["tries"] = [], 0
        else:
            self.tries, self._next_try = series, self.series.done + AGAIN[turn]
        return []

    def _analysed(self, suspects: list[Suspected]) -> Look | None:
        assert self.series is not None
        places = [self.series.place(one.series) for one in suspects]
        ends = any(kind in (TRANSFER, STEP) for kind, _ in places)
        age = max((one.age for one in suspects), default=0)
        began = time.process_time()
        window = self._window(age)
        found = look(window, self.series.meets, transfers=ends, whole=not suspects, waits=self._lost(window))
        took = time.process_time() - began
        self.analysis_s += took
        self.counts["analyses"] += 1
        self._free_ns = self.looked_ns + int(min(took, MOST_TAKEN_S) / SHARE * 1e9)
        self.regime = (found.regime if found is not None else None) or self.regime
        return found

    def _lost(self, window: Seen) -> Waits | None:
        """What the ranks of a window waited for a core."""
        assert self.series is not None
        assert self.panel is not None
        if not self.waits:
            return None
        in_transfers = float(self.panel.slope[self.panel.kind == TRANSFER][0])
        ranks = np.searchsorted(self.series.ranks, np.unique(window.steps.rank))
        by_rank = np.array(self.waits)[:, ranks]
        return Waits(self.series.done - len(by_rank) + 1, by_rank, self._in_work, in_transfers)

    def _fits(self, named: Named, suspects: list[Suspected]) -> bool:
        """Whether something named is what was suspected: its ranks are, or it began when the suspicion did."""
        assert self.series is not None
        if named.mode not in NAMED_MODES:
            return False
        if (set(named.ranks) | named.ends) & self._ranks(suspects):
            return True
        return named.past and named.since_step >= self.series.done - max(one.age for one in suspects) - SAME

    def _excused(self, named: Named) -> bool:
        """Whether waits for a core, as far as they are not taken out already, may explain what is named.

        They are compared with those before; of what was there from the beginning, with who waits least.
        """
        assert self.series is not None
        assert self.panel is not None
        if not self.waits:
            return False
        waits, age = np.array(self.waits), max(self.series.done - named.since_step + 1, 1)
        where = named.ranks or tuple(named.ends)
        last = waits[-age:].mean(axis=0)
        usual = waits[:-age].mean(axis=0) if named.past and len(waits) > age else np.full(len(last), last.min())
        more = (last - usual)[np.searchsorted(self.series.ranks, where)] if where else np.zeros(1)
        left = more.max() if named.links else more.mean() * (1 - self._in_work)
        off = self.panel.doubt[np.isin(self.panel.kind, (BUSY, LATE))].max() * waits[-age:].max(axis=1)
        doubt = np.sqrt((off**2).mean() / min(age, len(waits)))
        return float(max(left, doubt)) >= EXCUSED * named.share * self.panel.step_s

    @property
    def _in_work(self) -> float:
        """What a second that a rank waits for a core adds to its own work."""
        assert self.panel is not None
        return min(float(self.panel.slope[np.isin(self.panel.kind, (BUSY, LATE))].max()), 1.0)

    def _whole_host(self, named: Named, suspects: list[Suspected]) -> Named:
        """The same, of all ranks of a host where most of them are named, nobody else is, and the host is suspected itself."""
        assert self.series is not None
        places = [self.series.place(one.series) for one in suspects]
        for index in (index for kind, index in places if kind == HOST):
            ranks = self.series.ranks[self.series.host == self.series.host_rows[index]].tolist()
            if not named.links and set(named.ranks) < set(ranks) and 2 * len(named.ranks) > len(ranks):
                return msgspec.structs.replace(named, ranks=tuple(ranks))
        return named

    def _since(self, named: Named, suspects: list[Suspected]) -> Named:
        """The same; of what the whole window has, from when it was suspected: it may have begun before the window."""
        assert self.series is not None
        began = self.series.done - max(one.age for one in suspects) + 1
        return named if named.past else msgspec.structs.replace(named, since_step=max(min(named.since_step, began), 0))

    def _ranks(self, suspects: list[Suspected]) -> set[int]:
        assert self.series is not None
        out = set[int]()
        for one in suspects:
            kind, index = self.series.place(one.series)
            if kind in (LATE, BUSY, LOADER, DEVICE):
                out.add(int(self.series.ranks[index]))
            elif kind == HOST:
                out |= set(self.series.ranks[self.series.host == self.series.host_rows[index]].tolist())
        return out

    # -- findings -------------------------------------------------------------------------------------------------------

    def _opened(self, named: list[Named], suspects: list[Suspected], found: Look) -> list[LiveFinding]:
        """Tell what is new; what was open already explains the suspicion."""
        assert self.series is not None
        everything = np.array([one.series for one in suspects])
        self._explained |= set(everything.tolist())
        self.tries, self.counts["tries"] = [], 0
        begun = max(self.series.done - max(one.age for one in suspects) + 1, 0)
        out = []
        for one in named:
            if one.place not in self.open and not self._known(one):
                part, own = self._part(one), self._of(one, suspects) or suspects
                since = min(begun, one.since_step) if one.older else one.since_step
                told, explains = self._tell.finding(one, self._recent.newest, self.series.done, since, found.cannot_see), NONE
                if part is not None:  # the same thing, of more ranks than were seen first
                    before = self.open.pop(part)
                    told = msgspec.structs.replace(told, id=before.told.id, delay_steps=before.told.delay_steps)
                    explains = np.union1d(before.series, before.explains)
                series, shift = np.array([s.series for s in own]), max(s.shift for s in own)
                self.open[one.place] = Open(told, one, series, explains, max(shift, 1e-9))
                out.append(told)
        for known in self.open.values():
            if known.named is not None and len(known.series):
                more = np.array([s.series for s in self._of(known.named, suspects)], np.int64)
                known.series, known.explains = np.union1d(known.series, more), np.union1d(known.explains, everything)
        return out

    def _of(self, named: Named, suspects: list[Suspected]) -> list[Suspected]:
        """What is suspected of the place that is named: its ranks, their hosts, transfers of its links."""
        assert self.series is not None
        ranks, kind = set(named.ranks) | named.ends, self.series.kind
        return [one for one in suspects if (named.links and kind[one.series] == TRANSFER) or self._ranks([one]) & ranks]

    def _part(self, named: Named) -> tuple[object, ...] | None:
        """The open finding of the same mode about some of the same ranks."""
        return next(
            (
                place
                for place, known in self.open.items()
                if known.named is not None
                and known.named.mode == named.mode
                and known.named.ranks
                and not known.named.links
                and not named.links
                and set(known.named.ranks) < set(named.ranks)
            ),
            None,
        )

    def _known(self, named: Named) -> bool:
        """Whether something open is about the same place in other words, or began when something without a place did."""
        return any(known.named is not None and same_place(named, known.named) for known in self.open.values())

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
                back = np.union1d(one.series, one.explains)
                self.panel.calm(back)
                self._explained -= set(back.tolist())
        return out

    def _still(self, series: Ints) -> bool:
        """Whether some of the series still have outliers."""
        assert self.panel is not None
        return bool((self.panel.since_spike[series] < CALM).any())

    def _close(self, place: tuple[object, ...]) -> LiveFinding:
        told = self.open.pop(place).told
        return msgspec.structs.replace(told, state="closed", at_ns=self._tell.clock())

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
            self.regime, self.doubts = None, []
            return []
        places = {one.place: one for one in found.named}
        self._repeated = Counter({place: self._repeated[place] + 1 for place in places})
        out, self.doubts = [], []
        for place, named in places.items():
            new = place not in self.open and not self._known(named) and not self._excused(named)
            if new and self._repeated[place] < THRICE:
                self.doubts.append(named)
            elif new:
                since = None if named.older else named.since_step
                told = self._tell.finding(named, self._recent.newest, self.series.done, since, found.cannot_see)
                self.open[place] = Open(told, named, NONE, NONE, 0.0)
                out.append(told)
        return [*out, *self._gone(places)]

    def _gone(self, places: Container[tuple[object, ...]]) -> list[LiveFinding]:
        """Findings that are not there minute after minute."""
        out = []
        for known, one in list(self.open.items()):
            if one.named is not None and not len(one.series):
                one.missed = 0 if known in places else one.missed + 1
                if one.missed >= THRICE:
                    out.append(self._close(known))
        return out

    # -- hangs ----------------------------------------------------------------------------------------------------------

    def _stopped(self, now_ns: int) -> list[LiveFinding]:
        meets = self.series.meets if self.series is not None else {}
        found = stopped(self.last, self._recent.newest, meets, self.panel.step_s if self.panel is not None else 1.0, now_ns)
        place = (HANG,)
        if found is None:
            return [self._close(place)] if place in self.open else []
        if place in self.open:
            return []
        told = self._tell.hang(found, self._recent.newest, self.series.done if self.series is not None else None, now_ns)
        self.open[place] = Open(told, None, NONE, NONE, 0.0)
        return [told]
