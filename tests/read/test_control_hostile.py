"""Control logs are hostile: arbitrary bytes, and valid files that were damaged, load or are refused, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.core.errors import InputRefused
from taut.core.tables import Member, Op, Table, Trace
from taut.read.actions import action_lines, action_table, kube_audit, node_autoscalers, ray_serve
from taut.read.actions.gather_actions import apply
from taut.read.contents import ControlLog
from taut.read.jobs import slurmctld
from taut.read.load import FORMATS

AUDIT = {
    "apiVersion": "audit.k8s.io/v1", "auditID": "a", "stage": "ResponseComplete", "verb": "patch",
    "user": {"username": "system:serviceaccount:a:b"}, "objectRef": {"resource": "deployments", "name": "x", "namespace": "n"},
    "responseStatus": {"code": 200}, "stageTimestamp": "2026-01-01T00:00:00.000000Z",
    "requestObject": {"spec": {"replicas": 3, "containers": [{"resources": {"limits": {"cpu": 1}}}]}},
    "responseObject": {"metadata": {"managedFields": [{"manager": "m", "time": "2026-01-01T00:00:00Z"}]}},
}  # fmt: skip
VALID: dict[Any, bytes] = {
    kube_audit: (json.dumps(AUDIT) + "\n" + json.dumps({**AUDIT, "auditID": "b"})).encode(),
    action_table: b"time,controller,target,knob,before,after,direction,deadline,busy_s,rank,id,parent\n"
    b"2026-01-01T00:00:00Z,a,t,k,1,2,up,2026-01-01T00:01:00Z,1.5,0,x,\n2026-01-01T00:00:01+01:00,b,t,k,2,1,,,,,y,x\n",
    node_autoscalers: b"I0301 00:00:02.000000       1 orchestrator.go:310] Final scale-up plan: [{gpu 1->3 (max: 10)}]\n"
    b"I0301 00:10:00.000000       1 scale_down.go:161] Scale-down: removing empty node n1\n",
    ray_serve: b"INFO 2026-01-01 00:00:01,000 controller 2 -- Upscaling Deployment(name='A', app='a') from 1 to 6 replicas. "
    b"Current ongoing requests: 6.00, current running replicas: 1.\n",
    action_lines: b"2026-01-01T00:00:01Z rescuer StartTime=now 12\n"
    b"2026-01-01T00:00:02+01:00 hpa replicas=2->3 web trigger=cpu\n",
}
ROWS = json.dumps(
    {"time": "2026-01-01T00:00:00Z", "controller": "a", "target": "t", "before": 1, "after": 2.5, "rank": 1}
).encode()
READERS = pytest.mark.parametrize("reader", VALID, ids=lambda r: r.__name__.rpartition(".")[2])


LOGS = [one.reader for one in FORMATS if one.module.startswith(("actions.", "jobs.")) and one.name != "progress"]


def judged(reader: Any, data: bytes) -> None:
    """Sniffing never raises; loading loads or refuses; what loads can be gathered, twice, and is in order."""
    reader.sniff(data)
    try:
        log = reader.load(data, "x")
    except InputRefused:
        return
    log = log if isinstance(log, ControlLog) else log.control
    trace = apply(Trace(Table(Op, {}, 0), [], [], [], Table(Member, {}, 0)), [log, log], [])
    assert (trace.actions.time_ns[1:] >= trace.actions.time_ns[:-1]).all()
    assert (trace.actions.parent < len(trace.actions)).all()
    assert len(trace.actions.to_arrow()) <= len(log.actions)


def test_every_reader_has_a_valid_file_here() -> None:
    assert set(VALID) == {one.reader for one in FORMATS if one.module.startswith("actions.")}


@READERS
def test_the_valid_file_is_known_to_its_reader_alone(reader: Any) -> None:
    assert [one for one in LOGS if one.sniff(VALID[reader])] == [reader]
    judged(reader, VALID[reader])


@READERS
@given(data=st.binary(max_size=300))
def test_arbitrary_bytes(reader: Any, data: bytes) -> None:
    judged(reader, data)


def damaged(raw: bytearray, data: Any) -> bytes:
    for _ in range(data.draw(st.integers(1, 4))):
        at, length = data.draw(st.integers(0, len(raw))), data.draw(st.integers(0, 12))
        raw[at : at + length] = data.draw(
            st.binary(max_size=12)
            | st.sampled_from([b"9" * 40, b"-1", b"\n", b",", b"null", b"{}", b"1e999", b"[]", b'"', b"NaN", b"\xff", b"\x00"])
        )
    return bytes(raw)


@READERS
@given(data=st.data())
def test_damaged_files(reader: Any, data: Any) -> None:
    judged(reader, damaged(bytearray(VALID[reader]), data))


@given(data=st.data())
def test_damaged_rows_of_json(data: Any) -> None:
    judged(action_table, damaged(bytearray(ROWS + b"\n" + ROWS), data))
    judged(action_table, damaged(bytearray(b"[" + ROWS + b"," + ROWS + b"]"), data))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(sorted(action_table.SPELLED)), JSON, max_size=12))
def test_rows_that_hold_anything(row: dict[str, Any]) -> None:
    judged(action_table, json.dumps({"time": 5, **row}).encode())


@given(st.dictionaries(st.sampled_from(sorted(AUDIT)), JSON, max_size=6))
def test_audit_events_that_hold_anything(change: dict[str, Any]) -> None:
    judged(kube_audit, json.dumps({**AUDIT, **change}).encode())


def test_lines_of_any_length_cost_what_they_are_long() -> None:
    judged(action_lines, b"2026-01-01T00:00:01Z a b=" + b"c->" * 200_000)
    judged(action_lines, b"2026-01-01T00:00:01Z a b=c d " + b"e=f " * 200_000)
    judged(ray_serve, b"Upscaling Deployment(name='" * 50_000)
    judged(action_table, b"time,controller,target\n" + b"," * 1_000_000)
    judged(action_table, b'{"time": ' + b"[" * 100_000)
    judged(kube_audit, b'{"apiVersion": "audit.k8s.io/v1", "requestObject": ' + b'{"spec":' * 50_000)
    judged(slurmctld, b"[2026-01-01T00:00:02.000] _update_job: setting a to " + b"b" * 100_000 + b" for JobId=1")
