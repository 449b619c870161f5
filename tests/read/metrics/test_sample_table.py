"""Parquet files of samples, tidy or wide, labels in a column of their own or not; and who is told apart from whom."""

from __future__ import annotations

import io
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.core.errors import InputRefused, TooLarge, UsageError
from taut.read.metrics import reader as metrics
from taut.read.metrics import sample_table as metric_table
from taut.read.metrics.series import map_of
from taut.read.trace import read

NOW_NS = 1_700_000_000_000_000_000


def parquet(**columns: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out)
    return out.getvalue()


def rows(data: bytes, places: str = "") -> list[tuple[str, str, list[float], list[float]]]:
    """(component, metric, seconds after NOW_NS, values) of every series."""
    assert metrics.is_parquet(data)
    loaded = metrics.load(data, "m", map_of(places)) if places else metrics.load(data, "m")
    return [
        (s.component, s.metric, ((s.time_ns - NOW_NS) / 1e9).tolist(), np.round(s.value, 6).tolist()) for s in loaded.series
    ]


TIMES = pa.array([NOW_NS, NOW_NS + 10**9, NOW_NS], pa.timestamp("ns", tz="UTC"))


def test_tidy_with_typed_times_and_missing_values() -> None:
    data = parquet(
        timestamp=TIMES, component=["rank 0", "rank 0", None], host=["", "", "n1"], metric=["power", "power", "load"],
        value=[400.0, None, 2.0],
    )  # fmt: skip
    assert rows(data) == [("rank 0", "power_w", [0.0], [400.0]), ("n1", "load", [0.0], [2.0])]


LABELS = [{"gpu": "1", "Hostname": "n1"}, {"gpu": "1", "Hostname": "n1"}, {"gpu": "2", "Hostname": "n1"}]


@pytest.mark.parametrize(
    "labels",
    [
        pa.array([list(row.items()) for row in LABELS], pa.map_(pa.string(), pa.string())),
        pa.array(LABELS),
        pa.array(['{"gpu": "1", "Hostname": "n1"}'] * 2 + ['{"gpu": "2", "Hostname": "n1"}']),
        pa.array(['{gpu="1", Hostname="n1"}'] * 2 + ['{gpu="2", Hostname="n1"}']),
    ],
    ids=["map", "struct", "json", "text"],
)
def test_labels_in_a_column(labels: pa.Array) -> None:
    data = parquet(time_ms=[1_700_000_000_000, 1_700_000_001_000, 1_700_000_000_000], labels=labels,
                   metric_name=["DCGM_FI_DEV_GPU_TEMP"] * 3, value=[50, 51, 60])  # fmt: skip
    assert rows(data) == [
        ("n1 gpu 1", "temperature_c", [0.0, 1.0], [50.0, 51.0]),
        ("n1 gpu 2", "temperature_c", [0.0], [60.0]),
    ]


def test_wide_with_limits_and_ranks_as_floats() -> None:
    data = parquet(time_ns=[NOW_NS, NOW_NS + 1], rank=[0.0, 1.0], power_w=[300, 310], power_w_limit=[700, 700])
    found = metrics.load(data, "m")
    assert rows(data) == [("rank 0", "power_w", [0.0], [300.0]), ("rank 1", "power_w", [1e-9], [310.0])]
    assert [s.time_ns.tolist() for s in found.series] == [[NOW_NS], [NOW_NS + 1]]
    assert [s.limit.tolist() for s in found.series] == [[700.0], [700.0]]


@pytest.mark.parametrize("arrow", ["→", " -> "])
def test_a_map_says_which_labels_make_a_rank(arrow: str) -> None:
    data = parquet(time=[1.7e9] * 2, metric=["power"] * 2, value=[1.0, 2.0], labels=['{box="n1",card="card3",pos="7"}'] * 2)
    assert [row[0] for row in rows(data, f"box,card{arrow}rank")] == ["n1 gpu 3"]
    assert [row[0] for row in rows(data, f"pos{arrow}rank")] == ["rank 7"]


@pytest.mark.parametrize("text", ["", "rank", "a,b,c→rank", "a→host", "→rank", "a,→rank"])
def test_a_map_that_is_none(text: str) -> None:
    with pytest.raises(UsageError, match="write 'HOST,INDEX→rank'"):
        map_of(text)


def test_beside_traces_a_parquet_of_metrics_is_no_op_table(tmp_path: Path, tiny: Any) -> None:
    events = [tiny.step(1, 0, 2_000_000), tiny.event("cpu_op", "aten::mm", 1, 1_999_000)]
    (tmp_path / "rank0.json").write_bytes(tiny.as_bytes(events))
    (tmp_path / "m.parquet").write_bytes(parquet(time=[1.7e9], rank=[0], power_w=[300.0]))
    assert read([tmp_path]).metrics.value.tolist() == [300.0]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (parquet(time=[1.7e9], metric=["power"], value=["much"]), "no row holds a time"),
        (parquet(time=pa.array([], pa.float64()), power=pa.array([], pa.float64())), "no row holds a time"),
        (parquet(**{"time": [1.7e9], "power": [1.0], "power ": [1.0]}), "two columns of one name"),
        (parquet(time=[1.7e9], power=[1.0])[:-20], "not a readable Parquet"),
        (parquet(time=pa.array([[1.7e9]]), metric=["power"], value=[1.0]), "no column holds the time"),
    ],
)
def test_refused_in_one_line(data: bytes, why: str) -> None:
    with pytest.raises(InputRefused, match=why) as caught:
        metrics.load(data, "m.parquet")
    assert "\n" not in str(caught.value)


def test_rows_are_counted_while_they_are_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    data = parquet(time=np.zeros(1_000_000), power=np.zeros(1_000_000))
    assert len(data) < 100_000
    monkeypatch.setattr(metric_table, "size_cap", lambda: 10 << 20)
    with pytest.raises(TooLarge, match="more than 163,840 cells"):
        metrics.load(data, "m")


GOOD = parquet(time=[1.7e9] * 3, labels=['{gpu="1"}'] * 3, metric=["power"] * 3, value=[1.0, 2.0, 3.0])


@given(st.integers(0, len(GOOD)), st.binary(max_size=4), st.integers(0, 4))
def test_damaged_files_load_or_are_refused(at: int, put: bytes, drop: int) -> None:
    data = GOOD[:at] + put + GOOD[at + drop :]
    metrics.is_parquet(data)
    with suppress(InputRefused):
        metrics.load(data, "m")


KINDS = [
    st.text(max_size=8),
    st.floats(),
    st.integers(-(2**63), 2**63 - 1),
    st.booleans(),
    st.datetimes(),
    st.binary(max_size=5),
]


@given(st.data())
def test_columns_of_any_type_load_or_are_refused(data: st.DataObject) -> None:
    names = ["time", "metric", "value", "rank", "host", "labels", "power_w", "power_w_limit"]
    columns = {}
    for name in names:
        kind = data.draw(st.sampled_from(KINDS))
        columns[name] = pa.array(data.draw(st.lists(st.none() | kind, min_size=3, max_size=3)))
    dropped = data.draw(st.sampled_from(["metric", "value", ""]))
    with suppress(InputRefused):
        metrics.load(parquet(**{n: c for n, c in columns.items() if n != dropped}), "m")
