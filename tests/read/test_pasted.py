"""Output of commands as people paste or save it: prompts, fences, what grep puts before lines, marks and widths of Windows."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

import taut
from taut.core.errors import InputRefused
from taut.read import pasted

SACCT = (
    "JobID|State|Submit|Start|End|AllocTRES\n"
    "7|NODE_FAIL|2024-05-06T08:00:00|2024-05-06T08:00:00|2024-05-06T10:00:00|gres/gpu=8\n"
    "7|COMPLETED|2024-05-06T10:00:00|2024-05-06T10:30:00|2024-05-06T12:30:00|gres/gpu=8\n"
)
CTLD = (
    "[2024-05-06T08:00:00.000] sched: Allocate JobId=8 NodeList=n1 #CPUs=8 Partition=p\n",
    "[2024-05-06T09:00:00.000] _job_complete: JobId=8 WEXITSTATUS 0\n",
)
PROMPTS = ("amy@login01:~$ ", "[root@head ~]# ", "$ ", "(base) amy@n1:/scratch/x$ ", "% ", "PS C:\\Users\\amy> ", "# ")


def outcomes(tmp_path: Path, data: bytes, name: str = "log.txt") -> list[tuple[str, str]]:
    (tmp_path / name).write_bytes(data)
    attempts = taut.read([str(tmp_path / name)]).attempts
    return list(zip(attempts.job.tolist(), attempts.outcome.tolist(), strict=True))


@pytest.mark.parametrize("prompt", PROMPTS)
def test_a_prompt_and_its_command_are_left_out(tmp_path: Path, prompt: str) -> None:
    text = f"{prompt}sacct -j 7 --duplicates -P\n{SACCT}{prompt.rstrip()}\n"
    assert outcomes(tmp_path, text.encode()) == [("7", "node failed"), ("7", "completed")]


@pytest.mark.parametrize("fence", ["```\n", "~~~\n", "```text\n"])
def test_fences_are_left_out(tmp_path: Path, fence: str) -> None:
    assert len(outcomes(tmp_path, f"{fence}{SACCT}{fence[:3]}\n".encode())) == 2


def test_quotes_are_taken_off(tmp_path: Path) -> None:
    text = "".join(f"> {line}\n" for line in ("```", *SACCT.splitlines(), "```"))
    assert len(outcomes(tmp_path, text.encode())) == 2


def test_indented_lines(tmp_path: Path) -> None:
    assert outcomes(tmp_path, "".join(f"    {line}" for line in CTLD).encode()) == [("8", "completed")]
    assert len(outcomes(tmp_path, "".join(f"    {line}" for line in SACCT.splitlines(keepends=True)).encode())) == 2


def test_every_output_of_a_session_is_read(tmp_path: Path) -> None:
    other = SACCT.splitlines(keepends=True)
    text = f"$ sacct -j 7\n{other[0]}{other[1]}$ date\nMon May  6\n$ sacct -j 9\n{other[0]}{other[2].replace('7|', '9|', 1)}"
    assert outcomes(tmp_path, text.encode()) == [("7", "node failed"), ("9", "completed")]


def test_prose_with_a_fence_in_it_is_no_paste() -> None:
    assert not pasted.is_pasted(f"# Jobs\n\nAs sacct lists them:\n\n```\n{SACCT}```\n".encode())


def test_a_refusal_of_one_output_is_kept(tmp_path: Path) -> None:
    with pytest.raises(InputRefused, match="without times"):
        outcomes(tmp_path, b"$ sacct -P -o JobID,State\nJobID|State\n7|FAILED\n")


@pytest.mark.parametrize("before", ["/var/log/slurm/slurmctld.log:", "412:", "slurmctld.log:412:", "slurmctld.log-412-"])
def test_names_and_numbers_of_grep_are_left_out(tmp_path: Path, before: str) -> None:
    assert outcomes(tmp_path, "".join(before + line for line in CTLD).encode()) == [("8", "completed")]


def test_rotated_logs_are_put_in_order(tmp_path: Path) -> None:
    text = f"slurmctld.log:{CTLD[1]}slurmctld.log.1:{CTLD[0]}"
    assert outcomes(tmp_path, text.encode()) == [("8", "completed")]


def test_syslog_behind_grep(tmp_path: Path) -> None:
    lines = [line.replace("[2024-05-06T", "May  6 ").replace(".000] ", " head slurmctld[7]: ") for line in CTLD]
    assert outcomes(tmp_path, "".join(f"/var/log/messages:{line}" for line in lines).encode()) == [("8", "completed")]


@pytest.mark.parametrize(
    "line", ["0: 2024-05-06 08:00:00 step 1", "2024-05-06 08:00:00 a", "12:30:00 b", "a: [2024-05-06T08:0"]
)
def test_other_lines_are_not_of_grep(line: str) -> None:
    assert not pasted.is_grepped(line.encode())


@pytest.mark.parametrize("coded", ["utf-8-sig", "utf-16", "utf-16-be-bom", "utf-16-le"])
def test_marks_and_widths_of_windows(tmp_path: Path, coded: str) -> None:
    text = SACCT.replace("\n", "\r\n")
    data = b"\xfe\xff" + text.encode("utf-16-be") if coded.endswith("bom") else text.encode(coded)
    assert len(outcomes(tmp_path, data)) == 2
    assert len(outcomes(tmp_path, gzip.compress(data), "log.txt.gz")) == 2


def test_json_behind_a_mark(tmp_path: Path) -> None:
    event = (
        '{"kind": "List", "apiVersion": "v1", "items": [{"kind": "Event", "reason": "Started", "message": "Started container",'
        ' "involvedObject": {"kind": "Pod", "name": "tr-0", "namespace": "ml"}, "lastTimestamp": "2024-05-06T08:00:00Z"}]}'
    )
    assert outcomes(tmp_path, event.encode("utf-8-sig"), "events.json") == [("ml/tr", "running")]
