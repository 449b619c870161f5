"""Files at addresses: step times of a job put where a test asks, and a store whose answers are slow, fail or vanish."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def step_times(rank: int, steps: int = 6) -> bytes:
    """A CSV of one worker's steps; worker 1 is slow."""
    rows = [f"{rank},{step},{0.2 if rank == 1 else 0.1}" for step in range(steps)]
    return ("worker,step,step_time_s\n" + "\n".join(rows) + "\n").encode()


Answer = tuple[int, dict[str, str], bytes]
Forward = Callable[[str, str, dict[str, str]], Answer]


@contextmanager
def http_server(answer: Forward) -> Iterator[str]:
    """Its address; ``answer`` is asked with method, path and headers, and gives status, headers and body."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = answer(self.command, self.path, dict(self.headers.items()))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if "Content-Length" not in headers:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
