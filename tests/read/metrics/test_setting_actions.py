"""Series of settings: a change of replicas or of a limit is an action."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from action_rows import rows, trace_of
from taut.read.metrics.setting_actions import knob_of

START = 1_767_225_600


def matrix(*series: tuple[dict[str, str], list[float]]) -> str:
    result = [
        {"metric": labels, "values": [[START + 30 * i, f"{value:g}"] for i, value in enumerate(values)]}
        for labels, values in series
    ]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})


def test_changes_of_replicas_with_and_without_a_controller(tmp_path: Path) -> None:
    web = {"namespace": "ml", "deployment": "web", "instance": "10.0.0.1:8080", "job": "kube-state-metrics"}
    trace = trace_of(
        tmp_path,
        prom__json=matrix(
            ({"__name__": "kube_deployment_spec_replicas", **web}, [2, 2, 5, 3]),
            ({"__name__": "kube_deployment_status_replicas", **web}, [2, 2, 4, 3]),
            (
                {
                    "__name__": "kube_horizontalpodautoscaler_status_desired_replicas",
                    "namespace": "ml",
                    "horizontalpodautoscaler": "h",
                },
                [2, 5, 5, 5],
            ),
            ({"__name__": "DCGM_FI_DEV_GPU_UTIL", "gpu": "0", "Hostname": "n1"}, [10, 20, 30, 40]),
        ),
    )
    assert rows(trace.actions, "time_s", "controller", "target", "knob", "before", "after", "direction") == [
        (30.0, "horizontal-pod-autoscaler", "horizontalpodautoscaler/ml/h", "replicas", "2", "5", 1),
        (60.0, "", "deployment/ml/web", "replicas", "2", "5", 1),
        (90.0, "", "deployment/ml/web", "replicas", "5", "3", -1),
    ]
    assert trace.counts["unknown controllers"] == 2
    assert "clock steps" not in trace.counts


@pytest.mark.parametrize(
    ("name", "knob"),
    [
        ("kube_deployment_spec_replicas", "replicas"),
        ("kube_statefulset_replicas", "replicas"),
        ("kube_horizontalpodautoscaler_spec_max_replicas", "max_replicas"),
        ("kube_horizontalpodautoscaler_status_current_replicas", ""),
        ("kube_deployment_status_replicas_ready", ""),
        ("ray_serve_running_replicas", ""),
        ("kube_pod_container_resource_limits", "limit"),
        ("container_spec_cpu_quota", "limit"),
        ("DCGM_FI_DEV_POWER_MGMT_LIMIT", "power limit"),
        ("power_w", ""),
    ],
)
def test_what_is_set_and_what_is_observed(name: str, knob: str) -> None:
    assert knob_of(name) == knob


def test_settings_that_never_change_are_no_control_log(tmp_path: Path) -> None:
    from taut.core.errors import InputRefused

    with pytest.raises(InputRefused, match="only metrics"):
        trace_of(tmp_path, prom__json=matrix(({"__name__": "kube_deployment_spec_replicas", "deployment": "web"}, [2, 2])))
