"""A real Prometheus and a real Alertmanager: a slow rank of a simulated job becomes an alert that somebody receives."""

from __future__ import annotations

import json
import os
import queue
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from collecting import SECRET
from simulated_ranks import simulated
from taut.lab.live_jobs import LiveJob

RULES = Path(__file__).resolve().parents[2] / "docs" / "watch" / "taut-alerts.yml"
NO_PROMETHEUS = "needs prometheus and promtool (apt-get install prometheus)"
NO_ALERTMANAGER = "needs prometheus-alertmanager (apt-get install prometheus-alertmanager)"
PATIENCE_S = 60.0
"""Until what has to come is given up: on a quiet machine it takes a sixth of it."""


def free_address() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


@contextmanager
def started(folder: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process with its output in a file, ended with the block."""
    with (folder / f"{Path(command[0]).name}.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def answer(url: str) -> Any:
    """What a server says, once it is there."""
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as found:
                data = found.read()
                return json.loads(data) if data[:1] in (b"{", b"[") else data.decode()
        except OSError:
            assert time.monotonic() < end, url
            time.sleep(0.1)


@contextmanager
def receiver() -> Iterator[tuple[str, queue.Queue[dict[str, Any]]]]:
    """The address of a webhook, and the alerts that come there."""
    alerts: queue.Queue[dict[str, Any]] = queue.Queue()

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            for alert in told["alerts"]:
                alerts.put(alert)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Hook) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/", alerts
        server.shutdown()


@contextmanager
def collector(folder: Path) -> Iterator[tuple[int, str]]:
    """Port for ranks, and address for metrics, of ``taut watch collect``."""
    options = ["--port", "0", "--metrics-port", "0", "--gpu-hour", "2.50EUR"]
    env = {**os.environ, "TAUT_WATCH_SECRET": SECRET.decode(), "TAUT_AUDIT": "off"}
    command = [sys.executable, "-m", "taut", "watch", "collect", *options]
    process = subprocess.Popen(command, cwd=folder, env=env, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        said = process.stderr.readline() + process.stderr.readline()
        metrics, ranks = re.search(r"http://(\S+)/metrics", said), re.search(r"watching at \S+:(\d+)", said)
        assert metrics is not None, said
        assert ranks is not None, said
        yield int(ranks[1]), metrics[1]
    finally:
        process.kill()
        process.communicate()


def alertmanager(folder: Path, hook: str, address: str) -> tuple[str, ...]:
    """The command that starts one which tells a webhook at once."""
    route = {"receiver": "hook", "group_by": ["..."], "group_wait": "1ms", "group_interval": "1s", "repeat_interval": "1h"}
    config = {"route": route, "receivers": [{"name": "hook", "webhook_configs": [{"url": hook}]}]}
    (folder / "alertmanager.yml").write_text(json.dumps(config))
    flags = ("--config.file=alertmanager.yml", "--storage.path=alerts", f"--web.listen-address={address}")
    return ("prometheus-alertmanager", *flags, "--cluster.listen-address=")


def prometheus(folder: Path, collector: str, alerts: str, address: str) -> tuple[str, ...]:
    """The command that starts one which asks the collector every second, by the rules that ship."""
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "taut", "static_configs": [{"targets": [collector]}]}],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alerts]}]}]},
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    return ("prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address={address}")


def test_a_slow_rank_becomes_an_alert_that_arrives(tmp_path: Path) -> None:
    if not shutil.which("prometheus") or not shutil.which("promtool"):
        pytest.skip(NO_PROMETHEUS)
    if not shutil.which("prometheus-alertmanager"):
        pytest.skip(NO_ALERTMANAGER)
    job = LiveJob(8, 3, sees="hooks", gates=4, step_s=0.1, hiccups=0.0, fault="slow", since=60, strength=0.3, a_host=4)
    asks, alerts_at = free_address(), free_address()
    with ExitStack() as stack:
        hook, alerts = stack.enter_context(receiver())
        stack.enter_context(started(tmp_path, *alertmanager(tmp_path, hook, alerts_at)))
        ranks_port, metrics = stack.enter_context(collector(tmp_path))
        stack.enter_context(simulated(ranks_port, job, "llm"))
        answer(f"http://{alerts_at}/-/ready")
        stack.enter_context(started(tmp_path, *prometheus(tmp_path, metrics, alerts_at, asks)))
        answer(f"http://{asks}/-/ready")
        alert = alerts.get(timeout=PATIENCE_S)
        targets = answer(f"http://{asks}/api/v1/targets")["data"]["activeTargets"]
        groups = answer(f"http://{asks}/api/v1/rules")["data"]["groups"]
    found, host = alert["labels"], f"node{job.rank // 4}"
    assert (found["alertname"], found["job_name"], found["rank"], found["host"]) == (
        "TautFindingOpen", "llm", str(job.rank), host
    )  # fmt: skip
    assert alert["annotations"]["summary"].endswith(f"in job llm: rank {job.rank} on {host}")
    assert re.match(r"It costs \d+\.\d\d EUR an hour while it lasts\. Finding w-", alert["annotations"]["description"])
    assert [one["health"] for one in targets] == ["up"]
    assert {rule["health"] for group in groups for rule in group["rules"]} == {"ok"}
