"""OTLP/JSON spans under construction, for tests."""

from __future__ import annotations

import json
from typing import Any

from taut.core.tables import Trace
from taut.read.otlp import reader as otlp

MS = 1_000_000
BASE = 1_700_000_000_000_000_000
INTERNAL, SERVER, CLIENT, PRODUCER, CONSUMER = range(1, 6)


def attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
        for key, value in values.items()
    ]


class Spans:
    """Spans under construction, ms in, one resource per service instance."""

    def __init__(self) -> None:
        self.of: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
        self.count = 0

    def add(
        self, service: str, name: str, begin: float, end: float, parent: str = "", *, kind: int = INTERNAL, trace: int = 1,
        host: str = "h", instance: str = "", failed: bool = False, links: tuple[str, ...] = (), **values: Any,
    ) -> str:  # fmt: skip
        self.count += 1
        span = f"{self.count:016x}"
        entry = {
            "traceId": f"{trace:032x}", "spanId": span, "parentSpanId": parent, "name": name, "kind": kind,
            "startTimeUnixNano": str(BASE + round(begin * MS)), "endTimeUnixNano": str(BASE + round(end * MS)),
            "attributes": attributes({key.replace("__", "."): value for key, value in values.items()}),
            "status": {"code": 2} if failed else {},
            "links": [{"traceId": f"{trace:032x}", "spanId": other} for other in links],
        }  # fmt: skip
        self.of.setdefault((service, instance, host), []).append(entry)
        return span

    def documents(self) -> list[dict[str, Any]]:
        return [
            {
                "resourceSpans": [
                    {
                        "resource": {"attributes": attributes({"service.name": s, "service.instance.id": i, "host.name": h})},
                        "scopeSpans": [{"spans": spans}],
                    }
                ]
            }
            for (s, i, h), spans in self.of.items()
        ]

    def lines(self) -> bytes:
        return b"".join(json.dumps(d).encode() + b"\n" for d in self.documents())

    def trace(self) -> Trace:
        return otlp.gather([otlp.load(self.lines(), "t")], [], name="t", source="t")


def chat(spans: Spans, parent: str, begin: float, asks: str, model: str = "m-1", failed: bool = False, **more: Any) -> str:
    return spans.add(
        "agent", f"chat {model}", begin, begin + 5, parent, kind=CLIENT, failed=failed, gen_ai__operation__name="chat",
        gen_ai__request__model=model, gen_ai__input__messages=asks, gen_ai__usage__input_tokens=100,
        gen_ai__usage__output_tokens=10, **more,
    )  # fmt: skip
