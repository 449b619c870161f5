"""The screen of ``taut watch top``: what it says, what fits, and names that are an attack."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from live_states import EVIL, S, finding, job, rank, state
from taut.render.terminal import Screen
from taut.render.watch_screen import render_top
from taut.result.types import WatchedJob


def lines(told: WatchedJob, **about: object) -> list[str]:
    return render_top(state(told), told, Screen(), **about).splitlines()  # type: ignore[arg-type]


def test_a_job_with_a_slow_rank() -> None:
    found = lines(job())
    assert found[0].startswith("llm: rank 3 on node0 is slow since step 1180")
    assert "8 of 8 ranks heard, 7 events lost · seen 08:00:00 UTC" in found
    (steps,) = (line for line in found if line.startswith("step 1,234  412 ms  ▁"))
    assert (steps[20], steps[-1], len(steps)) == ("▁", "▅", 80)
    assert "regime stable, reserve 2.50 (2.00 to 3.25): jitter may grow by this factor" in found
    assert " degraded component  rank 3, node0       1,180  07:58:30 UTC  14.20 EUR" in found
    assert any(line.startswith(" " + job().findings[0].text[:40]) for line in found)
    first = found[found.index("Ranks, the latest first") + 2]
    assert first.split() == ["3", "node0", "3", "92.0", "ms", "90.0", "ms", "0", "ns", "heard", "0"]


def test_what_is_not_known_is_a_dash() -> None:
    nothing = job(
        verdict="too few steps yet", kind="unknown", findings=[], step_ns=None, steps_ns=[], regime=None, reserve=None,
        world=None, last_step=None, ranks=[rank(0, host=None, gpu=None, late_ns=None, busy_ns=None, loader_ns=None)],
    )  # fmt: skip
    found = lines(nothing)
    assert found[0] == "llm: too few steps yet"
    assert "step –" in found
    assert found[-1].split() == ["0", "–", "–", "–", "–", "–", "heard", "0"]
    assert "Open findings" not in found


def test_it_fits_the_terminal() -> None:
    many = job(findings=[finding(id=str(one), ranks=list(range(512))) for one in range(40)], verdict="x" * 10_000)
    found = lines(many, lines=24)
    assert len(found) <= 24
    assert max(map(cell_len, found)) <= 80
    assert " and 34 findings more" in found
    assert len(lines(job(), lines=16)) == 16
    assert "2 of 8 ranks, the latest first" in lines(job(), lines=16)


def test_other_jobs_are_listed() -> None:
    one, other = job(), job(job="another")
    assert "also heard: another (--job NAME)" in render_top(state(one, other), one, Screen())


def test_what_is_old_says_since_when() -> None:
    assert lines(job(), silent_ns=400 * S)[0].startswith("nothing is written since 08:00:00 UTC, 6.67 min ago")
    assert render_top(state(), None, Screen()).startswith("no job is heard, since 07:00:00 UTC; TAUT_WATCH=")


@pytest.mark.parametrize("screen", [Screen(), Screen(unicode=False), Screen(40)])
def test_names_are_data(screen: Screen) -> None:
    evil = job(
        job=EVIL, verdict=EVIL, regime=EVIL, ranks=[rank(0, host=EVIL)],
        findings=[finding(job=EVIL, mode=EVIL, hosts=[EVIL], currency=EVIL, text=EVIL)],
    )  # fmt: skip
    text = render_top(state(evil, job(job=EVIL)), evil, screen)
    assert "\x1b" not in text
    assert all(cell_len(line) <= screen.width for line in text.splitlines())
    assert screen.unicode or text.isascii()
