"""Runs of a matrix side by side: each on cores of its own. What a lab does is not run here: it would need the cores."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from taut.core.errors import TautError
from taut.lab import run_cases
from taut.lab.case import PLAIN_JOB, Spec


class Recorded:
    """In place of a lab: takes a moment, notes which cores are in use, and fails where it is told to."""

    busy: set[int]
    most: int
    lock = threading.Lock()

    def __init__(self, device: str) -> None:
        self.device = device

    def __enter__(self) -> Recorded:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, spec: Spec) -> float:
        with self.lock:
            assert spec.cores
            assert not self.busy & set(spec.cores), "two runs share a core"
            self.busy.update(spec.cores)
            Recorded.most = max(self.most, len(self.busy))
        time.sleep(0.01)
        with self.lock:
            self.busy.difference_update(spec.cores)
        if spec.fault == "kill":
            raise TautError("it ended")
        return 0.01


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> type[Recorded]:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    monkeypatch.setattr(run_cases, "Runner", Recorded)
    Recorded.busy, Recorded.most = set(), 0
    return Recorded


def spec(ranks: int, seed: int, job: str = "ddp", fault: str = "none") -> Spec:
    return Spec(job=job, fault=fault, ranks=ranks, seed=seed, folder=str(Path("x", str(seed))))


def test_runs_share_the_machine_and_no_core(machine: type[Recorded]) -> None:
    specs = [spec((4, 8, 16)[seed % 3], seed) for seed in range(24)]
    ended = list(run_cases.run_all(specs))
    assert sorted(one.seed for one, _ in ended) == list(range(24))
    assert all(error is None for _, error in ended)
    assert {len(one.cores) for one, _ in ended if one.ranks >= 8} == {8}
    assert machine.most == 16


def test_a_run_that_fails_says_why_and_the_others_go_on(machine: type[Recorded]) -> None:
    ended = {one.seed: error for one, error in run_cases.run_all([spec(4, 1, fault="kill"), spec(4, 2), spec(16, 3)])}
    assert str(ended[1]) == "it ended"
    assert ended[2] is None
    assert ended[3] is None


def test_plain_processes_have_the_machine_for_themselves(machine: type[Recorded]) -> None:
    ended = list(run_cases.run_all([spec(64, 1, PLAIN_JOB), spec(4, 2), spec(16, 3, PLAIN_JOB)]))
    assert {one.seed: len(one.cores) for one, _ in ended} == {1: 16, 2: 4, 3: 16}
    assert list(run_cases.run_all([])) == []
