"""A real Prometheus, fed with real samples: what it is asked gives the same component view as the samples in a file."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from taut.cli import main
from taut.core.errors import InputRefused, UsageError
from taut.read.metrics import prometheus_live as metric_live
from taut.read.trace import read

ABSENT = "needs prometheus and promtool (apt-get install prometheus)"
START_S = 1_700_000_000
"""When the traces of the tests begin."""
HOSTS = ("node7", "node7", "node8", "node8")


def samples() -> str:
    """Two accelerators on each of three hosts (one of another job), a network card, and a clock that falls; OpenMetrics."""
    lines: dict[str, list[str]] = {}
    for second in range(-30, 40):
        for host in ("node7", "node8", "node9"):
            for gpu in (0, 1):
                where = f'Hostname="{host}.cluster",gpu="{gpu}",device="nvidia{gpu}",job="dcgm",pod="p \\"{gpu}\\""'
                for name, value in (
                    ("DCGM_FI_DEV_POWER_USAGE", 300 + 100 * gpu + second % 7 / 10),
                    ("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", 350),
                    ("DCGM_FI_DEV_SM_CLOCK", 1980 - second),
                    ("DCGM_FI_DEV_GPU_TEMP", 2147483632 if host == "node8" else 61),
                    ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 400_000 * (second + 100)),
                    ("unheard_of", 5),
                ):
                    lines.setdefault(name, []).append(f"{name}{{{where}}} {value} {START_S + second}.125")
            name, where = "node_network_receive_bytes_total", f'instance="{host}:9100",device="eth0"'
            lines.setdefault(name, []).append(f"{name}{{{where}}} {1e6 * (second + 100)} {START_S + second}.25")
    return "".join(line + "\n" for name in sorted(lines) for line in lines[name]) + "# EOF\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The samples as OpenMetrics, and as blocks of a database."""
    if not shutil.which("prometheus") or not shutil.which("promtool"):
        pytest.skip(ABSENT)
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "samples.txt").write_text(samples())
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "samples.txt", "data"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=60)
    (folder / "prometheus.yml").write_text("global: {}\n")
    return folder


@pytest.fixture(scope="module")
def prometheus(folder: Path) -> Iterator[str]:
    """The address of a Prometheus that holds the samples."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [
        "prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address={address}",
        "--storage.tsdb.retention.time=50y", "--log.level=error",
    ]  # fmt: skip
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        for _ in range(300):
            time.sleep(0.1)
            try:
                urllib.request.urlopen(f"http://{address}/-/ready", timeout=5).close()
                break
            except OSError:
                assert server.poll() is None, (folder / "log").read_text()
        yield f"http://{address}"
    finally:
        server.terminate()
        server.wait(30)


@pytest.fixture
def traces(tmp_path: Path, tiny: Any) -> Callable[..., Path]:
    """Writes a job of one rank per host name, ten seconds long."""

    def write(*hosts: str) -> Path:
        folder = tmp_path / "traces"
        folder.mkdir()
        for rank, host in enumerate(hosts):
            events = [tiny.step(1, 0, 5_000_000), tiny.step(2, 5_000_000, 5_000_000)]
            events += [tiny.event("cpu_op", "aten::mm", 5_000_000 * step + 1, 4_999_000) for step in (0, 1)]
            data = tiny.as_bytes(events, rank=rank, world_size=len(hosts), **({"host_name": host} if host else {}))
            (folder / f"rank{rank}.json").write_bytes(data)
        return folder

    return write


def taut(tmp_path: Path, *args: object) -> Result:
    command = ["analyze", *map(str, args), "--json", "-q", "-o", str(tmp_path / "run")]
    return CliRunner(env={"COLUMNS": "100"}).invoke(main, command, prog_name="taut")


def view(tmp_path: Path, *args: object) -> list[dict[str, Any]]:
    done = taut(tmp_path, *args)
    assert done.exit_code == 0, done.stderr
    return list(json.loads(done.stdout)["components"])


def test_the_same_component_view_as_from_files(
    prometheus: str, folder: Path, traces: Callable[..., Path], tmp_path: Path
) -> None:
    job = traces(*HOSTS)
    live = view(tmp_path, job, "--metrics", prometheus, "--map", "Hostname,gpu→rank")
    ours = [row for row in view(tmp_path, job, "--metrics", folder / "samples.txt", "--map", "Hostname,gpu->rank")
            if "node9" not in row["component"] and row["metric"] != "unheard_of"]  # fmt: skip
    assert live == ours
    power = [row for row in live if row["metric"] == "power_w"]
    assert [(row["rank"], row["inside"], row["samples"]) for row in power] == [(r, r % 2 == 0, 10) for r in range(4)]
    assert {row["rank"] for row in live if row["metric"] == "temperature_c"} == {0, 1}
    assert {round(row["value"]) for row in live if row["metric"] == "power_average_w"} == {400}
    assert {row["component"] for row in live if row["rank"] is None} == {"node7 eth0", "node8 eth0"}


def test_many_hosts_are_asked_for_in_several_queries(
    prometheus: str, traces: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = traces(*HOSTS, "elsewhere", "nowhere")
    once = read([job], metrics_at=[prometheus], places="Hostname,gpu→rank").metrics
    monkeypatch.setattr(metric_live, "SELECTOR", 10)
    again = read([job], metrics_at=[prometheus], places="Hostname,gpu→rank").metrics
    assert again.to_arrow().drop_columns("limit").equals(once.to_arrow().drop_columns("limit"))
    assert len(once)


def test_a_dump_of_its_database_is_the_same_again(folder: Path, traces: Callable[..., Path], tmp_path: Path) -> None:
    job = traces(*HOSTS)
    dump = subprocess.run(["promtool", "tsdb", "dump", "data"], cwd=folder, check=True, capture_output=True, timeout=60)
    (tmp_path / "dump.txt").write_bytes(dump.stdout)
    assert view(tmp_path, job, "--metrics", tmp_path / "dump.txt") == view(tmp_path, job, "--metrics", folder / "samples.txt")


def test_without_a_map_the_usual_labels_count(prometheus: str, traces: Callable[..., Path]) -> None:
    trace = read([traces(*HOSTS)], metrics_at=[prometheus])
    assert set(trace.metrics.rank.tolist()) == {-1, 0, 1, 2, 3}
    assert not any("ranks" in line and "metrics of" in line for line in trace.partial)


def test_ranks_without_metrics_are_counted(prometheus: str, traces: Callable[..., Path]) -> None:
    trace = read([traces("node7", "elsewhere")], metrics_at=[prometheus], places="Hostname,gpu->rank")
    assert f"{prometheus}: metrics of 1 of 2 ranks" in trace.partial


def test_a_job_on_other_hosts_is_refused_in_a_line(prometheus: str, traces: Callable[..., Path], tmp_path: Path) -> None:
    done = taut(tmp_path, traces("a1", "a2"), "--metrics", prometheus)
    assert done.exit_code == 4
    assert done.stderr.count("\n") == 1
    assert "none of its" in done.stderr
    assert "in the traces: a1, a2); say which labels hold host and accelerator" in done.stderr


def test_another_time_is_refused(prometheus: str, tmp_path: Path, tiny: Any) -> None:
    data = tiny.as_bytes([tiny.event("cpu_op", "aten::mm", 1, 9)], baseTimeNanoseconds=(START_S + 10**6) * 10**9)
    (tmp_path / "rank0.json").write_bytes(data)
    with pytest.raises(InputRefused, match="holds no metrics that taut knows between 2023-11-26 11:59:00 UTC and"):
        read([tmp_path], metrics_at=[prometheus])


def test_a_trace_without_unix_time_cannot_be_looked_up(tmp_path: Path) -> None:
    table = tmp_path / "ops.csv"
    table.write_text("rank,step,class,start_ms,duration_ms\n0,0,mm,0,5\n1,0,mm,0,6\n")
    with pytest.raises(InputRefused, match="the traces' times are no unix time"):
        read([table], metrics_at=["http://127.0.0.1:9"])


def test_a_map_without_metrics(tmp_path: Path, traces: Callable[..., Path]) -> None:
    with pytest.raises(UsageError, match="--map needs --metrics"):
        read([traces("a")], places="a->rank")
    done = taut(tmp_path, tmp_path / "traces", "--map", "x", "--metrics", "http://127.0.0.1:9")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)


def test_a_file_elsewhere_without_metrics_is_refused(tmp_path: Path, traces: Callable[..., Path]) -> None:
    (tmp_path / "notes.txt").write_text("nothing here\n")
    with pytest.raises(InputRefused, match="no metrics in it"):
        read([traces("a")], metrics_at=[tmp_path / "notes.txt"])
    with pytest.raises(InputRefused, match="no such file"):
        read([tmp_path / "traces"], metrics_at=[tmp_path / "absent.csv"])


def test_the_metrics_of_a_run_can_be_given_again(tmp_path: Path, traces: Callable[..., Path]) -> None:
    job = traces(*HOSTS)
    (tmp_path / "m.txt").write_text(samples())
    first = view(tmp_path, job, "--metrics", tmp_path / "m.txt", "--map", "Hostname,gpu->rank")
    shutil.copy(tmp_path / "run" / "metrics.parquet", tmp_path / "again.parquet")
    assert view(tmp_path, job, "--metrics", tmp_path / "again.parquet") == first
