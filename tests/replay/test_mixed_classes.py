"""Which ops have a reference: equal ones have, whoever is slow; mixtures of lengths have none."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tests.build import MS, Do, play

from taut.core.tables import Kind, Verb
from taut.run import Analysis, analyze_trace

Length = Callable[[int, int, int], float]


def analysed(length: Length, ranks: int = 4, steps: int = 12, ops: Callable[[int, int], int] = lambda r, s: 8) -> Analysis:
    """Kernels of one class, ``length(rank, step, n)`` ms each with 1 % noise, then an all-reduce."""
    rng = np.random.default_rng(7)
    todo = []
    for step in range(steps):
        for rank in range(ranks):
            for n in range(ops(rank, step)):
                took = length(rank, step, n) * (1 + 0.01 * rng.standard_normal())
                todo.append(Do(rank, "kernel", int(took * MS), step=step, kind=Kind.COMPUTE))
            todo.append(Do(rank, "AR", MS, step=step, verb=Verb.ALL_REDUCE))
    return analyze_trace(play(todo))


def slow_share(a: Analysis) -> float:
    return a.ledger.by_fate["slow compute"] / a.ledger.total_rank_ns


def unequal(rank: int, step: int) -> int:
    """A number of kernels on which ranks and steps do not agree."""
    return 8 + (rank + step) % 3


def of_two(n: int) -> float:
    return 50 if n % 4 == 0 else 1


def test_kernels_of_two_sizes_whose_places_are_not_known_are_not_slow() -> None:
    a = analysed(lambda r, s, n: of_two(n), ops=unequal)
    assert slow_share(a) < 0.002
    assert np.isnan(a.blame.peers.value_ns[a.graph.ops.kind == Kind.COMPUTE]).all()
    assert not a.findings


def test_one_rank_with_kernels_of_two_sizes_is_not_slow() -> None:
    assert slow_share(analysed(lambda r, s, n: of_two(n), ranks=1, ops=unequal)) < 0.01


def test_lengths_of_any_size_have_no_reference() -> None:
    a = analysed(lambda r, s, n: 1.5**n, ops=unequal)
    assert slow_share(a) < 0.002


def test_equal_kernels_whose_places_are_not_known_keep_their_reference() -> None:
    a = analysed(lambda r, s, n: 5 * (1.5 if r == 2 else 1), ops=lambda r, s: 8 + s * s % 11)
    assert not a.graph.aligned[a.graph.ops.kind == Kind.COMPUTE].any()
    assert not a.blame.peers.mixed.any()
    assert [f.ranks for f in a.findings] == [(2,)]


def test_steps_that_alternate_are_compared_with_their_like() -> None:
    """Prefill and decode: no rank is slow; one that is in both is found."""
    assert slow_share(analysed(lambda r, s, n: 20 if s % 3 == 0 else 1)) < 0.01
    assert slow_share(analysed(lambda r, s, n: 20 if s % 3 == 0 else 1, ranks=1)) < 0.01
    a = analysed(lambda r, s, n: (20 if s % 3 == 0 else 1) * (1.3 if r == 1 else 1))
    assert [f.ranks for f in a.findings] == [(1,)]


def test_a_long_first_step_is_of_another_kind() -> None:
    assert slow_share(analysed(lambda r, s, n: 40 if s == 0 else 1, ranks=1)) < 0.01


def test_a_slow_rank_with_mixed_shapes_is_found() -> None:
    a = analysed(lambda r, s, n: of_two(n) * (1.3 if r == 2 else 1))
    assert [f.ranks for f in a.findings] == [(2,)]
    assert slow_share(a) > 0.03


def test_a_slow_rank_with_mixed_shapes_in_steps_of_several_kinds_is_found() -> None:
    """The number of kernels differs from step to step, but all ranks agree on it: places are known within a kind of step."""
    a = analysed(lambda r, s, n: of_two(n) * (1.3 if r == 2 else 1), ops=lambda r, s: 8 + s % 3)
    assert [f.ranks for f in a.findings] == [(2,)]
    assert slow_share(analysed(lambda r, s, n: of_two(n), ops=lambda r, s: 8 + s % 3)) < 0.01


def test_a_rank_that_is_slow_in_half_of_its_steps_is_found() -> None:
    """Two lengths in its class, but of one rank: the others keep the reference."""
    for slow in (lambda s: s >= 6, lambda s: s % 2 == 0):
        a = analysed(lambda r, s, n, slow=slow: 5 * (1.3 if r == 3 and slow(s) else 1))
        assert {rank for f in a.findings for rank in f.ranks} == {3}


def test_shapes_that_data_decides_are_no_classes_of_their_own() -> None:
    """Every step has another grid: the name alone makes the class."""
    rng = np.random.default_rng(3)
    todo = []
    for step in range(8):
        for rank in range(4):
            took = int(5 * MS * (1.4 if rank == 1 else 1) * (1 + 0.01 * rng.standard_normal()))
            todo += [Do(rank, "kernel", took, step=step, size=1000 + 7 * step + rank, kind=Kind.COMPUTE)]
            todo += [Do(rank, "AR", MS, step=step, verb=Verb.ALL_REDUCE)]
    a = analyze_trace(play(todo))
    assert (a.graph.shape[a.graph.ops.kind == Kind.COMPUTE] == -1).all()
    assert [f.ranks for f in a.findings] == [(1,)]
