"""Modelled jobs as a collector would see them: endless, with a fault from some step on, or healthy however long they run.

Ranks meet at the gates of a step, all of them, or in pipelines of replicas two by two; work is lognormal with memory, hiccups
and heavy tails, ranks are unequal for good, checkpoints and evaluations come every so many steps. Times are added up as the
max-plus system says, and nothing here is shared with what is tested.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from taut.core.array_types import Floats, Ints, Mask
from taut.watch.seen import BACKWARD, LOAD, OPTIMIZER, Events, Meeting, Seat, Seen

S = 1e9
ENDS_EVERY = 16
LOAD_SHARE, OPTIMIZER_SHARE, TRANSFER_SHARE = 0.05, 0.05, 0.12


@dataclass
class LiveJob:
    """One job; ``sees`` is what its ranks notice: ``calls`` (one gate a step, with ends) or ``hooks`` (many, few with ends)."""

    ranks: int
    seed: int
    sees: str = "calls"
    gates: int = 1
    step_s: float = 0.4
    jitter: float = 0.03
    """Spread of a step's work from step to step."""
    memory: float = 0.0
    """Of that spread: AR(1)."""
    unequal: float = 0.02
    hiccups: float = 0.002
    """Share of a rank's steps with a pause."""
    hiccup_s: float = 0.3
    tails: bool = False
    save_every: int = 0
    save_s: float = 0.2
    evaluate_every: int = 0
    fault: str = "none"
    since: int = 0
    strength: float = 0.2
    """Share of a step."""
    a_host: int = 8
    rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng((self.seed, self.ranks, 77))
        self.gates = 1 if self.sees == "calls" else max(self.gates, 2)
        self.speed = np.exp(self.unequal * self.rng.standard_normal(self.ranks))
        self.rank = int(self.rng.integers(self.ranks))
        self.red = np.zeros(self.ranks)
        self.step, self.time = 0, 1e12
        self.ended = np.zeros(self.ranks)
        """How much later than the last gate's opening each rank left it, ns."""
        share = self.rng.dirichlet(np.full(self.gates, 20.0))
        self.part = share * (1 - LOAD_SHARE - OPTIMIZER_SHARE - TRANSFER_SHARE) * self.step_s

    @property
    def place(self) -> tuple[int, ...]:
        """The ranks at fault; of a slow link its receiver."""
        if self.fault == "host":
            first = self.rank - self.rank % self.a_host
            return tuple(range(first, min(first + self.a_host, self.ranks)))
        return () if self.fault in ("none", "all") else (self.rank,)

    def _noise(self, n: int) -> Floats:
        white = (
            self.rng.standard_t(4, (n, self.ranks)).clip(-8, 8) / np.sqrt(2)
            if self.tails
            else self.rng.standard_normal((n, self.ranks))
        )
        if not self.memory:
            return white
        out = np.empty_like(white)
        for i in range(n):
            self.red = self.memory * self.red + np.sqrt(1 - self.memory**2) * white[i]
            out[i] = self.red
        return out

    def block(self, n: int) -> Block:
        """The next steps."""
        steps = self.step + np.arange(n)
        factor = self.speed * np.exp(self.jitter * self._noise(n))
        more = np.zeros((n, self.ranks))
        pause = self.rng.random((n, self.ranks)) < self.hiccups
        more[pause] += self.rng.exponential(self.hiccup_s, int(pause.sum()))
        load = LOAD_SHARE * self.step_s * np.exp(0.1 * self.rng.standard_normal((n, self.ranks)))
        after = OPTIMIZER_SHARE * self.step_s * np.exp(0.05 * self.rng.standard_normal((n, self.ranks)))
        if self.save_every:
            saves = (steps + 1) % self.save_every == 0
            after[saves] += self.save_s * np.exp(0.2 * self.rng.standard_normal((int(saves.sum()), self.ranks)))
            after[saves, 0] += self.save_s
        if self.evaluate_every:
            after[(steps + 1) % self.evaluate_every == 0] += 40 * self.step_s
        transfer = TRANSFER_SHARE * self.step_s / self.gates * np.exp(0.05 * self.rng.standard_normal((n, self.gates)))
        apart = np.abs(self.rng.standard_normal((n, self.gates, self.ranks))) * 20e-6
        on = steps >= self.since
        work = factor[:, None, :] * self.part[:, None]
        self._disturb(on, steps, more, load, work, transfer, apart)
        where = self.rng.integers(self.gates, size=(n, self.ranks))
        work += more[:, None, :] * (where[:, None, :] == np.arange(self.gates)[:, None])
        return self._played(n, load, work, after, transfer, apart)

    def _disturb(
        self, on: Mask, steps: Ints, more: Floats, load: Floats, work: Floats, transfer: Floats, apart: Floats
    ) -> None:
        amount, at = self.strength * self.step_s, self.rank
        match self.fault:
            case "slow":
                work[on, :, at] *= 1 + amount / self.part.sum()
            case "host":
                work[np.ix_(on, np.arange(self.gates), np.array(self.place))] *= 1 + amount / self.part.sum()
            case "all":
                work[on] *= 1 + amount / self.part.sum()
            case "drift":
                grown = np.minimum((steps - self.since) / 40, 1.0) * amount / self.part.sum()
                work[on, :, at] *= 1 + grown[on, None]
            case "loader":
                load[on, at] += amount * self.rng.uniform(0.6, 1.4, int(on.sum()))
            case "stall":
                some = on & (self.rng.random(len(steps)) < 1 / 3)
                more[some, at] += 3 * amount
            case "link":
                # Behind a slow link of a ring its receiver ends last, the others a stair each before it.
                rounds = 2 * (self.ranks - 1)
                stairs = (np.arange(self.ranks) - at) % self.ranks
                stairs = np.minimum(stairs, 2 * (self.ranks - stairs) * (stairs > 0))
                slower = amount / self.gates
                transfer[on] += slower
                apart[on] += -np.minimum(stairs, rounds - 1) * slower / rounds
            case _:
                pass

    def _played(self, n: int, load: Floats, work: Floats, after: Floats, transfer: Floats, apart: Floats) -> Block:
        """Add times up: a gate opens when its last member has come."""
        came, left = np.empty_like(work), np.empty_like(work)
        begin, loaded, done = np.empty((n, self.ranks)), np.empty((n, self.ranks)), np.empty((n, self.ranks))
        free = self.time + self.ended
        for i in range(n):
            begin[i] = free
            free = loaded[i] = free + load[i] * S
            for g in range(self.gates):
                came[i, g] = free + work[i, g] * S
                opens = came[i, g].max()
                free = left[i, g] = opens + np.maximum(transfer[i, g] + apart[i, g], 0) * S
            free = done[i] = free + after[i] * S
        self.time, self.ended = 0.0, free  # from now on
        self.step += n
        return Block(self, self.step - n, begin, loaded, came, left, done)


@dataclass
class Block:
    """Some steps of a job, ns."""

    job: LiveJob
    first: int
    begin: Floats
    loaded: Floats
    came: Floats
    left: Floats
    done: Floats

    def seen(self, ended: frozenset[int] = frozenset()) -> Seen:
        """The same as the collector's window tells it."""
        job, (n, gates, ranks) = self.job, self.came.shape
        rank = np.broadcast_to(np.arange(ranks), (n, ranks))
        step = np.broadcast_to(self.first + np.arange(n)[:, None], (n, ranks))
        classes = [Meeting(LOAD), Meeting(BACKWARD), Meeting(OPTIMIZER)]
        back = self.loaded + 0.35 * (self.came[:, -1] - self.loaded)
        stages = [(0, self.begin, self.loaded), (2, self.left[:, -1], self.left[:, -1] + 0.9 * (self.done - self.left[:, -1]))]
        met = []
        if job.sees == "calls":
            stages.append((1, back, self.came[:, -1]))
            met.append(_events(rank, 1, step, self.came[:, 0], self.left[:, 0]))
        else:
            classes.append(Meeting("allreduce", "dp", tuple(range(ranks))))
            for g in range(gates):
                number = step * gates + g
                met.append(_events(rank, 3, number, self.came[:, g], np.where(number % ENDS_EVERY == 0, self.left[:, g], 0)))
        joined = Events(*(np.concatenate([getattr(one, name) for one in met]) for name in Events.__struct_fields__))
        staged = [_events(rank, klass, step, begin, end) for klass, begin, end in stages]
        of_stages = Events(*(np.concatenate([getattr(one, name) for one in staged]) for name in Events.__struct_fields__))
        seats = {r: Seat(f"node{r // job.a_host}", r % job.a_host, f"boot{r // job.a_host}", job.sees) for r in range(ranks)}
        return Seen(joined, of_stages, _events(rank, -1, step, self.begin, self.done), classes, seats, ended)


def _events(rank: Ints, klass: int, number: Ints, begin: Floats, end: Floats) -> Events:
    count = rank.size
    return Events(
        rank.ravel().astype(np.int64),
        np.full(count, klass),
        number.ravel().astype(np.int64),
        np.zeros(count, np.int64),
        np.rint(begin).ravel().astype(np.int64),
        np.rint(end).ravel().astype(np.int64),
    )


class Played:
    """Gives the steps of a job to a detector, a second or so at a time, on the job's own clock."""

    def __init__(self, job: LiveJob, steps_at_once: int = 4) -> None:
        self.job, self.at_once = job, steps_at_once
        self.now_ns = 0

    def new(self, _: int) -> Seen:
        """The next events."""
        block = self.job.block(self.at_once)
        self.now_ns = int(block.done.max())
        return block.seen()
