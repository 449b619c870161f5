"""Accounting of PBS and LSF: attempts, outcomes, accelerators."""

from __future__ import annotations

from typing import Any

import pytest

from taut.core.errors import InputRefused
from taut.read.jobs import lsf, pbs

T = 1_767_225_600
ASKED = "Resource_List.select=2:ncpus=8:ngpus=4 Resource_List.walltime=01:00:00 Resource_List.nodect=2"
ONCE = f"user=a jobname=train queue=q ctime={T} qtime={T} etime={T} start={T + 60} exec_host=n1/0*8+n2/0*8 {ASKED}"
PBS = f"""01/01/2026 00:00:00;L;license;floating license hour:3 day:3
01/01/2026 00:00:00;Q;7.head;queue=q
01/01/2026 00:01:00;S;7.head;{ONCE}
01/01/2026 00:11:00;R;7.head;{ONCE} end={T + 660} Exit_status=-11
01/01/2026 00:20:00;S;7.head;{ONCE.replace(f"start={T + 60}", f"start={T + 1200}")}
01/01/2026 00:30:00;E;7.head;{ONCE.replace(f"start={T + 60}", f"start={T + 1200}")} end={T + 1800} Exit_status=0
01/01/2026 00:01:00;S;8[3].head;{ONCE}
01/01/2026 01:01:01;E;8[3].head;{ONCE} end={T + 3661} Exit_status=271 resources_used.walltime=01:00:01
01/01/2026 00:01:00;S;9.head;user=a qtime={T} start={T} Resource_List.ncpus=2 Resource_List.nodes=1:ppn=2
01/01/2026 00:02:00;D;9.head;requestor=a@head
01/01/2026 00:02:00;E;9.head;user=a qtime={T} start={T} end={T + 120} Resource_List.ncpus=2 Exit_status=271
01/01/2026 00:03:00;Q;10.head;queue=q
"""


def attempts(reader: Any, text: str) -> list[tuple[Any, ...]]:
    assert reader.sniff(text.encode())
    t = reader.load(text.encode(), "x").attempts
    start, end = ((ns // 10**9 - T).tolist() for ns in (t.start_ns, t.end_ns))
    return list(zip(t.job, start, end, t.outcome, t.accelerators.tolist(), strict=True))


def test_a_requeued_job_of_pbs_has_two_attempts_and_its_accelerators() -> None:
    assert attempts(pbs, PBS) == [
        ("7", 60, 660, "cancelled", 8),
        ("7", 1200, 1800, "completed", 8),
        ("8_3", 60, 3661, "timed out", 8),
        ("9", 0, 120, "cancelled", 0),
        ("10", -1 - T, -1 - T, "pending", -1),
    ]


def finished(job: int, start: int, status: int, code: int, why: int, index: int = 0) -> str:
    usage = "1.0 " * 19
    return (
        f'"JOB_FINISH" "10.1" {T + start + 100} {job} 501 33554434 8 {T} 0 0 {T + start} "ada" "gpu" "" "" "" "h" "a ""b""" '
        f'"" "" "" "j.{job}" 0 2 "n1" "n2" {status} 60.0 "train" "python a.py" {usage}"" "default" {code} 8 "" "" {index} 1 '
        f'1 "" "" "" "" 0 "" {why} "" -1 "" "" "" "" -1 "" ""\n'
    )


def test_records_of_lsf() -> None:
    text = finished(5, 10, 32, 35584, 1) + finished(5, 200, 64, 0, 0) + finished(6, 0, 32, 256, 0, 4) + finished(7, 0, 32, 1, 5)
    assert attempts(lsf, text) == [
        ("5", 10, 110, "preempted", 8),
        ("5", 200, 300, "completed", 8),
        ("6_4", 0, 100, "failed", 8),
        ("7", 0, 100, "timed out", 8),
    ]


@pytest.mark.parametrize(
    ("reader", "text"), [(pbs, "01/01/2026 00:00:00;L;license;a\n"), (lsf, '"JOB_FINISH" "10.1" 5\n')], ids=["pbs", "lsf"]
)
def test_a_file_without_a_job_is_refused_by_its_name(reader: Any, text: str) -> None:
    assert reader.sniff(text.encode())
    with pytest.raises(InputRefused, match=r"of (PBS|LSF) without"):
        reader.load(text.encode(), "x")
