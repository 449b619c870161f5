"""An analysis on a real Dask cluster: the same bytes as here, whoever is killed; and what is wrong with one in one line."""

from __future__ import annotations

import random
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from pathlib import Path

import pytest

import taut
from taut.core import executors

pytest.importorskip("distributed", exc_type=ImportError)

from distributed import cfexecutor
from tornado import gen
from tornado.ioloop import IOLoop

from killed_workers import Cluster, analysed_with_kill, command, started, stopped, write_job

pytestmark = pytest.mark.filterwarnings("ignore")
RANKS = 24


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with started() as found:
        yield found


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_job(tmp_path_factory.mktemp("job") / "job", RANKS)


@pytest.fixture(scope="module")
def here(job: Path) -> str:
    """What the job gives without a cluster."""
    return taut.analyze(job).to_json()


def test_the_same_bytes_and_nothing_left_on_the_scheduler(cluster: Cluster, job: Path, here: str) -> None:
    assert taut.analyze(job, on=cluster.on).to_json() == here
    assert cluster.tasks_left() == 0


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_worker_that_is_killed_costs_a_retry(cluster: Cluster, job: Path, here: str, seed: int) -> None:
    assert analysed_with_kill(cluster, job, RANKS, random.Random(seed)) == here


@pytest.mark.parametrize("result", [["one"], ["one", "two", "three"]])
def test_a_result_whose_worker_died_a_moment_later_is_done_again_here(result: list[str]) -> None:
    class Died:
        """What Dask holds of a task whose worker died after its result was fetched."""

        status = "lost"

        @gen.coroutine
        def _result(self, raiseit: bool) -> list[str]:
            return result

    class Pool(Executor):
        def submit(self, fn: object, /, *args: object, **kwargs: object) -> Future[list[str]]:
            told: Future[list[str]] = Future()
            IOLoop().run_sync(lambda: cfexecutor._cascade_future(Died(), told))
            return told

    assert list(executors.results_in_order(Pool(), len, ["a", "bc"])) == [1, 2]


def test_a_command_that_is_killed_goes_on_with_resume(cluster: Cluster, job: Path, here: str, tmp_path: Path) -> None:
    cluster.wait()
    run = tmp_path / "run"
    assert stopped(command(cluster, job, run, "-q"), run, 5, lambda process: process.kill()).returncode == -signal.SIGKILL
    again = subprocess.run(command(cluster, job, run, "--resume", "-q"), capture_output=True, text=True, check=True)
    assert (again.stdout, again.stderr) == (here + "\n", "")
    assert [path.name for path in tmp_path.iterdir() if path.name != "taut-runs"] == ["run"]


def test_an_interrupt_cancels_and_leaves_nothing(cluster: Cluster, job: Path, tmp_path: Path) -> None:
    cluster.wait()
    process = stopped(
        command(cluster, job, tmp_path / "run"), tmp_path / "run", 3, lambda process: process.send_signal(signal.SIGINT)
    )
    assert process.stderr is not None
    assert (process.returncode, process.stderr.read()) == (130, "taut: interrupted\n")
    assert cluster.tasks_left() == 0
    assert list(tmp_path.iterdir()) == []


def test_a_scheduler_that_does_not_answer_is_said_in_one_line(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "ANSWER_S", 0.2)
    with pytest.raises(taut.TautError, match=r"dask://127\.0\.0\.1:1: no scheduler answered within") as refusal:
        taut.read(job, on="dask://127.0.0.1:1")
    assert "\n" not in str(refusal.value)


def test_workers_with_another_version_are_refused_in_one_line(
    cluster: Cluster, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.wait()
    monkeypatch.setattr(executors, "__version__", "9.9")
    with pytest.raises(taut.TautError, match=r"worker tcp://.* has taut .*, this is 9\.9; install the same version there"):
        taut.read(job, on=cluster.on)
