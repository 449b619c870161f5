"""What a collector sees as Prometheus' text: names, units, what is not known, and names that are an attack."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from live_states import EVIL, finding, job, rank, state
from taut.render.prometheus_export import METRICS, exposition
from taut.result.types import LiveState

ABSENT = "needs prometheus and promtool (apt-get install prometheus)"


def samples(told: LiveState) -> dict[str, float]:
    lines = exposition(told, "1.0").decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if not line.startswith("#"))}


def test_a_job_with_a_slow_rank() -> None:
    found = samples(state(job()))
    assert found['taut_job_step_seconds{job_name="llm"}'] == 0.412
    assert found['taut_rank_late_seconds{job_name="llm",rank="3",host="node0"}'] == 0.092
    where = 'job_name="llm",mode="degraded component",rank="3",host="node0",finding="w-0011223344"'
    assert found[f"taut_finding_open{{{where}}}"] == 1
    assert found[f'taut_finding_cost_per_hour{{{where},currency="EUR"}}'] == 14.2
    classes = {name: value for name, value in found.items() if name.startswith("taut_job_class")}
    assert sum(classes.values()) == classes['taut_job_class{job_name="llm",class="component"}'] == 1
    assert found['taut_job_regime{job_name="llm",regime="unstable"}'] == 0
    assert found['taut_job_reserve_lower_ratio{job_name="llm"}'] == 2.0
    assert found['taut_job_lost_events_total{job_name="llm",reason="dropped"}'] == 7
    assert found['taut_job_lost_events_total{job_name="llm",reason="over"}'] == 0
    assert found["taut_collector_refused_connections_total"] == 2
    assert found["taut_collector_start_time_seconds"] == 1_799_996_400


def test_what_is_not_known_has_no_sample() -> None:
    nothing = job(
        kind="unknown", findings=[], step_ns=None, steps_ns=[], regime=None, reserve=None, world=None, last_step=None,
        ranks=[rank(0, late_ns=None, busy_ns=None, loader_ns=None, host=None)],
    )  # fmt: skip
    found = {name.partition("{")[0] for name in samples(state(nothing))}
    assert not found & {
        "taut_job_step_seconds", "taut_job_regime", "taut_job_reserve_ratio", "taut_job_world_ranks", "taut_rank_late_seconds",
        "taut_finding_open",
    }  # fmt: skip


def test_every_metric_says_what_it_is() -> None:
    text = exposition(state(job()), "1.0").decode()
    assert re.findall(r"^# HELP (\S+) \S", text, re.M) == re.findall(r"^# TYPE (\S+) (?:gauge|counter)$", text, re.M)
    assert set(re.findall(r"^(taut_\w+)", text, re.M)) == set(METRICS)


def test_names_are_data_and_no_series_is_told_twice() -> None:
    told = state(job(job=EVIL, findings=[finding(job=EVIL, hosts=[EVIL])]), job(job=EVIL))
    text = exposition(told, "1.0").decode()
    assert all(re.fullmatch(r'# .*|taut_\w+({(\w+="([^"\\]|\\.)*",?)*})? \S+', line) for line in text.splitlines())
    assert "\x1b" not in text
    series = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(series) == len(set(series))


@pytest.mark.parametrize("told", [state(), state(job(), job(job=EVIL, ranks=[rank(0, host=EVIL)]))], ids=["idle", "jobs"])
def test_promtool_finds_nothing_wrong(told: LiveState) -> None:
    if not shutil.which("promtool"):
        pytest.skip(ABSENT)
    done = subprocess.run(["promtool", "check", "metrics"], input=exposition(told, "1.0"), capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
