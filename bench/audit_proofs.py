"""Every proof of trees of up to 256 leaves against a tree built from the definition, and mutated proofs, which must be refused.

    python bench/audit_proofs.py --mutations 100000 --seed 1

A mutation changes the text of a proof file or of a consistency proof: bits, bytes, lines, numbers, parts of other valid
proofs. It counts as refused if a verifier who has the record and the key does not accept it.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable
from functools import cache

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from taut.audit import merkle
from taut.audit.checkpoint import Checkpoint, Proof, proof_of
from taut.audit.note import BadNote, is_signed_by, public_key, signed

NAME = "example.com/log"


def definition(most: int) -> tuple[int, int, int]:
    """(inclusion proofs, consistency proofs, of them wrong), of all trees up to a size, against RFC 6962's recursion."""
    leaves = [merkle.leaf_hash(b"%d" % k) for k in range(most)]

    @cache
    def root(low: int, high: int) -> bytes:
        if high - low == 1:
            return leaves[low]
        k = low + split(high - low)
        return merkle.node_hash(root(low, k), root(k, high))

    def split(n: int) -> int:
        return max(1 << p for p in range(10) if 1 << p < n)

    def path(m: int, low: int, high: int) -> list[bytes]:
        if high - low == 1:
            return []
        k = low + split(high - low)
        return [*path(m, low, k), root(k, high)] if m < k else [*path(m, k, high), root(low, k)]

    def shown(m: int, low: int, high: int, whole: bool) -> list[bytes]:
        if m == high:
            return [] if whole else [root(low, high)]
        k = low + split(high - low)
        return [*shown(m, low, k, whole), root(k, high)] if m <= k else [*shown(m, k, high, False), root(low, k)]

    included = consistent = wrong = 0
    for n in range(1, most + 1):
        for m in range(n):
            proof, beginning = merkle.inclusion(leaves[:n], m), merkle.consistency(leaves[:n], m + 1)
            wrong += proof != path(m, 0, n) or not merkle.check_inclusion(leaves[m], m, n, proof, root(0, n))
            wrong += beginning != shown(m + 1, 0, n, True)
            wrong += not merkle.check_consistency(m + 1, root(0, m + 1), n, root(0, n), beginning)
            included, consistent = included + 1, consistent + 1
    return included, consistent, wrong


def flip(text: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(text))
    return text[:at] + bytes([text[at] ^ 1 << rng.randrange(8)]) + text[at + 1 :]


def cut(text: bytes, rng: random.Random) -> bytes:
    low, high = sorted(rng.sample(range(len(text)), 2))
    return text[:low] + text[high:]


def double(text: bytes, rng: random.Random) -> bytes:
    lines = text.split(b"\n")
    k = rng.randrange(len(lines) - 1)
    return b"\n".join([*lines[:k], lines[k], *lines[k:]])


def exchange(text: bytes, rng: random.Random) -> bytes:
    lines = text.split(b"\n")
    one, other = rng.sample(range(len(lines)), 2)
    lines[one], lines[other] = lines[other], lines[one]
    return b"\n".join(lines)


def renumber(text: bytes, rng: random.Random) -> bytes:
    lines = text.split(b"\n")
    k = rng.choice([k for k, line in enumerate(lines) if line.removeprefix(b"index ").isdigit()])
    word = b"index " if lines[k].startswith(b"index ") else b""
    lines[k] = word + b"%d" % rng.choice([rng.randrange(300), int(lines[k].removeprefix(b"index ")) ^ 1 << rng.randrange(9)])
    return b"\n".join(lines)


def change_byte(text: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(text))
    return text[:at] + rng.randbytes(1) + text[at + 1 :]


WAYS: tuple[Callable[[bytes, random.Random], bytes], ...] = (flip, cut, double, exchange, renumber, change_byte)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutations", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--leaves", type=int, default=256)
    asked = parser.parse_args()
    began = time.monotonic()
    included, consistent, wrong = definition(asked.leaves)
    print(
        f"trees of 1 to {asked.leaves} leaves: {included:,} proofs of inclusion, {consistent:,} of consistency, "
        f"{wrong} differ or are refused; {time.monotonic() - began:.0f} s"
    )
    began = time.monotonic()
    counts = mutated(asked.mutations, asked.seed)
    took_s = time.monotonic() - began
    print(f"{counts.total():,} mutated proofs, seed {asked.seed}: {dict(sorted(counts.items()))}; {took_s:.0f} s")


def mutated(mutations: int, seed: int) -> Counter[str]:
    rng, counts = random.Random(seed), Counter[str]()
    key = Ed25519PrivateKey.from_private_bytes(rng.randbytes(32))
    verifies = public_key(NAME, key)
    bodies = [rng.randbytes(40) for _ in range(256)]
    leaves = [merkle.leaf_hash(body) for body in bodies]

    def accepted(text: bytes, index: int, body: bytes) -> bool:
        try:
            proof = proof_of(text.decode())
            return proof.index == index and proof.holds(body) and is_signed_by(proof.note, verifies)
        except (BadNote, UnicodeDecodeError):
            return False

    done = 0
    while done < mutations:
        n = rng.randrange(1, 257)
        m = rng.randrange(n)
        note = signed(str(Checkpoint(NAME, n, merkle.root_of(leaves[:n]))), NAME, key)
        sound = str(Proof(m, tuple(merkle.inclusion(leaves[:n], m)), note)).encode()
        assert accepted(sound, m, bodies[m])
        for way in WAYS * 8:
            other = way(sound, rng)
            if other == sound:
                continue
            counts[f"{way.__name__} ACCEPTED" if accepted(other, m, bodies[m]) else "refused"] += 1
            done += 1
        done += tampered(leaves[:n], rng, counts)
    return counts


def tampered(leaves: list[bytes], rng: random.Random, counts: Counter[str]) -> int:
    """Mutate a proof of consistency a few times; how often."""
    n, m = len(leaves), rng.randrange(1, len(leaves) + 1)
    old, new, path = merkle.root_of(leaves[:m]), merkle.root_of(leaves), merkle.consistency(leaves, m)
    assert merkle.check_consistency(m, old, n, new, path)
    other = merkle.leaf_hash(rng.randbytes(8))
    shown = [[*path, other], [other, *path], path[:-1], path[1:], path[::-1]]
    shown += [[*path[:k], flip(path[k], rng), *path[k + 1 :]] for k in range(len(path))]
    changed = [(m, old, n, new, each) for each in shown if each != path]
    changed += [(m, flip(old, rng), n, new, path), (m, old, n, flip(new, rng), path)]
    for each in changed:
        counts["consistency ACCEPTED" if merkle.check_consistency(*each) else "refused"] += 1
    return len(changed)


if __name__ == "__main__":
    main()
