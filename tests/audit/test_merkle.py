"""Proofs of the log, against a tree that is built the slow way, from the definition."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.audit import merkle

PUBLISHED = (
    "",
    "00",
    "10",
    "2021",
    "3031",
    "40414243",
    "5051525354555657",
    "606162636465666768696a6b6c6d6e6f",
)
"""Leaves that implementations of RFC 6962 agree on."""
ROOTS = {
    1: "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    2: "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    3: "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    8: "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
}


def leaves_of(n: int) -> list[bytes]:
    return [merkle.leaf_hash(str(k).encode()) for k in range(n)]


def naive_root(leaves: list[bytes]) -> bytes:
    if not leaves:
        return sha256().digest()
    if len(leaves) == 1:
        return leaves[0]
    k = max(1 << p for p in range(20) if 1 << p < len(leaves))
    return sha256(b"\1" + naive_root(leaves[:k]) + naive_root(leaves[k:])).digest()


def naive_path(m: int, leaves: list[bytes]) -> list[bytes]:
    if len(leaves) <= 1:
        return []
    k = max(1 << p for p in range(20) if 1 << p < len(leaves))
    if m < k:
        return [*naive_path(m, leaves[:k]), naive_root(leaves[k:])]
    return [*naive_path(m - k, leaves[k:]), naive_root(leaves[:k])]


def naive_consistency(m: int, leaves: list[bytes], whole: bool = True) -> list[bytes]:
    if m == len(leaves):
        return [] if whole else [naive_root(leaves)]
    k = max(1 << p for p in range(20) if 1 << p < len(leaves))
    if m <= k:
        return [*naive_consistency(m, leaves[:k], whole), naive_root(leaves[k:])]
    return [*naive_consistency(m - k, leaves[k:], False), naive_root(leaves[:k])]


def test_roots_are_the_published_ones() -> None:
    leaves = [merkle.leaf_hash(bytes.fromhex(each)) for each in PUBLISHED]
    assert {n: merkle.root_of(leaves[:n]).hex() for n in ROOTS} == ROOTS
    assert merkle.EMPTY.hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.mark.parametrize("n", [*range(1, 35), 63, 64, 65])
def test_every_proof_is_that_of_the_definition_and_is_accepted(n: int) -> None:
    leaves = leaves_of(n)
    root = naive_root(leaves)
    assert merkle.root_of(leaves) == root
    for m in range(n):
        path = merkle.inclusion(leaves, m)
        assert path == naive_path(m, leaves)
        assert merkle.check_inclusion(leaves[m], m, n, path, root)
        shown = merkle.consistency(leaves, m + 1)
        assert shown == naive_consistency(m + 1, leaves)
        assert merkle.check_consistency(m + 1, naive_root(leaves[: m + 1]), n, root, shown)


@given(st.data())
def test_a_changed_proof_of_inclusion_is_refused(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 40))
    m = data.draw(st.integers(0, n - 1))
    leaves = leaves_of(n)
    path, root = merkle.inclusion(leaves, m), merkle.root_of(leaves)
    index, size = data.draw(st.integers(-1, n)), data.draw(st.integers(0, n + 1))
    if index != m:
        assert not merkle.check_inclusion(leaves[m], index, n, path, root)
    if path:
        k, bit = data.draw(st.integers(0, len(path) - 1)), data.draw(st.integers(0, 255))
        flipped = (int.from_bytes(path[k]) ^ 1 << bit).to_bytes(32)
        assert not merkle.check_inclusion(leaves[m], m, n, [*path[:k], flipped, *path[k + 1 :]], root)
        assert not merkle.check_inclusion(leaves[m], m, n, path[:-1], root)
    assert not merkle.check_inclusion(leaves[m], m, n, [*path, root], root)
    if size != n and not _same_shape(m, n, size):
        assert not merkle.check_inclusion(leaves[m], m, size, path, root)


def _same_shape(m: int, n: int, size: int) -> bool:
    """Whether the way to leaf m is alike in trees of both sizes: then the size is told by the root's signer alone."""
    return m < size and _turns(m, n) == _turns(m, size)


def _turns(m: int, n: int) -> list[bool]:
    low, high, found = 0, n, []
    while high - low > 1:
        k = low + (1 << ((high - low - 1).bit_length() - 1))
        found.append(m < k)
        low, high = (low, k) if m < k else (k, high)
    return found


@given(st.integers(1, 40), st.data())
def test_a_changed_proof_of_consistency_is_refused(n: int, data: st.DataObject) -> None:
    m = data.draw(st.integers(1, n))
    leaves = leaves_of(n)
    path = merkle.consistency(leaves, m)
    old, new = merkle.root_of(leaves[:m]), merkle.root_of(leaves)
    other = merkle.leaf_hash(b"another")
    assert not merkle.check_consistency(m, other, n, new, path)
    assert not merkle.check_consistency(m, old, n, other, path)
    assert not merkle.check_consistency(m, old, n, new, [*path, other])
    for k in range(len(path)):
        assert not merkle.check_consistency(m, old, n, new, [*path[:k], other, *path[k + 1 :]])
        assert not merkle.check_consistency(m, old, n, new, path[:k] + path[k + 1 :])


def test_a_frontier_grows_as_the_tree_does() -> None:
    frontier = merkle.Frontier()
    for n, leaf in enumerate(leaves_of(70), 1):
        frontier.append(leaf)
        assert frontier.root() == naive_root(leaves_of(n))
        assert merkle.Frontier(frontier.size, frontier.peaks).root() == frontier.root()


@pytest.mark.parametrize(("size", "peaks"), [(1, []), (3, [b"x" * 32]), (1, [b"short"]), (-1, [])])
def test_a_frontier_that_does_not_fit_is_refused(size: int, peaks: list[bytes]) -> None:
    with pytest.raises(ValueError, match="do not make a tree"):
        merkle.Frontier(size, peaks)


@pytest.mark.parametrize("index", [-1, 3])
def test_there_is_no_proof_of_what_is_not_there(index: int) -> None:
    with pytest.raises(ValueError, match="no leaf"):
        merkle.inclusion(leaves_of(3), index)
    with pytest.raises(ValueError, match="no beginning"):
        merkle.consistency(leaves_of(3), index + 1 if index > 0 else 0)
