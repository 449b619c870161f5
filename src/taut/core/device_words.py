"""Words for what accelerators do: how lanes of a device are called, and the classes of copies.

Readers name lanes and classes with these, and everything after them tells device from host, and copies from
communication, by the same words; so a run folder needs no further column.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from taut.core.array_types import Mask

COPY_CLASSES = ("copy h2d", "copy d2h", "copy d2d", "copy h2h", "set", "copy")
"""Classes of copies by what they move where; peer to peer is device to device, ``set`` fills memory, and ``copy`` is one
whose direction is not recorded."""
NO_DEVICE = "launches onto a device of which no event is recorded"
"""Counted: where it is the case for all of a job, every figure is one of the host."""
UNREAD = "events of categories that are not known"
"""Counted in traces without a device: they may be one's."""
LAUNCHES = "device ops with their launch"
"""What a trace counts as so many ops whose call of the host was recorded."""
NO_BYTES = "collectives whose bytes are not known"
"""Of so many the trace holds a size that tells them apart and is not that of the larger buffer of a rank in bytes."""
_STREAM = re.compile(r"(?:device (\d+) )?stream ")


def stream_lane(stream: object, device: object = None) -> str:
    """The name of a device's lane; the device is named where a rank has several."""
    return f"stream {stream}" if device is None else f"device {device} stream {stream}"


def on_device(lanes: Sequence[str]) -> Mask:
    """One boolean a lane: whether it is one of an accelerator."""
    return np.array([_STREAM.match(lane) is not None for lane in lanes], dtype=np.bool_)


def is_copy(names: Sequence[str]) -> Mask:
    """One boolean a class name: whether it is one of copies."""
    return np.array([name in COPY_CLASSES for name in names], dtype=np.bool_)
