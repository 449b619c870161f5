"""Resources meet hosts: by mapping, id, name or tag; what is ambiguous meets nobody."""

from __future__ import annotations

import pytest

from taut.ledger.bill.hosts import NONE, Hosts, by_tag, stem


def named(code: int, hosts: Hosts) -> str:
    return hosts.names[code] if code != NONE else ""


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("gpu-1", "gpu-1"),
        ("GPU-11", "gpu-11"),
        ("gpu-1.cluster.local", "gpu-1"),
        ("arn:cloud:compute:r1:123:instance/gpu-11", "gpu-11"),
        ("/subscriptions/9/resourceGroups/g/providers/Compute/virtualMachines/gpu-1", "gpu-1"),
        ("fat", ""),
        ("fat.a", "fat.a"),
        ("10.0.0.1", "10.0.0.1"),
        ("10.0.0.2", ""),
        ("gpu-111", ""),
        ("", ""),
        (None, ""),
    ],
)
def test_equal_names(text: str | None, host: str) -> None:
    hosts = Hosts(["gpu-1", "gpu-11", "fat.a", "fat.b", "10.0.0.1"])
    assert named(hosts.equal(text), hosts) == host


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("prod-gpu-1-worker", "gpu-1"),
        ("prod-gpu-11-worker", "gpu-11"),
        ("prod-gpu-111", ""),
        ("gpu-1 and gpu-11", ""),
        ("a b c d e f g h i j k l m n o p q gpu-1", ""),
    ],
)
def test_a_name_inside_another_only_where_it_is_the_only_one(text: str, host: str) -> None:
    hosts = Hosts(["gpu-1", "gpu-11"])
    assert named(hosts.inside(text), hosts) == host


@pytest.mark.parametrize(
    ("tags", "host"),
    [
        ('{"Name": "gpu-1"}', "gpu-1"),
        ('{"user:Name": "gpu-1"}', "gpu-1"),
        ('{"kubernetes.io/hostname": "gpu-11.local"}', "gpu-11"),
        ('{"slurm_node": "gpu-1", "team": "gpu-11"}', "gpu-1"),
        ('{"Name": "gpu-1", "hostname": "gpu-11"}', ""),
        ('{"owner": "gpu-1"}', ""),
        ('{"Name": 1}', ""),
        ('{"Name": ', ""),
        ("[]", ""),
        (None, ""),
    ],
)
def test_tags(tags: str | None, host: str) -> None:
    hosts = Hosts(["gpu-1", "gpu-11"])
    assert named(by_tag(tags, hosts), hosts) == host


def test_a_mapping_counts_first_and_may_name_hosts_that_nobody_held() -> None:
    hosts = Hosts(["gpu-1"], {"i-77": "gpu-1", "i-78": "gpu-2"})
    assert [named(hosts.mapped(one), hosts) for one in ("arn:x:instance/i-77", "I-78", "i-79")] == ["gpu-1", "gpu-2", ""]
    assert hosts.added == ["gpu-2"]


def test_names_of_one_pool_share_a_stem() -> None:
    assert [stem(one) for one in ("gpu-1.local", "GPU-17", "east-3")] == ["gpu-#", "gpu-#", "east-#"]
