"""Retries: attempts and layers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.project.requests.retry_load import expected_attempts, layered


def test_layers_multiply() -> None:
    """Three retries over a library's two."""
    assert layered([3, 2]) == 12
    assert layered([]) == 1


@given(st.floats(0, 0.99), st.integers(1, 20))
def test_attempts_are_a_geometric_sum(failure: float, attempts: int) -> None:
    assert expected_attempts(failure, attempts) == pytest.approx(sum(failure**k for k in range(attempts)))


def test_what_always_fails_takes_all_attempts() -> None:
    assert expected_attempts(1.0, 12) == 12
