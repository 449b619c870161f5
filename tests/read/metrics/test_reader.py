"""Metrics beside the traces: every shape comes out in the same words, and bad ones are refused in a line."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.core.errors import InputRefused, NotATrace, TooLarge
from taut.core.tables import Trace
from taut.read.metrics import prometheus_answer as metric_matrix
from taut.read.metrics import reader as metrics
from taut.read.metrics import series as metric_series
from taut.read.metrics.sample_lists import numbers
from taut.read.trace import read

NOW_NS = 1_700_000_000_000_000_000

SMI = b"""timestamp, index, utilization.gpu [%], power.draw [W], clocks.current.sm [MHz], temperature.gpu, \
clocks_event_reasons.active, power.limit [W]
2023/11/14 22:13:20.500, 0, 98 %, 512.25 W, 1980 MHz, 54, 0x0000000000000004, 700.00 W
2023/11/14 22:13:20.500, 1, [N/A], [Not Supported], 1200 MHz, 91, 0x0000000000000048, 700.00 W
"""
TIDY = b"""time,component,metric,value,limit,limit_source,unit
1700000000.5,rank 1,power,412000,700000,data sheet,mW
1700000001.5,1,power,413000,700000,data sheet,mW
1700000000.5,leaf1:eth3,received_total,100,,,
1700000002.5,leaf1:eth3,received_total,500,,,
1700000003.5,leaf1:eth3,received_total,10,,,
"""
LINES = b"""{"time": "2023-11-14T22:13:20.5Z", "component": "node7 gpu 0", "metric": "temperature", "value": 61, "x": {"y": 1}}
{"time": "2023-11-14T22:13:21.5+00:00", "component": "node7 gpu 0", "metric": "temperature", "value": "62 C"}
"""
MATRIX = json.dumps(
    {
        "status": "success",
        "data": {
            "resultType": "matrix",
            "result": [
                {
                    "metric": {
                        "__name__": "DCGM_FI_DEV_GPU_UTIL",
                        "gpu": "1",
                        "Hostname": "node7",
                        "instance": "10.0.0.7:9400",
                    },
                    "values": [[1700000000.5, "100"], [1700000001.5, "NaN"], [1700000002.5, "50"]],
                }
            ],
        },
    }
).encode()
HOST = b"""rank,time_ns,cpu_ns,rss_bytes,received_bytes,sent_bytes,cpu_ns_limit,rss_bytes_limit
0,1700000000000000000,0,1000,0,0,2000000000,8000
0,1700000001000000000,500000000,1200,4000,8000,2000000000,8000
"""


def rows(data: bytes) -> list[tuple[str, str, list[float], list[float], float | None, str]]:
    """(component, metric, seconds after NOW_NS, values, limit, its source) of every series."""
    assert metrics.sniff(data)
    return [
        (
            s.component, s.metric, ((s.time_ns - NOW_NS) / 1e9).tolist(), np.round(s.value, 6).tolist(),
            None if np.isnan(s.limit[0]) else float(s.limit[0]), s.limit_source,
        )
        for s in metrics.load(data, "m").series
    ]  # fmt: skip


def test_nvidia_smi() -> None:
    assert rows(SMI) == [
        ("gpu 0", "utilisation_share", [0.5], [0.98], None, ""),
        ("gpu 0", "power_w", [0.5], [512.25], 700.0, "power_limit_w beside it"),
        ("gpu 0", "clock_mhz", [0.5], [1980.0], None, ""),
        ("gpu 1", "clock_mhz", [0.5], [1200.0], None, ""),
        ("gpu 0", "temperature_c", [0.5], [54.0], None, ""),
        ("gpu 1", "temperature_c", [0.5], [91.0], None, ""),
        ("gpu 0", "slowdown", [0.5], [0.0], None, ""),
        ("gpu 0", "power_capped", [0.5], [1.0], None, ""),
        ("gpu 1", "slowdown", [0.5], [1.0], None, ""),
        ("gpu 1", "power_capped", [0.5], [0.0], None, ""),
    ]


def test_tidy_csv_with_units_limits_and_a_counter_that_was_reset() -> None:
    assert rows(TIDY) == [
        ("rank 1", "power_w", [0.5, 1.5], [412.0, 413.0], 700.0, "data sheet"),
        ("leaf1:eth3", "received_per_s", [2.5], [200.0], None, ""),
    ]


ENERGY = b"""time,component,metric,value
1700000000,node7 gpu 0,DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION,4000000
1700000001,node7 gpu 0,DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION,9223372036854775794
1700000002,node7 gpu 0,DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION,5000000
1700000000,node7 gpu 1,DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION,0
1700000001,node7 gpu 1,DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION,0
1700000000,node7,node_rapl_package_joules_total,100
1700000001,node7,node_rapl_package_joules_total,300
1700000000,node7,EnergykWh,2
1700000000,node7,PowerConsumedWatts,5100
"""


def test_counters_of_energy_stay_beside_their_rate_and_what_is_missing_is_no_zero() -> None:
    assert rows(ENERGY) == [
        ("node7 gpu 0", "energy_j", [0.0, 2.0], [4000.0, 5000.0], None, ""),
        ("node7 gpu 0", "power_average_w", [2.0], [500.0], None, ""),
        ("node7", "package_energy_j", [0.0, 1.0], [100.0, 300.0], None, ""),
        ("node7", "node_rapl_package_joules_per_s", [1.0], [200.0], None, ""),
        ("node7", "node_energy_j", [0.0], [7_200_000.0], None, ""),
        ("node7", "node_power_w", [0.0], [5100.0], None, ""),
    ]
    again = b"time,component,metric,value\n1700000000,rank 0,energy_j,4000\n1700000001,rank 0,energy_j,5000\n"
    assert rows(again) == [("rank 0", "energy_j", [0.0, 1.0], [4000.0, 5000.0], None, "")]


def test_json_lines() -> None:
    assert rows(LINES) == [("node7 gpu 0", "temperature_c", [0.5, 1.5], [61.0, 62.0], None, "")]


def lines(*samples: dict[str, Any]) -> bytes:
    return "".join(json.dumps({"metric": "power", "component": "rank 0", **one}) + "\n" for one in samples).encode()


NOW_S = 1_700_000_000


@pytest.mark.parametrize("other", [3, 2.75, None, "2.75", True, "much"])
def test_values_of_json_lines_keep_their_fractions(other: object) -> None:
    data = lines({"time": NOW_S, "value": 1.25}, {"time": NOW_S + 0.5, "value": other}, {"time": NOW_S + 1, "value": 7})
    middle = {None: [], "much": [], "2.75": [2.75], True: [1.0]}.get(other, [other])
    times = [0.0, 0.5, 1.0] if middle else [0.0, 1.0]
    assert rows(data) == [("rank 0", "power_w", times, [1.25, *middle, 7.0], None, "")]


@pytest.mark.parametrize("zone", ["Z", "+00:00", "", "+02:00"])
def test_times_of_json_lines_may_be_dates(zone: str) -> None:
    data = lines(*({"timestamp": f"2023-11-14T22:13:2{i}.25{zone}", "value": i} for i in range(2)))
    later = -7200 if zone == "+02:00" else 0
    assert rows(data) == [("rank 0", "power_w", [later + 0.25, later + 1.25], [0.0, 1.0], None, "")]
    assert metrics.load(data, "m").zoneless is (zone == "")


def test_a_key_that_few_lines_have_counts() -> None:
    many = [{"time": NOW_S + i, "value": 1, "component": "", "rank": i % 2, "note": {"x": i}} for i in range(3000)]
    many[1234] |= {"rank": "0", "unit": "kW", "else": [1, {"rank": 5}]}
    found = [(s.component, s.metric, len(s.value), s.value.max()) for s in metrics.load(lines(*many), "m").series]
    assert found == [("rank 0", "power_w", 1499, 1.0), ("rank 1", "power_w", 1500, 1.0)]


def answer(*values: str) -> bytes:
    series = [f'{{"metric": {{"__name__": "power", "rank": "{i}"}}, "values": {text}}}' for i, text in enumerate(values)]
    return f'{{"status": "success", "data": {{"resultType": "matrix", "result": [{", ".join(series)}]}}}}'.encode()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[[1700000000, \"1.5\"],\n [1700000000.5, \"-2e3\"]]", [1.5, -2000.0]), ('[[1.7e9,"1"],[1700000000.5,"NaN"]]', [1.0]),
        ('[[1700000000,"+Inf"],[1700000000.5,"4"]]', [4.0]), ('[[1700000000,""],[1700000000.5,"4"]]', [4.0]),
        ('[[1700000000,"1 2"],[1700000000.5,"4"]]', [4.0]), ('[[1700000000," 12 "],[1700000000.5,"4"]]', [12.0, 4.0]),
        ('[[1700000000,"1-2"],[1700000000.5,"x"],[1700000001,"3"]]', [3.0]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("quick", [0, 1 << 20])
def test_samples_of_a_matrix_in_any_writing(text: str, value: list[float], quick: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_matrix, "QUICK", quick)
    plain = '[[1700000000,"7"],[1700000001,"8"]]'
    found = metrics.load(answer(plain, text, "[]", plain), "m").series
    assert [(s.component, s.value.tolist()) for s in found] == [
        ("rank 0", [7.0, 8.0]), ("rank 1", value), ("rank 3", [7.0, 8.0]),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text", ['[["1","2"]]', "[[1,2]]", '[[1,"2",3]]', "[[1]]", '[1,"2"]', '{"1": "2"}', '[[1,"2"],[]]', "null"]
)
@pytest.mark.parametrize("quick", [0, 1 << 20])
def test_what_is_no_list_of_samples_is_refused(text: str, quick: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_matrix, "QUICK", quick)
    with pytest.raises(InputRefused, match="not a matrix"):
        metrics.load(answer('[[1700000000,"7"]]', text), "m")


@given(st.lists(st.lists(st.tuples(st.floats(-1e18, 1e18), st.floats() | st.decimals(-1e9, 1e9, places=6)), max_size=3)))
def test_samples_straight_from_bytes_are_what_python_reads(lists: list[list[tuple[float, object]]]) -> None:
    texts = [json.dumps([[time, str(value)] for time, value in one]) for one in lists]
    time, value, end = numbers("".join(texts).encode()) or ([], [], [])
    expected = [(at, float(str(number))) for one in lists for at, number in one]
    assert np.array_equal(time, [at for at, _ in expected])
    assert np.array_equal(value, [number for _, number in expected], equal_nan=True)
    assert list(end) == np.cumsum([len(one) for one in lists]).tolist()


def test_prometheus_matrix() -> None:
    assert rows(MATRIX) == [("node7 gpu 1", "utilisation_share", [0.5, 2.5], [1.0, 0.5], None, "")]


def test_host_metrics_of_the_lab() -> None:
    assert rows(HOST) == [
        ("rank 0", "cpu_cores", [1.0], [0.5], 2.0, "the file"),
        ("rank 0", "memory_used_bytes", [0.0, 1.0], [1000.0, 1200.0], 8000.0, "the file"),
        ("rank 0", "received_bytes_per_s", [1.0], [4000.0], None, ""),
        ("rank 0", "sent_bytes_per_s", [1.0], [8000.0], None, ""),
    ]


@pytest.mark.parametrize("unit", [("time_ns", 1e9), ("time_ms", 1e3), ("time", 1.0), ("time", 1e3), ("time", 1e6)])
def test_times_in_whatever_unit(unit: tuple[str, float]) -> None:
    name, factor = unit
    data = f"{name},component,metric,value\n{int(1_700_000_001 * factor)},rank 0,power_w,1\n".encode()
    assert rows(data)[0][2] == [1.0]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"time,metric,value\nsoon,power,much\n", "no row holds a time"),
        (b"time,metric,value\n", "no row holds a time"),
        (b"time,metric,metric,value\n1,a,b,2\n", "two columns of one name"),
        (b"time,metric,value\n1,2\n", "not a readable CSV"),
        (b"time,metric,value\n1,\xff\xfe,2\n", "not a readable CSV"),
        (b'{"metric": "a", "value": 1}\n{"metric": ', "not readable as JSON lines"),
        (b'{"metric": "5", "time": 1, "values": 1}\n', "no row holds a time"),
        (b'{"metrics": "5", "time": 1, "value": null}\n', "no row holds a time"),
        (b'{"metric": "a", "value": ' + b"[" * 100_000, "not readable as JSON lines"),
        (b'{"data": {"resultType": "matrix", "result": [{"metric": {}, "values": []}]}}', "without a metric name"),
        (b'{"data": {"resultType": "matrix", "result": 3}}', "not a matrix"),
    ],
)
def test_refused_in_one_line(data: bytes, why: str) -> None:
    with pytest.raises(InputRefused, match=why) as caught:
        metrics.load(data, "m.csv")
    assert str(caught.value).startswith("m.csv: ")
    assert "\n" not in str(caught.value)


def test_too_many_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_series, "MOST_SERIES", 2)
    with pytest.raises(TooLarge):
        metrics.load(b"time,component,metric,value\n" + b"".join(b"1,x%d,power,1\n" % i for i in range(3)), "m")


def test_samples_that_are_no_numbers_or_no_times_are_left_out() -> None:
    data = b"time,component,metric,value\n1,a,power,nan\n1,a,power,inf\n1e300,a,power,5\n2,a,power,7\n"
    assert rows(data)[0][3] == [7.0]


@given(st.sampled_from([SMI, TIDY, LINES, MATRIX, HOST]), st.integers(0, 500), st.binary(max_size=4), st.integers(0, 4))
def test_damaged_files_load_or_are_refused(data: bytes, at: int, put: bytes, drop: int) -> None:
    data = data[:at] + put + data[at + drop :]
    metrics.sniff(data)
    with suppress(InputRefused):
        metrics.load(data, "m")


def job(tmp_path: Path, tiny: Any, hosts: tuple[str, ...], **files: bytes) -> Trace:
    """A trace of one rank per host name, with metrics files beside it."""
    for rank, host in enumerate(hosts):
        events = [tiny.step(1, 0, 2_000_000), tiny.event("cpu_op", "aten::mm", 1, 1_999_000)]
        data = tiny.as_bytes(events, rank=rank, world_size=len(hosts), **({"host_name": host} if host else {}))
        (tmp_path / f"rank{rank}.json").write_bytes(data)
    for name, data in files.items():
        path = tmp_path / name.replace("__", "/")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    return read([tmp_path])


def placed(trace: Trace) -> set[tuple[str, int]]:
    return {(c, int(r)) for c, r in zip(trace.metrics.component, trace.metrics.rank, strict=True)}


def test_a_named_rank_is_that_rank_and_a_link_is_none(tmp_path: Path, tiny: Any) -> None:
    trace = job(tmp_path, tiny, ("", ""), tidy=TIDY)
    assert placed(trace) == {("rank 1", 1), ("leaf1:eth3", -1)}
    assert trace.counts["metric samples"] == 3


def test_a_rank_that_is_not_in_the_job_is_none(tmp_path: Path, tiny: Any) -> None:
    assert placed(job(tmp_path, tiny, ("",), tidy=TIDY)) == {("rank 1", -1), ("leaf1:eth3", -1)}


def test_accelerators_of_the_only_host_are_its_ranks_and_that_is_reported(tmp_path: Path, tiny: Any) -> None:
    trace = job(tmp_path, tiny, ("", ""), smi=SMI)
    assert placed(trace) == {("gpu 0", 0), ("gpu 1", 1)}
    assert any("n-th rank of its host" in line for line in trace.partial)


def test_where_two_jobs_have_a_rank_the_host_tells_whose_it_is(tmp_path: Path, tiny: Any) -> None:
    data = b"time,rank,host,metric,value\n1700000000,0,a.lan,power,300\n1700000000,0,b,power,400\n1700000000,1,b,power,500\n"
    trace = job(tmp_path, tiny, ("a",), tidy=data)
    assert placed(trace) == {("rank 0 on a.lan", 0), ("rank 0 on b", -1), ("rank 1", -1)}


def test_more_accelerators_than_ranks_stay_unplaced(tmp_path: Path, tiny: Any) -> None:
    assert placed(job(tmp_path, tiny, ("",), smi=SMI)) == {("gpu 0", -1), ("gpu 1", -1)}


def test_dates_without_a_zone_are_moved_into_the_traced_time(tmp_path: Path, tiny: Any) -> None:
    trace = job(tmp_path, tiny, ("", ""), smi=SMI.replace(b" 22:13", b" 23:43"))
    assert set(trace.metrics.time_ns.tolist()) == {NOW_NS + 500_000_000}
    assert any("-1.50 h" in line for line in trace.partial)


def test_metrics_of_another_time_are_kept_and_that_is_reported(tmp_path: Path, tiny: Any) -> None:
    trace = job(tmp_path, tiny, ("", ""), tidy=TIDY.replace(b"17000000", b"15000000"))
    assert any("no metric was sampled while" in line for line in trace.partial)


def test_damaged_metrics_are_left_out_and_named(tmp_path: Path, tiny: Any) -> None:
    trace = job(tmp_path, tiny, ("",), bad=b"time,metric,value\nx,y,z\n")
    assert len(trace.metrics) == 0
    assert any("no row holds a time" in line for line in trace.partial)


def test_metrics_alone_are_no_trace(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_bytes(TIDY)
    with pytest.raises(NotATrace, match="only metrics here"):
        read([tmp_path])
