"""Tables of jobs with their attempts: JSON of two shapes, JSON lines and CSV."""

from __future__ import annotations

import json

import pytest

from taut.core.errors import InputRefused
from taut.read import json_fields
from taut.read.jobs import job_table

JOBS = [
    {
        "id": "a", "num_gpus": 8, "submitted_time": "2017-10-07 00:00:00",
        "attempts": [
            {"start_time": "2017-10-07 00:00:10", "end_time": "2017-10-07 00:00:20"},
            {"start_time": "2017-10-07 00:00:30", "end_time": "2017-10-07 00:01:30"},
        ],
    },
    {"id": "b", "num_gpus": 4, "attempts": [{"start_time": "2017-10-07 00:00:00", "end_time": None}]},
]  # fmt: skip
DETAILED = [
    {
        "jobid": "c", "status": "Killed",
        "attempts": [
            {"start_time": "2017-10-07 00:00:10", "end_time": "2017-10-07 00:00:20",
             "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}]},
            {"start_time": "2017-10-07 00:00:30", "end_time": "2017-10-07 00:01:30",
             "detail": [{"ip": "m2", "gpus": ["gpu0"]}]},
        ],
    }
]  # fmt: skip


def rows(data: bytes) -> list[tuple[object, ...]]:
    assert job_table.sniff(data)
    t = job_table.load(data, "jobs").attempts
    took = [
        (end - start) // 10**9 if end >= 0 else None for start, end in zip(t.start_ns.tolist(), t.end_ns.tolist(), strict=True)
    ]
    return list(zip(t.job.tolist(), t.attempt.tolist(), took, t.outcome.tolist(), t.accelerators.tolist(), strict=True))


@pytest.mark.parametrize(
    "text",
    [json.dumps(JOBS), json.dumps(JOBS, indent=4), json.dumps({"jobs": JOBS}), "\n".join(map(json.dumps, JOBS))],
    ids=["list", "printed", "named", "lines"],
)
@pytest.mark.parametrize("slab", [1, 1 << 20])
def test_jobs_with_their_attempts(text: str, slab: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_fields, "LIST_SLAB", slab)
    assert rows(text.encode()) == [("a", 1, 10, "", 8), ("a", 2, 60, "", 8), ("b", 1, None, "", 4)]


def test_only_the_first_attempt_was_submitted_by_somebody() -> None:
    assert (job_table.load(json.dumps(JOBS).encode(), "jobs").attempts.submit_ns >= 0).tolist() == [True, False, False]


def test_accelerators_may_be_listed_by_host_and_the_status_is_that_of_the_last() -> None:
    assert rows(json.dumps(DETAILED).encode()) == [("c", 1, 10, "", 2), ("c", 2, 60, "cancelled", 1)]


def test_objects_inside_of_jobs_that_begin_alike_are_no_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_fields, "LIST_SLAB", 1)
    jobs = [{"id": str(i), "attempts": [{"id": k, "start": 100 + k, "end": 200} for k in range(3)]} for i in range(4)]
    jobs.append({"attempts": [{"start": 7, "error": 'the worker said "},{\\"id\\": 1'}]})
    t = job_table.load(json.dumps(jobs).encode(), "jobs").attempts
    assert t.job.tolist() == [*"000111222333", "job 5"]
    assert t.start_ns.tolist() == [10**9 * start for start in (*[100, 101, 102] * 4, 7)]
    assert t.reason.tolist() == [*[""] * 12, 'the worker said "},{\\"id\\": 1']


def test_a_key_that_one_attempt_of_many_uses_counts() -> None:
    jobs = [{"id": str(i), "note": "x" * 50, "attempts": [{"start": 100 + i, "end": 200 + i}]} for i in range(5000)]
    jobs[2345] = {"id": "2345", "attempts": [{"begin": 7, "finish_time": 9, "gpus": 3, "error": "lost", "host": {"id": 1}}]}
    t = job_table.load(json.dumps(jobs).encode(), "jobs").attempts
    assert (t.start_ns[2345], t.end_ns[2345], t.accelerators[2345], t.reason[2345]) == (7 * 10**9, 9 * 10**9, 3, "lost")
    assert (len(t), t.start_ns[17], t.end_ns[17], t.accelerators[17], t.reason[17]) == (5000, 117 * 10**9, 217 * 10**9, -1, "")


@pytest.mark.parametrize("detail", ["m1", None, [], {"gpus": [1]}, [1], [{"gpus": 4}], [{"ip": "m1"}]])
def test_what_lists_no_accelerators_holds_none(detail: object) -> None:
    attempts = [{"start_time": 10, "end_time": 20, "detail": one} for one in (detail, [{"gpus": ["a", "b"]}])]
    assert rows(json.dumps([{"id": "a", "attempts": attempts}]).encode()) == [("a", 1, 10, "", -1), ("a", 2, 10, "", 2)]


def test_a_csv_has_one_attempt_a_row() -> None:
    text = (
        "job,attempt,gpus,start,end,outcome,first_step,last_step,checkpoint_step\n"
        "a,2,8,2026-01-01T00:10:00Z,2026-01-01T00:20:00Z,completed,51,200,\n"
        "a,1,8,2026-01-01T00:00:00Z,2026-01-01T00:05:00Z,OOM,1,70,50\n"
    )
    assert rows(text.encode()) == [("a", 1, 300, "out of memory", 8), ("a", 2, 600, "completed", 8)]
    t = job_table.load(text.encode(), "jobs").attempts
    assert (t.first_step.tolist(), t.last_step.tolist(), t.saved_step.tolist()) == ([1, 51], [70, 200], [50, -1])


def test_a_csv_of_jobs_need_not_number_its_attempts() -> None:
    text = "job,start,end,gpus\na,2026-01-01T00:00:00Z,2026-01-01T00:05:00Z,8\n"
    assert job_table.sniff(text.encode())
    assert rows(text.encode()) == [("a", 1, 300, "", 8)]
    assert not job_table.sniff(text.replace("gpus", "other").encode())


def test_a_key_that_is_no_text_is_passed_over() -> None:
    data = json.dumps(JOBS).replace('"num_gpus": 4', '"num_gpus": 4, "KEY": 1').encode().replace(b"KEY", b"\xff\xfe")
    assert rows(data)[-1] == ("b", 1, None, "", 4)


@pytest.mark.parametrize("broken", [b"\xff", b"1e400"])
def test_hosts_that_cannot_be_decoded_are_refused(broken: bytes) -> None:
    data = json.dumps(DETAILED).encode().replace(b'"gpu1"', b'"' + broken + b'"' if broken == b"\xff" else broken)
    with pytest.raises(InputRefused, match="not a readable table of jobs"):
        job_table.load(data, "jobs")


@pytest.mark.parametrize(
    "text", ['[{"attempts": [{"start": 1', '[{"attempts": []}]', "job,attempt,start,end\n", '[{"attempts": {"start": 1}}]']
)
def test_refusals(text: str) -> None:
    with pytest.raises(InputRefused):
        job_table.load(text.encode(), "jobs")


def test_a_job_whose_name_is_empty_is_called_by_its_place() -> None:
    attempts = [{"start": 100, "end": 200}]
    jobs = [{"job": name, "attempts": attempts} for name in ("a", " ", None)]
    assert job_table.load(json.dumps(jobs).encode(), "jobs.json").attempts.job.tolist() == ["a", "job 2", "job 3"]


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("job,attempt,start,end,gpus,nodes,account\na,1,100,200,8,n1,vision\n", ["n1"]),
        ('[{"job": "a", "vc": "vision", "hosts": ["n1", "n2"], "attempts": [{"start": 100, "end": 200}]}]', ["n1,n2"]),
        ('[{"job": "a", "team": "vision", "attempts": [{"start": 100, "end": 200, "nodes": "n[1-2]"}]}]', ["n[1-2]"]),
        ('[{"job": "a", "team": "vision", "attempts": [{"start": 100, "end": 200, "nodes": 4}]}]', [""]),
    ],
)
def test_hosts_and_team(text: str, nodes: list[str]) -> None:
    found = job_table.load(text.encode(), "jobs").attempts
    assert (found.nodes.tolist(), found.team.tolist()) == (nodes, ["vision"])
