"""Each job has a secret of its own: who knows it speaks for that job alone."""

from __future__ import annotations

import threading
from contextlib import suppress
from socket import socket

import pytest
from click.testing import CliRunner

from collecting import HELLO, JOB_SECRET, SECRET, Line, collecting
from taut.cli import main
from taut.cli.watch_verb import PLACEHOLDER
from taut.serve.listening import bound
from taut.watch.event_ring import Ring
from taut.watch.observed import Observer
from taut.watch.sender import NOT_HEARD, Sender
from taut.watch.wire import JOB_HEAD, encoded, hello_body, hello_proof, job_secret


def test_a_job_does_not_speak_for_another() -> None:
    with collecting() as running:
        assert Line(running.port).hello(JOB_SECRET, job="another").is_closed()
        assert running.collector.windows == {}
        running.works()


def test_the_secret_of_the_collector_is_none_of_a_rank() -> None:
    with collecting() as running:
        assert Line(running.port).hello(SECRET).is_closed()


def test_the_job_that_proves_a_hello_is_the_job_that_it_names() -> None:
    with collecting() as running:
        line = Line(running.port)
        body = JOB_HEAD.pack(3) + b"job" + encoded({**HELLO, "job": "another"})  # type: ignore[dict-item]
        line.line.sendall(len(body).to_bytes(4, "little") + hello_proof(JOB_SECRET, line.nonce, body) + body)
        assert line.is_closed()
        assert running.collector.windows == {}


def test_a_hello_as_older_versions_say_it_is_named() -> None:
    with collecting() as running:
        line, body = Line(running.port), encoded(HELLO)  # type: ignore[arg-type]
        line.line.sendall(len(body).to_bytes(4, "little") + hello_proof(SECRET, line.nonce, body) + body)
        assert line.is_closed()
        assert "another version of taut" in next(iter(running.collector._refused))


def test_the_command_prints_the_secret_of_a_job() -> None:
    result = CliRunner(env={"TAUT_WATCH_SECRET": SECRET.decode()}).invoke(main, ["watch", "collect", "--secret-for", "job"])
    assert (result.exit_code, result.stdout_bytes) == (0, JOB_SECRET + b"\n")
    assert job_secret(SECRET, "another") != JOB_SECRET
    assert hello_body(HELLO)[: JOB_HEAD.size + 3] == JOB_HEAD.pack(3) + b"job"  # type: ignore[arg-type]


@pytest.mark.parametrize("job", ["", "x" * 257])
def test_a_name_that_no_job_has(job: str) -> None:
    result = CliRunner(env={"TAUT_WATCH_SECRET": SECRET.decode()}).invoke(main, ["watch", "collect", "--secret-for", job])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)


def test_the_placeholder_of_the_manifest_is_refused() -> None:
    result = CliRunner(env={"TAUT_WATCH_SECRET": PLACEHOLDER}).invoke(main, ["watch", "collect"])
    assert result.exit_code == 2
    assert result.stderr == (
        f"taut: TAUT_WATCH_SECRET is {PLACEHOLDER!r}, which everybody knows: give one of your own, of openssl rand -hex 16\n"
    )


@pytest.mark.parametrize(
    ("greeting", "says"),
    [
        (b"taut watch 1\n", "is a collector that speaks 'taut watch 1', and this rank 'taut watch 2': install the same taut"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "is not a collector of taut"),
    ],
)
def test_a_rank_says_whom_it_does_not_understand(greeting: bytes, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with bound("127.0.0.1", 0) as listening:
        listening.setblocking(True)
        about = {**HELLO}
        sender = Sender(Observer(Ring(64)), listening.getsockname(), JOB_SECRET, lambda: about)  # type: ignore[arg-type]
        sender._rank = 0
        for _ in range(NOT_HEARD):
            _answer(listening, greeting + b"n" * 40, sender)
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1


def _answer(listening: socket, data: bytes, sender: Sender) -> None:
    def answer() -> None:
        line, _ = listening.accept()
        with line, suppress(OSError):  # whoever asks ends it
            line.sendall(data)
            line.recv(1)

    thread = threading.Thread(target=answer)
    thread.start()
    sender._once()
    thread.join(10)
