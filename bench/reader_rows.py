"""Rows of the files that ``bench/reader_files.py`` writes, each as its own program writes them."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import otlp_size

DAY = datetime(2026, 1, 1, tzinfo=UTC)
BASE_US = 1_752_867_229_000_000


def lines(rows: list[dict[str, Any]]) -> bytes:
    """One object a line."""
    return "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows).encode()


def jobs(count: int, hosts: bool) -> bytes:
    """A table of jobs of a cluster with their attempts; with hosts, what every attempt held."""
    rng = random.Random(0)
    out = []
    for number in range(count):
        at, attempts = DAY + timedelta(seconds=60 * number), []
        submitted = f"{at:%Y-%m-%d %H:%M:%S}"
        for _ in range(1 + int(rng.expovariate(2))):
            begin, at = at + timedelta(seconds=30), at + timedelta(seconds=60 + int(rng.expovariate(1e-3)))
            one: dict[str, Any] = {"start_time": f"{begin:%Y-%m-%d %H:%M:%S}", "end_time": f"{at:%Y-%m-%d %H:%M:%S}"}
            if hosts:
                gpus = [f"gpu{i}" for i in range(rng.choice((1, 1, 2, 4, 8)))]
                one["detail"] = [{"ip": f"m{rng.randrange(500)}", "gpus": gpus}]
            attempts.append(one)
        about: dict[str, Any] = {"id": f"application_1506638472019_{number}", "attempts": attempts, "submitted_time": submitted}
        out.append(about | ({"status": "Killed", "vc": "ee9e8c"} if hosts else {"num_gpus": 8, "runtime": 3221.05}))
    return json.dumps(out, indent=4).encode()


def series(count: int, samples: int) -> bytes:
    """An answer of Prometheus with many short series and the labels of an exporter in Kubernetes."""
    rng = random.Random(0)
    found = []
    for i in range(count):
        labels = {
            "__name__": "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DRIVER_VERSION": "535.129.03", "Hostname": f"gpu-node-{i // 8:03}",
            "UUID": f"GPU-604ac76c-d9cf-fef3-62e9-d92044ab{i:04}", "container": "exporter", "device": f"nvidia{i % 8}",
            "endpoint": "metrics", "gpu": str(i % 8), "instance": f"10.0.{i // 8}.7:9400", "job": "dcgm-exporter",
            "modelName": "NVIDIA H100 80GB HBM3", "namespace": "monitoring", "pod": f"dcgm-exporter-{i // 8:05x}",
        }  # fmt: skip
        values = [[1_700_000_000 + 15 * t, str(rng.randrange(40, 80))] for t in range(samples)]
        found.append({"metric": labels, "values": values})
    data = {"resultType": "matrix", "result": found}
    return json.dumps({"status": "success", "data": data}, separators=(",", ":")).encode()


def dump(count: int) -> bytes:
    """A flight-recorder dump."""
    entries = [
        {
            "collective_seq_id": i + 1, "input_dtypes": ["Float"], "input_sizes": [[65792 + i % 7]], "is_p2p": False,
            "op_id": i + 1, "output_dtypes": ["Float"], "output_sizes": [[65792]], "p2p_seq_id": 0, "pg_id": 0,
            "process_group": ["0", "default_pg"], "profiling_name": f"nccl:{('all_reduce', 'all_gather')[i % 2]}",
            "record_id": i, "retired": True, "state": "completed", "thread_id": "139649870084992", "thread_name": "python",
            "time_created_ns": 1_794_725_255_878_829_998 + 900_017 * i, "time_discovered_completed_ns": 0,
            "time_discovered_started_ns": 0, "timeout_ms": 1_800_000,
        }
        for i in range(count)
    ]  # fmt: skip
    config = {"": {"desc": "", "name": "", "ranks": str(list(range(8)))}}
    found = {"comm_lib_version": "2.21", "entries": entries, "pg_config": config, "rank": 0, "version": "2.10"}
    return json.dumps(found, separators=(",", ":")).encode()


def inspected(count: int) -> bytes:
    """A verbose log of NCCL's Inspector."""
    rows = []
    for i in range(count):
        at = BASE_US + 1000 * i
        kernels = [
            {"channel_id": c, "kernel_start_ts": at + c, "kernel_stop_ts": at + 700 - c, "kernel_record_ts": at + 700}
            for c in range(2)
        ]
        rows.append({
            "header": {"id": "0x7f8c496ae9f661", "rank": 0, "n_ranks": 8, "nnodes": 1},
            "metadata": {
                "inspector_output_format_version": "v4.0", "git_rev": "", "rec_mechanism": "nccl_profiler_interface",
                "dump_timestamp_us": at + 1000, "hostname": "node0", "pid": 100,
            },
            "coll_perf": {
                "coll": ("AllReduce", "AllGather")[i % 2], "coll_sn": i // 2, "coll_msg_size_bytes": 1 << 20,
                "coll_exec_time_us": 700, "coll_timing_source": "kernel_gpu", "coll_algobw_gbs": 1.5, "coll_busbw_gbs": 1.5,
                "event_trace_ts": {"coll_start_ts": at - 20, "coll_stop_ts": at - 15, "kernel_events": kernels},
            },
        })  # fmt: skip
    return lines(rows)


def audited(count: int) -> bytes:
    """An audit log of Kubernetes: what is watched and kept alive, and now and then somebody who scales."""
    rows = []
    for i in range(count):
        at = f"{DAY + timedelta(milliseconds=250 * i):%Y-%m-%dT%H:%M:%S.%f}Z"
        scales, name = i % 4 == 0, f"web-{i % 16}"
        spec = {"replicas": 1 + i % 5} if scales else {"holderIdentity": "node-7", "leaseDurationSeconds": 40}
        meta = {
            "name": name, "namespace": "ml", "uid": f"{i:08x}-0000-4000-8000-000000000000", "resourceVersion": str(i),
            "creationTimestamp": "2025-12-01T00:00:00Z",
            "managedFields": [
                {"manager": "kubectl-edit", "operation": "Update", "apiVersion": "apps/v1", "time": "2025-12-01T00:00:00Z",
                 "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {}, "f:template": {"f:spec": {}}}}},
                {"manager": "hpa", "operation": "Update", "apiVersion": "apps/v1", "time": f"{at[:19]}Z"},
            ],
        }  # fmt: skip
        resource = "deployments" if scales else "leases"
        body = {"kind": "Scale" if scales else "Lease", "apiVersion": "v1", "metadata": meta, "spec": spec}
        rows.append({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "RequestResponse", "auditID": meta["uid"],
            "stage": "ResponseComplete", "requestURI": f"/apis/apps/v1/namespaces/ml/{resource}/{name}", "verb": "update",
            "user": {"username": "system:serviceaccount:kube-system:hpa", "groups": ["system:authenticated"]},
            "sourceIPs": ["10.0.0.7"], "userAgent": "kube-controller-manager/v1.29 (linux/amd64) kubernetes/abc",
            "objectRef": {"resource": resource, "namespace": "ml", "name": name, "apiVersion": "v1",
                          **({"subresource": "scale"} if scales else {})},
            "responseStatus": {"metadata": {}, "code": 200}, "requestObject": body, "responseObject": body,
            "requestReceivedTimestamp": at, "stageTimestamp": at,
            "annotations": {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": "RBAC: allowed"},
        })  # fmt: skip
    return lines(rows)


def acted(count: int) -> list[dict[str, Any]]:
    """Actions of a controller, with all columns."""
    return [
        {
            "time": f"{DAY + timedelta(milliseconds=1250 * i):%Y-%m-%dT%H:%M:%S.%f}Z", "layer": "autoscaler",
            "controller": f"hpa-{i % 3}", "target": f"deployment/ml/web-{i % 16}", "knob": "replicas", "before": i % 5,
            "after": (i + 1) % 5, "trigger": "cpu above 80 %", "work": f"request-{i // 3}", "attempt": i % 3,
            "outcome": "kept", "busy_ms": 125.5, "accelerators": 8,
        }
        for i in range(count)
    ]  # fmt: skip


def progressed(count: int) -> bytes:
    """A progress log, as trainers write them."""
    rng = random.Random(0)
    return lines([
        {
            "step": i, "loss": round(2.0 + rng.random(), 6), "lr": 3e-4, "grad_norm": round(rng.random(), 5),
            "tokens": 4_194_304, "rank": 0, "time": 1_700_000_000.25 + 1.5 * i, "tokens_per_s": 2_796_202.7, "mfu": 0.41,
        }
        for i in range(count)
    ])  # fmt: skip


def _tag(key: str, value: str) -> dict[str, str]:
    return {"key": key, "type": "string", "value": value}


def jaeger(requests: int) -> bytes:
    """Traces as Jaeger's UI saves them: the spans of ``bench/otlp_size.py``."""
    traces: dict[str, dict[str, Any]] = {}
    for (service, instance), mine in otlp_size.spans(requests).items():
        for one in mine:
            trace = traces.setdefault(one["traceId"], {"traceID": one["traceId"], "spans": [], "processes": {}})
            process = f"{service}-{instance}"
            trace["processes"][process] = {
                "serviceName": service,
                "tags": [{"key": "hostname", "type": "string", "value": process}],
            }
            up = (
                [{"refType": "CHILD_OF", "traceID": one["traceId"], "spanID": one["parentSpanId"]}]
                if one["parentSpanId"]
                else []
            )
            tags = [
                {"key": pair["key"], "type": "string", "value": next(iter(pair["value"].values()))}
                for pair in one["attributes"]
            ]
            kind = {"key": "span.kind", "type": "string", "value": "client" if one["kind"] == 3 else "server"}
            trace["spans"].append({
                "traceID": one["traceId"], "spanID": one["spanId"], "operationName": one["name"], "references": up,
                "startTime": int(one["startTimeUnixNano"]) // 1000, "tags": [kind, *tags], "logs": [], "processID": process,
                "duration": (int(one["endTimeUnixNano"]) - int(one["startTimeUnixNano"])) // 1000, "warnings": None,
            })  # fmt: skip
    return json.dumps({"data": list(traces.values()), "total": 0}).encode()


def zipkin(requests: int) -> bytes:
    """Traces as Zipkin's server answers them: the spans of ``bench/otlp_size.py``, each with both of its endpoints."""
    traces: dict[str, list[dict[str, Any]]] = {}
    for (service, instance), mine in otlp_size.spans(requests).items():
        for one in mine:
            tags = {pair["key"]: str(next(iter(pair["value"].values()))) for pair in one["attributes"]}
            begin = int(one["startTimeUnixNano"]) // 1000
            traces.setdefault(one["traceId"], []).append({
                "traceId": one["traceId"], **({"parentId": one["parentSpanId"]} if one["parentSpanId"] else {}),
                "id": one["spanId"], "kind": "CLIENT" if one["kind"] == 3 else "SERVER", "name": one["name"],
                "timestamp": begin, "duration": int(one["endTimeUnixNano"]) // 1000 - begin,
                "localEndpoint": {"serviceName": service, "ipv4": f"10.0.0.{instance}"},
                "remoteEndpoint": {"ipv4": "10.0.1.7", "port": 51_818}, "tags": tags,
            })  # fmt: skip
    return json.dumps(list(traces.values()), separators=(",", ":")).encode()


def observed(turns: int) -> bytes:
    """Observations of Langfuse, a turn of an agent of four: prompts of a kilobyte."""
    out = []
    for turn in range(turns):
        for place, kind in enumerate(("SPAN", "GENERATION", "TOOL", "GENERATION")):
            at = f"2026-01-{1 + turn // 86_400 % 28:02}T{turn // 3600 % 24:02}:{turn // 60 % 60:02}:{turn % 60:02}"
            out.append({
                "id": f"{turn}-{place}", "traceId": f"t{turn}", "projectId": "p", "type": kind, "name": f"{kind} {place}",
                "startTime": f"{at}.{100 * place:03}Z", "endTime": f"{at}.{100 * place + (999 - 300 if not place else 90):03}Z",
                "parentObservationId": f"{turn}-0" if place else None, "level": "DEFAULT", "statusMessage": None,
                "model": "m-1" if kind == "GENERATION" else None,
                "input": {"messages": [{"role": "user", "content": f"{turn} " * 150}]},
                "output": "yes " * 100, "usageDetails": {"input": 900, "output": 100, "total": 1000}, "metadata": {"a": "b"},
            })  # fmt: skip
    return b"\n".join(json.dumps(one).encode() for one in out)


def claimed(lines: int) -> bytes:
    """A log of Karpenter: of eight lines one creates a node and one deletes it."""
    words = ("found provisionable pod(s)", "created nodeclaim", "launched nodeclaim", "registered nodeclaim",
             "initialized nodeclaim", "disrupting via consolidation delete, terminating 1 nodes", "tainted node",
             "deleted nodeclaim")  # fmt: skip
    out = []
    for line in range(lines):
        claim = {"name": f"gpu-{line // 8:05x}"}
        out.append(json.dumps({
            "level": "INFO", "time": f"2026-01-01T{line // 3600 % 24:02}:{line // 60 % 60:02}:{line % 60:02}.123Z",
            "logger": "controller", "message": words[line % 8], "commit": "901a5dc", "controller": "nodeclaim.lifecycle",
            "controllerGroup": "karpenter.sh", "controllerKind": "NodeClaim", "NodeClaim": claim, "NodePool": {"name": "gpu"},
            "namespace": "", "name": claim["name"], "reconcileID": f"{line:032x}", "provider-id": f"aws:///us-east-1a/i-{line:017x}",
        }))  # fmt: skip
    return "\n".join(out).encode()
