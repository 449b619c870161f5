"""``taut watch``: jobs while they run."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from taut.cli.common import say, write_out
from taut.cli.options import Target, price
from taut.cli.watch_capture import CaptureOnFinding, capture
from taut.cli.watch_pull import pull
from taut.cli.watch_top import FOLDER, top
from taut.core.errors import UsageError

if TYPE_CHECKING:
    import socket

    from taut.result.types import LiveFinding
    from taut.watch.collect import Watcher
    from taut.watch.window import Window

PORT = 8322
SECRET = "TAUT_WATCH_SECRET"
PLACEHOLDER = "change-me-openssl-rand-hex-16"
"""The secret of docs/watch/taut-collector.yaml, which everybody knows."""


@click.group(short_help="Watch jobs while they run.")
def watch() -> None:
    """Watch jobs while they run: who is late, where, since when, and what it costs an hour.

    In the job: import taut.watch; taut.watch.start(), and in its TAUT_WATCH_SECRET what taut watch collect --secret-for JOB
    prints: the secret of that job alone.
    """


watch.add_command(pull)
watch.add_command(capture)
watch.add_command(top)


class CollectOptions(TypedDict):
    """Where Prometheus may ask; and the job whose secret is printed instead."""

    secret_for: str | None
    metrics_port: int | None
    metrics_host: str


@watch.command(short_help="Hear the ranks of jobs, and tell what is found.")
@click.option("--host", metavar="H", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option("--port", metavar="P", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="Port.")
@click.option(
    "--keep",
    metavar="FOLDER",
    type=Target(file_okay=False),
    default=str(FOLDER),
    show_default=True,
    help="Where closed findings and a line a minute are kept, 256 MiB and 30 days at most.",
)
@click.option(
    "--memory", metavar="MIB", type=click.IntRange(16, 1 << 20), default=128, show_default=True, help="Of all windows."
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print every finding as a line of JSON, when it opens and when it closes."
)
@click.option(
    "--gpu-hour", "price", metavar="PRICE", callback=price, help="Price of one rank for one hour, for example 2.50EUR."
)
@click.option(
    "--metrics-port",
    metavar="P",
    type=click.IntRange(0, 65535),
    help="Tell Prometheus what is seen, at http://…:P/metrics; off unless given.",
)
@click.option(
    "--metrics-host",
    metavar="H",
    default="127.0.0.1",
    show_default=True,
    help="Address for --metrics-port; whoever reaches it reads names of jobs and hosts.",
)
@click.option(
    "--capture",
    "capture_min",
    metavar="MIN",
    type=click.IntRange(1, 10_080),
    help="When a finding opens, run taut watch capture, for each job at most once in so many minutes.",
)
@click.option(
    "--secret-for", "secret_for", metavar="JOB", help="Print the secret of that job, for its TAUT_WATCH_SECRET, and end."
)
def collect(
    host: str,
    port: int,
    keep: str,
    memory: int,
    as_json: bool,
    price: tuple[str, str] | None,
    capture_min: int | None,
    **more: Unpack[CollectOptions],
) -> None:
    """Hear the ranks of jobs over TCP, keep a window of each, and tell what is found.

    Ranks find it by TAUT_WATCH=HOST:PORT. The secret in TAUT_WATCH_SECRET (at least 16 characters) stays here; --secret-for
    prints the one that a job is given as its TAUT_WATCH_SECRET, with which it can speak for itself alone. A job is called by
    its SLURM_JOB_ID, TORCHELASTIC_RUN_ID or JOB_NAME, else job. Others are refused. What is sent is proved, not encrypted:
    listen inside the cluster. A job never waits for it. Ctrl-C ends it.

    \b
      export TAUT_WATCH_SECRET=$(openssl rand -hex 16)
      taut watch collect
      taut watch collect --secret-for llm-70b
      taut watch collect --host 10.0.0.5 --json > findings.jsonl
    """
    secret = _secret()
    if more["secret_for"] is not None:
        write_out(_secret_of(secret, more["secret_for"]))
        return
    from taut.serve.listening import bound, is_loopback
    from taut.watch.collect import Collector, Limits
    from taut.watch.collector_process import open_files, run
    from taut.watch.compiled_ahead import Compiling
    from taut.watch.kept import Kept

    files = open_files(Limits().connections)
    limits = Limits(window_bytes=memory << 20, connections=min(files, Limits().connections))
    listening = bound(host, port, waiting=4096)
    metrics = _metrics_socket(more)
    kept = Kept(Path(keep), say)
    escalates = None if capture_min is None else CaptureOnFinding(keep, 60.0 * capture_min)
    tell = _teller(as_json, escalates)
    collector = Collector(secret, limits=limits, say=say, tell=tell, kept=kept, watcher=_watcher(price))
    at = f"{host}:{listening.getsockname()[1]}"
    who = "this machine only" if is_loopback(host) else "whoever reaches it and knows the secret; nothing is encrypted"
    say(f"watching at {at}, for {who} (Ctrl-C ends it)")
    if files < limits.ranks:
        say(f"at most {files:,} ranks: this process may open no more files (ulimit -n)")
    compiling = Compiling()  # now, and not when the first job comes, which may share these cores
    collector.may_look = compiling.is_done
    try:
        run(collector, listening, metrics)
    finally:
        compiling.close()
        kept.close()


def _metrics_socket(exported: CollectOptions) -> socket.socket | None:
    """Where metrics are asked for, and a line that says so; None where nobody is to ask."""
    host, port = exported["metrics_host"], exported["metrics_port"]
    if port is None:
        return None
    from taut.serve.listening import bound

    listening = bound(host, port, option="--metrics-", waiting=16)
    say(f"metrics at http://{host}:{listening.getsockname()[1]}/metrics")
    return listening


def _secret() -> bytes:
    from taut.watch.wire import LEAST_SECRET

    given = os.environ.get(SECRET, "")
    if len(given) < LEAST_SECRET:
        lacks = f"has {len(given)} characters" if given else "is not set"
        raise UsageError(
            f"{SECRET} {lacks}: give at least {LEAST_SECRET}, the collector's own, for example: openssl rand -hex 16"
        )
    if given == PLACEHOLDER:
        raise UsageError(f"{SECRET} is {PLACEHOLDER!r}, which everybody knows: give one of your own, of openssl rand -hex 16")
    return given.encode()


def _secret_of(secret: bytes, job: str) -> bytes:
    """The secret of a job, as a line."""
    from taut.watch.wire import JOB_BYTES, job_secret

    if not 0 < len(os.fsencode(job)) <= JOB_BYTES:
        raise UsageError(f"--secret-for: a name of {len(os.fsencode(job))} bytes; give the job's, of 1 to {JOB_BYTES}")
    return job_secret(secret, job) + b"\n"


def _watcher(price: tuple[str, str] | None) -> Callable[[Window], Watcher]:
    """What looks at the window of each job, with the price of an hour of a rank."""
    from decimal import Decimal

    from taut.watch.live_findings import Live
    from taut.watch.seen import Feed, KeptRows

    known, rows = (Decimal(price[0]), price[1]) if price else None, KeptRows()

    def made(window: Window) -> Live:
        return Live(Feed(window).new, window.job, price=known, rows=rows)

    return made


def _teller(as_json: bool, escalates: CaptureOnFinding | None = None) -> Callable[[LiveFinding], None]:
    """Tells findings: a line for people on stderr, and where it is asked for one of JSON on stdout."""

    def tell(finding: LiveFinding) -> None:
        if as_json:
            write_out(json_line(finding))
        ranks = ", ".join(map(str, finding.ranks[:8])) or ", ".join(finding.links[:8])
        where = f"rank {ranks}" if ranks else "all ranks"
        say(f"{finding.job}: {finding.state}: {finding.mode}, {where}: {finding.text}")
        if escalates is not None:
            escalates.on_finding(finding)

    return tell


def json_line(finding: LiveFinding) -> bytes:
    """A finding as one line of JSON, safe to show."""
    from taut.core.json_text import json_text

    return ("".join(line.strip() for line in json_text(finding).split("\n")) + "\n").encode()
