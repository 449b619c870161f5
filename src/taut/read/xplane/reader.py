"""Profiles of JAX, TensorFlow and other users of XLA, as their profiler writes them: one XSpace protobuf for each host."""

from __future__ import annotations

import re

from taut.read.chakra.protobuf_bytes import varint
from taut.read.contents import Profile
from taut.read.xplane.line_roles import wanted
from taut.read.xplane.profile_ranks import profile
from taut.read.xplane.space import decode

# Planes that a profile begins with: of devices, hosts and tasks.
_PLANE = re.compile(rb"/(?:host|device):|/custom|Task Environment|#Chip")


def sniff(head: bytes) -> bool:
    """A message whose first field is a plane with a name that profiles have."""
    if head[:1] != b"\x0a":
        return False
    length, at = varint.plain(head, 1, len(head))
    if at < 0 or length <= 0:
        return False
    if head[at : at + 1] == b"\x08":  # the number of the plane
        _, at = varint.plain(head, at + 1, len(head))
    if at < 0 or head[at : at + 1] != b"\x12":
        return False
    size, at = varint.plain(head, at + 1, len(head))
    return at > 0 and 0 < size <= length and _PLANE.match(head, at) is not None


def load(data: bytes, label: str) -> Profile:
    """The devices of one profile, each a rank."""
    return profile(decode(data, label, wanted))
