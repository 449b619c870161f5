"""Logs written inside a job: steps, checkpoints and failures tell its attempts, in the wordings of several trainers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taut.core.errors import NotATrace
from taut.read.jobs import training_log
from taut.read.trace import read

MEGATRON = """[2026-05-01 10:00:00] using world size: 8
  save_interval ................................... 100
    will not load any checkpoints and will start from random
 [2026-05-01 10:02:00] iteration 10/ 1000 | elapsed time per iteration (ms): 1000.0 | lm loss: 1.0E+01 |
 [2026-05-01 10:03:30] iteration 100/ 1000 | elapsed time per iteration (ms): 1000.0 | lm loss: 1.0E+01 |
[2026-05-01 10:03:30] saving checkpoint at iteration     100 to /ckpt in torch_dist format
[2026-05-01 10:03:45]   successfully saved checkpoint from iteration     100 to /ckpt [ t 1/1, p 1/1 ]
 [2026-05-01 10:05:00] iteration 170/ 1000 | elapsed time per iteration (ms): 1000.0 | lm loss: 1.0E+01 |
[rank3]: Traceback (most recent call last):
[rank3]: torch.distributed.DistBackendError: NCCL error: remote process exited
[2026-05-01 10:20:00] using world size: 8
[2026-05-01 10:20:30] loading checkpoint from /ckpt at iteration 100
[2026-05-01 10:21:30]   successfully loaded checkpoint from /ckpt [ t 1/1, p 1/1 ] at iteration 100
 [2026-05-01 10:21:40] iteration 110/ 1000 | elapsed time per iteration (ms): 1000.0 | lm loss: 1.0E+01 |
 [2026-05-01 10:36:30] iteration 1000/ 1000 | elapsed time per iteration (ms): 1000.0 | lm loss: 1.0E+01 |
[2026-05-01 10:36:31] validation loss at iteration 1000 | lm loss value: 2.0
[after training is done] datetime: 2026-05-01 10:36:35
"""
TRAINER = """[INFO|trainer.py:2128] 2026-05-01 10:00:00,000 >> ***** Running training *****
[INFO|trainer.py:2129] 2026-05-01 10:00:00,000 >>   Total optimization steps = 1,000
{'loss': 2.1, 'learning_rate': 5e-05, 'epoch': 0.5}
[INFO|trainer.py:2889] 2026-05-01 10:10:00,000 >> Saving model checkpoint to ./out/checkpoint-500
[INFO|trainer.py:2889] 2026-05-01 10:12:00,000 >> Evaluating
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB
[INFO|trainer.py:2128] 2026-05-01 10:15:00,000 >> ***** Running training *****
[INFO|trainer.py:2128] 2026-05-01 10:15:01,000 >>   Continuing training from checkpoint, will skip to saved global_step
[INFO|trainer.py:2128] 2026-05-01 10:15:01,000 >>   Continuing training from global step 500
[INFO|trainer.py:2889] 2026-05-01 10:25:00,000 >> Saving model checkpoint to ./out/checkpoint-1000
[INFO|trainer.py:2889] 2026-05-01 10:25:03,000 >> Training completed. Do not forget to share your model =)
"""
TITAN = """[rank0]:2026-05-01 10:00:00,000 - root - INFO - Starting job
[rank0]:2026-05-01 10:01:00,000 - root - INFO - step:  1  loss: 12.1  tps: 52,142
[rank1]:2026-05-01 10:01:01,000 - root - INFO - step:  1  loss: 12.1  tps: 52,142
[rank0]:2026-05-01 10:02:00,000 - root - INFO - step: 10  loss: 12.1  tps: 52,142
[rank0]:2026-05-01 10:02:00,000 - root - INFO - Saving the checkpoint (or staging if async is enabled).
[rank0]:2026-05-01 10:02:05,000 - root - INFO - Finished saving the checkpoint (or staging if async is enabled)in 5.00 seconds.
[rank0]:2026-05-01 10:03:00,000 - root - INFO - step: 20  loss: 12.1  tps: 52,142
[rank1]:2026-05-01 10:03:00,000 - root - INFO - step: 10  loss: 12.1  tps: 52,142
slurmstepd: error: *** JOB 77 ON n1 CANCELLED AT 2026-05-01T10:03:30 DUE TO PREEMPTION ***
[rank0]:2026-05-01 10:13:00,000 - root - INFO - Starting job
[rank0]:2026-05-01 10:13:20,000 - root - INFO - Loading the checkpoint at step 10.
[rank0]:2026-05-01 10:13:40,000 - root - INFO - Finished loading the checkpoint in 20.00 seconds.
[rank0]:2026-05-01 10:13:40,000 - root - INFO - Training starts at step 11.
[rank0]:2026-05-01 10:14:00,000 - root - INFO - step: 11  loss: 12.1  tps: 52,142
[rank0]:2026-05-01 10:15:00,000 - root - INFO - step: 20  loss: 12.1  tps: 52,142
[rank0]:2026-05-01 10:15:00,000 - root - INFO - Training completed
"""
NEMO = """[NeMo I 2026-05-01 10:00:00 nemo_logging:393] Setting up
Training epoch 0, iteration 0/999 | lr: 1e-6 | global_step: 0 | reduced_train_loss: 11.0 | train_step_timing in s: 1.0
[NeMo I 2026-05-01 10:02:00 nemo_logging:393] hm
Training epoch 0, iteration 99/999 | lr: 1e-6 | global_step: 99 | reduced_train_loss: 11.0 | train_step_timing in s: 1.0
[NeMo I 2026-05-01 10:02:05] Global Checkpoint Save : Rank: 0 : Iteration: 99 : Start time: 1744.1s : Save duration: 4.389s
Training epoch 0, iteration 150/999 | lr: 1e-6 | global_step: 150 | reduced_train_loss: 11.0 | train_step_timing in s: 1.0
[NeMo I 2026-05-01 10:05:10 nemo_logging:393] start
Restoring states from the checkpoint path at /x/step=99.ckpt
Restored all states from the checkpoint at /x/step=99.ckpt
Training epoch 0, iteration 100/999 | lr: 1e-6 | global_step: 100 | reduced_train_loss: 11.0 | train_step_timing in s: 1.0
`Trainer.fit` stopped: `max_steps=1000` reached.
"""
LAUNCHER = """W0501 10:00:00.000000 99 torch/distributed/run.py:874] ****
[rank0]: RuntimeError: [/x/buffer.cc:78] Timed out waiting 5000ms for recv operation to complete
E0501 10:00:08.000000 99 torch/distributed/elastic/api.py:1002] failed (exitcode: 1) local_rank: 0 (pid: 7) of binary: python
E0501 10:00:20.000000 99 torch/distributed/elastic/api.py:1002] failed (exitcode: -9) local_rank: 1 (pid: 9) of binary: python
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
  time      : 2026-05-01_10:00:20
"""


def columns(text: str, *names: str) -> list[tuple[Any, ...]]:
    """Columns of the attempts; times in seconds after the log's first."""
    assert training_log.sniff(text.encode())
    log = training_log.load(text.encode(), "train.log")
    assert log is not None
    t = log.attempts
    first = min(v for v in t.start_ns.tolist() if v >= 0)
    seconds = {n: [(v - first) / 1e9 if v >= 0 else None for v in t.columns[n].tolist()] for n in names if n.endswith("_ns")}
    took = {n: [v / 1e9 if v >= 0 else None for v in t.columns[n].tolist()] for n in names if n.endswith("took_ns")}
    return list(zip(*({**seconds, **took}.get(n, t.columns[n].tolist()) for n in names), strict=True))


SPAN = ("start_ns", "end_ns", "outcome", "first_step", "last_step", "resumed_step", "saved_step", "saved_ns")


def test_megatron() -> None:
    assert columns(MEGATRON, *SPAN, "save_took_ns", "restore_took_ns") == [
        (0, 300, "failed", 10, 170, 0, 100, 225, 15, None),
        (1200, 2195, "completed", 110, 1000, 100, -1, None, None, 60),
    ]


def test_trainer_of_hugging_face_logs_no_steps_but_checkpoints() -> None:
    assert columns(TRAINER, *SPAN) == [
        (0, 720, "out of memory", -1, -1, -1, 500, 600),
        (900, 1503, "completed", -1, -1, 500, 1000, 1500),
    ]


def test_torchtitan_follows_one_rank_and_hears_the_scheduler() -> None:
    assert columns(TITAN, *SPAN, "save_took_ns", "restore_took_ns") == [
        (0, 210, "preempted", 1, 20, -1, 10, 125, 5, None),
        (780, 900, "completed", 11, 20, 10, -1, None, None, 20),
    ]


def test_nemo_names_the_global_step() -> None:
    assert columns(NEMO, "first_step", "last_step", "resumed_step", "saved_step", "save_took_ns", "outcome") == [
        (0, 150, -1, 99, 4.389, ""),
        (100, 100, 99, -1, None, "completed"),
    ]


def test_a_launcher_that_gave_up_has_burned_its_restarts() -> None:
    assert columns(LAUNCHER, "start_ns", "end_ns", "outcome", "held", "restarts_left", "reason") == [
        (
            0,
            8,
            "failed",
            -1,
            1,
            "RuntimeError: Timed out waiting 5000ms for recv operation to complete (local rank 0 exited with 1)",
        ),
        (8, 20, "failed", 1, 0, "local rank 1 exited with -9"),
    ]


def test_two_agents_that_tell_of_one_failure_are_one_attempt() -> None:
    line = "E0501 10:00:0{}.000000 {} torch/distributed/elastic/api.py:1] failed (exitcode: 1) local_rank: 0 (pid: 7)\n"
    text = "".join(line.format(i, agent) for i, agent in ((1, 50), (2, 60), (5, 50), (6, 60)))
    assert columns(text, "end_ns", "outcome") == [(0, "failed"), (4, "failed")]


ELASTIC = "[INFO] 2021-12-08 12:{:02d}:00,000 api: [default] {}\n"


def test_restarts_that_are_left_are_logged_at_a_lower_level() -> None:
    text = (
        "[2026-05-01 10:00:00,000] torch.distributed.elastic.agent.server.api: [INFO] [default] Starting worker group\n"
        "[2026-05-01 10:01:00,000] torch.distributed.elastic.api: [ERROR] failed (exitcode: 1) local_rank: 0 (pid: 5) of\n"
        "[2026-05-01 10:01:01,000] torch.distributed.elastic: [INFO] [default] Worker group FAILED. 3/3 attempts left;\n"
        "[2026-05-01 10:01:09,000] torch.distributed.elastic.agent.server.api: [INFO] [default] Rendezvous'ing worker group\n"
        "[2026-05-01 10:02:00,000] root: step 5 loss 1.0\n"
    )
    assert columns(text, "start_ns", "end_ns", "outcome", "restarts_left", "held", "last_step") == [
        (0, 60, "failed", 3, -1, -1),
        (69, 120, "", 2, 1, 5),
    ]


def test_attempts_that_only_the_restarts_that_are_left_tell() -> None:
    text = ""
    for n in range(2):
        text += ELASTIC.format(10 * n, "Rendezvous complete for workers. Result:") + f"  restart_count={n}\n"
        text += ELASTIC.format(10 * n + 5, f"Worker group FAILED. {2 - n}/2 attempts left; will restart worker group")
    text += ELASTIC.format(30, "Rendezvous'ing worker group") + "  restart_count=2\n"
    text += ELASTIC.format(40, "worker group successfully finished. Waiting 300 seconds for other agents to finish.")
    assert columns(text, "start_ns", "end_ns", "outcome", "restarts_left") == [
        (0, 300, "failed", 2),
        (600, 900, "failed", 1),
        (1800, 2400, "completed", 0),
    ]


def test_a_restart_that_only_its_count_tells() -> None:
    text = ELASTIC.format(0, "Rendezvous complete for workers. Result:") + "  restart_count=0\nstep 1 loss 2\n"
    text += ELASTIC.format(9, "Rendezvous complete for workers. Result:") + "  restart_count=1\nstep 2 loss 2\n"
    assert columns(text, "outcome", "last_step") == [("failed", 1), ("", 2)]


def test_another_wording_of_the_restarts_that_are_left() -> None:
    text = ELASTIC.format(0, "Starting worker group") + ELASTIC.format(
        5, "Worker group FAILED, is failure node: False,2/3 attempts left; will restart worker group."
    )
    assert columns(text, "outcome", "restarts_left") == [("failed", 2)]


def test_new_nodes_restart_the_workers() -> None:
    text = ELASTIC.format(0, "Starting worker group") + ELASTIC.format(
        5, "Detected 2 new nodes from group_rank=0; will restart worker group"
    )
    text += ELASTIC.format(6, "Rendezvous'ing worker group") + ELASTIC.format(9, "All workers successfully finished.")
    assert columns(text, "outcome", "reason") == [
        ("cancelled", "the launcher restarts its workers for 2 new nodes"),
        ("completed", ""),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "[INFO|trainer.py:2889] >> Loading best model from ./out/checkpoint-400 (score: 0.9).",
        "Loaded model weights from the checkpoint at /x/epoch=0-step=5.ckpt",
    ],
)
def test_a_model_that_is_loaded_to_be_tested_is_no_restart(line: str) -> None:
    assert columns(f"2026-05-01 10:00:00 go\nstep 5 loss 2\nstep 6 loss 2\n{line}\n", "last_step") == [(6,)]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("Nov 16 10:00:00 gpu01 python3[42]: RuntimeError: x", "RuntimeError: x"),
        ("<14>1 2026-11-16T10:00:00Z gpu01 train 42 - - RuntimeError: x", "RuntimeError: x"),
        ("2026-11-16T10:00:00Z stderr F ValueError: x", "ValueError: x"),
        ("[1,3]<stderr>:torch.OutOfMemoryError: CUDA out of memory", "torch.OutOfMemoryError: CUDA out of memory"),
        ("[default3]:RuntimeError: x", "RuntimeError: x"),
        ("srun: error: gpu[01-02]: tasks 3,5: Killed", "srun: error: gpu[01-02]: tasks 3,5: Killed"),
        ("[5.1] NVRM: Xid (PCI:0000:3b:00): 79, fallen off the bus", "NVRM: Xid (PCI:0000:3b:00): 79, fallen off"),
        ("[rank3]:[E501 10:00:00.123 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL",
         "Watchdog caught collective operation timeout: WorkNCCL"),
    ],
)  # fmt: skip
def test_errors_behind_labels_and_crashes_without_one(line: str, reason: str) -> None:
    ((outcome, said),) = columns(f"2026-11-16 09:00:00 step 5 loss 2\nstep 6 loss 2\n{line}\n", "outcome", "reason")
    assert outcome == ("out of memory" if "out of memory" in line else "failed")
    assert said.startswith(reason)


STEP = " iteration {:8d}/    1000 | elapsed time per iteration (ms): {}.0 | lm loss: 1 |\n"


def test_without_dates_time_goes_by_the_length_of_steps() -> None:
    text = (
        "".join(STEP.format(n, 500) for n in (1, 11, 21))
        + " loading checkpoint from /c at iteration 10\n"
        + STEP.format(11, 500)
    )
    log = training_log.load(text.encode(), "x.log")
    assert log is not None
    assert "no dates" in log.partial[0]
    assert log.attempts.dated.tolist() == [0, 0]
    assert columns(text, "end_ns", "last_step", "resumed_step")[0] == (10.5, 21, -1)


def test_a_first_line_stands_for_as_many_steps_as_the_next() -> None:
    assert columns("".join(STEP.format(n, 500) for n in (10, 20, 30)), "end_ns") == [(15.0,)]


def test_one_date_dates_the_steps_before_it() -> None:
    killed = "slurmstepd: error: *** JOB 77 ON n1 CANCELLED AT 2021-05-27T21:52:36 DUE TO TIME LIMIT ***\n"
    text = STEP.format(1, 150_000) + STEP.format(2, 120_000) + killed
    assert columns(text, "job", "end_ns", "outcome", "dated") == [("77", 270.0, "timed out", 1)]
    log = training_log.load(text.encode(), "x.log")
    assert log is not None
    assert log.attempts.end_ns.tolist() == [1_622_152_356 * 10**9]
    assert "no date before its first steps" in log.partial[0]


def test_undated_steps_behind_a_date_count_from_it() -> None:
    text = "[before the start of training step] datetime: 2021-05-24 09:40:38\n will start from random\n" + "".join(
        STEP.format(n, 6000) for n in (10, 20)
    )
    assert columns(text, "first_step_ns", "last_step_ns") == [(60, 120)]


def test_a_date_that_comes_earlier_than_steps_would_have_it_is_right() -> None:
    text = "2026-05-01 10:00:00 go\n" + STEP.format(1, 9000) + STEP.format(2, 9000) + "2026-05-01 10:00:05 stop\n"
    assert columns(text, "last_step_ns", "end_ns") == [(5, 5)]


def test_dates_of_drivers_and_of_what_is_to_come_are_not_those_of_lines() -> None:
    text = "Linux version 5.15.0 #1 SMP Thu Jul 6 12:00:00 UTC 2023\n2026-05-01 10:00:00 go\n"
    text += "".join(f"step {n} loss 2 | eta: 2026-05-09T10:00:00\n" for n in (1, 2)) + "2026-05-01 10:05:00 end\n"
    log = training_log.load(text.encode(), "x.log")
    assert log is not None
    assert (log.attempts.end_ns - log.attempts.start_ns).tolist() == [300 * 10**9]


def test_complete_runs_in_one_log_are_jobs_and_no_restarts() -> None:
    run = "".join(f"step:{n}/20 val_loss:3.1 train_time:{n * 1000}ms step_avg:1000ms\n" for n in (0, 10, 20))
    assert columns(run + run.replace("000ms", "500ms"), "job", "attempt", "start_ns", "end_ns", "outcome") == [
        ("train run 1", 1, 0, 20, "completed"),
        ("train run 2", 1, 20, 40.5, "completed"),
    ]


def test_a_run_that_broke_off_and_began_anew_is_a_restart() -> None:
    text = "".join(f"step:{n}/20 train_loss:3.1 train_time:{n}s\n" for n in (0, 10, 0, 10, 20))
    assert columns(text, "job", "attempt", "outcome") == [("train", 1, ""), ("train", 2, "completed")]


def test_the_trainer_of_hugging_face_prints_epochs() -> None:
    row = "{{'loss': {}, 'grad_norm': 1.0, 'learning_rate': 5e-05, 'epoch': {}}}\n"
    text = "".join(row.format("2.1", n / 10) for n in (1, 2, 3, 2, 3))
    end = "{'train_runtime': 42.5, 'train_samples_per_second': 8.0, 'train_loss': 2.0, 'epoch': 0.3}\n"
    assert columns("2026-05-01 10:00:00 go\n" + text, "attempt") == [(1,), (2,)]
    assert columns(row.format("'2.1'", "'0.1'") + row.format("'2.1'", "'0.2'") + end, "end_ns", "outcome") == [
        (42.5, "completed")
    ]
    announced = "  Num Epochs = 3\n  Total optimization steps = 300\n" + row.format("2.1", 1.0) + end
    assert columns("2026-05-01 10:00:00 go\n" + announced, "last_step") == [(100,)]


def test_bars_of_evaluations_and_of_data_are_not_those_of_the_training() -> None:
    bar = "\r{:3d}%|██ | {}/{} [{:02d}:{:02d}<00:10, 1.0it/s]"
    text = "Map: 100%|██| 900/900 [09:00<00:00, 5.0 examples/s]\n"
    for n in range(0, 61, 20):
        text += bar.format(n, n, 60, n // 60, n % 60) + bar.format(50, 4, 8, 0, 4) + bar.format(99, 8, 8, 0, 8)
    assert columns(text, "first_step", "last_step", "end_ns", "outcome") == [(0, 60, 60, "completed")]


def test_a_summary_behind_dates_adds_nothing_to_them() -> None:
    text = (
        "2026-05-01 10:00:00 go\n2026-05-01 10:10:00 still\n{'train_runtime': 605.5, 'epoch': 1.0}\n{'train_runtime': 604.9}\n"
    )
    assert columns(text, "end_ns", "outcome") == [(605.5, "completed")]


def test_bars_that_lost_their_carriage_returns() -> None:
    text = "  0%|          | 0/50 [00:00<?, ?it/s]" + "".join(f" {n}%|▏ | {n}/50 [{n}:00<8:35:20, 60.0s/it]" for n in (1, 2, 3))
    text += "slurmstepd: error: *** JOB 42221 ON c1 CANCELLED AT 2022-04-14T16:20:46 DUE TO TIME LIMIT ***\n"
    assert columns(text, "job", "last_step", "end_ns", "outcome") == [("42221", 3, 180, "timed out")]


STEP_ENDS = "slurmstepd: error: *** STEP 9.0 ON h CANCELLED AT 2026-05-01T10:00:00 ***"


@pytest.mark.parametrize(
    ("line", "outcome"),
    [
        ("slurmstepd: error: *** JOB 9 ON h CANCELLED DUE TO TIME LIMIT ***", "timed out"),
        ("slurmstepd: error: *** STEP 9.0 ON h CANCELLED AT 2026-05-01T10:00:00 DUE TO TASK FAILURE ***", "failed"),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=12347.batch", "out of memory"),
        (f"srun: error: h: task 3: Exited with exit code 1\nsrun: Terminating StepId=9.0\n{STEP_ENDS}", "failed"),
        (f"srun: error: h: task 3: Terminated\n{STEP_ENDS}", "cancelled"),
        (STEP_ENDS, "cancelled"),
    ],
)
def test_what_slurm_says_of_the_end(line: str, outcome: str) -> None:
    assert columns(f"2026-05-01 09:00:00 step 5 loss 2\nstep 6 loss 2\n{line}\n", "outcome") == [(outcome,)]


def test_trainings_one_after_the_other_are_runs() -> None:
    text = ""
    for total in (40, 60):
        bars = "".join(f"\r{n}%|█ | {n}/{total} [00:{n:02d}<00:10, 1.0it/s]" for n in range(0, total, 10))
        text += (
            bars
            + f"\n{{'train_runtime': {total}.5, 'train_loss': 2.0}}\n100%|█| {total}/{total} [00:{total - 1}<00:00, 1.0it/s]\n"
        )
        text += "100%|█| 8/8 [00:05<00:00, 1.6it/s]\n"
    assert columns(text, "job", "last_step", "outcome", "end_ns") == [
        ("train run 1", 40, "completed", 40.5),
        ("train run 2", 60, "completed", 101),
    ]


def test_bars_of_epochs_are_put_behind_each_other() -> None:
    text = "".join(f"\rEpoch {e}: 50%|█ | {n}/40 [00:{n}<00:20, 1.0it/s, loss=2.1]" for e in range(2) for n in (10, 20, 40))
    assert columns(text, "first_step", "last_step", "end_ns") == [(10, 80, 80)]


@pytest.mark.parametrize(
    ("prefix", "seconds"),
    [
        ("Nov 16 10:{m:02d}:00 gpu01 python3[42]: ", 120),
        ("<14>1 2026-11-16T10:{m:02d}:00.003Z gpu01 train 42 - - ", 120),
        ("2026-11-16T10:{m:02d}:00.669794202Z stderr F ", 120),
        ("2026-11-16T10:{m:02d}:00.669794202Z ", 120),
        ("[pod/train-worker-0/pytorch] 2026-11-16T10:{m:02d}:00Z ", 120),
        ("Mon Nov 16 10:{m:02d}:00 2026: ", 120),
        ("1794823{m:02d}0.123456 gpu01 python3[42]: ", 20),
        ("[11/16 10:{m:02d}:00 d2.utils.events]: ", 120),
    ],
)
def test_prefixes_tell_the_time(prefix: str, seconds: int) -> None:
    text = "-- Journal begins at Mon 2026-11-02 08:00:00 UTC. --\n"
    text += "".join(f"{prefix.format(m=n)}step {n} loss 2.1\n" for n in range(1, 4))
    assert columns(text, "end_ns", "last_step") == [(seconds, 3)]


def test_lines_that_docker_or_journald_wrapped_in_json() -> None:
    times = ("2026-11-16T10:01:00.1Z", "2026-11-16T10:02:00.1Z")
    docker = "".join(f'{{"log":"step {n} loss 2\\n","stream":"stdout","time":"{at}"}}\n' for n, at in enumerate(times, 1))
    micros = (1_763_287_200_000_000, 1_763_287_260_000_000)
    journal = "".join(f'{{"__REALTIME_TIMESTAMP":"{at}","MESSAGE":"step {n} loss 2"}}\n' for n, at in enumerate(micros, 1))
    assert columns(docker, "end_ns", "last_step") == columns(journal, "end_ns", "last_step") == [(60, 2)]


def test_a_process_that_goes_on_alone_is_followed() -> None:
    text = "".join(f"(T pid={p}) step:{n} - loss:0.1 - timing_s/step:2.0\n" for n in (1, 2, 3, 4) for p in (7, 8))
    assert columns(text, "last_step", "end_ns") == [(4, 8)]
    again = text + "".join(f"(T pid=9) step:{n} - loss:0.1 - timing_s/step:2.0\n" for n in (1, 2, 3, 4))
    assert columns(again, "first_step", "last_step") == [(1, 4), (3, 4)]


def test_ranks_that_a_launcher_labels_are_not_mixed() -> None:
    text = "".join(f"[1,{rank}]<stdout>:step {n} loss 2.1\n" for n in (1, 2, 3) for rank in (3, 0, 1))
    assert columns("2026-05-01 10:00:00 go\n" + text, "first_step", "last_step") == [(1, 3)]


def test_steps_behind_a_long_preamble(tmp_path: Path) -> None:
    text = "NCCL INFO Channel 00/02 :    0   1   2   3\n" * 30_000 + STEP.format(1, 500) + STEP.format(2, 500)
    (tmp_path / "a.out").write_text(text)
    assert read([tmp_path]).attempts.last_step.tolist() == [2]
    (tmp_path / "a.out").write_text(text.replace("iteration", "paragraph"))
    with pytest.raises(NotATrace):
        read([tmp_path])


def test_the_world_size_is_what_an_attempt_holds() -> None:
    text = "2026-05-01 10:00:00 using world size: 256, data-parallel-size: 1\n" + STEP.format(1, 500) + STEP.format(2, 500)
    assert columns(text, "accelerators", "unit") == [(256, "accelerator")]


def test_epochs_that_count_their_steps_anew_are_no_restarts() -> None:
    text = "".join(f"Epoch {e} step {s}/3 loss 1.0\n" for e in range(3) for s in range(3))
    assert columns("2026-05-01 10:00:00 go\n" + text, "first_step", "last_step") == [(0, 8)]


@pytest.mark.parametrize(
    "text",
    [
        "# How to train\n\nStep 1: install. Step 2: run.\n",
        "",
        "a,b\n1,2\n",
        '{"a": 1}\n',
        "step 1\n",
        "arange(start=0, end, step=1, requires_grad=False)\n" * 3,
        "  batch1: grad.bmm(batch2)\n  batch2: samples\n",
        "# Step 1: split the gradient\n# Step 2: call autograd.grad\n",
        "\x00\x01iteration 1/2\niteration 2/2\n",
    ],
)
def test_other_text_is_no_job_log(text: str) -> None:
    assert not training_log.sniff(text.encode())


@pytest.mark.parametrize(
    ("label", "job"), [("a/slurm-1234.out", "1234"), ("job_5.log", "5"), ("x/train.log", "train"), (".log", "job")]
)
def test_a_file_name_may_tell_the_job(label: str, job: str) -> None:
    assert training_log.job_of(label) == job


@pytest.mark.parametrize(
    ("name", "count"), [("torchrun-c10d-timeout.err", 4), ("torchrun-standalone-timeout.err", 4), ("torchrun-ok.err", 1)]
)
def test_real_launchers(shared: Path, name: str, count: int) -> None:
    log = training_log.load((shared / "control" / name).read_bytes(), name)
    assert log is not None
    assert len(log.attempts) == count
    if count > 1:
        assert log.attempts.outcome.tolist() == ["failed"] * 4
        assert log.attempts.restarts_left.tolist() == [3, 2, 1, 0]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("megatron_undated_then_cancelled_at.out", [("1999618", "timed out", 1, 2, 274.788, "2021-05-27T21:52:36")]),
        ("bs_meg_gpt2_base_n64_dp1_tp4_pp64-1809655.out", [("1809655", "timed out", 10, 60, 622, "2021-05-24T09:50:34")]),
        (
            "nanogpt_track3.txt",
            [
                ("nanogpt_track3 run 1", "completed", 0, 3375, 1640.367, None),
                ("nanogpt_track3 run 2", "completed", 0, 3375, 1633.268, None),
            ],
        ),
        ("mlperf_cscs_oc20.txt", [("mlperf_cscs_oc20", "completed", 1, 25, 38771.842, "2021-10-05T01:07:15.004")]),
    ],
)
def test_real_logs(shared: Path, name: str, expected: list[tuple[Any, ...]]) -> None:
    found = read([shared / "wild" / "logs" / name]).attempts
    ends = [
        str(np.datetime64(end, "ns"))[: 23 if end % 10**9 else 19] if at else None
        for end, at in zip(found.end_ns.tolist(), found.dated.tolist(), strict=True)
    ]
    ran = ((found.end_ns - found.start_ns) / 1e9).tolist()
    assert list(zip(found.job, found.outcome, found.first_step, found.last_step, ran, ends, strict=True)) == expected


@pytest.mark.parametrize(
    "line",
    [
        "100/100 [==============================] - 5s 50ms/step - loss: 1.0 - val_loss: 0.5",
        "100/100 ━━━━━━━━━━━━━━━━━━━━ 5s 50ms/step - accuracy: 0.5 - loss: 1.0",
        "100/100 - 5s - 50ms/step - loss: 1.0 - accuracy: 0.5",
        "100/100 - 5s - loss: 1.0 - 5s/epoch - 50ms/step",
    ],
)
@pytest.mark.parametrize("epochs", [1, 3])
def test_keras_prints_one_line_an_epoch(line: str, epochs: int) -> None:
    text = "".join(f"Epoch {k}/{epochs}\n{line}\n" for k in range(1, epochs + 1))
    assert columns(text, "last_step", "end_ns") == [(100 * epochs, 5 * epochs)]


def test_torchtune_counts_steps_over_epochs_before_its_bar() -> None:
    bar = "{}|{}|Loss: 1.2345:  {}%|#| {}/50 [00:{:02d}<01:40,  1.00s/it]\r"
    text = "".join(bar.format(1 + n // 51, n, 2 * n % 100, 1 + (n - 1) % 50, 1 + (n - 1) % 50) for n in range(1, 101))
    assert columns(text, "last_step", "end_ns") == [(100, 100)]
