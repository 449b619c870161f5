"""Attempts found in spans: retries, fallbacks, duplicates and hedges, and what they cost on the graph."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from spans import BASE, CLIENT, MS, SERVER, Spans, chat
from taut.core.tables import Trace
from taut.diagnose.discarded_calls import redundant, thrown_away
from taut.ledger import Prices
from taut.run import analyze_trace


def action_rows(trace: Trace) -> list[tuple[Any, ...]]:
    a = trace.actions
    return list(
        zip(a.layer, a.knob, a.attempt.tolist(), a.parent.tolist(), a.trigger, a.outcome, a.tokens_in.tolist(), strict=True)
    )


def test_a_failed_call_that_is_made_again_is_a_retry() -> None:
    """By number, by link, and by its name; the same name asking something else is no retry."""
    spans = Spans()
    root = spans.add("web", "handle", 0, 100, kind=SERVER)
    for number, failed in enumerate((True, True, False)):
        begin = 10 * number
        spans.add("web", "GET", begin, begin + 5, root, kind=CLIENT, failed=failed, error__type="503" if failed else "",
                  http__request__resend_count=number)  # fmt: skip
    first = spans.add("web", "put", 40, 45, root, failed=True)
    other = spans.add("web", "later", 50, 60, root)
    spans.add("web", "put", 51, 52, other, links=(first,))
    for number, asks in enumerate(("a", "a", "b")):
        spans.add(
            "web", "SELECT", 70 + 5 * number, 73 + 5 * number, root, kind=CLIENT, failed=number != 2, db__query__text=asks
        )
    trace = spans.trace()
    assert [row[:6] for row in action_rows(trace)] == [
        ("retry", "attempt", 0, -1, "", "failed"), ("retry", "attempt", 1, 0, "503", "failed"),
        ("retry", "attempt", 2, 1, "503", "kept"), ("retry", "attempt", 0, -1, "", "failed"),
        ("retry", "attempt", 1, 3, "error", "kept"), ("retry", "attempt", 0, -1, "", "failed"),
        ("retry", "attempt", 1, 5, "error", "failed"),
    ]  # fmt: skip
    assert thrown_away(trace.actions).tolist() == [True, True, False, True, False, True, False]
    assert len(set(trace.actions.work)) == 3
    assert not any("guessed" in line for line in trace.partial)


def test_a_retry_known_by_its_name_alone_is_reported_as_a_guess() -> None:
    spans = Spans()
    root = spans.add("web", "handle", 0, 100)
    spans.add("web", "fetch", 0, 5, root, failed=True)
    spans.add("web", "fetch", 10, 15, root)
    assert "1 retries are guessed" in " ".join(spans.trace().partial)


def test_fallbacks_duplicates_and_hedges_are_told_apart() -> None:
    spans = Spans()
    turn = spans.add("agent", "invoke_agent a", 0, 200, gen_ai__operation__name="invoke_agent")
    chat(spans, turn, 0, "plan", failed=True)
    chat(spans, turn, 10, "plan", model="m-2")
    chat(spans, turn, 20, "write")
    chat(spans, turn, 30, "write")
    chat(spans, turn, 40, "race")
    chat(spans, turn, 42, "race")
    chat(spans, turn, 60, "unlike")
    trace = spans.trace()
    assert [row[:2] + row[5:] for row in action_rows(trace)] == [
        ("retry", "attempt", "failed", 100), ("fallback", "model", "kept", 100), ("retry", "attempt", "kept", 100),
        ("model", "repeat", "duplicate", 100), ("retry", "attempt", "kept", 100), ("retry", "hedge", "lost", 100),
    ]  # fmt: skip
    assert (trace.actions.before[1], trace.actions.after[1]) == ("m-1", "m-2")
    found = redundant(trace)
    assert found is not None
    assert (found["calls"], found["of_calls"], found["busy_ns"]) == (3, 7, 15 * MS)
    assert (found["tokens_in"], found["tokens_out"], found["of_tokens_in"], found["of_tokens_out"]) == (300, 30, 700, 70)
    assert Prices(tokens_in=Decimal(3), tokens_out=Decimal(15), token_currency="USD").tokens(300, 30) == "0.001350"


def test_what_lies_inside_an_attempt_that_was_thrown_away_is_counted_once() -> None:
    """A tool that failed and was called again, with a model call of its own inside that was itself repeated."""
    spans = Spans()
    turn = spans.add("agent", "invoke_agent a", 0, 200)
    about = {"gen_ai__operation__name": "execute_tool", "gen_ai__tool__name": "t", "gen_ai__tool__call__arguments": "x"}
    first = spans.add("agent", "execute_tool t", 0, 50, turn, failed=True, **about)
    chat(spans, first, 1, "inner", failed=True)
    chat(spans, first, 10, "inner")
    second = spans.add("agent", "execute_tool t", 60, 110, turn, **about)
    chat(spans, second, 61, "other")
    found = redundant(spans.trace())
    assert found is not None
    assert (found["busy_ns"], found["tokens_in"], found["of_tokens_in"]) == (50 * MS, 200, 300)
    assert (found["calls"], found["share"]) == (2, 0.5)


def test_no_spans_no_redundancy() -> None:
    assert redundant(Trace(*(None,) * 5)) is None  # type: ignore[arg-type]


def retried() -> Spans:
    """A client that asks a model three times, with back-off of 20 and 40 ms; a second request is served at once."""
    spans = Spans()
    root = spans.add("client", "ask", 0, 200)
    for number, begin in enumerate((10, 50, 110)):
        spans.add("client", "chat m", begin, begin + 20, root, kind=CLIENT, failed=number < 2, error__type="503",
                  http__request__resend_count=number)  # fmt: skip
    other = spans.add("client", "ask", 100, 160, trace=2)
    spans.add("client", "chat m", 110, 130, other, kind=CLIENT, trace=2)
    return spans


def test_the_back_off_before_a_retry_is_control_overhead_of_whoever_tries_again() -> None:
    done = analyze_trace(retried().trace())
    assert done.ledger.closes
    assert done.ledger.by_fate["control overhead"] == (20 + 40) * MS
    assert done.result["control"]["overhead"]["by"] == {"client": 60 * MS}
    cells = done.ledger.cells
    assert set(cells.step[cells.action >= 0].tolist()) == {0}, "the other request, at the same time, has no part in it"


def test_work_for_an_attempt_that_failed_is_discarded_wherever_it_was_done() -> None:
    """A call of a service that asks a database, and a tool of the client itself, each tried twice."""
    spans = Spans()
    root = spans.add("client", "ask", 0, 200)
    for number, begin in enumerate((10, 50)):
        again: dict[str, Any] = {"failed": number == 0, "http__request__resend_count": number}
        call = spans.add("client", "GET /x", begin, begin + 20, root, kind=CLIENT, **again)
        served = spans.add("api", "GET /x", begin + 2, begin + 18, call, kind=SERVER)
        spans.add("api", "sql", begin + 5, begin + 9, served, kind=CLIENT)
        spans.add("client", "tool", begin + 90, begin + 110, root, **again)
    done = analyze_trace(spans.trace())
    assert done.ledger.closes
    # On the way 2, the service's own 12, the database's 4, the tool's 20; between the attempts 20 and 20.
    assert done.ledger.by_fate["discarded"] == (2 + 12 + 4 + 20) * MS
    assert done.ledger.by_fate["control overhead"] == (20 + 20) * MS
    assert done.result["control"]["discarded"]["by"] == {"client": 38 * MS}
    zones = {one["target"]: one["zone"] for one in done.result["control"]["relations"] if one["kind"] == "redundant work"}
    assert zones["client GET /x"]["ranks"] == [0, 1, 2]
    assert zones["client tool"]["ranks"] == [done.graph.ranks[done.graph.members.name == "client"][0]]
    assert not [line for line in done.result["job"]["partial"] if "act on" in line]


@settings(max_examples=40)
@given(st.lists(st.tuples(*[st.integers(0, 6)] * 3, st.booleans(), st.sampled_from("abc"), st.integers(1, 2)), max_size=14))
def test_the_ledger_closes_whatever_is_tried_again(calls: list[tuple[Any, ...]]) -> None:
    """Calls below calls, failing or not, at the same moments or not: nothing is counted twice."""
    spans = Spans()
    roots = {step: spans.add("a", "ask", 0, 60, trace=step) for step in (1, 2)}
    known = [(roots[step], step) for step in roots]
    for begin, length, below, failed, service, step in calls:
        parent, step = known[below] if below < len(known) else (roots[step], step)
        call = spans.add("a", "call", 5 * begin, 5 * begin + length, parent, kind=CLIENT, failed=failed, trace=step)
        known.append((spans.add(service, "serve", 5 * begin, 5 * begin + length, call, kind=SERVER, trace=step), step))
    done = analyze_trace(spans.trace())
    cells = done.ledger.cells
    assert (cells.rank_ns >= 0).all()
    assert int(cells.rank_ns.sum()) == done.ledger.total_rank_ns == len(done.graph.ranks) * done.observed.wall_ns


def test_the_zone_of_retries_is_their_request() -> None:
    zones = [one["zone"] for one in analyze_trace(retried().trace()).result["control"]["relations"]]
    assert zones
    for zone in zones:
        assert zone["ranks"] == [0, 1], "the client that tries again, and the model"
        assert tuple(zone["steps"]) == (0, 0)
        assert (zone["first_ns"], zone["last_ns"]) == (BASE + 10 * MS, BASE + 130 * MS)
