"""Scenario files: strict, with the line, the key and the way out; defaults are listed."""

from __future__ import annotations

import tomllib

import pytest

from taut.core.errors import InputRefused
from taut.project.training.scenario import Scenario, parse

TEXT = """\
name = "small"
[model]
layers = 24
hidden = 2304
heads = 24
sequence = 2048
[job]
global_batch = 512
micro_batch = 16
dp = 32
[device]
name = "a"
peak_tflops = 312
memory_gb = 80
memory_gb_per_s = 2039
[fabric]
name = "f"
[[fabric.tiers]]
name = "island"
devices = 8
gb_per_s = 300
"""


def parsed(text: str) -> tuple[Scenario, list[str]]:
    return parse(tomllib.loads(text), "s.toml", text)


def test_a_scenario_lists_what_it_took_by_default() -> None:
    scenario, defaults = parsed(TEXT)
    assert scenario.job.world == 32
    assert scenario.job.micro_batches == 1
    assert {"job.tp", "noise.spread", "device.load_w", "fabric.tiers[0].latency_us"} <= set(defaults)
    assert not {"name", "model.layers", "fabric.name"} & set(defaults)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("gb_per_s = 300", "gb_per_s = -3", "s.toml:21: fabric.tiers[0].gb_per_s: expected `float` > 0.0"),
        ("dp = 32", "dp = 32\nspeed = 3", "s.toml:11: no such key: job.speed; known here: global_batch, micro_batch"),
        ("hidden = 2304\n", "", "s.toml:2: model.hidden is missing"),
        ("layers = 24", 'layers = "x"', "s.toml:3: model.layers: expected `int`, got `str`"),
        ("dp = 32", "dp = 31", "s.toml:8: job.global_batch: 512 is no multiple of dp × micro_batch = 496"),
        ("hidden = 2304", "hidden = 9223372036854775807", "s.toml:4: model.hidden: expected `int` <= 1000000000000"),
        ("gb_per_s = 300", "gb_per_s = 3\noversubscription = 1e300", "oversubscription: expected `float` <= 1000000.0"),
        ("dp = 32", "dp = 32\nsteps_between_syncs = 5000", "job.steps_between_syncs: expected `int` <= 1000"),
        ("dp = 32", "dp = 16\ntp = 7", "job.tp: tp 7 does not divide 24 heads"),
        ("dp = 32", "dp = 16\npp = 27", "job.pp: 27 pipeline chunks (pp × virtual_pp) for 24 layers"),
    ],
)
def test_a_wrong_scenario_is_refused_with_line_key_and_remedy(old: str, new: str, message: str) -> None:
    with pytest.raises(InputRefused) as caught:
        parsed(TEXT.replace(old, new))
    assert message in str(caught.value)
    assert "; " in str(caught.value), "a way out"


@pytest.mark.parametrize(
    "key", ["device_per_1000_node_days", "software_per_1000_node_days", "pod_per_1000_pod_days", "checkpoint_s"]
)
def test_failures_beyond_all_measure_are_refused(key: str) -> None:
    with pytest.raises(InputRefused, match=rf"s.toml:23: failure.{key}: expected `float` <= 10+\.0"):
        parsed(TEXT + f"[failure]\n{key} = 9223372036854775807\n")
