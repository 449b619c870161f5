"""Failed spans come first in the verdict: what failed, how often, since when, and what to do."""

from __future__ import annotations

from spans import CLIENT, SERVER, Spans
from taut.run import analyze_trace


def job(failing: bool) -> Spans:
    spans = Spans()
    for request in range(12):
        begin = 100 * request
        bad = failing and request >= 4
        root = spans.add("web", "handle", begin, begin + 30, kind=SERVER, trace=request + 1, failed=bad)
        more = {"error__type": "timeout"} if bad else {}
        spans.add(
            "web", "ask", begin + 2, begin + 20, root, kind=CLIENT, trace=request + 1, failed=bad, peer__service="model", **more
        )
    return spans


def test_errors_come_before_what_is_slow() -> None:
    result = analyze_trace(job(failing=True).trace()).result
    assert result.verdict.text.startswith(
        "16 of 24 spans failed (67 %) in 8 of 12 requests, 8 of which failed as a whole, since 2023-11-14 22:13:20 UTC: "
        "8 of 12 model ask (timeout). That took 144 ms for nothing; model ask: compare its timeout with how long it takes when "
        "it succeeds. "
    )
    assert result.verdict.kind != "healthy"
    failed = result.failed
    assert (failed.began, failed.touched_requests, failed.by[0].spans) == (8, 8, 12)


def test_nothing_failed() -> None:
    assert analyze_trace(job(failing=False).trace()).result.failed is None
