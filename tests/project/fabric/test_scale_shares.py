"""Collectives that reach less of their rate the more nodes a group lies on."""

from __future__ import annotations

from typing import Any

import pytest

from taut.core.errors import InputRefused
from taut.project.fabric.groups import net_of
from taut.project.training.scenario import parse
from taut.read.scenario_file import load_parts

MODEL = {"layers": 2, "hidden": 512, "heads": 8, "sequence": 512}


def made(dp: int, **tier: Any) -> Any:
    tiers = [{"name": "node", "devices": 8, "gb_per_s": 300.0}, {"name": "net", "devices": 8192, "gb_per_s": 10.0, **tier}]
    table = {"model": MODEL, "job": {"global_batch": dp, "dp": dp}, "device": "a100-80g",
             "fabric": {"name": "flat", "tiers": tiers}}  # fmt: skip
    return parse(load_parts(table), "s.toml")[0]


@pytest.mark.parametrize(("nodes", "share"), [(1, 1.0), (2, 1.0), (8, 0.9), (32, 0.8), (256, 0.5), (1024, 0.5)])
def test_rates_fall_with_the_logarithm_of_the_nodes(nodes: int, share: float) -> None:
    known = {"scale_nodes": [2, 32, 256], "scale_shares": [1.0, 0.8, 0.5]}
    slow, plain = (net_of(made(8 * nodes, **tier)).ns("all-reduce", "dp", 1e9) for tier in (known, {}))
    assert plain / slow == pytest.approx(share, abs=1e-3)


def test_sends_keep_theirs() -> None:
    known = {"scale_nodes": [2], "scale_shares": [0.5]}
    slow, plain = (net_of(made(64, **tier)).ns("send", "dp", 1e9) for tier in (known, {}))
    assert slow == plain


@pytest.mark.parametrize(("nodes", "shares"), [([4, 2], [1.0, 0.5]), ([2, 4], [1.0])])
def test_nodes_and_shares_that_do_not_fit_are_refused(nodes: list[int], shares: list[float]) -> None:
    with pytest.raises(InputRefused, match="scale_nodes"):
        made(8, scale_nodes=nodes, scale_shares=shares)
