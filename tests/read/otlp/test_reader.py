"""OTLP/JSON spans: services as ranks, requests as steps, calls as messages."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import to_builtins

from spans import CLIENT, CONSUMER, MS, PRODUCER, SERVER, Spans, chat
from taut.core.errors import InputRefused
from taut.core.tables import Kind, Trace, Verb
from taut.diagnose.discarded_calls import redundant, thrown_away
from taut.graph import link
from taut.read.otlp import reader as otlp
from taut.read.trace import read
from taut.replay.timeline import replay
from taut.run import Analysis, analyze_trace

ROOT = Path(__file__).resolve().parents[3]


def rows(trace: Trace, step: int = 0) -> list[tuple[Any, ...]]:
    """(rank, class, begin ms, end ms, verb) of the ops of a step that take time, or meet."""
    ops = trace.ops
    at = np.flatnonzero(ops.step == step)
    at = at[np.lexsort((at, ops.end_ns[at], ops.start_ns[at], ops.lane[at], ops.rank[at]))]
    return [
        (int(ops.rank[i]), trace.names[ops.name[i]], ops.start_ns[i] / MS, ops.end_ns[i] / MS, Verb(ops.verb[i]).name)
        for i in at.tolist()
    ]


def laws(trace: Trace) -> Analysis:
    """Analyse; the replay is exact and the ledger closes."""
    done = analyze_trace(trace)
    observed = replay(done.graph)
    assert (observed.end_ns == done.graph.ops.end_ns).all()
    assert (observed.arrival_ns == done.graph.ops.start_ns).all()
    assert done.ledger.closes
    assert done.ledger.total_rank_ns == len(done.graph.ranks) * done.observed.wall_ns
    return done


def test_a_call_is_a_message_there_and_back() -> None:
    """The caller's own time is cut at the call; what the client saw beyond the server is the way."""
    spans = Spans()
    root = spans.add("web", "handle", 0, 10, kind=SERVER)
    client = spans.add("web", "POST", 2, 8, root, kind=CLIENT)
    spans.add("db", "query", 3, 7, client, kind=SERVER)
    trace = spans.trace()
    assert list(trace.members.name) == ["db", "web"]
    assert rows(trace) == [
        (0, "call db", 3, 3, "RECV"),
        (0, "db query", 3, 7, "NONE"),
        (0, "answer of db", 7, 7, "SEND"),
        (1, "web handle", 0, 2, "NONE"),
        (1, "call db", 2, 2, "SEND"),
        (1, "answer of db", 2, 8, "RECV"),
        (1, "web handle", 8, 10, "NONE"),
    ]
    assert trace.relative
    done = laws(trace)
    ops = done.graph.ops
    under_way = [(ops.start_ns[i] / MS, ops.end_ns[i] / MS) for i in np.flatnonzero(ops.verb == Verb.RECV)]
    assert sorted(under_way) == [(2, 3), (2, 8)]
    assert done.graph.explained.sum() == len(ops) - 1
    fates = {fate: ns / MS for fate, ns in done.ledger.by_fate.items() if ns}
    assert fates == {"productive": 8, "exposed transfer": 2, "unexplained": 5, "idle": 5}


def test_calls_side_by_side_are_gathered_by_their_caller() -> None:
    spans = Spans()
    root = spans.add("web", "handle", 0, 10, kind=SERVER)
    for number, end in enumerate((5, 9, 6)):
        client = spans.add("web", "GET", 1, end, root, kind=CLIENT)
        spans.add("shard", "search", 1.5, end - 0.5, client, kind=SERVER, instance=str(number))
    trace = spans.trace()
    mine = [row for row in rows(trace) if row[4] == "GATHER"]
    assert mine == [
        (0, "web handle fan-out", 4.5, 4.5, "GATHER"),
        (1, "web handle fan-out", 8.5, 8.5, "GATHER"),
        (2, "web handle fan-out", 5.5, 5.5, "GATHER"),
        (3, "web handle fan-out", 1, 9, "GATHER"),
    ]
    done = laws(trace)
    gate = done.graph.gates.take(done.graph.gates.verb == Verb.GATHER)
    assert (gate.members.tolist(), gate.last_rank.tolist()) == ([4], [1])
    assert to_builtins(done.result["tails"]) == [
        {
            "class": "web handle fan-out", "fan_out": 3, "gates": 1, "quantile": 0.95, "p50_ns": 7_500_000,
            "high_ns": 7_500_000, "ratio": 1.0, "independent_ratio": None, "chance": None,
        }
    ]  # fmt: skip


def test_children_of_the_same_service_go_on_in_its_lane_unless_they_run_side_by_side() -> None:
    spans = Spans()
    root = spans.add("app", "turn", 0, 20)
    spans.add("app", "parse", 1, 3, root)
    for begin, end in ((5, 12), (6, 15)):
        spans.add("app", "fetch", begin, end, root)
    trace = spans.trace()
    assert Counter(trace.ops.lane.tolist()).keys() == {0, 1, 2}
    main = [row[1:4] for row, lane in zip(rows(trace), sorted(trace.ops.lane.tolist()), strict=True) if lane == 0]
    assert main == [
        ("app turn", 0, 1), ("app parse", 1, 3), ("app turn", 3, 5), ("app task", 5, 5), ("app turn", 5, 6),
        ("app task", 6, 6), ("answer of app", 6, 12), ("answer of app", 12, 15), ("app turn", 15, 20),
    ]  # fmt: skip
    done = laws(trace)
    assert done.graph.explained.sum() == len(done.graph) - 1


def test_a_far_end_that_left_no_span_is_a_rank_in_its_callers_clock() -> None:
    spans = Spans()
    root = spans.add("agent", "invoke_agent a", 0, 10)
    chat = spans.add("agent", "chat m-1", 1, 7, root, kind=CLIENT, gen_ai__operation__name="chat", gen_ai__request__model="m-1")
    spans.add("agent", "POST", 1.2, 6.9, chat, kind=CLIENT, server__address="api.example")
    trace = spans.trace()
    assert list(trace.members.name) == ["agent", "m-1"]
    assert list(trace.members.host) == ["h", "h"]
    assert (1, "chat m-1", 1, 7, "NONE") in rows(trace)
    assert any("1 far ends left no spans" in line for line in trace.partial)
    laws(trace)


def test_nobody_waits_for_what_outlives_its_caller() -> None:
    """A message to a queue, a task left behind, a server that its caller gave up on."""
    spans = Spans()
    root = spans.add("web", "handle", 0, 10, kind=SERVER)
    sent = spans.add("web", "publish", 1, 2, root, kind=PRODUCER)
    spans.add("worker", "process", 30, 40, sent, kind=CONSUMER)
    gave_up = spans.add("web", "POST", 3, 6, root, kind=CLIENT, failed=True, error__type="timeout")
    spans.add("slow", "work", 3.5, 9, gave_up, kind=SERVER)
    spans.add("web", "log", 9, 12, root)
    trace = spans.trace()
    assert not any(name.startswith("answer") for name in trace.names)
    assert [row[1:4] for row in rows(trace) if row[1] == "worker process"] == [("worker process", 30, 40)]
    laws(trace)


def test_time_in_a_queue_is_coordination() -> None:
    spans = Spans()
    root = spans.add("llm", "llm_request", 0, 10, kind=SERVER, gen_ai__latency__time_in_queue="0.004")
    spans.add("llm", "queue for slot", 5, 6, root)
    trace = spans.trace()
    ops = trace.ops
    kinds = {(trace.names[ops.name[i]], int(ops.start_ns[i]) // MS): Kind(ops.kind[i]) for i in range(len(ops))}
    assert kinds == {
        ("llm queue", 0): Kind.COORDINATE,
        ("llm llm_request", 4): Kind.COMPUTE,
        ("llm queue for slot", 5): Kind.COORDINATE,
        ("llm llm_request", 6): Kind.COMPUTE,
    }


def test_requests_that_overlap_are_steps_with_their_own_origin() -> None:
    spans = Spans()
    for trace in (1, 2, 3):
        spans.add("web", "handle", 3 * trace, 3 * trace + 10, trace=trace, kind=SERVER)
    done = laws(spans.trace())
    assert done.observed.window_ns.tolist() == [10 * MS] * 3
    assert done.observed.wall_ns == 30 * MS


def test_turns_of_a_conversation_are_steps() -> None:
    """Agents invoked one after the other under one root; what lies between them is left out and counted."""
    spans = Spans()
    talk = spans.add("agent", "conversation", 0, 100)
    for begin in (0, 40, 80):
        turn = spans.add("agent", "invoke_agent a", begin, begin + 10, talk, gen_ai__operation__name="invoke_agent")
        spans.add("agent", "think", begin + 1, begin + 5, turn)
    trace = spans.trace()
    assert sorted(set(trace.ops.step.tolist())) == [0, 1, 2]
    assert trace.counts["spans between the turns of a conversation"] == 1
    assert laws(trace).observed.wall_ns == 30 * MS


def test_clock_skew_between_services_is_solved_and_no_culprit() -> None:
    """A server that starts before its client sent: the way there and back tells by how much its clock is behind."""
    spans = Spans()
    for trace in range(1, 31):
        at, late = 100 * trace, 0.01 * (trace % 7)
        root = spans.add("web", "handle", at, at + 30, kind=SERVER, trace=trace, host="a")
        for number in range(3):
            skew = -40 if number == 1 else 0
            client = spans.add("web", "GET", at + 2, at + 28, root, kind=CLIENT, trace=trace, host="a")
            begin, end = at + 2.5 + skew + late, at + 27.5 + skew - late
            spans.add("shard", "search", begin, end, client, kind=SERVER, trace=trace, host=f"b{number}", instance=str(number))
    done = laws(spans.trace())
    offsets = {rank: round(entry["value"] / MS, 2) for rank, entry in done.result["fidelity"]["clock"]["offset_ns"].items()}
    assert offsets == {"0": 0.0, "1": -40.0, "2": 0.0, "3": 0.0}
    assert done.result["findings"] == []


def test_files_of_several_processes_are_one_trace(tmp_path: Path) -> None:
    spans = Spans()
    root = spans.add("web", "handle", 0, 10, kind=SERVER)
    client = spans.add("web", "POST", 2, 8, root, kind=CLIENT)
    spans.add("db", "query", 3, 7, client, kind=SERVER)
    for number, document in enumerate(spans.documents()):
        (tmp_path / f"{number}.jsonl").write_text(json.dumps(document) + "\n")
    apart, together = read([tmp_path]), spans.trace()
    assert rows(apart) == rows(together)
    assert apart.counts["files"] == 2


def test_numbers_names_and_documents_in_other_spellings_are_the_same_trace() -> None:
    spans = Spans()
    root = spans.add("web", "handle", 0, 10, kind=SERVER)
    spans.add("web", "POST", 2, 8, root, kind=CLIENT, failed=True)
    document = spans.documents()[0]
    for span in document["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        span["startTimeUnixNano"], span["endTimeUnixNano"] = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
        span["kind"] = {SERVER: "SPAN_KIND_SERVER", CLIENT: "SPAN_KIND_CLIENT"}[span["kind"]]
        span["status"] = {"code": "STATUS_CODE_ERROR"} if span["status"] else {}
    pretty = json.dumps(document, indent=2).encode()
    for data in (pretty, b"\xef\xbb\xbf" + pretty, b"[" + pretty + b"]"):
        assert otlp.sniff(data)
        assert rows(otlp.gather([otlp.load(data, "t")], [], name="t", source="t")) == rows(spans.trace())


# Hostile input


def test_bad_spans_are_dropped_and_counted() -> None:
    spans = Spans()
    root = spans.add("web", "handle", 0, 10)
    spans.add("web", "backwards", 5, 4, root)
    spans.add("web", "orphan", 1, 2, "ffff")
    document = spans.documents()[0]
    inside = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    inside += [{**inside[0]}, {**inside[0], "spanId": "x", "startTimeUnixNano": "soon"}]
    inside += [{**inside[0], "spanId": a, "parentSpanId": b} for a, b in (("p", "q"), ("q", "p"), ("r", "r"))]
    inside.append({**inside[0], "spanId": "y", "attributes": 5, "events": {}, "links": 1, "status": []})
    trace = otlp.gather([otlp.load(json.dumps(document).encode(), "t")], [], name="t", source="t")
    assert trace.counts["dropped: no time or negative duration"] == 2
    assert trace.counts["dropped: exported twice"] == 1
    assert trace.counts["spans without their parent"] == 2  # one is its own parent
    assert trace.counts["spans in a circle of parents"] == 2
    laws(trace)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b'{"resourceSpans":[]}', "no spans in this file"),
        (b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":7}]}]}]}', "not OTLP/JSON"),
        (b'{"resourceSpans":' + b"[" * 1_000_000, "t: not"),
        (b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"a","spanId":"b"}]}]}]}', "no span has a start and an end"),
    ],
    ids=["empty", "wrong type", "deep", "no times"],
)  # fmt: skip
def test_refusals_are_one_line(data: bytes, why: str) -> None:
    assert otlp.sniff(data)
    with pytest.raises(InputRefused) as caught:
        otlp.gather([otlp.load(data, "t")], [], name="t", source="t")
    assert "\n" not in str(caught.value)
    assert why.removeprefix("t: ") in str(caught.value)


def test_a_file_that_breaks_off_is_read_up_to_there_and_a_broken_line_is_named() -> None:
    spans = Spans()
    spans.add("web", "handle", 0, 10)
    good = spans.lines()
    loaded = otlp.load(good + good[:50], "t.jsonl")
    assert loaded.partial == ["t.jsonl breaks off in its last line: that line is left out"]
    with pytest.raises(InputRefused, match=r"t\.jsonl:2: not an OTLP/JSON line"):
        otlp.load(good + good[:50] + b"\n" + good, "t.jsonl")


@st.composite
def forests(draw: st.DrawFn) -> Trace:
    """Any forest: parents anywhere, times that contradict each other, every kind, all in one trace or in several."""
    spans, ids = Spans(), [""]
    for _ in range(draw(st.integers(1, 14))):
        begin = draw(st.integers(0, 20))
        ids.append(
            spans.add(
                draw(st.sampled_from(["a", "b", "c"])), draw(st.sampled_from(["x", "y queue"])), begin,
                begin + draw(st.integers(len(ids) == 1, 12)), draw(st.sampled_from(ids)), kind=draw(st.integers(0, 5)),
                trace=draw(st.sampled_from([1, 1, 1, 2])), host=draw(st.sampled_from(["h", "g"])),
                instance=draw(st.sampled_from(["", "1"])), failed=draw(st.booleans()),
                gen_ai__operation__name=draw(st.sampled_from(["chat", "invoke_agent", "other"])),
                gen_ai__input__messages=draw(st.sampled_from(["p", "q"])),
                gen_ai__latency__time_in_queue=draw(st.sampled_from(["0", "0.003", "9"])),
            )
        )  # fmt: skip
    return spans.trace()


@settings(max_examples=150, deadline=None)
@given(forests())
def test_the_laws_hold_for_any_forest(trace: Trace) -> None:
    laws(trace)
    gone = trace.actions.take(thrown_away(trace.actions))
    assert (gone.parent < len(trace.actions)).all()
    assert gone.busy_ns.sum() <= trace.counts["call ns"]


def _valid() -> bytes:
    spans = Spans()
    root = spans.add("web", "handle", 0, 10, kind=SERVER)
    chat(spans, root, 1, "ask", failed=True, http__request__resend_count=1)
    chat(spans, root, 7, "ask")
    return spans.lines()


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(_valid()) - 1), st.binary(max_size=4), st.integers(0, 6))
def test_a_mutated_file_loads_or_is_refused(at: int, put: bytes, cut: int) -> None:
    data = _valid()
    data = data[:at] + put + data[at + cut :]
    with contextlib.suppress(InputRefused):
        link(otlp.gather([otlp.load(data, "t")], [], name="t", source="t"))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_load_or_are_refused(data: bytes) -> None:
    for candidate in (data, b'{"resourceSpans":[' + data + b"]}"):
        otlp.sniff(candidate)
        with contextlib.suppress(InputRefused):
            otlp.gather([otlp.load(candidate, "t")], [], name="t", source="t")


# Real programs


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_agent_that_records_itself_is_accounted_for_to_the_token(tmp_path: Path) -> None:
    truth = example("otel_agent").run(tmp_path / "agent.jsonl", 20)
    trace = read([tmp_path / "agent.jsonl"])
    found = redundant(trace)
    assert found is not None
    counted = {key: found[key] for key in ("calls", "of_calls", "tokens_in", "tokens_out", "of_tokens_in", "of_tokens_out")}
    assert counted == {
        "calls": truth["thrown_away"], "of_calls": truth["calls"], "tokens_in": truth["tokens_in"],
        "tokens_out": truth["tokens_out"], "of_tokens_in": truth["all_tokens_in"], "of_tokens_out": truth["all_tokens_out"],
    }  # fmt: skip
    assert laws(trace).observed.window_ns.shape == (20,)


def test_a_service_of_six_processes_with_clocks_apart(tmp_path: Path) -> None:
    """Every process writes its own file in its own time; retries, clocks and the slow shard come out as they were."""
    command = [sys.executable, str(ROOT / "examples" / "otel_service.py"), str(tmp_path), "40"]
    truth = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=100, check=True).stdout)
    done = laws(read([tmp_path]))
    graph, result = done.graph, done.result
    assert len(graph.steps) == truth["requests"]
    assert (result["redundant"]["calls"], result["redundant"]["by"][0]["outcome"]) == (truth["retries"], "failed")
    names = dict(zip(graph.members.name, graph.ranks.tolist(), strict=True))
    offset = {name: graph.clock.offset_ns[rank] / MS for name, rank in names.items()}
    ahead = {name: offset[name] - offset["router"] for name in ("shard-1", "shard-2", "ranker")}
    known = {"shard-1": truth["skew_ms"]["shard-1"], "shard-2": truth["skew_ms"]["shard-2"], "ranker": 8}
    assert ahead == pytest.approx(known, abs=4)
    search = graph.ops.name == graph.names.index("shard search")
    usual = {name: np.median(graph.work_ns[search & (graph.ops.rank == rank)]) for name, rank in names.items() if "-" in name}
    assert max(usual, key=usual.__getitem__) == truth["slow"]


@pytest.mark.parametrize("shape", ["deep", "wide", "failing"])
def test_large_hostile_forests_cost_no_more_than_their_size(shape: str) -> None:
    """A chain of thousands, thousands of identical calls, thousands of failures of one name: quadratic work would show."""
    spans, up = Spans(), ""
    up = spans.add("a", "root", 0, 100_000)
    for number in range(8_000):
        attributes = {"gen_ai__operation__name": "chat", "gen_ai__request__model": "m", "gen_ai__input__messages": "p"}
        if shape == "deep":
            up = spans.add("a", "chat m", number / 100, 90_000 - number / 100, up, gen_ai__usage__input_tokens=1, **attributes)
        else:
            attributes["gen_ai__input__messages"] = "p" if shape == "wide" else str(number)
            spans.add("a", "chat m", number, number + 0.5, up, kind=CLIENT, failed=shape == "failing", **attributes)
    trace = spans.trace()
    assert trace.counts["spans"] == 8_001
    assert len(trace.actions) == {"deep": 0, "wide": 8_000, "failing": 0}[shape]


def test_answers_of_tempo() -> None:
    spans = Spans()
    root = spans.add("web", "handle", 0, 10, kind=SERVER)
    spans.add("web", "work", 2, 8, root)
    plain = spans.documents()[0]
    for document in ({"batches": plain["resourceSpans"]}, {"trace": plain}):
        data = json.dumps(document, indent=1).encode()
        assert otlp.sniff(data)
        assert rows(otlp.gather([otlp.load(data, "t")], [], name="t", source="t")) == rows(spans.trace())
