"""How fast OTLP/JSON spans become columns, and how the analysis grows with requests: `python bench/otlp_size.py [REQUESTS …]`.

Requests of a router to eight shards, written as the file exporter writes them (batches of 512 spans, the attributes of an
HTTP instrumentation); one CPU, no parallel reading.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from taut.read.otlp import reader as otlp
from taut.run import analyze_trace

SHARDS, BATCH = 8, 512
BASE = 1_700_000_000_000_000_000


def attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": k, "value": {"intValue": str(v)} if isinstance(v, int) else {"stringValue": v}} for k, v in values.items()]


def spans(requests: int) -> dict[tuple[str, str], list[dict[str, Any]]]:
    rng = random.Random(0)
    out: dict[tuple[str, str], list[dict[str, Any]]] = {}

    def put(service: str, instance: str, name: str, trace: int, span: int, up: int, kind: int, begin: int, end: int) -> None:
        values = {
            "http.request.method": "POST", "url.full": f"http://{service}:8080/{name}?q={trace}", "server.address": service,
            "server.port": 8080, "http.response.status_code": 200, "network.protocol.version": "1.1",
            "user_agent.original": "python-httpx/0.27.0", "thread.name": "worker-3",
        }  # fmt: skip
        out.setdefault((service, instance), []).append(
            {
                "traceId": f"{trace + 1:032x}", "spanId": f"{span:016x}", "parentSpanId": f"{up:016x}" if up else "",
                "flags": 256, "name": name, "kind": kind, "startTimeUnixNano": str(begin), "endTimeUnixNano": str(end),
                "attributes": attributes(values), "status": {},
            }
        )  # fmt: skip

    for trace in range(requests):
        at, first, last = BASE + trace * 1_000_000, trace * 64 + 1, 0
        for shard in range(SHARDS):
            begin = at + 500_000 + 10_000 * shard
            end = begin + int(8_000_000 * rng.lognormvariate(0, 0.2))
            put("router", "0", "search", trace, first + 2 * shard + 1, first, 3, begin, end)
            put(
                "shard",
                str(shard),
                "search",
                trace,
                first + 2 * shard + 2,
                first + 2 * shard + 1,
                2,
                begin + 100_000,
                end - 100_000,
            )
            last = max(last, end)
        put("router", "0", "GET /", trace, first, 0, 2, at, last + 1_000_000)
    return out


def write(file: Path, requests: int) -> None:
    with file.open("w") as out:
        for (service, instance), mine in spans(requests).items():
            about = {"service.name": service, "service.instance.id": instance, "host.name": f"{service}-{instance}"}
            for first in range(0, len(mine), BATCH):
                batch = [{"scope": {"name": "http"}, "spans": mine[first : first + BATCH]}]
                document = {"resourceSpans": [{"resource": {"attributes": attributes(about)}, "scopeSpans": batch}]}
                out.write(json.dumps(document, separators=(",", ":")) + "\n")


def main(sizes: list[int]) -> None:
    print("| requests | spans | MB | decode MB/s | to ops MB/s | link … verdict s | peak RSS MB |")
    print("|---|---|---|---|---|---|---|")
    for requests in sizes:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "spans.jsonl"
            write(file, requests)
            data = file.read_bytes()
        begin = time.process_time()
        loaded = otlp.load(data, "spans")
        decoded = time.process_time()
        trace = otlp.gather([loaded], [], name="spans", source="spans")
        made = time.process_time()
        analyze_trace(trace).to_json()
        done = time.process_time()
        rate = [len(data) / 1e6 / s for s in (decoded - begin, made - begin)]
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        count = trace.counts["spans"]
        cells = (f"{requests:,}", f"{count:,}", f"{len(data) / 1e6:.0f}", *(f"{r:.0f}" for r in rate), f"{done - made:.1f}")
        print(f"| {' | '.join(cells)} | {rss:.0f} |")


if __name__ == "__main__":
    main([int(arg) for arg in sys.argv[1:]] or [300, 3_000])
