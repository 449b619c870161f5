"""Size and CPU of ``taut export RUN --to html``, and how soon such a file, opened from disk, shows itself, as Markdown.

    python bench/file_export.py RUN… [--turns 5]

CPU is that of the whole process. Times are those of the page (``performance.now``) in chromium through playwright: from the
beginning of the load to the first headline, and to the last chart of the overview; a frame of the timeline, asked for and
unpacked for the first time and later; and what drawing one takes.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SEEN = """
const seen = (name, selector) => new MutationObserver((_, self) => {
  if (document.querySelector(selector)) { (window.times = window.times || {})[name] = performance.now(); self.disconnect(); }
}).observe(document, { childList: true, subtree: true });
seen('headline', 'main .headline'); seen('charts', 'main .chart .inside canvas');
"""
FRAME = """async (share) => {
  const axis = await taut.source.get('file', 'axis', {}), length = Math.floor(axis.wall_ns * share), rows = axis.rows.length;
  const begin = Math.floor(Math.random() * (axis.wall_ns - length)), before = performance.now();
  const place = { begin_ns: begin, end_ns: begin + length, first_row: 0, rows, columns: 1200, lines: Math.min(rows, 600) };
  await taut.source.get('file', 'frame', place);
  return performance.now() - before;
}"""


@dataclass(frozen=True)
class Measured:
    """One run."""

    name: str
    size: int
    cpu_s: float
    headline_ms: list[float]
    charts_ms: list[float]
    first_ms: list[float]
    whole_ms: list[float]
    part_ms: list[float]
    drawn_ms: list[float]


def exported(run: str, path: Path) -> float:
    """CPU seconds of an export."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "taut", "export", run, "--to", "html", "-o", str(path)]
    subprocess.run(command, check=True, capture_output=True, env=os.environ | {"TAUT_AUDIT": "off"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measured(run: str, browser: Browser, turns: int) -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "taut.html"
        found = Measured(run, 0, exported(run, path), [], [], [], [], [], [])
        for _ in range(turns):
            page = browser.new_page(viewport={"width": 1280, "height": 720}, reduced_motion="reduce")
            shown(page, path, found)
            page.close()
        return Measured(run, path.stat().st_size, *list(vars(found).values())[2:])


def shown(page: Page, path: Path, found: Measured) -> None:
    """One opening of the file: the overview, then the timeline."""
    page.add_init_script(SEEN)
    page.goto(path.as_uri())
    page.wait_for_selector("main .chart .inside canvas")
    times = page.evaluate("window.times")
    found.headline_ms.append(times["headline"])
    found.charts_ms.append(times["charts"])
    found.first_ms.append(page.evaluate(FRAME, 1))
    page.keyboard.press("2")
    page.wait_for_selector(".timeline-where:not(:empty)")
    for share, out in ((1, found.whole_ms), (0.02, found.part_ms)):
        page.evaluate(FRAME, share)
        out += [page.evaluate(FRAME, share) for _ in range(3)]
    page.evaluate("taut.canvas.times.length = 0")
    page.focus(".timeline-over")
    for _ in range(6):
        page.keyboard.press("+")
        page.wait_for_timeout(150)
    found.drawn_ms.extend(page.evaluate("[...taut.canvas.times]"))


def words(values: list[float]) -> str:
    return f"{median(values):,.0f} ({min(values):,.0f}–{max(values):,.0f})"


def main() -> None:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN")
    parser.add_argument("--turns", type=int, default=5)
    args = parser.parse_args()
    heads = ("run", "MB", "export, CPU s", "first headline, ms", "last chart, ms", "first frame, ms")
    print(f"| {' | '.join([*heads, 'whole run again, ms', '2 % of it, ms', 'drawing, ms'])} |")
    print("|---|---|---|---|---|---|---|---|---|")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=which("chromium"), args=["--no-sandbox"])
        for run in args.runs:
            one = measured(run, browser, args.turns)
            cells = [words(values) for values in list(vars(one).values())[3:]]
            print(f"| {one.name} | {one.size / 1e6:.2f} | {one.cpu_s:.1f} | {' | '.join(cells)} |", flush=True)
        browser.close()


if __name__ == "__main__":
    main()
