"""Debug servers of torch's workers as tests need them: they answer what they are told to, however slowly or wrongly."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

FR, NCCL, PICKLE, PROFILE = "fr_trace_json", "dump_nccl_trace_json", "dump_nccl_trace_pickle", "torch_profile"


def dump(calls: int, made: int | None = None, **more: Any) -> bytes:
    """The dump of a rank of two that made so many calls of gloo, all but the last of which completed."""
    last = calls if made is None else made
    entries = [
        {"record_id": i, "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": i, "op_id": i, "p2p_seq_id": 0,
         "profiling_name": "gloo:all_reduce", "time_created_ns": 1_700_000_000_000_000_000 + i * 10**8,
         "input_sizes": [[64]], "is_p2p": False, "state": "scheduled", "retired": True}
        for i in range(1, calls + 1)
    ]  # fmt: skip
    status = {"0": {"last_enqueued_collective": calls, "last_completed_collective": last, "last_started_collective": calls}}
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    return json.dumps({"version": "2.10", "pg_config": config, "pg_status": status, "entries": entries, **more}).encode()


@dataclass
class FakeWorker:
    """One server. ``has`` maps a handler to its answer, bytes or what makes them."""

    has: dict[str, bytes | Callable[[], bytes]]
    late_s: float = 0.0
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    place: str = ""


@contextmanager
def serving(*workers: FakeWorker) -> Iterator[list[str]]:
    """Addresses at which they answer."""
    servers = [_started(worker) for worker in workers]
    try:
        yield [worker.place for worker in workers]
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


def _started(worker: FakeWorker) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            worker.asked.append(self.path)
            time.sleep(worker.late_s)
            answer = worker.has.get(self.path.removeprefix("/handler/").partition("?")[0])
            body = answer() if callable(answer) else answer or b"no such handler"
            self.send_response(404 if answer is None else worker.status)
            for name, value in {"Content-Length": str(len(body)), **worker.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(OSError):  # nobody listens any more
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    worker.place = f"127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    return server
