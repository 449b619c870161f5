"""Keys of [failure] that are given as ranges, and the closed form that draws of them are asked with."""

from __future__ import annotations

from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from taut.core.errors import InputRefused
from taut.project.training.checkpoints import none_free, too_few
from taut.project.training.failures import WORK_S, expected_kept, kept_ratios, simulate_jobs, spare_nodes
from taut.project.training.job_history import PRODUCTIVE
from taut.project.training.scenario import Failure, parse
from taut.project.training.uncertain_keys import DEFAULTS, DRAWS, draws, middle
from taut.read.scenario_file import load


def parsed(**failure: Any) -> Failure:
    raw, text = load("gpt-175b")
    raw["failure"] = {"device_per_1000_node_days": 3.0, "checkpoint_s": 60, **failure}
    return parse(raw, "gpt-175b", text)[0].failure


def test_a_range_has_its_mode_or_its_geometric_mean_in_the_scenario() -> None:
    f = parsed(detect_s=[60, 90, 600], restore_s=[10.0, 1000.0], repair_hours=5)
    assert (f.detect_s, f.restore_s, f.repair_hours) == (90.0, pytest.approx(100.0), 5.0)
    ranges = dict(f.ranges)
    assert ranges["detect_s"] == (60.0, 90.0, 600.0)
    assert "repair_hours" not in ranges, "a plain number is known"
    assert ranges["reschedule_s"] == DEFAULTS["reschedule_s"][0], "a key that was not given has its default range"


def test_default_ranges_lie_around_the_defaults() -> None:
    for key, (ends, source) in DEFAULTS.items():
        assert middle(ends) == pytest.approx(getattr(Failure(), key))
        assert source


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"detect_s": [5]}, "is no range"),
        ({"detect_s": [9, 5]}, "from low to high"),
        ({"detect_s": [0, 5]}, "above 0"),
        ({"detect_s": [1, 2, "x"]}, "is no range"),
        ({"detect_s": [1, 2, 1e9]}, "detect_s"),
        ({"spares": [1, 2]}, "takes one number"),
        ({"ranges": [["detect_s", [1, 2]]]}, "no such key: failure.ranges"),
    ],
)
def test_what_is_no_range_is_refused_with_its_place(given: dict[str, Any], says: str) -> None:
    with pytest.raises(InputRefused, match=r"gpt-175b.*") as refused:
        parsed(**given)
    assert says in str(refused.value)


def test_draws_meet_every_part_of_a_range_once_and_are_repeatable() -> None:
    ranges = (("detect_s", (10.0, 1000.0)), ("restore_s", (0.0, 100.0, 200.0)))
    them = draws(ranges, 3)
    assert them == draws(ranges, 3)
    assert them != draws(ranges, 4)
    detect, restore = (np.sort([one[key] for one in them]) for key in ("detect_s", "restore_s"))
    assert np.allclose(np.diff(np.log(detect)), np.log(100) / len(them)), "log-uniform"
    assert np.mean(restore) == pytest.approx(100, rel=0.01)
    assert np.std(restore) == pytest.approx(200 / sqrt(24), rel=0.03), "of a symmetric triangle"
    assert draws((), 3) == []


CASES = {
    "spares as a share": Failure(device_per_1000_node_days=4.0, checkpoint_s=60, repair_hours=40, spares_share=0.01),
    "no spares": Failure(device_per_1000_node_days=1.0, software_per_1000_node_days=1.0, checkpoint_s=60, spares=0),
    "hidden saves": Failure(device_per_1000_node_days=6.0, checkpoint_s=300, checkpoint_overlap=1.0),
    "hourly saves": Failure(node_per_1000_node_days=4.0, checkpoint_s=60, checkpoint_every_s=3600, spares=8),
    "racks": Failure(node_per_1000_node_days=2.0, rack_per_1000_rack_days=2.0, checkpoint_s=60, spares=3, outage_hours=8),
    "cold and hot": Failure(
        node_per_1000_node_days=9.0, checkpoint_s=30, warmup_share=0.5, warmup_steps=60, heat_share=0.1, heat_steps=300
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_closed_form_is_the_mean_of_drawn_histories(name: str) -> None:
    f, nodes, step_s = CASES[name], 1024, 5.0
    them = simulate_jobs(f, nodes, 8, WORK_S, step_s=step_s, count=24, seed=5)
    useful = them.node_us[:, PRODUCTIVE] / (nodes * them.count("wall_us"))
    found = expected_kept(f, nodes, step_s)
    assert found.useful == pytest.approx(useful.mean(), abs=4 * useful.std() / sqrt(24) + 0.002)
    assert found.share - found.useful == pytest.approx(them.kept.mean - them.useful, abs=0.003)


def test_nothing_is_lost_where_nothing_fails() -> None:
    assert expected_kept(Failure(), 4096) == (1.0, 1.0)
    assert expected_kept(Failure(software_per_1000_node_days=1e5, checkpoint_s=1e6), 10**6) == (0.0, 0.0)


@pytest.mark.parametrize(("lines", "offered"), [(1, 0.3), (5, 2.0), (9, 40.0), (60, 50.0)])
def test_erlangs_formula_from_its_recursion(lines: int, offered: float) -> None:
    taken = 1.0
    for k in range(1, lines + 1):
        taken = offered * taken / (k + offered * taken)
    assert none_free(lines, offered) == pytest.approx(taken, rel=1e-9)
    assert too_few(lines - 1, [(1, offered / 2), (1, offered / 2)]) == pytest.approx(taken, rel=1e-9)


def test_without_spares_every_break_is_waited_for_however_large() -> None:
    assert too_few(0, [(1, 0.2), (8, 0.3)]) == pytest.approx(0.5 / 1.5)


def test_spares_as_a_share_grow_with_the_job_and_are_none_where_no_node_breaks() -> None:
    f = Failure(node_per_1000_node_days=1.0, spares_share=0.03)
    assert [spare_nodes(f, n) for n in (1, 100, 1000)] == [0, 3, 30]
    assert spare_nodes(replace(f, node_per_1000_node_days=0.0, software_per_1000_node_days=1.0), 1000) == 0
    assert spare_nodes(replace(f, spares=2), 1000) == 2


def test_draws_of_what_is_kept_lie_around_that_of_the_scenario_as_it_is() -> None:
    f = parsed(reschedule_s=[180, 420, 900])
    found = kept_ratios(f, 2048, 5.0, seed=1)
    assert len(found.share) == DRAWS
    assert found.share.min() < 1 < found.share.max()
    assert found.useful.tolist() == found.share.tolist(), "no warm-up, no heat"
    assert kept_ratios(replace(f, ranges=()), 2048).share.tolist() == [1.0]
    assert kept_ratios(parsed(device_per_1000_node_days=0.0), 2048).share.tolist() == [1.0], "nothing fails"


def test_the_documentation_has_the_default_ranges() -> None:
    text = (Path(__file__).parents[3] / "docs" / "availability.md").read_text(encoding="utf-8")
    for key, (ends, source) in DEFAULTS.items():
        assert f"| `{key}` | {getattr(Failure(), key):g} | {ends[0]:g}–{ends[1]:g} | {source} |" in text
