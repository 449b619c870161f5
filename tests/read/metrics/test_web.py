"""Hostile servers: whatever an address answers, taut says one line, soon, and tells its token to nobody else."""

from __future__ import annotations

import json
import re
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from taut.core.errors import InputRefused
from taut.read.metrics import web
from taut.read.trace import read

Serve = Callable[..., str]
NAMES = b'{"status":"success","data":["DCGM_FI_DEV_POWER_USAGE"]}'


def ok(body: bytes, kind: str = "application/json", status: str = "200 OK", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@pytest.fixture
def heard() -> list[bytes]:
    """The requests that the server got."""
    return []


@pytest.fixture
def serve(heard: list[bytes]) -> Iterator[Serve]:
    """Starts a server that sends these bytes, one answer per connection (the last for ever), and gives its address.

    ``drip`` sends one byte every so many seconds.
    """
    sockets: list[socket.socket] = []

    def start(*answers: bytes, drip: float = 0.0, context: ssl.SSLContext | None = None) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        sockets.append(listener)

        def run() -> None:
            number = 0
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                try:
                    with peer if context is None else context.wrap_socket(peer, server_side=True) as talk:
                        heard.append(talk.recv(65536))
                        answer = answers[min(number, len(answers) - 1)]
                        number += 1
                        for i in range(0, len(answer), 1 if drip else 1 << 16):
                            talk.sendall(answer[i : i + (1 if drip else 1 << 16)])
                            time.sleep(drip)
                except OSError:
                    continue

        threading.Thread(target=run, daemon=True).start()
        return f"{'https' if context else 'http'}://127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for listener in sockets:
        listener.close()


@pytest.fixture
def ask(tmp_path: Path, tiny: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Reads a small trace with the metrics of an address; the one line by which it is refused."""
    monkeypatch.delenv(web.TOKEN, raising=False)
    (tmp_path / "rank0.json").write_bytes(tiny.as_bytes([tiny.event("cpu_op", "aten::mm", 1, 2)]))

    def refused(url: str) -> str:
        with pytest.raises(InputRefused) as caught:
            read([tmp_path / "rank0.json"], metrics_at=[url])
        assert "\n" not in str(caught.value)
        return str(caught.value)

    return refused


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (ok(b"", status="302 Found", Location="https://evil.example/x"), "sends on to https://evil.example/x; taut follows"),
        (ok(b"", status="308 Permanent Redirect", Location="/elsewhere"), "sends on to /elsewhere"),
        (ok(b"no", status="401 Unauthorized"), r"\(401\): no token was sent; set TAUT_METRICS_TOKEN"),
        (ok(b"no", status="403 Forbidden"), r"refuses access \(403\)"),
        (ok(b"404", status="404 Not Found"), "answers 404; give the address of a Prometheus"),
        (ok(b'{"status":"error","error":"query timed out"}', status="503 Busy"), r"answers 503 \(query timed out\)"),
        (ok(b"<html>log in</html>", "text/html; charset=utf-8"), "answers text/html instead of JSON"),
        (ok(b"<html>"), "not as Prometheus does"),
        (ok(b'{"data": 5}'), "not as Prometheus does"),
        (ok(b'{"data": ' + b"[" * 100_000), "not as Prometheus does"),
        (ok(b'{"data": ["\xff"]}'), "not as Prometheus does"),
        (ok(b'{"data": []}'), "holds no metrics that taut knows"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "cannot be asked: BadStatusLine"),
        (b"", "cannot be asked: RemoteDisconnected"),
        (b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 1000 + b"\r\n", "cannot be asked: HTTPException"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000 + b"\r\n\r\n", "cannot be asked: LineTooLong"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "cannot be asked"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n{}", "holds no metrics"),
        (ok(NAMES)[:-9], "not as Prometheus does"),
    ],
)  # fmt: skip
def test_any_answer_but_a_good_one_is_refused(serve: Serve, ask: Callable[[str], str], answer: bytes, why: str) -> None:
    url = serve(answer)
    message = ask(url)
    assert message.startswith(url)
    assert re.search(why, message), message


@pytest.mark.parametrize(
    ("second", "why"),
    [
        (b'{"data": {"resultType": "vector", "result": [{"metric": {}, "value": [1, "2"]}]}}', "without a metric name"),
        (b'{"data": {"resultType": "matrix", "result": [{"metric": {"__name__": "x"}, "values": [[1, 2]]}]}}', "not a matrix"),
        (b'{"data": {"resultType": "matrix", "result": []}}', "holds no metrics that taut knows between"),
    ],
)
def test_samples_that_are_none(serve: Serve, ask: Callable[[str], str], second: bytes, why: str) -> None:
    assert why in ask(serve(ok(NAMES), ok(second)))


def test_an_endless_answer_is_cut(serve: Serve, ask: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "ANSWER_BYTES", 1 << 20)
    assert "answers more than 1 MiB; name the label" in ask(serve(ok(b"[" * (5 << 20))))


def test_many_answers_together_are_cut(serve: Serve, ask: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "TOTAL_BYTES", 1000)
    names = json.dumps({"data": ["power", "clock", *("x" * 100 for _ in range(8))]}).encode()
    assert "answers more than" in ask(serve(ok(names), ok(b" " * 500)))


@pytest.mark.parametrize("drip", [0.1, 0.004], ids=["headers", "body"])
def test_a_server_that_drips_is_left(
    serve: Serve, ask: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, drip: float
) -> None:
    monkeypatch.setattr(web, "ANSWER_S", 0.6)
    assert "no whole answer within 0.6 s" in ask(serve(ok(NAMES + b" " * 10_000), drip=drip))


def test_all_answers_together_take_so_long(serve: Serve, ask: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "TOTAL_S", 0.3)
    assert "not all within 0.3 s" in ask(serve(ok(NAMES), ok(NAMES + b" " * 1000), drip=0.002))


def test_nobody_there(ask: Callable[[str], str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    assert "cannot be asked: Connection refused; check that it runs" in ask(f"http://127.0.0.1:{port}")


@pytest.mark.parametrize(
    "url",
    [
        "ftp://a/b",
        "file:///etc/passwd",
        "http://",
        "http://h:99999",
        "http://h/?a=b",
        "http://h/#x",
        "http://[::1",
        "http://a\nb/",
    ],
)
def test_what_is_no_address(ask: Callable[[str], str], url: str) -> None:
    assert "not an address" in ask(url)


def test_a_password_in_the_address_is_not_repeated(ask: Callable[[str], str]) -> None:
    message = ask("https://me:secret@example.org")
    assert "put a token into TAUT_METRICS_TOKEN" in message
    assert "secret" not in message


def test_the_token_goes_to_the_address_and_to_no_other(
    serve: Serve, ask: Callable[[str], str], heard: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(web.TOKEN, "s3cret")
    other = serve(ok(NAMES))
    assert "sends on to" in ask(serve(ok(b"", status="307 Temporary Redirect", Location=other)))
    assert [b"Authorization: Bearer s3cret\r\n" in request for request in heard] == [True]
    assert "the token was not accepted" in ask(serve(ok(b"", status="401 Unauthorized")))


def test_the_token_does_not_travel_in_clear(ask: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(web.TOKEN, "s3cret")
    message = ask("http://metrics.example:9090")
    assert "would be sent in clear; use https" in message
    assert "s3cret" not in message
    monkeypatch.setenv(web.TOKEN, "two\r\nlines")
    assert "holds what no token may" in ask("https://metrics.example")


def test_proxies_of_the_environment_are_not_used(
    serve: Serve, ask: Callable[[str], str], heard: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = serve(ok(b""))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, proxy)
    ask(serve(b""))
    assert len(heard) == 1
    assert heard[0].startswith(b"GET /api/v1/label/__name__/values?start=1699999940.")


@pytest.fixture
def certified(tmp_path: Path) -> ssl.SSLContext:
    """A server's side of TLS, with a certificate that it made itself (``cert``)."""
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key", "-out", "cert", "-subj", "/CN=x"]
    try:
        subprocess.run([*command, "-addext", "subjectAltName=IP:127.0.0.1"], cwd=tmp_path, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("needs openssl")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert", tmp_path / "key")
    return context


def test_a_certificate_counts_if_somebody_vouches_for_it(
    serve: Serve, ask: Callable[[str], str], certified: ssl.SSLContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = serve(ok(b'{"data": []}'), context=certified)
    assert "its certificate is not trusted (self-signed certificate); SSL_CERT_FILE" in ask(url)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert"))
    assert "holds no metrics that taut knows" in ask(url)


def test_a_server_that_drips_over_tls_is_left(
    serve: Serve, ask: Callable[[str], str], certified: ssl.SSLContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert"))
    monkeypatch.setattr(web, "ANSWER_S", 0.6)
    assert "no whole answer within 0.6 s" in ask(serve(ok(NAMES + b" " * 10_000), drip=0.05, context=certified))


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200), st.integers(0, 3))
def test_any_bytes_are_refused(serve: Serve, ask: Callable[[str], str], data: bytes, shape: int) -> None:
    shapes = (data, b"HTTP/1.1 " + data, b"HTTP/1.1 200 OK\r\n" + data, ok(data))
    assert ask(serve(shapes[shape]))
