"""The lab's host process: the switch of its network, the parent of its ranks, the one who turns faults on and off.

``lab/run_case.py`` starts it in a process and network namespace of its own, so that everything in it dies with it. It reads
one spec per line, runs it, and answers with one line each: what was made, or what went wrong.
"""

from __future__ import annotations

import contextlib
import csv
import mmap
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec
import numpy as np

from taut.core.errors import TautError
from taut.lab import net, truth
from taut.lab.case import FATAL, FAULTED, LOCAL, PERIOD_MS, RELAYED, TAU, Spec, clocks, contention, draw
from taut.lab.truth import Injected, Truth

if TYPE_CHECKING:
    from taut.lab.rank import Part

NEEDED = ("taut.lab.rank", "torch._dynamo", "torch.distributed.fsdp", "torch.distributed.tensor.parallel")
"""Imported once, before any fork: every rank of every run would take seconds for them."""
POLL_S = 0.003
SAMPLE_S = 0.2
HUNG_S, DUMP_S = 15, 1.5
"""After this long a hung job has come to its end; dumping the flight recorders takes no longer than that."""
PATIENCE_S = 300
"""A part that takes longer than this has failed."""


class Answer(msgspec.Struct):
    """One line to whoever asked."""

    folder: str = ""
    error: str = ""
    seconds: float = 0.0


def main(cgroup: str) -> None:
    """Serve specs from standard input until it closes; without a control group ranks share this machine's network."""
    if not cgroup:
        net.die_with_parent()
    for module in NEEDED:
        import_module(module)
    network = Network() if cgroup else None
    cores = os.sched_getaffinity(0)
    print("ready", flush=True)
    for line in sys.stdin:
        spec = msgspec.json.decode(line, type=Spec)
        began = time.monotonic()
        answer = Answer(folder=spec.folder)
        scratch = Path(spec.folder + ".partial")
        try:
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir(parents=True)
            os.sched_setaffinity(0, spec.cores or cores)
            places = network.places(spec) if network else [net.Loopback()] * spec.ranks
            with_truth = Host(spec, scratch, Path(cgroup), places).run()
            truth.save(with_truth, scratch)
            shutil.rmtree(spec.folder, ignore_errors=True)
            scratch.replace(spec.folder)
        except Exception as error:  # one run that fails must not take the lab with it
            answer.error = f"{type(error).__name__}: {error}"[:400]
            shutil.rmtree(scratch, ignore_errors=True)
        answer.seconds = time.monotonic() - began
        print(msgspec.json.encode(answer).decode(), flush=True)


class Network:
    """The sockets of a lab, made when first needed, used by run after run."""

    def __init__(self) -> None:
        net.switch()
        self.made: dict[tuple[int, bool], net.Socket] = {}

    def places(self, spec: Spec) -> list[net.Socket]:
        """One plugged socket for every rank, all others unplugged."""
        relayed = {i.ranks[0] for i in draw(spec) if i.fault in RELAYED}
        wanted = [(rank, rank in relayed) for rank in range(spec.ranks)]
        for key, place in self.made.items():
            if key not in wanted:
                place.unplug()
        for key in wanted:
            if key not in self.made:
                self.made[key] = net.Socket(*key)
            self.made[key].plug(os.sched_getaffinity(0))
        return [self.made[key] for key in wanted]


class Host:
    """One lab run from the outside."""

    def __init__(self, spec: Spec, folder: Path, cgroup: Path, places: Sequence[net.Socket | net.Loopback]) -> None:
        self.spec, self.folder = spec, folder
        self.injected = draw(spec)
        self.places = places
        self.progress = np.frombuffer(mmap.mmap(-1, 8 * (spec.ranks + 1)), dtype=np.int64)
        self.pids: list[int] = []
        self.links: list[Connection] = []
        self.faults = Faults(self, cgroup)
        self.hogs: list[int] = []
        self.reports: dict[str, list[Any]] = {}
        self.skewed_at = 0

    def run(self) -> Truth:
        """Start the ranks, lead them through the parts, and say what was done to them."""
        try:
            self._start()
            self.reports["plain"] = self._gather()
            self._contend()
            for part in self.spec.parts:
                self.progress[:-1] = -1
                if self.spec.from_start and part in FAULTED:
                    self.faults.at(0)
                began = time.monotonic_ns()
                self._tell("go")
                self.reports[part] = self._gather(part)
                self.skewed_at = (began + time.monotonic_ns()) // 2 - began
                self._write_logs(part)
        finally:
            self._end()
        return self._truth()

    def _start(self) -> None:
        from taut.lab import rank as rank_process

        for rank, place in enumerate(self.places):
            ours, theirs = Pipe()
            pid = os.fork()
            if pid == 0:
                rank_process.main(self.spec, rank, self.injected, place, theirs, self.progress, self.folder)
            theirs.close()
            self.pids.append(pid)
            self.links.append(ours)

    def _contend(self) -> None:
        """Under contention: one process for every core that takes it away now and then, whoever runs there."""
        for core in sorted(os.sched_getaffinity(0)) if contention(self.spec) else ():
            pid = os.fork()
            if pid == 0:
                _take_core(core, contention(self.spec), np.random.default_rng((self.spec.seed, core, 5)))
            self.hogs.append(pid)

    def _tell(self, word: str) -> None:
        for link in self.links:
            link.send(word)

    def _gather(self, part: str = "") -> list[Any]:
        """The report of every rank on a part; None for a rank that did not come back."""
        reports: list[Any] = [None] * self.spec.ranks
        open_ = dict(enumerate(self.links))
        patience = time.monotonic() + PATIENCE_S
        alone = self.spec.device == "cpu"  # else a rank's interface is the machine's, and says nothing of the rank
        sample = _Sampler(self.pids, self.folder / part / "host.csv") if part and alone else None
        while open_:
            ready = set(wait(list(open_.values()), POLL_S))
            for rank, link in list(open_.items()):
                if link in ready:
                    reports[rank] = self._checked(rank, part, _received(link))
                    del open_[rank]
            if part in FAULTED:
                self.faults.at(int(self.progress[:-1].max()))
            if sample is not None:
                sample.tick()
            if self.spec.fault in FATAL and part == "faulted" and self._is_over(set(open_)):
                break
            if time.monotonic() > patience:
                raise TautError(f"{part or 'start'}: ranks {sorted(open_)} did not come back in {PATIENCE_S} s")
        self.faults.clear()
        if sample is not None:
            sample.write()
        return reports

    def _is_over(self, silent: set[int]) -> bool:
        """Whether a job that was hung or killed has come to its end: the survivors are back, or hang as well."""
        if silent - set(self.injected[0].ranks) and time.monotonic() < self.faults.since + HUNG_S:
            return False
        if silent and self.progress[-1] == 0:
            self.progress[-1] = 1  # whoever does not come back dumps its flight recorder
            time.sleep(DUMP_S)
        return bool(silent)

    def _checked(self, rank: int, part: str, answer: Part | str) -> Part | str:
        """The report of a rank, unless it failed where no failure was ordered."""
        failed = answer if isinstance(answer, str) else answer.failed
        if failed and not (self.spec.fault in FATAL and part == "faulted"):
            raise TautError(f"{part or 'start'}: rank {rank} failed: {failed}")
        return answer

    def _write_logs(self, part: str) -> None:
        with (self.folder / part / "steps.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(("rank", "step", "start_ns", "end_ns", "loss"))
            for rank, report in enumerate(self.reports[part]):
                for step, (_, _, begin, end, loss) in enumerate(getattr(report, "steps", ())):
                    rows.writerow((rank, step, begin, end, f"{loss:.6f}"))

    def cpu_share(self, rank: int) -> float:
        """CPU seconds per second that a rank used in the first healthy part."""
        report = self.reports["healthy-0"][rank]
        return float(report.cpu_s / ((report.steps[-1][1] - report.steps[0][0]) / 1e9))

    def _end(self) -> None:
        self.faults.clear()
        for pid in (*self.hogs, *self.pids):
            _kill(pid)
        for pid in (*self.hogs, *self.pids):
            os.waitpid(pid, 0)

    def _truth(self) -> Truth:
        spec = self.spec
        skew = clocks(spec)
        plain, healthy = self._walls("plain"), [self._walls(p) for p in spec.parts if p not in FAULTED]
        profiled = [ns for walls in healthy for ns in walls] or self._walls("faulted")
        if "unprofiled" in self.reports:
            plain, profiled = self._walls("unprofiled"), self._walls("faulted")
        bytes_of = {
            kind: float(sum(f.stat().st_size for f in (self.folder / "faulted").glob(pattern)))
            for kind, pattern in (("trace_bytes", "rank*.json.gz"), ("flight_bytes", "flight*"), ("log_bytes", "steps.csv"))
        }
        for shard in self.folder.glob("shard*.pt"):
            shard.unlink()
        return Truth(
            job=spec.job,
            fault=spec.fault,
            seed=spec.seed,
            ranks=spec.ranks,
            injected=self.injected,
            from_start=spec.from_start,
            places=spec.places,
            hosts=spec.hosts if spec.device == "cpu" else (),
            traced_steps=spec.steps,
            untraced_steps=spec.untraced,
            contention=contention(spec),
            faulted_ns=tuple(self._walls("faulted")),
            healthy_ns=tuple(tuple(w) for w in healthy),
            skew_ns={r: ns + ppm * 1e-6 * self.skewed_at for r, (ns, ppm) in skew.items()},
            skew_ppm={r: ppm for r, (_, ppm) in skew.items()},
            overhead={
                "plain_ms": float(np.median(plain)) / 1e6,
                "profiled_ms": float(np.median(profiled)) / 1e6,
                **bytes_of,
            },
            policy=f"{LOCAL}={TAU}" if spec.again else "",
            policy_ns=tuple(self._walls(LOCAL)) if spec.again else (),
            device=spec.device,
            device_step_ns=self._device("faulted"),
            unprofiled_step_ns=self._device("unprofiled"),
        )

    def _walls(self, part: str) -> list[int]:
        """Wall time of every step but the first: from the latest end of the one before to its own latest end.

        On a GPU by CUDA events, counted from a barrier: hosts run ahead of their devices.
        """
        came = [report for report in self.reports[part] if hasattr(report, "steps")]
        ends = [
            np.cumsum(report.device_ns).tolist() if report.device_ns else [row[1] for row in report.steps] for report in came
        ]
        if not ends:
            return []
        latest = np.array([max(e[s] for e in ends) for s in range(min(map(len, ends)))])
        return [int(ns) for ns in np.diff(latest)]

    def _device(self, part: str) -> dict[int, tuple[int, ...]]:
        """By rank, what CUDA events say of every step but the first, ns."""
        device_ns = [getattr(of_rank, "device_ns", ()) for of_rank in self.reports.get(part, ())]
        return {rank: tuple(ns[1:]) for rank, ns in enumerate(device_ns) if len(ns) > 1}


class Faults:
    """Turns on and off what is done to ranks from the outside."""

    def __init__(self, host: Host, cgroup: Path) -> None:
        self.host, self.cgroup = host, cgroup
        self.on: list[Injected] = []
        self.since = float("inf")
        """When the first fault was turned on."""
        self.stopping = threading.Event()

    def at(self, step: int) -> None:
        """Called all the time: turns on what begins with this step; everything is turned off after the part."""
        for fault in self.host.injected:
            inside = fault.first_step <= step <= fault.last_step
            if inside and fault not in self.on:
                self.on.append(fault)
                self.since = min(self.since, time.monotonic())
                self._turn(fault, True)

    def clear(self) -> None:
        """Everything off."""
        while self.on:
            self._turn(self.on.pop(), False)

    def _turn(self, fault: Injected, on: bool) -> None:
        match fault.fault:
            case "link" | "link-one-way":
                (net.slow if on else net.restore)(fault, self._sockets)
            case "latency" | "loss":
                s = fault.strength if on else {}
                self._sockets[fault.ranks[0]].disturb(s.get("ms", 0), s.get("jitter_ms", 0), s.get("loss", 0))
            case "quota":
                self._quota(fault, on)
            case "stall":
                self._stall(fault, on)

    @property
    def _sockets(self) -> list[net.Socket]:
        return [place for place in self.host.places if isinstance(place, net.Socket)]

    def _quota(self, fault: Injected, on: bool) -> None:
        """Several ranks share one quota, as the processes of one container do."""
        period = PERIOD_MS * 1000
        used = sum(self.host.cpu_share(rank) for rank in fault.ranks) if on else 0.0
        quota = max(int(period * used / fault.strength["slowdown"]), 1000) if on else -1
        if (self.cgroup / "cpu.cfs_quota_us").exists():
            (self.cgroup / "cpu.cfs_period_us").write_text(str(period))
            (self.cgroup / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            (self.cgroup / "cpu.max").write_text(f"{quota if on else 'max'} {period}")
        for rank in fault.ranks if on else ():
            (self.cgroup / "cgroup.procs").write_text(str(self.host.pids[rank]))

    def _stall(self, fault: Injected, on: bool) -> None:
        if not on:
            self.stopping.set()
            return
        self.stopping.clear()
        hosts = {self.host.spec.hosts[rank] for rank in fault.ranks}
        together = [fault.ranks] if len(hosts) == 1 else [(rank,) for rank in fault.ranks]  # a host stops with all its ranks
        for turn, ranks in enumerate(together):
            pids = [self.host.pids[rank] for rank in ranks]
            threading.Thread(target=self._pulses, args=(fault, pids, turn / len(together)), daemon=True).start()

    def _pulses(self, fault: Injected, pids: Sequence[int], later: float) -> None:
        """Stop some processes again and again, the first time by a share of the period later."""
        stopped, period = fault.strength["on_ms"] / 1e3, fault.strength["period_ms"] / 1e3
        self.stopping.wait(later * period)
        with contextlib.suppress(ProcessLookupError):  # the rank ended meanwhile
            while not self.stopping.is_set():
                _send(pids, signal.SIGSTOP)
                self.stopping.wait(stopped)
                _send(pids, signal.SIGCONT)
                self.stopping.wait(period - stopped)


class _Sampler:
    """Host metrics of every rank, from outside: CPU time, memory, bytes on its interface."""

    HEAD = ("rank", "time_ns", "cpu_ns", "rss_bytes", "received_bytes", "sent_bytes", "cpu_ns_limit", "rss_bytes_limit")

    def __init__(self, pids: list[int], path: Path) -> None:
        self.pids, self.path, self.rows, self.due = pids, path, list[tuple[int, ...]](), 0.0

    def tick(self) -> None:
        """Sample if it is time to."""
        if time.monotonic() < self.due:
            return
        self.due = time.monotonic() + SAMPLE_S
        for rank, pid in enumerate(self.pids):
            self.rows += _sampled(rank, pid)

    def write(self) -> None:
        """All samples as one table."""
        with self.path.open("w", newline="") as file:
            csv.writer(file).writerows([self.HEAD, *self.rows])


def _sampled(rank: int, pid: int) -> Iterator[tuple[int, ...]]:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        card = next(x for x in Path(f"/proc/{pid}/net/dev").read_text().splitlines() if x.strip().startswith("eth0"))
    except (OSError, StopIteration):
        return  # the rank is gone
    counters = card.split(":")[1].split()
    tick = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    cpu, rss = (int(stat[11]) + int(stat[12])) * tick, int(stat[21]) * os.sysconf("SC_PAGE_SIZE")
    cores_ns, memory = (os.cpu_count() or 1) * 10**9, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    yield rank, time.time_ns(), cpu, rss, int(counters[0]), int(counters[8]), cores_ns, memory


def _received(link: Connection) -> Part | str:
    try:
        report: Part | str = link.recv()
        return report
    except (EOFError, OSError):
        return "ended without a word"


def _send(pids: Sequence[int], sign: signal.Signals) -> None:
    for pid in pids:
        os.kill(pid, sign)


def _take_core(core: int, how: Mapping[str, float], rng: np.random.Generator) -> NoReturn:
    """Called in a process of its own: keeps a core busy now and then, before everybody else on it."""
    net.die_with_parent()
    os.sched_setaffinity(0, {core})
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError:  # no real-time priorities here
        os.nice(-20)
    while True:
        time.sleep(float(rng.exponential(how["calm_ms"])) / 1e3)
        until = time.monotonic() + float(rng.uniform(how["least_ms"], how["most_ms"])) / 1e3
        while time.monotonic() < until:
            pass


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1])
