"""Job logs are hostile: arbitrary bytes, and valid files that were damaged, load or are refused, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.core.errors import InputRefused
from taut.ledger.attempt_ledger import charge_attempts
from taut.read.jobs import gather_jobs as job_gather
from taut.read.jobs import job_table, kubectl_text, lsf, pbs, sacct, sacct_json, slurmctld, trainer_state, training_log
from taut.read.jobs import kubernetes_events as kubernetes
from taut.read.load import FORMATS

EVENT = {
    "involvedObject": {"kind": "Pod", "namespace": "a", "name": "b-0"}, "reason": "Started",
    "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:10:00Z", "count": 2,
    "message": "Started container",
}  # fmt: skip
VALID: dict[Any, bytes] = {
    sacct: b"JobID|State|Submit|Start|End|ElapsedRaw|AllocTRES|Restarts\n"
    b"7|FAILED|2026-01-01T00:00:00|2026-01-01T00:00:10|2026-01-01T01:00:10|3600|gres/gpu=8|0\n"
    b"7|RUNNING|2026-01-01T01:00:00|2026-01-01T02:00:10|Unknown|36|gres/gpu=8|0\n",
    sacct_json: json.dumps(
        {
            "jobs": [
                {
                    "job_id": 7,
                    "state": {"current": "FAILED"},
                    "time": {"start": 5, "end": 9, "elapsed": 4},
                    "tres": {"allocated": []},
                }
            ]
        }
    ).encode(),
    slurmctld: b"[2026-01-01T00:00:02.000] sched: Allocate JobId=12 NodeList=n[1-2] #CPUs=6 Partition=low\n"
    b"[2026-01-01T00:00:08.500] preempted JobId=12 has been requeued to reclaim resources for JobId=13\n"
    b"[2026-01-01T00:00:30.000] sched: Allocate JobId=12 NodeList=n[1-2] #CPUs=6 Partition=low\n",
    pbs: b"01/01/2026 00:01:00;S;7.head;user=a jobname=b qtime=1767225600 start=1767225660 Resource_List.select=2:ngpus=4\n"
    b"01/01/2026 00:11:00;E;7.head;user=a start=1767225660 end=1767226260 Exit_status=1\n",
    lsf: b'"JOB_FINISH" "10.1" 1767226260 7 501 0 8 1767225600 0 0 1767225660 "a" "q" "" "" "" "h" "" "" "" "" "f" 0 1 "n" 32 '
    b'1.0 "b" "c" ' + b"0 " * 19 + b'"" "d" 256 8 "" "" 0 1 1 "" "" "" "" 0 "" 5\n',
    kubernetes: json.dumps({"items": [EVENT, {**EVENT, "reason": "BackOff"}]}).encode(),
    kubectl_text: b"Name:  b-0\nNamespace:  a\nNode:  n1/10.0.0.1\nStart Time:  Thu, 01 Jan 2026 00:00:00 +0000\nContainers:\n"
    b"  c:\n    Last State:  Terminated\n      Reason:  Error\n      Exit Code:  1\n"
    b"      Started:  Thu, 01 Jan 2026 00:21:30 +0000\n      Finished:  Thu, 01 Jan 2026 00:21:40 +0000\n"
    b"    Restart Count:  8\n    Limits:\n      nvidia.com/gpu:  8\nEvents:\n"
    b"  Normal   Scheduled  25m                 default-scheduler  Successfully assigned a/b-0 to n1\n"
    b"  Warning  BackOff    1s (x9 over 24m)    kubelet            Back-off restarting failed container\n",
    job_table: json.dumps(
        [{"id": "a", "num_gpus": 2, "attempts": [{"start_time": "2026-01-01 00:00:00", "end_time": 1767229200}]}]
    ).encode(),
    trainer_state: b'{"global_step": 20, "log_history": [{"loss": 2.0, "step": 10}, {"step": 20, "train_runtime": 5.5}]}',
    training_log: b"[2026-01-01 00:20:00] iteration 1/100 | loss 1\n[2026-01-01 00:30:00] saved checkpoint at step 11 in 5 s\n"
    b"[2026-01-01 00:40:00] iteration 21/100 | loss 1\nRuntimeError: out of memory\n"
    b"E0101 00:50:00.000000 99 torch/distributed/elastic/api.py:1] failed (exitcode: 1) local_rank: 0 (pid: 7) of binary: p\n"
    b"[2026-01-01 02:01:00] loading checkpoint at iteration 11\n[2026-01-01 02:12:00] iteration 12/100 | loss 1\n",
}
JOB_LOGS = tuple(one.reader for one in FORMATS if one.module.startswith("jobs.") and one.name != "progress")
READERS = pytest.mark.parametrize("reader", JOB_LOGS, ids=lambda r: r.__name__.rpartition(".")[2])


def judged(reader: Any, data: bytes) -> None:
    """Sniffing never raises; loading loads or refuses; what loads can be charged, and closes."""
    reader.sniff(data)
    try:
        log = reader.load(data, "x")
    except InputRefused:
        return
    if log is None:
        return
    attempts, _ = job_gather.gather([log, log])
    ledger = charge_attempts(attempts)
    assert ledger is None or ledger.closes


def test_every_reader_has_a_valid_file_here() -> None:
    assert set(VALID) == set(JOB_LOGS)


@READERS
def test_the_valid_file_is_known_to_its_reader_alone(reader: Any) -> None:
    assert [one for one in JOB_LOGS if one.sniff(VALID[reader])] == [reader]
    judged(reader, VALID[reader])


@READERS
@given(data=st.binary(max_size=300))
def test_arbitrary_bytes(reader: Any, data: bytes) -> None:
    judged(reader, data)


@READERS
@given(data=st.data())
def test_damaged_files(reader: Any, data: Any) -> None:
    raw = bytearray(VALID[reader])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw)))
        length = data.draw(st.integers(0, 12))
        raw[at : at + length] = data.draw(
            st.binary(max_size=12) | st.sampled_from([b"9" * 40, b"-1", b"\n", b"|", b"null", b"{}", b"1e999", b"[]"])
        )
    judged(reader, bytes(raw))


@READERS
@given(
    text=st.text(
        st.sampled_from("0123456789-:T|.,{}[]\"'/ \n\r\titeration step loss checkpoint saved loaded JobId=E"), max_size=300
    )
)
def test_text_of_its_own_letters(reader: Any, text: str) -> None:
    judged(reader, text.encode())


WORDS = [
    "iteration", "step", "step:", "loss",
    "saved checkpoint", "loading checkpoint", "loaded checkpoint", "epoch", "failed (exitcode: 1)",
    "local_rank: 0 (pid: 3)", "at iteration", "5", "1,000", "9" * 30, "in 5.0 s", "took ...... s",
    "[2026-01-01 00:00:00]",
    "[9999-99-99 99:99:99]", "W0231 10:00:00.000000", "ChildFailedError", "RuntimeError: x",
    "elapsed time per iteration (ms): 1.5.5",
    "training completed", "\n", "\n", "max_restarts: 3", "Worker group FAILED. 3/3 attempts left", "] Starting worker group",
    "/ 10", "restart_count=2", "train_time:1.5s", "{'loss': 1.0, 'epoch': 0.5}", "{'train_runtime': 7, 'epoch': 1}",
    "\r 10%|# | 5/10 [00:05<00:05, 1.0it/s]", '\n:::MLLOG {"key": "run_start", "time_ms": 5}', "\n:::MLLOG {", "Epoch 1/3",
    '\n:::MLLOG {"key": "run_stop", "time_ms": 1633357000000}', "Nov 16 10:00:00", "restart_count=0", "world size: 8",
]  # fmt: skip


@given(words=st.lists(st.sampled_from(WORDS), max_size=60))
def test_lines_of_known_words_in_any_order(words: list[str]) -> None:
    judged(training_log, " ".join(words).encode())


def test_lines_of_any_length_cost_what_they_are_long() -> None:
    for text in (
        "iteration " * 200_000,
        "step=" * 100_000 + "1" * 100_000,
        "[" * 300_000,
        "a: " * 100_000,
        " " * 1_000_000 + "step 1",
    ):
        judged(training_log, text.encode())
    judged(slurmctld, b"[2026-01-01T00:00:02.000] JobId=1 " + b"NodeList=" * 100_000)
    judged(sacct, b"JobID|State|Start\n" + b"|" * 1_000_000)
    judged(kubernetes, b'{"involvedObject": {}, "reason": ' + b"[" * 100_000)
    judged(job_table, b'[{"attempts": [' + b'{"start": {"a": ' * 50_000)
