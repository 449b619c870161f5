"""Write the files that ``bench/readers.py`` measures, one for every reader of JSON.

    python bench/reader_files.py FOLDER [DATA]

Real ones where a folder of real data is given that has them (Kineto, execution traces, Chakra, ``sacct --json``, jobs);
else as the program that a reader is for writes them: events of Kubernetes as ``kubectl get events -o json`` prints them, the
samples of ``bench/metrics.py`` as JSON lines and as Prometheus answers them, the spans of ``bench/otlp_size.py``.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tarfile
from pathlib import Path
from typing import Any

import otlp_size
import reader_rows as rows
from metrics import inputs

PODS, ROUNDS = 8, 420
STORY = (
    ("Scheduled", "Successfully assigned ml/{pod} to {node}"), ("Pulling", 'Pulling image "registry.example/train:2.3"'),
    ("Pulled", 'Successfully pulled image "registry.example/train:2.3" in 1.2s'), ("Created", "Created container pytorch"),
    ("Started", "Started container pytorch"), ("BackOff", "Back-off restarting failed container pytorch in pod {pod}"),
)  # fmt: skip


def event(number: int, pod: str, node: str, reason: str, message: str, second: int) -> dict[str, Any]:
    """One event with the fields that the server fills in."""
    at = f"2026-01-{1 + second // 86_400:02}T{second // 3600 % 24:02}:{second // 60 % 60:02}:{second % 60:02}Z"
    uid = f"{number * 2654435761 % 2**32:08x}-0000-4000-8000-{number:012x}"
    return {
        "apiVersion": "v1", "count": 1, "eventTime": None, "firstTimestamp": at,
        "involvedObject": {
            "apiVersion": "v1", "fieldPath": "spec.containers{pytorch}", "kind": "Pod", "name": pod, "namespace": "ml",
            "resourceVersion": str(100_000 + number), "uid": uid,
        },
        "kind": "Event", "lastTimestamp": at, "message": message.format(pod=pod, node=node),
        "metadata": {
            "creationTimestamp": at, "name": f"{pod}.{number:016x}", "namespace": "ml",
            "resourceVersion": str(100_000 + number), "uid": uid,
        },
        "reason": reason, "reportingComponent": "kubelet", "reportingInstance": node,
        "source": {"component": "kubelet", "host": node}, "type": "Normal",
    }  # fmt: skip


def events() -> bytes:
    """Jobs of some pods, each of which is restarted many times."""
    found = [
        (f"llama-{turn // 60}-worker-{pod}", f"n{pod}", reason, message, 60 * turn + 3 * place + pod)
        for turn in range(ROUNDS) for pod in range(PODS) for place, (reason, message) in enumerate(STORY)
    ]  # fmt: skip
    items = [event(number, *one) for number, one in enumerate(found)]
    return json.dumps({"apiVersion": "v1", "items": items, "kind": "List"}, indent=4).encode()


REAL = {
    "kineto-device.json": ("kineto-single/df_index_resolver.json.gz", ""),
    "kineto-host.json": ("kineto-single/resnet_kineto.json.gz", ""),
    "kineto-ns.json": ("kineto-single/ns_resolution.pt.trace.json.gz", ""),
    "chakra.json": ("chakra/json_trace.tar.gz", "jsonData/chakra.0.json"),
    "chakra.et": ("chakra/feeder_tests_trace.tar.gz", "tests/data/chakra.0.et"),
    "execution.json": ("dlrm-8rank/dlrm_pytorch_et.tar.gz", "dlrm_pytorch_et/dlrm_eg_0.json"),
    "jobs-real.json": ("philly-restarts/jobs.json", ""),
}
"""Name here → file, and which member of it."""
SACCT, SACCT_TIMES = "slurm/sacct.json", 170


def real(data: Path, name: str) -> bytes:
    """A real file, inflated."""
    path, member = REAL[name]
    if member:
        with tarfile.open(data / path) as archive:
            file = archive.extractfile(member)
            assert file is not None, f"{member} is no file"
            return file.read()
    found = (data / path).read_bytes()
    return gzip.decompress(found) if path.endswith(".gz") else found


def accounts(data: Path) -> bytes:
    """What ``sacct --json`` printed of some jobs, repeated for many."""
    found = json.loads((data / SACCT).read_bytes())
    copies = [{**job, "job_id": job["job_id"] + 1000 * turn} for turn in range(SACCT_TIMES) for job in found["jobs"]]
    return json.dumps({**found, "jobs": copies}, indent=2).encode()


def main() -> None:
    """Write them all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("data", type=Path, nargs="?", help="a folder of real files")
    given = parser.parse_args()
    given.folder.mkdir(exist_ok=True, parents=True)
    shapes, actions = inputs(), rows.acted(60_000)
    files = {
        "events.json": events(), "matrix.json": shapes["answer of Prometheus"], "samples.jsonl": shapes["JSON lines"],
        "jobs.json": rows.jobs(30_000, hosts=False), "jobs-hosts.json": rows.jobs(30_000, hosts=True),
        "matrix-short.json": rows.series(512, 320), "flight_rank0.json": rows.dump(20_000),
        "inspector.jsonl": rows.inspected(12_000), "audit.jsonl": rows.audited(12_000), "actions.jsonl": rows.lines(actions),
        "actions.json": json.dumps(actions).encode(), "progress.jsonl": rows.progressed(60_000),
        "jaeger.json": rows.jaeger(2000), "zipkin.json": rows.zipkin(2000),
        "langfuse.jsonl": rows.observed(10_000), "karpenter.jsonl": rows.claimed(60_000),
    }  # fmt: skip
    if given.data is not None:
        files |= {name: real(given.data, name) for name in REAL if (given.data / REAL[name][0]).exists()}
        if (given.data / SACCT).exists():
            files["sacct.json"] = accounts(given.data)
    for name, content in files.items():
        (given.folder / name).write_bytes(content)
    otlp_size.write(given.folder / "spans.jsonl", 3000)


if __name__ == "__main__":
    main()
