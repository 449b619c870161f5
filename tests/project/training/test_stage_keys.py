"""What the keys of a cut do, by hand: uneven stages, partial recomputation, transfers that hide."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from taut.core.errors import InputRefused
from taut.project.fabric.groups import net_of
from taut.project.fabric.traffic import traffic
from taut.project.projection import project_table
from taut.project.training import device_work as work
from taut.project.training import model_shape, rank_memory
from taut.project.training.pipeline import deal_layers, deal_recomputed
from taut.project.training.sampled_replica import sketch
from taut.project.training.scenario import Noise, Scenario, parse
from taut.project.training.step_plan import layer_transfers, plan, stage_transfer, sync_transfers
from taut.project.training.step_time import sending, step_ns
from taut.project.workload import Sampling
from taut.read.scenario_file import load_parts

MODEL = {"layers": 12, "hidden": 4096, "heads": 32, "sequence": 4096, "vocab": 32000, "flash_attention": True, "dropout": False}
INTERLEAVED = {"schedule": "interleaved", "virtual_pp": 2}


def table(model: dict[str, Any], **job: Any) -> dict[str, Any]:
    job = {"global_batch": 8 * job.get("dp", 1), **job}
    device = {"base": "h100-80g", "overlap_slowdown": 0.0}  # what overlap slows: test_measured_overheads.py
    return load_parts({"model": {**MODEL, **model}, "job": job, "device": device, "fabric": "h100-ndr"})


def made(layers: int = 12, **job: Any) -> Scenario:
    return parse(table({"layers": layers}, **job), "s.toml")[0]


def refused(layers: int, **job: Any) -> str:
    with pytest.raises(InputRefused) as caught:
        made(layers, **job)
    return str(caught.value)


def test_layers_that_do_not_divide_leave_the_ends_short() -> None:
    assert deal_layers(61, 16, 1) == (3, *[4] * 13, 3, 3)
    # Llama 3: embedding and logits are chunks of their own.
    assert deal_layers(126, 16, 8) == (0, *[1] * 126, 0)
    assert deal_layers(96, 8, 3) == (4,) * 24


def test_the_ends_may_be_told() -> None:
    assert deal_layers(61, 4, 1, (13, 14)) == (13, 17, 17, 14)
    assert deal_layers(10, 2, 2, (0, 3)) == (4, 2, 3, 1)
    assert deal_layers(7, 2, 2, (3, 4)) == (1, 2, 2, 2)


@given(st.integers(1, 200), st.integers(1, 16), st.integers(1, 8))
def test_every_layer_is_dealt_once_and_evenly(layers: int, stages: int, per_stage: int) -> None:
    dealt = deal_layers(layers, stages, per_stage)
    held = [sum(dealt[stage::stages]) for stage in range(stages)]
    assert sum(dealt) == layers
    assert max(dealt) - min(dealt) <= 1
    assert max(held) - min(held) <= 1
    assert sum(deal_recomputed(dealt, stages, 3)) == sum(min(3, one) for one in held)


def test_a_stage_with_more_layers_takes_longer_and_holds_more() -> None:
    uneven, even = made(11, pp=4), made(12, pp=4)
    assert plan(uneven).forward_ns[:-1].tolist() == plan(even).forward_ns[:-1].tolist()
    assert plan(uneven).forward_ns[-1] == pytest.approx(plan(even).forward_ns[-1] - plan(even).forward_ns[0] / 3)
    # The first stage has three layers, the embedding, and most micro-batches in flight.
    assert rank_memory.memory_parts_gb(uneven) == rank_memory.memory_parts_gb(even)
    assert step_ns(uneven) < step_ns(even)
    short = made(12, pp=4, first_stage_layers=2, last_stage_layers=2)
    layers = model_shape.layer_parameters(short.model)
    assert sum(rank_memory.stage_parts(short)) == max(4 * layers, 2 * layers + 32000 * 4096)
    assert max(plan(short).forward_ns) == pytest.approx(2 * plan(made(12, pp=6)).forward_ns[0])


def test_memory_is_that_of_the_stage_that_needs_most() -> None:
    even = rank_memory.memory_parts_gb(made(16, pp=4, global_batch=64))["activations"]
    # Micro-batches in flight × layers: 4 × 4 on the first of even stages; with one layer there, 3 × 5 on the second.
    found = rank_memory.memory_parts_gb(made(16, pp=4, global_batch=64, first_stage_layers=1))["activations"]
    assert found == pytest.approx(even * (3 * 5) / (4 * 4))


@pytest.mark.parametrize(
    ("layers", "job", "message"),
    [
        (12, {"pp": 16}, "job.pp: 16 pipeline chunks (pp × virtual_pp) for 12 layers; lower pp or virtual_pp"),
        (12, {"pp": 4, "virtual_pp": 4, "schedule": "interleaved"}, "job.pp: 16 pipeline chunks"),
        (12, {"pp": 10**9}, "job.pp: 1000000000 pipeline chunks"),
        (12, {"pp": 4, "first_stage_layers": 10}, "job.first_stage_layers: leaves 2 of 12 layers to 3 other stages"),
        (12, {"pp": 2, "first_stage_layers": 4, "last_stage_layers": 4}, "leaves 4 of 12 layers to 0 other stages"),
        (12, {"last_stage_layers": 3}, "job.last_stage_layers: leaves 9 of 12 layers to 0 other stages"),
        (12, {"recompute_layers": 2}, 'job.recompute_layers: does nothing with recompute = "none"; set recompute = "full"'),
        (12, {"pp": 4, "recompute": "full", "recompute_layers": 4}, "4 layers, and no stage has more than 3; lower it"),
        (12, {"tp": 4, "tensor_overlap_share": 1.5}, "job.tensor_overlap_share: expected `float` <= 1.0"),
    ],
)
def test_cuts_that_cannot_be_are_refused(layers: int, job: dict[str, Any], message: str) -> None:
    assert message in refused(layers, **job)


def test_an_uneven_pipeline_is_projected_whole() -> None:
    keys = {"pp": 4, "tp": 2, "global_batch": 8, **INTERLEAVED}
    found = project_table(table({"layers": 7}, **keys), "s.toml", how=Sampling(count=3)).forecasts[0]
    assert sum(found.terms.values()) == pytest.approx(1.0)
    assert min(found.terms.values()) > -0.01


def test_some_layers_are_recomputed_and_the_others_keep_what_they_need() -> None:
    keys = {"pp": 4, "tp": 2}
    none, some, full = (made(12, **keys, **more) for more in ({}, {"recompute": "full", "recompute_layers": 1},
                                                              {"recompute": "full"}))  # fmt: skip
    for part in ("backward_ns", "transfer_ns"):
        least, between, most = (getattr(plan(s), part) for s in (none, some, full))
        assert np.allclose(between, least + (most - least) / 3)
    assert plan(some).forward_ns.tolist() == plan(none).forward_ns.tolist()
    kept = [rank_memory.memory_parts_gb(s)["activations"] for s in (none, some, full)]
    assert kept[1] == pytest.approx(kept[0] + (kept[2] - kept[0]) / 3)
    moved = [sum(row.bytes_per_step for row in traffic(s) if row.kind == "tensor parallel") for s in (none, some, full)]
    assert np.array(moved) / moved[0] == pytest.approx([1, 7 / 6, 3 / 2])


def test_tensor_parallel_transfers_hide_under_their_layer() -> None:
    shown, hidden = (made(tp=8, micro_batch=4, tensor_overlap_share=share) for share in (0.0, 0.75))
    each = 12 * sum(net_of(shown).ns(*one) for one in layer_transfers(shown))
    assert plan(shown).transfer_ns[0] == pytest.approx(each)
    assert plan(hidden).transfer_ns[0] == pytest.approx(each / 4)
    assert plan(shown).forward_ns - plan(hidden).forward_ns == pytest.approx(0.75 * each)
    assert plan(shown).backward_ns - plan(hidden).backward_ns == pytest.approx(0.75 * each)


def test_no_more_hides_than_there_is_work() -> None:
    base = {"base": "h100-80g", "peak_tflops": 1e5, "memory_gb_per_s": 1e6, "kernel_us": 0.1, "host_layer_us": 0.0,
            "overlap_slowdown": 0.0}  # fmt: skip
    one = table({}, tp=8, tensor_overlap_share=1.0)
    s = parse(load_parts({**one, "device": base}), "s.toml")[0]
    took = sum(net_of(s).ns(*one) for one in layer_transfers(s))
    assert work.layer(s).forward_ns < took
    assert plan(s).transfer_ns[0] == pytest.approx(12 * (took - work.layer(s).forward_ns))
    assert plan(s).forward_ns[0] == pytest.approx(12 * took + work.head_ns(s)[0])


def test_context_and_expert_parallel_transfers_hide_by_shares_of_their_own() -> None:
    model = {"experts": 8, "experts_per_token": 2}
    job = {"dp": 2, "cp": 2, "tp": 2, "ep": 2}

    def moved(**shares: float) -> float:
        return float(plan(parse(table(model, **job, **shares), "s.toml")[0]).transfer_ns[0, 0])

    s = parse(table(model, **job), "s.toml")[0]
    by_axis: dict[str, float] = {}
    for one in layer_transfers(s):
        by_axis[one.axis] = by_axis.get(one.axis, 0.0) + 12 * net_of(s).ns(*one)
    assert moved() == pytest.approx(sum(by_axis.values()))
    for name, axis in (("tensor", "tp"), ("context", "cp"), ("expert", "ep")):
        assert moved() - moved(**{f"{name}_overlap_share": 0.5}) == pytest.approx(by_axis[axis] / 2)


def test_hops_hide_by_a_share() -> None:
    keys = {"pp": 4, "global_batch": 8, **INTERLEAVED}
    shown, hidden = made(16, **keys), made(16, **keys, pipeline_overlap_share=0.9)
    whole = net_of(shown).ns(*stage_transfer(shown))
    assert (plan(shown).hop_ns, plan(shown).late_ns) == (whole, 0)
    assert (plan(hidden).hop_ns, plan(hidden).late_ns) == pytest.approx((0.1 * whole, 0.9 * whole))
    assert sending(plan(hidden)).sum() == pytest.approx(0.1 * sending(plan(shown)).sum())


@pytest.mark.parametrize("keys", [{"schedule": "1f1b"}, INTERLEAVED])
def test_hops_that_hide_still_come_late(keys: dict[str, Any]) -> None:
    """Filling and emptying the pipeline waits for a hop between any two chunks, whoever sends."""
    s = made(16, pp=4, global_batch=64, **keys, pipeline_overlap_share=1.0)
    p = plan(s)
    waited = step_ns(s, p) - step_ns(s, dataclasses.replace(p, late_ns=0.0))
    assert waited == pytest.approx(2 * (len(p.forward_ns) - 1) * p.late_ns)
    assert step_ns(s) < step_ns(made(16, pp=4, global_batch=64, **keys))


def test_the_busiest_stage_sets_the_synchronisation() -> None:
    s = made(13, pp=4, dp=4)
    held = max(4 * model_shape.layer_parameters(s.model), 3 * model_shape.layer_parameters(s.model) + 32000 * 4096)
    assert [one.size for one in sync_transfers(s, net_of(s))] == [2 * held]


def test_sampled_replicas_wait_for_late_hops_too() -> None:
    s = made(16, pp=4, dp=8, global_batch=64, **INTERLEAVED, pipeline_overlap_share=1.0)
    quiet = replace(s, noise=Noise(distribution="none", step_spread=0.0, ranks_spread=0.0))
    assert sketch(quiet).step_ns[0] == pytest.approx(step_ns(s), rel=1e-6)
