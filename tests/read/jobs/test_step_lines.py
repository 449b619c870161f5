"""What one line says of its step, in the wordings of many trainers."""

from __future__ import annotations

import pytest

from taut.read.jobs import step_lines


@pytest.mark.parametrize(
    ("line", "number", "total", "epoch", "took_ms"),
    [
        ("iteration       10/    1000 | elapsed time per iteration (ms): 250.0 | lm loss: 1.0", 10, 1000, -1, 250),
        ("step    10/19560 | loss 10.9 (+nanz)| lr 6e-4 | 450.20 ms | 52.0% bf16 MFU | 1164000 tok/s", 10, 19560, -1, 450.2),
        ("iter 10: loss 3.2, time 250.00ms, mfu 31.2%", 10, -1, -1, 250),
        ("completed step: 7, seconds: 2.500, TFLOP/s/device: 200.1, loss: 9.8", 7, -1, -1, 2500),
        ("steps: 10 loss: 2.1 iter time (s): 6.0 samples/sec: 12.1 step 10", 10, -1, -1, 6000),
        ("[batch=3/100]:", 3, 100, -1, -1),
        ("[step=10/739328,epoch=0]", 10, 739328, 0, -1),
        ("Epoch 1 | iter 16 step 2 | loss train: 2.100, val: n/a | iter time: 300.00 ms", 16, -1, 1, 300),
        ("iteration: 10 / 1000 | elapsed_time_per_iteration_ms: 1.2K | lm_loss: 10.9", 10, 1000, -1, 1200),
        ("step:5 - actor/pg_loss:0.1 - timing_s/gen:20.0 - timing_s/step:50.0", 5, -1, -1, 50_000),
        ("epoch 001:  100 / 5000 loss=8.2, num_updates=100, lr=0.001, train_wall=50, wall=60", 100, -1, 1, -1),
        ("Epoch: [2][  10/5005]\tTime  0.500 ( 0.510)\tLoss 6.9e+00 (6.9e+00)", 10, -1, 2, 500),
        ("Epoch(train)  [1][ 50/1000]  lr: 1.0e-03  eta: 1:00:00  time: 1.2  data_time: 0.01  loss: 0.5", 50, -1, 1, 1200),
        ("Train: 0 [  50/1251 (  4%)]  Loss: 6.9 (6.9)  Time: 0.52s, 196/s (0.5s) LR: 1e-3", 50, -1, 0, 520),
        ("DLL 2020-06-23 08:01:00.1 - (0, 10) train_loss : 10.5", 10, -1, 0, -1),
        ("loss = 2.3, step = 100 (60.000 sec)", 100, -1, -1, -1),
        ("Training epoch 0, iteration 9/999 | lr: 1e-6 | global_step: 12 | train_step_timing in s: 1.5", 12, -1, 0, 1500),
        ("Epoch 0/9 ━━━━━━ 50/500 0:05:00 • 0:45:00 1.67it/s", 50, -1, 0, -1),
        (" 60/1875 [====>.........................] - ETA: 3s - loss: 0.4", 60, -1, -1, -1),
    ],
)
def test_steps(line: str, number: int, total: int, epoch: int, took_ms: float) -> None:
    step = step_lines.find(line.lower())
    assert step is not None
    assert (step.number, step.total, step.epoch) == (number, total, epoch)
    assert step_lines.step_ns(line.lower()) == (round(took_ms * 1e6) if took_ms >= 0 else -1)


@pytest.mark.parametrize(
    "line",
    [
        "step 1/10 : from ubuntu:22.04",
        "epoch(val) [1][50/100]  loss: 0.5",
        "evaluating: step 5/10",
        "processing batch 3/10",
        "micro-batch 3 loss",
        "validation loss at iteration 1000 | lm loss value: 2.0",
        "total optimization steps = 1,000",
    ],
)
def test_other_lines(line: str) -> None:
    assert step_lines.find(line) is None


@pytest.mark.parametrize(
    ("line", "seconds"), [("train_time:56129ms", 56.129), ("train_time:56.5s", 56.5), ("wall=60", 60), ("time: 5", None)]
)
def test_clocks_of_their_own(line: str, seconds: float | None) -> None:
    assert step_lines.since_start_ns(line) == (-1 if seconds is None else round(seconds * 1e9))
