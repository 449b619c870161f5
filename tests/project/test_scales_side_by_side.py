"""Scales that are forecast by an executor: the same result as one after the other."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pickle import dumps, loads
from typing import Any, cast

import pytest

import taut
from taut.core.executors import Executor
from taut.core.json_text import json_text


class Travelling(ThreadPoolExecutor):
    """Everything that is asked and answered is pickled on its way, as between processes."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        sent = dumps((fn, args, kwargs))
        return super().submit(_answered, sent)


def _answered(sent: bytes) -> object:
    work, args, kwargs = loads(sent)
    return loads(dumps(work(*args, **kwargs)))


@pytest.mark.parametrize(("scenario", "ranks"), [("fixed-batch", [1024, 2048]), ("retry-heavy", ())])
def test_scales_and_policies_are_the_same_on_an_executor(scenario: str, ranks: Any) -> None:
    with Travelling(2) as pool:
        there = taut.project(scenario, ranks=ranks, steps=4, on=cast(Executor, pool))
    assert json_text(there) == json_text(taut.project(scenario, ranks=ranks, steps=4))
