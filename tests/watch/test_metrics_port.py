"""The metrics of a collector over HTTP: one page, and nobody who asks can keep the collector from hearing ranks."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest

from collecting import Running, collecting, event
from taut.watch import metrics_port


def asked(running: Running, request: bytes) -> tuple[bytes, bytes]:
    """The answer's status line and its body."""
    with closing(socket.create_connection(("127.0.0.1", running.metrics_port), timeout=10)) as line:
        line.sendall(request)
        data = b""
        while more := line.recv(1 << 16):
            data += more
    head, _, body = data.partition(b"\r\n\r\n")
    return head.partition(b"\r\n")[0], body


def test_what_is_heard_is_told() -> None:
    with collecting() as running:
        line = running.line()
        line.name()
        line.events(event())
        running.until(
            lambda: b'taut_job_received_events_total{job_name="job"} 1' in asked(running, b"GET /metrics HTTP/1.1\r\n\r\n")[1]
        )


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /metrics?x=1 HTTP/1.0\r\nHost: localhost:1\r\n\r\n", b"200 OK"),
        (b"GET /metrics HTTP/1.1\r\nHost: [::1]:9\r\n\r\n", b"200 OK"),
        (b"GET /metrics HTTP/1.1\r\nHost: rebound.example\r\n\r\n", b"400 Bad Request"),
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", b"400 Bad Request"),
        (b"GET / HTTP/1.1\r\n\r\n", b"404 Not Found"),
        (b"GET /metrics/../live HTTP/1.1\r\n\r\n", b"404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405 Method Not Allowed"),
        (b"GET /metrics\r\n\r\n", b"400 Bad Request"),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", b"400 Bad Request"),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 9000, b"400 Bad Request"),
    ],
)  # fmt: skip
def test_nothing_else_is_answered(request_bytes: bytes, status: bytes) -> None:
    with collecting() as running:
        assert asked(running, request_bytes)[0] == b"HTTP/1.1 " + status


def test_who_keeps_a_connection_is_ended_and_ranks_are_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_port, "LASTS_S", 0.5)
    with collecting() as running:
        idle = [socket.create_connection(("127.0.0.1", running.metrics_port), timeout=10) for _ in range(64)]
        running.works()
        assert all(_is_ended(line) for line in idle)
        assert asked(running, b"GET /metrics HTTP/1.1\r\n\r\n")[0] == b"HTTP/1.1 200 OK"


def _is_ended(line: socket.socket) -> bool:
    with closing(line):
        try:
            return line.recv(1) == b""
        except ConnectionError:
            return True
