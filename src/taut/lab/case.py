"""What is going to be run: a job, a fault drawn from the seed, and the plain numbers both sides of a fork need."""

from __future__ import annotations

import zlib

import msgspec
import numpy as np

from taut.core.errors import UsageError
from taut.lab.truth import HEALTHY, MODES, ON_ALL, Injected

JOBS = ("ddp", "fsdp", "tp-fsdp", "pipeline", "hsdp")
PLAIN_JOB = "plain"
"""Processes without torch that sleep and meet: as many as a machine of two cores can hold up."""
DEVICES = ("cpu", "cuda")
STEPS = 30
"""Steps of a recorded part; the first is dropped by the analysis because the profiler slows it."""
PLAIN = 8
"""Steps before, without the profiler: they warm the job up and say what recording costs."""
MICRO = 6
"""Micro-batches of the pipeline."""
SAVE_EVERY = 4
"""Steps between checkpoints."""
RELAYED = ("latency", "loss")
"""Faults that need the userspace relay on a rank's link."""
FATAL = ("hang", "kill")
"""Faults that a job does not survive: they come last, after the healthy parts."""
OUTSIDE = ("link", "link-one-way", "latency", "loss", "two", "quota", "skew", "contention")
"""Faults done to a rank's network, control group or clock: ranks on a GPU are plain processes and have none of their own."""
LOCAL = "local-steps"
"""The same steps with the same faults, in which ranks meet only in every ``TAU``-th step: what that policy really saves."""
TAU = 4
PIECES = 4
"""Pieces of emulated work in a step of ddp: two blocks, forward and backward."""
FAULTED = ("faulted", "unprofiled", LOCAL)
"""Parts in which the fault is there: the analysed one, the same without the profiler (on a GPU), the same with local steps."""
KERNEL = "spin_kernel"
"""Class of the kernel that emulates compute on a GPU; a slow rank is slow in it."""
ON_DEVICE = ("slow", "drift", "out-of-step")
"""Faults that make compute longer."""
CARRIED = 8
"""Ranks up to which two cores do what is real within what is emulated; with more ranks that takes longer in proportion."""
RATES = {"": (45, 120), "pipeline": (12, 25)}
"""Mbit/s of a slow link, such that it matters: hops hide under compute until they take longer than a micro-batch."""
PERIOD_MS = 20
"""Period of the CPU quota."""
TOUCHED = ("slow", "quota", "stall", "link", "link-one-way", "latency", "loss", "loader", "checkpoint")
"""Faults that may be there from the start, and in several places at once."""
NETWORK = ("link", "link-one-way", "latency", "loss")
"""Faults of the network: in several places they are several faults."""
HOST = "host"
"""``places``: the ranks of one host."""
RARE = ("loss",)
"""Faults that show now and then only: the flight recorder goes on after the profiler, for ``LONGER`` times as many steps."""
LONGER = 4
STOP_MS, CALM_MS = (100.0, 200.0), (500.0, 1500.0)
"""Under contention: how long a core is taken away, and the mean time until the next stop on that core."""

HICCUP_RATES = {PLAIN_JOB: (0.008, 0.016), "": (0.05, 0.09)}
"""Share of a rank's steps in which a hiccup begins: plain processes are many, torch ranks few."""
PAUSES_MS = {PLAIN_JOB: (60.0, 110.0), "": (80.0, 140.0)}
"""Median length of a hiccup; from eight torch ranks on as long in proportion as their work."""
TAILS = (0.2, 0.7)
"""Spread of the logarithm of a hiccup's length."""
LASTING = (3, 4)
"""Steps that a long hiccup lasts; as many fewer of them begin."""
UNEQUAL = (0.05, 0.10)
"""Spread of the logarithm of speed over the ranks."""
DRIFT = (0.3, 0.5)
"""Share by which everybody's work has grown at the last step."""


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """One lab run."""

    job: str
    fault: str
    ranks: int = 4
    seed: int = 0
    steps: int = STEPS
    device: str = "cpu"
    from_start: bool = False
    """The fault is there from the first step of the faulted part: what is analysed holds no healthy step."""
    places: str = "1"
    """How many ranks, or links, have the fault; ``host``: all ranks of one host, whose ranks share its name."""
    cores: tuple[int, ...] = ()
    """Cores of the machine that its ranks share, each on one of them; all there are, if none is named."""
    watch: bool = False
    """Ranks are watched live instead of profiled: what they noticed is kept in ``watch``, nothing else is recorded."""
    folder: str

    @property
    def ranks_a_host(self) -> int:
        """Ranks that share a host name: one, or with ``--places host`` two, and four hosts from eight ranks on.

        Plain processes share it by eights.
        """
        if self.job == PLAIN_JOB:
            return 8
        return max(2, self.ranks // 4) if self.places == HOST else 1

    @property
    def hosts(self) -> tuple[str, ...]:
        """Host name of every rank."""
        return tuple(f"node{rank // self.ranks_a_host}" for rank in range(self.ranks))

    @property
    def untraced(self) -> int:
        """Steps of the faulted part that only the flight recorder holds."""
        return LONGER * self.steps if self.fault in RARE else 0

    @property
    def parts(self) -> tuple[str, ...]:
        """Recorded parts in order: the faulted one between two healthy ones, last if the job does not survive it."""
        if self.again:
            return (FAULTED[0], LOCAL) if self.seed % 2 else (LOCAL, FAULTED[0])
        if self.fault in FATAL:
            return ("healthy-0", "healthy-1", "faulted")
        return ("healthy-0", *FAULTED[: 1 if self.device == "cpu" else 2], "healthy-1")

    @property
    def again(self) -> bool:
        """Whether the job runs twice, with all ranks' faults and without local steps, instead of with a fault and without."""
        return self.fault in ON_ALL or self.job == PLAIN_JOB

    def check(self) -> None:
        """Refuse what cannot be run, in one line."""
        if self.job not in (*JOBS, PLAIN_JOB):
            raise UsageError(f"--job {self.job}: no such job; it has {', '.join((*JOBS, PLAIN_JOB))}")
        if self.fault not in MODES:
            raise UsageError(f"--fault {self.fault}: no such fault; it has {', '.join(MODES)}")
        if self.fault == "set":
            raise UsageError("--fault set: only modelled jobs have it; a real one is --fault slow --places 2, or --places host")
        if self.device not in DEVICES:
            raise UsageError(f"--device {self.device}: no such device; it has {', '.join(DEVICES)}")
        if self.device != "cpu" and self.fault in OUTSIDE:
            raise UsageError(f"--fault {self.fault}: not with --device {self.device}, where ranks have no network of their own")
        if not 2 <= self.ranks <= 64:
            raise UsageError(f"--ranks {self.ranks}: the lab runs 2 to 64 ranks on one machine")
        if (self.ranks < 4 and (self.job in ("tp-fsdp", "hsdp") or self.fault in ("two", "out-of-step"))) or self.ranks % 2:
            raise UsageError(f"--ranks {self.ranks}: {self.job} with {self.fault} needs an even number, at least 4")
        if self.fault == "out-of-step" and self.job != "hsdp":
            raise UsageError("--fault out-of-step needs --job hsdp: only there a group can lose the others and go on")
        if self.steps < 12:
            raise UsageError(f"--steps {self.steps}: at least 12, for steps before and after the onset")
        self._check_places()
        if self.again:
            self._check_again()

    def _check_again(self) -> None:
        if self.job not in ("ddp", PLAIN_JOB):
            raise UsageError(f"--job {self.job}: not with {self.fault}; it goes with ddp and {PLAIN_JOB}")
        if self.fault not in (*ON_ALL, "none"):
            raise UsageError(f"--fault {self.fault}: not with {PLAIN_JOB}; it has none, {', '.join(ON_ALL)}")
        if self.device != "cpu" or self.steps % TAU:
            raise UsageError(f"--fault {self.fault}: needs --device cpu and a multiple of {TAU} --steps, such as 120")

    def _check_places(self) -> None:
        if self.from_start and self.fault not in TOUCHED:
            raise UsageError(f"--from-start: not with {self.fault}; it goes with {', '.join(TOUCHED)}")
        if self.places == HOST:
            if self.device != "cpu" or self.ranks < 4 or self.ranks % self.ranks_a_host:
                raise UsageError(f"--places host: needs --device cpu and hosts of equal size, not {self.ranks} ranks")
        elif not (self.places.isdecimal() and 1 <= int(self.places) < self.ranks):
            raise UsageError(f"--places {self.places}: {HOST}, or a number from 1 to {self.ranks - 1}")
        if self.fault not in TOUCHED and self.places != "1" and not (self.places == HOST and self.fault in HEALTHY):
            raise UsageError(f"--places {self.places}: not with {self.fault}; it goes with {', '.join(TOUCHED)}")


def neighbours(job: str, ranks: int) -> list[tuple[int, int]]:
    """Directed links (sender, receiver) that a job's traffic crosses; gloo's rings send r → r−1 in the group's order."""
    if job == "pipeline":
        return [pair for r in range(ranks - 1) for pair in ((r, r + 1), (r + 1, r))]
    if job in ("ddp", "fsdp", PLAIN_JOB):
        return [(r, (r - 1) % ranks) for r in range(ranks)]
    half = ranks // 2
    grid = np.arange(ranks).reshape(half, 2) if job == "tp-fsdp" else np.arange(ranks).reshape(2, half)
    return sorted({(int(g[i]), int(g[i - 1])) for g in (*grid, *grid.T) for i in range(len(g)) if g[i] != g[i - 1]})


def draw(spec: Spec) -> tuple[Injected, ...]:
    """Place, onset and strength of a run's fault, from its seed."""
    rng = np.random.default_rng((spec.seed, zlib.crc32(spec.job.encode()), zlib.crc32(spec.fault.encode()), spec.ranks))
    onset, last = int(rng.integers(spec.steps // 4 + 1, spec.steps // 3 + 3)), spec.steps - 1
    rank = int(rng.integers(spec.ranks))
    onset = 0 if spec.from_start else onset

    def injected(fault: str, rank: int, first: int = onset, last: int = last) -> Injected:
        return _injected(spec, fault, rank, first, last, rng)

    match spec.fault:
        case "none" | "skew" | "contention":
            return ()
        case fault if fault in ON_ALL:
            return (law(spec), *([injected("slow", rank)] if fault == "both" else []))
        case "moving":
            middle, other = (onset + last) // 2, (rank + int(rng.integers(1, spec.ranks))) % spec.ranks
            return (injected("slow", rank, onset, middle), injected("slow", other, middle + 1, last))
        case "two":
            far = (rank + spec.ranks // 2) % spec.ranks
            return (injected("slow", rank), injected("link", far))
        case _:
            one = injected(spec.fault, rank)
            return (one,) if spec.places == "1" else _in_places(spec, one, rank, rng)


def _in_places(spec: Spec, one: Injected, rank: int, rng: np.random.Generator) -> tuple[Injected, ...]:
    """The same fault, of the same strength, in several places: a set of ranks is one fault, links are one each."""
    if spec.places == HOST:
        ranks = [r for r in range(spec.ranks) if spec.hosts[r] == spec.hosts[rank]]
    else:
        ranks = [rank, *rng.permutation([r for r in range(spec.ranks) if r != rank])[: int(spec.places) - 1].tolist()]
    if spec.fault not in NETWORK:
        return (msgspec.structs.replace(one, ranks=tuple(sorted(ranks))),)
    pairs = neighbours(spec.job, spec.ranks)
    if spec.fault == "link-one-way":
        leaving = [(s, d) for s, d in pairs if s in ranks and not (spec.places == HOST and d in ranks)]
        by_sender = dict(leaving[i] for i in rng.permutation(len(leaving)))  # one link of each sender
        return tuple(msgspec.structs.replace(one, links=(f"{s}:{d}",)) for s, d in sorted(by_sender.items()))
    return tuple(
        msgspec.structs.replace(one, ranks=(r,), links=tuple(f"{s}:{d}" for s, d in pairs if r in (s, d))) for r in ranks
    )


def contention(spec: Spec) -> dict[str, float]:
    """How often and for how long every core is taken away from the ranks on it; empty where none is."""
    if spec.fault != "contention":
        return {}
    rng = np.random.default_rng((spec.seed, 11, spec.ranks))
    return {"calm_ms": round(float(rng.uniform(*CALM_MS)), 1), "least_ms": STOP_MS[0], "most_ms": STOP_MS[1]}


def longer(ranks: int) -> float:
    """How many times as long emulated work takes in a job of so many ranks."""
    return max(1.0, ranks / CARRIED)


def _injected(spec: Spec, fault: str, rank: int, first: int, last: int, rng: np.random.Generator) -> Injected:
    def uniform(low: float, high: float) -> float:
        return round(float(rng.uniform(low, high)), 2)

    links: tuple[str, ...] = ()
    pairs = neighbours(spec.job, spec.ranks)
    strength: dict[str, float] = {}
    match fault:
        case "slow":
            # As long in proportion: the work that is emulated grows with ranks that two cores cannot carry.
            strength = {"ms": round(uniform(18, 45) * (1 if spec.job == PLAIN_JOB else longer(spec.ranks)), 2)}
        case "quota":
            strength = {"slowdown": uniform(1.35, 1.8)}
        case "stall":
            strength = {"on_ms": uniform(60, 120), "period_ms": uniform(260, 400)}
        case "link":
            strength = {"mbit": uniform(*RATES["pipeline" if spec.job == "pipeline" else ""])}
        case "link-one-way":
            sender, receiver = pairs[int(rng.integers(len(pairs)))]
            return Injected(
                fault=fault,
                links=(f"{sender}:{receiver}",),
                first_step=first,
                last_step=last,
                strength={"mbit": uniform(*RATES["pipeline" if spec.job == "pipeline" else ""])},
            )
        case "latency":
            strength = {"ms": uniform(3, 9), "jitter_ms": uniform(0.5, 2)}
        case "loss":
            strength = {"loss": uniform(0.02, 0.05)}
        case "loader":
            strength = {"ms": uniform(25, 60)}
        case "checkpoint":
            strength = {"ms": uniform(120, 280)}
        case "drift":
            strength = {"ms_a_step": uniform(1.5, 3)}
        case "out-of-step":
            strength = {"ms": uniform(10, 20)}
    if fault in ("link", "latency", "loss"):
        links = tuple(f"{s}:{d}" for s, d in pairs if rank in (s, d))
    ranks = tuple(range(spec.ranks // 2, spec.ranks)) if fault == "out-of-step" else (rank,)
    classes = (KERNEL,) if spec.device != "cpu" and fault in ON_DEVICE else ()
    return Injected(fault=fault, ranks=ranks, links=links, classes=classes, first_step=first, last_step=last, strength=strength)


def law(spec: Spec) -> Injected:
    """What is done to everybody, with its strength.

    It follows from the job and from the seed without its last digit, whatever the number of ranks: seeds that differ in
    the last digit only are jobs of one law.
    """
    fault = "hiccups" if spec.fault == "both" else spec.fault
    key = (spec.seed // 10, zlib.crc32(spec.job.encode()), zlib.crc32(fault.encode()))
    rng = np.random.default_rng(key)
    strength: dict[str, float]
    match fault:
        case "unequal":
            strength = {"spread": float(rng.uniform(*UNEQUAL))}
        case "drift-all":
            strength = {"share": float(rng.uniform(*DRIFT))}
        case _:
            kind = spec.job if spec.job == PLAIN_JOB else ""
            rate, ms, tail = (float(rng.uniform(*some)) for some in (HICCUP_RATES[kind], PAUSES_MS[kind], TAILS))
            lasting = int(rng.integers(LASTING[0], LASTING[1] + 1)) if fault == "long-hiccups" else 1
            scale = 1.0 if kind else longer(spec.ranks)
            strength = {"rate": rate / lasting, "ms": scale * ms, "tail": tail, "steps": lasting}
    strength = {key: round(value, 4) for key, value in strength.items()}
    return Injected(fault=fault, first_step=0, last_step=spec.steps - 1, strength=strength)


def clocks(spec: Spec) -> dict[int, tuple[float, float]]:
    """Offset (ns) and drift (ppm) of the clocks that run wrong, which ranks of a host share; rank 0 keeps the true time."""
    if spec.fault != "skew":
        return {}
    rng, hosts = np.random.default_rng((spec.seed, 7, spec.ranks)), list(dict.fromkeys(spec.hosts))
    wrong = rng.permutation(np.arange(1, len(hosts)))[: int(rng.integers(1, len(hosts)))]
    off = {
        hosts[h]: (float(rng.choice((-1, 1)) * rng.uniform(2e6, 20e6)), float(rng.uniform(-40, 40)) * bool(rng.integers(2)))
        for h in sorted(wrong.tolist())
    }
    return {rank: off[host] for rank, host in enumerate(spec.hosts) if host in off}
