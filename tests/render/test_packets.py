"""Messages stamped from columns are those that the library would have written one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.render.packets import stamp, weave

pb = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")

ROW = st.tuples(st.integers(0, 2**63 - 1), st.integers(-(2**63), 2**63 - 1), st.floats(), st.integers(0, 300))


def packet(values: Sequence[Any]) -> Any:
    at, signed, real, few, flows = values
    made = pb.TracePacket(timestamp=at)
    made.track_event.debug_annotations.add(int_value=signed)
    made.track_event.debug_annotations.add(double_value=real)
    made.track_event.debug_annotations.add(name_iid=few)
    made.track_event.flow_ids.extend(flows)
    return made


def serialised(values: Sequence[Any]) -> bytes:
    return bytes(pb.Trace(packet=[packet(values)]).SerializeToString())


@given(st.lists(ROW, min_size=1, max_size=20), st.integers(0, 5))
def test_stamped_messages_hold_the_values_of_their_rows(rows: list[tuple[int, int, float, int]], fan: int) -> None:
    at, signed, real, few = zip(*rows, strict=True)
    flows = np.arange(len(rows) * fan, dtype=np.uint64).reshape(len(rows), fan) << np.uint64(50)
    columns = [np.array(at), np.array(signed, dtype=np.int64), np.array(real), np.array(few), flows]
    read = pb.Trace.FromString(stamp(serialised, columns).tobytes()).packet
    expected = [packet((*row, some)) for row, some in zip(rows, flows.tolist(), strict=True)]
    # Bytes, not messages, are compared: NaN is not equal to itself.
    assert [p.SerializeToString() for p in read] == [p.SerializeToString() for p in expected]


def test_messages_of_two_shapes_are_woven_in_the_order_of_their_places() -> None:
    short, long = np.array([[1], [3]], dtype=np.uint8), np.array([[2, 2], [4, 4]], dtype=np.uint8)
    assert weave([(np.array([0, 2]), short), (np.array([1, 3]), long)], 4) == bytes([1, 2, 2, 3, 4, 4])
