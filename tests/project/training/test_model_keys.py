"""What the keys of a model do, by hand: published parameters, latent attention, experts, parallel blocks, adapters."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from taut.core.errors import InputRefused
from taut.project.fabric.groups import net_of
from taut.project.fabric.traffic import traffic
from taut.project.requests.iteration_time import pace_of
from taut.project.requests.replica_pool import kv_bytes
from taut.project.training import device_work as work
from taut.project.training import model_shape, rank_memory
from taut.project.training.scenario import Model, Scenario, parse
from taut.project.training.step_plan import layer_transfers, plan, sharding_transfers, sync_transfers
from taut.project.training.workload import WORKLOAD
from taut.read.scenario_file import load_parts

LLAMA = {"kv_heads": 8, "gated": True, "vocab": 128256, "sequence": 8192}
LATENT = {"kv_latent": 512, "query_latent": 1536, "rope_width": 64, "head_width": 128, "value_width": 128}
DEEPSEEK = {"layers": 61, "hidden": 7168, "heads": 128, "sequence": 4096, "vocab": 129280, "ffn": 18432, "gated": True,
            "experts": 256, "experts_per_token": 8, "expert_ffn": 2048, "shared_experts": 1, "dense_layers": 3, **LATENT,
            "flash_attention": True, "dropout": False}  # fmt: skip
PUBLISHED: dict[str, tuple[float, dict[str, Any]]] = {
    # Brown et al. (arXiv:2005.14165), table 2.1: 175.0 B.
    "GPT-3 175B": (175.0, {"layers": 96, "hidden": 12288, "heads": 96, "sequence": 2048, "vocab": 50257,
                           "tied_embeddings": True}),
    # Llama 3 (arXiv:2407.21783), table 3; counts of the released weights.
    "Llama 3.1 8B": (8.03, {**LLAMA, "layers": 32, "hidden": 4096, "heads": 32, "ffn": 14336}),
    "Llama 3.1 70B": (70.6, {**LLAMA, "layers": 80, "hidden": 8192, "heads": 64, "ffn": 28672}),
    "Llama 3.1 405B": (405.9, {**LLAMA, "layers": 126, "hidden": 16384, "heads": 128, "ffn": 53248}),
    # arXiv:2402.16819: 12.5 B, and 3.2 B of two embeddings.
    "Nemotron-4 15B": (15.7, {"layers": 32, "hidden": 6144, "heads": 48, "kv_heads": 8, "ffn": 24576, "vocab": 256000,
                              "sequence": 4096}),
    "Grok-1": (314.0, {"layers": 64, "hidden": 6144, "heads": 48, "kv_heads": 8, "ffn": 32768, "gated": True, "experts": 8,
                       "experts_per_token": 2, "vocab": 131072, "sequence": 8192, "tied_embeddings": True}),
    # arXiv:2401.04088: 46.7 B.
    "Mixtral 8x7B": (46.7, {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "gated": True,
                            "experts": 8, "experts_per_token": 2, "vocab": 32000, "sequence": 4096}),
    # README_WEIGHTS.md of the release: 671 B without the modules that predict further tokens.
    "DeepSeek-V3": (671.0, DEEPSEEK),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_models_have_the_parameters_they_say(name: str) -> None:
    billions, keys = PUBLISHED[name]
    assert model_shape.parameters(Model(**keys)) == pytest.approx(billions * 1e9, rel=0.01)


def test_a_token_meets_few_of_the_experts() -> None:
    assert model_shape.active_parameters(Model(**DEEPSEEK)) == pytest.approx(36.6e9, rel=0.005), (
        "README_WEIGHTS.md of the release"
    )
    assert model_shape.active_parameters(Model(**PUBLISHED["Mixtral 8x7B"][1])) == pytest.approx(12.9e9, rel=0.015)


SMALL = {"layers": 4, "hidden": 1024, "heads": 8, "sequence": 2048, "vocab": 32000, "flash_attention": True, "dropout": False}
EXPERTS = {"experts": 16, "experts_per_token": 2, "expert_ffn": 512, "gated": True}
TOKENS = 2048


def made(model: dict[str, Any], **job: Any) -> Scenario:
    job = {"global_batch": 4 * job.get("dp", 1), **job}
    return parse(load_parts({"model": model, "job": job, "device": "h100-80g", "fabric": "h100-ndr"}), "s.toml")[0]


def refused(model: dict[str, Any], **job: Any) -> str:
    with pytest.raises(InputRefused) as caught:
        made(model, **job)
    return str(caught.value)


def test_embeddings_count_twice_unless_they_are_tied() -> None:
    one = SMALL["vocab"] * SMALL["hidden"]
    apart, tied = made(SMALL), made({**SMALL, "tied_embeddings": True})
    assert model_shape.parameters(apart.model) - model_shape.parameters(tied.model) == one
    assert sum(rank_memory.stage_parts(apart)) - sum(rank_memory.stage_parts(tied)) == one
    assert plan(apart).optimiser_ns > plan(tied).optimiser_ns
    # On two stages the first has one and the last the other, or a copy of it.
    assert sum(rank_memory.stage_parts(made(SMALL, pp=2))) == sum(
        rank_memory.stage_parts(made({**SMALL, "tied_embeddings": True}, pp=2))
    )


def test_heads_may_be_wider_than_hidden_over_heads() -> None:
    narrow, wide = made(SMALL), made({**SMALL, "head_width": 256})
    # Queries, keys, values and what comes out of attention: four matrices of twice the width.
    assert model_shape.layer_parameters(wide.model) - model_shape.layer_parameters(narrow.model) == 4 * 1024 * 1024
    assert work.layer(wide).attention_ns > work.layer(narrow).attention_ns
    assert refused({**SMALL, "heads": 7}).startswith("s.toml: model.heads: 7 heads do not divide hidden 1024")
    assert made({**SMALL, "heads": 7, "head_width": 128}).model.heads == 7


LATENT_SMALL = {**SMALL, "kv_latent": 128, "query_latent": 256, "rope_width": 32, "head_width": 64, "value_width": 48}


def test_latent_attention_has_matrices_of_its_own() -> None:
    s = made(LATENT_SMALL)
    found = [(one.depth, one.columns) for one in model_shape.attention_matrices(s.model)]
    assert found == [(1024, 128 + 32), (1024, 256), (256, 8 * (64 + 32)), (128, 8 * (64 + 48)), (8 * 48, 1024)]
    norms = 4 * 1024 + 256 + 128
    block = 2 * 4 * 1024 * 1024
    assert model_shape.layer_parameters(s.model) == sum(a * b for a, b in found) + norms + block
    d = s.device
    flops = 8 * TOKENS * TOKENS * (64 + 32 + 48)
    assert work.layer(s).attention_ns == pytest.approx(flops / (d.peak_tflops * 1e3 * d.gemm_share * 0.7) + d.kernel_us * 1e3)


def test_latent_attention_keeps_queries_keys_values_and_latents() -> None:
    s = made(LATENT_SMALL, global_batch=1)
    per_token = 2 * 1024 * 2 + 2 * 1024 * 2  # inputs of norms and of both blocks
    per_token += 2 * 8 * (96 + 48) * 2  # queries and context, keys and values
    per_token += 2 * 2 * (256 + 128) + 4 * 4096
    assert rank_memory.memory_parts_gb(s)["activations"] == pytest.approx(4 * TOKENS * per_token / 1e9)


def test_latent_attention_on_tensor_and_context_parallel_ranks() -> None:
    s = made(LATENT_SMALL, tp=4, sequence_parallel=True)
    sizes = [one.size / (2 * TOKENS) for one in layer_transfers(s)]
    assert sizes == [1024, 256 + 128 + 32, 1024, 1024], "latents are gathered, not the hidden state"
    cut = made(LATENT_SMALL, cp=4)
    assert [one.size for one in layer_transfers(cut)] == [2 * TOKENS * 8 * (96 + 48)]


def test_servers_keep_latents() -> None:
    ordinary, latent = made(SMALL).model, made(LATENT_SMALL).model
    assert kv_bytes(ordinary) == 2 * 4 * 2 * 1024
    assert kv_bytes(latent) == 2 * 4 * (128 + 32)
    s = made(SMALL)
    assert pace_of(latent, s.device, s.fabric, 1, 1, 8).kv_ns < pace_of(ordinary, s.device, s.fabric, 1, 1, 8).kv_ns


def test_servers_know_dense_layers_and_shared_experts() -> None:
    s = made({**SMALL, **EXPERTS, "ffn": 4096, "shared_experts": 1})

    def base(**keys: int) -> float:
        return float(pace_of(replace(s.model, **keys), s.device, s.fabric, 1, 1, 8).base[10])

    dense = {"experts": 0, "experts_per_token": 0, "expert_ffn": 0, "shared_experts": 0}
    assert base(dense_layers=1) == pytest.approx(0.25 * base(**dense) + 0.75 * base())
    d = s.device
    products = 4 * (work.gemm_ns(d, 1024, 1024, 1024) + work.gemm_ns(d, 1024, 1024, 512))
    moved = 4 * 2 * 2 * 1024 * 512 / (d.memory_gb_per_s * d.memory_share)
    assert base() - base(shared_experts=0) == pytest.approx(products + moved)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"rope_width": 32}, "model.rope_width: does nothing without latent attention; set model.kv_latent"),
        ({"kv_latent": 128, "kv_heads": 2}, "model.kv_heads: latent attention gives every head keys and values of its own"),
        ({"shared_experts": 1}, "model.shared_experts: a dense model has no experts; set model.experts"),
        ({"experts_per_token": 1}, "model.experts_per_token: a dense model has no experts"),
        ({**EXPERTS, "dense_layers": 4}, "model.dense_layers: 4 of 4 layers are dense; give fewer"),
        ({**EXPERTS, "parallel_blocks": True}, "model.parallel_blocks: experts beside attention are not modelled"),
    ],
)
def test_keys_of_a_model_that_do_nothing_are_refused(keys: dict[str, Any], message: str) -> None:
    assert message in refused({**SMALL, **keys})


def test_parallel_blocks_have_one_norm_and_one_sum() -> None:
    keys = {"tp": 4, "sequence_parallel": True}
    after, beside = made(SMALL, **keys), made({**SMALL, "parallel_blocks": True}, **keys)
    assert [one.verb for one in layer_transfers(beside)] == ["reduce-scatter", "all-gather"]
    assert 2 * sum(one.size for one in layer_transfers(beside)) == sum(one.size for one in layer_transfers(after))
    assert model_shape.layer_parameters(after.model) - model_shape.layer_parameters(beside.model) == 2 * 1024
    d = after.device
    # A norm reads and writes, a sum with the residual reads two and writes one; each is a kernel.
    saved = 2 * TOKENS * 1024 / 4 * (2 + 3) / (d.memory_gb_per_s * d.memory_share) + 2 * d.kernel_us * 1e3
    assert work.layer(after).forward_ns - work.layer(beside).forward_ns == pytest.approx(saved)
    kept = [rank_memory.memory_parts_gb(s)["activations"] for s in (after, beside)]
    assert kept[0] - kept[1] == pytest.approx(4 * TOKENS * 1024 * 4 / 4 / 1e9)


def test_shared_experts_take_every_token() -> None:
    model = {**SMALL, **EXPERTS}
    routed, both = made(model), made({**model, "shared_experts": 2})
    block = 3 * 512 * 1024
    assert model_shape.layer_parameters(both.model) - model_shape.layer_parameters(routed.model) == 2 * block
    assert model_shape.expert_parameters(both.model) == model_shape.expert_parameters(routed.model) == 16 * block
    d = routed.device
    products = work.gemm_ns(d, TOKENS, 2 * 1024, 1024) + work.gemm_ns(d, TOKENS, 1024, 1024)
    rest = 2 * 2 * TOKENS * 1024 / (d.memory_gb_per_s * d.memory_share) + 2 * d.kernel_us * 1e3
    assert work.layer(both).forward_ns - work.layer(routed).forward_ns == pytest.approx(products + rest)
    keys = {"dp": 4, "ep": 4, "tp": 2, "sequence_parallel": True}
    verbs = [[one.verb for one in layer_transfers(made({**model, "shared_experts": n}, **keys))] for n in (0, 2)]
    assert len(verbs[1]) - len(verbs[0]) == 2, "gathered before, summed after"
    # Every rank holds the shared ones, and an ep-th of the others.
    held = rank_memory.stage_parts(made({**model, "shared_experts": 2}, dp=4, ep=4))
    assert held[1] == 4 * 4 * block
    assert held[0] - rank_memory.stage_parts(made(model, dp=4, ep=4))[0] == 4 * 2 * block


def test_the_first_layers_of_a_mixture_may_be_dense() -> None:
    s = made({**SMALL, **EXPERTS, "ffn": 4096, "dense_layers": 1}, pp=2, dp=2, ep=2)
    dense, routed = model_shape.kinds(s.model)
    assert model_shape.layer_parameters(dense) == 4 * 1024**2 + 3 * 4096 * 1024 + 4 * 1024
    assert rank_memory.chunk_layers(s.model, s.job)[0].tolist() == [[1, 1], [0, 2]]
    first, last = plan(s).forward_ns
    one = {kind.experts: plan(replace(s, model=replace(kind, dense_layers=0))).forward_ns for kind in (dense, routed)}
    assert first == pytest.approx((one[0][0] + one[16][0]) / 2)
    assert last == pytest.approx(one[16][1])
    moved = plan(s).transfer_ns[0]
    assert moved[1] == pytest.approx(2 * moved[0]), "the dense layer sends no tokens"


def test_the_busiest_rank_of_experts_sets_the_pace() -> None:
    keys = {"dp": 4, "ep": 4}
    model = {**SMALL, **EXPERTS}
    even, odd = made(model, **keys), made(model, **keys, expert_imbalance=1.5)
    each = TOKENS * 2 * 4 // 16
    d = even.device
    products = sum(
        work.grouped_ns(even, int(1.5 * each), a, b, 4) - work.grouped_ns(even, each, a, b, 4)
        for a, b in ((1024, 1024), (1024, 512))
    )
    moved = 0.5 * TOKENS * 2 * (4 * 2 * 1024 + 2 * 2 * 512) / (d.memory_gb_per_s * d.memory_share)
    assert work.layer(odd).forward_ns - work.layer(even).forward_ns == pytest.approx(products + moved)
    sizes = [[one.size for one in layer_transfers(s)] for s in (even, odd)]
    assert sizes[1] == [1.5 * size for size in sizes[0]]
    assert traffic(odd) == traffic(even), "all ranks together send as much"
    assert rank_memory.memory_gb(odd) > rank_memory.memory_gb(even)
    assert "job.expert_imbalance: a rank of 4 cannot have 5 times the mean" in refused(model, **keys, expert_imbalance=5)
    assert "job.expert_imbalance" in refused(SMALL, expert_imbalance=1.1)


def test_adapters_are_small_and_the_rest_is_frozen() -> None:
    job = {"dp": 4, "tp": 2, "sharding": "zero1"}
    full, lora = made(SMALL, **job), made(SMALL, **job, lora_rank=16)
    per_layer = 16 * ((1024 + 3072) + (1024 + 1024) + (1024 + 4096) + (4096 + 1024))
    assert model_shape.adapter_parameters(lora.model, lora.job) == per_layer
    assert rank_memory.trained_parameters(lora) == 4 * per_layer / 2
    assert rank_memory.trained_parameters(full) == sum(rank_memory.stage_parts(full)) == sum(rank_memory.stage_parts(lora))
    found = {(one.verb, one.axis): one.size for one in sync_transfers(lora, net_of(lora))}
    assert found == {("reduce-scatter", "dp"): 2 * 4 * per_layer / 2, ("all-gather", "dp"): 2 * 4 * per_layer / 2}
    parts = rank_memory.memory_parts_gb(lora)
    assert parts["gradients"] == pytest.approx(2 * 2 * per_layer / 1e9)
    assert parts["optimiser"] == pytest.approx(12 * 2 * per_layer / 4 / 1e9)
    assert parts["weights"] == pytest.approx(rank_memory.memory_parts_gb(full)["weights"] + 2 * 2 * per_layer / 1e9)
    rate = lora.device.memory_gb_per_s * lora.device.memory_share
    assert work.optimiser_ns(lora) == pytest.approx(work.OPTIMISER_BYTES * 2 * per_layer / 4 / rate)


def test_adapters_add_products_and_frozen_weights_lose_a_third() -> None:
    full, lora = made(SMALL), made(SMALL, lora_rank=16, lora_matrices=["query_key_value"])
    d = full.device
    adapter = work.gemm_ns(d, TOKENS, 16, 1024) + work.gemm_ns(d, TOKENS, 3072, 16)
    one, other = work.layer(full), work.layer(lora)
    assert other.forward_ns - one.forward_ns == pytest.approx(adapter)
    products = sum(work.gemm_ns(d, TOKENS, a, b) for a, b in ((3072, 1024), (1024, 1024), (4096, 1024), (1024, 4096)))
    beyond = other.beyond_ns - one.beyond_ns
    assert other.backward_ns("none") == pytest.approx(one.backward_ns("none") - products + 2 * adapter + beyond)
    logits = work.gemm_ns(d, TOKENS, 32000, 1024)
    assert work.head_ns(full)[1] - work.head_ns(lora)[1] == pytest.approx(logits)
    # 4 FLOPs of a frozen parameter and token in place of 6, 6 of an adapter's.
    saved = model_shape.flops_per_step(full.model, 4) - model_shape.flops_per_step(full.model, 4, lora.job)
    assert saved == pytest.approx(4 * TOKENS * (2 * model_shape.active_parameters(full.model) - 6 * 4 * 16 * 4096))


def test_adapters_on_ranks() -> None:
    s = made(SMALL, tp=4, lora_rank=16, lora_matrices=["query_key_value", "down"])
    assert [one.size / (2 * TOKENS) for one in layer_transfers(s)] == [1024, 1024, 16, 16]
    sharded = made(SMALL, dp=4, sharding="zero3", lora_rank=16, lora_matrices=["query_key_value"])
    gathers, back = sharding_transfers(sharded)
    adapters = 16 * (1024 + 3072)
    assert [one.size for one in gathers] == [2 * (model_shape.layer_parameters(sharded.model) + adapters)]
    assert [(one.verb, one.size) for one in back[1:]] == [("reduce-scatter", 2 * adapters)]


@pytest.mark.parametrize(
    ("model", "job", "message"),
    [
        ({}, {"lora_matrices": ["up"]}, "job.lora_matrices: does nothing without adapters; set job.lora_rank"),
        ({}, {"lora_rank": 8, "lora_matrices": []}, "job.lora_matrices: names no matrix, or one twice"),
        ({}, {"lora_rank": 8, "lora_matrices": ["head"]}, "job.lora_matrices[0]: invalid enum value 'head'"),
        (EXPERTS, {"lora_rank": 8}, 'adapters of experts are not modelled; set lora_matrices = ["query_key_value", "output"]'),
    ],
)
def test_adapters_that_cannot_be_are_refused(model: dict[str, Any], job: dict[str, Any], message: str) -> None:
    assert message in refused({**SMALL, **model}, **job)


def test_deepseek_is_written_down_and_projected() -> None:
    s = made(DEEPSEEK, dp=128, pp=16, ep=64, sharding="zero1", precision="fp8", global_batch=15360)
    p = plan(s)
    assert len(p.forward_ns) == 16
    assert (p.forward_ns > 0).all()
    # It ran on 80 GB (arXiv:2412.19437) with some of the activations recomputed or kept in eight bits, which is not modelled.
    assert rank_memory.memory_gb(s) < 1.15 * s.device.memory_gb
    assert "memory: a rank of 2,048 needs" in str(WORKLOAD.check_memory(s, "s.toml", ""))
