"""Normal scores agree with scipy's."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri, ndtri_exp

from taut.core.normal_score import normal_score, upper_score


def test_scores_of_chances_and_of_one_minus_them() -> None:
    chance = np.concatenate([10.0 ** np.arange(-300, -1, 7), np.linspace(0.01, 0.5, 99)])
    assert np.allclose(normal_score(chance, 1 - chance), ndtri(chance), rtol=1e-13, atol=1e-15)
    assert np.allclose(normal_score(1 - chance, chance), -ndtri(chance), rtol=1e-13, atol=1e-15)


def test_scores_of_logarithms() -> None:
    log_upper = -np.linspace(1e-6, 600, 10_000)
    assert np.allclose(upper_score(log_upper), -ndtri_exp(log_upper), rtol=1e-9, atol=1e-12)
