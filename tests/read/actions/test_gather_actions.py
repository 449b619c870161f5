"""Control logs of several files: one order, each action once, and a report of what was wrong with them."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from action_rows import rows, trace_of
from taut.core.tables import Member, Op, Table, Trace
from taut.read.actions import action_table
from taut.read.actions.gather_actions import apply

HEAD = "time_s,controller,target,knob,after,id,parent\n"


def trace_with(*texts: str) -> Trace:
    """What is made of tables of actions, without files."""
    empty = Trace(Table(Op, {}, 0), [], [], [], Table(Member, {}, 0))
    return apply(empty, [action_table.load((HEAD + text).encode(), f"log {i}") for i, text in enumerate(texts)], [])


def test_logs_are_put_into_one_order_and_parents_follow() -> None:
    actions = trace_with("1,a,t,k,5,x,\n9,a,t,k,6,y,x\n", "3,b,t,k,1,p,\n5,b,t,k,2,q,p\n").actions
    assert rows(actions, "controller", "after", "parent") == [("a", "5", -1), ("b", "1", -1), ("b", "2", 1), ("a", "6", 0)]


def test_an_action_that_two_logs_tell_counts_once() -> None:
    trace = trace_with("1,a,t,k,5,,\n2,a,t,k,6,,\n", "2,a,t,k,6,,\n3,a,t,k,5,,\n")
    assert rows(trace.actions, "after") == [("5",), ("6",), ("5",)]
    assert trace.counts == {"actions": 3, "duplicate deliveries": 1}
    assert list(trace.partial) == ["1 duplicate deliveries of an action counted once"]


def test_actions_of_one_moment_that_differ_are_two() -> None:
    assert len(trace_with("1,a,t,k,5,,\n1,a,t,k,6,,\n1,b,t,k,5,,\n").actions) == 3


def test_a_clock_that_runs_backwards_is_counted_and_reported() -> None:
    trace = trace_with("10,a,t,k,1,,\n20,a,t,k,2,,\n5,a,t,k,3,,\n5.95,a,t,k,4,,\n5.9,a,t,k,5,,\n")
    assert rows(trace.actions, "after") == [("3",), ("5",), ("4",), ("1",), ("2",)]
    assert trace.counts["clock steps"] == 1
    assert list(trace.partial) == ["log 0: its clock runs backwards 1 times, by 15.0 s at most: order is by time"]


def test_unknown_controllers_are_kept_and_reported() -> None:
    trace = trace_with("1,,t,k,5,,\n2,a,t,k,6,,\n")
    assert trace.counts["unknown controllers"] == 1
    assert "1 actions name no controller: taken as those of one unknown controller" in trace.partial


def test_zones_torn_lines_and_standard_names_of_two_files(tmp_path: Path) -> None:
    plain = "2026-01-01T00:00:01 hpa replicas=3 web\n2026-01-01T00:00:04 hpa replicas=5 web\nx\n"
    table = "time,controller,target,knob,after\n2026-01-01T02:00:02+02:00,vpa,web,replicas,4\n2026-01-01T00:00:03Z,vp\n"
    trace = trace_of(tmp_path, a__log=plain * 3, b__csv=table)
    assert rows(trace.actions, "time_s", "controller", "after") == [(1.0, "hpa", "3"), (2.0, "vpa", "4"), (4.0, "hpa", "5")]
    assert trace.counts["torn lines"] == 4
    assert any("a.log: times without a time zone, taken as UTC" in line for line in trace.partial)


def test_a_training_log_with_pairs_stays_a_training_log(tmp_path: Path) -> None:
    log = "".join(f"2026-01-01 00:0{i}:00 train loss=2.{i} lr 0.1 step {i}/9\n" for i in range(5))
    trace = trace_of(tmp_path, train__log=log)
    assert (len(trace.attempts), len(trace.actions)) == (1, 0)


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from("ab"), st.sampled_from("12")), min_size=1, max_size=30))
def test_delivering_a_log_twice_changes_nothing_but_the_count(entries: list[tuple[int, str, str]]) -> None:
    text = "".join(f"{at},{who},t,k,{value},,\n" for at, who, value in entries)
    once, twice = trace_with(text), trace_with(text, text)
    assert rows(once.actions, "time_ns", "controller", "after") == rows(twice.actions, "time_ns", "controller", "after")
    assert twice.counts.get("duplicate deliveries", 0) == once.counts.get("duplicate deliveries", 0) + len(entries)
