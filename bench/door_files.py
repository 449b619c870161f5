"""Write files that ``bench/doors.py`` can measure where no large real one is at hand: ``python bench/door_files.py FOLDER``.

Events of Kubernetes as ``kubectl get events -o json`` prints them, and the samples of ``bench/metrics.py`` as JSON lines and
as Prometheus answers them.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

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


def main() -> None:
    """Write them all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    shapes = inputs()
    (folder / "events.json").write_bytes(events())
    (folder / "matrix.json").write_bytes(shapes["answer of Prometheus"])
    (folder / "samples.jsonl").write_bytes(shapes["JSON lines"])


if __name__ == "__main__":
    main()
