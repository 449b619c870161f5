"""Repeats of one graph: differences of structure are listed exactly, differences of timing are tested."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from build import barriers, job
from taut.core.tables import Trace
from taut.diagnose.nondeterminism import Timing, same_graph_sets, timing, timing_finding
from taut.diagnose.repeats import Repeat, repeat, structure_differences
from taut.graph import link
from taut.replay.timeline import replay

SCRIPT = "fwd 5 | AR:64 2 | bwd 8 | AG:32 1"


def reduced(trace: Trace) -> Repeat:
    graph = link(trace)
    return repeat(graph, replay(graph).window_ns)


def run(scripts: Mapping[int, str] | None = None, steps: int = 6, **options: Any) -> Repeat:
    return reduced(job(scripts or {0: SCRIPT, 1: SCRIPT}, steps, **options))


def pace(level: float, seed: int, noise: float = 0.02, steps: int = 24) -> Repeat:
    """Three ranks that compute for about 10 ms times ``level`` and meet."""
    rng = np.random.default_rng(seed)
    return reduced(barriers(1e7 * level * rng.normal(1, noise, (steps, 3)), 1_000_000))


def test_a_repeat_has_no_difference_whatever_its_timing() -> None:
    assert structure_differences(run(noise=0.1, seed=1), run(noise=0.1, seed=2)) == []


def test_another_order_of_gates_is_named_with_rank_place_and_step() -> None:
    swapped = "fwd 5 | AG:32 1 | bwd 8 | AR:64 2"
    found = structure_differences(run(), run({0: swapped, 1: swapped}))
    assert [(u.what, u.rank, u.name, u.before, u.after) for u in found] == [
        ("gate order", rank, "all-reduce", "all-reduce 64 B in all", "all-gather 32 B in all") for rank in (0, 1)
    ]
    assert all(u.graph and u.steps == 6 for u in found)


def test_a_class_that_only_one_run_has_is_named() -> None:
    found = structure_differences(run(), run({0: SCRIPT, 1: SCRIPT + " | log 1"}))
    assert [(u.what, u.rank, u.name, u.before, u.after) for u in found] == [("class", 1, "log", None, 6)]


def test_another_count_is_named_and_leaves_the_graph_the_same() -> None:
    longer = job(lambda step: {0: SCRIPT, 1: SCRIPT + (" | fwd 1" if step == 3 else "")}, 6)
    (found,) = structure_differences(run(), reduced(longer))
    assert (found.what, found.rank, found.name, found.before, found.after) == ("count", 1, "fwd", 6, 7)
    assert (found.step, found.steps, found.graph) == (3, 1, False)


def test_a_missing_rank_is_another_graph() -> None:
    found = structure_differences(run(), run({0: SCRIPT, 1: SCRIPT, 2: SCRIPT}))
    assert [(u.what, u.rank) for u in found] == [("rank", 2)]


def test_the_rest_of_an_op_that_the_reader_cut_is_no_structure() -> None:
    ops = {0: "fwd 5 | AR 2", 1: "fwd 5 | AR 2"}
    cut = job({0: "fwd 5 | AR 2 | REST 1", 1: "fwd 5 | AR 2"}, 6)
    cut = Trace(**{**vars(cut), "names": [name.replace("REST", "bwd (after)") for name in cut.names]})
    assert structure_differences(run(ops), reduced(cut)) == []


def test_runs_are_repeats_if_their_graph_is_the_same() -> None:
    other = run({0: "fwd 5 | AG 2", 1: "fwd 5 | AG 2"})
    assert same_graph_sets([run(), other, run(seed=5, noise=0.1), other]) == [[0, 2], [1, 3]]


def judged(repeats: list[Repeat]) -> tuple[Timing, Any]:
    seen = timing(repeats, range(len(repeats)))
    return seen, timing_finding(repeats, seen, seen.p)


def test_repeats_that_differ_by_more_than_their_jitter_are_a_finding() -> None:
    repeats = [pace(level, seed) for seed, level in enumerate([1.0, 1.2, 0.9, 1.1])]
    seen, found = judged(repeats)
    assert found is not None
    assert found.mode == "non-determinism"
    assert found.classes == ("fwd",)
    assert found.confidence > 0.99
    assert found.recoverable_wall_ns == pytest.approx(24 * (0.2 + 0.1) * 1e7, rel=0.2)
    assert seen.between is not None
    assert seen.between[1] <= np.std([1.0, 1.2, 0.9, 1.1], ddof=1) / 1.05 <= seen.between[2]


def test_repeats_whose_jitter_is_as_large_are_none() -> None:
    """Near miss: the medians of such runs differ by several per cent, too."""
    silent = [judged([pace(1, 10 * seed + k, noise=0.2) for k in range(4)])[1] is None for seed in range(20)]
    assert sum(silent) >= 18


def test_a_difference_too_small_to_matter_is_none() -> None:
    seen, found = judged([pace(level, seed, noise=0.001) for seed, level in enumerate([1.0, 1.02])])
    assert seen.p is not None
    assert seen.p < 0.001
    assert found is None


def test_one_rank_that_holds_the_difference_is_named_and_may_be_a_straggler() -> None:
    rng = np.random.default_rng(1)
    work = [1e7 * rng.normal(1, 0.02, (24, 3)) for _ in range(2)]
    work[1][:, 2] *= 1.5
    _, found = judged([reduced(barriers(w, 1_000_000)) for w in work])
    assert found is not None
    assert found.ranks == (2,)
    assert found.alternatives == ("straggler cascade",)


def test_too_few_steps_are_not_judged() -> None:
    seen, found = judged([pace(level, 0, steps=4) for level in (1.0, 2.0)])
    assert (seen.p, seen.between, found) == (None, None, None)
