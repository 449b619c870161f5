"""What a rank computes, holds and sends: eight-bit products, experts, state that dp and cp share, memory near the limit."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from taut.core.errors import InputRefused, UsageError
from taut.project.fabric.groups import net_of
from taut.project.projection import Asked, project_table
from taut.project.training import device_work as work
from taut.project.training import rank_memory
from taut.project.training.forecast import at
from taut.project.training.scenario import Scenario, parse
from taut.project.training.step_plan import layer_transfers, plan, sharding_transfers, sync_transfers
from taut.project.training.workload import WORKLOAD
from taut.project.workload import Sampling
from taut.read.scenario_file import load_parts

DENSE = {"layers": 4, "hidden": 4096, "heads": 32, "sequence": 4096, "vocab": 32000, "flash_attention": True, "dropout": False}
EXPERTS = {**DENSE, "ffn": 2048, "experts": 8, "experts_per_token": 2, "gated": True}


def table(model: dict[str, Any], device: Any = "h100-80g", **job: Any) -> dict[str, Any]:
    job = {"global_batch": 4 * job.get("dp", 1), **job}
    return load_parts({"model": model, "job": job, "device": device, "fabric": "h100-ndr"})


def made(model: dict[str, Any], **job: Any) -> Scenario:
    return parse(table(model, **job), "s.toml")[0]


def test_eight_bits_make_products_faster_and_leave_the_rest() -> None:
    half, eight = (made(DENSE, precision=name) for name in ("bf16", "fp8"))
    one, other = work.layer(half), work.layer(eight)
    assert 1.3 < one.forward_ns / other.forward_ns < 1.9
    assert other.attention_ns == one.attention_ns
    assert work.head_ns(eight) == work.head_ns(half)
    assert work.optimiser_ns(eight) == work.optimiser_ns(half)
    assert work.peak_tflops(eight) == 1979.0


def test_a_cast_moves_three_bytes_a_number() -> None:
    s = made(DENSE, precision="fp8")
    d, product = s.device, work.gemm_ns(s.device, 4096, 4096, 4096, eight_bit=True)
    cast = 3 * 4096**2 / (d.memory_gb_per_s * d.memory_share) + d.kernel_us * 1e3
    assert work.linear_ns(s, 4096, 4096, 4096) == pytest.approx(product + cast)
    assert work.linear_ns(made(DENSE), 4096, 4096, 4096) == work.gemm_ns(d, 4096, 4096, 4096)


def test_inputs_are_gathered_in_eight_bits_but_not_those_of_experts() -> None:
    def sizes(model: dict[str, Any], precision: str) -> list[float]:
        s = made(model, tp=8, sequence_parallel=True, precision=precision)
        return [one.size / (2 * 4096 * 4096) for one in layer_transfers(s)]

    assert sizes(DENSE, "bf16") == [1, 1, 1, 1]
    assert sizes(DENSE, "fp8") == [1, 0.5, 1, 0.5]
    assert sizes(EXPERTS, "fp8") == [1, 0.5, 2, 2], "two experts a token"


def test_a_device_without_eight_bits_is_refused_in_one_line() -> None:
    with pytest.raises(InputRefused, match=r"job\.precision: A100 .* has no products in fp8; set precision = \"bf16\""):
        parse(table(DENSE, "a100-80g", precision="fp8"), "s.toml")
    ours = {"base": "a100-80g", "fp8_tflops": 600.0}
    assert work.peak_tflops(parse(table(DENSE, ours, precision="fp8"), "s.toml")[0]) == 600.0


def test_eight_bits_keep_copies_of_weights_and_smaller_inputs() -> None:
    half, eight = (rank_memory.memory_parts_gb(made(DENSE, precision=name)) for name in ("bf16", "fp8"))
    assert eight["weights"] == 2 * half["weights"]
    assert eight["activations"] < half["activations"]
    assert {part: eight[part] for part in ("gradients", "optimiser")} == {p: half[p] for p in ("gradients", "optimiser")}


def test_tokens_dealt_unevenly_to_many_experts_fill_fewer_tiles() -> None:
    s = made(EXPERTS)
    whole = work.gemm_ns(s.device, 65536, 2048, 7168)
    shares = [whole / work.grouped_ns(s, 65536 // n, 2048, 7168, n) for n in (8, 64, 256)]
    assert sorted(shares, reverse=True) == shares
    # Measured on an H200 with 64 uneven experts: 594.6 TFLOP/s, and 310.1 with an eighth of the tokens.
    for tokens, measured in ((65536, 594.6), (8192, 310.1)):
        found = 2e-3 * tokens * 2048 * 7168 / work.grouped_ns(made(EXPERTS), tokens // 64, 2048, 7168, 64)
        assert found == pytest.approx(measured, rel=0.25)


def test_experts_are_spread_at_every_scale() -> None:
    s = made(EXPERTS, dp=16, ep=8)
    assert WORKLOAD.smallest(s) == 8
    with pytest.raises(UsageError, match=r"4 ranks: job\.ep: experts over 8 ranks, and dp × cp = 4 is no multiple"):
        at(s, 4)
    result = project_table(table(EXPERTS, dp=16, ep=8), "s.toml", "", Asked(ranks=(8, 16, 24)), Sampling(count=3))
    assert [row.ranks for row in result.forecasts] == [8, 16, 24]
    assert result.threshold is not None
    assert min(point.ranks for point in result.threshold.curve) >= 8


def test_experts_may_be_spread_over_context_parallel_ranks() -> None:
    s = made(EXPERTS, dp=2, cp=4, ep=8)
    assert net_of(s).members("ep") == 8
    assert [one for one in layer_transfers(s) if one.axis == "ep"]
    assert plan(s).sync_ns > 0


def test_gradients_of_experts_meet_where_the_same_experts_are() -> None:
    s = made(EXPERTS, dp=16, ep=8, sharding="zero1")
    held, dense = sum(rank_memory.stage_parts(s)), rank_memory.stage_parts(s)[0]
    found = {(one.verb, one.axis): one.size for one in sync_transfers(s, net_of(s))}
    assert found[("reduce-scatter", "dp")] == pytest.approx(2 * dense)
    assert found[("all-gather", "expert")] == pytest.approx(2 * (held - dense))
    assert net_of(s).members("expert") == 2
    assert rank_memory.sharded_parameters(s) == pytest.approx(dense / 16 + (held - dense) / 2)
    alone = made(EXPERTS, dp=8, ep=8)
    assert net_of(alone).ns("all-reduce", "expert", 1e9) == 0.0, "nobody else holds these experts"
    gathered = sharding_transfers(replace(s, job=replace(s.job, sharding="zero3")))[0]
    assert sum(one.size for one in gathered) == pytest.approx(2 * (held - 2 * 32000 * 4096) / 4)


def test_state_and_gradients_span_data_and_context_parallel_ranks() -> None:
    s = made(DENSE, cp=8, sharding="zero1")
    assert plan(s).sync_ns > 0, "context-parallel ranks sum their gradients too"
    assert net_of(s).members("dp") == 8
    assert rank_memory.sharded_parameters(s) == pytest.approx(sum(rank_memory.stage_parts(s)) / 8)
    apart = made(DENSE, dp=2, cp=4, sharding="zero1")
    assert rank_memory.memory_parts_gb(apart)["optimiser"] == rank_memory.memory_parts_gb(s)["optimiser"]
    assert sync_transfers(apart, net_of(apart)) == sync_transfers(s, net_of(s))


def test_hsdp_shards_the_state_over_its_own_ranks() -> None:
    s = made(DENSE, dp=32, sharding="hsdp", shard=8)
    assert rank_memory.sharded_parameters(s) == pytest.approx(sum(rank_memory.stage_parts(s)) / 8)


def small(memory_gb: float) -> dict[str, Any]:
    return table(DENSE, {"base": "h100-80g", "memory_gb": memory_gb}, dp=4, sharding="zero1", recompute="full")


def test_memory_near_the_limit_is_a_warning_with_its_parts() -> None:
    s = parse(small(80.0), "s.toml")[0]
    needs = rank_memory.memory_gb(s)
    assert needs == pytest.approx(sum(rank_memory.memory_parts_gb(s).values()))
    assert not project_table(small(2 * needs), "s.toml", how=Sampling(count=2)).assumed
    found = project_table(small(needs / 1.2), "s.toml", how=Sampling(count=2)).assumed
    assert isinstance(found, list)
    assert "memory: a rank of 4 needs" in found[0]
    assert all(part in found[0] for part in ("weights", "gradients", "optimiser", "activations"))
    with pytest.raises(InputRefused, match=r"a rank of 4 needs .* GB, H100 .* raise job\.tp"):
        project_table(small(needs / 2), "s.toml", how=Sampling(count=2))


def test_scales_that_do_not_fit_do_not_refuse_the_others() -> None:
    s = parse(small(80.0), "s.toml")[0]
    limit = (rank_memory.memory_gb(at(s, 1)) / 1.5 + rank_memory.memory_gb(at(s, 16))) / 2
    result = project_table(small(limit), "s.toml", "", Asked(ranks=(1, 16)), Sampling(count=2))
    assert [row.ranks for row in result.forecasts] == [16]
    assert isinstance(result.assumed, list)
    assert result.assumed[0].startswith("left out: s.toml: a rank of 1 needs")


GPT = {"layers": 96, "hidden": 12288, "heads": 96, "sequence": 2048, "tied_embeddings": True}
LESS = {"tp": 8, "virtual_pp": 3, "schedule": "interleaved", "sequence_parallel": True, "recompute": "selective"}
WHOLE = {"tp": 8, "recompute": "full"}
LLAMA = {"sequence": 8192, "kv_heads": 8, "gated": True, "vocab": 128256, "flash_attention": True, "dropout": False}
LIKE_LLAMA = {"schedule": "interleaved", "sequence_parallel": True}
TURING = {**GPT, "layers": 105, "hidden": 20480, "heads": 128}
TERA = {**GPT, "layers": 128, "hidden": 25600, "heads": 160}
RAN: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "GPT 175B, Korthikanti et al. (arXiv:2205.05198), table 3": (GPT, "a100-80g", {**LESS, "pp": 8, "global_batch": 64}),
    "GPT 530B, the same": (TURING, "a100-80g", {**LESS, "pp": 35, "global_batch": 280}),
    "GPT 1T, the same": (TERA, "a100-80g", {**LESS, "pp": 64, "virtual_pp": 1, "schedule": "1f1b", "global_batch": 512}),
    "GPT 175B, Narayanan et al. (arXiv:2104.04473), table 2": (GPT, "a100-80g",
                                                              {**WHOLE, "pp": 12, "dp": 4, "global_batch": 1536}),
    "GPT 1T on 3,072, the same, table 1": (TERA, "a100-80g", {**WHOLE, "pp": 64, "dp": 6, "global_batch": 3072}),
    "MT-NLG 530B (arXiv:2201.11990)": (TURING, "a100-80g", {**WHOLE, "pp": 35, "dp": 8, "global_batch": 1920}),
    "Llama 3 405B (arXiv:2407.21783), tables 3 and 4": (
        {**LLAMA, "layers": 126, "hidden": 16384, "heads": 128, "ffn": 53248}, "h100-80g",
        {**LIKE_LLAMA, "tp": 8, "pp": 16, "dp": 128, "virtual_pp": 8, "global_batch": 2048, "sharding": "zero2"}),
    "Llama 3.1 70B, DGX Cloud benchmarks": (
        {**LLAMA, "layers": 80, "hidden": 8192, "heads": 64, "ffn": 28672}, "h100-80g",
        {**LIKE_LLAMA, "tp": 4, "pp": 4, "cp": 2, "dp": 2, "virtual_pp": 5, "global_batch": 128, "sharding": "zero1",
         "precision": "fp8"}),
    "Nemotron-4 340B, DGX Cloud benchmarks": (
        {"layers": 96, "hidden": 18432, "heads": 96, "kv_heads": 8, "ffn": 73728, "vocab": 256000, "sequence": 4096,
         "flash_attention": True, "dropout": False}, "h100-80g",
        {**LIKE_LLAMA, "tp": 8, "pp": 8, "dp": 4, "virtual_pp": 12, "global_batch": 64, "sharding": "zero1"}),
}  # fmt: skip


@pytest.mark.parametrize("name", RAN)
def test_published_jobs_that_ran_fit(name: str) -> None:
    model, device, job = RAN[name]
    s = parse(table(model, device, **job), "s.toml")[0]
    assert 0.3 * s.device.memory_gb < rank_memory.memory_gb(s) < 1.05 * s.device.memory_gb
    WORKLOAD.check_memory(s, "s.toml", "")
