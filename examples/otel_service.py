"""A service that records itself with OpenTelemetry: a router, shards and a batching ranker, each a process of its own.

Every process writes its own OTLP/JSON file, as a fleet does. What is wrong is known: shard 2 is slow, every shard stops
now and then (all of them together, or each on its own), shard 1 answers some requests with an error and is asked again,
and the hosts' clocks disagree. Needs: pip install opentelemetry-exporter-otlp-json-file

    python otel_service.py FOLDER [REQUESTS]      writes FOLDER/*.jsonl and prints what is true
    taut analyze FOLDER
"""

from __future__ import annotations

import json
import multiprocessing as mp
import queue
import random
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

from opentelemetry import propagate, trace
from opentelemetry.exporter.otlp.json.file import FileSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, StatusCode

SHARDS, WORKERS = 4, 2
SLOW_SHARD, FAILING_SHARD = 2, 1
SKEW_MS = {"shard-0": 0, "shard-1": 35, "shard-2": -20, "shard-3": 0, "ranker-0": 8}
"""How far each host's clock is ahead of the router's."""
WORK_MS, SLOW_MS, PAUSE_MS, RANK_MS = 4.0, 4.0, 25.0, 3.0
FAILS_EVERY, PAUSES_EVERY = 7, 12
PORT_KEY = b"example"


class Recorder:
    """Spans of one process, in the time of its host's clock."""

    def __init__(self, folder: Path, service: str, instance: str) -> None:
        self.ahead_ns = SKEW_MS.get(instance, 0) * 1_000_000
        about = {"service.name": service, "service.instance.id": instance, "host.name": f"host-{instance}"}
        self.provider = TracerProvider(resource=Resource(about))
        self.provider.add_span_processor(BatchSpanProcessor(FileSpanExporter(str(folder / f"{instance}.jsonl"))))
        self.tracer = self.provider.get_tracer("example")

    def now(self) -> int:
        """The time on this host's clock."""
        return time.time_ns() + self.ahead_ns

    def span(self, name: str, kind: SpanKind, context: Any = None, **attributes: Any) -> Span:
        """A span to be used in a ``with``."""
        return Span(self, name, kind, context, **attributes)


class Span:
    """A span whose begin and end are read from the host's clock."""

    def __init__(self, recorder: Recorder, name: str, kind: SpanKind, context: Any = None, **attributes: Any) -> None:
        told = {key.replace("__", "."): value for key, value in attributes.items()}
        self.recorder = recorder
        self.span = recorder.tracer.start_span(name, context, kind, told, start_time=recorder.now())
        self.context = trace.set_span_in_context(self.span)

    def __enter__(self) -> Span:
        return self

    def __exit__(self, *_: object) -> None:
        self.span.end(end_time=self.recorder.now())

    def failed(self, why: str) -> None:
        """Mark it as failed."""
        self.span.set_attribute("error.type", why)
        self.span.set_status(StatusCode.ERROR)

    def carrier(self) -> dict[str, str]:
        """What travels with a message, so that the other end knows its parent."""
        out: dict[str, str] = {}
        propagate.inject(out, self.context)
        return out


def sleep_ms(ms: float) -> None:
    """Stand for work."""
    time.sleep(ms / 1000)


def serve(folder: Path, service: str, instance: str, ports: Any, handle: Any) -> None:
    """A process that answers requests, one thread for each connection."""
    recorder = Recorder(folder, service, instance)
    with Listener(("127.0.0.1", 0), authkey=PORT_KEY) as listener:
        ports.put((instance, listener.address[1]))
        threads = [threading.Thread(target=answer, args=(recorder, listener.accept(), handle)) for _ in range(WORKERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    recorder.provider.shutdown()


def answer(recorder: Recorder, connection: Connection, handle: Any) -> None:
    """Answer what comes over one connection."""
    while (message := connection.recv()) is not None:
        connection.send(handle(recorder, message))


def shard(folder: Path, number: int, ports: Any) -> None:
    """Search one part of the index."""
    rng = random.Random(number)

    def handle(recorder: Recorder, message: dict[str, Any]) -> str:
        with recorder.span("search", SpanKind.SERVER, propagate.extract(message["carrier"])) as span:
            if message["fails"]:
                sleep_ms(1)
                span.failed("503")
                return "error"
            sleep_ms(rng.uniform(0.98, 1.02) * WORK_MS + (SLOW_MS if number == SLOW_SHARD else 0) + message["pause_ms"])
            return "found"

    serve(folder, "shard", f"shard-{number}", ports, handle)


def ranker(folder: Path, ports: Any) -> None:
    """Rank in batches: what arrives while a batch is at work waits in a queue."""
    waiting: queue.Queue[Any] = queue.Queue()

    def batches() -> None:
        while (first := waiting.get()) is not None:
            batch = [first]
            while not waiting.empty() and len(batch) < WORKERS:
                batch.append(waiting.get())
            for started, _ in batch:
                started.set()
            sleep_ms(RANK_MS)
            for _, done in batch:
                done.set()

    def handle(recorder: Recorder, message: dict[str, Any]) -> str:
        with recorder.span("rank", SpanKind.SERVER, propagate.extract(message["carrier"])) as span:
            started, done = threading.Event(), threading.Event()
            waiting.put((started, done))
            with recorder.span("queue", SpanKind.INTERNAL, span.context):
                started.wait()
            done.wait()
            return "ranked"

    worker = threading.Thread(target=batches)
    worker.start()
    serve(folder, "ranker", "ranker-0", ports, handle)
    waiting.put(None)
    worker.join()


class Router:
    """Asks all shards, asks again where one failed, then has the results ranked."""

    def __init__(self, folder: Path, ports: dict[str, int], together: bool) -> None:
        self.recorder, self.ports, self.together = Recorder(folder, "router", "router-0"), ports, together
        self.pool = ThreadPoolExecutor(WORKERS * SHARDS)
        self.truth = {"requests": 0, "retries": 0}
        self.lock = threading.Lock()

    def worker(self, first: int, last: int) -> None:
        """Serve some requests, one after the other."""
        links = {name: Client(("127.0.0.1", port), authkey=PORT_KEY) for name, port in self.ports.items()}
        for number in range(first, last):
            self.request(number, links)
        for link in links.values():
            link.send(None)

    def request(self, number: int, links: dict[str, Connection]) -> None:
        """Serve one request."""
        with self.recorder.span("GET /search", SpanKind.SERVER) as root:
            sleep_ms(0.5)
            futures = [self.pool.submit(self.ask, root, number, shard, links) for shard in range(SHARDS)]
            for future in futures:
                future.result()
            self.call(root, "ranker-0", "POST /rank", links["ranker-0"], {})
        with self.lock:
            self.truth["requests"] += 1

    def ask(self, root: Span, number: int, shard: int, links: dict[str, Connection]) -> None:
        """Ask one shard, and again if it fails."""
        turn = number if self.together else number + 3 * shard
        message = {"pause_ms": PAUSE_MS if turn % PAUSES_EVERY == 0 else 0.0}
        fails = shard == FAILING_SHARD and number % FAILS_EVERY == 0
        link = links[f"shard-{shard}"]
        if self.call(root, f"shard-{shard}", "POST /search", link, {**message, "fails": fails}) == "error":
            with self.lock:
                self.truth["retries"] += 1
            again = {**message, "fails": False}
            self.call(root, f"shard-{shard}", "POST /search", link, again, http__request__resend_count=1)

    def call(self, root: Span, to: str, name: str, link: Connection, message: dict[str, Any], **told: Any) -> str:
        """One call, as a client sees it."""
        about = {"server__address": to, "url__full": f"http://{to}/{name.split('/')[1]}", **told}
        with self.recorder.span(name, SpanKind.CLIENT, root.context, **about) as span:
            link.send({**message, "carrier": span.carrier()})
            result: str = link.recv()
            if result == "error":
                span.failed("503")
            return result


def run(folder: Path, requests: int = 120, together: bool = True) -> dict[str, Any]:
    """Run the service; returns what is true of it."""
    folder.mkdir(parents=True, exist_ok=True)
    context = mp.get_context("spawn")
    ports = context.Queue()
    processes = [context.Process(target=shard, args=(folder, number, ports), daemon=True) for number in range(SHARDS)]
    processes.append(context.Process(target=ranker, args=(folder, ports), daemon=True))
    for process in processes:
        process.start()
    known = dict(ports.get() for _ in processes)
    router = Router(folder, known, together)
    share = requests // WORKERS
    with ThreadPoolExecutor(WORKERS) as pool:
        for worker in [pool.submit(router.worker, i * share, (i + 1) * share) for i in range(WORKERS)]:
            worker.result()
    for process in processes:
        process.join()
    router.pool.shutdown()
    router.recorder.provider.shutdown()
    return {**router.truth, "slow": f"shard-{SLOW_SHARD}", "skew_ms": SKEW_MS, "pauses": "together" if together else "apart"}


if __name__ == "__main__":
    where = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp())
    print(json.dumps(run(where, int(sys.argv[2]) if len(sys.argv) > 2 else 40), indent=1))
