"""The trace viewer's file of an XLA profile (``.trace.json.gz``): Chrome events whose processes are devices and hosts.

It is asked before all other formats, so what reads its events is imported only for such a file.
"""

from __future__ import annotations

import re

from taut.read.contents import Profile
from taut.read.files import Member as File

BOM = b"\xef\xbb\xbf"
_PROCESS = re.compile(rb'"name"\s*:\s*"(?:/(?:host|device):|Task Environment)')
_OTHERS = (b'"schemaVersion"', b'"deviceProperties"', b'"distributedInfo"')


def sniff(head: bytes) -> bool:
    """A Chrome trace whose processes are called as planes are; PyTorch's says more of itself."""
    text = head.removeprefix(BOM).lstrip()[: 64 << 10]
    if text[:1] != b"{" or b'"process_name"' not in text or any(word in text for word in _OTHERS):
        return False
    return _PROCESS.search(text) is not None


def load_member(member: File) -> Profile:
    """The devices of one file of any size."""
    from taut.read.xplane.viewer_events import load_chunks

    return load_chunks(member.chunks(), member.label)


def load(data: bytes, label: str) -> Profile:
    """The devices of one file."""
    from taut.read.xplane.viewer_events import load_chunks

    return load_chunks(iter([data]), label)
