"""The end of a watched job: one that ends as it should says goodbye, one that failed does not."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable

import pytest

import taut.watch
from collecting import SECRET, collecting

pytest.importorskip("torch")


@pytest.mark.parametrize("failed", [False, True])
def test_a_job_says_goodbye_at_its_end_unless_it_failed(failed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    at_exit: list[Callable[[], object]] = []
    monkeypatch.setattr(atexit, "register", at_exit.append)
    monkeypatch.setattr("taut.watch.sender.EVERY_S", 0.05)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("JOB_NAME", "job")
    for name in ("last_exc", "last_value"):
        monkeypatch.delattr(sys, name, raising=False)
    with collecting() as running:
        try:
            assert taut.watch.start(f"127.0.0.1:{running.port}", secret=SECRET.decode())
            running.until(lambda: running.collector.counts["messages"])  # it is connected for its own part too
            if failed:
                monkeypatch.setattr(sys, "last_value", ValueError("bad batch"), raising=False)
            for end in at_exit:
                end()
            if failed:
                assert not running.window().ranks[0].ended
            else:
                running.until(lambda: running.window().ranks[0].ended)
        finally:
            taut.watch.stop()
