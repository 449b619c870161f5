"""The collector: hears the ranks of jobs over TCP, keeps a window of each job, and tells what is found in them.

Everything it holds has a limit (``Limits``). Over one it refuses, or drops and counts: it never grows, and no job waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import msgspec

from taut.core.rank_words import listed
from taut.result.types import SCHEMA, LiveFinding, LiveState, WatchedJob
from taut.watch.captures import Captures
from taut.watch.event_rows import Room
from taut.watch.kept import Kept
from taut.watch.live_state import job_state
from taut.watch.metrics_port import MetricsPort
from taut.watch.session import Session
from taut.watch.window import LOST_S, Hello, Member, Window
from taut.watch.wire import EVENTS, WireError

FOLD_S = 0.25
"""Events are decoded this often, all that came together."""
UPKEEP_S, LOOK_S, CLOCKS_S, MINUTE_S = 0.5, 1.0, 10.0, 60.0
"""How often the slow are ended and the lost are said, windows looked at, clocks fitted, and a line of each job kept."""
PATIENCE_S = 0.2
"""How long the state of a job waits for a look at it."""
YOUNG_NS = 1_000_000_000
"""A connection that is not proved yet is not pushed out by others for this long."""
BUFFER = 1 << 18
CATCH_UP = 2.0
"""A rank that is over its limit of bytes by this many bursts is not read for a while, and does not connect again."""
CONNECT_BYTES = 16 << 10
"""That a hello counts for: at 256 KiB a second a rank may connect 16 times a second; ranks wait a second before they do."""
HOST_BYTES = 256
"""Of the name of a host, which metrics repeat for every rank; the DNS has no longer ones."""
REASONS = 32
"""Reasons that are counted apart."""


class Limits(msgspec.Struct, frozen=True):
    """What a collector holds at most."""

    connections: int = 10_240
    unproved: int = 1_024
    """Connections that have not proved themselves."""
    jobs: int = 64
    ranks: int = 8_192
    """Of all jobs: one takes some 20 KiB (bench/watch_load.py)."""
    world: int = 1 << 17
    """Ranks that one job may say it has: the largest that are known have some 100,000."""
    hello_bytes: int = 4_096
    hello_s: float = 5.0
    """Until a connection has proved itself."""
    message_s: float = 10.0
    """Until a message that has begun is complete."""
    silent_s: float = 60.0
    """Until a connection on which nothing comes is closed."""
    bytes_per_s: int = 256 << 10
    """Of one rank."""
    burst_bytes: int = 1 << 20
    flight_bytes: int = 32 << 20
    """Of messages of all ranks that are not complete."""
    window_bytes: int = 128 << 20
    """Of the windows of all jobs: with all else that 8,192 ranks take the process stays below 512 MB (bench/watch_load.py)."""
    forget_job_s: float = 3600.0
    """Until a job of which nothing is heard is forgotten."""
    lost_s: float = LOST_S


class Watcher(Protocol):
    """Looks at the window of one job, in a thread of its own, once a second."""

    def look(self, now_ns: int) -> Sequence[LiveFinding]:
        """Findings that have opened, changed or closed since it last looked."""
        ...

    def state(self, window: Window) -> WatchedJob:
        """The job as it is now."""
        ...


class Collector:
    """Sessions and windows; ``say`` gets a line for people, ``tell`` a finding."""

    def __init__(
        self,
        secret: bytes,
        *,
        limits: Limits | None = None,
        say: Callable[[str], None] = lambda line: None,
        tell: Callable[[LiveFinding], None] = lambda finding: None,
        kept: Kept | None = None,
        watcher: Callable[[Window], Watcher] | None = None,
    ) -> None:
        self.secret, self.limits, self.kept = secret, limits or Limits(), kept
        self.buffer = memoryview(bytearray(BUFFER))
        """Every connection receives into it: what is not used at once is copied."""
        self.room = Room(self.limits.window_bytes)
        self.windows: dict[str, Window] = {}
        self.counts: Counter[str] = Counter()
        """Messages and bytes; and of what was refused, why."""
        self.flight_bytes = 0
        self.captures = None if kept is None else Captures(kept.folder, self, say)
        self.since_ns = time.time_ns()
        self.may_look: Callable[[], bool] = lambda: True
        """Whether windows are looked at yet."""
        self._say, self._tell, self._watcher = say, tell, watcher
        self._watchers: dict[str, Watcher] = {}
        self._unproved: dict[Session, None] = {}
        """In the order in which they came."""
        self._sessions: dict[tuple[str, int], Session] = {}
        self._refused: Counter[str] = Counter()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        """Held while a job is looked at, or its state made."""
        # A thread each: what one gives back of its memory the next does not know of.
        self._looks, self._states_told = (ThreadPoolExecutor(1, f"taut-{name}") for name in ("look", "state"))
        self._metrics: MetricsPort | None = None
        self._states: dict[str, WatchedJob] = {}
        """Of every job the last state: a look may take a while, and what is known is told meanwhile."""
        self._due = dict.fromkeys(("upkeep", "clocks", "look", "state", "minute"), 0.0)
        self.latest = self.state()
        """What was seen last."""

    # -- what sessions ask ------------------------------------------------------------------------------------------------

    def let_in(self, session: Session) -> bool:
        """Whether a connection is greeted. Where too many are unproved, the oldest goes, unless it is young itself."""
        self._unproved[session] = None
        self.counts["connections"] += 1
        if len(self._unproved) + len(self._sessions) > self.limits.connections:
            self.refuse(session, "more connections than are taken")
        elif len(self._unproved) > self.limits.unproved:
            oldest = next(iter(self._unproved))
            young = session.made_ns - oldest.made_ns < YOUNG_NS
            self.refuse(session if young else oldest, "more connections without a hello than are taken")
        return session.open

    def welcome(self, session: Session, hello: Hello) -> tuple[Window, Member]:
        """The window and the rank of a session that has proved itself; its earlier connection ends."""
        now = time.monotonic_ns()
        if len(hello.host.encode()) > HOST_BYTES:
            raise WireError("a host with a name that is too long")
        window = self._window(hello.job)
        known = window.ranks.get(hello.rank)
        if known is None and sum(len(one.ranks) for one in self.windows.values()) >= self.limits.ranks:
            raise WireError("more ranks than are taken")
        if known is not None and not self._has_credit(known, now):
            raise WireError("a rank that connects too often")
        member, what = window.join(hello, now)
        before = self._sessions.get((hello.job, hello.rank))
        if before is not None:
            before.close()
        self._unproved.pop(session, None)
        self._sessions[hello.job, hello.rank] = session
        window.heard_ns = member.heard_ns = now
        if what == "new":
            member.tokens = self.limits.burst_bytes
        if not self._spend(member, now, CONNECT_BYTES):
            session.pause(-member.tokens / self.limits.bytes_per_s)
        if what == "new":
            self.counts["ranks"] += 1
        elif what == "restarted":
            self.counts["restarts"] += 1
            self._say(f"{hello.job}: rank {hello.rank} was started anew ({hello.host}, process {hello.pid})")
        if member.lost:
            member.lost = False
            self._say(f"{hello.job}: rank {hello.rank} is back")
        return window, member

    def _window(self, job: str) -> Window:
        if job not in self.windows:
            if len(self.windows) >= self.limits.jobs:
                raise WireError("more jobs than are taken")
            self.windows[job] = window = Window(job, self.room, self.limits.world)
            if self._watcher is not None:
                self._watchers[job] = self._watcher(window)
            self._say(f"{job}: a job begins to be heard")
        return self.windows[job]

    def within_rate(self, session: Session, member: Member, kind: int, count: int) -> bool:
        """Whether a rank may send a message of so many bytes; if not, it is not read for a while.

        Events are dropped and counted instead, as long as they are not far too many.
        """
        limits = self.limits
        if self._spend(member, session.heard_ns, count):
            return True
        if not self.counts["over the rate"]:
            self._say(f"{member.hello.job}: rank {member.rank} sends more than is taken; events are dropped and counted")
        self.counts["over the rate"] += 1
        if kind != EVENTS or member.tokens < -CATCH_UP * limits.burst_bytes:
            session.pause(-member.tokens / limits.bytes_per_s)
        return False

    def _spend(self, member: Member, now_ns: int, count: int) -> bool:
        """Take so many bytes of what a rank may send; whether it had them."""
        gained = max(now_ns - member.tokens_ns, 0) * 1e-9 * self.limits.bytes_per_s
        member.tokens_ns = max(now_ns, member.tokens_ns)
        member.tokens = min(member.tokens + gained, self.limits.burst_bytes) - count
        return member.tokens >= 0

    def _has_credit(self, member: Member, now_ns: int) -> bool:
        """Whether a rank may connect once more: each of its connections counts, however many it makes."""
        self._spend(member, now_ns, 0)
        return member.tokens - CONNECT_BYTES >= -CATCH_UP * self.limits.burst_bytes

    def holds(self, session: Session, more: int) -> None:
        """A session keeps so many bytes more of a message that is not complete."""
        self.flight_bytes += more
        if self.flight_bytes > self.limits.flight_bytes:
            self.refuse(session, "more bytes of unfinished messages than are held")

    def goodbye(self, session: Session, member: Member) -> None:
        """A rank ends as it should."""
        member.ended = True
        session.close()

    def request(self, job: str, rank: int, body: bytes) -> bool:
        """Ask a rank for a profile; whether it is connected."""
        session = self._sessions.get((job, rank))
        if session is not None:
            session.request(body)
        return session is not None

    def left(self, session: Session) -> None:
        """A connection is over."""
        self.flight_bytes -= len(session.rest)
        self._unproved.pop(session, None)
        if session.window is not None and session.member is not None:
            key = session.window.job, session.member.rank
            if self._sessions.get(key) is session:
                del self._sessions[key]

    def refuse(self, session: Session, why: str) -> None:
        """End a connection, and count why."""
        self.counts["refused"] += 1
        self._refused[why if len(self._refused) < REASONS else "other reasons"] += 1
        session.close()

    # -- upkeep -----------------------------------------------------------------------------------------------------------

    def tick(self, now_ns: int | None = None) -> None:
        """Decode what came, and do what is due."""
        now = time.monotonic_ns() if now_ns is None else now_ns
        for window in self.windows.values():
            window.fold(now)
        if self._is_due("upkeep", UPKEEP_S, now):
            self._end_the_slow(now)
            self._miss(now)
            self._forget(now)
        if self.captures is not None:
            self.captures.tick()
        if self._is_due("clocks", CLOCKS_S, now):
            for window in self.windows.values():
                window.fit_clocks()

    def _is_due(self, what: str, every_s: float, now_ns: int) -> bool:
        if now_ns * 1e-9 < self._due[what]:
            return False
        self._due[what] = now_ns * 1e-9 + every_s
        return True

    def _end_the_slow(self, now: int) -> None:
        limits = self.limits
        while self._unproved:
            oldest = next(iter(self._unproved))
            if now - oldest.made_ns <= limits.hello_s * 1e9:
                break
            self.refuse(oldest, "no hello in time")
        for session in list(self._sessions.values()):
            if now - session.heard_ns > limits.silent_s * 1e9:
                self.refuse(session, "nothing came for too long")
            elif session.rest and not session.paused and now - session.rest_since_ns > limits.message_s * 1e9:
                self.refuse(session, "a message that is not completed")

    def _miss(self, now: int) -> None:
        """Say which ranks are lost, or are heard again."""
        for window in self.windows.values():
            lost = window.miss(now, self.limits.lost_s)
            if lost:
                ranks = listed([str(one.rank) for one in lost])
                self._say(f"{window.job}: nothing was heard of rank {ranks} for {self.limits.lost_s:g} s")

    def _forget(self, now: int) -> None:
        """Give back what is old; and jobs that are over."""
        for job, window in list(self.windows.items()):
            window.forget(now)
            if now - window.heard_ns > self.limits.forget_job_s * 1e9:
                window.close()
                for finding in self._states[job].findings if job in self._states else ():
                    self._tell_finding(msgspec.structs.replace(finding, state="closed", at_ns=time.time_ns()))
                for held in (self._watchers, self._locks, self._states):
                    held.pop(job, None)
                del self.windows[job]
                self._say(f"{job}: not heard of for {self.limits.forget_job_s / 60:g} min, forgotten")

    def _say_refused(self) -> None:
        """One line a minute about whoever was refused."""
        if self._refused:
            self._say("refused: " + ", ".join(f"{count:,} × {why}" for why, count in self._refused.most_common()))
            self._refused.clear()

    def _looked(self, job: str, watcher: Watcher) -> Sequence[LiveFinding]:
        with self._locks[job]:
            return watcher.look(time.monotonic_ns())

    async def _look(self) -> None:
        """Have every window looked at, in a thread."""
        for job, watcher in list(self._watchers.items()) if self.may_look() else ():
            try:
                found = await asyncio.get_running_loop().run_in_executor(self._looks, self._looked, job, watcher)
            except Exception as error:  # what looks is not what hears
                self.counts["failed looks"] += 1
                if self.counts["failed looks"] == 1:
                    self._say(f"{job}: could not be looked at: {type(error).__name__}: {error}")
                continue
            for finding in found if self.captures is None else map(self.captures.marked, found):
                self._tell_finding(finding)

    def _tell_finding(self, finding: LiveFinding) -> None:
        self._tell(finding)
        if self.kept is not None:
            self.kept.add_finding(finding)

    async def _tell_state(self) -> None:
        """Have what is seen written to disk, in a thread."""
        if self._is_due("minute", MINUTE_S, time.monotonic_ns()):
            self._say_refused()
            if self.kept is not None:
                for window in self.windows.values():
                    self.kept.add_steps(window)
        await asyncio.get_running_loop().run_in_executor(self._states_told, self._told)

    def _told(self) -> None:
        self.latest = self.state()
        if self._metrics is not None:
            self._metrics.tell(self.latest)
        if self.kept is not None:
            self.kept.write(self.latest)

    def state(self) -> LiveState:
        """What is seen now, of all jobs."""
        windows = sorted(self.windows.values(), key=lambda one: -one.heard_ns)
        return LiveState(
            schema=SCHEMA,
            at_ns=time.time_ns(),
            since_ns=self.since_ns,
            jobs=[self._job(one) for one in windows],
            counts=dict(self.counts),
        )

    def _job(self, window: Window) -> WatchedJob:
        """The job as it is now; as it was before, while a look takes longer than looks do."""
        job, watcher, lock = window.job, self._watchers.get(window.job), self._locks[window.job]
        if watcher is None:
            return job_state(window, None)
        if not lock.acquire(timeout=PATIENCE_S):
            return self._states.get(job) or job_state(window, None)
        try:
            self._states[job] = watcher.state(window)
            return self._states[job]
        except Exception:  # as above: what looks is not what hears
            self.counts["failed states"] += 1
            return job_state(window, None)
        finally:
            lock.release()

    def _failed(self, _: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """A fault of ours ends one connection, and is said once."""
        self.counts["faults"] += 1
        if self.counts["faults"] == 1:
            error = context.get("exception")
            self._say(f"a fault of the collector: {type(error).__name__ if error else context.get('message')}: {error or ''}")

    # -- running ------------------------------------------------------------------------------------------------------------

    async def serve(self, listening: socket.socket, done: asyncio.Event, metrics: socket.socket | None = None) -> None:
        """Hear ranks until it is done; at a second socket tell metrics."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._failed)
        server = await loop.create_server(lambda: Session(self), sock=listening, backlog=1024)
        if metrics is not None:
            self._metrics = MetricsPort(metrics, self.latest)
            self._metrics.start()
        self._due["minute"] = time.monotonic() + MINUTE_S
        try:
            while not done.is_set():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(done.wait(), FOLD_S)
                try:
                    self.tick()
                except Exception as error:  # of one job: the others are heard
                    self._failed(loop, {"exception": error})
                for name, work in (("look", self._look), ("state", self._tell_state)):
                    idle = name not in self._tasks or self._tasks[name].done()
                    if idle and self._is_due(name, LOOK_S, time.monotonic_ns()):
                        self._tasks[name] = loop.create_task(work())
        finally:
            server.close()
            if self._metrics is not None:
                self._metrics.stop()
            for session in [*self._unproved, *self._sessions.values()]:
                session.close()
            for task in self._tasks.values():
                await task
            self._looks.shutdown()
            self._states_told.shutdown()
            if self.kept is not None:
                self._last_lines(self.kept)

    def _last_lines(self, kept: Kept) -> None:
        for window in self.windows.values():
            window.fold(time.monotonic_ns())
            kept.add_steps(window)
        kept.write()
