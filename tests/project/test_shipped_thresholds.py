"""What makes the thresholds of shipped scenarios: each says what it is there to show."""

from __future__ import annotations

import pytest

from taut.project.marginal_gain import rule
from taut.project.threshold import explained_threshold
from taut.project.training.scenario import parse
from taut.project.training.workload import WORKLOAD
from taut.project.workload import DEFAULT
from taut.read.scenario_file import load
from taut.render.threshold_screen import made_by
from taut.result.types import Threshold


def explained(name: str) -> Threshold:
    s = parse(*load(name)[:1], name)[0]
    return explained_threshold(WORKLOAD, s, DEFAULT, rule(WORKLOAD, s, DEFAULT))


@pytest.mark.parametrize(
    ("name", "mechanism", "says"),
    [
        ("uneven-batches", "jitter", "a synchronisation number"),
        ("fixed-batch", "interconnect", "an interconnect number"),
        ("large-training", "failures", "a recovery number: with failures off none up to"),
    ],
)
def test_one_mechanism_makes_it(name: str, mechanism: str, says: str) -> None:
    found = explained(name)
    assert found.ranks
    assert found.made_by == mechanism
    assert found.without
    assert found.elasticity
    without, steep = dict(found.without), found.elasticity
    assert without.pop(mechanism) is None, "no limit up to the largest scale tried"
    assert all(ranks is not None and ranks < 1.5 * found.ranks for ranks in without.values()), "the others hardly matter"
    moved = {key: abs(one.value) if one else 0.0 for key, one in steep.items()}
    assert max(moved, key=lambda key: moved[key]) == mechanism
    assert says in made_by(found)


def test_best_intervals_and_spares_as_a_share_are_what_ships() -> None:
    """But where that a system does without them is the point of a scenario, as its sources say."""
    for name in ("gpt-175b", "power-hpc", "multi-tenant", "uneven-batches", "fixed-batch"):
        f = parse(*load(name)[:1], name)[0].failure
        assert (f.spares, f.checkpoint_every_s) == (None, 0.0)
        assert f.spares_share > 0
    for name, says in (("large-training", "as it is first built"), ("audit-cloud", "that is its point")):
        s = parse(*load(name)[:1], name)[0]
        assert s.failure.spares is not None
        assert any(says in source for source in s.about.sources)


def test_where_there_is_no_transition_that_is_said() -> None:
    assert made_by(explained("power-hpc")).startswith(" There is no transition up to 65,536 ranks.")
