"""Tails of requests that fan out: as long as independent calls make them, or longer."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from taut.read.otlp import reader as otlp
from taut.run import Analysis, analyze_trace

MS = 1_000_000


def requests(seed: int, often: float, often_when_wide: float, together: bool = False, count: int = 380) -> Analysis:
    """Every other request asks two shards, the others eight; now and then a call takes ten times as long."""
    rng = np.random.default_rng(seed)
    spans: dict[str, list[dict[str, Any]]] = {}

    def add(service: str, trace: int, span: str, parent: str, kind: int, begin: float, end: float) -> None:
        entry = {
            "traceId": f"{trace}", "spanId": span, "parentSpanId": parent, "name": "ask", "kind": kind,
            "startTimeUnixNano": str(round((trace * 1000 + begin) * MS)),
            "endTimeUnixNano": str(round((trace * 1000 + end) * MS)),
        }  # fmt: skip
        spans.setdefault(service, []).append(entry)

    for trace in range(1, count + 1):
        wide = trace % 2 == 0
        chance = often_when_wide if wide else often
        pause, last = rng.random() < chance, 0.0
        for shard in range(8 if wide else 2):
            slow = pause if together else rng.random() < chance
            took = 10 * rng.lognormal(0, 0.05) * (10 if slow else 1)
            add("web", trace, f"c{shard}", "root", 3, 1, 1.4 + took)
            add(f"shard{shard}", trace, f"s{shard}", f"c{shard}", 2, 1.2, 1.2 + took)
            last = max(last, 1.4 + took)
        add("web", trace, "root", "", 2, 0, last + 1)
    parts = [
        {
            "resource": {
                "attributes": [
                    {"key": "service.name", "value": {"stringValue": service.rstrip("01234567")}},
                    {"key": "service.instance.id", "value": {"stringValue": service}},
                    {"key": "host.name", "value": {"stringValue": "h"}},
                ]
            },
            "scopeSpans": [{"spans": mine}],
        }
        for service, mine in spans.items()
    ]
    data = json.dumps({"resourceSpans": parts}).encode()
    return analyze_trace(otlp.gather([otlp.load(data, "t")], [], name="t", source="t"))


def inflated(done: Analysis) -> list[str]:
    return [f.because for f in done.findings if f.mode == "tail latency inflation"]


def test_calls_that_stall_when_many_are_made_at_once_inflate_the_tail() -> None:
    done = requests(1, 0.002, 0.012)
    because = inflated(done)
    assert len(because) == 1
    assert "among 8 ranks" in because[0]
    assert [row["fan_out"] for row in done.result["tails"]] == [2, 8]


@pytest.mark.parametrize("seed", range(3))
def test_independent_calls_do_not(seed: int) -> None:
    """Near miss: eight chances to be slow are more than two, and the prediction says so."""
    done = requests(seed, 0.02, 0.02)
    assert inflated(done) == []
    wide = done.result["tails"][1]
    assert wide["ratio"] == pytest.approx(wide["independent_ratio"], rel=0.25)
    assert wide["chance"] > 0.01


def test_calls_that_are_slow_together_are_told_from_independent_ones() -> None:
    """A shared pause of a tenth of the requests: independent calls would make most requests slow, and the tail short."""
    wide = requests(2, 0.02, 0.1, together=True).result["tails"][1]
    assert wide["ratio"] > 5
    assert wide["independent_ratio"] < 2
    assert wide["chance"] < 0.01
