"""Real logs: a preempt–rescue loop, Ray Serve under a known load, torchrun timeouts, Philly's restarts."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

import taut
from actions import act, trace
from taut.control.relations import control


def seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp.replace(",", ".")).replace(tzinfo=UTC).timestamp()


def of_kind(found, kind: str) -> list:
    return [one for one in found["relations"] if one["kind"] == kind]


def test_preemption_and_rescue_fight_over_a_job(shared: Path) -> None:
    slurm = (shared / "control/slurmctld-preempt-rescue.log").read_text()
    rows = [
        act(seconds(t), "slurmctld", -1, job, "allocation") for t, job in re.findall(r"\[(\S+)\] preempted JobId=(\d+)", slurm)
    ]
    rows += [
        act(seconds(t), "slurmctld", 1, job, "allocation")
        for t, job in re.findall(r"\[(\S+)\] sched: Allocate JobId=(\d+)", slurm)
    ]
    rescues = (shared / "control/rescuer.log").read_text().splitlines()
    rows += [act(seconds(t), "rescuer", 1, job, "allocation") for t, _, _, job in map(str.split, rescues)]
    found = control(trace(rows))
    (one,) = of_kind(found, "conflict")
    assert (one["controllers"], one["target"], one["count"], one["p"]) == (["slurmctld", "rescuer"], "12", 8, None)
    assert "rescuer undoes slurmctld's changes to allocation of job 12: 8 of 8 times, every 6.0" in one["because"]
    assert found["regime"]["class"] == "incoherent"


def ray(shared: Path) -> list:
    text = (shared / "control/ray_serve_controller.log").read_text()
    lines = dict.fromkeys(re.findall(r"INFO (\S+ \S+) controller .* from (\d+) to (\d+) replicas", text))
    return [act(seconds(t), "serve", 1 if int(b) > int(a) else -1, "A", before=a, after=b) for t, a, b in lines]


def test_twelve_reversals_of_ray_serve_for_seven_of_demand(shared: Path) -> None:
    begin = seconds("2026-11-15 06:37:15")
    times = np.arange(-1, 121)
    load = np.where((times >= 0) & (times < 120), 6.0 * ((times // 15) % 2 == 0), 0.0)
    (one,) = of_kind(control(trace(ray(shared), demand=(begin + times, load))), "oscillation")
    assert (one["count"], one["p"]) == (12, None)
    assert "turned 7 times" in one["because"]


@pytest.mark.parametrize("name", ["torchrun-c10d-timeout.err", "torchrun-standalone-timeout.err"])
def test_torchrun_burns_its_restarts_under_a_timeout(shared: Path, name: str) -> None:
    (one,) = of_kind(taut.control(taut.read([str(shared / "control" / name)])), "timeout mismatch")
    assert (one["count"], one["p"]) == (4, None)


@pytest.mark.parametrize("name", ["control/torchrun-ok.err"])
def test_healthy_logs_have_no_relation(shared: Path, name: str) -> None:
    assert taut.control(taut.read([str(shared / name)]))["relations"] == []


def test_a_job_that_slurm_preempts_again_and_again_is_starved(shared: Path) -> None:
    (one,) = of_kind(taut.control(taut.read([str(shared / "control/slurmctld-preempt-rescue.log")])), "starvation")
    assert (one["target"], one["count"]) == ("12", 8)
    assert one["q"] <= 0.05


def test_philly_has_a_hidden_limit_of_four_hours(shared: Path) -> None:
    found = taut.control(taut.read([str(shared / "philly-restarts/jobs.json")]))
    (lost,), (limit,) = of_kind(found, "redundant work"), of_kind(found, "timeout mismatch")
    assert lost["count"] == 816
    assert lost["statistic"] == pytest.approx(0.207, abs=0.0005)
    assert (limit["count"], limit["statistic"]) == (19, 14400.0)
    assert limit["q"] < 1e-6
    assert "after 4 h (240 min), where the durations around it would put 1.1" in limit["because"]
    heaps = [float(at) for at in re.findall(r"about (\d+\.?\d*) s", limit["because"])]
    assert heaps[0] < 15 < 180 < heaps[1] < 200
