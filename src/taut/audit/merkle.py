"""The Merkle tree of RFC 6962: hashes of leaves and nodes, proofs of inclusion and consistency, and how they are checked.

A tree of n leaves is split at the largest power of two below n. A proof of inclusion lists the hashes beside the way from a
leaf up to the root; a proof of consistency lists the hashes that make both an earlier root and the present one.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

HASH_BYTES = 32
EMPTY = sha256().digest()
"""The root of a tree without leaves."""


def leaf_hash(data: bytes) -> bytes:
    """The hash of a leaf; the first byte keeps leaves and nodes apart."""
    return sha256(b"\0" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of a node above two others."""
    return sha256(b"\1" + left + right).digest()


class Frontier:
    """The right edge of a growing tree: the roots of its complete subtrees, largest first. Appending needs no more."""

    def __init__(self, size: int = 0, peaks: Sequence[bytes] = ()) -> None:
        if size < 0 or size.bit_count() != len(peaks) or any(len(peak) != HASH_BYTES for peak in peaks):
            raise ValueError(f"{len(peaks)} peaks do not make a tree of {size} leaves")
        self.size, self.peaks = size, list(peaks)
        self._root: bytes | None = None

    def append(self, leaf: bytes) -> None:
        """Add a leaf by its hash: complete subtrees of equal size become one."""
        node, size = leaf, self.size
        while size & 1:
            node, size = node_hash(self.peaks.pop(), node), size >> 1
        self.peaks.append(node)
        self.size += 1
        self._root = None

    def root(self) -> bytes:
        """The root of the tree."""
        if self._root is None:
            self._root = self._made_root()
        return self._root

    def _made_root(self) -> bytes:
        if not self.peaks:
            return EMPTY
        node = self.peaks[-1]
        for peak in self.peaks[-2::-1]:
            node = node_hash(peak, node)
        return node


def root_of(leaves: Sequence[bytes]) -> bytes:
    """The root over hashes of leaves."""
    frontier = Frontier()
    for leaf in leaves:
        frontier.append(leaf)
    return frontier.root()


def inclusion(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """The hashes beside the way from leaf ``index`` up to the root, lowest first."""
    if not 0 <= index < len(leaves):
        raise ValueError(f"no leaf {index} in a tree of {len(leaves)}")
    low, high, path = 0, len(leaves), []
    while high - low > 1:
        middle = low + _split(high - low)
        if index < middle:
            path.append(root_of(leaves[middle:high]))
            high = middle
        else:
            path.append(root_of(leaves[low:middle]))
            low = middle
    return path[::-1]


def consistency(leaves: Sequence[bytes], old: int) -> list[bytes]:
    """The hashes that show that the tree of the first ``old`` leaves is the beginning of this one."""
    if not 0 < old <= len(leaves):
        raise ValueError(f"a tree of {len(leaves)} leaves has no beginning of {old}")
    low, high, whole, path = 0, len(leaves), True, []
    while high > old:
        middle = low + _split(high - low)
        if old <= middle:
            path.append(root_of(leaves[middle:high]))
            high = middle
        else:
            path.append(root_of(leaves[low:middle]))
            low, whole = middle, False
    return ([] if whole else [root_of(leaves[low:high])]) + path[::-1]


def check_inclusion(leaf: bytes, index: int, size: int, path: Sequence[bytes], root: bytes) -> bool:
    """Whether a path leads from a leaf at ``index`` of a tree of ``size`` leaves to its root."""
    if not 0 <= index < size or any(len(each) != HASH_BYTES for each in path):
        return False
    node, here, last = leaf, index, size - 1
    for beside in path:
        if last == 0:
            return False
        if here & 1 or here == last:
            node = node_hash(beside, node)
            while not here & 1 and here:
                here, last = here >> 1, last >> 1
        else:
            node = node_hash(node, beside)
        here, last = here >> 1, last >> 1
    return last == 0 and node == root


def check_consistency(old: int, old_root: bytes, size: int, root: bytes, path: Sequence[bytes]) -> bool:
    """Whether a path shows that the tree of ``old`` leaves is the beginning of that of ``size`` leaves."""
    if not 0 < old <= size or any(len(each) != HASH_BYTES for each in path):
        return False
    if old == size:
        return not path and old_root == root
    # Where the old tree is complete, its root is itself the first of the hashes.
    steps = [old_root, *path] if old & (old - 1) == 0 else list(path)
    if not steps:
        return False
    here, last = old - 1, size - 1
    while here & 1:
        here, last = here >> 1, last >> 1
    before = now = steps[0]
    for beside in steps[1:]:
        if last == 0:
            return False
        if here & 1 or here == last:
            before, now = node_hash(beside, before), node_hash(beside, now)
            while not here & 1 and here:
                here, last = here >> 1, last >> 1
        else:
            now = node_hash(now, beside)
        here, last = here >> 1, last >> 1
    return last == 0 and before == old_root and now == root


def _split(size: int) -> int:
    """The largest power of two below ``size``."""
    return 1 << ((size - 1).bit_length() - 1)
