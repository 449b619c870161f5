"""Fuzzing of single parsers by bytes, guided by the coverage of their Python; needs atheris, which stays optional.

A parser is a reader of ``taut.read`` by its module: ``sniff`` never raises, ``load`` loads or refuses. New sites of
exceptions are printed and kept as they are found, and the run goes on; a hang, a crash or too much memory ends it.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

SEEDED: dict[str, str] = {
    "flight.pickles": "flight_pickle",
    "chakra.reader": "chakra_proto",
    "chakra.json_nodes": "chakra_json",
    "jobs.training_log": "training_logs",
    "jobs.slurmctld": "slurmctld",
    "jobs.sacct": "sacct",
    "jobs.sacct_json": "sacct_json",
    "actions.action_lines": "action_lines",
    "actions.action_table": "action_csv",
    "actions.ray_serve": "ray_serve",
    "metrics.prometheus_text": "metric_texts",
    "metrics.reader": "metric_csv",
    "actions.kube_audit": "kube_audit",
    "jobs.kubernetes_events": "kubernetes",
    "jobs.job_table": "job_tables",
    "jobs.progress_log": "progress",
    "flight.inspector": "inspector",
    "flight.reader": "flight_json",
    "otlp.reader": "otlp",
    "chakra.execution": "execution",
    "kineto.reader": "kineto",
    "xplane.reader": "xplane",
    "xplane.trace_json": "xla_viewer",
    "dates": "sacct",
    "jobs.log_lines": "training_logs",
}
"""Modules of the reading room, and the seeds that start them."""


def guided(name: str, minutes: float, seed: int) -> int:
    """Fuzz one parser for some minutes (one, if not given)."""
    if name not in SEEDED:
        print(f"no such parser: {name}; one of {', '.join(SEEDED)}", file=sys.stderr)
        return 2
    try:
        import atheris
    except ImportError:
        print("atheris is not installed: pip install atheris", file=sys.stderr)
        return 2
    with atheris.instrument_imports(include=["taut.read"], enable_loader_override=False):
        module = importlib.import_module(f"taut.read.{name}")
    corpus = Path(tempfile.mkdtemp(prefix=f"taut-{name}-"))
    _sown(name, corpus)
    parser, known = _parser(name, module), set[str]()
    options = [
        f"-max_total_time={max(1, int(60 * (minutes or 1)))}",
        "-timeout=10",
        "-rss_limit_mb=3000",
        f"-seed={seed + 1}",
        "-max_len=4096",
    ]
    atheris.Setup(
        [sys.argv[0], *options, f"-artifact_prefix={corpus}/", str(corpus)], lambda data: _tried(parser, data, known, corpus)
    )
    print(f"corpus and findings: {corpus}", file=sys.stderr)
    atheris.Fuzz()
    return 1 if known else 0


def _sown(name: str, corpus: Path) -> None:
    from fuzzing import logs, seeds

    make = getattr(seeds, SEEDED[name], None) or getattr(logs, SEEDED[name])
    for k, one in enumerate(make()):
        for file in one.changed:
            (corpus / f"{k}-{Path(file).name}").write_bytes(one.files[file])


def _parser(name: str, module: Any) -> Any:
    """How a module is asked for what bytes hold."""
    if name == "flight.pickles":
        return lambda data: module.plain(data, "x")
    if name == "dates":
        return lambda data: module.same_form_ns(data.decode("utf-8", "replace").split("\n"))
    if name == "jobs.log_lines":
        return lambda data: [
            module.time_of(line, module.year_of(data) or 2026) for line in data.decode("utf-8", "replace").split("\n")
        ]
    if name == "metrics.prometheus_text":
        return lambda data: module.load(data, "x") if module.sniff(data) else None
    if not hasattr(module, "sniff"):
        return lambda data: module.load(data, "x")
    return lambda data: (module.sniff(data), module.load(data, "x"))


def _tried(parser: Any, data: bytes, known: set[str], out: Path) -> None:
    from fuzzing.judge import site
    from taut.core.errors import TautError

    try:
        parser(data)
    except TautError:
        return
    except Exception as error:
        where = site(error)
        if where not in known:
            known.add(where)
            path = out / f"found-{len(known)}"
            path.write_bytes(data)
            print(f"\nfound: {where}: {str(error)[:100]}\n  {path} ({os.path.getsize(path)} bytes)", file=sys.stderr)
