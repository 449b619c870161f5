"""Tables of actions: any spelling of the columns, any zone, with or without torn rows."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from action_rows import DAY_NS, rows
from taut.core.errors import InputRefused
from taut.read.actions import action_table
from taut.read.contents import ControlLog

CSV = """time,layer,controller,target,knob,before,after,trigger,work,attempt,outcome,busy_s,accelerators
2026-01-01T00:00:00Z,autoscaler,hpa,ml/web,replicas,2,5,cpu,,,,,
2026-01-01T01:00:10.5+01:00,policy,operator,ml/web,replicas,5,2,budget,,,,,
2026-01-01T00:00:20+00:00,retry,proxy,search,attempt,0,1,503,q-1,1,kept,1.5,8
"""
EXPECTED = [
    (0.0, "hpa", "ml/web", "replicas", "2", "5", 1, "", -1, -1),
    (10.5, "operator", "ml/web", "replicas", "5", "2", -1, "", -1, -1),
    (20.0, "proxy", "search", "attempt", "0", "1", 1, "q-1", 1_500_000_000, 8),
]
ASKED = ("time_s", "controller", "target", "knob", "before", "after", "direction", "work", "busy_ns", "accelerators")


def load(text: str) -> ControlLog:
    data = text.encode()
    assert action_table.sniff(data)
    return action_table.load(data, "actions")


def as_objects(text: str) -> list[dict[str, object]]:
    header, *lines = (line.split(",") for line in text.splitlines())
    return [{key: cell for key, cell in zip(header, line, strict=True) if cell} for line in lines]


def test_every_zone_becomes_utc_and_the_direction_follows_from_the_values() -> None:
    log = load(CSV)
    assert rows(log.actions, *ASKED) == EXPECTED
    assert (log.zoneless, log.torn, log.repeated) == (False, 0, 0)


def test_json_lines_and_a_json_list_are_the_same_table() -> None:
    objects = as_objects(CSV)
    assert rows(load("\n".join(map(json.dumps, objects))).actions, *ASKED) == EXPECTED
    assert rows(load(json.dumps(objects)).actions, *ASKED) == EXPECTED
    assert rows(load(json.dumps({"actions": objects}, indent=1)).actions, *ASKED) == EXPECTED


def test_numbers_in_json_need_no_quotes() -> None:
    log = load(json.dumps({"time_s": 5.5, "controller": "a", "target": "t", "knob": "k", "before": 1, "after": 0.5, "rank": 3}))
    assert rows(log.actions, "before", "after", "direction", "rank") == [("1", "0.5", -1, 3)]


@pytest.mark.parametrize(
    ("header", "cell", "ns"),
    [
        ("time_ns", str(DAY_NS + 1), DAY_NS + 1),
        ("time_s", "12.5", 12_500_000_000),
        ("time_ms", "12", 12_000_000),
        ("time", "1767225600.25", DAY_NS + 250_000_000),
        ("time", "1767225600250", DAY_NS + 250_000_000),
        ("timestamp", "2026-01-01 00:00:00.25", DAY_NS + 250_000_000),
    ],
)
def test_times_by_the_unit_in_the_name_as_dates_or_by_size(header: str, cell: str, ns: int) -> None:
    log = load(f"{header},controller,target\n{cell},a,t\n")
    assert log.actions.time_ns.tolist() == [ns]
    assert log.zoneless == ("-" in cell)


def test_words_for_directions() -> None:
    text = "time_s,controller,target,direction\n" + "".join(
        f"{i},a,t,{w}\n" for i, w in enumerate(["up", "-2", "DOWN", "?", "+1", "scale_down", "Increase"])
    )
    assert load(text).actions.direction.tolist() == [1, -1, -1, 0, 1, -1, 1]


def test_torn_rows_and_rows_without_a_time_are_counted() -> None:
    log = load(CSV + "2026-01-01T00:00:30Z,retry,pro\nnever,,x,y,z,,,,,,,,\n")
    assert (len(log.actions), log.torn) == (3, 2)
    lines = "\n".join(map(json.dumps, as_objects(CSV))) + '\n{"time": "2026-01-01T00:0'
    log = load(lines)
    assert (len(log.actions), log.torn) == (3, 1)


def test_a_row_that_carries_the_id_of_one_before_came_again() -> None:
    log = load("time_s,controller,target,id,parent\n1,a,t,x,\n2,a,t,y,x\n3,a,t,x,\n4,a,t,z,y\n")
    assert rows(log.actions, "parent") == [(-1,), (0,), (1,)]
    assert log.repeated == 1


def test_parents_without_ids_are_rows_of_the_table() -> None:
    log = load("time_s,controller,target,parent\n,a,t,\n2,a,t,\n3,a,t,1\n4,a,t,0\n")
    assert rows(log.actions, "parent") == [(-1,), (0,), (-1,)]


def test_a_deadline_is_a_time_and_a_timeout_a_length() -> None:
    assert load("time_s,controller,target,deadline_s\n1,a,t,5\n").actions.deadline_ns.tolist() == [5_000_000_000]
    assert load("time_s,controller,target,timeout_s\n1,a,t,5\n").actions.deadline_ns.tolist() == [6_000_000_000]


def test_a_cost_is_time_summed_over_accelerators() -> None:
    actions = load("time_s,controller,target,cost_rank_s,tokens\n1,a,t,5,70\n").actions
    assert rows(actions, "busy_ns", "accelerators", "tokens_out") == [(5_000_000_000, 1, 70)]


def test_lines_without_anything_between_pieces_are_no_rows() -> None:
    """A whole piece of empty lines, behind one with rows."""
    line = json.dumps({"time": "2026-01-01T00:00:00Z", "controller": "hpa", "target": "web", "knob": "replicas", "before": 1})
    found = action_table.load((line + "\n" + "\n" * (9 << 20)).encode(), "x")
    assert len(found.actions) == 1


def test_long_tables_are_read_in_pieces() -> None:
    many = 60_000
    lines = "\n".join(f'{{"time_s": {i}, "controller": "c{i % 3}", "target": "t", "knob": "k"}}' for i in range(many))
    log = load(lines)
    assert (log.actions.time_ns == np.arange(many) * 1_000_000_000).all()
    assert log.actions.controller[4] == "c1"


@pytest.mark.parametrize(
    "text",
    [
        "time,controller,target\nnever,a,t\n",
        "time,controller,target,target\n1,a,t,t\n",
        '[{"time": 1, "controller": "a", "target"',
    ],
)
def test_refusals(text: str) -> None:
    with pytest.raises(InputRefused):
        action_table.load(text.encode(), "x")


@pytest.mark.parametrize("text", ["time,metric,value\n", "job,attempt,start,end\n", '{"metric": "x", "value": 1}', "", "a b c"])
def test_other_tables_are_not_taken(text: str) -> None:
    assert not action_table.sniff(text.encode())


ANY = (
    st.none() | st.booleans() | st.integers(-5, 2**64) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3)
)
OPTIONAL = dict.fromkeys(
    ("before", "after", "direction", "trigger", "attempt", "busy_s", "deadline", "other"), ANY | st.just([])
)
TIMES = st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.5Z", "2026-01-01 00:00:00", "never", "", None, 7, 1.5])


@given(
    st.lists(
        st.fixed_dictionaries({"time": TIMES, "controller": st.text(max_size=2), "knob": ANY}, optional=OPTIONAL), min_size=1
    )
)
def test_rows_decoded_at_once_are_what_rows_decoded_one_by_one_are(objects: list[dict[str, Any]]) -> None:
    lines = [json.dumps({"target": "x", **row}) for row in objects]
    tables: list[Any] = []
    for text in ("\n".join(lines), "\n".join([*lines, '{"time": "20'])):  # the second has to be taken apart
        try:
            tables.append(action_table.load(text.encode(), "actions").actions.columns)
        except InputRefused:
            tables.append({})
    assert tables[0].keys() == tables[1].keys()
    for name, values in tables[0].items():
        assert np.array_equal(values, tables[1][name]), name
