"""An agent that records itself with OpenTelemetry: model calls, tools, a verification, and work done for nothing.

Each turn plans, searches (the search tool times out now and then and is called again), writes, and verifies. In some
turns the agent asks the model the very same twice; in some, a model is overloaded and a smaller one is asked instead.
What is thrown away is known exactly. Needs: pip install opentelemetry-exporter-otlp-json-file

    python otel_agent.py FILE [TURNS]      writes FILE and prints what is true
    taut analyze FILE --token-price 3.00,15.00USD
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from opentelemetry.exporter.otlp.json.file import FileSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer

LARGE, SMALL = "large-1", "small-1"
TIMES_OUT_EVERY, REPEATS_EVERY, OVERLOADED_EVERY = 3, 4, 5
CHAT_MS, TOOL_MS, OVERLOAD_MS = 8.0, 4.0, 2.0


class Agent:
    """Plans, acts, verifies; keeps the books of what it threw away."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer
        self.truth = {"calls": 0, "thrown_away": 0, "tokens_in": 0, "tokens_out": 0, "all_tokens_in": 0, "all_tokens_out": 0}

    @contextmanager
    def span(self, name: str, kind: SpanKind, operation: str, **told: Any) -> Iterator[Span]:
        """A span with the attributes of the generative AI conventions."""
        attributes = {f"gen_ai.{key.replace('__', '.')}": value for key, value in told.items()}
        with self.tracer.start_as_current_span(
            name, kind=kind, attributes={"gen_ai.operation.name": operation, **attributes}
        ) as span:
            yield span

    def chat(
        self, prompt: str, tokens: tuple[int, int], *, model: str = LARGE, overloaded: bool = False, wasted: bool = False
    ) -> None:
        """Ask a model. An overloaded one has read the prompt and writes nothing."""
        read, written = tokens[0], 0 if overloaded else tokens[1]
        with self.span(f"chat {model}", SpanKind.CLIENT, "chat", request__model=model, input__messages=prompt) as span:
            time.sleep((OVERLOAD_MS if overloaded else CHAT_MS) / 1000)
            span.set_attribute("gen_ai.usage.input_tokens", read)
            span.set_attribute("gen_ai.usage.output_tokens", written)
            if overloaded:
                span.set_attribute("error.type", "overloaded")
                span.set_status(StatusCode.ERROR)
        self.enter(read, written, wasted or overloaded)

    def tool(self, name: str, arguments: str, *, times_out: bool = False) -> None:
        """Use a tool."""
        with self.span(
            f"execute_tool {name}", SpanKind.INTERNAL, "execute_tool", tool__name=name, tool__call__arguments=arguments
        ) as span:
            time.sleep(TOOL_MS / 1000)
            if times_out:
                span.set_attribute("error.type", "timeout")
                span.set_status(StatusCode.ERROR)
        self.enter(0, 0, times_out)

    def enter(self, read: int, written: int, wasted: bool) -> None:
        """Keep the books."""
        for key, number in (("calls", 1), ("all_tokens_in", read), ("all_tokens_out", written)):
            self.truth[key] += number
        if wasted:
            for key, number in (("thrown_away", 1), ("tokens_in", read), ("tokens_out", written)):
                self.truth[key] += number

    def turn(self, number: int) -> None:
        """Answer one question."""
        with self.span("invoke_agent writer", SpanKind.INTERNAL, "invoke_agent", agent__name="writer"):
            self.chat(f"plan {number}", (200, 50))
            if number % TIMES_OUT_EVERY == 0:
                self.tool("search", f"about {number}", times_out=True)
            self.tool("search", f"about {number}")
            if number % OVERLOADED_EVERY == 0:
                self.chat(f"write {number}", (900, 300), overloaded=True)
                self.chat(f"write {number}", (900, 280), model=SMALL)
            else:
                self.chat(f"write {number}", (900, 300))
            if number % REPEATS_EVERY == 0:
                self.chat(f"plan {number}", (200, 50), wasted=True)
            self.chat(f"verify {number}", (1200, 20))


def run(file: Path, turns: int = 12) -> dict[str, int]:
    """Run the agent; returns what is true of it."""
    provider = TracerProvider(resource=Resource({"service.name": "writer-agent", "host.name": "laptop"}))
    provider.add_span_processor(BatchSpanProcessor(FileSpanExporter(str(file))))
    agent = Agent(provider.get_tracer("example"))
    for number in range(turns):
        agent.turn(number)
    provider.shutdown()
    return agent.truth


if __name__ == "__main__":
    where = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()) / "agent.jsonl"
    print(json.dumps(run(where, int(sys.argv[2]) if len(sys.argv) > 2 else 12), indent=1))
