"""Where work runs: the same results everywhere, workers that die, and places where nothing can run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from typing import Any

import pytest

from taut.core.errors import UsageError
from taut.core.executors import LOCAL, ExecutorLost, checked, executor_at, results_in_order

NUMBERS = [3, 1, 2]


class Mortal(Executor):
    """Workers that die while they do the first task, or before they get the second."""

    def __init__(self, at_once: bool) -> None:
        self.at_once, self.asked = at_once, 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.asked += 1
        if self.at_once and self.asked == 2:
            raise BrokenExecutor
        done: Future[Any] = Future()
        if self.asked == 1:
            done.set_exception(BrokenExecutor())
        else:
            done.set_result(fn(*args, **kwargs))
        return done


class Lost(Executor):
    """A scheduler that goes away: what was asked of it is cancelled."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.cancel()
        done.set_running_or_notify_cancel()
        return done


def test_results_come_in_the_order_of_tasks() -> None:
    with ThreadPoolExecutor(2) as pool:
        assert list(results_in_order(pool, str, NUMBERS)) == ["3", "1", "2"]
        assert pool.submit(str, 4).result() == "4", "an executor that was given stays open"
    assert list(results_in_order(LOCAL, str, NUMBERS)) == ["3", "1", "2"]


@pytest.mark.parametrize("at_once", [False, True])
def test_what_workers_died_of_is_done_here(at_once: bool) -> None:
    assert list(results_in_order(Mortal(at_once), str, NUMBERS)) == ["3", "1", "2"]


def test_a_scheduler_that_is_lost_is_said_with_what_to_do() -> None:
    with pytest.raises(ExecutorLost, match="go on with --resume"):
        list(results_in_order(Lost(), str, NUMBERS))


def test_what_a_task_raises_is_raised() -> None:
    with ThreadPoolExecutor(1) as pool, pytest.raises(ValueError, match="invalid literal"):
        list(results_in_order(pool, int, ["1", "x"]))


@pytest.mark.parametrize("on", ["", "here", "dask:8786", "dask://", "dask://host", "dask://host:x", "tcp://host:8786"])
def test_what_is_no_place_is_refused_in_one_line(on: str) -> None:
    with pytest.raises(UsageError, match="give local, or the address of a Dask scheduler") as refusal:
        checked(on)
    assert "\n" not in str(refusal.value)


def test_dask_that_is_not_installed_is_said_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UsageError, match=r"--on dask://host:8786: Dask is not installed; pip install 'taut\[cluster\]'"):
        executor_at("dask://host:8786", 1).__enter__()
