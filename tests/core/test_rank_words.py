"""Ranks in the words of people: number, host, accelerator, and lists that stay short."""

from __future__ import annotations

import numpy as np
import pytest

from taut.core.rank_words import rank_label, rank_labels, short_host
from taut.core.tables import Member, Table


def members(hosts: list[str], gpus: list[int], names: list[str] | None = None) -> Table:
    text = {"host": np.array(hosts, dtype=object), "name": np.array(names or [""] * len(hosts), dtype=object)}
    return Table(Member, {"rank": np.arange(len(hosts)) + 136, "gpu": np.array(gpus), **text}, len(hosts))


@pytest.mark.parametrize(
    ("host", "gpu", "name", "label"),
    [
        ("gpu-17.cluster.example", 1, "", "rank 137 (gpu-17, GPU 1)"),
        ("gpu-17", -1, "", "rank 137 (gpu-17)"),
        ("", 3, "", "rank 137 (GPU 3)"),
        ("", -1, "", "rank 137"),
        ("", -1, "checkout", "rank 137 (checkout)"),
    ],
)
def test_a_rank_has_its_host_and_accelerator_beside_it_where_they_are_known(host: str, gpu: int, name: str, label: str) -> None:
    assert rank_label(137, members(["other", host], [0, gpu], ["", name])) == label


def test_a_rank_that_is_no_member_has_only_its_number() -> None:
    assert rank_label(999, members(["a"], [0])) == "rank 999"
    assert rank_label(0, Table(Member, {}, 0)) == "rank 0"


@pytest.mark.parametrize(
    ("host", "short"),
    [("10.0.0.3", "10.0.0.3"), ("fe80::1", "fe80::1"), ("a.b.c", "a"), (".odd", ".odd"), ("x" * 40, "x" * 23 + "…")],
)
def test_hosts_lose_their_domain_and_addresses_stay(host: str, short: str) -> None:
    assert short_host(host) == short


def test_long_lists_of_ranks_stay_short() -> None:
    some = members(["a"] * 20, [-1] * 20)
    assert rank_labels([136], some) == "rank 136 (a)"
    assert rank_labels([136, 137], some) == "ranks 136 (a), 137 (a)"
    assert rank_labels(range(136, 141), some).endswith("140 (a)")
    assert rank_labels(range(136, 156), some) == "ranks 136 (a), 137 (a), 138 (a), 139 (a) and 16 more"
