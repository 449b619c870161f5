"""No pattern, no sniffer and no reader takes time that grows with the square of what it is given."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache, partial
from itertools import chain
from typing import Any

import pytest

import taut
from taut.core.errors import TautError
from taut.read import load

SIZE = 64 << 10
MOST_S = 0.5
"""Generous: what is linear takes a hundredth of it, what is quadratic some seconds."""
PARTS = (32, 8, 3)
"""Parts of the text that are tried first. What takes less than a 64th of the time with an eighth of the text takes less than
the time with all of it, even if it is quadratic; what is worse than quadratic takes longer with a part too."""
UNITS = (
    " ", "\n", "\t", '"', "'", "[", "{", "(", "]", "}", "\\", "0", "9", ",", "a", "A", "-", ".", ":", "=", "/", "_", "#", "\r",
    '" ', "[ ", "{ ", ", ", " \n", "a ", "a.", "a=", "1.", "1,", "1-", "a:", "[1", '{"', '"a":', "} ", "},", '\\"', "\x1b[",
    "},{", "n[1],", ",[", "gpu ", "rank", "-1", "::", "->", "a->", "JobId=1 ", "step 1 ", "step ", "for ", '"ph" ', "uid ",
)  # fmt: skip
PREFIXES = ("[", "{", '"', "[{", "a", "1", "{a=", '{"a":', "# TYPE a")


@lru_cache(4)
def texts(size: int = SIZE) -> list[str]:
    """64 kB of one sign, or of a few in turns, and the same behind something that opens."""
    opened = [prefix + unit * size for prefix in PREFIXES for unit in ' "\\a']
    return [*((unit * size)[:size] for unit in UNITS), *opened]


def modules() -> Iterator[Any]:
    for found in pkgutil.walk_packages(taut.__path__, "taut."):
        if not found.name.startswith("taut.lab") and not found.name.endswith("__main__"):
            yield importlib.import_module(found.name)


def inside(value: Any, depth: int = 4) -> Iterator[re.Pattern[Any]]:
    """Patterns in constants, and in the tuples, lists and tables that constants are made of."""
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, (tuple, list, set, frozenset, dict)) and depth:
        for one in chain(value, value.values() if isinstance(value, dict) else ()):
            yield from inside(one, depth - 1)


@lru_cache(1)
def patterns() -> dict[str, tuple[str, re.Pattern[Any]]]:
    """Where it is → its name there, and the pattern, of every one that taut has."""
    found: dict[str, tuple[str, re.Pattern[Any]]] = {}
    for module in modules():
        for name, value in vars(module).items():
            for number, pattern in enumerate(inside(value)):
                found.setdefault(f"{module.__name__}.{name}[{number}]", (name, pattern))
    return found


@lru_cache(1)
def sources() -> dict[str, str]:
    return {module.__name__: inspect.getsource(module) for module in modules()}


@lru_cache(None)
def uses(module: str) -> tuple[set[str], set[str]]:
    """Names that are searched with, and names that are matched with, in the text of a module, or in that of all."""
    text = sources()[module] if module else "\n".join(sources().values())
    searched = re.findall(r"\b(\w+)(?=\.(?:search|sub|subn|findall|finditer|split)\b)", text)
    return set(searched), set(re.findall(r"\b(\w+)(?=\.(?:match|fullmatch)\()", text))


def quick(do: Callable[[], object]) -> bool:
    """Whether something takes little time; what taut refuses is well. The first time may import and compile: what is not
    linear is slow the second time too."""
    return any(_seconds(do) < MOST_S for _ in range(2))


def _seconds(do: Callable[[], object]) -> float:
    begin = time.process_time()
    with suppress(TautError):
        do()
    return time.process_time() - begin


@pytest.mark.parametrize("where", patterns())
def test_patterns_are_linear(where: str) -> None:
    name, pattern = patterns()[where]
    searches, matches = uses(where.rpartition(".")[0] if name.startswith("_") else "")
    searched = name in searches or name not in matches
    for row in zip(texts(), *(texts(SIZE // part) for part in PARTS), strict=True):
        text, *tried = [one.encode() for one in row] if isinstance(pattern.pattern, bytes) else row
        for ask in (pattern.match, pattern.fullmatch, *([pattern.search] if searched else [])):
            if not any(_seconds(partial(ask, one)) < MOST_S / part**2 for one, part in zip(tried, PARTS, strict=True)):
                assert quick(partial(ask, text)), f"{ask.__name__} of {text[:20]!r} …"


def readers() -> dict[str, Any]:
    return {one.name: one.reader for one in load.FORMATS}


@pytest.mark.parametrize("name", readers())
def test_sniffers_are_linear(name: str) -> None:
    for text in texts():
        assert quick(lambda text=text: readers()[name].sniff(text.encode())), f"{text[:20]!r} …"


DATE = "2024-01-01T00:00:00"
BEGINNINGS = {
    "kineto": (
        '{"traceEvents": [',
        '{"schemaVersion": 1, "traceEvents": [{"ph": "X", "name": "',
        '[{"ph": "X", "args": {"a": ',
    ),
    "flight": ('{"collective_seq_id": ', '{"pg_status": {}, "entries": [{"profiling_name": "', "\x80\x02"),
    "otlp": ('{"resourceSpans": [', '[{"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "'),
    "inspector": ('{"header": {}, "coll_perf": {"coll": "', '{"header": {}, "dump_stats": {}}\n'),
    "xla viewer": (
        '{"metadata":{"highres-ticks":true},"traceEvents":[{"name":"process_name","args":{"name":"/host:CPU"}},{"ph":"X","ts":',
    ),
    "xplane": ("\x0a\x7f\x12\x0d/device:GPU:0\x1a", "\x0a\x7f\x12\x09/host:CPU\x22"),
    "chakra": (
        '{"schema": "1.0.2-chakra", "nodes": [{"id": 1, "comp_node_attr": "',
        '{"nodes": [{"ctrl_deps": [1], "id": 1, "',
    ),
    "execution": ('{"schema": "1.0.1", "nodes": [', '{"schema": "1.0.1", "nodes": [{"name": "'),
    "kube audit": ('{"apiVersion": "audit.k8s.io/v1", "', '{"apiVersion": "audit.k8s.io/v1"}\n'),
    "jaeger": ('{"traceID": "a", "spans": [{"spanID": "b", "operationName": "', '{"data": [], "total": '),
    "zipkin": ('[{"traceId": "a", "localEndpoint": {}, "timestamp": 1, "name": "',),
    "agent spans": (
        '{"trace_id": "a", "parent_observation_id": null, "start_time": "',
        '{"context": {"trace_id": "a", "span_id": "b"}, "parent_id": null, "start_time": "x", "attributes": {"llm": "',
    ),
    "node autoscaler": (
        "I0301 00:00:01.000000 1 orchestrator.go:310] Final scale-up plan: [{",
        "I0301 00:00:01.000000 1 scale_down.go:1] Scale-down: removing node ",
        '{"logger": "controller", "message": "created nodeclaim", "nodeclaim": "',
        '{"logger": "controller", "message": "disrupting via a b, machine ',
    ),
    "action table": ("time,controller,target\n", '{"time": 1, "controller": "a", "target": "'),
    "ray serve": ("Upscaling Deployment(name=", "Autoscaling deployment "),
    "progress": ("step,loss\n", '{"step": 1, "loss": 2}\n'),
    "metrics": ("# TYPE a counter\n", "time,metric,value\n", '{"metric": "a", "value": 1}\n', '{"resultType": "matrix", '),
    "sacct": (
        "JobID|State|Start|End\n",
        "JobId=1 JobState=A StartTime=B ",
        "JobID State Start\n----- ----- -----\n",
        "1|COMPLETED|",
    ),
    "pbs": (
        "01/01/2026 00:00:00;E;7.head;",
        "01/01/2026 00:00:00;E;7.head;a=1\n",
        "01/01/2026 00:00:00;S;7;Resource_List.select=",
    ),
    "lsf": ('"JOB_FINISH" "10.1" 5 ', '"JOB_FINISH" "10.1" 5\n'),
    "sacct json": ('{"jobs": [], "job_id": "state" "time" ', '{"jobs": [{"job_id": 1, "state": {}, "time": {}, "name": "'),
    "slurmctld": (
        f"[{DATE}] JobId=1 ",
        f"[{DATE}] JobId=1\n",
        f"[{DATE}] _slurm_rpc_kill_job2: JobId=1 ",
        "Jan  1 00:00:00 head slurmctld[7]: ",
    ),
    "kubernetes": (
        '{"involvedObject": {}, "reason": "',
        '{"involvedObject": {}, "reason": ""}\n',
        "items:\n- involvedObject:\n    name: a\n  reason: b\n  message: '",
        "items:\n- involvedObject:\n    name: a\n  reason: b\n  message: |\n    ",
    ),
    "kubectl": (
        "LAST SEEN   TYPE   REASON   OBJECT   MESSAGE\n5m   Normal   Started   pod/a   ",
        "LAST SEEN   FIRST SEEN   COUNT   NAME\n",
        "Name:  a\nNamespace:  b\nContainers:\n  c:\n    State:  Waiting\nEvents:\n  Normal  Started  5m  kubelet  ",
    ),
    "job table": ('{"attempts": [{"start": ', "job,attempt,start,end\n"),
    "trainer state": (
        '{"global_step": 1, "log_history": [{"step": 1, "loss": ',
        '{"global_step": 1, "log_history": [], "a": "',
    ),
    "training log": ("torch.distributed.run ", "iteration 1 loss 2\niteration 2 loss 2\n", "torch.distributed.run\n[rank0]: "),
    "action lines": (f"{DATE} scheduler scale x=1->2\n", f"{DATE} scheduler scale x="),
    "op table": ("rank,step,class,start_ns,duration_ns\n",),
    "step times": ("worker,step,step_time_ms\n",),
}
OF_NO_PATTERN = {
    "nsys": "a database, which SQLite reads",
    "otf2": "an archive of several binary files",
}
"""Formats behind whose beginnings no text is read, and why."""


def test_every_format_has_beginnings_or_a_reason_for_none() -> None:
    told = sorted([*BEGINNINGS, *OF_NO_PATTERN])
    assert told == sorted(one.name for one in load.FORMATS), "put a new format into BEGINNINGS, or say in OF_NO_PATTERN why not"


@pytest.mark.parametrize("one", [one for one in load.FORMATS if one.begins], ids=lambda one: one.name)
def test_what_a_format_says_that_its_files_begin_with_holds(one: load.Format) -> None:
    for head in (text.encode("latin-1") for text in BEGINNINGS.get(one.name, ())):
        assert one.knows(head) == one.reader.sniff(head)
        assert not any(one.reader.sniff(other + head) for other in (b"x", b"1", b"\xff", b"#", b'"'))


@pytest.mark.parametrize(("name", "beginning"), [(name, one) for name, many in BEGINNINGS.items() for one in many])
def test_readers_are_linear(name: str, beginning: str) -> None:
    reader = readers()[name]
    for text in texts():
        data = (beginning + text).encode("latin-1")
        assert quick(lambda data=data: reader.load(data, "a_0.json")), f"{beginning!r} and {text[:20]!r} …"
