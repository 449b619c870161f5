"""The interval in which a measured step should lie: model, parameters and noise."""

from __future__ import annotations

from math import exp, sqrt

import numpy as np
import pytest

from taut.core.student import student_quantile
from taut.project.training import model_error as errors
from taut.project.training.model_error import Paper, factors, model_error
from taut.result.types import ModelError


@pytest.fixture
def four(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four papers about one class, one about another."""
    means = (0.02, -0.04, 0.06, 0.0)
    known = [Paper("a", f"p{k}", 10, mean, 0.03) for k, mean in enumerate(means)]
    monkeypatch.setattr(errors, "papers", lambda: (*known, Paper("b", "p0", 5, -0.1, 0.05)))


@pytest.mark.usefixtures("four")
def test_papers_tell_the_interval_of_another_one() -> None:
    found = model_error("a")
    between = float(np.std((0.02, -0.04, 0.06, 0.0), ddof=1))
    assert (found.papers, found.prior) == (4, False)
    assert found.centre == pytest.approx(0.01)
    assert found.half_width == pytest.approx(student_quantile(0.1, 3) * sqrt(0.03**2 + between**2 * 1.25))
    assert model_error("a", without="p2").papers == 3


@pytest.mark.usefixtures("four")
def test_fewer_than_three_papers_are_a_prior() -> None:
    assert [model_error(kind).prior for kind in ("a", "b", "c")] == [False, True, True]
    assert model_error("c").centre == 0
    assert model_error("b").half_width > model_error("a").half_width


def test_two_papers_that_disagree_widen_the_prior(monkeypatch: pytest.MonkeyPatch) -> None:
    known = [Paper("a", f"p{k}", 10, mean, 0.03) for k, mean in enumerate((0.02, -0.04, 0.06, 0.0))]
    two = [Paper("b", f"q{k}", 2, mean, 0.0) for k, mean in enumerate((-0.8, 0.1))]
    monkeypatch.setattr(errors, "papers", lambda: (*known, *two))
    found = model_error("b")
    assert found.prior
    assert found.half_width == pytest.approx(student_quantile(0.1, 3) * float(np.std((-0.8, 0.1), ddof=1)))


def test_parts_add_up_and_each_widens_the_interval() -> None:
    error = ModelError(kind="a", papers=4, prior=False, centre=0.0, half_width=0.1)
    alone = factors(np.ones(1), error)
    assert (alone.lo, alone.hi) == (pytest.approx(exp(-0.1), rel=2e-3), pytest.approx(exp(0.1), rel=2e-3))
    noisy = factors(1 + 0.1 * np.random.default_rng(0).standard_normal(4000), error, np.array([0.8, 0.9, 1.0, 1.1, 1.25]))
    assert noisy.hi - noisy.lo > alone.hi - alone.lo
    parts = noisy.parts
    assert parts.model + parts.parameters + parts.noise == pytest.approx(1)
    assert min(parts.model, parts.parameters, parts.noise) > 0.05
    about = noisy.inverse().of(50.0)
    assert about.lo is not None
    assert about.hi is not None
    assert about.lo < 50 < about.hi
