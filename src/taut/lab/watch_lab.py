"""Real jobs of the lab, watched live: which place is named first after a fault began in mid-run, and after how many steps.

    python -m taut.lab.watch_lab --jobs ddp fsdp pipeline --faults none slow stall loader link quota --seed 1 -o out

A job runs healthy, with its fault from some step on, and healthy again. What its ranks noticed is received by a collector's
window once a second, in the order in which they sent it, and looked at as in ``taut watch collect``.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
from msgspec import Struct

from taut.lab.case import FATAL, PLAIN, Spec
from taut.lab.run_case import Lab
from taut.lab.truth import HEALTHY, Injected, Truth, load
from taut.lab.watched_rank import EVERY_S, FOLDER
from taut.result.types import LiveFinding
from taut.watch.event_rows import RECEIVED, Room
from taut.watch.live_findings import Live
from taut.watch.seen import Feed
from taut.watch.window import Hello, Names, Place, Window
from taut.watch.wire import runs


class About(Struct, frozen=True):
    """What a watched rank says of itself."""

    rank: int
    host: str
    sees: str
    places: list[dict[str, object]]
    sent: list[tuple[int, int]]
    """When it sent, ns, and how many events."""
    dropped: int
    faults: int


class Watch(Struct, frozen=True):
    """How a watched job went."""

    job: str
    fault: str
    seed: int
    onset: int
    """First faulty step, as the ranks count."""
    told: tuple[tuple[int, LiveFinding], ...]
    """Every finding that was told, and the step that was then complete."""
    right: bool | None
    """Whether the first finding since the onset names the place; None where there is nothing to name."""
    mode_right: bool | None
    delay: int | None
    """Steps from the onset to it."""
    alarms: int
    """Findings before the onset; of a healthy job all."""
    share: float | None
    """What the fault adds to a step, as a share of a healthy one."""
    counts: dict[str, int]
    steps: int
    hours: float


def played(folder: Path, truth: Truth, steps: int) -> Watch:
    """Look at what was kept of a run, second by second."""
    abouts, bodies = _opened(folder)
    window = Window(truth.job, Room(1 << 28))
    members, names = {}, {}
    first = min(one.sent[0][0] for one in abouts if one.sent)
    for one in abouts:
        hello = Hello(one.rank, truth.ranks, one.host, -1, truth.job, one.rank, f"{one.rank}", one.sees, "boot")
        members[one.rank], _ = window.join(hello, first)
        names[one.rank] = [_place(place) for place in one.places]
        window.name(members[one.rank], Names(0, names[one.rank]))
    live, told = Live(Feed(window).new, truth.job), []
    last = first
    for now in _seconds(abouts):
        for one in abouts:
            body = bodies[one.rank].until(now)
            if body:
                window.add(members[one.rank], body, now)
        window.fold(now)
        told += [(live.series.done if live.series else 0, found) for found in live.look(now)]
        last = now
    return _judged(truth, steps, told, dict(live.counts), (last - first) / 3.6e12)


class _Body:
    """The events of a rank, as they were sent."""

    def __init__(self, about: About, data: bytes) -> None:
        self.sent, self.data, self.turn, self.at = about.sent, data, 0, 0

    def until(self, now: int) -> bytes:
        """What was sent by then, and was not asked for before."""
        count = 0
        while self.turn < len(self.sent) and self.sent[self.turn][0] <= now:
            count += self.sent[self.turn][1]
            self.turn += 1
        first, self.at = self.at, self.at + count * RECEIVED.itemsize
        return self.data[first : self.at]


def _opened(folder: Path) -> tuple[list[About], dict[int, _Body]]:
    abouts = [msgspec.json.decode(path.read_bytes(), type=About) for path in sorted((folder / FOLDER).glob("rank*.json"))]
    return abouts, {one.rank: _Body(one, (folder / FOLDER / f"rank{one.rank}.bin").read_bytes()) for one in abouts}


def _place(place: dict[str, object]) -> Place:
    ranks = place.get("ranks")
    asked = msgspec.convert({**place, "ranks": []}, Place)
    return msgspec.structs.replace(asked, ranks=tuple(runs(msgspec.convert(ranks or [], list[int]))))


def _seconds(abouts: Sequence[About]) -> Iterator[int]:
    times = [at for one in abouts for at, _ in one.sent]
    yield from range(min(times), max(times) + int(2 * EVERY_S * 1e9), int(EVERY_S * 1e9))


def _judged(truth: Truth, steps: int, told: list[tuple[int, LiveFinding]], counts: dict[str, int], hours: float) -> Watch:
    faults = [one for one in truth.injected if one.mode]
    onset = PLAIN + steps + min((one.first_step for one in faults), default=0)
    if truth.fault in FATAL:
        onset += steps
    opened = [(at, one) for at, one in told if one.state == "open"]
    healthy = truth.fault in HEALTHY
    since = [] if healthy else [(at, one) for at, one in opened if at >= onset]
    alarms = len(opened) if healthy else sum(at < onset for at, _ in opened)
    right = None if healthy else bool(since) and any(fits(since[0][1], fault) for fault in faults)
    mode = None if healthy else bool(since) and any(since[0][1].mode == fault.mode for fault in faults)
    return Watch(
        truth.job,
        truth.fault,
        truth.seed,
        onset,
        tuple(told),
        right,
        mode,
        since[0][0] - onset + 1 if since else None,
        alarms,
        _share(truth),
        counts,
        steps,
        hours,
    )


def _share(truth: Truth) -> float | None:
    if not truth.injected or not truth.healthy_ns:
        return None
    healthy = float(np.median([ns for part in truth.healthy_ns for ns in part]))
    return float(np.mean(truth.faulted_ns[truth.onset :])) / healthy - 1


def fits(found: LiveFinding, fault: Injected) -> bool:
    """Whether a finding names the place of a fault: its ranks; its link and at most one more; links of its interface."""
    if not fault.links:
        return set(found.ranks) == set(fault.ranks) and not found.links
    if len(fault.links) == 1:
        return fault.links[0] in found.links and len(found.links) <= 2
    owner = fault.ranks[0]
    return bool(found.links) and all(owner in map(int, link.split(":")) for link in found.links)


def _line(one: Watch) -> str:
    what = "; ".join(f"{f.state} {f.mode} {f.ranks} {' '.join(f.links)} at {at}" for at, f in one.told[:3]) or "nothing"
    place = "–" if one.right is None else "yes" if one.right else "no"
    share = "–" if one.share is None else f"{100 * one.share:.0f} %"
    delay = "–" if one.delay is None else str(one.delay)
    return f"| {one.job} | {one.fault} | {one.seed} | {share} | {place} | {delay} | {one.alarms} | {what} | {one.counts} |"


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", nargs="+", default=["ddp", "fsdp", "pipeline"])
    parser.add_argument("--faults", nargs="+", default=["none", "slow", "stall", "loader", "link", "quota"])
    parser.add_argument("--seed", type=int, nargs="+", default=[1])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--again", action="store_true", help="look again at runs that are there")
    parser.add_argument("-o", "--out", type=Path, required=True)
    asked = parser.parse_args()
    specs = [
        Spec(
            job=job,
            fault=fault,
            seed=seed,
            steps=asked.steps,
            ranks=asked.ranks,
            watch=True,
            folder=str(asked.out.absolute() / f"{job}-{fault}-{seed}"),
        )
        for job in asked.jobs
        for fault in asked.faults
        for seed in asked.seed
    ]
    print("| job | fault | seed | adds | place first right | delay, steps | alarms before | told | counts |")
    print("|---|---|---|---:|---|---:|---:|---|---|", flush=True)
    done = []
    if asked.again:
        done = [_looked(spec) for spec in specs if Path(spec.folder).exists()]
    else:
        with Lab() as lab:
            for spec in specs:
                lab.run(spec)
                done.append(_looked(spec))
    judged = [one for one in done if one.right is not None]
    delays = [one.delay if one.delay is not None else 10**6 for one in judged]
    if judged:
        middle, most = np.quantile(delays, (0.5, 0.9), method="higher")
        print(
            f"place first right {sum(bool(one.right) for one in judged)} of {len(judged)}, "
            f"delay {middle} and {most} (p90) steps"
        )
    print(f"alarms {sum(one.alarms for one in done)} in {sum(one.hours for one in done):.2f} h; load {os.getloadavg()}")


def _looked(spec: Spec) -> Watch:
    folder = Path(spec.folder)
    began = time.process_time()
    one = played(folder, load(folder), spec.steps)
    print(_line(one), f"{time.process_time() - began:.1f} s", flush=True)
    return one


if __name__ == "__main__":
    main()
