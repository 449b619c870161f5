"""What a step has beside plain products, as it was measured: attention back, gradients added up, copies, what overlap slows."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from taut.project.training import device_work as work
from taut.project.training import model_shape
from taut.project.training.scenario import Scenario, parse
from taut.project.training.step_plan import layer_transfers, plan
from taut.read.scenario_file import load_parts

MODEL = {"layers": 4, "hidden": 4096, "heads": 32, "sequence": 4096, "vocab": 32000, "dropout": False}


def made(model: dict[str, Any] | None = None, **job: Any) -> Scenario:
    table = {"model": {**MODEL, **(model or {})}, "job": {"global_batch": 4, **job}, "device": "h100-80g", "fabric": "h100-ndr"}
    return parse(load_parts(table), "s.toml")[0]


def beyond(s: Scenario) -> float:
    one = work.layer(s)
    return one.backward_ns("none") - 2 * one.forward_ns


def test_fused_attention_takes_more_than_twice_as_long_back() -> None:
    fused, apart = (made({"flash_attention": one}, global_batch=1) for one in (True, False))
    assert beyond(fused) == pytest.approx(0.8 * work.layer(fused).attention_ns)
    assert beyond(apart) == 0


@pytest.mark.parametrize(("bytes_", "moved"), [(2, 2), (4, 6)])
def test_gradients_of_several_micro_batches_are_added_up(bytes_: int, moved: int) -> None:
    one, several = (made(global_batch=n, gradient_bytes=bytes_) for n in (1, 4))
    assert beyond(one) == 0
    assert beyond(several) == pytest.approx(work.moved_ns(several.device, moved * model_shape.layer_parameters(several.model)))


def test_fully_sharded_weights_are_copied_for_each_pass_and_gradients_once() -> None:
    s = made(dp=4, sharding="zero3", gradient_bytes=4)
    assert beyond(s) == pytest.approx(work.moved_ns(s.device, (4 + 4 + 2 + 4) * model_shape.layer_parameters(s.model)))


def test_what_hides_slows_the_work_that_it_hides_under() -> None:
    s = made(dp=4, sharding="zero1", overlap_share=1.0)
    free = replace(s, device=replace(s.device, overlap_slowdown=0.0))
    hidden, exposed = plan(free).hidden_ns, plan(free).sync_ns
    assert hidden > 0
    assert plan(s).sync_ns == pytest.approx(exposed + s.device.overlap_slowdown * hidden)


def test_products_of_experts_reach_less_in_eight_bits() -> None:
    s = made(precision="fp8")
    whole = work.gemm_ns(s.device, 1024 + work.GROUPED_ROWS, 4096, 4096, 8, eight_bit=True)
    cast = 3 * 8 * 1024 * 4096 / (s.device.memory_gb_per_s * s.device.memory_share) + s.device.kernel_us * 1e3
    assert work.grouped_ns(s, 1024, 4096, 4096, 8) == pytest.approx(whole / work.GROUPED_SHARE_FP8 + cast)


def test_slower_attention_is_a_key_of_the_device() -> None:
    s = made({"flash_attention": True})
    half = replace(s, device=replace(s.device, attention_share=s.device.attention_share / 2))
    kernel = s.device.kernel_us * 1e3
    assert work.layer(half).attention_ns - kernel == pytest.approx(2 * (work.layer(s).attention_ns - kernel))


def test_a_token_may_be_sent_once_to_each_node_of_its_experts() -> None:
    model = {"experts": 64, "experts_per_token": 8}

    def sent(**job: Any) -> float:
        s = made(model, global_batch=256, dp=64, ep=64, **job)
        return next(one.size for one in layer_transfers(s) if one.axis == "ep") / (2 * 4096 * 4096)

    assert sent() == 8
    assert sent(sent_once_a_node=True) == pytest.approx(8 * (1 - (7 / 8) ** 8))
    assert sent(sent_once_a_node=True, expert_nodes=4) == 4
