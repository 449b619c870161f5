"""Where the ranks sit: three kinds of file, and the hops between any two ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from taut.core.errors import InputRefused
from taut.core.tables import Member, Table
from taut.read.rank_topology import Topology, hostlist, load

TOML = """
[[host]]
name = "a"
rack = "r1"
pod = "p1"
ranks = [0, 1]
[[host]]
name = "b"
rack = "r1"
pod = "p1"
ranks = [2]
[[host]]
name = "c"
rack = "r2"
pod = "p1"
ranks = [3]
[[host]]
name = "d"
rack = "r1"
pod = "p2"
ranks = [4]
"""
SLURM = """
# leaves
SwitchName=leaf1 Nodes=n[01-02]
switchname=leaf2 LinkSpeed=900 nodes=n[03-04]
SwitchName=leaf3 Nodes=far
SwitchName=spine1 \\
  Switches=leaf[1-2]
"""
MATRIX = """
\x1b[4mGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\x1b[0m
GPU0\t X \tNV18\tSYS\tPIX\t0-47\t0
GPU1\tNV18\t X \tPXB\tPIX\t0-47\t0
GPU2\tSYS\tPXB\t X \tNODE\t48-95\t1
NIC0\tPIX\tPIX\tNODE\t X

Legend:
  X    = Self
"""


def members(*hosts: str) -> Table:
    return Table(Member, {"rank": np.arange(len(hosts)), "host": np.array(hosts, dtype=object)})


def written(folder: Path, text: str) -> Topology:
    (folder / "topology").write_text(text, encoding="utf-8")
    return load(folder / "topology")


def hops(topology: Topology, of: int = 0) -> list[int]:
    ranks = np.array(sorted(topology.host_of))
    return topology.hops(np.full(len(ranks), of), ranks).tolist()  # type: ignore[no-any-return]


def test_toml_counts_switches_up_to_the_first_common_one_and_down(tmp_path: Path) -> None:
    """Same host, same rack, same pod, another pod (whose rack bears the same name)."""
    topology = written(tmp_path, TOML).seated(members("", "", "", "", ""))
    assert hops(topology) == [0, 0, 1, 3, 5]
    assert hops(topology, 4) == [5, 5, 5, 5, 0]


def test_slurm_places_the_hosts_that_the_trace_names(tmp_path: Path) -> None:
    """With their domain or without; a host under no common switch, or not in the file, is nowhere."""
    topology = written(tmp_path, SLURM).seated(members("n01.cluster", "n02", "n03", "far", "stranger", "stranger"))
    assert hops(topology) == [0, 1, 3, -1, -1, -1]
    assert hops(topology, 4) == [-1, -1, -1, -1, 0, 0]
    assert topology.unplaced(members("n01.cluster", "n02", "n03", "far", "stranger", "stranger")) == [4, 5]


@pytest.mark.parametrize("host", ["", "box"])
def test_nvidia_smi_counts_bridges_inside_a_host(tmp_path: Path, host: str) -> None:
    """The n-th rank of a host has its device n; ranks beyond the devices are nowhere."""
    topology = written(tmp_path, MATRIX).seated(members(host, host, host))
    assert hops(topology) == [0, 0, 5]
    assert hops(topology, 1) == [0, 0, 2]
    crowded = written(tmp_path, MATRIX).seated(members("box", "box", "box", "box", "other"))
    assert hops(crowded) == [0, 0, 5, -1, -1]
    assert crowded.unplaced(members("box", "box", "box", "box", "other")) == [3]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ["n1"]),
        ("n[1-3,7],m", ["n1", "n2", "n3", "n7", "m"]),
        ("r[1-2]n[08-10]x", [f"r{r}n{n}x" for r in (1, 2) for n in ("08", "09", "10")]),
        ("", []),
    ],
)
def test_host_lists_are_spelled_out(text: str, names: list[str]) -> None:
    assert hostlist(text) == names


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("hello", "not TOML"),
        ("", "not a topology"),
        ("[[host]]\nname = 'a'\nrank = [0]", "unknown key rank"),
        ("[[host]]\nname = 'a'\nranks = [-1]", "ranks is a list"),
        ("[[host]]\nname = 'a'\npod = 'p'", "a pod without a rack"),
        ("[[host]]\nrack = 'a'", "name, rack and pod are texts"),
        ("[[host]]\nname = 'a'\nranks = [0]\n[[host]]\nname = 'b'\nranks = [0]", "rank 0 is also on a"),
        ("[[host]]\nname = 'a'\n[[host]]\nname = 'a'", "a is there twice"),
        ("SwitchName=s1 Nodes=n[1-", "is no host list"),
        ("SwitchName=s1 Nodes=n[x]", "is no range"),
        ("SwitchName=s1 Nodes=n[0-999999999999]", "more than 200,000 hosts"),
        ("SwitchName=s1 Nodes=n[0-9999]m[0-9999]", "more than 200,000 hosts"),
        ("SwitchName=s1 Nodes=n[" + "0-199999," * 50_000 + "1]", "more than 200,000 hosts"),
        ("SwitchName=s1 Nodes=n[0-199999]\n" * 10_000, "more than 200,000 hosts"),
        ("SwitchName=s1 Nodes=" + "[" * 100_000, "is no host list"),
        ("SwitchName=s1 Nodes=n[[1]]", "is no host list"),
        ("[[host]]\nname = 'a'\nranks = [2147483648]", "ranks is a list"),
        ("SwitchName=s1 Nodes=a\nSwitchName=s2 Nodes=a", "a is also under s1"),
        ("SwitchName=s1 Nodes=a Switches=s2\nSwitchName=s2 Switches=s1", "a circle"),
        ("SwitchName=s1 Switches=s2", "no switch has a node"),
        ("GPU0\tGPU1\nGPU0\t X \tNV1\n", "1 rows for 2 devices"),
        ("GPU0 X", "0 rows for 0 devices"),
    ],
)
def test_what_is_no_topology_is_refused_in_one_line(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(InputRefused) as refused:
        written(tmp_path, text)
    assert why in str(refused.value)
    assert "topology" in refused.value.where
    assert refused.value.remedy
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("hosts", "why"), [(("x", "y"), "none of the job's hosts (x, y …)"), (("", ""), "name no host")])
def test_a_topology_of_another_job_is_refused(tmp_path: Path, hosts: tuple[str, ...], why: str) -> None:
    with pytest.raises(InputRefused) as refused:
        written(tmp_path, SLURM).seated(members(*hosts))
    assert why in str(refused.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputRefused, match="cannot be read"):
        load(tmp_path / "nowhere")
