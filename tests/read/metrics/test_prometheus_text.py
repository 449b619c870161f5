"""Prometheus as text: scrapes, OpenMetrics and dumps come out as series; anything else is refused in a line."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.core.errors import InputRefused
from taut.read.metrics import prometheus_text as metric_text
from taut.read.metrics import reader as metrics
from taut.read.metrics import series as metric_series
from taut.read.metrics.vocabulary import COUNTERS, INDEX, KNOWN, known, plain

NOW_NS = 1_700_000_000_000_000_000

DUMP = rb"""{__name__="DCGM_FI_DEV_POWER_USAGE", Hostname="node7", gpu="1", modelName="NVIDIA H100"} 512.25 1700000000500
{__name__="DCGM_FI_DEV_POWER_USAGE", Hostname="node7", gpu="1", modelName="NVIDIA H100"} NaN 1700000001500
{__name__="DCGM_FI_DEV_POWER_USAGE", Hostname="node7", gpu="1", modelName="NVIDIA H100"} 514 1700000002500
{__name__="DCGM_FI_DEV_ENFORCED_POWER_LIMIT", Hostname="node7", gpu="1"} 700 1700000000500
{__name__="node_network_receive_bytes_total", instance="node7:9100", device="eth0"} 1e+06 1700000000500
{__name__="node_network_receive_bytes_total", instance="node7:9100", device="eth0"} 3e+06 1700000002500
"""
OPEN = b"""# HELP queue_depth How much waits
# TYPE queue_depth gauge
queue_depth{host="n1",queue="a b"} 3 1700000000.5
queue_depth{host="n1",queue="c"} 4 1700000000.5
# TYPE things counter
things{host="n1"} 10 1700000000
things{host="n1"} 30 1700000010 # {trace_id="} 1 2"} 0.5
# TYPE wait histogram
wait_bucket{le="0.1",host="n1"} 8 1700000000
# EOF
"""
SCRAPES = b"""# 1700000000.5
# TYPE DCGM_FI_DEV_GPU_TEMP gauge
DCGM_FI_DEV_GPU_TEMP{gpu="0",Hostname="node7"} 61
# 2023-11-14T22:13:21.5Z
# TYPE DCGM_FI_DEV_GPU_TEMP gauge
DCGM_FI_DEV_GPU_TEMP{gpu="0",Hostname="node7"} 62
"""


def rows(data: bytes) -> list[tuple[str, str, list[float], list[float]]]:
    """(component, metric, seconds after NOW_NS, values) of every series."""
    assert metrics.sniff(data)
    return [
        (s.component, s.metric, ((s.time_ns - NOW_NS) / 1e9).tolist(), np.round(s.value, 6).tolist())
        for s in metrics.load(data, "m").series
    ]


def test_a_dump_of_the_database() -> None:
    assert rows(DUMP) == [
        ("node7 gpu 1", "power_w", [0.5, 2.5], [512.25, 514.0]),
        ("node7 eth0", "received_bytes_per_s", [2.5], [1e6]),
    ]
    assert metrics.load(DUMP, "m").series[0].limit.tolist() == [700.0, 700.0]


def test_open_metrics_with_types_exemplars_and_histograms() -> None:
    assert rows(OPEN) == [
        ("n1", "queue_depth{queue=a b}", [0.5], [3.0]),
        ("n1", "queue_depth{queue=c}", [0.5], [4.0]),
        ("n1", "things_per_s", [10.0], [2.0]),
    ]


def test_scrapes_without_times_get_the_time_written_before_them() -> None:
    assert rows(SCRAPES) == [("node7 gpu 0", "temperature_c", [0.5, 1.5], [61.0, 62.0])]


def test_times_hold_across_slabs(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = rows(SCRAPES)
    monkeypatch.setattr(metric_text, "SLAB", 70)
    assert rows(SCRAPES) == whole


def test_escapes_and_braces_inside_label_values() -> None:
    data = rb"""x{component="a \"b\" \\ } 5 6",host="n,1"} 7 1700000000
    x{component = "a \"b\" \\ } 5 6" , host="n,1",}	8	1700000001
{"x", component="line\nbreak"} +Inf 1700000000
{"x", component="line\nbreak"} 9 1700000002
"""
    assert rows(data) == [
        ('n,1 a "b" \\ } 5 6', "x", [0.0, 1.0], [7.0, 8.0]),
        ("line\nbreak", "x", [2.0], [9.0]),
    ]


@pytest.mark.parametrize(
    "blank",
    [
        "2147483632", "2147483635", "9223372036854775792", "9223372036854775794", "9.223372036854776e+18",
        "140737488355328", "140737488355330", "1.40737488355328e+14",
    ],
)  # fmt: skip
def test_what_dcgm_writes_for_nothing_is_nothing(blank: str) -> None:
    line = 'DCGM_FI_DEV_GPU_TEMP{{gpu="0"}} {} {}\n'
    data = (line.format(blank, 1_700_000_000_000) + line.format(55, 1_700_000_001_000)).encode()
    assert rows(data)[0][3] == [55.0]


def test_such_a_number_of_bytes_is_one() -> None:
    assert rows(b'node_memory_MemAvailable_bytes{instance="n1"} 2147483632 1700000000\n')[0][3] == [2147483632.0]


def test_an_accelerator_reported_by_two_pods_and_two_replicas_is_one() -> None:
    line = 'DCGM_FI_DEV_GPU_TEMP{{gpu="0",Hostname="n1",{}}} {} {}\n'
    samples = [('pod="a"', 50, 0), ('pod="a"', 51, 1), ('pod="a",replica="2"', 99, 1), ('pod="b"', 52, 2)]
    data = "".join(line.format(labels, value, 1_700_000_000 + at) for labels, value, at in samples).encode()
    assert rows(data) == [("n1 gpu 0", "temperature_c", [0.0, 1.0, 2.0], [50.0, 51.0, 52.0])]


def test_an_exporter_that_labels_by_uuid_tells_the_index_as_a_metric() -> None:
    data = b"""nvidia_smi_index{uuid="abc",instance="n1:9835"} 3 1700000000
nvidia_smi_power_draw_watts{uuid="abc",instance="n1:9835"} 300 1700000000
nvidia_smi_clocks_current_sm_clock_hz{uuid="abc",instance="n1:9835"} 1.98e+09 1700000000
nvidia_smi_utilization_gpu_ratio{uuid="abc",instance="n1:9835"} 0.5 1700000000
"""
    assert rows(data) == [
        ("n1 gpu 3", "power_w", [0.0], [300.0]),
        ("n1 gpu 3", "clock_mhz", [0.0], [1980.0]),
        ("n1 gpu 3", "utilisation_share", [0.0], [0.5]),
    ]


def test_a_last_line_that_breaks_off_is_left_out() -> None:
    assert rows(DUMP + b'{__name__="DCGM_FI_DEV_POW') == rows(DUMP)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b'x{a="b"} 5\n', "samples without a time"),
        (b'x{a="b"} 5 1700000000\nx{a="b} 5 1700000000\nx 1 1700000000\n', "line 2: not a sample"),
        (b'x{a="b"} 5 1700000000\nx{a="b"} five 1700000000\n', "line 2: not a sample"),
        (b'x{a="b"} NaN 1700000000\n', "no row holds a time"),
        (b'x{a="b"} 5 1e300\n', "samples without a time"),
        (b'x{a="b"} 5 1\nx{a="b"' + b" " * 2_000_000 + b"! 5 6\n", "line 2: not a sample"),
        (b'x{a="b"} 5 1\nx' + b" " * 2_000_000 + b"! 5 6\n", "line 2: not a sample"),
        (b'x{a="b"} 5 1\nx' + b"{" * 2_000_000 + b" 5 6\n", "line 2: not a sample"),
        (b'x{a="b"} 5 1\nx{' + b'a="' * 500_000 + b" 5 6\n", "line 2: not a sample"),
    ],
)
def test_refused_in_one_line(data: bytes, why: str) -> None:
    assert metrics.sniff(data)
    with pytest.raises(InputRefused, match=why) as caught:
        metrics.load(data, "m.txt")
    assert str(caught.value).startswith("m.txt")
    assert "\n" not in str(caught.value)


def test_some_samples_without_a_time_are_left_out_and_that_is_reported() -> None:
    found = metrics.load(b'x{a="b"} 5\nx{a="b"} 6 1700000000\n', "m.txt")
    assert found.notes == ["m.txt: 1 samples without a time left out"]
    assert found.series[0].value.tolist() == [6.0]


@pytest.mark.parametrize("text", [b"epoch 3\nloss 0.5\n", b"# notes\nrank 3 17\n", b"hello {world} 5\n", b"\x00\x01", b""])
def test_other_texts_are_none(text: bytes) -> None:
    assert not metrics.sniff(text)


def test_too_many_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_series, "MOST_SERIES", 5)
    with pytest.raises(InputRefused, match="more than 5 series"):
        metrics.load(b"".join(b'x{a="%d"} 1 1700000000\n' % i for i in range(6)), "m")


def loads_or_refuses(data: bytes) -> None:
    with suppress(InputRefused):
        for series in metrics.load(data, "m").series:
            assert np.isfinite(series.value).all()
            assert (np.diff(series.time_ns) >= 0).all()


@given(st.binary(max_size=300))
def test_any_bytes_load_or_are_refused(data: bytes) -> None:
    loads_or_refuses(b'x{a="b"} 5 1700000000\n' + data)


@given(st.sampled_from([DUMP, OPEN, SCRAPES]), st.integers(0, 700), st.binary(max_size=4), st.integers(0, 4))
def test_damaged_texts_load_or_are_refused(data: bytes, at: int, put: bytes, drop: int) -> None:
    loads_or_refuses(data[:at] + put + data[at + drop :])


LABELS = st.dictionaries(st.from_regex(r"[a-z]{1,3}x", fullmatch=True), st.text(max_size=12), max_size=3)


@given(st.lists(st.tuples(LABELS, st.floats(allow_nan=False, allow_infinity=False)), min_size=1, max_size=6))
def test_what_is_written_is_read(samples: list[tuple[dict[str, str], float]]) -> None:
    def escaped(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    lines = []
    for i, (labels, value) in enumerate(samples):
        inner = ",".join(f'{key}="{escaped(text)}"' for key, text in labels.items())
        lines.append(f"m{{{inner}}} {value!r} {1_700_000_000_000 + i}\n")
    found, _ = metric_text.load("".join(lines).encode(), "m")
    read = {
        (at // 10**6, value): one.labels
        for one in found
        for at, value in zip(one.time_ns.tolist(), one.value.tolist(), strict=True)
    }
    assert read == {(1_700_000_000_000 + i, value): labels for i, (labels, value) in enumerate(samples)}


def test_the_documentation_lists_the_metrics_that_are_asked_for(root: Path) -> None:
    page = (root / "docs" / "metrics.md").read_text(encoding="utf-8")
    listed = set()
    for prefix, row in re.findall(r"^\| [^|]*\(`(\w+)…`\) \| (.*) \|$", page, re.M):
        listed |= {plain(prefix + name) for name in re.findall(r"`(\w+)`", row)}
    prefixes = ("dcgm_", "node_", "container_", "nvidia_smi_")
    assert {word for word in (*KNOWN, *COUNTERS, INDEX) if word.startswith(prefixes)} <= listed
    assert [word for word in listed if not known(word)] == []
