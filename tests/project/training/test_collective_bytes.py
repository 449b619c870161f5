"""Bytes of every collective that a scenario emits, against hand formulas; and how often a step has each."""

from __future__ import annotations

from typing import Any

import pytest

from taut.project.fabric.groups import net_of
from taut.project.fabric.traffic import traffic
from taut.project.training.scenario import Scenario, parse
from taut.project.training.step_plan import Transfer, layer_transfers, sharding_transfers, stage_transfer, sync_transfers
from taut.read.scenario_file import load_parts

B, S, H, A, KV, L, V, F, HALF = 2, 4096, 4096, 32, 8, 8, 32000, 11008, 2
MODEL = {"layers": L, "hidden": H, "heads": A, "kv_heads": KV, "sequence": S, "vocab": V, "ffn": F, "gated": True,
         "flash_attention": True, "dropout": False}  # fmt: skip
MIXTURE = {**MODEL, "experts": 16, "experts_per_token": 4}
ATTENTION = 2 * H * H + 2 * H * H * KV // A
BLOCK = 3 * H * F
NORMS = 4 * H
DENSE = ATTENTION + BLOCK + NORMS


def made(model: dict[str, Any] = MODEL, **job: Any) -> Scenario:
    job = {"micro_batch": B, "global_batch": 4 * B * job.get("dp", 1), **job}
    return parse(load_parts({"model": model, "job": job, "device": "h100-80g", "fabric": "h100-ndr"}), "s.toml")[0]


def test_tensor_parallel_sums_two_activations_a_layer() -> None:
    whole = HALF * B * S * H
    assert layer_transfers(made(tp=4)) == 2 * [Transfer("all-reduce", "tp", whole)]
    halves = [Transfer("reduce-scatter", "tp", whole), Transfer("all-gather", "tp", whole)]
    assert layer_transfers(made(tp=4, sequence_parallel=True)) == 2 * halves


def test_context_parallel_ranks_gather_keys_and_values() -> None:
    for tp in (1, 4):
        (found,) = [one for one in layer_transfers(made(cp=8, tp=tp)) if one.axis == "cp"]
        assert found == Transfer("all-gather", "cp", HALF * B * S * 2 * (H // A) * KV / tp), "all of the sequence's"


def test_a_stage_sends_one_activation() -> None:
    assert stage_transfer(made(pp=4)) == Transfer("send", "pp", HALF * B * S * H)
    assert stage_transfer(made(pp=4, tp=4, cp=2)) == Transfer("send", "pp", HALF * B * S * H / 8)


def test_tokens_go_to_their_experts_and_back() -> None:
    s = made(MIXTURE, dp=8, ep=8)
    assert layer_transfers(s) == 2 * [Transfer("all-to-all", "ep", 4 * HALF * B * S * H)]
    assert net_of(s).members("ep") == 8


def test_gradients_are_summed_once_a_step() -> None:
    for gradient in (2, 4):
        s = made(dp=8, pp=2, tp=2, gradient_bytes=gradient)
        assert sync_transfers(s, net_of(s)) == [Transfer("all-reduce", "dp", gradient * (L // 2 * DENSE + V * H) / 2)]


@pytest.mark.parametrize("sharding", ["zero1", "zero2"])
def test_sharded_optimisers_scatter_gradients_and_gather_weights(sharding: str) -> None:
    held = L * DENSE + 2 * V * H
    s = made(dp=8, gradient_bytes=4, sharding=sharding)
    assert sync_transfers(s, net_of(s)) == [Transfer("reduce-scatter", "dp", 4 * held), Transfer("all-gather", "dp", 2 * held)]
    assert sharding_transfers(s) == ([], [])


def test_fully_sharded_weights_are_gathered_in_both_passes() -> None:
    s = made(dp=8, gradient_bytes=4, sharding="zero3")
    gather, scatter = Transfer("all-gather", "dp", HALF * DENSE), Transfer("reduce-scatter", "dp", 4 * DENSE)
    assert sharding_transfers(s) == ([gather], [gather, scatter])
    assert sync_transfers(s, net_of(s)) == []


def test_groups_of_shards_gather_inside_and_sum_between() -> None:
    s = made(dp=32, sharding="hsdp", shard=8)
    gather, scatter = Transfer("all-gather", "shard", HALF * DENSE), Transfer("reduce-scatter", "shard", HALF * DENSE)
    assert sharding_transfers(s) == ([gather], [gather, scatter])
    assert sync_transfers(s, net_of(s)) == [Transfer("all-reduce", "replica", HALF * (L * DENSE + 2 * V * H) / 8)]
    assert [net_of(s).members(axis) for axis in ("shard", "replica")] == [8, 4]


def test_experts_meet_where_the_same_ones_are() -> None:
    s = made(MIXTURE, dp=16, ep=8, sharding="zero1")
    dense = L * (ATTENTION + NORMS + 16 * H) + 2 * V * H
    here = L * 16 * BLOCK / 8
    found = {(one.verb, one.axis): one.size for one in sync_transfers(s, net_of(s))}
    assert found == {(verb, axis): HALF * count for axis, count in (("dp", dense), ("expert", here))
                     for verb in ("reduce-scatter", "all-gather")}  # fmt: skip
    full = made(MIXTURE, dp=16, ep=8, sharding="zero3")
    assert [one.size for one in sharding_transfers(full)[0]] == [
        HALF * dense_ for dense_ in ((dense - 2 * V * H) / L, here / L)
    ]


def test_a_ring_sends_what_its_closed_form_says() -> None:
    """Bytes that all ranks send in a step: every kind once, from the sizes above."""
    s = made(pp=2, tp=2, dp=4)
    found: dict[str, float] = {}
    for row in traffic(s):
        found[row.kind] = found.get(row.kind, 0.0) + row.bytes_per_step
    activation, micro = HALF * B * S * H, 4
    ranks = 2 * 2 * 4
    # An all-reduce over n sends 2 (n − 1) / n of its bytes from each of its members.
    assert found["tensor parallel"] == pytest.approx(ranks * 2 * (L / 2) * micro * 2 * (2 * 1 / 2) * activation)
    assert found["data parallel"] == pytest.approx(ranks * 2 * (3 / 4) * HALF * (L / 2 * DENSE + V * H) / 2)
    assert found["pipeline hops"] == pytest.approx(2 * micro * (2 * 4) * activation / 2), "one hop there, one back"
