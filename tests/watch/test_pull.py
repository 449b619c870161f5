"""Workers read again and again: what is written, who is missing, and how often they are asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from taut.cli import main
from taut.core.errors import RunError
from taut.read.trace import read
from taut.watch.pull import BEFORE, LONG_S, NCCL_OPEN, NOW, SHARE, Puller, describe
from taut.watch.torch_workers import workers
from torch_workers import FR, NCCL, PICKLE, FakeWorker, dump, serving


class Clock:
    """A clock that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def written(folder: Path) -> dict[str, list[str]]:
    return {name: sorted(file.name for file in (folder / name).iterdir()) for name in (BEFORE, NOW)}


def test_the_last_two_dumps_of_every_rank_are_kept(tmp_path: Path) -> None:
    one, other = FakeWorker({FR: dump(5)}), FakeWorker({FR: dump(5)})
    with serving(one, other) as places:
        puller = Puller(workers(places), tmp_path)
        puller.round()
        assert written(tmp_path) == {BEFORE: [], NOW: ["fr_rank0.json", "fr_rank1.json"]}
        one.has[FR] = dump(9)
        puller.round()
    assert written(tmp_path) == {BEFORE: ["fr_rank0.json", "fr_rank1.json"], NOW: ["fr_rank0.json", "fr_rank1.json"]}
    assert dict(read([tmp_path]).moved) == {0: True, 1: False}


def test_who_does_not_answer_is_missing_and_its_old_dump_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    one, other = FakeWorker({FR: dump(5)}), FakeWorker({FR: dump(5)})
    with serving(one, other) as places:
        puller = Puller(workers(places), tmp_path)
        puller.round()
        other.status = 500
        done = puller.round()
    assert (done.read, done.missing) == ([0], {1: "answers 500"})
    assert written(tmp_path) == {BEFORE: ["fr_rank0.json"], NOW: ["fr_rank0.json"]}
    assert "1 of 2 ranks read" in describe(done)
    assert describe(done).endswith("rank 1 missing: answers 500")


@pytest.mark.parametrize("name", ["now/fr_rank0.json", "before/notes.txt", "before/fr_rank0.json"])
def test_files_of_others_are_not_deleted(tmp_path: Path, name: str) -> None:
    kept = tmp_path / name
    kept.parent.mkdir()
    kept.write_text("mine")
    with serving(FakeWorker({FR: dump(5)})) as places:
        done = CliRunner().invoke(main, ["watch", "pull", *places, "--keep", str(tmp_path), "--times", "1"])
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert f"{kept}: was not written by taut here, so it is not deleted; give another --keep" in done.stderr
    assert (kept.read_text(), sorted(path.name for path in tmp_path.iterdir())) == ("mine", [name.partition("/")[0]])


def test_a_dump_that_somebody_changed_is_not_deleted(tmp_path: Path) -> None:
    with serving(FakeWorker({FR: dump(5)})) as places:
        puller = Puller(workers(places), tmp_path)
        puller.round()
        (tmp_path / NOW / "fr_rank0.json").write_text("mine")
        with pytest.raises(RunError, match="was not written by taut here"):
            puller.round()
    assert (tmp_path / NOW / "fr_rank0.json").read_text() == "mine"


def test_a_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "keep").mkdir()
    (tmp_path / "keep" / BEFORE).symlink_to(tmp_path / "elsewhere")
    with serving(FakeWorker({FR: dump(5)})) as places, pytest.raises(RunError, match="was not made by taut"):
        Puller(workers(places), tmp_path / "keep")


def test_a_later_reading_goes_on_in_its_folder(tmp_path: Path) -> None:
    with serving(FakeWorker({FR: dump(5)})) as places:
        Puller(workers(places), tmp_path).round()
        Puller(workers(places), tmp_path).round()
    assert written(tmp_path) == {BEFORE: [], NOW: ["fr_rank0.json"]}


def test_of_a_job_that_is_gone_the_last_dumps_stay(tmp_path: Path) -> None:
    with serving(FakeWorker({FR: dump(5)})) as places:
        puller = Puller(workers(places), tmp_path)
        puller.round()
        puller.round()
    assert puller.round().read == []
    assert written(tmp_path) == {BEFORE: ["fr_rank0.json"], NOW: ["fr_rank0.json"]}


@pytest.mark.parametrize("verb", ["pull", "capture"])
def test_where_nobody_answers_it_is_said_what_to_do(verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with serving(FakeWorker({})) as places:
        pass
    done = CliRunner().invoke(main, ["watch", verb, *places])
    assert done.exit_code == 1
    assert "debug server" in done.stderr
    assert done.stderr.count("\n") == 1


def test_dumps_of_another_job_are_not_compared_with(tmp_path: Path) -> None:
    with serving(FakeWorker({FR: dump(5)}), FakeWorker({FR: dump(5)})) as places:
        Puller(workers(places), tmp_path).round()
        Puller(workers(places[:1]), tmp_path).round()
    assert written(tmp_path) == {BEFORE: [], NOW: ["fr_rank0.json"]}


@pytest.mark.parametrize(
    ("body", "why"),
    [(b"<html>", "answers what is no dump"), (b"\x80\x04c__builtin__\neval\n.", "answers what is no dump"),
     (b'{"entries": []}', "its flight recorder is empty")],
)  # fmt: skip
def test_what_is_no_dump_is_said_and_not_written(tmp_path: Path, body: bytes, why: str) -> None:
    with serving(FakeWorker({FR: body})) as places:
        done = Puller(workers(places), tmp_path).round()
    assert done.missing[0].startswith(why)
    assert not list(tmp_path.rglob("*.json"))


def test_calls_of_nccl_come_first_and_older_servers_give_a_pickle(tmp_path: Path) -> None:
    import pickle

    new, old = FakeWorker({FR: b"{}", NCCL: dump(3)}), FakeWorker({PICKLE: pickle.dumps(json.loads(dump(3)))})
    with serving(new, old) as places:
        puller = Puller(workers(places), tmp_path)
        assert puller.round().read == [0, 1]
        puller.round()
    assert new.asked == [f"/handler/{NCCL}"] * 2
    assert old.asked[-1].startswith(f"/handler/{PICKLE}?includestacktraces=false")
    assert len(old.asked) == 3


def test_ranks_are_held_up_for_a_small_share_of_the_time(tmp_path: Path) -> None:
    clock = Clock()
    with serving(FakeWorker({FR: dump(3)}, late_s=0.1), FakeWorker({FR: dump(3)})) as places:
        puller = Puller(workers(places), tmp_path, every_s=5, clock=clock)
        done = puller.round()
    assert done.held_s >= 0.1
    assert puller.due_s - clock.now == pytest.approx(done.held_s / SHARE)


def test_long_dumps_are_asked_for_their_open_calls(tmp_path: Path) -> None:
    worker = FakeWorker({NCCL: dump(3)}, late_s=LONG_S + 0.05)
    with serving(worker) as places:
        puller = Puller(workers(places), tmp_path)
        assert not puller.round().open_only
        worker.late_s = 0
        done = puller.round()
    assert done.open_only
    assert worker.asked[-1] == NCCL_OPEN
    assert "a hang, not who is late" in describe(done)


def test_a_worker_that_hangs_is_left_alone_and_slows_nobody(tmp_path: Path) -> None:
    stuck, clock = FakeWorker({FR: dump(3)}, late_s=3), Clock()
    with serving(FakeWorker({FR: dump(3)}), stuck) as places:
        puller = Puller(workers(places), tmp_path, answer_s=1, clock=clock)
        first = puller.round()
        asked = len(stuck.asked)
        clock.now += 60
        second = puller.round()
    assert first.missing == {1: "no whole answer within 1 s"}
    assert first.held_s < 1
    assert (len(stuck.asked), list(second.missing)) == (asked, [1])


def test_a_job_that_stands_still_is_told_from_two_readings(tmp_path: Path) -> None:
    behind, waits = FakeWorker({FR: dump(8)}), FakeWorker({FR: dump(9, made=8)})
    with serving(behind, waits) as places:
        command = ["watch", "pull", *places, "--keep", str(tmp_path / "pulled"), "--times", "2", "--every", "2"]
        result = CliRunner().invoke(main, command)
    assert result.exit_code == 0
    assert "a verdict needs a second reading" in result.stderr
    assert result.stdout.startswith("Hang: rank 0 ")


@pytest.mark.parametrize("arguments", [[], ["a:1", "--slurm", "3"], ["nonsense"]])
def test_workers_that_are_not_given_well(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, ["watch", "pull", *arguments])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)


def test_without_a_configuration_it_reads_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "")
    monkeypatch.setenv("HOME", "")
    with serving(FakeWorker({FR: dump(5)})) as places:
        puller = Puller(workers(places), tmp_path)
        for _ in range(3):
            puller.round()
    assert written(tmp_path) == {BEFORE: ["fr_rank0.json"], NOW: ["fr_rank0.json"]}
