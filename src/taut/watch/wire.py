"""Messages between ranks and collector: framed, numbered, and proved by the secret of a job that both sides know.

A collector greets with a nonce. A rank answers with its hello, proved by an HMAC over both under the secret of its job, which
the collector derives from its own; the session's key is an HMAC of the same under another label. Every later message carries
its number and an HMAC of key, number, kind and body, so that a stranger's message, a changed one, a repeated one and one of
another session are all refused before they are decoded. Nothing is encrypted: what is sent is timings and names of ops, to an
address inside the cluster.
"""

from __future__ import annotations

import hmac
import json
import struct
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import overload

GREETING = b"taut watch 2\n"
LEAST_SECRET = 16
"""Characters of a secret, at least."""
JOB_BYTES = 256
"""Of the name of a job, at most."""
JOB_HEAD = struct.Struct("<H")
"""In front of a hello: bytes of the job's name, which follows, and then the hello itself."""
NONCE_BYTES = 16
PROOF_BYTES = 16
HEAD = struct.Struct("<IBQ")
"""Length of the body, kind, number."""
HELLO, NAMES, EVENTS, CLOCK, BYE, PROFILED, PROFILE = range(1, 8)
"""Kinds of messages: who I am; what codes stand for; what happened; what time it is; the end; what became of a request; and,
of the collector alone, the request for a profile."""
REQUEST = struct.Struct("<IHI")
"""Of a profile: the step it begins with, how many steps, how many milliseconds at most."""
MOST_BYTES = 1 << 18
"""A longer body is refused unread."""
EVENT = struct.Struct("<BBHIqqI")
"""Kind, flags, place (code of what it is), number (of the step, or of the call in its group), begin and end by the host's
clock (ns; 0: not known), bytes."""
GATE, STAGE, STEP, WAIT = range(4)
"""Kinds of events: a call that meets others, a stage of a step, a step, a call that has not ended yet."""
COUNTED = "counted"
"""Verb of the place that stands for all calls of a group, where they are only counted."""

Json = dict[str, "str | int | float | list[int] | dict[str, str] | None"]


class WireError(Exception):
    """A message that is not what it says, or not from who it says."""


def digest(secret: bytes, *parts: bytes) -> bytes:
    """The proof of some parts, each with its length in front."""
    whole = b"".join(struct.pack("<I", len(part)) + part for part in parts)
    return hmac.digest(secret, whole, "sha256")


def job_secret(secret: bytes, job: str) -> bytes:
    """The secret of one job, as its ranks are given it."""
    return digest(secret, b"job", job.encode()).hex().encode()


def hello_body(about: Json) -> bytes:
    """A hello as bytes, the name of its job in front: whose secret proves it is told before anything is decoded."""
    job = str(about["job"]).encode()
    return JOB_HEAD.pack(len(job)) + job + encoded(about)


def job_of(body: bytes) -> tuple[str, int]:
    """(name of the job, where the rest begins) of a hello."""
    length = JOB_HEAD.unpack_from(body)[0] if len(body) >= JOB_HEAD.size else JOB_BYTES + 1
    if length > JOB_BYTES:
        raise WireError("a hello of another version of taut: install the same one in the job and here")
    begin = JOB_HEAD.size + length
    return body[JOB_HEAD.size : begin].decode(), begin


def session_key(secret: bytes, nonce: bytes, hello: bytes) -> bytes:
    """The key of one connection."""
    return digest(secret, b"session", nonce, hello)


def request_key(secret: bytes, nonce: bytes, hello: bytes) -> bytes:
    """The key of what the collector asks on one connection: nothing that a rank sends is proved under it."""
    return digest(secret, b"request", nonce, hello)


def hello_proof(secret: bytes, nonce: bytes, hello: bytes) -> bytes:
    """What shows that whoever says hello knows the secret."""
    return digest(secret, b"hello", nonce, hello)


def packed(key: bytes, number: int, kind: int, body: bytes) -> bytes:
    """A message as bytes."""
    head = HEAD.pack(len(body), kind, number)
    return head + digest(key, head, body)[:PROOF_BYTES] + body


def head_of(data: bytes) -> tuple[int, int, int]:
    """(length of the body, kind, number) of a head; refuses lengths that no message has."""
    length, kind, number = HEAD.unpack(data)
    if length > MOST_BYTES:
        raise WireError(f"a message of more than {MOST_BYTES:,} bytes")
    if not HELLO <= kind <= PROFILE:
        raise WireError("a message of no kind")
    return length, kind, number


def check(key: bytes, expected: int, head: bytes, proof: bytes, body: bytes) -> None:
    """Refuse a message whose proof is wrong, or whose number is not the next one."""
    if not hmac.compare_digest(digest(key, head, body)[:PROOF_BYTES], proof):
        raise WireError("a message whose proof is wrong")
    if HEAD.unpack(head)[2] != expected:
        raise WireError("a message out of its order")


def encoded(value: Json) -> bytes:
    """A small object as bytes."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def runs(ranks: Sequence[int]) -> list[int]:
    """Ranks in their order as first, last and distance of each run: a group of thousands is three numbers."""
    out: list[int] = []
    at = 0
    while at < len(ranks):
        until = at + 1
        apart = ranks[until] - ranks[at] if until < len(ranks) else 1
        while until < len(ranks) and ranks[until] - ranks[until - 1] == apart:
            until += 1
        out += [ranks[at], ranks[until - 1], apart]
        at = until
    return out


class Ranks(Sequence[int]):
    """Ranks that runs stand for: counted by arithmetic, and never held all at once."""

    __slots__ = ("_parts",)

    def __init__(self, some: Sequence[int]) -> None:
        triples = zip(some[::3], some[1::3], some[2::3], strict=True)
        self._parts = [range(first, last + (1 if apart > 0 else -1), apart) for first, last, apart in triples]

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(self._parts)

    def __contains__(self, rank: object) -> bool:
        return any(rank in part for part in self._parts)

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> list[int]: ...
    def __getitem__(self, at: int | slice) -> int | list[int]:
        return list(self)[at]


def check_runs(some: Sequence[int], ranks: int) -> None:
    """Refuse runs that stand for no group of a job of so many ranks; by arithmetic, whatever they expand to."""
    if len(some) % 3:
        raise WireError("ranks that are no runs")
    members = 0
    for first, last, apart in zip(some[::3], some[1::3], some[2::3], strict=True):
        if apart == 0 or first < 0 or last < 0 or (last - first) % apart or (last - first) // apart < 0:
            raise WireError("ranks that are no runs")
        members += (last - first) // apart + 1
        if max(first, last) >= ranks or members > ranks:
            raise WireError(f"a group of ranks that a job of {ranks:,} does not have")
